"""`HybridRetriever` of the LlamaIndex side."""

from __future__ import annotations

import asyncio
import copy
import gc
import math
import pickle
import threading

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import IndexNode, MetadataMode, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from langchain_agentrag import Chunking, DualIndexer, SourceDocument
from langchain_agentrag.errors import FilterError, InvalidQueryError, ScopeError, UsageError
from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore
from langchain_agentrag.llama_index.retriever import has_evidence
from langchain_agentrag.testing.llama_index import run_counting_ticks
from tests.fakes import FailingEmbeddings, RecordingEmbeddings
from tests.llama_index.events import EventRecorder

TEXTS = {
    "alarm": "报警 E1102：主轴过热，清洁滤网后重启。",
    "leave": "Annual leave is granted by the team leader.",
    "mixed": "VPN 连接失败 error ORA-00942，请联系 IT。",
}


@pytest.fixture
def filled(indexer):
    indexer.index_documents([SourceDocument(name, text, {"name": name}) for name, text in TEXTS.items()])
    return indexer


@pytest.mark.parametrize(
    ("query", "first"),
    [("主轴过热怎么办", "alarm"), ("who grants leave", "leave"), ("ORA-00942 是什么错误", "mixed"), ("E1102", "alarm")],
)
def test_nodes_are_the_engines_hits(filled, query, first):
    nodes = HybridRetriever(filled, 3).retrieve(query)
    hits = [hit for hit in filled.search(query, 3) if has_evidence(hit)]
    assert [(one.node_id, one.text, one.score) for one in nodes] == [
        (hit.reference, hit.text, hit.score) for hit in hits
    ]
    assert nodes[0].node_id == first
    assert all(type(one.score) is float and 0 <= one.score <= 1 for one in nodes)


def test_a_chunk_has_its_exact_place(tmp_path):
    text = "# 手册\n\n" + "".join(f"第{n}条：泵 P-{n} 的维护周期是{n}天。\n\n" for n in range(1, 60))
    with DualIndexer(tmp_path / "s", "hash", chunking=Chunking(size=60)) as indexer:
        indexer.index_documents([SourceDocument("手册", text, {"lang": "zh"}, kind="markdown")])
        for one in HybridRetriever(indexer, 5).retrieve("P-37 的维护周期"):
            facts = one.metadata["agentrag"]
            assert text[one.node.start_char_idx : one.node.end_char_idx] == one.text
            assert text[facts["start"] : facts["end"]] == one.text
            assert one.node_id == f"手册#{facts['chunk_id']}"
            assert one.node.ref_doc_id == facts["doc_id"] == "手册"
            assert indexer.read("手册", facts["chunk_id"]).text == one.text
            assert one.metadata["heading"] == "手册"
            assert one.metadata["lang"] == "zh"


def test_the_explanation_reaches_no_prompt_and_no_embedding(filled):
    [one] = HybridRetriever(filled, 1).retrieve("主轴过热 E1102")
    facts = one.metadata["agentrag"]
    assert facts["keyword"]["rank"] == 1
    assert facts["vector"]["rank"] == 1
    assert set(facts["matched"]) >= {"主轴过热", "E1102"}
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "agentrag" not in one.node.get_content(mode)
    assert one.node.get_content(MetadataMode.EMBED) == f"name: alarm\n\n{TEXTS['alarm']}"
    [bare] = HybridRetriever(filled, 1, explain=False).retrieve("主轴过热 E1102")
    assert "agentrag" not in bare.metadata
    assert bare.node.hash == one.node.hash
    assert bare.node.class_name() == one.node.class_name() == "TextNode"


