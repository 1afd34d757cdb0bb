"""The query engine as a tool of agents: FunctionAgent, ReActAgent, AgentWorkflow."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import pickle
import re

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.schema import TextNode
from llama_index.core.workflow import Context

from langchain_agentrag import SourceDocument
from langchain_agentrag.errors import InvalidQueryError, ScopeError, UsageError
from langchain_agentrag.llama_index import AgentQueryEngine, HybridRetriever, as_query_engine_tool
from langchain_agentrag.llama_index.tools import MAX_DESCRIPTION_CHARS
from tests.fences import unfenced
from tests.llama_index import upstream

# A workflow looks at every attribute of an agent, also at those that pydantic has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

DOCUMENTS = [
    SourceDocument("故障", "三号泵的故障代码是 E1102。"),
    SourceDocument("处理", "E1102：主轴过热。处理方法：清洁滤网。"),
    SourceDocument("canteen", "The canteen opens at 11:30."),
]


@pytest.fixture
def retriever(indexer):
    indexer.index_documents(DOCUMENTS)
    for agent in ("planner", "coder"):
        indexer.index_documents([SourceDocument("note", f"{agent} 的私人备忘：口令 {agent}-42")], agent)
    return HybridRetriever(indexer, 2)


def call(query: str, number: int = 1, **more) -> ChatMessage:
    block = ToolCallBlock(tool_call_id=f"c{number}", tool_name="search", tool_kwargs={"query": query, **more})
    return ChatMessage(role="assistant", blocks=[block])


def results(messages) -> list[str]:
    return [message.content or "" for message in messages if message.role == MessageRole.TOOL]


def scripted(*steps) -> MockFunctionCallingLLM:
    """A model that takes one step per turn; a step is a message, or a function of the tool results so far."""

    def respond(messages, **_kwargs):
        tool_results = results(messages)
        step = steps[min(len(tool_results), len(steps) - 1)]
        return step(tool_results) if callable(step) else step

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


def answer(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", blocks=[TextBlock(text=text)])


class TestTheToolItself:
    def test_the_model_sees_one_argument_and_a_short_description(self, retriever):
        function = as_query_engine_tool(retriever).metadata.to_openai_tool()["function"]
        assert function["name"] == "search"
        assert list(function["parameters"]["properties"]) == ["query"]
        assert function["parameters"]["required"] == ["query"]
        assert len(function["description"]) <= MAX_DESCRIPTION_CHARS

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_nodes_are_in_the_raw_output(self, retriever, asynchronous):
        tool = as_query_engine_tool(retriever)
        output = asyncio.run(tool.acall(query="E1102")) if asynchronous else tool(query="E1102")
        assert [one.node_id for one in output.raw_output] == ["故障", "处理"]
        assert output.raw_output.source_nodes == list(output.raw_output)
        assert output.raw_output.response.source_nodes == list(output.raw_output)
        assert output.raw_input == {"query": "E1102"}
        assert output.tool_name == "search"
        assert re.search(r"\[2\] source: 处理 \(score 0\.\d\d\)\nE1102：主轴过热", unfenced(output.content))
        assert not output.is_error

    def test_it_is_called_by_position_too(self, retriever):
        assert as_query_engine_tool(retriever).call("E1102").raw_output

    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [
            ((), {}),
            ((), {"query": None}),
            ((), {"query": 7}),
            ((), {"query": ["x"]}),
            (("a", "b"), {}),
            ((), {"query": "x", "agent_id": "coder"}),
            ((), {"query": "x", "filters": {}}),
            ((), {"query": "x", "ctx": "coder"}),
        ],
    )
    def test_anything_else_is_refused(self, retriever, args, kwargs):
        with pytest.raises(InvalidQueryError):
            as_query_engine_tool(retriever).call(*args, **kwargs)

    def test_the_model_sees_number_source_and_score_and_no_more_than_it_can_take(self, indexer):
        """FlowiseAI/Flowise#3256: the link is in the metadata only."""
        link = "https://example.org/报价.pdf"
        indexer.index_documents(
            [SourceDocument("价", "今年的报价 quotation " + "明细 " * 900, {"source": link, "page": 3})]
        )
        output = as_query_engine_tool(HybridRetriever(indexer), max_chars=500).call("报价")
        assert isinstance(output.content, str)
        assert re.match(rf"\[1\] source: {link} \(score 0\.\d\d\)\npage: 3\n", unfenced(output.content))
        assert 450 < len(output.content) <= 500
        assert "已截断" in output.content
        assert output.raw_output[0].metadata["source"] == link
        assert len(output.raw_output[0].text) > 500
        for wrong in (0, 199, "500", True):
            with pytest.raises(UsageError, match="max_chars"):
                as_query_engine_tool(HybridRetriever(indexer), max_chars=wrong)

    @pytest.mark.parametrize("name", ["检索", "", "a b", "x" * 65, "a.b"])
    def test_a_name_that_providers_would_change_is_an_error(self, retriever, name):
        with pytest.raises(UsageError, match="ASCII"):
            as_query_engine_tool(retriever, name=name)

    @pytest.mark.parametrize("description", ["", "  ", "长" * 1025])
    def test_so_is_a_description_that_providers_would_refuse(self, retriever, description):
        with pytest.raises(UsageError, match="characters"):
            as_query_engine_tool(retriever, description=description)

    def test_chinese_descriptions_up_to_the_limit_are_fine(self, retriever):
        tool = as_query_engine_tool(retriever, name="manuals", description="长" * 1024, return_direct=True)
        assert tool.metadata.to_openai_tool()["function"]["description"] == "长" * 1024
        assert tool.metadata.return_direct

    def test_it_can_be_copied_and_not_pickled(self, retriever):
        tool = as_query_engine_tool(retriever)
        assert copy.deepcopy(tool).call("E1102").raw_output
        with pytest.raises(TypeError, match="path"):
            pickle.dumps(tool)


