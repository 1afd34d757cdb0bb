"""`MemoryRecorderMiddleware`: an agent's dialogue and tool calls, remembered as they happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import ensure_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from langchain_agentrag.agent.recorder import MemoryRecorder, Redact
from langchain_agentrag.connectors.memory.messages import read_message
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn
from langchain_agentrag.errors import ScopeError
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.langchain.identity import check_agent_binding, resolve_agent_id
from langchain_agentrag.langchain.sql_tool import SQLTool
from langchain_agentrag.langchain.tools import ReadTool, SearchTool

_RECALLING = (SearchTool, ReadTool, SQLTool)
_Answer = ToolMessage | Command[Any]


class MemoryRecorderMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Records what users and the agent say and which tools it calls, so that the next question finds it.

        recorder = MemoryRecorderMiddleware(indexer, "sqlite:///memory.db", agent_id="lina")
        create_agent(model, tools, middleware=[recorder])

    What is kept goes to the package's memory table and is indexed at once (a question when it has been answered, or it
    would be found first by the search for its answer), as private documents of one agent:
    `type` "dialogue" or "tool_call", with role, session (the thread of the run), time, tool, arguments, outcome,
    duration and call_id. Nothing is kept twice when a run is resumed, retried or streamed.

    Not kept: system messages; messages that other middleware puts in while the agent runs; results of the tools of
    this package, of the tools named in `retrieval_tools`, and of any tool that mostly repeats what the store has just
    shown the agent; passages of the store within what a user says. A failure to record is logged, listed in
    `recorder.problems`, and never ends the run.

    Args:
        indexer: The store.
        table: A `MemoryTable`, or the URL or SQLAlchemy engine of its database.
        agent_id: Whose memory it is.
        agent_id_key: Key of each run's `configurable` or context that names the agent, instead; nothing of a run that
            names none is kept. The model never names it.
        redact: Called with every text before it is kept; None leaves the entry out.
        max_chars: Longest text; of a longer one beginning and end are kept.
        retrieval_tools: Names of further tools whose results are recalled, such as "search_memory" of langmem.
        searches: Keep that a retrieval tool was called, with its arguments and without what was found.

    Attributes:
        recorder: What writes: `problems`, and `forget` to delete by agent, session or time.

    Raises:
        ScopeError: neither agent_id nor agent_id_key was given, or both.
    """

    def __init__(
        self,
        indexer: DualIndexer,
        table: Any,
        *,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        redact: Redact | None = None,
        max_chars: int = 8_000,
        retrieval_tools: Collection[str] = (),
        searches: bool = False,
    ) -> None:
        super().__init__()
        check_agent_binding(agent_id, agent_id_key)
        if agent_id is None and agent_id_key is None:
            raise ScopeError(
                "MemoryRecorderMiddleware needs agent_id='…', or agent_id_key='…' for the agent that each run names."
            )
        self._agent, self._key = agent_id, agent_id_key
        self.recorder = MemoryRecorder(
            indexer,
            table,
            redact=redact,
            max_chars=max_chars,
            retrieval_tools=retrieval_tools,
            searches=searches,
        )

    # -- what is said -------------------------------------------------------------------------------------------------

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Record what the user says."""
        self._keep(self._asked(state), asks=True)

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`before_agent` without blocking the event loop."""
        await self._akeep(self._asked(state), asks=True)

    def after_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Record what the model says; its tool calls are recorded when they are done."""
        self._keep(self._answered(state))

    async def aafter_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_model` without blocking the event loop."""
        await self._akeep(self._answered(state))

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Let the question be found, now that it is answered."""
        self._settle()

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_agent` without blocking the event loop."""
        await asyncio.to_thread(self._settle)

    def _asked(self, state: Mapping[str, Any]) -> list[Entry]:
        """What users said since the agent last spoke, without summaries that pose as theirs."""
        asked: list[BaseMessage] = []
        for message in reversed(state["messages"]):
            if not isinstance(message, HumanMessage):
                break
            asked.insert(0, message)
        own = [message for message in asked if "lc_source" not in message.additional_kwargs]
        return list(_turns(own, _session(state)))

    def _answered(self, state: Mapping[str, Any]) -> list[Entry]:
        last = state["messages"][-1]
        return list(_turns([last], _session(state))) if isinstance(last, AIMessage) else []

    # -- what is done -------------------------------------------------------------------------------------------------

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Answer]
    ) -> _Answer:
        """Run the tool and record the call with its result, outcome and duration."""
        watch = _Watch(request, self.recorder.mark)
        try:
            answer = handler(request)
        except GraphBubbleUp:  # the run pauses here or goes elsewhere: nothing has come out yet
            raise
        except Exception as error:
            self._keep([watch.failed(error)], watch=watch)
            raise
        self._keep([watch.done(answer)], watch=watch)
        return answer

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Answer]]
    ) -> _Answer:
        """`wrap_tool_call` without blocking the event loop."""
        watch = _Watch(request, self.recorder.mark)
        try:
            answer = await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            await self._akeep([watch.failed(error)], watch=watch)
            raise
        await self._akeep([watch.done(answer)], watch=watch)
        return answer

    # -- keeping ------------------------------------------------------------------------------------------------------

    def _keep(self, entries: Sequence[Entry], *, watch: _Watch | None = None, asks: bool = False) -> None:
        if not entries or (agent := self._whose()) is None:
            return
        if watch is None:
            self.recorder.record(agent, entries, asks=asks)
        else:
            self.recorder.record(agent, entries, recalled=watch.recalls, since=watch.mark)

    async def _akeep(
        self, entries: Sequence[Entry], *, watch: _Watch | None = None, asks: bool = False
    ) -> None:
        if entries:
            await asyncio.to_thread(self._keep, entries, watch=watch, asks=asks)

    def _settle(self) -> None:
        if (agent := self._whose()) is not None:
            self.recorder.answered(agent)

    def _whose(self) -> str | None:
        """The agent of the run, or None when nothing can be kept for want of one."""
        try:
            return resolve_agent_id(self._agent, self._key, "error")
        except ScopeError as error:
            self.recorder.note(error)
            return None