def test_bookkeeping_of_connectors_reaches_no_prompt(indexer):
    metadata = {"title": "报警", "source": "/srv/报警.md", "encoding": "gb18030", "size": 3, "page": 7}
    indexer.index_documents([SourceDocument("d", "E1102：清洁滤网。", metadata)])
    [one] = HybridRetriever(indexer).retrieve("E1102")
    assert one.node.get_content(MetadataMode.LLM) == "title: 报警\npage: 7\n\nE1102：清洁滤网。"
    assert one.metadata["source"] == "/srv/报警.md"
    [all_of_it] = HybridRetriever(indexer, hidden_metadata_keys=["page"]).with_filters({}).retrieve("E1102")
    assert "source: /srv/报警.md" in all_of_it.node.get_content(MetadataMode.LLM)
    assert "page" not in all_of_it.node.get_content(MetadataMode.LLM)


def test_a_found_node_survives_serialisation(filled):
    [one] = HybridRetriever(filled, 1).retrieve("E1102")
    again = TextNode.from_json(one.node.to_json())
    assert again.metadata["agentrag"]["doc_id"] == "alarm"
    assert pickle.loads(pickle.dumps(one)).node.hash == one.node.hash
    assert copy.deepcopy(one).node.hash == one.node.hash


def test_queries_may_bring_their_embedding_or_strings_to_embed(tmp_path):
    model = RecordingEmbeddings(dim=16)
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents([SourceDocument(name, text) for name, text in TEXTS.items()])
        indexer.search("warm up", 1)
        model.queries.clear()
        retriever = HybridRetriever(indexer, 3, mode="vector", score_threshold=0)
        bundle = QueryBundle("x", embedding=model._inner.embed_query(TEXTS["leave"]))
        assert retriever.retrieve(bundle)[0].node_id == "leave"
        assert asyncio.run(retriever.aretrieve(bundle))[0].node_id == "leave"
        assert model.queries == []
        strings = QueryBundle("x", custom_embedding_strs=[TEXTS["alarm"], TEXTS["alarm"]])
        assert retriever.retrieve(strings)[0].node_id == "alarm"
        assert asyncio.run(retriever.aretrieve(strings))[0].node_id == "alarm"
        assert model.queries == [TEXTS["alarm"]] * 4
        assert bundle.custom_embedding_strs is None
        assert strings.embedding is None


def test_words_alone_need_no_model(tmp_path):
    model = RecordingEmbeddings(dim=16)
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents(list(TEXTS.values()))
        model.queries.clear()
        bundle = QueryBundle("E1102", custom_embedding_strs=["x"], embedding=[0.0] * 16)
        assert HybridRetriever(indexer, 1, mode="keyword").retrieve(bundle)
        assert model.queries == []


def test_a_failing_model_leaves_the_keyword_index_and_is_reported(tmp_path):
    model = FailingEmbeddings(dim=16)
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents(list(TEXTS.values()))
        model.queries_fail = True
        for query in ("E1102", QueryBundle("E1102", custom_embedding_strs=["报警"])):
            [one, *_] = HybridRetriever(indexer, 2).retrieve(query)
            assert one.text == TEXTS["alarm"]
            assert one.metadata["agentrag"]["degraded"][0].startswith("vector: ")


