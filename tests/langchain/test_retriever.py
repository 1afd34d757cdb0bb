"""`HybridRetriever` under LangChain's contract and beyond it: options, identity, tracing, concurrency."""

from __future__ import annotations

import asyncio
import copy
import pickle
from dataclasses import dataclass
from uuid import uuid4

import pytest
from langchain_classic.chains import RetrievalQAWithSourcesChain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda
from pydantic import ValidationError

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridRetriever, HybridVectorStore, SourceDocument
from langchain_agentrag.errors import FilterError, InvalidQueryError, ScopeError, UsageError

MANUAL = [
    Document("报警 E1102：主轴过热，清洁滤网后重启。", id="a", metadata={"lang": "zh", "year": 2024}),
    Document("Alarm E1102: the spindle overheats; clean the filter.", id="b", metadata={"lang": "en", "year": 2025}),
    Document("年假由班组长批准。Leave needs the team leader.", id="c", metadata={"lang": "mixed", "year": 2024}),
    Document("The canteen opens at 11:30.", id="d", metadata={"lang": "en", "year": 2023}),
]


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as opened:
        opened.index_documents(MANUAL)
        opened.index_documents([Document("lina 的口令是 7741", id="note")], agent_id="lina")
        opened.index_documents([Document("otto's password is 9935", id="note")], agent_id="otto")
        yield opened


@pytest.fixture
def retriever(indexer):
    return HybridRetriever(indexer=indexer, k=3)


def ids(documents):
    return [document.id for document in documents]


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["主轴过热", "spindle filter", "E1102 怎么 fix", "年假 leave"])
def test_exactly_k_documents_come_back_sync_async_and_batched(retriever, query):
    for k in (1, 2, 4):
        documents = retriever.invoke(query, k=k)
        assert len(documents) == k
        assert asyncio.run(retriever.ainvoke(query, k=k)) == documents
        assert retriever.batch([query, query], k=k) == [documents, documents]
    assert len(retriever.invoke(query, k=50)) == len(MANUAL)


def test_chinese_english_and_mixed_questions_find_their_document(retriever):
    assert ids(retriever.invoke("主轴过热怎么办", k=1)) == ["a"]
    assert ids(retriever.invoke("overheating spindles", k=1)) == ["b"]
    assert ids(retriever.invoke("team leader 年假", k=1)) == ["c"]


def test_a_filter_of_the_call_narrows_the_bound_one_and_cannot_replace_it(indexer):
    bound = HybridRetriever(indexer=indexer, k=9, filter={"year": 2024})
    assert set(ids(bound.invoke("E1102"))) == {"a", "c"}
    assert ids(bound.invoke("E1102", filter={"lang": "zh"})) == ["a"]
    assert bound.invoke("E1102", filter={"year": 2025}) == []
    assert bound.invoke("E1102", filter={"$or": [{"year": 2025}, {"lang": "en"}]}) == []


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"kk": 3}, "Did you mean 'k'"),
        ({"fiter": {}}, "Did you mean 'filter'"),
        ({"score_treshold": 0.1}, "Did you mean 'score_threshold'"),
        ({"agent_id": "otto"}, "for_agent"),
        ({"search_kwargs": {"k": 1}}, "Known:"),
    ],
)
async def test_an_unknown_option_of_a_call_is_an_error_that_helps(retriever, option, hint):
    with pytest.raises(InvalidQueryError, match=hint.replace("(", r"\(")):
        retriever.invoke("E1102", **option)
    with pytest.raises(InvalidQueryError):
        await retriever.ainvoke("E1102", **option)


