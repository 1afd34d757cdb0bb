"""`RecordingMemory`: any memory of LlamaIndex, with what is put into it remembered for good."""

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
from langchain_agentrag.errors import ScopeError
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.scope import check_agent_id


class RecordingMemory(BaseMemory):
    """A memory that passes everything on to another one and records turns and tool calls that are put into it.

        memory = RecordingMemory.from_defaults(indexer, "sqlite:///memory.db", agent_id="lina")
        await agent.run("…", memory=memory)

    It works where a memory does: `FunctionAgent` and other agents, workflows, chat engines. What is kept goes to the
    package's memory table and is indexed at once (a question when it has been answered), as private documents of the
    agent, with `type` "dialogue" or "tool_call", role, session, time, tool, arguments and call_id. Agents put the calls
    of a run when it ends, and their messages do not say whether a call failed, so the outcome is "unknown".

    Not kept: system messages, histories that are `set`, results that mostly repeat what the store has just shown.
    Resetting it resets the other memory only. A failure to record is logged, listed in `recorder.problems`, and breaks
    nothing.

    Attributes:
        memory: The memory that does the work.
        recorder: What writes; it also forgets.
        agent_id: Whose memory it is.
        session_id: Session of the records; by default that of the memory.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: BaseMemory
    recorder: MemoryRecorder = Field(exclude=True, repr=False)
    agent_id: str
    session_id: str = ""

    _open: dict[str, list[ToolCall]] = PrivateAttr(default_factory=dict)
    _mark: int = PrivateAttr(default=0)

    @field_validator("agent_id")
    @classmethod
    def _valid_agent(cls, value: str) -> str:
        checked = check_agent_id(value)
        if checked is None:
            raise ScopeError("A RecordingMemory needs the id of an agent.")
        return checked

    def model_post_init(self, context: Any, /) -> None:
        """Take the session of the memory where none is given; a name that all buffers share is no session."""
        super().model_post_init(context)
        if not self.session_id:
            given = getattr(self.memory, "session_id", None)
            self.session_id = given if isinstance(given, str) and given else uuid.uuid4().hex
        self._mark = self.recorder.mark

    @classmethod
    def class_name(cls) -> str:
        """Name of the class, for LlamaIndex."""
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
        """A recording memory for one agent.

        Args:
            indexer: The store.
            table: A `MemoryTable`, or the URL or SQLAlchemy engine of its database.
            agent_id: Whose memory it is.
            session_id: Session of the records.
            memory: The memory that does the work; LlamaIndex's `Memory` by default.
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
        """Replace the messages; a history that is brought along is not what happens now, and is not recorded."""
        self.memory.set(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replace the messages, likewise."""
        await self.memory.aset(messages)

    def reset(self) -> None:
        """Empty the memory; what was recorded stays."""
        self.memory.reset()

    async def areset(self) -> None:
        """Empty the memory; what was recorded stays."""
        await self.memory.areset()

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self, messages: Sequence[ChatMessage], before: Sequence[ChatMessage]) -> None:
        seen = Counter(_digest(read) for message in before if (read := _read(message)) is not None)
        entries: dict[str, Entry] = {}
        for message in messages:
            read = _read(message)
            if read is None or read.role == "system":
                continue
            name = _digest(read)
            seen[name] += 1
            for entry in self._entries(read, f"{name}-{seen[name]}"):
                entries[entry.entry_id] = entry
        asks = all(isinstance(entry, Turn) and entry.role == "user" for entry in entries.values())
        mark, self._mark = self._mark, self.recorder.mark
        self.recorder.record(self.agent_id, entries.values(), asks=asks, since=mark)
        if not asks:
            self.recorder.answered(self.agent_id)

    def _entries(self, message: Message, name: str) -> Iterator[Entry]:
        """Turn and calls of a message; a result completes the call it answers."""
        common: dict[str, Any] = {"session": self.session_id, "time": _time(message)}
        if message.text.strip() or any(part != "thinking" for part in message.parts):
            said: dict[str, Any] = {"text": message.text, "speaker": message.speaker, "parts": message.parts}
            yield Turn(entry_id=name, role=message.role, **said, **common)
        asked: dict[str, list[ToolCall]] = defaultdict(list)
        for number, call in enumerate(message.calls):
            made: dict[str, Any] = {"tool": call.tool, "arguments": call.arguments, "call_id": call.call_id}
            entry = ToolCall(entry_id=f"{name}:call:{number}", **made, **common)
            if call.call_id is not None:
                asked[call.call_id].append(entry)  # some models name calls by their tool: two have one id
            yield entry
        self._open.update(asked)
        for number, result in enumerate(message.results):
            yield self._completed(result, f"{name}:result:{number}", common)

    def _completed(self, result: ToolResult, name: str, common: dict[str, Any]) -> ToolCall:
        waiting = self._open.get(result.call_id or "")
        if waiting:
            asked = waiting.pop(0)
        else:
            asked = ToolCall(entry_id=name, tool=result.tool, call_id=result.call_id, **common)
        return replace(asked, result=result.text, outcome=result.outcome, parts=result.parts)


def _read(message: ChatMessage) -> Message | None:
    try:
        return read_message(message)
    except NotAMessageError:
        return None


def _time(message: Message) -> datetime:
    try:
        return parse_timestamp(message.timestamp) or datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def _digest(message: Message) -> str:
    """What tells a message from others: LlamaIndex gives them no ids. Equal ones are told by their number."""
    said = [message.role, message.text, message.parts]
    called = [[call.tool, call.arguments, call.call_id] for call in message.calls]
    returned = [[result.call_id, result.text] for result in message.results]
    written = json.dumps([said, called, returned], default=str)
    return hashlib.blake2b(written.encode(), digest_size=10).hexdigest()
