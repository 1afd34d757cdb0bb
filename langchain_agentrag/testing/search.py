"""Conformance tests of what searches documents for agents, to inherit from: retrievers, vector stores, wrappers.

    class TestOurRetriever(SearchConformance):
        @pytest.fixture(autouse=True)
        def _store(self, tmp_path):
            with DualIndexer(tmp_path, "hash") as self.indexer:
                yield

        def index(self, documents, agent_id):
            self.indexer.index_documents(documents, agent_id)

        def search(self, query, k, agent_id, where=None):
            documents = OurRetriever(self.indexer, agent_id, k=k, filter=where).invoke(query)
            return [(document.metadata["doc_id"], document.page_content) for document in documents]

        def delete(self, doc_ids, agent_id):
            self.indexer.delete(doc_ids, agent_id=agent_id)

No test needs a model: `HashingEmbeddings` and any other embedding will do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar

from langchain_agentrag.filters import match
from langchain_agentrag.testing.conformance import expect, expect_equal
from langchain_agentrag.types import SourceDocument

_SUBJECT = "数据库连接超时 database connection timeout"

_TEXTS = {
    "zh": "报警 E1102：主轴过热，清洁滤网后重启。",
    "en": "Alarm E1200: the spindle is worn; replace it.",
    "mixed": "组件 v1.2.3 的 gateway-42 在周五 18:00 上线 🚀",
}
_QUERIES = {"zh": "主轴过热怎么办", "en": "worn spindle", "mixed": "gateway-42 什么时候上线"}

_METADATA: tuple[dict[str, Any], ...] = (
    {"type": "manual", "n": 1, "tags": ["x", "y"], "lang": "zh"},
    {"type": "manual", "n": 2.0, "tags": ["y"], "geo": {"lat": 1}},
    {"type": "tool_call", "n": 3, "tags": [], "geo": {"lat": 5}},
    {"type": "Manual", "n": "3", "lang": None},
    {"n": True, "when": date(2024, 5, 1)},
    {"n": -1, "when": date(2024, 5, 2), "a.b": "dotted"},
    {"type": "手册", "lang": "zh"},
    {},
)
_FILTERS: tuple[dict[str, Any], ...] = (
    {"type": "manual"},
    {"type": "手册"},
    {"type": {"$ne": "manual"}},
    {"n": 1},
    {"n": {"$gte": 1, "$lt": 3}},
    {"type": {"$in": ["manual", "手册"]}},
    {"type": {"$nin": ["manual", "手册"]}},
    {"tags": {"$contains": "y"}},
    {"lang": {"$exists": True}},
    {"lang": None},
    {"geo.lat": {"$gte": 2}},
    {"when": {"$gte": "2024-05-02"}},
    {"$or": [{"type": "tool_call"}, {"lang": "zh"}]},
    {"$and": [{"lang": "zh"}, {"$not": {"n": 1}}]},
    {"$not": {"$or": [{"type": "manual"}, {"n": {"$gt": 0}}]}},
)
_SPACED = "  第一行\t制表\r\n\n　全角空格 ｆｕｌｌ　\u200bcafe\u0301 👩‍👩‍👧 database connection\n"


class SearchConformance(ABC):
    """Conformance tests of a search for agents: isolation, filters, exact texts, deletion.

    Attributes:
        filters: Whether `search` takes filters; the tests of filters pass without a check if not.
    """

    filters: ClassVar[bool] = True

    @abstractmethod
    def index(self, documents: Sequence[SourceDocument], agent_id: str | None) -> None:
        """Add or replace documents of an agent, or shared ones for None; each test begins with nothing stored."""

    @abstractmethod
    def search(
        self, query: str, k: int, agent_id: str | None, where: Mapping[str, Any] | None = None
    ) -> list[tuple[str, str]]:
        """Return id and text of up to k passages, best first, of what an agent, or None without identity, may see."""

    @abstractmethod
    def delete(self, doc_ids: Sequence[str], agent_id: str | None) -> None:
        """Delete documents of one owner; absent ones are ignored."""

    # -- finding ------------------------------------------------------------------------------------------------------

    def test_chinese_english_and_mixed_text_are_found(self) -> None:
        """The passage that answers comes first."""
        self.index([SourceDocument(name, text) for name, text in _TEXTS.items()], None)
        for name, query in _QUERIES.items():
            expect_equal(self.search(query, 1, "lina"), [(name, _TEXTS[name])], f"the result of {query!r}")

    def test_never_more_than_k_and_never_fewer_when_there_are(self) -> None:
        """The number of results is exact when every document matches."""
        self.index([SourceDocument(f"d{n}", f"{_SUBJECT} {n}") for n in range(12)], "lina")
        for k in (1, 5, 12, 20):
            found = self.search(_SUBJECT, k, "lina")
            expect_equal(len(found), min(k, 12), f"the number of results of k={k}")
            expect_equal(len({doc_id for doc_id, _ in found}), len(found), f"the number of documents of k={k}")

    def test_passages_are_exact_slices_of_their_documents(self) -> None:
        """No character is changed, whatever its width, and long documents are cut, not rewritten."""
        texts = {
            "spaced": _SPACED,
            "long": f"{_SUBJECT}。\n\n" + "".join(f"第{n}步：检查读数 {n}。\n" for n in range(300)),
        }
        self.index([SourceDocument(name, text) for name, text in texts.items()], "lina")
        found = self.search("database connection", 10, "lina")
        expect_equal({doc_id for doc_id, _ in found}, set(texts), "the documents found")
        for doc_id, text in found:
            expect(text and text in texts[doc_id], f"{text!r} does not stand in document {doc_id!r}")

    # -- isolation ----------------------------------------------------------------------------------------------------

    def test_an_agent_sees_shared_documents_and_its_own_and_no_others(self) -> None:
        """Callers without identity see shared documents only."""
        self._index_owned()
        for agent, owned in (("lina", {"of-lina"}), ("otto", {"of-otto"}), ("lin", set()), (None, set())):
            found = {doc_id for doc_id, _ in self.search(_SUBJECT, 50, agent)}
            expect_equal(found, {"shared", *owned}, f"what {agent!r} finds")

    def test_no_filter_reaches_another_agents_documents(self) -> None:
        """A filter can only narrow what the agent sees."""
        self._index_owned()
        for where in (
            (
                {"agent_id": "otto"},
                {"agent_id": {"$ne": "lina"}},
                {"$or": [{"agent_id": "otto"}, {"agent_id": {"$exists": True}}]},
                {"doc_id": "of-otto"},
                {"$not": {"agent_id": "lina"}},
            )
            if self.filters
            else ()
        ):
            found = {doc_id for doc_id, _ in self.search(_SUBJECT, 50, "lina", where)}
            expect("of-otto" not in found, f"an agent found another's document with the filter {where!r}")

    def test_equal_ids_and_texts_of_two_agents_are_apart(self) -> None:
        """Replacing or deleting one's own document leaves the other's as it was."""
        for agent in ("lina", "otto"):
            self.index([SourceDocument("note", f"{_SUBJECT} 一 one")], agent)
        self.index([SourceDocument("note", f"{_SUBJECT} 二 two")], "otto")
        expect_equal(self.search(_SUBJECT, 5, "lina"), [("note", f"{_SUBJECT} 一 one")], "what lina finds")
        self.delete(["note"], "lina")
        expect_equal(self.search(_SUBJECT, 5, "lina"), [], "what lina finds after she deleted it")
        expect_equal(self.search(_SUBJECT, 5, "otto"), [("note", f"{_SUBJECT} 二 two")], "what otto finds")

    def test_an_agent_deletes_neither_shared_documents_nor_anothers(self) -> None:
        """A delete concerns one owner."""
        self._index_owned()
        self.delete(["shared", "of-otto", "of-lina"], "lina")
        expect_equal({doc_id for doc_id, _ in self.search(_SUBJECT, 50, "otto")}, {"shared", "of-otto"}, "what is left")

    def test_other_agents_documents_do_not_change_the_results(self) -> None:
        """Order and number of results are those of a store without them."""
        documents = [SourceDocument(f"d{n}", f"{_SUBJECT} " + "超时 timeout " * n) for n in range(6)]
        self.index(documents, "lina")
        before = self.search("超时 timeout", 4, "lina")
        self.index([SourceDocument(f"o{n}", "超时 timeout " * (n + 1)) for n in range(40)], "otto")
        expect_equal(self.search("超时 timeout", 4, "lina"), before, "the results after another agent wrote")

    # -- filters ------------------------------------------------------------------------------------------------------

    def test_filters_keep_what_filters_match_keeps(self) -> None:
        """Every operator means what `langchain_agentrag.filters.match` says."""
        documents = [SourceDocument(f"d{n}", f"{_SUBJECT} {n}", values) for n, values in enumerate(_METADATA)]
        self.index(documents, "lina")
        for where in _FILTERS if self.filters else ():
            expected = {document.doc_id for document in documents if match(where, document.metadata)}
            found = {doc_id for doc_id, _ in self.search(_SUBJECT, 50, "lina", where)}
            expect_equal(found, expected, f"what the filter {where!r} keeps")

    def test_a_filter_is_applied_before_the_limit(self) -> None:
        """K matching documents are found when they exist, however many others fit the query better."""
        self.index([SourceDocument(f"d{n}", f"{_SUBJECT} {n}", {"keep": False}) for n in range(60)], "lina")
        self.index([SourceDocument(f"kept{n}", f"timeout 超时 别的话题 {n}", {"keep": True}) for n in range(3)], "lina")
        if self.filters:
            found = {doc_id for doc_id, _ in self.search(_SUBJECT, 3, "lina", {"keep": True})}
            expect_equal(found, {"kept0", "kept1", "kept2"}, "what the filter keeps")

    # -- writing ------------------------------------------------------------------------------------------------------

    def test_deleted_documents_are_gone_at_once(self) -> None:
        """The next search does not find them, by any word, and others take their place."""
        self.index([SourceDocument(f"d{n}", f"{_SUBJECT} 编号 {n}") for n in range(6)], "lina")
        self.search(_SUBJECT, 3, "lina")  # fills what caches there are
        self.delete(["d0", "d1", "d2", "absent"], "lina")
        for query in (_SUBJECT, "编号 0", "timeout 1"):
            found = {doc_id for doc_id, _ in self.search(query, 3, "lina")}
            expect_equal(found, {"d3", "d4", "d5"}, f"what {query!r} finds after the delete")

    def test_a_replaced_document_is_found_as_it_is_now(self) -> None:
        """Its former text is gone at once."""
        self.index([SourceDocument("note", "旧的内容 former wording"), SourceDocument("other", _SUBJECT)], "lina")
        self.search("former wording", 5, "lina")
        self.index([SourceDocument("note", "新的内容 present wording")], "lina")
        found = dict(self.search("旧的 former 新的 present wording", 5, "lina"))
        expect_equal(found.get("note"), "新的内容 present wording", "the text of the replaced document")

    def test_indexing_a_document_twice_changes_nothing(self) -> None:
        """The same document is one result."""
        for _ in range(2):
            self.index([SourceDocument("note", _SUBJECT)], "lina")
        expect_equal(self.search(_SUBJECT, 5, "lina"), [("note", _SUBJECT)], "the result")

    def _index_owned(self) -> None:
        for owner, name in ((None, "shared"), ("lina", "of-lina"), ("otto", "of-otto")):
            self.index([SourceDocument(name, f"{_SUBJECT} {name}")], owner)