def test_options_of_tracing_are_not_options_of_the_search(retriever):
    config = {"tags": ["t"], "metadata": {"m": 1}, "run_name": "r"}
    assert retriever.invoke("E1102", config, verbose=True, run_id=uuid4()) == retriever.invoke("E1102")


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": None},
        {"k": 0},
        {"search_type": "magic"},
        {"weights": (0, 0)},
        {"score_threshold": 2},
        {"lambda_mult": -1},
        {"reranker": 5},
        {"agent_id": ""},
        {"filter": {"a": {"$like": 1}}},
        {"where": {"a": {"$like": 1}}},
        {"filter": len},
        {"score": "distance"},
        {"score": "cosine", "score_threshold": -1.5},
        {"score": "bm25", "search_type": "vector"},
        {"score": "cosine", "search_type": "keyword"},
        {"score": "bm25", "weights": (1, 0)},
    ],
)
def test_wrong_settings_are_refused_when_the_retriever_is_made(indexer, wrong):
    with pytest.raises(ValidationError):
        HybridRetriever(indexer=indexer, **wrong)


def test_the_store_may_come_first_and_unknown_settings_are_named(indexer):
    assert HybridRetriever(indexer, k=3) == HybridRetriever(indexer=indexer, k=3)
    assert ids(HybridRetriever(indexer, k=1).for_agent("lina").invoke("overheating spindles")) == ["b"]
    with pytest.raises(UsageError, match=r"HybridRetriever\(\) has no argument 'kk'.*Did you mean 'k'"):
        HybridRetriever(indexer, kk=3)
    with pytest.raises(UsageError, match="needs an open store"):
        HybridRetriever(k=3)


@pytest.mark.parametrize("name", ["top_k", "limit", "n_results", "similarity_top_k", "num_results"])
def test_what_other_libraries_call_the_number_of_hits_is_told_its_name_here(indexer, retriever, name):
    store, view = HybridVectorStore(indexer), indexer.for_agent("lina")
    for call in (
        lambda **options: HybridRetriever(indexer, **options),
        lambda **options: retriever.invoke("E1102", **options),
        lambda **options: store.similarity_search("E1102", **options),
        lambda **options: store.as_retriever(search_kwargs=options).invoke("E1102"),
        lambda **options: indexer.search("E1102", **options),
        lambda **options: view.search("E1102", **options),
    ):
        with pytest.raises(UsageError, match=rf"'{name}'.* The number of hits is 'k'"):
            call(**{name: 3})


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"k": "many"}, {"score_threshold": 7}, {"lambda_mult": 3}, {"search_type": "x"}]
)
def test_wrong_options_of_a_call_are_refused(retriever, wrong):
    with pytest.raises(InvalidQueryError):
        retriever.invoke("E1102", **wrong)
    with pytest.raises(FilterError):
        retriever.invoke("E1102", filter={"a": {"$regex": "x"}})


@pytest.mark.parametrize("search_type", ["hybrid", "vector", "similarity", "keyword", "bm25", "mmr"])
def test_every_search_type_answers(retriever, search_type):
    assert "a" in ids(retriever.invoke("主轴过热 E1102", search_type=search_type))


def test_keyword_search_returns_no_document_without_a_matching_word(retriever):
    assert retriever.invoke("qzxv", search_type="keyword") == []


def test_scores_are_in_the_unit_interval_whatever_the_length_of_vectors_and_a_threshold_parts_good_from_bad(tmp_path):
    class Unnormalised(HashingEmbeddings):
        def embed_query(self, text):
            return [37.5 * number for number in super().embed_query(text)]

    with DualIndexer(tmp_path / "store", Unnormalised()) as indexer:
        indexer.index_documents(MANUAL)
        retriever = HybridRetriever(indexer=indexer, k=4, score_key="score")
        scores = [document.metadata["score"] for document in retriever.invoke("E1102 spindle overheats")]
        assert all(isinstance(score, float) and 0 <= score <= 1 for score in scores)
        assert scores == sorted(scores, reverse=True)
        between = (scores[0] + scores[1]) / 2
        assert ids(retriever.invoke("E1102 spindle overheats", score_threshold=between)) == ["b"]


