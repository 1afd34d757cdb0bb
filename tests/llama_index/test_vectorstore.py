"""`HybridVectorStore` of the LlamaIndex side, beyond the conformance suite."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import pickle

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import (
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode

from langchain_agentrag import Chunking, DualIndexer, HybridRetriever, SourceDocument
from langchain_agentrag.errors import (
    InvalidDocumentError,
    InvalidQueryError,
    ScopeError,
    StoreMismatchError,
    UsageError,
)
from langchain_agentrag.llama_index import HybridVectorStore
from langchain_agentrag.testing.llama_index import run_counting_ticks
from tests.fakes import RecordingEmbeddings

SOURCE = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="手册", metadata={"版": 2}, hash="h")}
NODES = [
    TextNode(
        id_="text",
        text="  原样 verbatim\n",
        metadata={"n": 1, "none": None, "list": ["甲", 2], "deep": {"是": [True]}, "day": dt.date(2026, 3, 1)},
        excluded_embed_metadata_keys=["n"],
        excluded_llm_metadata_keys=["none"],
        relationships={**SOURCE, NodeRelationship.NEXT: RelatedNodeInfo(node_id="next")},
        start_char_idx=3,
        end_char_idx=20,
        text_template="{content} / {metadata_str}",
    ),
    Document(id_="document", text="整篇文档 document", metadata={"doc_id": "own", "ref_doc_id": "own too"}),
    Node(id_="node", text_resource=MediaResource(text="节点 node", mimetype="text/markdown"), metadata={"a": 1}),
    Node(id_="bare", metadata={"a": 2}),
    IndexNode(id_="index", text="索引 index", index_id="other", metadata={"a": 3}),
    ImageNode(id_="image", text="图片 image", image_url="https://example.org/a.png"),
    TextNode(id_="empty", text=""),
]


@pytest.fixture
def store(indexer):
    return HybridVectorStore(indexer)


def ask(store, text, k=3, **options):
    mode = VectorStoreQueryMode(options.pop("mode", "hybrid"))
    return store.query(VectorStoreQuery(query_str=text, similarity_top_k=k, mode=mode, **options))


def only(**conditions):
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value) for key, value in conditions.items()])


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.node_id)
@pytest.mark.parametrize("explain", [False, True])
def test_every_kind_of_node_comes_back_equal(indexer, node, explain):
    store = HybridVectorStore(indexer, explain=explain)
    before = copy.deepcopy(node)
    assert store.add([node]) == [node.node_id]
    assert node == before, "the caller's node was changed"
    [fetched] = store.get_nodes([node.node_id])
    assert type(fetched) is type(node)
    assert fetched == node
    assert fetched.hash == node.hash
    for result in ask(store, node.get_content() or "x", 1, mode="default").nodes:
        assert isinstance(result, type(node))
        assert (result.hash, result.relationships, result.ref_doc_id) == (
            node.hash,
            node.relationships,
            node.ref_doc_id,
        )


def test_a_found_node_can_be_stored_again(indexer):
    store = HybridVectorStore(indexer, explain=True)
    store.add(NODES[:1])
    [node] = ask(store, "原样", 1).nodes
    assert node.metadata["agentrag"]
    store.add([node])
    assert store.get_nodes(["text"]) == NODES[:1]


def test_a_users_own_metadata_of_that_name_is_kept(store):
    node = TextNode(id_="n", text="x", metadata={"agentrag": "版本 2"}, excluded_llm_metadata_keys=["agentrag"])
    store.add([node])
    assert store.get_nodes(["n"]) == [node]


def test_embeddings_that_nodes_and_queries_bring_are_used(tmp_path):
    model = RecordingEmbeddings(dim=4)
    with DualIndexer(tmp_path / "s", model) as indexer:
        store = HybridVectorStore(indexer)
        store.add(
            [
                TextNode(id_="n0", text="甲", embedding=[1, 0, 0, 0]),
                TextNode(id_="n1", text="乙", embedding=[0, 1, 0, 0]),
            ]
        )
        texts = list(model.texts)
        query = VectorStoreQuery([0.0, 1, 0, 0], 2)
        assert store.query(query).ids[0] == "n1"
        queries = list(model.queries)
        assert asyncio.run(store.aquery(query)).ids[0] == "n1"
        assert "甲" not in texts
        assert model.queries == queries
        with pytest.raises(StoreMismatchError, match="2 dimensions"):
            store.add([TextNode(text="x", embedding=[1.0, 0.0])])
        with pytest.raises(InvalidQueryError, match="dimensions"):
            store.query(VectorStoreQuery([1.0, 0.0], 2))


class TestModes:
    @pytest.fixture
    def filled(self, store):
        store.add([TextNode(id_=f"n{n}", text=f"离心泵 pump 第{n}号 P-{n}") for n in range(8)])
        return store

    @pytest.mark.parametrize("mode", ["hybrid", "semantic_hybrid", "sparse", "text_search", "default", "mmr"])
    def test_each_is_answered_with_as_many_as_wanted(self, filled, mode):
        result = ask(filled, "离心泵 P-3", 4, mode=mode)
        assert len(result.ids) == len(result.nodes) == len(result.similarities) == 4
        assert result.ids[0] == "n3"
        assert all(type(score) is float and 0 <= score <= 1 for score in result.similarities)

    def test_the_number_of_nodes_goes_by_the_mode(self, filled):
        assert len(ask(filled, "离心泵", 2, sparse_top_k=5, mode="sparse").ids) == 5
        assert len(ask(filled, "离心泵", 2, hybrid_top_k=6).ids) == 6
        assert len(ask(filled, "离心泵", 2, sparse_top_k=3, hybrid_top_k=6).ids) <= 5
        assert len(ask(filled, "离心泵", 2, sparse_top_k=5, mode="default").ids) == 2

    def test_sparse_top_k_limits_the_keyword_index(self, filled):
        model = filled.embed_model
        query = VectorStoreQuery(
            model.get_query_embedding("离心泵 pump 第0号 P-0"), 1, query_str="P-7", mode=VectorStoreQueryMode.HYBRID,
            sparse_top_k=1, hybrid_top_k=5,
        )  # fmt: skip
        assert set(filled.query(query).ids) == {"n0", "n7"}

    @pytest.mark.parametrize("alpha", [-0.1, 1.1, True, "0.5"])
    def test_an_alpha_that_makes_no_sense_is_an_error(self, filled, alpha):
        with pytest.raises(InvalidQueryError, match="alpha"):
            ask(filled, "x", alpha=alpha)

    def test_mmr_prefers_different_nodes(self, store):
        store.add([TextNode(id_=f"t{n}", text="离心泵 维护 周期") for n in range(3)])
        store.add([TextNode(id_="other", text="离心泵 报警")])
        assert "other" not in ask(store, "离心泵 维护 周期", 2, mode="mmr", mmr_threshold=1.0).ids
        assert "other" in ask(store, "离心泵 维护 周期", 2, mode="mmr", mmr_threshold=0.1).ids
        query = VectorStoreQuery(query_str="离心泵 维护 周期", similarity_top_k=2, mode=VectorStoreQueryMode.MMR)
        assert "other" in store.query(query, mmr_threshold=0.1).ids
        query.mmr_threshold = 1.0
        assert "other" in store.query(query, mmr_threshold=0.1).ids
        with pytest.raises(InvalidQueryError, match="mmr_threshold"):
            store.query(query, mmr_threshold=2)

    def test_options_of_the_engine_are_taken_and_others_refused(self, filled):
        query = VectorStoreQuery(query_str="P-3", similarity_top_k=5, mode=VectorStoreQueryMode.HYBRID)
        best = filled.query(query).similarities[0]
        assert filled.query(query, score_threshold=best).ids == ["n3"]
        for options in ({"agent_id": "b"}, {"where": {}}, {"filter": {}}):
            with pytest.raises(InvalidQueryError):
                filled.query(query, **options)
        with pytest.raises(InvalidQueryError):
            HybridVectorStore(filled.client, collection_name="x")

    def test_a_filter_alone_lists_what_it_keeps(self, store):
        store.add([TextNode(id_=f"n{n}", text=f"段 {n}", metadata={"even": n % 2 == 0, "n": n}) for n in range(6)])
        keep = MetadataFilters(filters=[MetadataFilter(key="n", value=[0, 2, 5], operator="in")])
        result = store.query(VectorStoreQuery(query_str="", similarity_top_k=2, filters=keep))
        assert (result.ids, result.similarities) == (["n0", "n2"], [1.0, 1.0])
        assert store.query(VectorStoreQuery(query_str="", similarity_top_k=2)).ids == []


class TestDocumentsIndexedByOtherMeans:
    TEXT = "".join(f"第{n}条：泵 P-{n} 的说明。\n\n" for n in range(40))

    @pytest.fixture
    def chunked(self, tmp_path):
        with DualIndexer(tmp_path / "s", "hash", chunking=Chunking(size=40)) as indexer:
            indexer.index_documents([SourceDocument("手册", self.TEXT, {"lang": "zh"})])
            indexer.index_documents([SourceDocument("note#7", "名字里有井号的文档 P-7", {"lang": "zh"})])
            yield HybridVectorStore(indexer)

    def test_chunks_are_nodes_with_exact_offsets(self, chunked):
        [node] = ask(chunked, "P-31", 1).nodes
        assert self.TEXT[node.start_char_idx : node.end_char_idx] == node.text
        assert node.ref_doc_id == "手册"
        assert chunked.get_nodes([node.node_id, "手册#999", "手册#x", "nein#0"]) == [node]

    def test_ids_of_chunks_and_of_documents_constrain(self, chunked):
        [first, second] = ask(chunked, "P-31 P-7 泵", 2).ids
        assert ask(chunked, "泵", 5, node_ids=[second]).ids == [second]
        assert ask(chunked, "泵 P-7", 5, node_ids=["note#7"]).ids == ["note#7"]
        assert set(ask(chunked, "泵 P-7", 99, doc_ids=["手册"]).ids).isdisjoint({"note#7"})
        assert ask(chunked, "泵 P-7", 5, doc_ids=["note#7"]).ids == ["note#7"]
        assert ask(chunked, "泵", 5, node_ids=["nein"]).ids == ask(chunked, "泵", 5, doc_ids=[]).ids == []
        assert first != second

    def test_they_are_deleted_by_document(self, chunked):
        chunked.delete("手册")
        assert ask(chunked, "泵 P-7", 5).ids == ["note#7"]


class TestOnWhoseBehalf:
    @pytest.fixture
    def both(self, store):
        stores = {agent: store.for_agent(agent) for agent in ("甲", "乙")}
        store.add([TextNode(id_="n", text="公共 shared")])
        for agent, mine in stores.items():
            mine.add([TextNode(id_="n", text=f"{agent}的 private {agent}", relationships=SOURCE)])
        return store, stores

    def test_each_reads_shared_ones_and_its_own(self, both):
        store, stores = both
        assert [node.text for node in ask(store, "private shared 公共", 9).nodes] == ["公共 shared"]
        for agent, mine in stores.items():
            assert {node.text for node in ask(mine, "private shared 公共", 9).nodes} == {
                "公共 shared",
                f"{agent}的 private {agent}",
            }
            assert [node.text for node in mine.get_nodes(["n"])] == [f"{agent}的 private {agent}"]

    def test_async_is_on_the_same_behalf(self, both):
        store, stores = both
        query = VectorStoreQuery(query_str="private shared 公共", similarity_top_k=9, mode=VectorStoreQueryMode.HYBRID)
        for one in (store, *stores.values()):
            assert asyncio.run(one.aquery(query)) == one.query(query)
            assert asyncio.run(one.aget_nodes()) == one.get_nodes()

    @pytest.mark.parametrize(
        "deletion",
        [
            lambda store: store.clear(),
            lambda store: store.delete("手册"),
            lambda store: store.delete_nodes(["n"]),
            lambda store: store.delete_nodes(
                filters=MetadataFilters(filters=[MetadataFilter(key="doc_id", value="n")])
            ),
        ],
        ids=["clear", "delete", "by id", "by filter"],
    )
    def test_each_deletes_its_own_only(self, both, deletion):
        store, stores = both
        deletion(stores["甲"])
        assert [node.text for node in stores["甲"].get_nodes()] == ["公共 shared"]
        assert [node.text for node in stores["乙"].get_nodes(["n"])] == ["乙的 private 乙"]
        assert [node.text for node in store.get_nodes()] == ["公共 shared"]

    def test_a_claim_in_the_metadata_moves_nothing(self, both):
        store, stores = both
        for bound in (store, stores["甲"]):
            with pytest.raises(ScopeError, match="乙"):
                bound.add([TextNode(text="偷放", metadata={"agent_id": "乙"})])
        assert stores["甲"].add([TextNode(id_="mine", text="自称", metadata={"agent_id": "甲"})]) == ["mine"]

    @pytest.mark.parametrize("agent", [None, ""])
    def test_no_name_is_an_error(self, store, agent):
        with pytest.raises(ScopeError):
            store.for_agent(agent)


def test_bound_filters_hold_for_reading(indexer):
    HybridVectorStore(indexer).add([TextNode(id_=n, text=f"段落 {n}", metadata={"lang": n}) for n in ("zh", "en")])
    bound = HybridVectorStore(indexer).with_filters(only(lang="zh"))
    assert ask(bound, "段落", 9).ids == ["zh"]
    assert ask(bound, "段落", 9, filters=only(lang="en")).ids == []
    assert [node.node_id for node in bound.get_nodes()] == ["zh"]
    assert bound.get_nodes(["en"]) == []


def test_what_cannot_be_stored_is_refused_before_anything_is_written(store):
    for wrong in (["text"], [object()], [TextNode(text="x", metadata={"f": object()})], [TextNode(id_="", text="x")]):
        with pytest.raises(InvalidDocumentError):
            store.add([TextNode(id_="good", text="好"), *wrong])
    with pytest.raises(InvalidDocumentError, match="cannot be stored"):
        store.add([IndexNode(text="x", index_id="i", obj=object())])
    assert store.get_nodes() == []


def test_deleting_without_saying_what_is_an_error(store):
    with pytest.raises(UsageError):
        store.delete_nodes()


async def test_async_twins_do_the_same_and_block_nobody(store):
    assert await store.async_add(NODES[:2]) == ["text", "document"]
    _, ticks = await run_counting_ticks(lambda: store.async_add(NODES[2:4]))
    assert ticks
    assert [node.node_id for node in await store.aget_nodes(["document"])] == ["document"]
    query = VectorStoreQuery(query_str="原样", similarity_top_k=1, mode=VectorStoreQueryMode.HYBRID)
    assert (await store.aquery(query)).ids == store.query(query).ids == ["text"]
    assert (await store.aquery(VectorStoreQuery(query_str="", filters=only(n=1)))).ids == ["text"]
    await store.adelete("手册")
    await store.adelete_nodes(["node"])
    assert {node.node_id for node in store.get_nodes()} == {"document", "bare"}
    await store.aclear()
    assert store.get_nodes() == []


def test_the_other_faces_see_the_same_store(store, indexer):
    store.add([TextNode(id_="n", text="离心泵 pump", metadata={"页": 3})])
    [hit] = indexer.search("离心泵", 1)
    [document] = HybridRetriever(indexer=indexer, k=1).invoke("离心泵")
    assert hit.reference == document.id == ask(store, "离心泵", 1).ids[0] == "n"
    assert document.metadata["页"] == 3


def test_it_can_be_copied_and_not_pickled_and_shows_no_texts(store):
    store.add(NODES[:1])
    assert ask(copy.deepcopy(store), "原样", 1).ids == ["text"]
    with pytest.raises(TypeError, match="path"):
        pickle.dumps(store)
    assert "原样" not in repr(store) + str(store.model_dump())
    assert store.model_dump()["class_name"] == "AgentRAGHybridVectorStore"


class TestArgumentsOfIndexes:
    """A `VectorStoreIndex` passes arguments on that are not for the vector store; other stores ignore them."""

    def test_those_of_indexes_are_ignored(self, store):
        context = StorageContext.from_defaults(vector_store=store)
        nodes = [TextNode(id_=name, text=f"段落 {name}", relationships=SOURCE) for name in ("a", "b")]
        index = VectorStoreIndex(nodes, storage_context=context, embed_model=store.embed_model, index_id="x")
        index.insert_nodes([TextNode(id_="c", text="段落 c")], index_id="x")
        retriever = index.as_retriever(similarity_top_k=9, vector_store_kwargs={"index_id": "x"})
        assert {one.node_id for one in retriever.retrieve("段落")} == {"a", "b", "c"}
        index.delete_nodes(["a"], index_id="x")
        index.delete_ref_doc("手册", index_id="x")
        assert [node.node_id for node in store.get_nodes()] == ["c"]

    def test_typing_errors_are_not(self, store):
        query = VectorStoreQuery(query_str="x", similarity_top_k=1)
        for call in (
            lambda: store.add([TextNode(text="x")], agent_ids="a"),
            lambda: store.delete("x", ref_doc="y"),
            lambda: store.delete_nodes(["x"], filter={}),
            lambda: store.query(query, score_treshold=0.5),
            lambda: store.as_index(indexid="x"),
        ):
            with pytest.raises((UsageError, InvalidQueryError)):
                call()
        assert store.get_nodes() == []

    def test_as_index_sets_the_id(self, store):
        assert store.as_index(index_id="mine").index_id == "mine"


@pytest.mark.parametrize("mode", list(VectorStoreQueryMode)[:2])
def test_none_are_returned_where_none_are_wanted(store, mode):
    store.add(NODES[:1])
    query = VectorStoreQuery(query_str="原样", similarity_top_k=0, mode=mode)
    assert store.query(query).ids == asyncio.run(store.aquery(query)).ids == []
