"""What LlamaIndex builds on a vector store or a retriever works on ours: one test each."""

from __future__ import annotations

import asyncio
import json

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.indices.vector_store.retrievers import VectorIndexAutoRetriever
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.llms import MockLLM
from llama_index.core.memory import Memory, VectorMemoryBlock
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter, get_leaf_nodes
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine
from llama_index.core.retrievers import AutoMergingRetriever, QueryFusionRetriever
from llama_index.core.schema import Document, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    MetadataInfo,
    VectorStoreInfo,
    VectorStoreQueryMode,
)

from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore, chinese_sentence_splitter

MANUAL = Document(id_="手册", text="主轴过热报警 E1102：清洁滤网后重启。", metadata={"lang": "zh", "year": 2025})
NOTES = Document(id_="notes", text="The pump P-7 was repaired in March.", metadata={"lang": "en", "year": 2026})


@pytest.fixture
def store(indexer):
    return HybridVectorStore(indexer)


def texts(nodes) -> list[str]:
    return [one.node.get_content() for one in nodes]


class TestVectorStoreIndex:
    def test_from_documents_then_insert_update_delete(self, store):
        context = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex.from_documents([MANUAL], storage_context=context, embed_model=store.embed_model)
        index.insert(NOTES)
        retriever = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=1)
        assert texts(retriever.retrieve("P-7")) == [NOTES.text]
        index.update_ref_doc(Document(id_="notes", text="The pump P-8 was sold."))
        assert [node.text for node in store.get_nodes() if node.ref_doc_id == "notes"] == ["The pump P-8 was sold."]
        index.delete_ref_doc("notes")
        assert [node.ref_doc_id for node in store.get_nodes()] == ["手册"]

    def test_retriever_options_reach_the_store(self, store):
        index = store.as_index()
        for document in (MANUAL, NOTES):
            index.insert(document)

        def ask(query, **options):
            return texts(index.as_retriever(similarity_top_k=2, **options).retrieve(query))

        english = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
        assert ask("主轴 E1102", filters=english, vector_store_query_mode="hybrid") == [NOTES.text]
        assert ask("主轴 E1102", doc_ids=["notes"]) == [NOTES.text]
        assert ask("E1102", vector_store_query_mode="sparse") == [MANUAL.text]
        assert ask("E1102", vector_store_query_mode="hybrid", alpha=0.0, sparse_top_k=1, hybrid_top_k=1) == [
            MANUAL.text
        ]
        assert len(ask("E1102", vector_store_query_mode="mmr", vector_store_kwargs={"mmr_threshold": 0.2})) == 2
        assert ask("E1102", vector_store_query_mode="hybrid", vector_store_kwargs={"score_threshold": 0.1}) == [
            MANUAL.text
        ]

    @pytest.mark.parametrize("mode", ["default", "hybrid", "sparse", "mmr"])
    def test_async_finds_what_sync_finds(self, store, mode):
        index = store.as_index()
        asyncio.run(index.ainsert(MANUAL))
        retriever = index.as_retriever(vector_store_query_mode=mode)
        assert texts(asyncio.run(retriever.aretrieve("E1102"))) == texts(retriever.retrieve("E1102")) == [MANUAL.text]

    def test_its_query_engine_answers(self, store):
        index = store.as_index()
        index.insert(MANUAL)
        response = index.as_query_engine(llm=MockLLM(), vector_store_query_mode="hybrid").query("E1102 怎么办")
        assert MANUAL.text in str(response)
        assert response.source_nodes[0].node.ref_doc_id == "手册"

    def test_an_agents_index_is_the_agents(self, store):
        index = store.for_agent("甲").as_index()
        index.insert(MANUAL)
        assert texts(index.as_retriever(vector_store_query_mode="hybrid").retrieve("E1102")) == [MANUAL.text]
        assert store.as_index().as_retriever(vector_store_query_mode="hybrid").retrieve("E1102") == []