def test_mmr_prefers_difference_and_keeps_its_own_order(tmp_path):
    texts = ["red apple pie", "red apple pie recipe", "red apple cider", "blue car"]
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents([Document(text, id=text) for text in texts])
        retriever = HybridRetriever(indexer=indexer, k=2)
        assert ids(retriever.invoke("red apple pie")) == texts[:2]
        different = ids(retriever.invoke("red apple pie", search_type="mmr", lambda_mult=0.3))
        assert different[0] == texts[0]
        assert different[1] != texts[1]
        assert ids(retriever.invoke("red apple pie", search_type="mmr", lambda_mult=1.0)) == texts[:2]


def test_a_cap_per_document_still_gives_k_documents(tmp_path):
    long = "\n\n".join(f"# 第{number}章 spindle\n\n" + "主轴 spindle 保养。" * 40 for number in range(30))
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents([Document(long, id="long"), *MANUAL])
        documents = HybridRetriever(indexer=indexer, k=5, max_per_document=1).invoke("主轴 spindle")
        assert len(documents) == 5
        assert len({document.metadata["doc_id"] for document in documents}) == 5


class Backwards(BaseDocumentCompressor):
    """A compressor of LangChain that turns the order around and drops the first."""

    def compress_documents(self, documents, query, callbacks=None):
        return list(reversed(documents))[:-1]


class Scoring(BaseDocumentCompressor):
    """A compressor that makes new documents, with scores."""

    def compress_documents(self, documents, query, callbacks=None):
        ranked = sorted(documents, key=lambda document: "canteen" not in document.page_content)
        return [
            Document(
                page_content=document.page_content, metadata={**document.metadata, "relevance_score": 1 / (1 + rank)}
            )
            for rank, document in enumerate(ranked)
        ]


class CrossEncoder:
    """What sentence-transformers offers."""

    def predict(self, pairs):
        return [9.0 if "canteen" in text else -9.0 for _, text in pairs]


@pytest.mark.parametrize(
    "reranker",
    [Scoring(), CrossEncoder(), lambda query, texts: [1.0 if "canteen" in text else 0.0 for text in texts]],
    ids=["compressor", "cross-encoder", "function"],
)
async def test_any_reranker_decides_the_order_and_the_score(indexer, reranker):
    retriever = HybridRetriever(indexer=indexer, k=1, fetch_k=4, reranker=reranker, score_key="score")
    (document,) = retriever.invoke("E1102")
    assert document.id == "d"
    assert 0.9 < document.metadata["score"] <= 1
    assert "relevance_score" not in document.metadata
    assert await retriever.ainvoke("E1102") == [document]


def test_a_compressor_may_leave_documents_out(indexer):
    plain = HybridRetriever(indexer=indexer, k=4).invoke("E1102")
    assert ids(HybridRetriever(indexer=indexer, k=4, reranker=Backwards()).invoke("E1102")) == ids(plain)[:0:-1]


@pytest.mark.parametrize("broken", [lambda query, texts: [float("nan")] * len(texts), lambda query, texts: [1.0]])
def test_a_broken_reranker_leaves_the_order_of_the_search(indexer, broken):
    plain = HybridRetriever(indexer=indexer, k=3).invoke("E1102")
    assert HybridRetriever(indexer=indexer, k=3, reranker=broken).invoke("E1102") == plain


def test_metadata_comes_back_whole_and_the_score_is_added_on_request(tmp_path):
    own = {"score": 5, "doc_id": "mine", "嵌套": {"列表": [1, None, "中"]}}
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents([Document("文本 text", id="x", metadata=own)])
        (document,) = HybridRetriever(indexer=indexer).invoke("文本")
        assert own.items() <= document.metadata.items()
        assert document.metadata.keys() - own.keys() == {"chunk_id", "line", "source"}
        (moved,) = HybridRetriever(indexer=indexer, score_key="relevance").invoke("文本")
        assert (moved.metadata["score"], 0 <= moved.metadata["relevance"] <= 1) == (5, True)
        (explained,) = HybridRetriever(indexer=indexer, explain=True).invoke("文本")
        assert explained.metadata["explanation"]["keyword"]["rank"] == 1


