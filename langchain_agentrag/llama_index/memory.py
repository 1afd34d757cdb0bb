"""`HybridMemoryBlock`: what left the short-term memory, found again by meaning, by word, by session and by time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.memory import BaseMemoryBlock
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.errors import ScopeError
from langchain_agentrag.filters import And, Condition, Filter
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.llama_index.retriever import has_evidence
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.times import EPOCH, TIME_KEYS, check_duration, document_time, parse_time
from langchain_agentrag.types import Hit, SourceDocument

_KINDS = ("dialogue", "tool_call")


def _now() -> datetime:
    return datetime.now(UTC)


class HybridMemoryBlock(BaseMemoryBlock[str]):
    """A block for LlamaIndex's `Memory` that recalls past messages of one agent.

    It keeps no state of its own: every call says which session it is for, so one block serves any number of sessions.
    Messages are stored one by one as the agent's private documents, with role, session and time; storing one twice
    changes nothing. `memory.aget(…, since=…, until=…)` asks for a stretch of time.

    Attributes:
        indexer: The store.
        agent_id: Whose memory; there is no shared one, since every agent would see it.
        k: Messages to recall.
        across_sessions: Whether messages of the agent's other sessions are recalled too.
        query_messages: How many of the last messages form the query.
        half_life: Age at which the bonus for being recent is halved (`recency` of a search); None for no bonus.
        ttl: How long messages are remembered; None for ever.
        max_chars: Longest recollection, without the marks around it.
        clock: What time it is, for messages that do not say.
        safety: How what is recalled is shown to the model.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "recollection"
    indexer: DualIndexer = Field(exclude=True, repr=False)
    agent_id: str
    k: int = Field(default=4, ge=1)
    across_sessions: bool = False
    query_messages: int = Field(default=1, ge=1)
    half_life: timedelta | None = None
    ttl: timedelta | None = None
    max_chars: int = Field(default=4_000, ge=100)
    clock: Callable[[], datetime] = Field(default=_now, exclude=True, repr=False)
    safety: PassageSafety = Field(default=PassageSafety(), exclude=True, repr=False)

    @field_validator("agent_id")
    @classmethod
    def _valid_agent(cls, value: str) -> str:
        checked = check_agent_id(value)
        if checked is None:
            raise ScopeError("A memory block needs the id of an agent.")
        return checked

    @field_validator("half_life", "ttl")
    @classmethod
    def _positive(cls, value: timedelta | None, info: ValidationInfo) -> timedelta | None:
        return None if value is None else check_duration(info.field_name or "", value)

    def for_agent(self, agent_id: str) -> Self:
        """The same block for another agent."""
        return type(self)(
            **{**{name: getattr(self, name) for name in type(self).model_fields}, "agent_id": agent_id}
        )

    # -- recall ---------------------------------------------------------------------------------------------------

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Past messages that bear on the last ones, oldest first; "" when there are none.

        Args:
            messages: The conversation so far.
            block_kwargs: session_id; since and until, datetimes; agent_id, which must be the block's own. Others are
                meant for other blocks.
        """
        agent = block_kwargs.get("agent_id")
        if agent is not None and agent != self.agent_id:
            raise ScopeError(
                f"The memory block of agent {self.agent_id!r} does not recall for agent {agent!r}."
            )
        query = "\n".join(
            text for message in _asked(messages or [], self.query_messages) if (text := _text(message))
        )
        if not query.strip():
            return ""
        hits = await self.indexer.asearch(
            query,
            self.k,
            agent_id=self.agent_id,
            filter=self._condition(block_kwargs.get("session_id")),
            after=block_kwargs.get("since"),
            before=block_kwargs.get("until"),
            recency=self.half_life,
            now=self.clock(),
        )
        told = sorted(filter(has_evidence, hits), key=lambda hit: (_moment(hit), hit.doc_id, hit.chunk_id))
        return _written(told, self.max_chars, self.safety)

    def _condition(self, session: object) -> Filter:
        parts = [Condition("agent_id", "$eq", self.agent_id), Condition("type", "$in", list(_KINDS))]
        if not self.across_sessions:
            parts.append(Condition("session", "$eq", session))
        return And(tuple(parts))

    # -- storing --------------------------------------------------------------------------------------------------

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,  # noqa: FBT001, FBT002  (LlamaIndex's signature)
        session_id: str | None = None,
    ) -> None:
        """Remember messages of a session; they are not changed."""
        if from_short_term_memory and not self.accept_short_term_memory:
            return
        await self._store(messages, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        session = next((found for m in messages if (found := m.additional_kwargs.get("session_id"))), None)
        await self._store(messages, session)

    async def _store(self, messages: list[ChatMessage], session: str | None) -> None:
        now = self.clock()
        documents = [
            self._document(message, session, now + timedelta(microseconds=place))
            for place, message in enumerate(messages)
            if message.role != MessageRole.SYSTEM and _text(message).strip()
        ]
        if documents:
            await self.indexer.aindex_documents(documents, self.agent_id, ttl=self.ttl)

    def _document(self, message: ChatMessage, session: str | None, now: datetime) -> SourceDocument:
        text, said = _text(message), _said_at(message)
        identity = json.dumps(
            [session, message.role.value, text, said and said.isoformat()], ensure_ascii=False
        )
        digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        called = any(isinstance(block, ToolCallBlock) for block in message.blocks)
        metadata: dict[str, Any] = {
            "type": "tool_call" if called or message.role == MessageRole.TOOL else "dialogue",
            "role": message.role.value,
            "session": session,
            "time": said or now,
        }
        call = message.additional_kwargs.get("tool_call_id")
        if isinstance(call, str):
            metadata["tool_call_id"] = call
        return SourceDocument(f"memory-{digest}", text, metadata)

    async def aforget(self, session_id: str | None) -> int:
        """Forget a session of this agent; the number of messages that are gone."""
        condition = And((Condition("type", "$in", list(_KINDS)), Condition("session", "$eq", session_id)))
        return (await self.indexer.adelete(filter=condition, agent_id=self.agent_id)).deleted


def _asked(messages: list[ChatMessage], count: int) -> list[ChatMessage]:
    """The last messages, up to what the user said last: the query."""
    users = [place for place, message in enumerate(messages) if message.role == MessageRole.USER]
    end = users[-1] + 1 if users else len(messages)
    return messages[max(0, end - count) : end]


def _text(message: ChatMessage) -> str:
    """What a message says, tool calls with name and arguments, other parts by their kind."""
    parts = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif isinstance(block, ToolCallBlock):
            given = block.tool_kwargs
            written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
            parts.append(f"{block.tool_name}({written})")
        else:
            parts.append(f"[{block.block_type}]")
    return "\n".join(part for part in parts if part)


def _said_at(message: ChatMessage) -> datetime | None:
    """When a message says it was said, in the zone it names, UTC without one."""
    said = message.additional_kwargs
    for given in (said[key] for key in TIME_KEYS if key in said):
        if (found := parse_time(given)) is not None:
            return found.astimezone(_zone(given))
    return None


def _zone(given: object) -> tzinfo:
    """The zone a time is written in: what is recalled shows the hour that people saw on the clock."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given.strip())
        except ValueError:
            return UTC
    return (given.tzinfo if isinstance(given, datetime) else None) or UTC


def _moment(hit: Hit) -> datetime:
    return document_time(hit.metadata) or EPOCH


def _written(hits: Sequence[Hit], most: int, safety: PassageSafety) -> str:
    """The recollection as text: one entry per message, with time and role, the oldest left out when it is too long."""
    if not hits:
        return ""
    entries: list[str] = []
    for hit in hits:
        said = hit.metadata.get("time")
        when = f"{said:%Y-%m-%d %H:%M} " if isinstance(said, datetime) else ""
        entries.append(f"[{when}{hit.metadata.get('role', '')}] {hit.text}")
    while len(entries) > 1 and sum(map(len, entries)) + len(entries) > most:
        entries.pop(0)
    least = next((hit.metadata for hit in hits if safety.trust(hit.metadata) == "low"), hits[0].metadata)
    return safety.fence("both").wrap("\n".join(entries)[:most], least, block=True)
