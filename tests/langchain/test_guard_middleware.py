"""`ToolGuardMiddleware` in real agents: what is executed, what the model sees, what survives a resumed checkpoint."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field, field_validator

from langchain_agentrag import AgentRAGToolkit, DualIndexer
from langchain_agentrag.errors import MissingExtraError, ScopeError, UsageError
from langchain_agentrag.guard.operations import Operations
from langchain_agentrag.guard.tool_rules import NothingDone, ToolRule
from langchain_agentrag.langchain.middleware import ToolGuardMiddleware
from tests.langchain.scripts import ScriptedModel, calls

SENT: list = []


@pytest.fixture(autouse=True)
def sent():
    SENT.clear()
    return SENT


@tool
def send_mail(to: str, text: str, copies: int = 1) -> str:
    """Send a mail."""
    SENT.append((to, text, copies))
    return f"sent number {len(SENT)}"


@tool
def break_off(to: str) -> str:
    """Send a mail, and lose the line."""
    SENT.append(to)
    raise ConnectionError("the line went dead")


MAIL = {"to": "丽娜", "text": "退款 5 元"}


def guard(operations, tools=None, **settings) -> ToolGuardMiddleware:
    settings = {"agent_id": "lina", **settings}
    return ToolGuardMiddleware(operations, tools or {"send_mail": "low", "break_off": "low"}, **settings)


def agent_of(operations, *steps, tools=(send_mail, break_off), before=(), saver=None, **settings):
    model = ScriptedModel(steps=[*steps, AIMessage("done")])
    return create_agent(model, list(tools), middleware=[*before, guard(operations, **settings)], checkpointer=saver)


def run(agent, thread=None, text="go", **configurable) -> list[ToolMessage]:
    config = {"configurable": {"thread_id": thread, **configurable}} if thread or configurable else None
    return answers(agent.invoke({"messages": [("user", text)]}, config))


def answers(state) -> list[ToolMessage]:
    return [message for message in state["messages"] if message.type == "tool"]


def test_a_call_is_made_and_an_equal_one_answered_from_its_record(operations, sent):
    agent = agent_of(operations, calls("send_mail", 1, **MAIL), calls("send_mail", 2, **{**MAIL, "copies": 1.0}))
    first, again = run(agent)
    assert (first.content, first.status) == ("sent number 1", "success")
    assert again.content.endswith("sent number 1")
    assert "not done again" in again.content
    assert (again.tool_call_id, again.status) == ("call-2", "success")
    assert again.additional_kwargs["agentrag"]["status"] == "replayed"
    assert sent == [("丽娜", "退款 5 元", 1)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_wrong_arguments_come_back_as_a_message_and_the_corrected_call_is_made(tmp_path, sent, language):
    operations = Operations(tmp_path / "o", language=language)

    def corrected(messages):
        assert "copies" in messages[-1].content
        return calls("send_mail", 2, **{**MAIL, "copies": 2})

    agent = agent_of(operations, calls("send_mail", 1, **{**MAIL, "copies": True, "cc": "otto"}), corrected)
    wrong, right = run(agent)
    assert wrong.status == "error"
    assert ("请改正后重新调用" in wrong.content) == (language == "zh")
    assert "cc" in wrong.content
    assert right.status == "success"
    assert sent == [("丽娜", "退款 5 元", 2)]


@pytest.mark.parametrize(
    ("arguments", "executed", "message"),
    [
        ({"k": "5"}, 5, ""), ({"k": "5.0"}, 5, ""), ({"k": "five"}, None, "whole number"), ({"k": ""}, None, "whole number"),
        ({"k": None}, None, "leave out"), ({"k": 5.7}, None, "whole number"), ({"k": True}, None, "whole number"),
        ({"k": 51}, None, "50 or less"), ({"filters": '{"lang": "zh"}'}, 3, ""), ({"query": ["a", "b"]}, None, "a text"),
    ],
)  # fmt: skip
def test_hard_case_94_numbers_that_arrive_as_texts(operations, sent, arguments, executed, message):
    """dexpaprika-mcp#31: the clear ones reach the tool; the others get one message that says what is allowed."""

    @tool
    def order(query: str, k: Annotated[int, Field(ge=1, le=50)] = 3, filters: dict | None = None) -> str:
        """Order."""
        sent.append((k, filters))
        return "ordered"

    args = {"query": "退款", **arguments}
    (answer,) = run(with_tools(operations, [order], {"order": "low"}, calls("order", 1, **args)))
    assert [k for k, _ in sent] == ([] if executed is None else [executed])
    assert message in answer.content
    assert (answer.status == "success") == (executed is not None)
    if "filters" in arguments:
        assert sent[0][1] == {"lang": "zh"}