@pytest.mark.parametrize("search_type", ["hybrid", "vector", "keyword", "mmr"])
def test_a_passage_that_several_queries_find_is_the_same_document(indexer, search_type):
    retriever = HybridRetriever(indexer=indexer, k=9, search_type=search_type)
    first, second = (retriever.invoke(query) for query in ("E1102 主轴 spindle", "spindle overheats 主轴过热 E1102"))
    shared = set(ids(first)) & set(ids(second))
    assert shared
    assert all([d for d in first if d.id == one] == [d for d in second if d.id == one] for one in shared)


def test_where_is_taken_as_filter(indexer):
    indexer.index_documents([Document("E1102 手册", id=name, metadata={"kind": name}) for name in ("x", "y")])
    retriever = HybridRetriever(indexer=indexer)
    assert ids(retriever.invoke("E1102", where={"kind": "x"})) == ["x"]
    assert retriever.invoke("E1102", where={"kind": "x"}, filter={"kind": "y"}) == []
    bound = HybridRetriever(indexer=indexer, where={"kind": "x"})
    assert ids(bound.invoke("E1102")) == ids(bound.for_agent("lina").invoke("E1102")) == ["x"]
    assert bound.invoke("E1102", where={"kind": "y"}) == []
    assert HybridRetriever(indexer=indexer, where={"kind": "x"}, filter={"kind": "y"}).invoke("E1102") == []
    with pytest.raises(FilterError, match="function"):
        retriever.invoke("E1102", filter=lambda document: True)


# -- identity ---------------------------------------------------------------------------------------------------------


def test_without_an_agent_only_shared_documents_are_seen(retriever):
    assert "note" not in ids(retriever.invoke("口令 password", k=50))


def test_an_agent_sees_its_own_and_the_shared_documents(retriever):
    documents = retriever.for_agent("lina").invoke("口令 password", k=50)
    assert "note" in ids(documents)
    assert not any("9935" in document.page_content for document in documents)


async def test_the_agent_may_come_from_each_run(indexer):
    retriever = HybridRetriever(indexer=indexer, k=50, agent_id_key="agent_id")
    for agent, secret, other in (("lina", "7741", "9935"), ("otto", "9935", "7741")):
        config = {"configurable": {"agent_id": agent}}
        for documents in (
            retriever.invoke("口令 password", config),
            await retriever.ainvoke("口令 password", config),
            retriever.batch(["口令 password"], config)[0],
            (RunnableLambda(lambda query: query) | retriever).invoke("口令 password", config),
        ):
            text = "".join(document.page_content for document in documents)
            assert secret in text
            assert other not in text


async def test_runs_side_by_side_keep_their_agents_apart(indexer):
    retriever = HybridRetriever(indexer=indexer, k=50, agent_id_key="agent_id")
    agents = ["lina", "otto"] * 10
    results = await asyncio.gather(
        *(retriever.ainvoke("口令 password", {"configurable": {"agent_id": agent}}) for agent in agents)
    )
    for agent, documents in zip(agents, results, strict=True):
        assert ("7741" if agent == "lina" else "9935") in "".join(document.page_content for document in documents)


async def test_a_run_that_names_no_agent_fails_or_sees_shared_documents_by_choice(indexer):
    strict = HybridRetriever(indexer=indexer, k=50, agent_id_key="agent_id")
    for config in (
        None,
        {},
        {"configurable": {}},
        {"configurable": {"agent": "lina"}},
        {"configurable": {"agent_id": None}},
    ):
        with pytest.raises(ScopeError, match="No agent arrived"):
            strict.invoke("口令", config)
        with pytest.raises(ScopeError, match="No agent arrived"):
            await strict.ainvoke("口令", config)
    loose = HybridRetriever(indexer=indexer, k=50, agent_id_key="agent_id", when_missing="shared")
    assert "note" not in ids(loose.invoke("口令"))


