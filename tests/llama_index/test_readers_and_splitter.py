"""Connectors as readers, and sentences of Chinese text."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.node_parser import SemanticSplitterNodeParser, SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.schema import Document, MetadataMode

from langchain_agentrag import FileSystemConnector
from langchain_agentrag.errors import ScopeError
from langchain_agentrag.llama_index import (
    ConnectorReader,
    HybridRetriever,
    HybridVectorStore,
    chinese_sentence_splitter,
)
from tests.fakes import MemoryConnector
from tests.llama_index import upstream

TALK = "今天天气很好。我们去公园吧！“真的吗？”他问。The pump v1.2.3 failed. Dr. Wang fixed it at 3.5 bar; good. 版本是 2.0。完了"
SENTENCES = [
    "今天天气很好。", "我们去公园吧！", "“真的吗？”", "他问。", "The pump v1.2.3 failed. ", "Dr. Wang fixed it at 3.5 bar; good. ",
    "版本是 2.0。", "完了",
]  # fmt: skip


class TestReaders:
    def test_files_are_read_as_documents(self, tmp_path):
        (tmp_path / "手册.md").write_text("# 报警\n\nE1102：清洁滤网。", encoding="utf-8")
        (tmp_path / "note.txt").write_text("The canteen opens at 11:30.", encoding="utf-8")
        reader = ConnectorReader(FileSystemConnector(tmp_path))
        documents = reader.load_data()
        assert {document.text for document in documents} == {
            "# 报警\n\nE1102：清洁滤网。",
            "The canteen opens at 11:30.",
        }
        assert [one.id_ for one in reader.load_data()] == [one.id_ for one in documents]
        assert asyncio.run(reader.aload_data()) == documents
        assert all("doc_id" not in one.get_content(MetadataMode.LLM) for one in documents)

    def test_title_and_file_name_are_indexed_and_details_of_the_file_are_not(self, tmp_path, indexer):
        folder = tmp_path / "docs"
        folder.mkdir()
        (folder / "泵站手册.md").write_text("每年一次。", encoding="utf-8")
        (folder / "page.html").write_text("<title>Canteen 食堂</title><p>Opens at 11:30.</p>", encoding="utf-8")
        documents = ConnectorReader(FileSystemConnector(folder)).load_data()
        for document in documents:
            shown = document.get_content(MetadataMode.EMBED) + document.get_content(MetadataMode.LLM)
            assert not any(key in shown for key in ("mtime", "size:", "encoding", str(tmp_path)))
        HybridVectorStore(indexer).add(documents)
        for question, text in (("泵站手册", "每年一次。"), ("canteen", "Opens at 11:30.")):
            assert text in HybridRetriever(indexer, 1, mode="keyword").retrieve(question)[0].get_content()

    def test_documents_are_read_one_at_a_time(self):
        read = []
        source = MemoryConnector({name: ("1", [name]) for name in ("甲", "乙", "丙")})
        items = source.items

        def watched(*args):
            for item in items(*args):
                read.append(item.key)
                yield item

        source.items = watched
        assert next(ConnectorReader(source).lazy_load_data()).text == "甲"
        assert len(read) <= 2

    def test_what_cannot_be_read_is_passed_over(self):
        source = MemoryConnector({"good": ("1", ["好的"]), "bad": ("1", OSError("坏了"))})
        assert [one.text for one in ConnectorReader(source).lazy_load_data()] == ["好的"]

    def test_an_agents_documents_stay_the_agents(self, indexer):
        [document] = ConnectorReader(MemoryConnector({"k": ("1", ["甲的"])}, agent_id=None)).load_data()
        private = document.model_copy(update={"metadata": {**document.metadata, "agent_id": "甲"}})
        store = HybridVectorStore(indexer)
        with pytest.raises(ScopeError):
            store.add([private])
        store.for_agent("甲").add([private])
        assert [one.get_content() for one in HybridRetriever(indexer, agent_id="甲").retrieve("甲的")] == ["甲的"]


class TestSplitter:
    def test_sentences_of_both_languages(self):
        assert chinese_sentence_splitter(TALK) == SENTENCES

    def test_complete_lines_are_sentences_and_wrapped_ones_are_not(self):
        assert chinese_sentence_splitter("报警代码\n\n停机\n处理") == ["报警代码\n\n", "停机\n", "处理"]
        wrapped = "The pump was repaired in March after the seal had been\nfound to leak."
        assert chinese_sentence_splitter(wrapped) == [wrapped]

    @given(st.text(alphabet=st.sampled_from('甲乙。！？…；，\n .!?a1"”’)】')) | st.text())
    def test_the_pieces_are_the_text(self, text):
        pieces = chinese_sentence_splitter(text)
        assert "".join(pieces) == text
        assert all(pieces)

    def test_as_chunking_tokenizer(self):
        text = "好的；就这样吧，我们明天再说…行吗？可以。" * 20
        splitter = SentenceSplitter(chunk_size=60, chunk_overlap=0, chunking_tokenizer_fn=chinese_sentence_splitter)
        nodes = splitter.get_nodes_from_documents([Document(text=text)])
        assert len(nodes) > 3
        assert all(node.text[-1] in "；…？。" for node in nodes)
        assert all(text[node.start_char_idx : node.end_char_idx] == node.text for node in nodes)

    def test_as_sentence_window(self):
        parser = SentenceWindowNodeParser.from_defaults(sentence_splitter=chinese_sentence_splitter, window_size=1)
        nodes = parser.get_nodes_from_documents([Document(text=TALK)])
        assert [node.text for node in nodes] == SENTENCES
        upstreams = SentenceWindowNodeParser.from_defaults().get_nodes_from_documents([Document(text="甲。乙。丙。")])
        assert len(upstreams) == 1

    def test_as_semantic_splitter(self):
        parser = SemanticSplitterNodeParser.from_defaults(
            embed_model=upstream.Hashed(),
            sentence_splitter=chinese_sentence_splitter,
            breakpoint_percentile_threshold=50,
        )
        assert len(parser.get_nodes_from_documents([Document(text=TALK)])) > 1