def test_an_exception_is_reported_to_the_model_and_never_retried(operations, sent):
    first, again = run(agent_of(operations, calls("break_off", 1, to="a"), calls("break_off", 2, to="a")))
    assert first.status == again.status == "error"
    assert "the line went dead" in first.content
    operation_id = first.additional_kwargs["agentrag"]["operation_id"]
    assert operation_id in again.content
    assert sent == ["a"]
    operations.for_agent("lina").reconcile(operation_id, "done", result="it arrived")
    assert [operation.state for operation in operations.for_agent("lina").unresolved()] == []


def test_a_retry_before_the_guard_does_not_repeat_the_call(operations, sent):
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    (answer,) = run(agent_of(operations, calls("break_off", 1, to="a"), before=[retry]))
    assert answer.status == "error"
    assert sent == ["a"]


def test_an_error_message_of_the_tool_is_an_unknown_outcome(operations, sent):
    def half(to: str) -> str:
        """Do half of it."""
        sent.append(to)
        raise ToolException("only half was done")

    half_tool = tool(half)
    half_tool.handle_tool_error = True
    first, again = run(
        with_tools(operations, [half_tool], {"half": "low"}, calls("half", 1, to="a"), calls("half", 2, to="a"))
    )
    assert "only half was done" in first.content
    assert (
        first.additional_kwargs["agentrag"]["status"]
        == again.additional_kwargs["agentrag"]["status"]
        == "needs_reconcile"
    )
    assert sent == ["a"]


def with_tools(operations, tools, rules, *steps, saver=None, **settings):
    return create_agent(
        ScriptedModel(steps=[*steps, AIMessage("done")]),
        list(tools),
        middleware=[guard(operations, rules, **settings)],
        checkpointer=saver,
    )


def test_a_tool_that_did_nothing_may_be_called_again(operations, sent):
    @tool
    def flaky(to: str) -> str:
        """Works the second time."""
        sent.append(to)
        if len(sent) == 1:
            raise NothingDone("the mailbox is locked")
        return "sent"

    first, again = run(
        with_tools(operations, [flaky], {"flaky": "low"}, calls("flaky", 1, to="a"), calls("flaky", 2, to="a"))
    )
    assert ("mailbox is locked" in first.content, first.status) == (True, "error")
    assert again.content == "sent"


def test_risk_above_the_delegated_level_is_refused(tmp_path, sent):
    operations = Operations(tmp_path / "o", max_risk="low")
    (answer,) = run(with_tools(operations, [send_mail], {"send_mail": "high"}, calls("send_mail", 1, **MAIL)))
    assert (answer.status, sent) == ("error", [])
    assert answer.additional_kwargs["agentrag"]["status"] == "refused"