class TestOnWhoseBehalf:
    @pytest.fixture
    def mine(self, filled):
        for agent, text in (("甲", "甲的私密笔记 alpha"), ("乙", "乙的私密笔记 beta")):
            filled.index_documents([SourceDocument("note", text, {"kind": "note"})], agent)
        return HybridRetriever(filled, 9, score_threshold=0)

    def test_without_an_agent_shared_documents_only(self, mine):
        assert {one.node_id for one in mine.retrieve("私密笔记 alpha beta")} == set(TEXTS)

    @pytest.mark.parametrize(("agent", "word"), [("甲", "alpha"), ("乙", "beta")])
    def test_an_agent_sees_its_own_and_shared_ones(self, mine, agent, word):
        nodes = mine.for_agent(agent).retrieve("私密笔记 alpha beta")
        assert {one.node_id for one in nodes} == {*TEXTS, "note"}
        assert word in nodes[0].text
        assert {one.metadata["agentrag"]["agent_id"] for one in nodes} == {None, agent}

    @pytest.mark.parametrize("agent", ["甲", "乙"])
    async def test_async_is_on_the_same_behalf_and_under_the_same_filter(self, mine, agent):
        for retriever in (mine, mine.for_agent(agent), mine.for_agent(agent).with_filters({"kind": "note"})):
            assert await retriever.aretrieve("私密笔记 alpha") == retriever.retrieve("私密笔记 alpha")

    @pytest.mark.parametrize("agent", ["甲 ", "*", "丙", "甲%"])
    def test_other_names_see_nothing_of_it(self, mine, agent):
        assert "note" not in {one.node_id for one in mine.for_agent(agent).retrieve("私密笔记")}

    @pytest.mark.parametrize("agent", [None, "", 7, "\ud800"])
    def test_no_name_is_an_error(self, mine, agent):
        with pytest.raises(ScopeError):
            mine.for_agent(agent)

    def test_a_filter_on_the_agent_cannot_widen(self, mine):
        nosy = mine.for_agent("甲").with_filters(MetadataFilters(filters=[MetadataFilter(key="agent_id", value="乙")]))
        assert nosy.retrieve("私密笔记") == []

    def test_clones_leave_the_original_alone(self, mine):
        notes = mine.for_agent("甲").with_filters({"kind": "note"}).with_options(1, mode="keyword")
        assert [one.node_id for one in notes.retrieve("私密笔记 E1102")] == ["note"]
        assert (mine.agent_id, mine.similarity_top_k) == (None, 9)
        assert {one.node_id for one in mine.retrieve("E1102")} == set(TEXTS)

    def test_threads_with_clones_do_not_mix(self, mine):
        texts: dict[str, set[str]] = {}

        def ask(agent: str) -> None:
            clone = mine.for_agent(agent)
            texts[agent] = {one.text for _ in range(10) for one in clone.retrieve("私密笔记") if one.node_id == "note"}

        threads = [threading.Thread(target=ask, args=(agent,)) for agent in ("甲", "乙")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts == {"甲": {"甲的私密笔记 alpha"}, "乙": {"乙的私密笔记 beta"}}


class MeetingEmbeddings(RecordingEmbeddings):
    """Answers a query only when as many others have arrived as the meeting wants."""

    meeting: threading.Barrier | None = None

    def embed_query(self, text: str) -> list[float]:
        if self.meeting is not None:
            self.meeting.wait()
        return super().embed_query(text)


class TestAsync:
    async def test_finds_what_sync_finds(self, filled):
        retriever = HybridRetriever(filled, 3)
        for query in ("主轴", "annual leave", "zzz", ""):
            assert await retriever.aretrieve(query) == retriever.retrieve(query)  # the sync one within the loop

    async def test_questions_of_several_callers_are_embedded_side_by_side(self, tmp_path):
        model = MeetingEmbeddings()
        with DualIndexer(tmp_path / "s", model) as indexer:
            indexer.index_documents(list(TEXTS.values()))
            retriever = HybridRetriever(indexer, 1)
            retriever.retrieve("warm up")
            model.meeting = threading.Barrier(3, timeout=60)
            results = await asyncio.gather(*(retriever.aretrieve(f"主轴 {n}") for n in range(3)))
        assert all("degraded" not in one.metadata["agentrag"] for [one] in results)

    async def test_other_coroutines_go_on(self, filled):
        _, ticks = await run_counting_ticks(lambda: HybridRetriever(filled, 3).aretrieve("主轴"))
        assert ticks

    async def test_works_under_uvloop_too(self, filled):
        uvloop = pytest.importorskip("uvloop")
        retriever = HybridRetriever(filled, 1)

        def run():
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(retriever.aretrieve("E1102"))

        assert (await asyncio.to_thread(run))[0].node_id == "alarm"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_events_come_once_with_the_nodes(filled, asynchronous):
    recorder, legacy = EventRecorder(), LlamaDebugHandler(print_trace_on_end=False)
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(recorder)
    try:
        retriever = HybridRetriever(filled, 2, callback_manager=CallbackManager([legacy]))
        nodes = asyncio.run(retriever.aretrieve("主轴")) if asynchronous else retriever.retrieve("主轴")
    finally:
        dispatcher.event_handlers.remove(recorder)
    kinds = [event for event in recorder.events if isinstance(event, RetrievalStartEvent | RetrievalEndEvent)]
    assert [type(event) for event in kinds] == [RetrievalStartEvent, RetrievalEndEvent]
    assert kinds[1].nodes == nodes
    assert len(legacy.get_event_pairs(CBEventType.RETRIEVE)) == 1


def test_objects_behind_index_nodes_are_entered(indexer):
    HybridVectorStore(indexer).add([IndexNode(id_="i", text="泵的手册", index_id="pump")])
    inner = TextNode(id_="inside", text="里面的段落")
    nodes = HybridRetriever(indexer, 1, object_map={"pump": inner}).retrieve("泵的手册")
    assert [one.node_id for one in nodes] == ["inside"]


def test_a_cutoff_keeps_true_hits(filled):
    nodes = HybridRetriever(filled, 3).retrieve(TEXTS["alarm"])
    filtered = SimilarityPostprocessor(similarity_cutoff=0.3).postprocess_nodes(nodes)
    assert [one.node_id for one in filtered] == ["alarm"]


def test_options_are_the_engines(filled):
    assert len(HybridRetriever(filled, 3, score_threshold=0).retrieve("主轴")) == 3
    assert [one.node_id for one in HybridRetriever(filled, 3).retrieve("主轴")][:1] == ["alarm"]
    weights = HybridRetriever(filled, 1, weights=(0, 1), fusion="rrf").retrieve("主轴")[0].metadata["agentrag"]
    assert (weights["weights"], weights["fusion"]) == ([0, 1], "rrf")


@pytest.mark.parametrize("wrong", [0.0, -1, "5", None, 2.5, True, False, math.inf])
def test_a_number_of_nodes_that_makes_no_sense_is_an_error(indexer, wrong):
    with pytest.raises(InvalidQueryError, match="k="):
        HybridRetriever(indexer, wrong)


@pytest.mark.parametrize("options", [{"kk": 3}, {"mode": "semantic"}, {"weights": (0, 0)}, {"retrievers": []}])
def test_options_that_do_not_exist_are_errors(indexer, options):
    with pytest.raises(InvalidQueryError):
        HybridRetriever(indexer, **options)


def test_filters_that_cannot_be_parsed_are_errors_at_once(indexer):
    with pytest.raises(FilterError):
        HybridRetriever(indexer, filters={"n": {"$near": 3}})


class Louder(HybridRetriever):
    """A user's subclass."""

    def __init__(self, indexer, *, mark="!", **options):
        super().__init__(indexer, **options)
        self.mark = mark

    def _retrieve(self, query_bundle):
        return super()._retrieve(QueryBundle(query_bundle.query_str + self.mark))


def test_users_may_subclass_it(filled):
    assert Louder(filled, mark=" E1102", similarity_top_k=1).retrieve("什么")[0].node_id == "alarm"


def test_copies_share_the_store_and_nothing_is_pickled(filled):
    retriever = HybridRetriever(filled, 1).for_agent("甲")
    assert copy.deepcopy(retriever).retrieve("E1102")[0].node_id == "alarm"
    with pytest.raises(TypeError, match="path"):
        pickle.dumps(retriever)
    assert TEXTS["alarm"] not in repr(retriever)


def test_what_other_libraries_call_the_number_of_nodes_is_told_its_name_here(indexer):
    for name in ("top_k", "k", "limit", "n_results"):
        for make in (HybridRetriever, HybridVectorStore):
            with pytest.raises(InvalidQueryError, match=f"'{name}'. The number of hits is 'similarity_top_k'"):
                make(indexer, **{name: 3})


class TestFromDefaults:
    NODES = (
        TextNode(id_="hp", text="A boy wizard.", metadata={"book": "Harry Potter"}),
        TextNode(id_="pump", text="离心泵的维护周期是一年。", metadata={"手册": "泵站"}),
        TextNode(id_="alarm", text="报警 E1102：主轴过热。"),
    )

    def sources(self):
        index = VectorStoreIndex(list(self.NODES), embed_model=MockEmbedding(8))
        return {"nodes": list(self.NODES)}, {"index": index}, {"docstore": index.docstore}

    @pytest.mark.parametrize("source", range(3), ids=["nodes", "index", "docstore"])
    def test_nodes_come_from_a_list_an_index_or_a_docstore(self, source, tmp_path):
        for place in ({}, {"path": tmp_path / "store"}):
            retriever = HybridRetriever.from_defaults(
                **self.sources()[source], **place, embeddings="hash", similarity_top_k=1, explain=False
            )
            for question, node in zip(("Harry Potter", "泵站 维护", "E1102"), self.NODES, strict=True):
                [found] = retriever.retrieve(question)
                assert found.node == node

    def test_an_index_over_a_hybrid_store_is_searched_where_it_is(self, indexer):
        mine = HybridVectorStore(indexer, agent_id="甲")
        mine.add(list(self.NODES))
        HybridVectorStore(indexer, agent_id="乙").add([TextNode(id_="secret", text="乙的口令 E1102")])
        only = MetadataFilters(filters=[MetadataFilter(key="book", value="Harry Potter")])
        retriever = HybridRetriever.from_defaults(index=mine.with_filters(only).as_index())
        assert (retriever.indexer, retriever.agent_id) == (indexer, "甲")
        assert [one.node_id for one in retriever.retrieve("wizard E1102 口令")] == ["hp"]
        for wrong in ({"agent_id": "乙"}, {"path": "x"}, {"embeddings": "hash"}):
            with pytest.raises(UsageError, match="bound to agent '甲'"):
                HybridRetriever.from_defaults(index=mine.as_index(), **wrong)

    def test_an_agents_nodes_are_private(self, tmp_path):
        retriever = HybridRetriever.from_defaults(
            nodes=self.NODES, path=tmp_path / "s", embeddings="hash", agent_id="甲"
        )
        assert [one.node_id for one in retriever.retrieve("E1102")] == ["alarm"]
        assert HybridRetriever(retriever.indexer).retrieve("E1102") == []

    def test_a_temporary_store_lives_as_long_as_a_retriever_over_it(self):
        retriever = HybridRetriever.from_defaults(nodes=self.NODES, embeddings="hash")
        folder = retriever.indexer.path
        retriever = retriever.with_options(similarity_top_k=1)
        gc.collect()
        assert [one.node_id for one in retriever.retrieve("E1102")] == ["alarm"]
        del retriever
        gc.collect()
        assert not folder.exists()

    def test_what_makes_no_sense_is_refused_before_anything_is_written(self, tmp_path):
        nodes, index, _ = self.sources()
        for wrong in ({}, {**nodes, **index}, {**nodes, "stemmer": None}, {**nodes, "simularity_top_k": 3}):
            with pytest.raises(UsageError, match="from_defaults"):
                HybridRetriever.from_defaults(path=tmp_path / "s", **wrong)
        assert not (tmp_path / "s").exists()
        with pytest.raises(UsageError, match="at least one"):
            HybridRetriever.from_defaults(nodes=[])
        empty = VectorStoreIndex([], embed_model=MockEmbedding(8))
        with pytest.raises(UsageError, match="keeps its nodes"):
            HybridRetriever.from_defaults(index=empty)


@pytest.mark.parametrize("explain", [True, False])
def test_no_nodes_are_returned_where_none_are_wanted(filled, explain):
    retriever = HybridRetriever(filled, 0, explain=explain)
    assert retriever.retrieve("主轴过热") == asyncio.run(retriever.aretrieve("主轴过热")) == []
    assert HybridRetriever(filled, 3).with_options(similarity_top_k=0).retrieve("主轴过热") == []
    assert retriever.with_options(similarity_top_k=1).retrieve("主轴过热")