@pytest.mark.parametrize("agent", ["", 7, ["lina"], "\ud800"])
def test_a_run_that_names_an_impossible_agent_fails(indexer, agent):
    with pytest.raises((ScopeError, TypeError)):
        HybridRetriever(indexer=indexer, agent_id_key="agent_id").invoke("口令", {"configurable": {"agent_id": agent}})


def test_an_agent_is_bound_or_comes_from_the_run_but_is_never_a_default(indexer, retriever):
    with pytest.raises(ValidationError, match="no default"):
        HybridRetriever(indexer=indexer, agent_id="lina", agent_id_key="agent_id")
    with pytest.raises(ScopeError, match="fall back"):
        retriever.configurable_fields(agent_id=ConfigurableField(id="agent_id"))
    assert (
        len(retriever.configurable_fields(k=ConfigurableField(id="k")).invoke("E1102", {"configurable": {"k": 1}})) == 1
    )


def test_the_agent_may_come_from_a_graphs_context(indexer):
    from langgraph.graph import END, START, StateGraph

    @dataclass
    class Context:
        agent_id: str

    retriever = HybridRetriever(indexer=indexer, k=50, agent_id_key="agent_id")
    graph = StateGraph(dict, context_schema=Context)
    graph.add_node("look", lambda state: {"seen": "".join(d.page_content for d in retriever.invoke("口令 password"))})
    graph.add_edge(START, "look")
    graph.add_edge("look", END)
    app = graph.compile()
    assert "7741" in app.invoke({}, context=Context("lina"))["seen"]
    assert "7741" not in app.invoke({}, context=Context("otto"))["seen"]
    with pytest.raises(ScopeError, match="different agents"):
        app.invoke({}, {"configurable": {"agent_id": "otto"}}, context=Context("lina"))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("agent1", "agent10"),
        ("agent10", "agent1"),
        ("a_b", "a-b"),
        ("A", "a"),
        ("%", "x"),
        ("*", "x"),
        ("a.b", "a"),
        ("é", "e\u0301"),
    ],
)
def test_agents_with_alike_names_are_strangers(tmp_path, mine, theirs):
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents([Document("their secret 9935", id="n")], agent_id=theirs)
        indexer.index_documents([Document("my note 7741", id="n")], agent_id=mine)
        for search_type in ("hybrid", "vector", "keyword", "mmr"):
            documents = HybridRetriever(indexer=indexer, agent_id=mine, search_type=search_type, k=9).invoke(
                "secret note 9935"
            )
            assert [document.page_content for document in documents] in (["my note 7741"], [])


# -- options of the configuration, sources ----------------------------------------------------------------------------


WAYS = {
    "retriever": lambda indexer, **options: HybridRetriever(indexer=indexer, **options),
    "vector store": lambda indexer, **options: HybridVectorStore(indexer).as_retriever(**options),
    "search_kwargs": lambda indexer, **options: HybridVectorStore(indexer).as_retriever(search_kwargs=options),
}


