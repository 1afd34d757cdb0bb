"""The metadata of a node is text for both indexes, as `MetadataMode.EMBED` shows it, and is not shown."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import Document, ImageNode, IndexNode, MediaResource, MetadataMode, Node, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from langchain_agentrag import Chunking, DualIndexer, SourceDocument
from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore
from tests.fakes import RecordingEmbeddings

FILLER = [TextNode(id_=f"f{n}", text=f"段落 {n} about pumps 水泵", metadata={"book": f"Volume {n}"}) for n in range(20)]
BOOKS = [
    ({"book": "Harry Potter"}, "A boy wizard.", "Harry Potter"),
    ({"书名": "哈利·波特与魔法石"}, "一个少年巫师。", "哈利波特"),
    ({"document_title": "泵站 Pump Station 手册"}, "每年一次。", "pump station 泵站"),
    ({"excerpt_keywords": ["E1102", "主轴过热"]}, "清洁滤网后重启。", "E1102"),
]
KINDS = [
    lambda text, metadata: TextNode(id_="n", text=text, metadata=metadata),
    lambda text, metadata: Document(id_="n", text=text, metadata=metadata),
    lambda text, metadata: Node(id_="n", text_resource=MediaResource(text=text), metadata=metadata),
    lambda text, metadata: IndexNode(id_="n", text=text, metadata=metadata, index_id="i"),
    lambda text, metadata: ImageNode(id_="n", text=text, metadata=metadata, image_url="https://example.org/a.png"),
]


def ids(store, question, mode, k=1):
    query = VectorStoreQuery(query_str=question, similarity_top_k=k, mode=VectorStoreQueryMode(mode))
    return store.query(query).ids


@pytest.mark.parametrize(("metadata", "text", "question"), BOOKS)
@pytest.mark.parametrize("mode", ["sparse", "default", "hybrid"])
def test_a_node_is_found_by_its_metadata_in_each_index(indexer, metadata, text, question, mode):
    store = HybridVectorStore(indexer)
    store.add([*FILLER, TextNode(id_="n", text=text, metadata=metadata)])
    assert ids(store, question, mode) == ["n"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_node_is(indexer, kind):
    store = HybridVectorStore(indexer)
    store.add([*FILLER, kind("A boy wizard.", {"book": "Harry Potter"})])
    for mode in ("sparse", "default"):
        assert ids(store, "Harry Potter", mode) == ["n"]


@pytest.mark.parametrize(("metadata", "text", "question"), BOOKS)
def test_neither_text_nor_place_nor_metadata_changes(indexer, metadata, text, question):
    node = TextNode(id_="n", text=text, metadata=metadata)
    HybridVectorStore(indexer).add([*FILLER, node])
    [hit] = indexer.search(question, 1)
    assert (hit.text, hit.start, hit.end, hit.whole) == (text, 0, len(text), True)
    [found] = HybridRetriever(indexer, 1, explain=False).retrieve(question)
    assert found.node == node
    assert HybridVectorStore(indexer).get_nodes(["n"]) == [node]


@pytest.mark.parametrize("mode", ["sparse", "hybrid"])
def test_words_are_indexed_where_the_embedding_is_given_and_kept(tmp_path, mode):
    model = RecordingEmbeddings(dim=4)
    with DualIndexer(tmp_path / "s", model) as indexer:
        store = HybridVectorStore(indexer)
        others = [TextNode(id_=f"o{n}", text=f"other {n}", embedding=[0.0, 1, 0, 0]) for n in range(5)]
        given = TextNode(text="A boy wizard.", id_="n", metadata={"book": "Harry Potter"}, embedding=[1.0, 0, 0, 0])
        store.add([*others, given])
        query = VectorStoreQuery(
            [0.0, 0, 0, 1], 1, query_str="Harry Potter", mode=VectorStoreQueryMode(mode)
        )  # of no node's direction: only words can find it
        assert store.query(query).ids == ["n"]
        assert store.query(VectorStoreQuery([1.0, 0, 0, 0], 1)).ids == ["n"]
        assert not any("wizard" in text for text in model.texts)


def test_metadata_found_by_word_alone_is_evidence(tmp_path):
    with DualIndexer(tmp_path / "s", RecordingEmbeddings(dim=4)) as indexer:
        store = HybridVectorStore(indexer)
        store.add(
            [
                TextNode(
                    id_=f"n{n}", text=f"passage {n}", metadata={"书名": f"第{n}卷 volume-{n}"}, embedding=[1.0, 0, 0, 0]
                )
                for n in range(9)
            ]
        )
        [first, *_] = indexer.search("volume-7", 3, vector=[0.0, 0, 0, 1])
        assert first.doc_id == "n7"
        assert first.explanation.keyword.score > 0


def test_excluded_keys_are_in_neither_index(indexer):
    store = HybridVectorStore(indexer)
    node = TextNode(
        id_="n",
        text="A boy wizard.",
        metadata={"book": "Harry Potter", "秘密": "zxqv 芝麻开门"},
        excluded_embed_metadata_keys=["秘密"],
        excluded_llm_metadata_keys=["book"],
    )
    store.add([*FILLER, node])
    assert ids(store, "Harry Potter", "sparse") == ["n"]
    for question in ("zxqv", "芝麻开门"):
        assert ids(store, question, "sparse", 9) == []


def test_the_templates_of_the_node_are_used(tmp_path):
    model = RecordingEmbeddings(dim=4)
    with DualIndexer(tmp_path / "s", model) as indexer:
        node = TextNode(
            text="A boy wizard.",
            metadata={"book": "Harry Potter", "year": 1997},
            metadata_template="{key}={value}",
            metadata_separator="; ",
            text_template="About {metadata_str}\n{content}",
        )
        HybridVectorStore(indexer).add([node])
        assert model.texts[-1] == "About book=Harry Potter; year=1997\nA boy wizard."
        assert model.texts[-1] == node.get_content(MetadataMode.EMBED)
        bare = TextNode(text="没有元数据", text_template="About {metadata_str}\n{content}")
        HybridVectorStore(indexer).add([bare])
        assert model.texts[-1] == "没有元数据"


def test_a_change_of_metadata_or_exclusion_is_indexed_anew(indexer):
    store = HybridVectorStore(indexer)
    node = TextNode(id_="n", text="A boy wizard.", metadata={"book": "Harry Potter"})
    store.add([*FILLER, node])
    store.add([node.model_copy(update={"metadata": {"book": "Frodo"}})])
    assert (ids(store, "Harry Potter", "sparse"), ids(store, "Frodo", "sparse")) == ([], ["n"])
    store.add([node.model_copy(update={"excluded_embed_metadata_keys": ["book"]})])
    assert ids(store, "Harry Potter", "sparse") == []


def test_an_index_over_the_store_finds_them_too(indexer):
    store = HybridVectorStore(indexer)
    context = StorageContext.from_defaults(vector_store=store)
    documents = [Document(text=text, metadata=metadata) for metadata, text, _ in BOOKS]
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=store.embed_model)
    for metadata, text, question in BOOKS:
        for mode in ("default", "sparse", "hybrid"):
            retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode=mode)
            for [found] in (retriever.retrieve(question), asyncio.run(retriever.aretrieve(question))):
                assert (found.text, found.metadata) == (text, metadata)


class TestContextOfDocuments:
    def test_every_chunk_is_found_by_it_and_no_chunk_shows_it(self, tmp_path):
        text = "".join(f"第{n}条：泵 P-{n} 的说明。\n\n" for n in range(40))
        with DualIndexer(tmp_path / "s", "hash", chunking=Chunking(size=40)) as indexer:
            indexer.index_documents([SourceDocument("手册", text, context="Station Nine 九号泵站")])
            indexer.index_documents([f"别的文档 {n}" for n in range(9)])
            hits = indexer.search("Station Nine", 99, mode="keyword")
            assert len(hits) > 5
            for hit in hits:
                assert text[hit.start : hit.end] == hit.text
                assert hit.context == "Station Nine 九号泵站"
                assert hit.locator["line"] > 0
            assert indexer.get(["手册"])[0].text == text
            assert not indexer.verify().problems

    def test_a_long_one_is_shortened_in_chunks(self, tmp_path):
        with DualIndexer(tmp_path / "s", "hash", chunking=Chunking(size=40)) as indexer:
            indexer.index_documents([SourceDocument("d", "一句话。" * 100, context="很长" * 1000)])
            assert all(len(hit.context) <= 80 for hit in indexer.search("一句话", 99))

    def test_it_is_part_of_what_is_unchanged(self, indexer):
        first, second = (SourceDocument("d", "text", context=context) for context in ("甲", "乙"))
        assert indexer.index_documents([first]).added == 1
        assert indexer.index_documents([first]).unchanged == 1
        assert indexer.index_documents([second]).updated == 1
