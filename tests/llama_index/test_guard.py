"""Tools with side effects under guard in LlamaIndex agents."""

from __future__ import annotations

import asyncio
import threading

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.types import BaseTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import BaseModel, field_validator

from langchain_agentrag import NothingDone, Operations, ToolRule
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.llama_index import guarded_tool

# A workflow looks at every attribute of an agent, also at those that pydantic has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

MAIL = {"to": "丽娜", "text": "退款 5 元"}


@pytest.fixture
def sent() -> list:
    return []


@pytest.fixture
def mail(sent):
    def send_mail(to: str, text: str, copies: int = 1) -> str:
        """Send a mail."""
        sent.append((to, text, copies))
        if to == "broken":
            raise ConnectionError("the line went dead")
        return f"sent number {len(sent)}"

    return FunctionTool.from_defaults(send_mail)


def guard(tool, operations, agent_id="lina", scope="session 1", rule="low"):
    return guarded_tool(tool, operations, agent_id=agent_id, scope=scope, rule=rule)


@pytest.fixture(params=["sync", "async"])
def call(request):
    if request.param == "sync":
        return lambda tool, *args, **kwargs: tool.call(*args, **kwargs)
    return lambda tool, *args, **kwargs: asyncio.run(tool.acall(*args, **kwargs))


def test_a_call_is_made_once_and_its_result_replayed(operations, mail, sent, call):
    tool = guard(mail, operations)
    first, again = call(tool, **MAIL), call(tool, **{**MAIL, "copies": "1"})
    assert (first.content, first.raw_output, first.is_error) == ("sent number 1", "sent number 1", False)
    assert (again.is_error, again.raw_output["status"]) == (False, "replayed")
    assert again.content.endswith("sent number 1")
    assert sent == [("丽娜", "退款 5 元", 1)]


def test_what_stands_against_a_call_is_an_answer_for_the_model(operations, mail, sent, call):
    tool = guard(mail, operations)
    wrong = call(tool, **{**MAIL, "copies": True, "cc": "otto"})
    unknown, again = call(tool, to="broken", text=""), call(tool, to="broken", text="")
    risky = call(guard(mail, Operations(operations.file._path), rule="high"), **MAIL)
    statuses = [output.raw_output["status"] for output in (wrong, unknown, again, risky)]
    assert statuses == ["invalid", "needs_reconcile", "needs_reconcile", "refused"]
    assert all(output.is_error for output in (wrong, unknown, again, risky))
    assert "cc" in wrong.content
    assert "the line went dead" in again.content
    assert len(sent) == 1
    (record,) = operations.for_agent("lina").unresolved()
    operations.for_agent("lina").reconcile(record.operation_id, "done", result={"content": "it arrived"})
    assert call(tool, to="broken", text="").content.endswith("it arrived")


def test_each_agent_and_session_has_operations_of_its_own(operations, mail, sent, call):
    who = iter(["lina", "otto", "lina", "lina"])
    where = iter(["s1", "s1", "s1", "s2"])
    tool = guard(mail, operations, agent_id=lambda: next(who), scope=lambda: next(where))
    statuses = [call(tool, **MAIL).content.splitlines()[-1] for _ in range(4)]
    assert statuses == ["sent number 1", "sent number 2", "sent number 1", "sent number 3"]


def test_an_agent_that_is_not_known_at_the_call_does_nothing(operations, mail, sent, call):
    assert call(guard(mail, operations, agent_id=lambda: None), **MAIL).is_error
    assert call(guard(mail, operations, scope=lambda: ""), **MAIL).is_error
    assert sent == []
    for nobody in (None, ""):
        with pytest.raises(ScopeError):
            guard(mail, operations, agent_id=nobody)
    with pytest.raises(UsageError):
        guard(mail, operations, rule="extreme")


def test_a_repeatable_tool_is_called_each_time(operations, mail, sent, call):
    tool = guard(mail, operations, rule=ToolRule("low", repeatable=True))
    for _ in range(3):
        assert not call(tool, **MAIL).is_error
    assert len(sent) == 3


def test_arguments_by_position_and_every_other_way_in_are_guarded(operations, mail, sent):
    tool = guard(mail, operations)
    assert tool("丽娜", "退款 5 元").content == "sent number 1"
    assert tool.fn(**MAIL).raw_output["status"] == "replayed"
    assert asyncio.run(tool.async_fn(**MAIL)).raw_output["status"] == "replayed"
    assert asyncio.run(tool.real_fn(**MAIL)).raw_output["status"] == "replayed"
    assert tool("丽娜", "x", 1, "too many").is_error
    assert len(sent) == 1