def test_undeclared_tools_are_refused_unless_passed_and_our_retrieval_tools_always_pass(operations, sent, tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents(["冷却液周五更换"])
        retrieval = AgentRAGToolkit(indexer=indexer).get_tools()
        steps = [calls("search", 1, query="冷却液"), calls("send_mail", 2, **MAIL)]
        retrieved, refused = run(with_tools(operations, [*retrieval, send_mail], {"other": "low"}, *steps))
        assert "冷却液" in retrieved.content
        assert (refused.status, sent) == ("error", [])
        passed = run(with_tools(operations, [*retrieval, send_mail], {"other": "low"}, *steps, undeclared="pass"))
    assert passed[1].content == "sent number 1"


def test_a_tool_that_does_not_exist_is_an_answer_not_a_crash(operations):
    (answer,) = run(with_tools(operations, [send_mail], {"send_mail": "low", "ghost": "low"}, calls("ghost", 1, a=1)))
    assert (answer.status, "ghost" in answer.content) == ("error", True)


# -- whose, and which task --------------------------------------------------------------------------------------------


def test_each_agent_has_operations_of_its_own(operations, sent):
    for who in ("lina", "Lina", "lina "):
        agent = agent_of(operations, calls("send_mail", 1, **MAIL), agent_id=None, agent_id_key="agent_id")
        (answer,) = run(agent, thread="t", agent_id=who)
        assert answer.content == f"sent number {len(sent)}"
    assert len(sent) == 3


def test_a_run_that_names_no_agent_does_nothing(operations, sent):
    agent = agent_of(operations, calls("send_mail", 1, **MAIL), agent_id=None, agent_id_key="agent_id")
    (answer,) = run(agent, thread="t")
    assert (answer.status, sent) == ("error", [])


def test_an_agent_must_be_named_when_it_is_built(operations):
    with pytest.raises(ScopeError):
        ToolGuardMiddleware(operations, {})
    with pytest.raises(ScopeError):
        ToolGuardMiddleware(operations, {}, agent_id="a", agent_id_key="agent_id")
    with pytest.raises(UsageError):
        ToolGuardMiddleware(operations, {"t": "extreme"}, agent_id="a")
    with pytest.raises(UsageError):
        ToolGuardMiddleware(operations, {}, agent_id="a", undeclared="maybe")


def test_a_missing_extra_is_an_error_when_it_is_built(operations, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[guard\]"):
        ToolGuardMiddleware(operations, {"send_mail": "low"}, agent_id="a")


def test_a_conversation_is_a_task_and_another_one_is_not(operations, sent):
    for thread in ("one", "one", "two"):
        run(agent_of(operations, calls("send_mail", 1, **MAIL), saver=InMemorySaver()), thread=thread)
    assert len(sent) == 2


def test_without_a_conversation_each_turn_is_a_task(operations, sent):
    for _ in range(2):
        run(agent_of(operations, calls("send_mail", 1, **MAIL), calls("send_mail", 2, **MAIL)))
    assert len(sent) == 2


def test_a_task_may_be_named_otherwise(operations, sent):
    for _ in range(2):
        run(agent_of(operations, calls("send_mail", 1, **MAIL), scope=lambda request: "order 7"))
    assert len(sent) == 1


def test_a_repeatable_tool_is_called_each_time_the_model_asks(operations, sent):
    rules = {"send_mail": ToolRule("low", repeatable=True)}
    same_number = [calls("send_mail", 1, **MAIL) for _ in range(3)]  # some models number calls anew each time
    run(with_tools(operations, [send_mail], rules, *same_number), thread="t")
    assert len(sent) == 3


def test_a_resumed_checkpoint_makes_no_call_twice(operations, sent, tmp_path):
    """The process dies after the call and before the checkpoint; the run is resumed from what was saved."""

    @tool
    def wire(to: str) -> str:
        """Wire money."""
        sent.append(to)
        return f"wired {len(sent)}"

    @tool
    def die(to: str) -> str:
        """Not this time."""
        raise RuntimeError("the machine went down")

    def twice(messages):
        return AIMessage(
            "",
            tool_calls=[
                {"name": "wire", "args": {"to": "a"}, "id": "1", "type": "tool_call"},
                {"name": "die", "args": {"to": "a"}, "id": "2", "type": "tool_call"},
            ],
        )

    config = {"configurable": {"thread_id": "t"}}
    for rules in ({"wire": ToolRule("low")}, {"wire": ToolRule("low", repeatable=True)}):
        sent.clear()
        config["configurable"]["thread_id"] += "t"
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints")) as saver:
            agent = with_tools(operations, [wire, die], rules, twice, undeclared="pass", saver=saver)
            with pytest.raises(RuntimeError, match="went down"):
                agent.invoke({"messages": [("user", "go")]}, config)
            assert sent == ["a"]
            die.func = lambda to: "fine"
            state = agent.invoke(None, config)
            assert [answer.content.splitlines()[-1] for answer in answers(state)] == ["wired 1", "fine"]
            assert sent == ["a"]

            def down(to):
                raise RuntimeError("the machine went down")

            die.func = down


# -- parallel, asynchronous, pauses -----------------------------------------------------------------------------------


def several(name, *arguments) -> AIMessage:
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": args, "id": f"p{n}", "type": "tool_call"} for n, args in enumerate(arguments)
        ],
    )


