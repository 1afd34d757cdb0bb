"""`HybridDocumentStore`: docstore strategies of pipelines, no search result, no second copy, one owner."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter, get_leaf_nodes
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import Document, ImageNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.llama_index import HybridDocumentStore, HybridRetriever, HybridVectorStore

SOURCE = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="手册", metadata={"版": 2})}
NODES = [
    TextNode(id_="泵/1#0", text="离心泵 pump", metadata={"页": 3, "day": dt.date(2026, 3, 1)}, relationships=SOURCE),
    TextNode(id_="n2", text="主轴过热 E1102", relationships=SOURCE, excluded_embed_metadata_keys=["a"]),
    Document(id_="手册", text="整篇 document", metadata={"title": "手册"}),
    IndexNode(id_="i", text="索引", index_id="other"),
    ImageNode(id_="image", text="图", image_url="https://example.org/a.png"),
]


@pytest.fixture
def store(indexer):
    return HybridDocumentStore(indexer)


def both(indexer):
    """The store, and LlamaIndex's own, which every step must leave in the same state."""
    return HybridDocumentStore(indexer), SimpleDocumentStore()


def state(store):
    return (
        store.docs,
        store.get_all_document_hashes(),
        {key: info.to_dict() for key, info in store.get_all_ref_doc_info().items()},
    )


STEPS = [
    lambda store: store.add_documents(NODES),
    lambda store: store.add_documents([NODES[1].model_copy(update={"text": "换了"})]),
    lambda store: store.set_document_hash("other", "hash 1"),
    lambda store: store.set_document_hashes({"other": "hash 2", "third": "hash 3"}),
    lambda store: store.add_documents([TextNode(id_="hash only", text="x")], store_text=False),
    lambda store: store.delete_document("n2"),
    lambda store: store.delete_document("泵/1#0"),
    lambda store: store.add_documents(NODES[:2]),
    lambda store: store.delete_ref_doc("手册"),
    lambda store: store.delete_ref_doc("nobody", raise_error=False),
]


def test_each_step_has_the_effect_it_has_on_llama_indexs_own(indexer):
    ours, theirs = both(indexer)
    for step in STEPS:
        step(ours)
        step(theirs)
        assert state(ours) == state(theirs)
    for wrong in (
        lambda store: store.delete_document("nobody"),
        lambda store: store.delete_ref_doc("nobody"),
        lambda store: store.get_document("nobody"),
        lambda store: store.add_documents([NODES[3]], allow_update=False),
    ):
        for store in (ours, theirs):
            with pytest.raises(ValueError, match=r"not found|already exists"):
                wrong(store)


def test_async_twins_do_the_same(indexer):
    async def run(store):
        await store.async_add_documents(NODES)
        await store.aset_document_hashes({"other": "h"})
        assert await store.aget_document_hash("other") == "h"
        assert (await store.aget_document("n2")) == NODES[1]
        assert await store.adocument_exists("i")
        await store.adelete_document("i")
        await store.adelete_ref_doc("手册")
        with pytest.raises(ValueError, match="not found"):
            await store.adelete_ref_doc("手册")

    ours, theirs = both(indexer)
    for store in (ours, theirs):
        asyncio.run(run(store))
    # upstream's asynchronous deletion leaves what its synchronous one deletes, so only the nodes are compared
    assert ours.docs == {"image": NODES[4]} == {k: v for k, v in theirs.docs.items() if k != "手册"}


def test_it_survives_a_restart(tmp_path):
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        HybridDocumentStore(indexer).add_documents(NODES)
        before = state(HybridDocumentStore(indexer))
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        assert state(HybridDocumentStore(indexer)) == before
        assert HybridDocumentStore(indexer).docs == {node.node_id: node for node in NODES}
        assert HybridDocumentStore(indexer, namespace="other/data").docs == {}
        assert not indexer.verify().problems


