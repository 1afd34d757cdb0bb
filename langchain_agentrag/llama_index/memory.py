"""`HybridMemoryBlock`: long-term memory block for LlamaIndex, searched by meaning, words, session and time."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.agent.tool_arguments import detect_language
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.filters import And, Condition, Filter
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.llama_index.retriever import has_evidence
from langchain_agentrag.scope import require_agent_id
from langchain_agentrag.times import EPOCH, TIME_KEYS, check_duration, document_time, parse_time
from langchain_agentrag.types import Hit, SourceDocument

_MEMORY_TYPES = ("dialogue", "tool_call")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class HybridMemoryBlock(BaseMemoryBlock[str]):
    """Block for LlamaIndex's `Memory` that recalls past messages of one agent.

    The block is stateless: each call names its session, so one block serves any number of sessions. Each message is
    stored as a private document of the agent, with role, session and time; storing a message again changes nothing.
    `memory.aget(…, since=…, until=…)` limits the recall to a time range.

    Attributes:
        indexer: The store.
        agent_id: The agent, required: shared messages would be visible to every agent.
        k: Number of messages to recall.
        across_sessions: Whether messages of the agent's other sessions are recalled too.
        query_messages: How many of the last messages form the query.
        half_life: Age at which the recency bonus is halved, as `recency` of a search: a timedelta, seconds, or "7d";
            None for no bonus.
        ttl: Time to live of messages, the same; None for no expiry.
        max_chars: Maximum length of the recalled text in characters, without the fence around it.
        clock: Function that returns the current time, for messages without one.
        safety: Protection against prompt injection in recalled text.
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
    clock: Callable[[], datetime] = Field(default=_utc_now, exclude=True, repr=False)
    safety: PassageSafety = Field(default=PassageSafety(), exclude=True, repr=False)

    def __init__(self, **fields: Any) -> None:
        check_indexer(fields.get("indexer"), type(self).__name__)
        super().__init__(**fields)

    @field_validator("agent_id")
    @classmethod
    def _valid_agent(cls, value: str) -> str:
        return require_agent_id(value, "A memory block")

    @field_validator("half_life", "ttl", mode="before")
    @classmethod
    def _positive(cls, value: Any, info: ValidationInfo) -> timedelta | None:
        return None if value is None else check_duration(info.field_name or "", value)

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy for another agent."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, "agent_id": agent_id})

    # -- recall ---------------------------------------------------------------------------------------------------

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Return past messages relevant to the last ones as text, oldest first; "" when there are none.

        Args:
            messages: The conversation so far.
            block_kwargs: session_id; since and until, datetimes; agent_id, which must be the block's own. Others are
                ignored: they are for other blocks.
        """
        agent = block_kwargs.get("agent_id")
        if agent is not None and agent != self.agent_id:
            raise ScopeError(f"The memory block of agent {self.agent_id!r} does not recall for agent {agent!r}.")
        query = "\n".join(
            text for message in _query_messages(messages or [], self.query_messages) if (text := _message_text(message))
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
        recalled = sorted(filter(has_evidence, hits), key=lambda hit: (_hit_time(hit), hit.doc_id, hit.chunk_id))
        return _format_recollection(recalled, self.max_chars, self.safety)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return recalled text that is shorter by at least so many tokens, or None when too little would be left.

        The oldest messages are left out first, and the last one is cut at its end. The fence stays whole. Tokens are
        counted with LlamaIndex's global tokenizer, which `Memory` uses by default.

        Args:
            content: What `aget` returned.
            tokens_to_truncate: Number of tokens to save.
        """
        count = get_tokenizer()
        return _shorten_recollection(content, len(count(content)) - tokens_to_truncate, lambda text: len(count(text)))

    def _condition(self, session: object) -> Filter:
        parts = [Condition("agent_id", "$eq", self.agent_id), Condition("type", "$in", list(_MEMORY_TYPES))]
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
        """Store messages of a session; they are not modified."""
        if from_short_term_memory and not self.accept_short_term_memory:
            return
        await self._store(messages, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        session = next((value for m in messages if (value := m.additional_kwargs.get("session_id"))), None)
        await self._store(messages, session)

    async def _store(self, messages: list[ChatMessage], session: str | None) -> None:
        now = self.clock()
        documents = [
            self._document(message, session, now + timedelta(microseconds=place))
            for place, message in enumerate(messages)
            if message.role != MessageRole.SYSTEM and _message_text(message).strip()
        ]
        if documents:
            await self.indexer.aindex_documents(documents, self.agent_id, ttl=self.ttl)

    def _document(self, message: ChatMessage, session: str | None, now: datetime) -> SourceDocument:
        text, time = _message_text(message), _message_time(message)
        identity = json.dumps([session, message.role.value, text, time and time.isoformat()], ensure_ascii=False)
        digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        has_calls = any(isinstance(block, ToolCallBlock) for block in message.blocks)
        metadata: dict[str, Any] = {
            "type": "tool_call" if has_calls or message.role == MessageRole.TOOL else "dialogue",
            "role": message.role.value,
            "session": session,
            "time": time or now,
        }
        call = message.additional_kwargs.get("tool_call_id")
        if isinstance(call, str):
            metadata["tool_call_id"] = call
        return SourceDocument(f"memory-{digest}", text, metadata)

    async def aforget(self, session_id: str | None) -> int:
        """Delete the messages of a session of this agent and return their number.

        Args:
            session_id: The session; None for the messages that were stored without one.

        Raises:
            UsageError: it is no session id.
        """
        if session_id is not None and not isinstance(session_id, str):
            raise UsageError(f"Cannot forget session {session_id!r}: pass the session's id, a string.")
        parts = [Condition("type", "$in", list(_MEMORY_TYPES)), Condition("session", "$eq", session_id)]
        if session_id is None:  # not the dialogues of other sources, which may have no such key
            parts.append(Condition(key="session", op="$exists", operand=True))
        condition = And(tuple(parts))
        return (await self.indexer.adelete(filter=condition, agent_id=self.agent_id)).deleted


def _query_messages(messages: list[ChatMessage], count: int) -> list[ChatMessage]:
    """Return the last messages up to the last one of the user; they form the query."""
    users = [place for place, message in enumerate(messages) if message.role == MessageRole.USER]
    end = users[-1] + 1 if users else len(messages)
    return messages[max(0, end - count) : end]


def _message_text(message: ChatMessage) -> str:
    """Return a message as text: tool calls with name and arguments, other blocks as "[type]"."""
    parts = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif isinstance(block, ToolCallBlock):
            arguments = block.tool_kwargs
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, default=str)
            parts.append(f"{block.tool_name}({arguments})")
        else:
            parts.append(f"[{block.block_type}]")
    return "\n".join(part for part in parts if part)