class _Watch:
    """A tool call while it runs."""

    def __init__(self, request: ToolCallRequest, mark: int) -> None:
        self.mark = mark
        self._call, self._session = request.tool_call, _session(request.state)
        self._entry = _call_entry(request)
        self._at, self._started = datetime.now(UTC), time.perf_counter()
        self.recalls = isinstance(request.tool, _RECALLING)

    def done(self, answer: _Answer) -> ToolCall:
        """The call with what came back."""
        message = _result_message(answer, self._call["id"])
        if message is None:
            return self._made(None, "ok")
        read = read_message(message)
        result = read.results[0] if read is not None and read.results else None
        if result is None:
            return self._made(None, "unknown")
        return self._made(result.text, "error" if message.status == "error" else "ok", result.parts)

    def failed(self, error: Exception) -> ToolCall:
        """The call that raised."""
        return self._made(f"{type(error).__name__}: {error}", "error")

    def _made(self, result: str | None, outcome: Any, parts: tuple[str, ...] = ()) -> ToolCall:
        return ToolCall(
            session=self._session,
            entry_id=self._entry,
            tool=self._call["name"],
            arguments=self._call["args"],
            result=result,
            outcome=outcome,
            parts=parts,
            time=self._at,
            duration=round(time.perf_counter() - self._started, 6),
            call_id=self._call["id"],
        )


def _turns(messages: Sequence[BaseMessage], session: str) -> Iterator[Turn]:
    now = datetime.now(UTC)
    for message in messages:
        read = read_message(message)
        if read is None or not message.id:
            continue
        if read.text.strip() or any(part != "thinking" for part in read.parts):
            yield Turn(
                session=session,
                entry_id=message.id,
                role=read.role,
                text=read.text,
                speaker=read.speaker,
                parts=read.parts,
                time=now,
            )


def _session(state: Any) -> str:
    """The thread of the run; without one, the run's first message tells it from others."""
    thread = (ensure_config().get("configurable") or {}).get("thread_id")
    if thread is not None and str(thread):
        return str(thread)
    messages: Sequence[AnyMessage] = _messages(state)
    return f"run-{messages[0].id}" if messages else "run"


def _call_entry(request: ToolCallRequest) -> str:
    """Name of a call: by the message that asks for it, since models give one id to several calls of a session.

    Some give one id to two calls of a message too, which their arguments tell apart.
    """
    wanted = request.tool_call
    for message in reversed(_messages(request.state)):
        if isinstance(message, AIMessage):
            named = [place for place, call in enumerate(message.tool_calls) if call["id"] == wanted["id"]]
            equal = [place for place in named if _asks_the_same(message.tool_calls[place], wanted)]
            if named:
                return f"{message.id}:call:{(equal or named)[0]}"
    return f"call:{wanted['id']}"


def _asks_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["name"] == other["name"] and one["args"] == other["args"])


def _messages(state: Any) -> list[Any]:
    if isinstance(state, Mapping):
        return list(state.get("messages") or ())
    return list(state if isinstance(state, list) else getattr(state, "messages", None) or ())


def _result_message(answer: _Answer, call_id: str | None) -> ToolMessage | None:
    """The message that answers a call, on its own or among what a command changes."""
    if isinstance(answer, ToolMessage):
        return answer
    update = getattr(answer, "update", None)
    listed = update.get("messages") if isinstance(update, Mapping) else None
    for message in listed if isinstance(listed, list) else ():
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message
    return None
