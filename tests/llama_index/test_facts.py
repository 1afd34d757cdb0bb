"""Ten facts about hybrid search in LlamaIndex today: each is shown to be one, and not to be one here."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.memory import VectorMemoryBlock
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import Document, NodeWithScore, TextNode
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.tools import FunctionTool, RetrieverTool
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode

from langchain_agentrag import Analyzer, DualIndexer
from langchain_agentrag.errors import InvalidQueryError, StoreMismatchError
from langchain_agentrag.llama_index import (
    AgentQueryEngine,
    HybridMemoryBlock,
    HybridRetriever,
    HybridVectorStore,
    as_query_engine_tool,
)
from langchain_agentrag.testing.llama_index import run_counting_ticks
from tests.llama_index import upstream

SECRETS = [
    TextNode(id_="a1", text="会议纪要 minutes", metadata={"agent": "a"}),
    TextNode(id_="a2", text="采购清单 purchases", metadata={"agent": "a"}),
    TextNode(id_="b1", text="乙的密码 password", metadata={"agent": "b"}),
    TextNode(id_="b2", text="乙的工资 salary", metadata={"agent": "b"}),
]
OF_A = MetadataFilters(filters=[MetadataFilter(key="agent", value="a")])


def owners(nodes) -> set[str]:
    return {one.node.metadata["agent"] for one in nodes}


class RecordingRetriever(HybridRetriever):
    """Notes what reaches it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.queries: list[str] = []

    def _retrieve(self, query_bundle):
        self.queries.append(query_bundle.query_str)
        return super()._retrieve(query_bundle)


class TestHybridSearchWithAFilterLeaks:
    """Fact 1."""

    @pytest.mark.parametrize("query", ["zzz", "password salary"])
    def test_upstream_returns_what_the_filter_forbids(self, query):
        assert "b" in owners(upstream.fusion(SECRETS, 4, OF_A).retrieve(query))

    @pytest.mark.parametrize("query", ["zzz", "password salary", "密码 工资", "", "的", "minutes"])
    def test_ours_never_does(self, indexer, query):
        HybridVectorStore(indexer).add(SECRETS)
        by_filter = HybridRetriever(indexer, 4, filters=OF_A, score_threshold=0)
        assert owners(by_filter.retrieve(query)) <= {"a"}

    @pytest.mark.parametrize("query", ["zzz", "password salary", "密码 工资", "", "的"])
    def test_nor_does_an_agent_see_another_ones_nodes(self, indexer, query):
        store = HybridVectorStore(indexer)
        for node in SECRETS:
            store.for_agent(node.metadata["agent"]).add([node])
        everything = {"score_threshold": 0}
        assert owners(HybridRetriever(indexer, 9, **everything).for_agent("a").retrieve(query)) <= {"a"}
        assert HybridRetriever(indexer, 9, **everything).retrieve(query) == []


class TestChineseScoresNothing:
    """Fact 2."""

    LINES = ("今天天气很好", "离心泵的维护周期", "股票市场分析")

    def test_upstream_scores_zero(self):
        nodes = [TextNode(text=line) for line in self.LINES]
        assert {one.score for one in upstream.bm25(nodes, 3).retrieve("离心泵多久维护一次")} == {0.0}

    @pytest.mark.parametrize("query", ["离心泵多久维护一次", "離心泵多久維護一次", "pump 维护周期"])
    def test_ours_finds_by_words(self, indexer, query):
        indexer.index_documents(self.LINES)
        nodes = HybridRetriever(indexer, 3, mode="keyword").retrieve(query)
        assert nodes[0].text == "离心泵的维护周期"
        assert nodes[0].score > 0.1