def test_parallel_calls_are_each_made_and_equal_ones_once(operations, sent):
    many = [{"to": str(n % 5), "text": ""} for n in range(15)]
    messages = run(agent_of(operations, several("send_mail", *many)))
    assert sorted(to for to, _, _ in sent) == ["0", "1", "2", "3", "4"]
    assert [message.tool_call_id for message in messages] == [f"p{n}" for n in range(15)]
    assert sum(message.content.startswith("sent number") for message in messages) == 5


async def test_the_same_asynchronously(operations, sent):
    @tool
    async def wire(to: str) -> str:
        """Wire money."""
        await asyncio.sleep(0.01)
        sent.append(to)
        return f"wired to {to}"

    agent = with_tools(
        operations,
        [wire],
        {"wire": "low"},
        several("wire", {"to": "a"}, {"to": "b"}, {"to": "a"}),
        calls("wire", 9, to="b"),
        calls("wire", 10, to=5),
    )
    state = await agent.ainvoke({"messages": [("user", "go")]})
    assert sorted(sent) == ["a", "b"]
    messages = answers(state)
    assert messages[1].content == "wired to b"
    assert messages[3].content.endswith("wired to b")
    assert messages[4].status == "error"


async def test_a_synchronous_tool_of_an_asynchronous_run_that_takes_too_long_is_unknown(operations, sent):
    release = threading.Event()

    @tool
    def slow(to: str) -> str:
        """Take long."""
        release.wait(30)
        sent.append(to)
        return "sent"

    rules = {"slow": ToolRule("low", timeout=0.05)}
    agent = with_tools(operations, [slow], rules, calls("slow", 1, to="a"), calls("slow", 2, to="a"))
    try:
        messages = answers(await agent.ainvoke({"messages": [("user", "go")]}))
    finally:
        release.set()
    assert [message.additional_kwargs["agentrag"]["status"] for message in messages] == ["needs_reconcile"] * 2


def test_a_tool_that_takes_too_long_is_unknown(operations, sent):
    release = threading.Event()

    @tool
    def slow(to: str) -> str:
        """Take long."""
        release.wait(30)
        return "sent"

    try:
        (answer,) = run(
            with_tools(operations, [slow], {"slow": ToolRule("low", timeout=0.05)}, calls("slow", 1, to="a"))
        )
    finally:
        release.set()
    assert "longer than 0.05 s" in answer.content


@pytest.mark.parametrize(
    ("resume", "executed"),
    [(True, 1), ({"type": "approve"}, 1), ({"decisions": [{"type": "approve"}]}, 1), (False, 0), ("not on Fridays", 0),
     ({"type": "reject", "message": "not on Fridays"}, 0), ({"decisions": [{"type": "reject"}]}, 0), ({"type": "later"}, 0), (1, 0)],
)  # fmt: skip
def test_a_risky_call_waits_for_a_person(operations, sent, resume, executed):
    agent = with_tools(
        operations,
        [send_mail],
        {"send_mail": "high"},
        calls("send_mail", 1, **MAIL),
        saver=InMemorySaver(),
        interrupt_for_approval=True,
    )
    config = {"configurable": {"thread_id": "t"}}
    paused = agent.invoke({"messages": [("user", "go")]}, config)
    (question,) = paused["__interrupt__"]
    assert (question.value["tool"], question.value["arguments"], sent) == ("send_mail", MAIL, [])
    (answer,) = answers(agent.invoke(Command(resume=resume), config))
    assert (len(sent), answer.status) == (executed, "success" if executed else "error")
    if "Fridays" in str(resume):
        assert "not on Fridays" in answer.content