class TestPipelines:
    def pipeline(self, indexer, strategy, agent=None):
        vectors, documents = HybridVectorStore(indexer, agent_id=agent), HybridDocumentStore(indexer, agent_id=agent)
        splitter = SentenceSplitter(chunk_size=60, chunk_overlap=0)
        return IngestionPipeline(
            transformations=[splitter, vectors.embed_model],
            vector_store=vectors,
            docstore=documents,
            docstore_strategy=strategy,
        )

    @staticmethod
    def documents(count=3):
        text = "离心泵需要维护。The pump needs service. " * 9
        return [Document(id_=f"d{n}", text=f"文档 {n}。{text}", metadata={"title": f"手册 {n}"}) for n in range(count)]

    @staticmethod
    def run(pipeline, documents, use_async):
        run = asyncio.run(pipeline.arun(documents=documents)) if use_async else pipeline.run(documents=documents)
        return {node.ref_doc_id for node in run}

    @pytest.mark.parametrize("use_async", [False, True])
    @pytest.mark.parametrize(
        ("strategy", "sources"),
        [
            (DocstoreStrategy.UPSERTS, {"d0", "d1", "d2"}),
            (DocstoreStrategy.DUPLICATES_ONLY, {"d0", "d1", "d2"}),
            (DocstoreStrategy.UPSERTS_AND_DELETE, {"d0", "d1"}),
        ],
    )
    def test_what_is_unchanged_is_left_out_and_what_is_gone_goes(self, indexer, strategy, sources, use_async):
        pipeline, documents = self.pipeline(indexer, strategy), self.documents()
        assert self.run(pipeline, documents, use_async) == {"d0", "d1", "d2"}
        assert self.run(pipeline, documents, use_async) == set()
        changed = [documents[0], documents[1].model_copy(update={"text_resource": Document(text="新的").text_resource})]
        assert self.run(pipeline, changed, use_async) == {"d1"}
        assert {node.ref_doc_id for node in pipeline.vector_store.get_nodes()} == sources
        if strategy is not DocstoreStrategy.DUPLICATES_ONLY:  # which keeps the nodes of earlier versions
            [node] = [node for node in pipeline.vector_store.get_nodes() if node.ref_doc_id == "d1"]
            assert node.get_content() == "新的"
        assert set(pipeline.docstore.docs) == sources

    def test_a_new_process_goes_on_where_the_last_ended(self, tmp_path):
        for expected in ({"d0", "d1", "d2"}, set()):
            with DualIndexer(tmp_path / "s", "hash") as indexer:
                pipeline = self.pipeline(indexer, DocstoreStrategy.UPSERTS)
                assert self.run(pipeline, self.documents(), use_async=False) == expected

    def test_no_search_and_no_listing_finds_its_records(self, indexer):
        pipeline = self.pipeline(indexer, DocstoreStrategy.UPSERTS)
        pipeline.run(documents=self.documents())
        store = pipeline.vector_store
        nodes = {node.node_id for node in store.get_nodes()}
        assert {node.ref_doc_id for node in store.get_nodes()} == {"d0", "d1", "d2"}
        for mode in ("hybrid", "vector", "keyword"):
            assert {hit.reference for hit in indexer.search("手册 离心泵", 99, mode=mode)} <= nodes
        other = MetadataFilters(filters=[MetadataFilter(key="title", value="手册 0", operator="!=")])
        assert {node.ref_doc_id for node in store.get_nodes(filters=other)} == {"d1", "d2"}
        store.delete_nodes(filters=other)
        assert set(pipeline.docstore.docs) == {"d0", "d1", "d2"}
        with pytest.raises(UsageError):
            store.delete_nodes(filters=MetadataFilters(filters=[]))

    def test_agents_have_stores_of_their_own(self, indexer):
        for agent in (None, "甲", "乙"):
            pipeline = self.pipeline(indexer, DocstoreStrategy.UPSERTS_AND_DELETE, agent)
            assert self.run(pipeline, self.documents(2), use_async=False) == {"d0", "d1"}
        for agent in ("甲", "乙"):
            documents = HybridDocumentStore(indexer).for_agent(agent)
            assert set(documents.docs) == {"d0", "d1"}
        HybridDocumentStore(indexer, agent_id="甲").delete_document("d0")
        HybridDocumentStore(indexer, agent_id="甲").add_documents([TextNode(id_="own", text="甲的口令")])
        assert set(HybridDocumentStore(indexer, agent_id="乙").docs) == {"d0", "d1"}
        assert set(HybridDocumentStore(indexer).docs) == {"d0", "d1"}
        indexer.forget_agent("甲")
        assert HybridDocumentStore(indexer, agent_id="甲").docs == {}
        assert HybridDocumentStore(indexer, agent_id="甲").get_all_document_hashes() == {}


