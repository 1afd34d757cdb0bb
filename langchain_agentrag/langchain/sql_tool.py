"""`SQLTool`: the tool `run_sql`, read-only SQL queries of an agent."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any, Literal

from langchain_core.tools import BaseTool, ToolException
from pydantic import ConfigDict, Field, create_model, model_validator

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.agent.tool_arguments import Language, ToolArguments, format_validation_error
from langchain_agentrag.agent.tool_replies import json_safe
from langchain_agentrag.connectors.sql.query import ReadOnlyDatabase
from langchain_agentrag.connectors.sql.results import QueryResult
from langchain_agentrag.errors import AgentRagError

logger = logging.getLogger(__name__)

_MAX_VALUE_CHARS = 300


class SQLTool(BaseTool):
    """Tool `run_sql`: runs one SELECT statement.

    The tool sees whatever its connection can read, so isolated agents need separate connections. The artifact is a list
    with one JSON-safe record per row.

    Attributes:
        database: Database to query.
        language: Language of the description and of the replies.
        max_chars: Approximate maximum length of a reply in characters.
        safety: Protection against prompt injection in the reply; the artifact has the rows unchanged.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "run_sql"
    description: str = ""
    database: ReadOnlyDatabase = Field(repr=False, exclude=True)
    language: Language = "en"
    max_chars: int = Field(default=6_000, ge=200)
    safety: PassageSafety = PassageSafety()
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    handle_validation_error: Any = True

    @model_validator(mode="after")
    def _set_defaults(self) -> SQLTool:
        texts = load_messages("langchain", "sql_tool", self.language)
        if not self.description:
            self.description = texts["description"].format(
                dialect=self.database.dialect,
                rows=self.database.max_rows,
                schema=self.safety.fence(self.language).wrap(self.database.schema(), {}, block=True),
            )
        if self.args_schema is None:
            sql = (str, Field(description=texts["sql"]))
            self.args_schema = create_model("RunSQL", __base__=ToolArguments, sql=sql)
        if self.handle_validation_error is True:
            self.handle_validation_error = partial(format_validation_error, language=self.language)
        self.metadata = {**(self.metadata or {}), "agentrag": "search"}
        return self

    def _run(self, sql: str) -> tuple[str, list[dict[str, Any]]]:
        try:
            result = self.database.run(sql)
        except AgentRagError as error:
            raise ToolException(self._failure(error)) from error
        except Exception as error:
            logger.exception("the tool %s failed", self.name)
            raise ToolException(self._failure(type(error).__name__)) from error
        return self._reply(result)

    async def _arun(self, sql: str) -> tuple[str, list[dict[str, Any]]]:
        return await asyncio.to_thread(self._run, sql)

    def _failure(self, error: object) -> str:
        texts = load_messages("langchain", "sql_tool", self.language)
        return texts["failed"].format(name=self.name, error=self.safety.message(str(error), self.language))

    def _reply(self, result: QueryResult) -> tuple[str, list[dict[str, Any]]]:
        texts = load_messages("langchain", "sql_tool", self.language)
        records = [
            {name: _truncate(value) for name, value in zip(result.columns, row, strict=True)} for row in result.rows
        ]
        if not records:
            return texts["none"], []
        lines: list[str] = []
        chars_left, more = self.max_chars, result.more
        for record in records:
            line = json.dumps(record, ensure_ascii=False)
            chars_left -= len(line)
            if lines and chars_left < 0:
                more = True
                break
            lines.append(line)
        notes = [texts["more"]] * more + [texts["cut"]] * bool(result.truncated)
        head = f"{texts['rows'].format(n=len(lines))}{''.join(notes)}:"
        fenced = self.safety.fence(self.language).wrap("\n".join(lines), {"type": "row"}, block=True)
        return f"{head}\n{fenced}", records


def _truncate(value: Any) -> Any:
    safe = json_safe(value)
    return f"{safe[:_MAX_VALUE_CHARS]}…" if isinstance(safe, str) and len(safe) > _MAX_VALUE_CHARS else safe