class TestOnWhoseBehalf:
    def test_bound_beforehand(self, retriever):
        assert "planner-42" in as_query_engine_tool(retriever, agent_id="planner").call("备忘 口令").content
        assert "planner-42" in as_query_engine_tool(retriever.for_agent("planner")).call("备忘 口令").content
        assert "42" not in as_query_engine_tool(retriever).call("备忘 口令").content

    def test_named_by_a_function_at_each_call(self, retriever):
        current: contextvars.ContextVar[str | None] = contextvars.ContextVar("agent", default=None)
        tool = as_query_engine_tool(retriever, agent_id=current.get)
        with pytest.raises(ScopeError, match="No agent"):
            tool.call("备忘 口令")

        async def ask(agent: str) -> str:
            current.set(agent)
            return (await tool.acall(query="备忘 口令")).content

        async def both():
            return await asyncio.gather(ask("planner"), ask("coder"))

        planner, coder = asyncio.run(both())
        assert ("planner-42" in planner, "coder-42" in planner) == (True, False)
        assert ("planner-42" in coder, "coder-42" in coder) == (False, True)

    def test_what_cannot_be_bound_is_refused_at_once(self):
        foreign = upstream.bm25([TextNode(text="pump")], 1)
        for options in ({"agent_id": "planner"}, {"agent_id": lambda: "planner"}, {"from_workflow": True}):
            with pytest.raises(ScopeError, match="cannot be bound"):
                as_query_engine_tool(foreign, **options)
        assert as_query_engine_tool(foreign).call("pump").raw_output

    def test_two_ways_at_once_are_refused(self, retriever):
        with pytest.raises(ScopeError, match="both given"):
            as_query_engine_tool(retriever, agent_id="planner", from_workflow=True)

    def test_outside_of_a_workflow_nobody_is_guessed(self, retriever):
        tool = as_query_engine_tool(retriever, from_workflow=True)
        for attempt in (
            lambda: tool.call("备忘"),
            lambda: tool("备忘"),
            lambda: tool.query_engine,
            lambda: asyncio.run(tool.acall(query="备忘")),
            lambda: asyncio.run(tool.acall(query="备忘", ctx="planner")),
        ):
            with pytest.raises(ScopeError):
                attempt()


