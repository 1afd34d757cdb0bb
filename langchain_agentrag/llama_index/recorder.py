"""`RecordingMemory`: LlamaIndex memory that also records messages and tool calls in the store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemory, Memory
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from langchain_agentrag.agent.recorder import MemoryRecorder
from langchain_agentrag.connectors.memory.dialogue import parse_timestamp
from langchain_agentrag.connectors.memory.messages import Message, NotAMessageError, ToolResult, read_message
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.scope import require_agent_id


class RecordingMemory(BaseMemory):
    """Wrapper of a LlamaIndex memory that records the turns and tool calls put into it.

        memory = RecordingMemory.from_defaults(indexer, "sqlite:///memory.db", agent_id="lina")
        await agent.run("…", memory=memory)

    It works wherever a memory does: `FunctionAgent` and other agents, workflows, chat engines. Records go to the
    package's memory table and are indexed at once (a question when it has been answered), as private documents of the
    agent, with `type` "dialogue" or "tool_call", role, session, time, tool, arguments and call_id. Agents put the calls
    of a run when it ends, and their messages do not tell whether a call failed, so the outcome is "unknown".

    Not recorded: system messages, histories that are `set`, results that mostly repeat recent search results of the
    store. A reset empties the wrapped memory only. A failure to record is logged and listed in `recorder.problems`; the
    call goes on.

    Attributes:
        memory: The wrapped memory.
        recorder: Recorder that writes and deletes records.
        agent_id: Owner of the records.
        session_id: Session of the records; by default that of the memory.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: BaseMemory
    recorder: MemoryRecorder = Field(exclude=True, repr=False)
    agent_id: str
    session_id: str = ""

    _open_calls: dict[str, list[ToolCall]] = PrivateAttr(default_factory=dict)
    _mark: int = PrivateAttr(default=0)

    @field_validator("agent_id")
    @classmethod
    def _valid_agent(cls, value: str) -> str:
        return require_agent_id(value, "A RecordingMemory")

    def model_post_init(self, context: Any, /) -> None:
        """Set a missing session_id to that of the wrapped memory, or to a new one."""
        super().model_post_init(context)
        if not self.session_id:
            inherited = getattr(self.memory, "session_id", None)
            self.session_id = inherited if isinstance(inherited, str) and inherited else uuid.uuid4().hex
        self._mark = self.recorder.mark

    @classmethod
    def class_name(cls) -> str:
        """Return the name in LlamaIndex's serialised form."""
        return "RecordingMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]
        cls,
        indexer: DualIndexer,
        table: Any,
        *,
        agent_id: str,
        session_id: str | None = None,
        memory: BaseMemory | None = None,
        **options: Any,
    ) -> Self:
        """Create a recording memory for one agent.

        Args:
            indexer: The store.
            table: A `MemoryTable`, or the URL or SQLAlchemy engine of its database.
            agent_id: Owner of the records.
            session_id: Session of the records.
            memory: The memory to wrap; LlamaIndex's `Memory` by default.
            options: redact, max_chars, retrieval_tools, searches; see `MemoryRecorder`.
        """
        if memory is None:
            memory = Memory.from_defaults(session_id=session_id or uuid.uuid4().hex)
        recorder = MemoryRecorder(indexer, table, **options)
        return cls(memory=memory, recorder=recorder, agent_id=agent_id, session_id=session_id or "")

    # -- LlamaIndex's methods -----------------------------------------------------------------------------------------

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002  (LlamaIndex's name)
        """Messages for the model."""
        return self.memory.get(input=input, **kwargs)

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002
        """Messages for the model."""
        return await self.memory.aget(input=input, **kwargs)

    def get_all(self) -> list[ChatMessage]:
        """All messages."""
        return self.memory.get_all()

    async def aget_all(self) -> list[ChatMessage]:
        """All messages."""
        return await self.memory.aget_all()

    def put(self, message: ChatMessage) -> None:
        """Add a message and record it."""
        self.put_messages([message])

    async def aput(self, message: ChatMessage) -> None:
        """Add a message and record it."""
        await self.aput_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages and record them."""
        before = self.memory.get_all()
        self.memory.put_messages(messages)
        self._record(messages, before)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages and record them, without blocking the event loop."""
        before = await self.memory.aget_all()
        await self.memory.aput_messages(messages)
        await asyncio.to_thread(self._record, messages, before)

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace the messages without recording them: they are history, not new messages."""
        self.memory.set(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """`set`, asynchronously."""
        await self.memory.aset(messages)

    def reset(self) -> None:
        """Empty the memory; what was recorded stays."""
        self.memory.reset()

    async def areset(self) -> None:
        """Empty the memory; what was recorded stays."""
        await self.memory.areset()

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self, messages: Sequence[ChatMessage], before: Sequence[ChatMessage]) -> None:
        # repeated messages get different ids: digest plus the number of occurrences so far
        seen = Counter(_message_digest(parsed) for message in before if (parsed := _parse(message)) is not None)
        entries: dict[str, Entry] = {}
        for message in messages:
            parsed = _parse(message)
            if parsed is None or parsed.role == "system":
                continue
            digest = _message_digest(parsed)
            seen[digest] += 1
            for entry in self._entries(parsed, f"{digest}-{seen[digest]}"):
                entries[entry.entry_id] = entry
        only_questions = all(isinstance(entry, Turn) and entry.role == "user" for entry in entries.values())
        mark, self._mark = self._mark, self.recorder.mark
        self.recorder.record(self.agent_id, entries.values(), asks=only_questions, since=mark)
        if not only_questions:
            self.recorder.answered(self.agent_id)

    def _entries(self, message: Message, message_id: str) -> Iterator[Entry]:
        """Yield the turn and tool calls of a message; a result completes its call."""
        common: dict[str, Any] = {"session": self.session_id, "time": _message_time(message)}
        if message.text.strip() or any(part != "thinking" for part in message.parts):
            content: dict[str, Any] = {"text": message.text, "speaker": message.speaker, "parts": message.parts}
            yield Turn(entry_id=message_id, role=message.role, **content, **common)
        calls: dict[str, list[ToolCall]] = defaultdict(list)
        for number, call in enumerate(message.calls):
            content = {"tool": call.tool, "arguments": call.arguments, "call_id": call.call_id}
            entry = ToolCall(entry_id=f"{message_id}:call:{number}", **content, **common)
            if call.call_id is not None:
                calls[call.call_id].append(entry)  # some models use the tool's name as id, so ids may repeat
            yield entry
        self._open_calls.update(calls)
        for number, result in enumerate(message.results):
            yield self._complete_call(result, f"{message_id}:result:{number}", common)

    def _complete_call(self, result: ToolResult, entry_id: str, common: dict[str, Any]) -> ToolCall:
        open_calls = self._open_calls.get(result.call_id or "")
        if open_calls:
            call = open_calls.pop(0)
        else:
            call = ToolCall(entry_id=entry_id, tool=result.tool, call_id=result.call_id, **common)
        return replace(call, result=result.text, outcome=result.outcome, parts=result.parts)


def _parse(message: ChatMessage) -> Message | None:
    try:
        return read_message(message)
    except NotAMessageError:
        return None


def _message_time(message: Message) -> datetime:
    try:
        return parse_timestamp(message.timestamp) or datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def _message_digest(message: Message) -> str:
    """Return a hash of a message as its id: LlamaIndex messages have none."""
    turn = [message.role, message.text, message.parts]
    calls = [[call.tool, call.arguments, call.call_id] for call in message.calls]
    results = [[result.call_id, result.text] for result in message.results]
    content = json.dumps([turn, calls, results], default=str)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()
