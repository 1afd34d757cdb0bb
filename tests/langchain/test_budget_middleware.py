"""RetrievalBudgetMiddleware around a real agent: a trajectory step by step, loops that end, parallel calls, checkpoints."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import PrivateAttr

from langchain_agentrag import AgentRAGToolkit, DualIndexer, FileSystemConnector, HashingEmbeddings, RetrievalBudget
from langchain_agentrag.agent.budget import Limits
from langchain_agentrag.cli.demo import unpack
from langchain_agentrag.langchain.middleware import RetrievalBudgetMiddleware
from langchain_agentrag.langchain.tools import mark_retrieval
from tests.langchain.scripts import ScriptedModel, calls
from tests.langchain.test_agent import QUESTIONS, first_hit

MARK = "agentrag_retrieval"


class CountingEmbeddings(HashingEmbeddings):
    queries = 0

    def embed_query(self, text):
        type(self).queries += 1
        return super().embed_query(text)


@pytest.fixture(scope="module")
def indexer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget")
    with DualIndexer(folder / "store", CountingEmbeddings()) as opened:
        opened.sync(FileSystemConnector(unpack(folder / "files")))
        yield opened


class WatchingModel(ScriptedModel):
    """Notes which tools it was offered each time and what the system message said."""

    def bind_tools(self, tools, **kwargs):
        bound = self.model_copy()
        bound.__pydantic_private__ = self.__pydantic_private__
        bound._tools.append([one.name for one in tools])
        return bound

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self._heard.append(next((m.text for m in messages if m.type == "system"), ""))
        return super()._generate(messages, stop, run_manager, **kwargs)

    _heard: list = PrivateAttr(default_factory=list)


def agent_of(indexer, steps, budget=None, language="zh", saver=None, tools=(), **options):
    model = WatchingModel(steps=steps)
    middleware = RetrievalBudgetMiddleware(budget, language=language, **options)
    toolkit = AgentRAGToolkit(indexer=indexer, language=language).get_tools()
    return model, create_agent(model, [*toolkit, *tools], middleware=[middleware], checkpointer=saver)


def answers(result):
    return [message for message in result["messages"] if message.type == "tool"]


def verdict(message):
    return message.additional_kwargs[MARK]["what"]


def parallel(*queries):
    return AIMessage(
        "",
        tool_calls=[
            {"name": "search", "args": {"query": q}, "id": f"p{n}", "type": "tool_call"} for n, q in enumerate(queries)
        ],
    )


def looping(name="search", **arguments):
    count = iter(range(10_000))
    return lambda messages: calls(name, next(count), **arguments)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_trajectory_of_two_hops_step_by_step(indexer, asynchronous):
    words = QUESTIONS["zh"]
    steps = [
        calls("search", 1, query=words["first"], k=2),
        lambda messages: calls("read", 2, **first_hit(messages)),
        calls("search", 3, query=words["second"], k=2),
        lambda messages: calls("read", 4, **first_hit(messages)),
        AIMessage(words["answer"]),
    ]
    _, agent = agent_of(indexer, steps, RetrievalBudget(searches=3, reads=3), saver=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    question = {"messages": [("user", words["ask"])]}
    result = asyncio.run(agent.ainvoke(question, config)) if asynchronous else agent.invoke(question, config)
    first, opened, second, reread = answers(result)
    assert [m.name for m in answers(result)] == ["search", "read", "search", "read"]
    assert [verdict(m) for m in answers(result)] == ["made"] * 4
    for message in answers(result):
        assert f"[原问题：{words['ask']}]" in message.content
    assert "[剩余：检索 2 次，阅读 3 次]" in first.content
    assert "[剩余：检索 2 次，阅读 2 次]" in opened.content
    assert "[剩余：检索 1 次，阅读 2 次]" in second.content
    assert "[剩余：检索 1 次，阅读 1 次]" in reread.content
    assert words["learnt"] in opened.content
    assert words["found"] in reread.content
    assert first.artifact[0]["doc_id"] == words["sources"][0]
    assert second.artifact[0]["doc_id"] == words["sources"][1]
    assert result["messages"][-1].content == words["answer"]
    history = agent.get_state(config).values[MARK]
    assert (history["run"]["searches"], history["run"]["reads"], history["idle"]) == (2, 2, 0)
    assert history["run"]["characters"] == sum(len(m.content) for m in answers(result))
    assert [call["kind"] for call in history["calls"]] == ["search", "read", "search", "read"]
    assert MARK not in result
    json.dumps(history)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_model_that_loops_is_stopped_with_a_useful_last_message(indexer, language):
    before = CountingEmbeddings.queries
    variants = iter(["退款", "退款 ", "退款？", "“退款”", "退款。"] * 12)
    count = iter(range(10_000))
    model, agent = agent_of(
        indexer, [lambda messages: calls("search", next(count), query=f"E1102 {next(variants)}")], language=language
    )
    result = agent.invoke({"messages": [("user", "E1102 怎么退款？")]})
    kinds = [verdict(message) for message in answers(result)]
    assert kinds == ["made", "repeat", "repeat", "repeat", "repeat", "over"]
    assert CountingEmbeddings.queries - before <= 1
    last = result["messages"][-1]
    assert last.type == "ai"
    assert not last.tool_calls
    records = answers(result)[0].artifact[0]
    assert f"{records['doc_id']}#{records['chunk_id']}" in last.content
    assert "E1102 怎么退款？" in last.content
    assert model._tools[0] == ["search", "read"]
    assert len(model._heard) == 7
    assert model._heard[0] == ""
    assert ("检索到此为止" if language == "zh" else "Retrieval is over") in model._heard[-1]
    for repeat in answers(result)[1:5]:
        assert ("第 1 次" if language == "zh" else "#1") in repeat.content
        assert f"{records['doc_id']}#{records['chunk_id']}" in repeat.content
        assert repeat.artifact == answers(result)[0].artifact
        assert repeat.status == "success"


def test_past_the_budget_the_tools_are_gone_and_the_model_answers(indexer):
    steps = [
        calls("search", 1, query="E1102"),
        calls("search", 2, query="素食"),
        lambda messages: calls("read", 3, **first_hit(messages)),
        AIMessage("答案"),
    ]
    model, agent = agent_of(indexer, steps, RetrievalBudget(searches=2, reads=1))
    result = agent.invoke({"messages": [("user", "E1102？")]})
    assert result["messages"][-1].content == "答案"
    assert [verdict(m) for m in answers(result)] == ["made"] * 3
    assert model._tools == [["search", "read"], ["search", "read"], ["read"]]  # the last time there is none to bind
    assert "还可以阅读" in model._heard[2]
    assert "请现在就" in model._heard[3]


def test_other_tools_stay_and_a_late_call_beside_them_is_refused_alone(indexer):
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    both = AIMessage(
        "",
        tool_calls=[
            {"name": "search", "args": {"query": "again"}, "id": "1", "type": "tool_call"},
            {"name": "pay", "args": {"amount": 3}, "id": "2", "type": "tool_call"},
        ],
    )
    model, agent = agent_of(indexer, [both, AIMessage("done")], RetrievalBudget(searches=0, reads=0), tools=[pay])
    result = agent.invoke({"messages": [("user", "?")]})
    refused, paid = answers(result)
    assert (verdict(refused), refused.status) == ("over", "error")
    assert paid.content == "paid 3"
    assert result["messages"][-1].content == "done"
    assert model._tools == [["pay"], ["pay"]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_parallel_calls_never_exceed_the_budget_together(indexer, asynchronous):
    step = parallel("E1105", "素食", "e1105？", "访客", "报销", "停机")
    _, agent = agent_of(
        indexer, [step, AIMessage("ok")], RetrievalBudget(searches=3, characters=900), saver=InMemorySaver()
    )
    config = {"configurable": {"thread_id": "t"}}
    messages = {"messages": [("user", "?")]}
    result = asyncio.run(agent.ainvoke(messages, config)) if asynchronous else agent.invoke(messages, config)
    assert [verdict(m) for m in answers(result)] == ["made", "made", "twin", "made", "over", "over"]
    assert agent.get_state(config).values[MARK]["run"]["searches"] == 3
    contents = [m.content for m in answers(result) if verdict(m) == "made"]
    assert any("[在此截断" in content for content in contents)
    assert all(len(content) < 350 for content in contents)  # 900 characters among six, and what stands beside
    assert all(content.count("⟦引文 ") == content.count("⟦引文完 ") for content in contents)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_search_with_the_same_results_as_before_has_a_note(indexer, language):
    steps = [
        calls("search", 1, query="E1102 停机", k=1),
        calls("search", 2, query="E1102 停机 怎么修", k=1),
        AIMessage("ok"),
    ]
    _, agent = agent_of(indexer, steps, language=language)
    first, second = answers(agent.invoke({"messages": [("user", "E1102?")]}))
    assert first.artifact == [{**first.artifact[0]}]
    assert second.artifact[0]["doc_id"] == first.artifact[0]["doc_id"]
    assert ("没有新的证据" if language == "zh" else "No new evidence") in second.content
    assert ("换一个角度" if language == "zh" else "change the angle") in second.content
    assert f"{first.artifact[0]['doc_id']}#{first.artifact[0]['chunk_id']}" in second.content


def test_a_search_that_finds_mostly_the_same_loses_nothing(indexer):
    steps = [
        calls("search", 1, query="E1102 停机", k=2),
        calls("search", 2, query="E1102 停机 怎么修", k=3),
        AIMessage("ok"),
    ]
    _, agent = agent_of(indexer, steps, RetrievalBudget(overlap=0.3), language="en")
    first, second = answers(agent.invoke({"messages": [("user", "E1102?")]}))
    new = {r["doc_id"] for r in second.artifact} - {r["doc_id"] for r in first.artifact}
    assert "Little new evidence" in second.content
    assert all(doc_id in second.content for doc_id in new)


def test_a_repeated_reading_is_answered_shortly_while_its_text_is_still_there(indexer):
    steps = [
        calls("search", 1, query="E1102"),
        lambda messages: calls("read", 2, **first_hit(messages)),
        lambda messages: calls("read", 3, doc_id=messages[-1].artifact[0]["doc_id"], chunk_id=messages[-1].artifact[0]["chunk_id"]),
        AIMessage("ok"),
    ]  # fmt: skip
    _, agent = agent_of(indexer, steps)
    _, opened, again = answers(agent.invoke({"messages": [("user", "E1102?")]}))
    assert (verdict(opened), verdict(again)) == ("made", "repeat")
    assert again.artifact == opened.artifact
    assert len(again.content) < 120


def test_state_survives_a_checkpoint_on_disk_and_starts_anew_with_each_run(indexer, tmp_path):
    budget = RetrievalBudget(searches=2, conversation=Limits(searches=3))
    config = {"configurable": {"thread_id": "t"}}
    other = {"configurable": {"thread_id": "other"}}

    def run(query, number, where=config):
        with SqliteSaver.from_conn_string(str(tmp_path / "threads.sqlite")) as saver:
            steps = [calls("search", number, query=query), AIMessage("ok")]
            _, agent = agent_of(indexer, steps, budget, saver=saver)
            return verdict(answers(agent.invoke({"messages": [("user", query)]}, where))[-1])

    assert run("E1102", 1) == "made"
    assert run("E1102", 2) == "made"  # a run has its own record
    assert run("E1105", 3) == "made"
    assert run("素食", 4) == "over"
    assert run("素食", 5, other) == "made"


def test_a_run_that_pauses_goes_on_with_what_it_had_used(indexer):
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "t"}}
    steps = [calls("search", 1, query="E1102"), calls("search", 2, query="E1102。"), AIMessage("ok")]
    model = WatchingModel(steps=steps)
    tools = AgentRAGToolkit(indexer=indexer).get_tools()

    def new_agent():  # another process would make its own
        return create_agent(
            model, tools, middleware=[RetrievalBudgetMiddleware()], checkpointer=saver, interrupt_before=["tools"]
        )

    new_agent().invoke({"messages": [("user", "E1102?")]}, config)
    new_agent().invoke(None, config)
    result = new_agent().invoke(None, config)
    assert [verdict(m) for m in answers(result)] == ["made", "repeat"]


def test_seconds_of_model_and_tools_are_limited():
    @tool
    def slow_search(query: str) -> str:
        """Search slowly."""
        time.sleep(0.15)
        return f"found {query}"

    def think(messages):
        time.sleep(0.15)
        return calls("slow_search", len(messages), query=f"q{len(messages)}")

    middleware = RetrievalBudgetMiddleware(RetrievalBudget(seconds=0.7), tools={"slow_search": "search"})
    agent = create_agent(WatchingModel(steps=[think]), [slow_search], middleware=[middleware])
    result = agent.invoke({"messages": [("user", "?")]})
    kinds = [verdict(m) for m in answers(result)]
    assert 1 <= kinds.count("made") <= 4
    assert kinds[-1] == "over"
    assert "time for retrieval is over" in result["messages"][-1].content


def test_failing_calls_count_and_come_through_unchanged(indexer):
    loop = looping("search", query="x", k="five")
    _, agent = agent_of(indexer, [loop])
    result = agent.invoke({"messages": [("user", "?")]})
    kinds = [verdict(m) for m in answers(result)]
    assert "1-50" in answers(result)[0].content
    assert len(kinds) <= 7
    assert result["messages"][-1].type == "ai"


@pytest.mark.parametrize("blank", ["", "   ", "\n", "\u3000", "\u200b", "？？？", None])
def test_blank_queries_embed_nothing_and_end(indexer, blank):
    before = CountingEmbeddings.queries
    _, agent = agent_of(indexer, [looping("search", query=blank)])
    result = agent.invoke({"messages": [("user", "?")]})
    assert CountingEmbeddings.queries == before
    assert len(answers(result)) <= 7
    assert all(not m.artifact for m in answers(result))


def test_missing_parts_of_the_question_stand_beside_each_result(indexer):
    question = "E1102 停机怎么处理？量子纠缠望远镜多少钱？"
    _, agent = agent_of(indexer, [calls("search", 1, query="E1102 停机 处理"), AIMessage("ok")])
    (message,) = answers(agent.invoke({"messages": [("user", question)]}))
    assert "[尚无证据的部分：“量子纠缠望远镜多少钱”" in message.content.replace("“E1102 停机怎么处理”，", "")
    _, agent = agent_of(indexer, [calls("search", 1, query="E1102"), AIMessage("ok")], sufficiency=None, restate=False)
    (message,) = answers(agent.invoke({"messages": [("user", question)]}))
    assert "量子" not in message.content


def test_another_agents_run_shares_nothing(indexer):
    middleware = RetrievalBudgetMiddleware()
    tools = AgentRAGToolkit(indexer=indexer).get_tools()
    for _ in range(2):  # one middleware, two runs: what was found is in the state of the run alone
        model = ScriptedModel(steps=[calls("search", 1, query="E1102"), AIMessage("ok")])
        agent = create_agent(model, tools, middleware=[middleware])
        (message,) = answers(agent.invoke({"messages": [HumanMessage("?")]}))
        assert verdict(message) == "made"


@pytest.mark.parametrize(("kind", "counted"), [("search", (1, 0)), ("read", (0, 1))])
def test_a_call_of_a_run_that_died_counts_as_what_it_was_for_the_next_process(kind, counted):
    @tool
    def look(q: str) -> str:
        """Look something up."""
        return f"找到 {q}"

    def dies(messages):
        raise RuntimeError("the process died")

    saver, config = InMemorySaver(), {"configurable": {"thread_id": "t"}}

    def fresh(steps):  # a middleware of its own, as after a restart
        return create_agent(
            ScriptedModel(steps=steps),
            [mark_retrieval(look.model_copy(), kind)],
            middleware=[RetrievalBudgetMiddleware()],
            checkpointer=saver,
        )

    with pytest.raises(RuntimeError, match="died"):
        fresh([calls("look", 1, q="泵"), dies]).invoke({"messages": [("user", "泵？")]}, config)
    agent = fresh([AIMessage("好")])
    agent.invoke({"messages": [("user", "继续")]}, config)
    used = agent.get_state(config).values[MARK]["conversation"]
    assert (used["searches"], used["reads"]) == counted


@tool
def look(query: str) -> str:
    """Looks."""
    return f"nothing on {query}"


def test_agents_that_share_the_middleware_keep_their_own_tools(indexer):
    middleware = RetrievalBudgetMiddleware(RetrievalBudget(searches=1))
    steps = [calls("look", 1, query="a"), calls("look", 2, query="b"), AIMessage("done")]
    marked = mark_retrieval(look.model_copy(), "search")
    for search_tool, expected in [(marked, 1), (look, 2), (marked, 1), (look, 2)]:
        agent = create_agent(WatchingModel(steps=list(steps)), [search_tool], middleware=[middleware])
        texts = [message.text for message in answers(agent.invoke({"messages": [("user", "find it")]}))]
        assert sum(text.startswith("nothing on") for text in texts) == expected


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("泵 E1102 怎么处理？", "不得不停止"),
        ("What does 退款 mean here?", "I had to stop"),
        ("退款 refund 的时限", "不得不停止"),
    ],
)
def test_the_last_message_is_in_the_language_of_the_question(indexer, language, question, expected):
    steps = [calls("search", number, query=f"{number} 泵") for number in range(9)]
    _, agent = agent_of(indexer, steps, RetrievalBudget(searches=1), language=language)
    assert expected in agent.invoke({"messages": [("user", question)]})["messages"][-1].text