class TestIngestionPipeline:
    def make(self, store, strategy, docstore):
        return IngestionPipeline(
            transformations=[
                SentenceSplitter(
                    chunk_size=40,
                    chunk_overlap=0,
                    include_metadata=False,
                    chunking_tokenizer_fn=chinese_sentence_splitter,
                    id_func=lambda i, doc: f"{doc.node_id}/{i}",
                ),
                store.embed_model,
            ],
            vector_store=store,
            docstore=docstore,
            docstore_strategy=strategy,
            disable_cache=True,
        )

    def chunks(self, store):
        return sorted((node.ref_doc_id, node.text) for node in store.get_nodes())

    def test_upserts_replace_every_chunk_of_a_changed_document(self, store):
        pipeline = self.make(store, DocstoreStrategy.UPSERTS, SimpleDocumentStore())
        long = "第一句说的是泵的维护周期与保养方法。第二句说的是阀门的检查步骤与更换。第三句说的是滤网。" * 2
        pipeline.run(documents=[Document(id_="d", text=long), MANUAL])
        before = self.chunks(store)
        assert len([ref for ref, _ in before if ref == "d"]) > 2
        assert "".join(text for ref, text in sorted(before, key=str) if ref == "手册") == MANUAL.text
        pipeline.run(documents=[Document(id_="d", text="短了。"), MANUAL])
        assert self.chunks(store) == [("d", "短了。"), ("手册", MANUAL.text)]
        pipeline.run(documents=[Document(id_="d", text="短了。"), MANUAL])
        assert self.chunks(store) == [("d", "短了。"), ("手册", MANUAL.text)]

    def test_upserts_and_delete_remove_what_is_gone(self, store):
        pipeline = self.make(store, DocstoreStrategy.UPSERTS_AND_DELETE, SimpleDocumentStore())
        pipeline.run(documents=[MANUAL, NOTES])
        pipeline.run(documents=[NOTES])
        assert {ref for ref, _ in self.chunks(store)} == {"notes"}

    def test_arun_does_the_same(self, store):
        pipeline = self.make(store, DocstoreStrategy.UPSERTS, SimpleDocumentStore())
        asyncio.run(pipeline.arun(documents=[MANUAL, NOTES]))
        assert {ref for ref, _ in self.chunks(store)} == {"手册", "notes"}


class FixedAnswerLLM(MockLLM):
    """Returns a fixed answer."""

    answer: str = ""

    def complete(self, prompt, formatted=False, **kwargs):
        return super().complete(self.answer, formatted=formatted, **kwargs)


class TestAutoRetriever:
    INFO = VectorStoreInfo(
        content_info="manuals",
        metadata_info=[
            MetadataInfo(name="lang", type="str", description="language"),
            MetadataInfo(name="year", type="int", description="year"),
        ],
    )

    def make(self, store, spec, **options):
        index = store.as_index()
        for document in (MANUAL, NOTES):
            index.insert(document)
        llm = FixedAnswerLLM()
        llm.answer = json.dumps(spec)
        return VectorIndexAutoRetriever(
            index,
            self.INFO,
            llm=llm,
            vector_store_query_mode=VectorStoreQueryMode.HYBRID,
            similarity_top_k=5,
            **options,
        )

    def test_the_models_filters_are_obeyed(self, store):
        spec = {"query": "E1102", "filters": [{"key": "year", "value": 2026, "operator": ">="}], "top_k": 3}
        assert texts(self.make(store, spec).retrieve("E1102 of 2026")) == [NOTES.text]

    def test_a_question_that_is_all_filter_lists_what_it_keeps(self, store):
        spec = {"query": "", "filters": [{"key": "lang", "value": "zh", "operator": "=="}]}
        assert texts(self.make(store, spec).retrieve("everything in Chinese")) == [MANUAL.text]

    def test_the_model_cannot_leave_the_agents_scope(self, store):
        store.for_agent("乙").add([TextNode(text="乙的秘密 E1102")])
        spec = {"query": "E1102", "filters": [{"key": "agent_id", "value": "乙", "operator": "=="}]}
        assert self.make(store.for_agent("甲"), spec).retrieve("乙's E1102") == []


