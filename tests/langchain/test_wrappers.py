"""Our faces inside the wrappers that people build with, and what comes over from what they had."""

from __future__ import annotations

import pytest
from langchain_chroma import Chroma
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MergerRetriever,
    MultiQueryRetriever,
    ParentDocumentRetriever,
)
from langchain_classic.retrievers.self_query.base import SelfQueryRetriever
from langchain_classic.storage import InMemoryStore
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator, StructuredQuery
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridRetriever, HybridTranslator, HybridVectorStore
from langchain_agentrag.errors import UsageError
from tests.langchain.traps import bm25

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the wrappers' own stores stay open

CORPUS = [
    Document("主轴过热，请清洁滤网。Code E1102.", id="a", metadata={"year": 2024, "type": "alarm"}),
    Document("Spindle overheats: clean the filter.", id="b", metadata={"year": 2025, "type": "alarm"}),
    Document("年假由班组长批准。", id="c", metadata={"year": 2023, "type": "rule"}),
]


class CountingEmbeddings(Embeddings):
    def __init__(self):
        self.inner, self.embedded = HashingEmbeddings(), []

    def embed_documents(self, texts):
        self.embedded += texts
        return self.inner.embed_documents(texts)

    def embed_query(self, text):
        return self.inner.embed_query(text)


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as opened:
        opened.index_documents(CORPUS)
        opened.index_documents([Document("lina: E1102 口令 7741", id="note")], agent_id="lina")
        yield opened


@pytest.fixture
def retriever(indexer):
    return HybridRetriever(indexer=indexer, k=2)


def ids(documents):
    return [document.id for document in documents]


# -- wrappers ---------------------------------------------------------------------------------------------------------


async def test_in_an_ensemble(retriever):
    wrapper = EnsembleRetriever(retrievers=[retriever, bm25(CORPUS, k=2, preprocess_func=list)], weights=[0.6, 0.4])
    assert ids(wrapper.invoke("主轴过热"))[0] == "a"
    assert ids(await wrapper.ainvoke("主轴过热"))[0] == "a"
    keyed = EnsembleRetriever(retrievers=[retriever, retriever.for_agent("lina")], id_key="doc_id")
    assert set(ids(keyed.invoke("E1102"))) >= {"a", "note"}


async def test_in_contextual_compression(retriever):
    class First(BaseDocumentCompressor):
        def compress_documents(self, documents, query, callbacks=None):
            return documents[:1]

    wrapper = ContextualCompressionRetriever(base_compressor=First(), base_retriever=retriever)
    assert ids(wrapper.invoke("E1102 spindle", k=3)) == ids(retriever.invoke("E1102 spindle"))[:1]
    assert ids(await wrapper.ainvoke("主轴过热")) == ["a"]


async def test_in_multi_query_each_document_comes_once(indexer):
    retriever = HybridRetriever(indexer=indexer, k=2)
    model = FakeListChatModel(responses=["主轴过热\nspindle overheats\nE1102 滤网"])
    wrapper = MultiQueryRetriever.from_llm(retriever=retriever, llm=model)
    documents = wrapper.invoke("why is it hot?")
    assert sorted(ids(documents)) == sorted(set(ids(documents)))
    assert {"a", "b"} <= set(ids(documents))
    assert {"a", "b"} <= set(ids(await wrapper.ainvoke("why is it hot?")))


def test_in_a_merger(retriever):
    wrapper = MergerRetriever(retrievers=[retriever, retriever.for_agent("lina")])
    assert {"a", "note"} <= set(ids(wrapper.invoke("E1102")))


def test_under_a_parent_document_retriever(indexer):
    store = HybridVectorStore(indexer).for_agent("lina")
    splitter = RecursiveCharacterTextSplitter(chunk_size=30, chunk_overlap=0, separators=["。", ". ", " "])
    wrapper = ParentDocumentRetriever(vectorstore=store, docstore=InMemoryStore(), child_splitter=splitter)
    parents = [
        Document("第一章：润滑油位。加注三十二号导轨油至上刻线。Lubricant level.", metadata={"chapter": 1}),
        Document("Chapter two: coolant. Check the concentration weekly. 冷却液浓度。", metadata={"chapter": 2}),
    ]
    wrapper.add_documents(parents)
    assert next(document.metadata["chapter"] for document in wrapper.invoke("导轨油")) == 1
    assert next(document.metadata["chapter"] for document in wrapper.invoke("coolant concentration")) == 2


def test_under_a_self_query_retriever(indexer):
    structured = StructuredQuery(
        query="E1102 spindle",
        filter=Operation(
            operator=Operator.AND,
            arguments=[
                Comparison(comparator=Comparator.GTE, attribute="year", value=2024),
                Operation(
                    operator=Operator.NOT,
                    arguments=[Comparison(comparator=Comparator.EQ, attribute="year", value=2025)],
                ),
            ],
        ),
        limit=None,
    )
    wrapper = SelfQueryRetriever(
        vectorstore=HybridVectorStore(indexer),
        query_constructor=RunnableLambda(lambda _: structured),
        structured_query_translator=HybridTranslator(),
    )
    assert ids(wrapper.invoke("alarms of 2024")) == ["a"]