class TestTheAnalyzerIsLost:
    """Section 2.1: what BM25Retriever was built with is not what it has after a restart."""

    LINES = ("离心泵的维护周期", "阀门泄漏的检查")

    def test_upstream_forgets_it(self, tmp_path):
        nodes = [TextNode(text=line) for line in self.LINES]
        each_character = {"token_pattern": r"[\u4e00-\u9fff]", "skip_stemming": True}
        built = upstream.bm25_retriever().from_defaults(nodes=nodes, similarity_top_k=1, **each_character)
        assert built.retrieve("离心泵")[0].score > 0.5
        built.persist(str(tmp_path))
        assert upstream.bm25_retriever().from_persist_dir(str(tmp_path)).retrieve("离心泵")[0].score == 0.0

    def test_ours_keeps_it_or_raises(self, tmp_path):
        special = Analyzer(user_words=["离心泵的维护"])
        results = []
        for _ in range(2):
            with DualIndexer(tmp_path / "s", "hash", analyzer=special) as indexer:
                indexer.index_documents(self.LINES)
                results.append([(one.text, one.score) for one in HybridRetriever(indexer).retrieve("离心泵")])
        assert results[0] == results[1] != []
        with DualIndexer(tmp_path / "s", "hash") as indexer:  # the store knows its analyzer
            assert [(one.text, one.score) for one in HybridRetriever(indexer).retrieve("离心泵")] == results[0]
        with pytest.raises(StoreMismatchError, match="analyzer"):
            DualIndexer(tmp_path / "s", "hash", analyzer=Analyzer())


class Sleeping(BaseRetriever):
    """A retriever without an async method of its own, as BM25Retriever is one."""

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(text="x"), score=1.0)]


def test_upstreams_default_blocks_the_loop_and_ours_does_not(indexer):
    indexer.index_documents(["报警 E1102：清洁滤网。"])
    assert asyncio.run(run_counting_ticks(lambda: Sleeping().aretrieve("x")))[1] == 0
    assert asyncio.run(run_counting_ticks(lambda: HybridRetriever(indexer).aretrieve("E1102")))[1] > 0


class TestTheBridgeToLangChainIsBroken:
    """Fact 3. The tests' own set-up takes the bridge away, as a newer langchain-community does."""

    def test_upstream_cannot_convert(self):
        with pytest.raises(ImportError):
            Document(text="x").to_langchain_format()

    def test_ours_converts_between_both_worlds_without_it(self, indexer):
        indexer.index_documents([LangChainDocument("来自 LangChain", id="lc", metadata={"页": 3})])
        indexer.index_documents([TextNode(id_="li", text="来自 LlamaIndex", metadata={"页": 4})])
        pages = {one.node_id: one.node.metadata["页"] for one in HybridRetriever(indexer).retrieve("来自")}
        assert pages == {"lc": 3, "li": 4}
        assert sys.modules["llama_index.core.bridge.langchain"] is None

    def test_embeddings_of_either_kind_drive_a_store(self, tmp_path):
        with DualIndexer(tmp_path / "li", upstream.Hashed()) as indexer:
            HybridVectorStore(indexer).add([TextNode(id_="n", text="离心泵 pump")])
            assert HybridRetriever(indexer, mode="vector").retrieve("离心泵")[0].node_id == "n"


def test_one_vector_store_serves_every_integration(indexer):
    """Fact 4; the integrations have tests of their own in test_integrations.py."""
    index = HybridVectorStore(indexer).as_index()
    index.insert_nodes([TextNode(id_="n", text="主轴过热 E1102")])
    for mode in ("default", "sparse", "text_search", "hybrid", "semantic_hybrid", "mmr"):
        nodes = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=1).retrieve("主轴 E1102")
        assert [one.node_id for one in nodes] == ["n"], mode


class TestRetrievalNeedsNoLLM:
    """Fact 5."""

    def test_upstream_asks_for_one(self, indexer):
        retriever = HybridRetriever(indexer)
        with pytest.raises(ImportError, match="openai"):
            QueryFusionRetriever([retriever], num_queries=1)
        with pytest.raises(ImportError, match="openai"):
            RetrieverQueryEngine.from_args(retriever, response_mode="no_text")

    @pytest.mark.parametrize("mode", [None, "no_text", "context_only"])
    def test_ours_does_not(self, indexer, mode):
        indexer.index_documents(["报警 E1102：清洁滤网。"])
        response = AgentQueryEngine.from_args(HybridRetriever(indexer), response_mode=mode).query("E1102")
        assert response.source_nodes[0].text == "报警 E1102：清洁滤网。"
        assert not [name for name in sys.modules if name.startswith("openai")]


