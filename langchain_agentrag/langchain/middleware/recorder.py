"""`MemoryRecorderMiddleware`: records the dialogue and tool calls of a LangChain agent as they happen."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
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
from langchain_agentrag.langchain.middleware.messages import calling_message, messages_of
from langchain_agentrag.langchain.sql_tool import SQLTool
from langchain_agentrag.langchain.tools import ReadTool, SearchTool

_RETRIEVAL_TOOLS = (SearchTool, ReadTool, SQLTool)
_Response = ToolMessage | Command[Any]


class MemoryRecorderMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Records what users and the agent say and which tools it calls, for later searches.

        recorder = MemoryRecorderMiddleware(indexer, "sqlite:///memory.db", agent_id="lina")
        create_agent(model, tools, middleware=[recorder])

    Entries are written to the package's memory table and indexed at once, as private documents of one agent: `type`
    "dialogue" or "tool_call", with role, session (the thread of the run), time, tool, arguments, outcome, duration and
    call_id. A question is indexed when it has been answered, or it would be the first hit of the search for its answer.
    Nothing is recorded twice when a run is resumed, retried or streamed.

    Not recorded: system messages; messages that other middleware adds while the agent runs; results of the tools of
    this package, of the tools named in `retrieval_tools`, and of any tool that mostly repeats what the store has just
    returned; passages of the store within a user's message. A failure to record is logged, listed in
    `recorder.problems`, and never ends the run.

    Args:
        indexer: The store.
        table: A `MemoryTable`, or the URL or SQLAlchemy engine of its database.
        agent_id: The agent whose memory it is.
        agent_id_key: Key of each run's `configurable` or context that names the agent, instead; a run that names none
            is not recorded. The model never names it.
        redact: Called with every text before it is recorded; None leaves the entry out.
        max_chars: Longest text; of a longer one beginning and end are recorded.
        retrieval_tools: Names of further retrieval tools, such as "search_memory" of langmem.
        searches: Whether calls of retrieval tools are recorded, with their arguments and without results.

    Attributes:
        recorder: The `MemoryRecorder`: `problems`, and `forget` to delete by agent, session or time.

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
            indexer, table, redact=redact, max_chars=max_chars, retrieval_tools=retrieval_tools, searches=searches
        )

    # -- dialogue -----------------------------------------------------------------------------------------------------

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Record the user's messages."""
        self._record(self._user_entries(state), asks=True)

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`before_agent` without blocking the event loop."""
        await self._arecord(self._user_entries(state), asks=True)

    def after_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Record the model's message; its tool calls are recorded when they are done."""
        self._record(self._model_entries(state))

    async def aafter_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_model` without blocking the event loop."""
        await self._arecord(self._model_entries(state))

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Index the question, now that it is answered."""
        self._index_question()

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_agent` without blocking the event loop."""
        await asyncio.to_thread(self._index_question)

    def _user_entries(self, state: Mapping[str, Any]) -> list[Entry]:
        """Return the user's messages since the agent's last one, without summaries written in the user's name."""
        since_agent = itertools.takewhile(lambda m: isinstance(m, HumanMessage), reversed(state["messages"]))
        own = [message for message in since_agent if "lc_source" not in message.additional_kwargs]
        return list(_turns(own[::-1], _session(state)))

    def _model_entries(self, state: Mapping[str, Any]) -> list[Entry]:
        last = state["messages"][-1]
        return list(_turns([last], _session(state))) if isinstance(last, AIMessage) else []

    # -- tool calls ---------------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Response]) -> _Response:
        """Run the tool and record the call with its result, outcome and duration."""
        call = _RunningCall(request, self.recorder.mark)
        try:
            response = handler(request)
        except GraphBubbleUp:  # the run pauses or continues elsewhere: there is no result yet
            raise
        except Exception as error:
            self._record([call.failed(error)], call=call)
            raise
        self._record([call.done(response)], call=call)
        return response

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Response]]
    ) -> _Response:
        """`wrap_tool_call` without blocking the event loop."""
        call = _RunningCall(request, self.recorder.mark)
        try:
            response = await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            await self._arecord([call.failed(error)], call=call)
            raise
        await self._arecord([call.done(response)], call=call)
        return response

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self, entries: Sequence[Entry], *, call: _RunningCall | None = None, asks: bool = False) -> None:
        if not entries or (agent := self._agent_of_run()) is None:
            return
        if call is None:
            self.recorder.record(agent, entries, asks=asks)
        else:
            self.recorder.record(agent, entries, recalled=call.is_retrieval, since=call.mark)

    async def _arecord(self, entries: Sequence[Entry], *, call: _RunningCall | None = None, asks: bool = False) -> None:
        if entries:
            await asyncio.to_thread(self._record, entries, call=call, asks=asks)

    def _index_question(self) -> None:
        if (agent := self._agent_of_run()) is not None:
            self.recorder.answered(agent)

    def _agent_of_run(self) -> str | None:
        """Return the agent of the run; None when it names none, so that nothing can be recorded."""
        try:
            return resolve_agent_id(self._agent, self._key, "error")
        except ScopeError as error:
            self.recorder.note(error)
            return None


