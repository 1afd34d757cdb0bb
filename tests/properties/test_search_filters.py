"""A search under a filter finds exactly the documents the filter's definition keeps, in every index and on every path."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_agentrag import DualIndexer, SourceDocument, filters
from langchain_agentrag.store.columnar_cache import filter_view
from tests.fakes import GivenVectors

MODES = ("hybrid", "vector", "keyword")
KEYS = ("a", "b", "a.b", "agent_id", "doc_id")
VALUES: list = [
    *(None, True, False, 0, 1, -1, 2**63, 1.0, 0.5, -0.0, math.nan, math.inf, "", "1", "zh", "中文", "ZH", "\ud83d"),
    *([], ["zh"], ["a", 1], [[]], {"b": 1}, {"b": "zh"}, {}, Decimal("1.0"), b"x"),
    *(date(2024, 5, 1), datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 1), "2024-05-01"),
]
metadata = st.dictionaries(st.sampled_from(("a", "b", "a.b", "c")), st.sampled_from(VALUES), max_size=3)
ORDERED = [
    value for value in VALUES if isinstance(value, int | float | str | date | Decimal) and type(value) is not bool
]


def leaves() -> st.SearchStrategy[dict]:
    key, value = st.sampled_from(KEYS), st.sampled_from(VALUES)
    value = value | st.sampled_from(["d0", "d1", "agent"])
    plain = st.tuples(key, value.filter(lambda v: not isinstance(v, dict))).map(lambda pair: {pair[0]: pair[1]})
    single = st.tuples(key, st.sampled_from(["$eq", "$ne", "$contains"]), value)
    listed = st.tuples(key, st.sampled_from(["$in", "$nin"]), st.lists(value, max_size=3))
    ordered = st.tuples(key, st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.sampled_from(ORDERED))
    between = st.tuples(key, st.just("$between"), st.tuples(st.sampled_from(ORDERED), st.sampled_from(ORDERED)))
    pattern = st.tuples(key, st.sampled_from(["$like", "$ilike", "$icontains"]), st.text("zh中文d1%_", max_size=3))
    exists = st.tuples(key, st.just("$exists"), st.booleans())
    return plain | (single | listed | ordered | between | pattern | exists).map(
        lambda part: {part[0]: {part[1]: part[2]}}
    )


def joined(parts: st.SearchStrategy[dict]) -> st.SearchStrategy[dict]:
    several = st.lists(parts, max_size=3)
    return st.tuples(st.sampled_from(["$and", "$or", "$not"]), several).map(
        lambda pair: {pair[0]: pair[1]}
    ) | parts.map(lambda part: {"$not": part})


FILTERS = st.recursive(leaves(), joined, max_leaves=6)

# Every text holds the query's word, so that an unfiltered keyword search finds everything.
WORD = "apple"


@contextmanager
def store(documents: list[SourceDocument], agent: str | None, **options) -> Iterator[DualIndexer]:
    with (
        TemporaryDirectory() as folder,
        DualIndexer(Path(folder) / "s", GivenVectors({WORD: [1, 0, 0]}, [0, 1, 1]), **options) as indexer,
    ):
        indexer.index_documents(documents, agent)
        yield indexer


def agree(indexer: DualIndexer, documents: list[SourceDocument], agent: str | None, where: dict) -> None:
    expected = {
        document.doc_id
        for document in documents
        if filters.match(where, filter_view(agent, document.doc_id, document.metadata, "{}"))
    }
    for mode in MODES:
        hits = indexer.search(WORD, len(documents) + 1, agent_id=agent, filter=where, mode=mode)
        assert {hit.doc_id for hit in hits} == expected, mode
        assert all(note.startswith("filter: ") and not expected for note in hits.degraded)
        few = indexer.search(WORD, 1, agent_id=agent, filter=where, mode=mode)
        assert len(few) == min(1, len(expected))


OPTIONS = {"exact": {"chroma": "auto"}, "approximate": {"chroma": "always", "exact_limit": 0}}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("agent", [None, "agent"])
def test_every_index_returns_exactly_what_the_definition_keeps(options, agent):
    @settings(max_examples=15)
    @given(st.lists(metadata, min_size=1, max_size=12), st.lists(FILTERS, min_size=25, max_size=25))
    def check(metadatas: list[dict], wheres: list[dict]) -> None:
        documents = [SourceDocument(f"d{i}", f"{WORD} {i}", values) for i, values in enumerate(metadatas)]
        with store(documents, agent, **options) as indexer:
            for where in wheres:
                agree(indexer, documents, agent, where)

    check()


def test_the_approximate_path_agrees_where_a_filter_is_selective_or_wide(monkeypatch):
    """Few rows kept, some, half and all: each plan of the approximate path is taken, `selected` included or not."""
    from langchain_agentrag.search import engine

    documents = [SourceDocument(f"d{i}", f"{WORD} {i}", {"n": i, "odd": i % 2 == 1}) for i in range(600)]
    wheres = [{"n": {"$lt": edge}} for edge in (0, 1, 7, 60, 300, 599, 600)] + [{"odd": True}, {"n": {"$gte": 595}}, {}]
    with store(documents, None, chroma="always", exact_limit=0) as indexer:
        for limit in (engine.SELECTED_LIMIT, 0):
            monkeypatch.setattr(engine, "SELECTED_LIMIT", limit)
            for where in wheres:
                agree(indexer, documents, None, where)


def test_filters_see_edits_and_deletions_at_once():
    documents = [SourceDocument(f"d{i}", f"{WORD} {i}", {"n": i}) for i in range(10)]
    for options in OPTIONS.values():
        with store(documents, None, **options) as indexer:
            agree(indexer, documents, None, {"n": {"$gte": 5}})
            changed = [*documents[:5], SourceDocument("d5", f"{WORD} 5", {"n": -5}), *documents[7:]]
            indexer.index_documents([changed[5]])
            indexer.delete("d6")
            for where in ({"n": {"$gte": 5}}, {"n": {"$lt": 0}}, {"n": {"$exists": True}}, {"n": 6}):
                agree(indexer, changed, None, where)
            more = [*changed, SourceDocument("d99", f"{WORD} 99", {"m": 1})]
            indexer.index_documents([more[-1]])
            for where in ({"n": {"$gte": 5}}, {"m": 1}, {"n": None}, {"m": {"$exists": False}}):
                agree(indexer, more, None, where)


def test_a_filter_on_the_place_of_a_passage_keeps_that_passage_only():
    text = "# One\n\napple first\n\n# Two\n\napple second\n"
    for options in OPTIONS.values():
        with store([SourceDocument("d", text, {}, kind="markdown")], None, **options) as indexer:
            lines = {hit.locator["line"]: hit.text for hit in indexer.search(WORD, 10)}
            for line, line_text in lines.items():
                assert [hit.text for hit in indexer.search(WORD, 10, filter={"line": line})] == [line_text]


@pytest.mark.parametrize(
    "agent_filter",
    [
        {"agent_id": "b"},
        {"agent_id": {"$in": ["a", "b"]}},
        {"$or": [{"agent_id": "a"}, {"agent_id": "b"}]},
        {"$not": {"agent_id": "a"}},
        {"agent_id": {"$ne": "zzz"}},
        {"agent_id": None},
    ],
)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_filter_on_the_agent_narrows_and_never_widens(agent_filter, options):
    with store([SourceDocument("s", f"{WORD} shared", {"owner": "b"})], None, **options) as indexer:
        for agent in ("a", "b"):
            indexer.index_documents([SourceDocument(agent, f"{WORD} {agent}")], agent)
        for mode in MODES:
            doc_ids = {hit.doc_id for hit in indexer.search(WORD, 10, agent_id="a", filter=agent_filter, mode=mode)}
            assert doc_ids <= {"s", "a"}
            assert doc_ids == {
                name for name, owner in (("s", None), ("a", "a")) if filters.match(agent_filter, {"agent_id": owner})
            }


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_filter_on_a_key_that_no_visible_document_has_says_so_once(options, caplog):
    hidden = SourceDocument("old", f"{WORD} old", {"gone": 1, "expires_at": datetime(2020, 1, 1, tzinfo=UTC)})
    documents = [SourceDocument("d", f"{WORD} 文档", {"t": "x", "语言": "中文"}), hidden]
    with store(documents, None, **options) as indexer:
        indexer.index_documents([SourceDocument("o", f"{WORD} private", {"secret": 1})], "otto")

        def notes(where, agent=None, mode="hybrid"):
            return indexer.search(WORD, 5, filter=where, agent_id=agent, mode=mode).degraded

        for mode in MODES:
            (note,) = notes({"metadata.t": "x"}, mode=mode)
            assert note == "filter: no document here has the metadata key 'metadata.t'; did you mean 't'?"
        assert caplog.text.count("'metadata.t'") == 1
        # keys of other agents and of expired documents are not known either
        assert notes({"secret": 1}) == notes({"secret": 1}, "lina") != ()
        assert notes({"metadata.secret": 1}, "lina") == (
            "filter: no document here has the metadata key 'metadata.secret'",
        )
        assert "gone" in str(notes({"gone": 1}))
        for where in ({"t": "y"}, {"语言": "英文"}, {"$not": {"none": 1}}, {"none": {"$ne": 1}}, {"none": None}):
            assert notes(where) == ()
        assert notes({"secret": 2}, "otto") == ()