def test_a_tool_that_pauses_by_itself_is_called_again_when_the_run_is_resumed(operations, sent):
    @tool
    def ask(to: str) -> str:
        """Ask before sending."""
        if interrupt("really?") != "yes":
            return "not sent"
        sent.append(to)
        return "sent"

    agent = with_tools(operations, [ask], {"ask": "low"}, calls("ask", 1, to="a"), saver=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    assert agent.invoke({"messages": [("user", "go")]}, config)["__interrupt__"]
    (answer,) = answers(agent.invoke(Command(resume="yes"), config))
    assert (answer.content, sent) == ("sent", ["a"])


# -- all kinds of tools -----------------------------------------------------------------------------------------------


def test_arguments_that_the_framework_injects_are_no_business_of_the_model(operations, sent):
    @tool
    def note(text: str, state: Annotated[dict, InjectedState], call: Annotated[str, InjectedToolCallId]) -> str:
        """Take a note."""
        sent.append((text, len(state["messages"]), call))
        return "noted"

    valid, forged = run(
        with_tools(
            operations, [note], {"note": "low"}, calls("note", 1, text="a"), calls("note", 2, text="b", state={})
        )
    )
    assert (valid.content, sent) == ("noted", [("a", 2, "call-1")])
    assert forged.status == "error"


def test_validators_of_the_tools_model_speak_before_the_call(operations, sent):
    class Order(BaseModel):
        pieces: int

        @field_validator("pieces")
        @classmethod
        def _dozens(cls, value: int) -> int:
            if value % 12:
                raise ValueError("only whole dozens are sold")
            return value

    @tool(args_schema=Order)
    def order(pieces: int) -> str:
        """Order."""
        sent.append(pieces)
        return "ordered"

    wrong, right = run(
        with_tools(operations, [order], {"order": "low"}, calls("order", 1, pieces=5), calls("order", 2, pieces=24))
    )
    assert "only whole dozens" in wrong.content
    assert wrong.additional_kwargs["agentrag"]["status"] == "invalid"
    assert (right.content, sent) == ("ordered", [24])


def test_a_tool_described_by_a_json_schema_is_checked_too(operations, sent):
    from langchain_core.tools import StructuredTool

    schema = {"type": "object", "properties": {"pieces": {"type": "integer", "multipleOf": 12}}, "required": ["pieces"]}
    order = StructuredTool(
        name="order", description="Order.", args_schema=schema, func=lambda pieces: sent.append(pieces) or "ordered"
    )
    wrong, right = run(
        with_tools(operations, [order], {"order": "low"}, calls("order", 1, pieces=5), calls("order", 2, pieces=24))
    )
    assert (wrong.status, right.content, sent) == ("error", "ordered", [24])


def test_artifacts_and_blocks_are_replayed(operations):
    @tool(response_format="content_and_artifact")
    def show(to: str):
        """Show."""
        return [{"type": "text", "text": f"图 {to}"}], {"pixels": [1, 2]}

    first, again = run(
        with_tools(operations, [show], {"show": "low"}, calls("show", 1, to="a"), calls("show", 2, to="a"))
    )
    assert again.artifact == first.artifact == {"pixels": [1, 2]}
    assert again.content[1:] == first.content


def test_a_command_changes_the_state_once_and_its_message_is_replayed(operations, sent):
    @tool
    def remember(text: str, call: Annotated[str, InjectedToolCallId]) -> Command:
        """Remember."""
        sent.append(text)
        return Command(update={"messages": [ToolMessage(f"remembered {text}", tool_call_id=call)]})

    first, again = run(
        with_tools(
            operations, [remember], {"remember": "low"}, calls("remember", 1, text="a"), calls("remember", 2, text="a")
        )
    )
    assert first.content == "remembered a"
    assert (again.content.endswith("remembered a"), again.tool_call_id, sent) == (True, "call-2", ["a"])


def test_a_tool_that_only_reads_is_checked_and_made_each_time(operations, sent):
    rules = {"send_mail": "read", "break_off": "read"}
    steps = [
        calls("send_mail", 1, **MAIL),
        calls("send_mail", 2, **MAIL),
        calls("break_off", 3, to="a"),
        calls("send_mail", 4),
    ]
    messages = run(with_tools(operations, [send_mail, break_off], rules, *steps))
    assert [message.status for message in messages] == ["success", "success", "error", "error"]
    assert len(sent) == 3
    assert operations.for_agent("lina").unresolved() == []