class _RunningCall:
    """Tool call that is being executed."""

    def __init__(self, request: ToolCallRequest, mark: int) -> None:
        self.mark = mark
        self._call, self._session = request.tool_call, _session(request.state)
        self._entry_id = _entry_id(request)
        self._time, self._start = datetime.now(UTC), time.perf_counter()
        self.is_retrieval = isinstance(request.tool, _RETRIEVAL_TOOLS)

    def done(self, response: _Response) -> ToolCall:
        """Return the call with its result."""
        message = _result_message(response, self._call["id"])
        if message is None:
            return self._entry(None, "ok")
        read = read_message(message)
        result = read.results[0] if read is not None and read.results else None
        if result is None:
            return self._entry(None, "unknown")
        return self._entry(result.text, "error" if message.status == "error" else "ok", result.parts)

    def failed(self, error: Exception) -> ToolCall:
        """Return the call with the exception it raised."""
        return self._entry(f"{type(error).__name__}: {error}", "error")

    def _entry(self, result: str | None, outcome: Any, parts: tuple[str, ...] = ()) -> ToolCall:
        return ToolCall(
            session=self._session,
            entry_id=self._entry_id,
            tool=self._call["name"],
            arguments=self._call["args"],
            result=result,
            outcome=outcome,
            parts=parts,
            time=self._time,
            duration=round(time.perf_counter() - self._start, 6),
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
    """Return the thread of the run; without one, a name made of the run's first message."""
    thread = (ensure_config().get("configurable") or {}).get("thread_id")
    if thread is not None and str(thread):
        return str(thread)
    messages = messages_of(state)
    return f"run-{messages[0].id}" if messages else "run"


def _entry_id(request: ToolCallRequest) -> str:
    """Return the id of a call's entry: by the model's message, since some models reuse call ids within a session.

    Some use one id for two calls of a message too; these are told apart by their arguments.
    """
    wanted = request.tool_call
    message = calling_message(request.state, wanted["id"])
    if message is None:
        return f"call:{wanted['id']}"
    same_id = [n for n, call in enumerate(message.tool_calls) if call["id"] == wanted["id"]]
    equal = [n for n in same_id if _is_same_call(message.tool_calls[n], wanted)]
    return f"{message.id}:call:{(equal or same_id)[0]}"


def _is_same_call(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["name"] == other["name"] and one["args"] == other["args"])


def _result_message(response: _Response, call_id: str | None) -> ToolMessage | None:
    """Return the message that answers a call: the response itself, or one in the update of a command."""
    if isinstance(response, ToolMessage):
        return response
    update = getattr(response, "update", None)
    messages = update.get("messages") if isinstance(update, Mapping) else None
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message
    return None