class TestFunctionAgent:
    async def run(self, agent, question):
        handler = agent.run(question)
        calls = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
        return str(await handler), calls

    def test_two_hops_offline(self, retriever):
        """Search for the pump's code, read it from the answer, search for the code."""

        def second(results):
            code = re.search(r"代码是 (E\d+)", results[0])
            return call(f"{code[1]} 处理方法", 2)

        def final(results):
            return answer("清洁滤网 [1]" if "清洁滤网" in results[1] else "不知道")

        tool = as_query_engine_tool(retriever.with_options(1))
        agent = FunctionAgent(tools=[tool], llm=scripted(call("三号泵的故障代码"), second, final))
        text, calls = asyncio.run(self.run(agent, "三号泵出故障了怎么处理？"))
        assert text == "清洁滤网 [1]"
        assert [event.tool_kwargs["query"] for event in calls] == ["三号泵的故障代码", "E1102 处理方法"]
        assert [event.tool_output.raw_output[0].node_id for event in calls] == ["故障", "处理"]

    def test_a_model_that_names_an_agent_is_refused(self, retriever):
        llm = scripted(call("备忘 口令", agent_id="coder"), lambda results: answer(results[0]))
        agent = FunctionAgent(tools=[as_query_engine_tool(retriever, agent_id="planner")], llm=llm)
        text, calls = asyncio.run(self.run(agent, "coder 的口令？"))
        assert calls[0].tool_output.is_error
        assert "cannot be chosen" in text
        assert "42" not in text

    def test_an_unnamed_workflow_finds_nothing_rather_than_everything(self, retriever):
        llm = scripted(call("备忘 口令"), lambda results: answer(results[0]))
        agent = FunctionAgent(tools=[as_query_engine_tool(retriever, from_workflow=True)], llm=llm)
        text, calls = asyncio.run(self.run(agent, "口令？"))
        assert calls[0].tool_output.is_error
        assert "42" not in text

    def test_with_an_engine_that_writes_answers(self, retriever):
        engine = AgentQueryEngine.from_args(retriever, MockFunctionCallingLLM(is_chat_model=True))
        llm = scripted(call("E1102"), lambda results: answer(results[0]))
        agent = FunctionAgent(tools=[as_query_engine_tool(engine, agent_id="planner")], llm=llm)
        text, _ = asyncio.run(self.run(agent, "E1102？"))
        assert "[1]" in text


# upstream's own, between its agent and its workflows
@pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")
def test_react_agent(retriever):
    thought = 'Thought: 需要检索\nAction: search\nAction Input: {"query": "E1102 处理方法"}'

    def respond(messages, **_kwargs):
        observed = any("Observation" in (message.content or "") for message in messages[1:])
        return answer("Thought: 可以回答了\nAnswer: 清洁滤网" if observed else thought)

    llm = MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)

    async def run():
        return str(await ReActAgent(tools=[as_query_engine_tool(retriever)], llm=llm).run("E1102 怎么处理"))

    assert asyncio.run(run()) == "清洁滤网"


class TestAgentWorkflow:
    def make(self, retriever, root: str, *steps) -> AgentWorkflow:
        tool = as_query_engine_tool(retriever, from_workflow=True)
        agents = [
            FunctionAgent(
                name=name,
                description=name,
                tools=[tool],
                llm=scripted(*steps),
                can_handoff_to=[other for other in ("planner", "coder") if other != name],
            )
            for name in ("planner", "coder")
        ]
        return AgentWorkflow(agents=agents, root_agent=root)

    @pytest.mark.parametrize("root", ["planner", "coder"])
    def test_one_tool_serves_each_agent_its_own(self, retriever, root):
        workflow = self.make(retriever, root, call("备忘 口令"), lambda results: answer(results[0]))

        async def run():
            return str(await workflow.run("口令是什么？"))

        text = asyncio.run(run())
        other = "coder" if root == "planner" else "planner"
        assert f"{root}-42" in text
        assert f"{other}-42" not in text

    def test_after_a_handoff_it_is_the_other_agents_turn(self, retriever):
        handoff = ChatMessage(
            role="assistant",
            blocks=[
                ToolCallBlock(tool_call_id="h", tool_name="handoff", tool_kwargs={"to_agent": "coder", "reason": "r"})
            ],
        )
        workflow = self.make(
            retriever, "planner", call("备忘 口令"), handoff, call("备忘 口令", 3), lambda results: answer(results[-1])
        )

        async def run():
            handler = workflow.run("口令是什么？")
            calls = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
            await handler
            return [event.tool_output.content for event in calls if event.tool_name == "search"]

        first, second = asyncio.run(run())
        assert ("planner-42" in first, "coder-42" in first) == (True, False)
        assert ("planner-42" in second, "coder-42" in second) == (False, True)

    def test_a_model_cannot_pass_a_context(self, retriever):
        workflow = self.make(retriever, "planner", call("备忘 口令", ctx="coder"), lambda results: answer(results[0]))

        async def run():
            return str(await workflow.run("口令？"))

        assert "coder-42" not in asyncio.run(run())

    def test_a_context_without_a_current_agent_is_refused(self, retriever):
        tool = as_query_engine_tool(retriever, from_workflow=True)
        workflow = self.make(retriever, "planner", answer("x"))

        async def run():
            with pytest.raises(ScopeError, match="current agent"):
                await tool.acall(query="备忘", ctx=Context(workflow))

        asyncio.run(run())