class TestTheToolRewritesTheQuery:
    """Fact 6."""

    def test_upstream_does(self, indexer):
        retriever = RecordingRetriever(indexer)
        RetrieverTool.from_defaults(retriever).call(input="E1102")
        assert retriever.queries == ["\ninput is E1102\n"]

    @pytest.mark.parametrize("argument", ["query", "input"])
    def test_ours_does_not(self, indexer, argument):
        retriever = RecordingRetriever(indexer)
        as_query_engine_tool(retriever).call(**{argument: " 报警 E1102？"})
        assert retriever.queries == [" 报警 E1102？"]


class TestPartialParametersAreNoIsolation:
    """Fact 7."""

    def test_upstream_lets_the_model_choose(self):
        tool = FunctionTool.from_defaults(lambda agent_id: agent_id, name="f", partial_params={"agent_id": "a"})
        assert tool.call(agent_id="b").raw_output == "b"

    def test_ours_refuses(self, indexer):
        HybridVectorStore(indexer).for_agent("b").add(SECRETS[2:])
        tool = as_query_engine_tool(HybridRetriever(indexer), agent_id="a")
        with pytest.raises(InvalidQueryError, match="cannot be chosen"):
            tool.call(query="密码", agent_id="b")
        assert "agent" not in json.dumps(tool.metadata.get_parameters_dict())
        assert tool.call(query="乙的密码 password").raw_output == []


class TestTheMemoryBlockPinsTheFirstSession:
    """Fact 8."""

    TOLD = (("S1", "我的门牌号是一零一"), ("S2", "我的门牌号是二零二"))

    def test_upstream_serves_one_session_anothers_memory(self, indexer):
        store = HybridVectorStore(indexer)
        block = VectorMemoryBlock(vector_store=store, embed_model=store.embed_model)
        assert "二零二" not in asyncio.run(self.ask(block))["S2"]

    def test_ours_serves_each_its_own(self, indexer):
        answers = asyncio.run(self.ask(HybridMemoryBlock(indexer=indexer, agent_id="a")))
        assert ("一零一" in answers["S1"], "二零二" in answers["S1"]) == (True, False)
        assert ("一零一" in answers["S2"], "二零二" in answers["S2"]) == (False, True)

    async def ask(self, block) -> dict[str, str]:
        for session, text in self.TOLD:
            await block.aput([ChatMessage(role="user", content=text)], session_id=session)
        question = [ChatMessage(role="user", content="我的门牌号是多少")]
        return {session: await block.aget(question, session_id=session) for session, _ in self.TOLD}


class TestChatStoresCannotBeWritten:
    """Fact 9."""

    def test_ours_does_not_go_through_their_serialiser(self, indexer):
        store = SimpleChatStore()
        store.add_message("s", ChatMessage(role="user", content="你好，泵 P-7 漏水"))
        block = HybridMemoryBlock(indexer=indexer, agent_id="a")
        asyncio.run(block.aput(store.get_messages("s"), session_id="s"))
        assert "P-7" in asyncio.run(block.aget([ChatMessage(role="user", content="P-7")], session_id="s"))
        assert block.model_dump()["agent_id"] == "a"


class TestModesAreSilentlyIgnored:
    """Fact 10."""

    def test_ours_answers_them_or_raises(self, indexer):
        store = HybridVectorStore(indexer)
        store.add([TextNode(id_="old", text="陈旧 E-502"), TextNode(id_="other", text="别的 E-503")])
        store.add([TextNode(id_="old", text="更新 E-504")])
        query = VectorStoreQuery(query_str="E-504", similarity_top_k=2, mode=VectorStoreQueryMode.SPARSE)
        assert store.query(query).nodes[0].text == "更新 E-504"
        query.query_str = "陈旧"
        assert store.query(query).ids == []
        query.query_str = "更新"
        query.node_ids = ["other"]
        assert store.query(query).ids == []
        for mode in ("svm", "linear_regression", "logistic_regression"):
            with pytest.raises(InvalidQueryError, match="cannot answer mode"):
                store.query(VectorStoreQuery(query_str="x", mode=VectorStoreQueryMode(mode)))


def test_engine_of_upstream_works_over_our_retriever(indexer):
    indexer.index_documents(["报警 E1102：清洁滤网。"])
    engine = RetrieverQueryEngine.from_args(HybridRetriever(indexer), llm=MockLLM())
    assert "清洁滤网" in str(engine.query("E1102"))