def _message_time(message: ChatMessage) -> datetime | None:
    """Return the time in a message's metadata, in the time zone it names, else UTC."""
    fields = message.additional_kwargs
    for value in (fields[key] for key in TIME_KEYS if key in fields):
        if (time := parse_time(value)) is not None:
            return time.astimezone(_timezone_of(value))
    return None


def _timezone_of(value: object) -> tzinfo:
    """Return the time zone a time is written in, so that recalled messages show local time."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return UTC
    return (value.tzinfo if isinstance(value, datetime) else None) or UTC


def _hit_time(hit: Hit) -> datetime:
    return document_time(hit.metadata) or EPOCH


def _format_recollection(hits: Sequence[Hit], max_chars: int, safety: PassageSafety) -> str:
    """Return hits as fenced text, one entry per message with time and role; drop the oldest to fit `max_chars`."""
    if not hits:
        return ""
    entries: list[str] = []
    for hit in hits:
        time = hit.metadata.get("time")
        stamp = f"{time:%Y-%m-%d %H:%M} " if isinstance(time, datetime) else ""
        entries.append(f"[{stamp}{hit.metadata.get('role', '')}] {hit.text}")
    while len(entries) > 1 and sum(map(len, entries)) + len(entries) > max_chars:
        entries.pop(0)
    least_trusted = next((hit.metadata for hit in hits if safety.trust(hit.metadata) == "low"), hits[0].metadata)
    text = "\n".join(entries)[:max_chars]
    return safety.fence(detect_language(text)).wrap(text, least_trusted, block=True)


_FENCED = re.compile(r"(⟦[^⟦⟧\n]*⟧\n)(.*)(\n⟦[^⟦⟧\n]*⟧)", re.S)
_ENTRY = re.compile(r"^\[(?:\d{4}-\d\d-\d\d \d\d:\d\d )?[a-z]*\] ", re.M)
_FEWEST_CHARACTERS = 8  # of a message that is cut; fewer tell a model nothing


def _shorten_recollection(content: str, limit: int, count: Callable[[str], int]) -> str | None:
    """Return what `_format_recollection` wrote within a limit of tokens, or None when nothing useful fits."""
    fenced = _FENCED.fullmatch(content)
    opening, body, closing = fenced.groups() if fenced else ("", content, "")

    def fits(text: str) -> bool:
        return count(f"{opening}{text}{closing}") <= limit

    entries = [match.span() for match in _ENTRY.finditer(body)] or [(0, 0)]
    first = bisect_left(entries, True, hi=len(entries) - 1, key=lambda entry: fits(body[entry[0] :]))  # noqa: FBT003
    start, text_start = entries[first]
    fewest = text_start + _FEWEST_CHARACTERS
    end = bisect_left(range(len(body)), True, key=lambda place: not fits(body[start : place + 1]))  # noqa: FBT003
    while end > text_start and not fits(body[start:end]):  # a longer text may have fewer tokens
        end -= 1
    if end < min(fewest, len(body)):
        return None
    return f"{opening}{body[start:end]}{closing}"