@pytest.fixture
def numbered(tmp_path):
    with DualIndexer(tmp_path / "numbered", HashingEmbeddings(64)) as opened:
        opened.index_documents([f"note 笔记 {number}" for number in range(9)])
        yield opened


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_k_is_a_configurable_field(numbered, make):
    base = make(numbered, k=2)
    configurable = base.configurable_fields(k=ConfigurableField(id="k"))
    assert len(configurable.invoke("note")) == 2
    assert len(configurable.invoke("note", {"configurable": {"k": 5}})) == 5
    assert len(configurable.with_config(configurable={"k": 6}).invoke("笔记")) == 6
    assert len(asyncio.run(configurable.ainvoke("note", {"configurable": {"k": 7}}))) == 7
    assert [len(found) for found in configurable.batch(["note", "笔记"], {"configurable": {"k": 3}})] == [3, 3]
    chain = RunnableLambda(lambda text: text) | configurable | len
    assert chain.invoke("note", {"configurable": {"k": 4}}) == 4
    assert len(configurable.invoke("note", {"configurable": {"k": 5}}, k=1)) == 1
    for wrong in (0, True, "3"):
        with pytest.raises(ValueError, match="k="):
            configurable.invoke("note", {"configurable": {"k": wrong}})
    assert len(base.bind(k=5).invoke("note")) == 5


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "option", [{"k": 5}, {"filter": {"lang": "zh"}}, {"search_type": "keyword"}, {"weights": [1, 0]}]
)
def test_an_option_that_is_no_configurable_field_is_refused_with_the_remedy(numbered, make, option):
    retriever = make(numbered, k=2)
    for call in (
        lambda: retriever.with_config(configurable=option),
        lambda: retriever.with_config({"configurable": option}),
        lambda: retriever.invoke("note", {"configurable": option}),
        lambda: asyncio.run(retriever.ainvoke("note", {"configurable": option})),
        lambda: retriever.batch(["note"], {"configurable": option}),
    ):
        with pytest.raises(UsageError, match=r"ConfigurableField\(id="):
            call()
    assert len(retriever.with_config(configurable={"thread_id": "7", "k": 2}).invoke("note")) == 2
    # within a run, what it configures may be meant for others
    assert (RunnableLambda(lambda text: text) | retriever | len).invoke("note", {"configurable": option}) == 2


def test_any_option_of_the_retriever_can_be_configurable(numbered):
    fields = {
        name: ConfigurableField(id=name) for name in ("search_type", "weights", "fusion", "after", "score_threshold")
    }
    configurable = HybridRetriever(indexer=numbered, k=2).configurable_fields(**fields)
    values = {"search_type": "keyword", "weights": [1, 0], "fusion": "rrf", "after": "9d", "score_threshold": 0.0}
    for name, value in values.items():
        configurable.invoke("note 3", {"configurable": {name: value}})  # not refused


@pytest.mark.parametrize("make", list(WAYS.values())[:2], ids=list(WAYS)[:2])
def test_documents_without_a_source_get_the_id_of_their_document(tmp_path, make):
    with DualIndexer(tmp_path / "sources", HashingEmbeddings(64)) as indexer:
        long = SourceDocument("手册", "\n\n".join(f"第 {number} 章 coolant {'词 ' * 200}" for number in range(6)))
        own = SourceDocument("own", "coolant 冷却液", {"source": "wiki/7"})
        indexer.index_documents([SourceDocument("plain", "coolant"), long, own])
        retriever = make(indexer, k=9)
        for documents in (retriever.invoke("coolant"), asyncio.run(retriever.ainvoke("coolant"))):
            assert {document.metadata["source"] for document in documents} == {"plain", "手册", "wiki/7"}
        assert "source" not in indexer.get(["plain"])[0].metadata
        assert "source" not in HybridVectorStore(indexer).get_by_ids(["plain"])[0].metadata


@pytest.mark.parametrize("make", list(WAYS.values())[:2], ids=list(WAYS)[:2])
def test_a_chain_with_sources_answers(tmp_path, make):
    with DualIndexer(tmp_path / "sources", HashingEmbeddings(64)) as indexer:
        indexer.index_documents([SourceDocument("报警表", "E1102 主轴过载"), SourceDocument("other", "coolant")])
        model = FakeListChatModel(responses=["主轴过载。\nSOURCES: 报警表"])
        chain = RetrievalQAWithSourcesChain.from_chain_type(model, retriever=make(indexer, k=1))
        assert chain.invoke({"question": "E1102?"}) == {
            "question": "E1102?", "answer": "主轴过载。\n", "sources": "报警表",
        }  # fmt: skip


# -- tracing, copies, loops -------------------------------------------------------------------------------------------


