"""`AgentQueryEngine`: answers, sources, citations, with and without an LLM."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.base.response.schema import AsyncStreamingResponse, PydanticResponse, Response, StreamingResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.query import QueryEndEvent, QueryStartEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.instrumentation.events.synthesis import SynthesizeEndEvent, SynthesizeStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine, RouterQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.settings import Settings
from pydantic import BaseModel

from langchain_agentrag import Chunking, DualIndexer, SourceDocument
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.llama_index import (
    AgentQueryEngine,
    HybridRetriever,
    HybridVectorStore,
    as_query_engine_tool,
    check_response,
    citations,
)
from langchain_agentrag.llama_index.query_engine import NOTHING_FOUND
from langchain_agentrag.testing.llama_index import run_counting_ticks
from tests.fences import unfenced, without_token
from tests.llama_index import upstream
from tests.llama_index.events import EventRecorder

MANUAL = "".join(f"第{n}条：报警 E11{n:02} 的处理：检查部件 {n}。\n\n" for n in range(30))
QUESTION = "E1107 怎么处理"


class FixedAnswerLLM(MockLLM):
    """Returns a fixed answer and records the prompts."""

    answer: str = ""
    prompts: list[str] = []  # noqa: RUF012  pydantic copies it

    def complete(self, prompt, formatted=False, **kwargs):
        self.prompts.append(prompt)
        return super().complete(self.answer, formatted=formatted, **kwargs)


def fixed_answer(text: str) -> FixedAnswerLLM:
    llm = FixedAnswerLLM()
    llm.answer = text
    return llm


@pytest.fixture
def filled(tmp_path):
    with DualIndexer(tmp_path / "s", "hash", chunking=Chunking(size=40)) as indexer:
        indexer.index_documents([SourceDocument("手册", MANUAL, {"title": "手册"})])
        yield indexer


@pytest.fixture
def retriever(filled):
    return HybridRetriever(filled, 3)


class TestWithoutAnLLM:
    def test_the_answer_is_the_numbered_passages(self, retriever):
        response = AgentQueryEngine(retriever).query(QUESTION)
        assert isinstance(response, Response)
        assert [one.node_id for one in response.source_nodes] == [one.node_id for one in retriever.retrieve(QUESTION)]
        for number, one in enumerate(response.source_nodes, start=1):
            assert f"[{number}] " in response.response
            assert one.text in response.response
        assert "agentrag" not in response.response
        assert response.metadata[response.source_nodes[0].node_id]["title"] == "手册"

    def test_nothing_is_looked_up_in_the_settings(self, retriever, monkeypatch):
        monkeypatch.setattr(type(Settings), "llm", property(lambda _: pytest.fail("asked for the default LLM")))
        for mode in (None, "context_only", "no_text"):
            engine = AgentQueryEngine.from_args(retriever, response_mode=mode)
            assert engine.query(QUESTION).source_nodes
            assert asyncio.run(engine.aquery(QUESTION)).source_nodes
            assert engine.with_retriever(retriever).query(QUESTION).source_nodes

    def test_no_text_means_no_text(self, retriever):
        assert AgentQueryEngine.from_args(retriever, response_mode="no_text").query(QUESTION).response == ""

    def test_no_results_is_reported_in_both_languages(self, indexer):
        response = AgentQueryEngine(HybridRetriever(indexer)).query("没有的东西")
        assert (response.response, response.source_nodes) == (NOTHING_FOUND, [])

    def test_modes_that_need_one_say_so(self, retriever):
        with pytest.raises(UsageError, match="needs an LLM"):
            AgentQueryEngine.from_args(retriever, response_mode="tree_summarize")
        with pytest.raises(ValueError, match="no_such_mode"):
            AgentQueryEngine.from_args(retriever, response_mode="no_such_mode")

    def test_it_streams_and_runs_async(self, retriever):
        engine = AgentQueryEngine.from_args(retriever, streaming=True)
        plain = AgentQueryEngine(retriever).query(QUESTION).response
        response = engine.query(QUESTION)
        assert isinstance(response, StreamingResponse)
        pieces = list(response.response_gen)
        assert (without_token("".join(pieces)), len(pieces)) == (without_token(plain), 3)

        async def consumed():
            response = await engine.aquery(QUESTION)
            assert isinstance(response, AsyncStreamingResponse)
            return [piece async for piece in response.async_response_gen()], response.source_nodes

        assert list(map(without_token, asyncio.run(consumed())[0])) == list(map(without_token, pieces))


class TestWithAnLLM:
    def test_passages_reach_the_prompt_numbered_and_clean(self, retriever):
        llm = fixed_answer("检查部件 7 [1]。")
        response = AgentQueryEngine.from_args(retriever, llm).query(QUESTION)
        assert str(response) == "检查部件 7 [1]。"
        [prompt] = llm.prompts
        assert "[1] title: 手册\n\n第" in unfenced(prompt)
        assert QUESTION in prompt
        assert "agentrag" not in prompt
        assert "score" not in prompt

    @pytest.mark.parametrize(
        "mode",
        ["refine", "compact", "simple_summarize", "tree_summarize", "accumulate", "compact_accumulate", "generation"],
    )
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_every_mode_answers_with_the_retrieved_sources(self, retriever, mode, asynchronous):
        engine = AgentQueryEngine.from_args(retriever, MockLLM(), response_mode=mode)
        response = asyncio.run(engine.aquery(QUESTION)) if asynchronous else engine.query(QUESTION)
        assert QUESTION in str(response)
        assert response.source_nodes == retriever.retrieve(QUESTION)

    @pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "simple_summarize"])
    def test_answers_stream(self, retriever, mode):
        engine = AgentQueryEngine.from_args(retriever, MockLLM(), response_mode=mode, streaming=True)
        response = engine.query(QUESTION)
        assert QUESTION in "".join(response.response_gen)
        assert response.source_nodes == retriever.retrieve(QUESTION)

        async def consumed():
            response = await engine.aquery(QUESTION)
            return "".join([piece async for piece in response.async_response_gen()])

        assert QUESTION in asyncio.run(consumed())

    def test_the_llm_of_the_settings_is_taken_when_there_is_one(self, retriever, monkeypatch):
        monkeypatch.setattr(Settings, "_llm", fixed_answer("来自设置"))
        assert str(AgentQueryEngine.from_args(retriever).query(QUESTION)) == "来自设置"

    def test_a_prompt_of_ones_own_is_used(self, retriever):
        llm = fixed_answer("x")
        template = PromptTemplate("只看：{context_str} 问：{query_str}")
        AgentQueryEngine.from_args(retriever, llm, text_qa_template=template).query(QUESTION)
        assert llm.prompts[0].startswith("只看：[1] ")

    def test_without_citing_and_safety_it_is_upstreams_engine(self, retriever):
        ours, theirs = fixed_answer("x"), fixed_answer("x")
        AgentQueryEngine.from_args(retriever, ours, cite=False, safety=PassageSafety.off()).query(QUESTION)
        RetrieverQueryEngine.from_args(retriever, theirs).query(QUESTION)
        assert ours.prompts == theirs.prompts

    def test_structured_answers(self, retriever):
        class Answer(BaseModel):
            part: int

        llm = fixed_answer('{"part": 7}')
        response = AgentQueryEngine.from_args(retriever, llm.as_structured_llm(Answer)).query(QUESTION)
        assert isinstance(response, PydanticResponse)
        assert response.response == Answer(part=7)
        assert response.source_nodes

    def test_postprocessors_and_synthesizers_are_ones_own(self, retriever):
        class Counting(BaseSynthesizer):
            def get_response(self, query_str, text_chunks, **kwargs):
                return f"{len(text_chunks)} 段"

            async def aget_response(self, query_str, text_chunks, **kwargs):
                return self.get_response(query_str, text_chunks)

            def _get_prompts(self):
                return {}

            def _update_prompts(self, prompts):
                pass

        best = retriever.retrieve(QUESTION)[0].score
        engine = AgentQueryEngine.from_args(
            retriever,
            response_synthesizer=Counting(MockLLM()),
            node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=best)],
        )
        assert str(engine.query(QUESTION)) == "1 段"
        assert str(asyncio.run(engine.aquery(QUESTION))) == "1 段"
        assert len(engine.retrieve(QueryBundle(QUESTION))) == 1

    def test_additional_sources_are_kept(self, retriever):
        extra = NodeWithScore(node=TextNode(text="别处"), score=0.5)
        engine = AgentQueryEngine.from_args(retriever, MockLLM())
        response = engine.synthesize(QueryBundle(QUESTION), retriever.retrieve(QUESTION), [extra])
        assert response.source_nodes[-1] is extra


class TestCitations:
    def test_each_resolves_to_its_exact_span(self, filled, retriever):
        response = AgentQueryEngine(retriever).query(QUESTION)
        cited = citations(response)
        assert [one.number for one in cited] == [1, 2, 3]
        for one in cited:
            assert MANUAL[one.start : one.end] == one.text == filled.read(one.doc_id, one.chunk_id).text
        assert "E1107" in cited[0].text

    @pytest.mark.parametrize(
        ("answer", "numbers"),
        [
            ("见 [2]。", [2]), ("[3, 1] 和【2】", [1, 2, 3]), ("［1］；[9] 不存在，[0] 也是", [1]), ("没有引用", [1, 2, 3]),
            ("列表[1，2]", [1, 2]), ("年份 [2026]", [1, 2, 3]),
        ],
    )  # fmt: skip
    def test_numbers_in_the_answer_choose(self, retriever, answer, numbers):
        response = AgentQueryEngine.from_args(retriever, fixed_answer(answer)).query(QUESTION)
        assert [one.number for one in citations(response)] == numbers

    def test_what_an_answer_cites_is_checked(self, retriever):
        best = retriever.retrieve(QUESTION)[0].text
        sentence = next(line for line in best.splitlines() if "E1107" in line)
        answer = f"{sentence.rstrip('。')} [1]。{sentence.rstrip('。').replace('E1107', 'E1170')} [1]。手册还有别的章节内容 [9]。"
        report = check_response(AgentQueryEngine.from_args(retriever, fixed_answer(answer)).query(QUESTION))
        assert [one.support for one in report.statements] == ["supported", "unsupported", "unknown"]
        assert report.statements[2].references == {"9": "missing"}
        assert report.sources[0].start is not None

    def test_a_consumed_stream_is_cited_by_its_text(self, retriever):
        engine = AgentQueryEngine.from_args(retriever, fixed_answer("见 [2]"), streaming=True)
        response = engine.query(QUESTION)
        assert [one.number for one in citations(response, "见 [2]")] == [2]

    def test_nodes_of_other_retrievers_are_cited_as_far_as_they_tell(self):
        engine = AgentQueryEngine(upstream.bm25([TextNode(id_="n", text="pump failure", start_char_idx=3)], 1))
        [one] = citations(engine.query("pump"))
        assert (one.doc_id, one.chunk_id, one.start, one.text) == ("n", None, 3, "pump failure")

    def test_whole_nodes_are_cited_too(self, indexer):
        HybridVectorStore(indexer).add([TextNode(id_="n", text="整个节点 E1")])
        [one] = citations(AgentQueryEngine(HybridRetriever(indexer)).query("E1"))
        assert indexer.read(one.doc_id, one.chunk_id).text == one.text == "整个节点 E1"


class TestOnWhoseBehalf:
    def test_for_agent_binds_the_retriever(self, filled):
        filled.index_documents([SourceDocument("秘密", "甲的秘密 E1107")], "甲")
        engine = AgentQueryEngine.from_args(HybridRetriever(filled, 9), fixed_answer("x"))
        bound = engine.for_agent("甲")
        assert type(bound) is AgentQueryEngine
        assert "秘密" in {one.node_id for one in bound.query(QUESTION).source_nodes}
        for other in (engine, engine.for_agent("乙")):
            assert "秘密" not in {one.node_id for one in other.query(QUESTION).source_nodes}

    def test_a_foreign_retriever_cannot_be_bound(self):
        with pytest.raises(ScopeError, match="cannot be bound"):
            AgentQueryEngine(upstream.bm25([TextNode(text="pump")], 1)).for_agent("甲")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_events_come_once_and_in_order(retriever, asynchronous):
    recorder = EventRecorder()
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(recorder)
    try:
        engine = AgentQueryEngine(retriever)
        asyncio.run(engine.aquery(QUESTION)) if asynchronous else engine.query(QUESTION)
    finally:
        dispatcher.event_handlers.remove(recorder)
    wanted = [
        QueryStartEvent,
        RetrievalStartEvent,
        RetrievalEndEvent,
        SynthesizeStartEvent,
        SynthesizeEndEvent,
        QueryEndEvent,
    ]
    assert [type(event) for event in recorder.events if type(event) in wanted] == wanted


async def test_it_works_within_a_running_loop(retriever):
    engine = AgentQueryEngine(retriever)
    response, ticks = await run_counting_ticks(lambda: engine.aquery(QUESTION))
    assert ticks
    assert without_token(engine.query(QUESTION).response) == without_token(response.response)


class Asking(BaseQuestionGenerator):
    """Asks the same two questions whatever the question."""

    def generate(self, tools, query):
        return [SubQuestion(sub_question=f"E110{n} 怎么处理", tool_name=tools[0].name) for n in (3, 7)]

    async def agenerate(self, tools, query):
        return self.generate(tools, query)

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


class TestEnginesOfEngines:
    def test_router(self, filled, retriever):
        tools = [as_query_engine_tool(retriever, name="manual"), as_query_engine_tool(retriever, name="other")]
        selector = LLMSingleSelector.from_defaults(llm=fixed_answer('[{"choice": 1, "reason": "手册"}]'))
        router = RouterQueryEngine(selector, tools, llm=MockLLM())
        assert "E1107" in str(router.query(QUESTION))
        assert "E1107" in str(asyncio.run(router.aquery(QUESTION)))

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_sub_questions(self, retriever, asynchronous):
        engine = SubQuestionQueryEngine.from_defaults(
            [as_query_engine_tool(retriever)],
            llm=MockLLM(),
            question_gen=Asking(),
            response_synthesizer=AgentQueryEngine(retriever)._response_synthesizer,
            use_async=asynchronous,
            verbose=False,
        )
        response = asyncio.run(engine.aquery(QUESTION)) if asynchronous else engine.query(QUESTION)
        assert "检查部件 3" in str(response)
        assert "检查部件 7" in str(response)


def test_a_chat_model_is_prompted_too(retriever):
    llm = MockFunctionCallingLLM(is_chat_model=True)
    assert "[1]" in str(AgentQueryEngine.from_args(retriever, llm).query(QUESTION))