def test_a_tool_that_did_nothing_may_be_called_again(operations, sent, call):
    def flaky(to: str) -> str:
        """Works the second time."""
        sent.append(to)
        if len(sent) == 1:
            raise NothingDone("the mailbox is locked")
        return "sent"

    tool = guard(FunctionTool.from_defaults(flaky), operations)
    assert "mailbox is locked" in call(tool, to="a").content
    assert call(tool, to="a").content == "sent"


def test_an_error_that_a_tool_returns_is_an_unknown_outcome(operations, sent, call):
    class Half(BaseTool):
        @property
        def metadata(self):
            return ToolMetadata("Half of it", "half")

        def __call__(self, input: str) -> ToolOutput:  # noqa: A002
            sent.append(input)
            return ToolOutput(tool_name="half", content="only half was done", raw_input={}, is_error=True)

    tool = guard(Half(), operations)
    assert "only half was done" in call(tool, input="a").content
    assert call(tool, input="a").raw_output["status"] == "needs_reconcile"
    assert sent == ["a"]


def test_validators_of_the_tools_model_speak_before_the_call(operations, sent, call):
    class Order(BaseModel):
        pieces: int

        @field_validator("pieces")
        @classmethod
        def _dozens(cls, value: int) -> int:
            if value % 12:
                raise ValueError("only whole dozens are sold")
            return value

    tool = guard(
        FunctionTool.from_defaults(sent.append, name="order", description="Order", fn_schema=Order), operations
    )
    assert "only whole dozens" in call(tool, pieces=5).content
    assert sent == []


def test_the_model_sees_the_tool_as_it_was(operations, mail):
    assert guard(mail, operations).metadata.to_openai_tool() == mail.metadata.to_openai_tool()


# -- in agents --------------------------------------------------------------------------------------------------------


def scripted(*steps) -> MockFunctionCallingLLM:
    def respond(messages, **_kwargs):
        tool_texts = [message.content or "" for message in messages if message.role == MessageRole.TOOL]
        return steps[min(len(tool_texts), len(steps) - 1)]

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


def calls(name, *arguments) -> ChatMessage:
    blocks = [
        ToolCallBlock(tool_call_id=f"{name}{n}", tool_name=name, tool_kwargs=kwargs)
        for n, kwargs in enumerate(arguments)
    ]
    return ChatMessage(role="assistant", blocks=blocks)


def done() -> ChatMessage:
    return ChatMessage(role="assistant", blocks=[TextBlock(text="done")])


async def outputs(agent, **options) -> list[ToolOutput]:
    handler = agent.run("go", **options)
    results = [event.tool_output async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    await handler
    return results


async def test_an_agent_repeats_no_call(operations, mail, sent):
    steps = [
        calls("send_mail", MAIL),
        calls("send_mail", {**MAIL, "copies": "1"}),
        calls("send_mail", {"to": "x"}),
        done(),
    ]
    agent = FunctionAgent(tools=[guard(mail, operations)], llm=scripted(*steps))
    first, again, wrong = await outputs(agent)
    assert (first.content, again.content.splitlines()[-1]) == ("sent number 1", "sent number 1")
    assert "text is missing" in wrong.content
    assert len(sent) == 1


async def test_a_tool_gets_the_workflows_context_and_a_pause_is_no_failure(operations, sent):
    async def ask(ctx: Context, to: str) -> str:
        """Ask before sending."""
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_id="w", waiter_event=InputRequiredEvent(prefix="really?")
        )
        sent.append(to)
        return f"sent after {answer.response}"

    ask.__annotations__ = {"ctx": Context, "to": str, "return": str}  # LlamaIndex reads no annotations in quotes
    tool = guard(FunctionTool.from_defaults(async_fn=ask), operations)
    agent = FunctionAgent(tools=[tool], llm=scripted(calls("ask", {"to": "a"}), done()))
    handler, outcomes = agent.run("go"), []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
        if isinstance(event, ToolCallResult):
            outcomes.append(event.tool_output)
    await handler
    assert [output.content for output in outcomes] == ["sent after yes"]
    assert sent == ["a"]


def test_a_call_that_takes_too_long_is_unknown(operations, sent):
    release = threading.Event()

    def slow(to: str) -> str:
        """Take long."""
        release.wait(30)
        return "sent"

    tool = guard(FunctionTool.from_defaults(slow), operations, rule=ToolRule("low", timeout=0.05))
    try:
        assert tool.call(to="a").raw_output["status"] == "needs_reconcile"
    finally:
        release.set()