class Recorder(BaseCallbackHandler):
    def __init__(self):
        self.started, self.ended, self.failed = [], [], []

    def on_retriever_start(self, serialized, query, *, run_id, parent_run_id=None, tags=None, metadata=None, **kwargs):
        self.started.append((kwargs.get("name"), parent_run_id, run_id, tags, metadata))

    def on_retriever_end(self, documents, *, run_id, **kwargs):
        self.ended.append((run_id, [document.id for document in documents]))

    def on_retriever_error(self, error, *, run_id, **kwargs):
        self.failed.append((run_id, str(error)))


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(
    "make", [lambda retriever: retriever, lambda retriever: HybridVectorStore(retriever.indexer).as_retriever()]
)
def test_a_tracer_sees_one_run_per_search(retriever, make, way):
    recorder, searching = Recorder(), make(retriever)
    config = {"callbacks": [recorder]}
    documents = (
        searching.invoke("E1102 主轴", config)
        if way == "sync"
        else asyncio.run(searching.ainvoke("E1102 主轴", config))
    )
    assert len(recorder.started) == 1
    assert recorder.ended == [(recorder.started[0][2], ids(documents))]
    assert recorder.failed == []


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_tracer_sees_a_run_per_index_by_option(retriever, way):
    recorder = Recorder()
    retriever = HybridRetriever(indexer=retriever.indexer, trace_indexes=True)
    config = {"callbacks": [recorder]}
    documents = (
        retriever.invoke("E1102 主轴", config)
        if way == "sync"
        else asyncio.run(retriever.ainvoke("E1102 主轴", config))
    )
    (parent, *children) = recorder.started
    assert [(name, tags) for name, _, _, tags, _ in children] == [
        ("agentrag vector index", ["vector"]),
        ("agentrag keyword index", ["keyword"]),
    ]
    assert {child[1] for child in children} == {parent[2]}
    ended = dict(recorder.ended)
    assert ended[parent[2]] == ids(documents)
    assert all(set(ended[child[2]]) <= set(ids(documents)) for child in children)
    metadata = parent[4]
    assert metadata["ls_retriever_name"] == "agentrag"
    assert metadata["ls_embedding_model"]
    assert metadata["ls_embedding_provider"]
    assert metadata["ls_vector_store_provider"]


def test_copies_share_the_store_pickles_say_what_to_do_and_nothing_is_printed(retriever):
    assert copy.deepcopy(retriever).invoke("E1102") == retriever.invoke("E1102")
    assert copy.copy(retriever).invoke("E1102") == retriever.invoke("E1102")
    with pytest.raises(TypeError, match="open it again"):
        pickle.dumps(retriever)
    assert "主轴" not in repr(retriever)
    assert "indexer" not in retriever.model_dump()


def test_a_user_may_subclass_it(indexer):
    class Polite(HybridRetriever):
        greeting: str = "bitte"

        def _get_relevant_documents(self, query, *, run_manager, **kwargs):
            return super()._get_relevant_documents(query.removesuffix(self.greeting), run_manager=run_manager, **kwargs)

    assert ids(Polite(indexer=indexer, k=1).invoke("spindle bitte")) == ["b"]
    assert isinstance(Polite(indexer=indexer).for_agent("lina"), Polite)


async def test_sync_calls_work_inside_a_running_loop_and_async_ones_do_not_block_it(tmp_path):
    class Slow(HashingEmbeddings):
        async def aembed_query(self, text):
            await asyncio.sleep(0.05)
            return self.embed_query(text)

    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    with DualIndexer(tmp_path / "store", Slow()) as indexer:
        indexer.index_documents(MANUAL)
        retriever = HybridRetriever(indexer=indexer)
        assert retriever.invoke("E1102")
        ticker = asyncio.create_task(tick())
        for _ in range(5):
            await retriever.ainvoke("E1102 主轴")
        ticker.cancel()
    assert ticks > 10


def test_it_is_a_retriever_to_everyone_who_asks(retriever):
    assert isinstance(retriever, BaseRetriever)
    assert type(retriever)._expects_other_args