class TestNodesOfTheIndex:
    def test_they_are_not_stored_twice(self, tmp_path):
        text = "罕见的文字 ZQXV-77 "
        nodes = [TextNode(id_=f"n{n}", text=f"{text}{n}", metadata={"页": n}) for n in range(5)]
        with DualIndexer(tmp_path / "s", "hash") as indexer:
            HybridVectorStore(indexer).add(nodes)
            store = HybridDocumentStore(indexer)
            store.add_documents(nodes)
            assert store.docs == {node.node_id: node for node in nodes}
            records = indexer.get(filter={"_llama_index_record": {"$exists": True}})
            assert len(records) == 10
            assert not any("ZQXV-77" in str(record.metadata) for record in records)
            HybridVectorStore(indexer).delete_nodes(["n0"])
            assert store.get_document("n0", raise_error=False) is None

    def test_those_of_others_are_no_source(self, indexer):
        HybridVectorStore(indexer).add([NODES[1]])
        store = HybridDocumentStore(indexer, agent_id="甲")
        store.add_documents([NODES[1]])
        HybridVectorStore(indexer).clear()
        assert store.docs == {"n2": NODES[1]}

    def test_another_version_is_stored(self, indexer):
        HybridVectorStore(indexer).add([NODES[1]])
        store = HybridDocumentStore(indexer)
        other = NODES[1].model_copy(update={"text": "另一个版本"})
        store.add_documents([other])
        assert store.get_document("n2") == other


def test_parents_are_merged_from_it(indexer):
    text = "离心泵的维护周期是一年。" * 3 + "The pump alarm E1102 means overheating of the spindle. " * 3
    nodes = HierarchicalNodeParser.from_defaults(chunk_sizes=[256, 64]).get_nodes_from_documents([Document(text=text)])
    vectors, documents = HybridVectorStore(indexer), HybridDocumentStore(indexer)
    documents.add_documents(nodes)
    context = StorageContext.from_defaults(vector_store=vectors, docstore=documents)
    index = VectorStoreIndex(get_leaf_nodes(nodes), storage_context=context, embed_model=vectors.embed_model)
    merging = AutoMergingRetriever(index.as_retriever(similarity_top_k=9), context, simple_ratio_thresh=0.1)
    [merged] = merging.retrieve("离心泵 pump")
    assert merged.node_id in {node.node_id for node in nodes} - {node.node_id for node in get_leaf_nodes(nodes)}


def test_a_retriever_is_made_from_it(indexer):
    store = HybridDocumentStore(indexer)
    store.add_documents(NODES[:2])
    retriever = HybridRetriever.from_defaults(docstore=store, embeddings="hash", similarity_top_k=1)
    assert [one.node_id for one in retriever.retrieve("E1102")] == ["n2"]


@pytest.mark.parametrize("agent", ["", 7])
def test_an_agent_that_is_none_is_refused(indexer, agent):
    with pytest.raises(ScopeError):
        HybridDocumentStore(indexer, agent_id=agent)
    with pytest.raises(UsageError, match="open store"):
        HybridDocumentStore("path")
