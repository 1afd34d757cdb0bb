"""LangChain tools for the memory of one agent: `remember` stores a text, `recall` finds it, `forget` erases it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, create_model, model_validator

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.agent.tool_arguments import MAX_HITS, Language, ToolArguments, point_in_time, whole_number
from langchain_agentrag.agent.tool_replies import ToolReplies, hit_record
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.indexer import AgentView, DualIndexer
from langchain_agentrag.langchain.identity import check_agent_binding
from langchain_agentrag.langchain.tools import StoreTool, has_evidence, mark_retrieval
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.times import document_time
from langchain_agentrag.types import Hits, SourceDocument, SyncReport

MEMORY_TYPE = "memory"
"""`type` in the metadata of what `remember` stores."""

MAX_MEMORY = 2_000
"""Longest text in characters that `remember` stores; longer texts belong in documents."""

_DEFAULT_K = 5


def create_memory_tools(
    indexer: DualIndexer,
    agent_id: str | None = None,
    *,
    agent_id_key: str | None = None,
    language: Language = "en",
    prefix: str = "",
    max_chars: int = 6_000,
    safety: PassageSafety | None = None,
) -> list[BaseTool]:
    """Return the tools `remember`, `recall` and `forget` over the memories of one agent.

    A memory is a private document of the agent with `type` "memory" and the time at which it was stored; the same text
    is stored once. The tools find and erase nothing else: no document of another agent, no shared one, no file of the
    agent's own. The agent is no argument of the tools, so a model cannot choose one.

    Args:
        indexer: The store.
        agent_id: The agent.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        language: Language of descriptions and replies, "en" or "zh".
        prefix: Prefix of the names: "user" makes `user_remember`, `user_recall` and `user_forget`.
        max_chars: Approximate maximum length of a reply of `recall` in characters.
        safety: Protection against prompt injection in recalled text; `PassageSafety.off()` turns it off.

    Raises:
        ScopeError: neither or both of `agent_id` and `agent_id_key` are given, or the id is invalid.
    """
    check_agent_binding(agent_id, agent_id_key)
    if agent_id is None and agent_id_key is None:
        raise ScopeError(
            "create_memory_tools() needs the agent whose memory it is: pass agent_id=…, or agent_id_key=… to take it "
            "from each run."
        )
    names = {kind: f"{prefix}_{kind}" if prefix else kind for kind in ("remember", "recall", "forget")}
    settings: dict[str, Any] = {
        "indexer": indexer,
        "agent_id": agent_id,
        "agent_id_key": agent_id_key,
        "language": language,
        "max_chars": max_chars,
        "safety": safety or PassageSafety(),
        "names": names,
    }
    recall = mark_retrieval(_RecallTool(name=names["recall"], **settings), "search")
    return [_RememberTool(name=names["remember"], **settings), recall, _ForgetTool(name=names["forget"], **settings)]


def _check_text(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{info.field_name} must be one text and not empty, not {short_repr(value)}")
    return value


def _check_k(value: Any) -> int:
    return whole_number("k", value, _DEFAULT_K, 1, MAX_HITS)


def _check_time(value: Any, info: ValidationInfo) -> str:
    return point_in_time(info.field_name or "", value)


_Text = Annotated[str, BeforeValidator(_check_text)]
_Count = Annotated[int, BeforeValidator(_check_k)]
_Time = Annotated[str, BeforeValidator(_check_time)]


class _MemoryTool(StoreTool):
    """Base of the three tools; `names` are the names of all three."""

    description: str = ""
    names: dict[str, str]

    _texts: Mapping[str, str] = PrivateAttr()

    @model_validator(mode="after")
    def _load_texts(self) -> _MemoryTool:
        self._texts = load_messages("langchain", "memory_tools", self.language)
        self._replies = ToolReplies(self.language, self._texts["about"], self.names["recall"], self.safety)
        self._set_up()
        return self

    def _set_up(self) -> None:
        """Set description and schema of the arguments."""
        raise NotImplementedError

    def _view(self, config: RunnableConfig) -> AgentView:
        return self.indexer.for_agent(self._resolve_agent(config) or "")

    def _describe_memory(self, kind: str) -> str:
        return self._texts[kind].format(max_chars=MAX_MEMORY, **self.names)


class _RememberTool(_MemoryTool):
    def _set_up(self) -> None:
        self.description = self._describe_memory("remember")
        field: Any = Field(description=self._describe_memory("text"))
        self.args_schema = create_model("Remember", __base__=ToolArguments, text=(_Text, field))

    def _run(self, text: str, *, config: RunnableConfig) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            document = _memory(text)
            return self._reply(document, self._view(config).index_documents([document], split=False))

    async def _arun(self, text: str, *, config: RunnableConfig) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            document = _memory(text)
            report = await asyncio.to_thread(self._view(config).index_documents, [document], split=False)
            return self._reply(document, report)

    def _reply(self, document: SourceDocument, report: SyncReport) -> tuple[str, list[dict[str, Any]]]:
        reply = self._texts["remembered" if report.added else "known"]
        return reply.format(doc_id=document.doc_id), [{"doc_id": document.doc_id, "added": bool(report.added)}]


class _RecallTool(_MemoryTool):
    def _set_up(self) -> None:
        self.description = self._describe_memory("recall")
        arguments = load_messages("agent", "tool_arguments", self.language)
        self.args_schema = create_model(
            "Recall",
            __base__=ToolArguments,
            query=(_Text, Field(description=arguments["query"])),
            k=(_Count, Field(_DEFAULT_K, description=arguments["k"].format(max_hits=MAX_HITS))),
            after=(_Time, Field("", description=arguments["after"])),
            before=(_Time, Field("", description=arguments["before"])),
        )

    def _run(
        self, query: str, k: int = _DEFAULT_K, after: str = "", before: str = "", *, config: RunnableConfig
    ) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            view = self._view(config)
            return self._reply(view.search(query, k, **_only_memories(view, after, before)), query)

    async def _arun(
        self, query: str, k: int = _DEFAULT_K, after: str = "", before: str = "", *, config: RunnableConfig
    ) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            view = self._view(config)
            return self._reply(await view.asearch(query, k, **_only_memories(view, after, before)), query)

    def _reply(self, hits: Hits, query: str) -> tuple[str, list[dict[str, Any]]]:
        found = [hit for hit in hits if has_evidence(hit)]
        if not found:
            return self._texts["nothing"].format(query=query[:200]), []
        lines: list[str] = []
        fence, room = self.safety.fence(self.language), self.max_chars
        for hit in found:
            name, time = f"doc_id={self.safety.identifier(hit.doc_id)}", document_time(hit.metadata)
            outside, inside = (name, "") if self.safety.may_stand_open(hit.doc_id) else ("", name)
            when = f"{time:(%Y-%m-%d %H:%M UTC)}" if time else ""
            entry = " ".join(filter(None, [outside, when, fence.wrap(hit.text, hit.metadata, names=inside)]))
            room -= len(entry)
            if lines and room < 0:
                lines.append(self._texts["left_out"].format(n=len(found) - len(lines)))
                break
            lines.append(entry)
        head = self._texts["recalled" if hits.convincing else "unsure"].format(n=len(found), query=query[:200])
        return "\n".join([head, *lines]), [hit_record(hit) for hit in found]


class _ForgetTool(_MemoryTool):
    def _set_up(self) -> None:
        self.description = self._describe_memory("forget")
        field: Any = Field(description=self._describe_memory("doc_id"))
        self.args_schema = create_model("Forget", __base__=ToolArguments, doc_id=(_Text, field))

    def _run(self, doc_id: str, *, config: RunnableConfig) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            return self._reply(doc_id, self._view(config).erase(doc_id, filter={"type": MEMORY_TYPE}))

    async def _arun(self, doc_id: str, *, config: RunnableConfig) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            report = await asyncio.to_thread(self._view(config).erase, doc_id, filter={"type": MEMORY_TYPE})
            return self._reply(doc_id, report)

    def _reply(self, doc_id: str, report: SyncReport) -> tuple[str, list[dict[str, Any]]]:
        shown = self.safety.identifier(doc_id[:200])
        if not report.deleted:
            raise UsageError(self._texts["unknown"].format(doc_id=shown, **self.names))
        return self._texts["forgotten"].format(doc_id=shown), [{"doc_id": doc_id, "erased": True}]


def _memory(text: str) -> SourceDocument:
    """Return the document of a memory; its id is made from the text, so that a text is stored once."""
    text = text.strip()
    if len(text) > MAX_MEMORY:
        raise UsageError(f"text has {len(text):,} characters, at most {MAX_MEMORY:,} are stored: write the gist of it")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return SourceDocument(f"memory-{digest}", text, {"type": MEMORY_TYPE, "time": datetime.now(UTC)})


def _only_memories(view: AgentView, after: str, before: str) -> dict[str, Any]:
    bounds = {name: value for name, value in (("after", after), ("before", before)) if value}
    return {"filter": {"agent_id": view.agent_id, "type": MEMORY_TYPE}, **bounds}