def test_a_model_may_write_the_structured_query_itself(indexer):
    from langchain_classic.chains.query_constructor.schema import AttributeInfo

    answer = '```json\n{"query": "主轴", "filter": "and(eq(\\"type\\", \\"alarm\\"), lt(\\"year\\", 2025))"}\n```'
    wrapper = SelfQueryRetriever.from_llm(
        FakeListChatModel(responses=[answer]),
        HybridVectorStore(indexer),
        "设备报警与规章 alarms and rules",
        [
            AttributeInfo(name="year", description="年份 year", type="integer"),
            AttributeInfo(name="type", description="alarm or rule", type="string"),
        ],
        structured_query_translator=HybridTranslator(),
    )
    assert ids(wrapper.invoke("2025 年以前的主轴报警")) == ["a"]


# -- migration --------------------------------------------------------------------------------------------------------


def test_from_a_bm25_retriever(tmp_path):
    old = bm25(CORPUS, k=2)
    with HybridRetriever.from_bm25_retriever(old, tmp_path / "store", embeddings="hash").indexer as indexer:
        new = HybridRetriever(indexer=indexer, k=2)
        assert ids(new.invoke("班组长批准"))[0] == "c"
    again = HybridRetriever.from_bm25_retriever(old, tmp_path / "store", embeddings="hash", search_type="keyword")
    with again.indexer:
        assert (again.k, again.search_type) == (2, "keyword")
        assert again.indexer.stats().documents == len(CORPUS)
        assert [d.metadata["year"] for d in again.invoke("spindle filter")] == [2025]


@pytest.mark.parametrize("kind", ["chroma", "memory"])
def test_from_an_ensemble_with_its_weights(tmp_path, kind):
    model = CountingEmbeddings()
    vectors = (
        Chroma("old", model, persist_directory=str(tmp_path / "chroma"))
        if kind == "chroma"
        else InMemoryVectorStore(model)
    )
    vectors.add_documents(CORPUS)
    old = EnsembleRetriever(
        retrievers=[bm25(CORPUS, k=3), vectors.as_retriever(search_kwargs={"k": 2})], weights=[0.3, 0.7]
    )
    model.embedded.clear()
    new = HybridRetriever.from_ensemble(old, tmp_path / "store")
    with new.indexer:
        assert new.weights == pytest.approx((0.7, 0.3))
        assert new.k == 3
        assert new.indexer.stats().documents == len(CORPUS)
        assert ids(new.invoke("主轴过热", k=1)) == ["a"]
        assert new.invoke("E1102", k=1)[0].metadata["year"] == 2024
    again = {document.page_content for document in CORPUS} & set(model.embedded)
    assert again == set() or kind == "memory"


def test_from_an_ensemble_of_something_else_is_an_error_that_helps(tmp_path, retriever):
    with pytest.raises(UsageError, match="index_documents"):
        HybridRetriever.from_ensemble(EnsembleRetriever(retrievers=[retriever]), tmp_path / "new")
    with pytest.raises(UsageError, match="docs"):
        HybridRetriever.from_bm25_retriever(retriever, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("agent", [None, "lina"])
def test_from_chroma_takes_texts_metadata_and_vectors_and_embeds_nothing(tmp_path, agent):
    model = CountingEmbeddings()
    old = Chroma("old", model, persist_directory=str(tmp_path / "chroma"))
    old.add_documents(CORPUS)
    model.embedded.clear()
    new = HybridVectorStore.from_chroma(old, tmp_path / "store", agent_id=agent)
    with new.indexer:
        assert not {document.page_content for document in CORPUS} & set(model.embedded)
        assert new.get_by_ids(["c", "a"]) == [CORPUS[2], CORPUS[0]]
        assert ids(new.similarity_search("主轴过热", k=1)) == ["a"]
        assert HybridVectorStore(new.indexer).similarity_search("主轴") == [] or agent is None


def test_the_community_package_is_never_imported_by_us():
    import subprocess
    import sys

    code = (
        "import sys, langchain_agentrag as a\n"
        # except LangGraph's store, and the middleware, whose base class imports LangGraph
        "for name in a.__all__: name == 'HybridStore' or name.endswith('Middleware') or getattr(a, name)\n"
        "print([n for n in sys.modules if n.startswith(('langchain_community', 'langchain_classic', 'langgraph'))])"
    )
    strict = [
        "-W",
        "error",
        "-W",
        "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning",
    ]  # LangGraph's
    done = subprocess.run([sys.executable, *strict, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
