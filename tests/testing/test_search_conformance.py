"""Our ways to search pass `SearchConformance`, and wrappers with a fault do not."""

from __future__ import annotations

import tempfile

import pytest
from langchain_core.documents import Document
from llama_index.core.schema import TextNode

from langchain_agentrag import Chunking, DualIndexer, HybridRetriever, HybridVectorStore, SearchTool
from langchain_agentrag import llama_index as li
from langchain_agentrag.testing.search import SearchConformance


class Engine(SearchConformance):
    """`DualIndexer` itself; others replace what they wrap."""

    @pytest.fixture(autouse=True)
    def _store(self, tmp_path):
        with DualIndexer(tmp_path / "store", "hash", chunking=Chunking(size=2_000), result_cache=60) as self.indexer:
            yield

    def index(self, documents, agent_id):
        self.indexer.index_documents(documents, agent_id)

    def search(self, query, k, agent_id, where=None):
        return [(hit.doc_id, hit.text) for hit in self.indexer.search(query, k, agent_id=agent_id, filter=where)]

    def delete(self, doc_ids, agent_id):
        self.indexer.delete(doc_ids, agent_id=agent_id)


class TestDualIndexer(Engine):
    pass


class TestAgentView(Engine):
    def search(self, query, k, agent_id, where=None):
        if agent_id is None:
            return super().search(query, k, None, where)
        return [(hit.doc_id, hit.text) for hit in self.indexer.for_agent(agent_id).search(query, k, filter=where)]


class TestHybridRetriever(Engine):
    def search(self, query, k, agent_id, where=None):
        retriever = HybridRetriever(indexer=self.indexer, agent_id=agent_id, k=k, filter=where)
        return [(document.metadata["doc_id"], document.page_content) for document in retriever.invoke(query)]


class TestHybridVectorStore(Engine):
    def store(self, agent_id):
        store = HybridVectorStore(self.indexer)
        return store if agent_id is None else store.for_agent(agent_id)

    def index(self, documents, agent_id):
        self.store(agent_id).add_documents(
            [Document(d.text, id=d.doc_id, metadata=dict(d.metadata)) for d in documents]
        )

    def search(self, query, k, agent_id, where=None):
        found = self.store(agent_id).similarity_search(query, k=k, filter=where)
        return [(document.id, document.page_content) for document in found]

    def delete(self, doc_ids, agent_id):
        self.store(agent_id).delete(list(doc_ids))


class TestSearchTool(Engine):
    def search(self, query, k, agent_id, where=None):
        tool = SearchTool(indexer=self.indexer, agent_id=agent_id, filter=where)
        message = tool.invoke({"name": "search", "args": {"query": query, "k": k}, "id": "1", "type": "tool_call"})
        return [(record["doc_id"], record["text"]) for record in message.artifact]


class TestLlamaIndexRetriever(Engine):
    def search(self, query, k, agent_id, where=None):
        retriever = li.HybridRetriever(self.indexer, k, agent_id=agent_id, filters=where)
        nodes = [found.node for found in retriever.retrieve(query)]
        assert all(isinstance(node, TextNode) for node in nodes)
        return [(node.metadata["agentrag"]["doc_id"], node.text) for node in nodes]


# -- faults -----------------------------------------------------------------------------------------------------------


class Faulty(Engine):
    """A wrapper over a store in a folder of its own, usable without pytest."""

    def __init__(self):
        self.indexer = DualIndexer(tempfile.mkdtemp(), "hash", chunking=Chunking(size=2_000))


class SeesEveryAgent(Faulty):
    def search(self, query, k, agent_id, where=None):
        agents = {agent_id, "lina", "otto"} - {None}
        found = [hit for agent in sorted(agents) for hit in super(Faulty, self).search(query, k, agent, where)]
        return list(dict.fromkeys(found))[:k]


class IgnoresTheAgent(Faulty):
    def search(self, query, k, agent_id, where=None):
        return super().search(query, k, None, where)


class IgnoresFilters(Faulty):
    def search(self, query, k, agent_id, where=None):
        return super().search(query, k, agent_id)


class FiltersAfterTheLimit(Faulty):
    def search(self, query, k, agent_id, where=None):
        allowed = set(super().search(query, 500, agent_id, where))
        return [hit for hit in super(Faulty, self).search(query, k, agent_id) if hit in allowed]


class StripsText(Faulty):
    def search(self, query, k, agent_id, where=None):
        return [(doc_id, " ".join(text.split())) for doc_id, text in super().search(query, k, agent_id, where)]


class RemembersResults(Faulty):
    def search(self, query, k, agent_id, where=None):
        self.seen = getattr(self, "seen", {})
        return self.seen.setdefault((query, k, agent_id, repr(where)), super().search(query, k, agent_id, where))


class DeletesShared(Faulty):
    def delete(self, doc_ids, agent_id):
        super().delete(doc_ids, agent_id)
        super().delete(doc_ids, None)


class DeletesNothing(Faulty):
    def delete(self, doc_ids, agent_id):
        pass


class SharesWhatItIndexes(Faulty):
    def index(self, documents, agent_id):
        super().index(documents, None)


class OneTooMany(Faulty):
    def search(self, query, k, agent_id, where=None):
        return super().search(query, k + 1, agent_id, where)


class WordsOnlyInLatin(Faulty):
    def search(self, query, k, agent_id, where=None):
        latin = "".join(char for char in query if char.isascii())
        return super().search(latin, k, agent_id, where)


CAUGHT_BY = {
    SeesEveryAgent: "an_agent_sees_shared_documents_and_its_own_and_no_others",
    IgnoresTheAgent: "an_agent_sees_shared_documents_and_its_own_and_no_others",
    IgnoresFilters: "filters_keep_what_filters_match_keeps",
    FiltersAfterTheLimit: "a_filter_is_applied_before_the_limit",
    StripsText: "passages_are_exact_slices_of_their_documents",
    RemembersResults: "deleted_documents_are_gone_at_once",
    DeletesShared: "an_agent_deletes_neither_shared_documents_nor_anothers",
    DeletesNothing: "deleted_documents_are_gone_at_once",
    SharesWhatItIndexes: "equal_ids_and_texts_of_two_agents_are_apart",
    OneTooMany: "never_more_than_k_and_never_fewer_when_there_are",
    WordsOnlyInLatin: "chinese_english_and_mixed_text_are_found",
}


@pytest.mark.parametrize("wrapper", CAUGHT_BY, ids=lambda kind: kind.__name__)
def test_a_wrapper_with_a_fault_is_caught(wrapper):
    instance = wrapper()
    try:
        check = getattr(instance, f"test_{CAUGHT_BY[wrapper]}")
        with pytest.raises(AssertionError):
            check()
    finally:
        instance.indexer.close()


def test_a_wrapper_without_filters_is_held_to_the_rest():
    class NoFilters(IgnoresFilters):
        filters = False

    for name in [name for name in vars(SearchConformance) if name.startswith("test_")]:
        instance = NoFilters()
        try:
            getattr(instance, name)()
        finally:
            instance.indexer.close()