class TestMemory:
    def test_vector_memory_block_recalls_by_both_indexes(self, store):
        block = VectorMemoryBlock(
            vector_store=store,
            embed_model=store.embed_model,
            query_kwargs={"mode": VectorStoreQueryMode.HYBRID},
            retrieval_context_window=2,
        )
        memory = Memory.from_defaults(session_id="s", token_limit=60, token_flush_size=10, memory_blocks=[block])

        async def talk():
            for n in range(8):
                code = "E1102" if n == 0 else f"无关 {n}"
                await memory.aput(ChatMessage(role="user", content=f"第{n}条：{code} 的事情已经处理好了"))
                await memory.aput(ChatMessage(role="assistant", content="好的，我记住了"))
            return await memory.aget(input="E1102 怎么样了")

        assert "E1102 的事情" in asyncio.run(talk())[0].content


class TestChatEngines:
    @pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
    def test_they_answer_from_our_retriever(self, indexer, kind):
        indexer.index_documents([MANUAL])
        engine = kind.from_defaults(retriever=HybridRetriever(indexer, 1), llm=MockLLM())
        response = engine.chat("E1102 怎么办")
        assert response.source_nodes[0].node_id == "手册"
        assert MANUAL.text in str(response)
        assert "agentrag" not in str(response)

    def test_the_indexs_own(self, store):
        index = store.as_index()
        index.insert(MANUAL)
        engine = index.as_chat_engine(chat_mode="context", llm=MockLLM(), vector_store_query_mode="hybrid")
        assert MANUAL.text in str(engine.chat("E1102 怎么办"))


class TestWrappersOfRetrievers:
    def test_citation_query_engine(self, store):
        index = store.as_index()
        index.insert(MANUAL)
        engine = CitationQueryEngine.from_args(index, retriever=HybridRetriever(store.client, 1), llm=MockLLM())
        response = engine.query("E1102 怎么办")
        assert "Source 1:" in response.source_nodes[0].node.get_content()

    def test_query_fusion_fuses_a_node_found_by_several_queries(self, indexer):
        indexer.index_documents([MANUAL, NOTES])
        ours = HybridRetriever(indexer, 2)
        fused = QueryFusionRetriever([ours, ours.with_options(mode="keyword")], llm=MockLLM(), mode="reciprocal_rerank", num_queries=1, use_async=False, similarity_top_k=5)  # fmt: skip
        nodes = fused.retrieve("E1102")
        assert [one.node_id for one in nodes] == ["手册"]
        assert nodes[0].score == pytest.approx(2 / 60)

    def test_auto_merging_returns_the_parent(self, store):
        parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[256, 48], include_metadata=False)
        nodes = parser.get_nodes_from_documents([Document(id_="d", text="泵 P-7 的维护周期是三十天，请按时检查。" * 8)])
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes)
        context = StorageContext.from_defaults(vector_store=store, docstore=docstore)
        store.add(get_leaf_nodes(nodes))
        merging = AutoMergingRetriever(HybridRetriever(store.client, 12), context, simple_ratio_thresh=0.3)
        assert any(one.node.child_nodes for one in merging.retrieve("P-7 维护周期"))

    def test_evaluation_by_ids(self, indexer):
        indexer.index_documents([MANUAL, NOTES])
        evaluator = RetrieverEvaluator.from_metric_names(["mrr", "hit_rate"], retriever=HybridRetriever(indexer, 2))
        assert evaluator.evaluate("E1102", ["手册"]).metric_vals_dict == {"mrr": 1.0, "hit_rate": 1.0}

    def test_upstreams_query_engine_with_every_mode(self, indexer):
        indexer.index_documents([MANUAL])
        for mode in ("refine", "compact", "tree_summarize", "accumulate", "generation"):
            engine = RetrieverQueryEngine.from_args(HybridRetriever(indexer, 1), llm=MockLLM(), response_mode=mode)
            assert engine.query("E1102").source_nodes[0].node_id == "手册"
