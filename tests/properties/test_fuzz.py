"""What comes from outside is read or refused with an error of ours, in bounded time: never a crash, never a hang.

Bounded by the Hypothesis profile; a failure prints the seed to repeat it with (`--hypothesis-seed=…`, and the blob).
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_agentrag import Analyzer, Chunking, DualIndexer, HashingEmbeddings, SourceDocument
from langchain_agentrag.connectors.files.formats import _READERS, read
from langchain_agentrag.errors import AgentRagError, FilterError, InvalidDocumentError
from langchain_agentrag.filters import match, parse
from langchain_agentrag.metadata import decode, encode, normalise
from langchain_agentrag.text.chunking import chunk_document
from langchain_agentrag.types import Section
from tests.properties.foreign import WRITTEN, mutated, remade

PROOF = os.environ.get("HYPOTHESIS_PROFILE") == "proof"
fuzz = settings(
    max_examples=3_000 if PROOF else 150, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
few = settings(fuzz, max_examples=500 if PROOF else 40)


@contextmanager
def cpu_limit(seconds: float):
    """A generous bound: it catches a blow-up, not a slow machine."""
    started = time.process_time()
    yield
    spent = time.process_time() - started
    assert spent < seconds, f"{spent:.1f} s of processor time"


def refused(call):
    """(error of ours, None) or (None, what the call gave); any other error is a failure."""
    try:
        return None, call()
    except AgentRagError as error:
        return error, None


# -- filters ----------------------------------------------------------------------------------------------------------

operators = st.sampled_from(
    [
        "$eq",
        "$ne",
        "$gt",
        "$gte",
        "$lt",
        "$lte",
        "$in",
        "$nin",
        "$contains",
        "$exists",
        "$and",
        "$or",
        "$not",
        "$where",
        "$",
        "",
    ]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.dates(),
    st.decimals(),
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(operators | st.text(max_size=5), inner, max_size=4),
    max_leaves=25,
)


@given(anything, st.dictionaries(st.text(max_size=5), anything, max_size=4))
@fuzz
def test_a_filter_of_any_shape_is_parsed_or_refused(where, metadata):
    refusal, tree = refused(lambda: parse(where))
    if refusal is not None:
        assert isinstance(refusal, FilterError)
        assert len(str(refusal)) < 2_000
        return
    verdict = match(tree, metadata)
    assert isinstance(verdict, bool)
    assert match(where, metadata) is verdict


@pytest.mark.parametrize("depth", [100, 101, 1_000, 20_000])
@pytest.mark.parametrize("op", ["$not", "$and", "$or", "key"])
def test_a_deeply_nested_filter_is_parsed_or_refused_at_once(depth, op):
    where: object = {"$eq": 1} if op == "key" else {"n": 1}
    for _ in range(depth):
        where = {"$not": where} if op in {"$not", "key"} else {op: [where]}
    if op == "key":
        where = {"n": where}
    with cpu_limit(2):
        refusal, verdict = refused(lambda: match(where, {"n": 1}))
    if refusal is None:
        assert isinstance(verdict, bool)
    else:
        assert "nested deeper" in str(refusal)
        assert len(str(refusal)) < 2_000
    assert (refusal is None) is (depth <= 100)


def test_a_wide_or_shared_filter_cannot_blow_up():
    shared: object = {"n": 1}
    for _ in range(60):
        shared = {"$and": [shared, shared]}
    with cpu_limit(5), pytest.raises(FilterError):
        parse(shared)
    with cpu_limit(5):
        assert match({"n": {"$in": list(range(200_000))}}, {"n": 199_999})
    with cpu_limit(5), pytest.raises(FilterError):
        parse({"$or": [{"n": n} for n in range(200_000)]})


# -- metadata ---------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=5) | st.integers() | st.none(), anything, max_size=4))
@fuzz
def test_metadata_come_back_as_normalised_or_are_refused(metadata):
    try:
        expected = normalise(metadata)
        encoded = encode(metadata)
    except InvalidDocumentError:
        return
    assert repr(decode(encoded)) == repr(expected)


@given(st.text(max_size=60) | anything.map(lambda value: json.dumps(value, default=str)))
@fuzz
def test_a_damaged_metadata_blob_is_refused_with_an_error_of_ours_or_read(blob):
    refusal, decoded = refused(lambda: decode(blob))
    assert refusal is not None or isinstance(decoded, dict)


def test_metadata_that_hold_themselves_or_are_too_deep_are_refused():
    loop: dict[str, object] = {}
    loop["self"] = loop
    deep: object = 1
    for _ in range(5_000):
        deep = {"d": deep}
    for metadata in (loop, deep):
        with cpu_limit(2), pytest.raises(InvalidDocumentError):
            encode(metadata)


# -- chunker ----------------------------------------------------------------------------------------------------------

pieces = st.sampled_from(
    ["# ", "## h\n", "- a\n", "  - b\n", "| a | b |\n", "|---|\n", "```\n", "~~~", "> ", "\n\n", "\n", "。", "？", "text ", "数据", "[a](b)",
     "![", "<div>", "</", "&amp;", "\r\n", "\r", "\x00", "\u2028", "    ", "\t", "***", "---\n", "===\n", "1. ", "\\", "`", "def f():\n", "🚀", "e\u0301"]
)  # fmt: skip
markdown = st.lists(pieces | st.text(max_size=6), max_size=60).map("".join)


@given(
    markdown,
    st.sampled_from(["plain", "markdown", "code"]),
    st.integers(1, 60),
    st.integers(0, 29),
    st.lists(st.integers(0, 80), max_size=6),
)
@fuzz
def test_any_text_is_cut_into_exact_spans_that_cover_it(text, kind, size, overlap, edges):
    chunking = Chunking(size, overlap if 0 < overlap < size // 2 else 0)
    cuts = sorted({min(edge, len(text)) for edge in edges})
    sections = tuple(Section(start, end, {"page": n}) for n, (start, end) in enumerate(pairwise(cuts)))
    document = SourceDocument("d", text, kind=kind, sections=sections)
    with cpu_limit(5):
        chunks = chunk_document(document, chunking)
    covered = {place for chunk in chunks for place in range(chunk.start, chunk.end)}
    for number, chunk in enumerate(chunks):
        assert chunk.chunk_id == number
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
    assert all(place in covered for place, char in enumerate(text) if not char.isspace())


SIZE = 400_000
PATHOLOGICAL = {
    "one line": "x" * SIZE,
    "one Chinese line": "数" * SIZE,
    "nothing but sentence ends": "。" * SIZE,
    "nothing but line ends": "\n" * SIZE + "x",
    "headings only": "# h\n" * (SIZE // 4),
    "ever deeper headings": "".join("#" * (n % 6 + 1) + f" h{n}\n" for n in range(SIZE // 8)),
    "ever deeper lists": "".join(" " * (n % 500) + "- a\n" for n in range(3_000)),
    "nested quotes": "> " * (SIZE // 2),
    "open fences": "```\n" * (SIZE // 4),
    "fences of growing length": "".join("`" * n + "\n" for n in range(800)),
    "one table row": "|a" * (SIZE // 2),
    "a table of one column": "|a|\n" * (SIZE // 4),
    "brackets": "[" * SIZE,
    "emphasis": "*a _b " * (SIZE // 6),
    "backticks": "`a" * (SIZE // 2),
    "comments never closed": "<!--" * (SIZE // 4),
    "tags": "<a><b " * (SIZE // 6),
    "combining marks": "e" + "\u0301" * SIZE,
    "flags and joiners": "\U0001f468\u200d" * (SIZE // 2),
    "quotes never closed": "“" * SIZE,
    "spaces between": "a " * (SIZE // 2),
    "front matter never closed": "---\n" + "a: b\n" * (SIZE // 5),
}


@pytest.mark.parametrize("kind", ["plain", "markdown", "code"])
@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_a_pathological_text_takes_no_longer_than_its_length(name, kind):
    text = PATHOLOGICAL[name]
    with cpu_limit(20):
        chunks = chunk_document(SourceDocument("d", text, kind=kind), Chunking())
        characters = sum(len(chunk.text) for chunk in chunks)
    assert characters <= len(text)
    assert sum(len(chunk.context) for chunk in chunks) < 40 * len(text) + 10_000


# -- files ------------------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(_READERS)), st.binary(max_size=400), st.booleans())
@fuzz
def test_random_bytes_are_read_or_refused_in_any_format(kind, data, headed):
    start = WRITTEN.get(kind, b"")[:24] if headed else b""
    _read(kind, start + data)


@given(st.sampled_from(sorted(WRITTEN)), st.data())
@few
def test_a_damaged_file_is_read_or_refused(kind, data):
    _read(kind, mutated(WRITTEN[kind], data))


def _read(kind: str, data: bytes) -> None:
    """Read bytes as a file of some format, with the name that asks for it."""
    with cpu_limit(20):
        try:
            detected, content = read(f"file.{SUFFIX.get(kind, kind)}", data, 2**20)
        except AgentRagError:
            return
    assert detected == kind
    content.text.encode("utf-8")
    last = 0
    for section in content.sections:
        assert last <= section.start <= section.end <= len(content.text)
        last = section.end
    chunk_document(SourceDocument("d", content.text, kind=content.kind, sections=content.sections), Chunking())
    encode(content.metadata)


SUFFIX = {"markdown": "md", "text": "txt", "code": "py", "config": "toml", "notebook": "ipynb"}


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_an_office_file_with_an_empty_or_missing_member_is_read_or_refused(kind):
    """Found by the fuzzing above: an empty [Content_Types].xml made lxml's own error escape."""
    for name in zipfile.ZipFile(io.BytesIO(WRITTEN[kind])).namelist():
        _read(kind, remade(WRITTEN[kind], name, b""))
        _read(kind, remade(WRITTEN[kind], name, None))
        _read(kind, remade(WRITTEN[kind], name, b"<a/>"))


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_the_files_that_are_damaged_are_sound_before(kind):
    detected, content = read(f"file.{SUFFIX.get(kind, kind)}", WRITTEN[kind], 2**20)
    assert detected == kind
    assert "alpha" in content.text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("deep.json", b"[" * 200_000),
        ("deep.json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        ("wide.json", b"[" + b"1," * 200_000 + b"1]"),
        ("deep.html", b"<div>" * 50_000 + b"text"),
        ("table.html", b"<table><tr><td>" * 5_000 + b"text"),
        ("entities.xml", b'<!DOCTYPE a [<!ENTITY a "' + b"x" * 1000 + b'">' + b"]><b>" + b"&a;" * 10_000 + b"</b>"),
        ("wide.csv", b"a," * 100_000 + b"\n" + b"1," * 100_000),
        ("quote.csv", b'"' + b"a,b\n" * 50_000),
        ("long.jsonl", b'{"a": 1}\n' * 20_000),
        ("numbers.json", b"[" + b"9" * 100_000 + b"]"),
        ("bomb.txt.gz", None),
        ("nest.ipynb", b'{"cells": [' + b'{"cell_type":"markdown","source":' * 2_000 + b'""' + b"}" * 2_000 + b"]}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_made_to_hurt_is_read_or_refused_in_bounded_time(name, data):
    if data is None:
        import gzip

        data = gzip.compress(b"\0" * 200_000_000, 1)
    with cpu_limit(30):
        try:
            _, content = read(name, data, 50 * 2**20)
        except AgentRagError:
            return
    assert len(content.text) < 20 * len(data) + 100_000


# -- queries ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def indexer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "store"
    with DualIndexer(folder, HashingEmbeddings(16), chroma="auto") as opened:
        opened.index_documents([SourceDocument(f"d{n}", f"数据库 连接 alpha {n} C++", {"n": n}) for n in range(20)])
        yield opened


@given(query=st.text(max_size=80) | st.text(st.characters(codec=None), max_size=20) | markdown)
@fuzz
def test_any_query_is_answered(indexer, query):
    for mode in ("hybrid", "keyword", "vector"):
        try:
            hits = indexer.search(query, 3, mode=mode)
        except AgentRagError:
            continue
        assert len(hits) <= 3
        for hit in hits:
            assert all(0 <= start < stop <= len(hit.text) for start, stop in hit.explanation.highlights)


@given(query=st.just("alpha"), where=anything, agent=st.text(max_size=6) | st.none() | st.integers())
@fuzz
def test_any_filter_and_agent_is_answered_or_refused(indexer, query, where, agent):
    try:
        hits = indexer.search(query, 50, filter=where, agent_id=agent)
    except AgentRagError:
        return
    assert len(hits) <= 20


@pytest.mark.parametrize(
    "query",
    ["数" * 350_000, "a" * 1_000_000, "alpha beta " * 90_000, " ".join(f"w{n}" for n in range(120_000)), "。" * 350_000 + "数据",
     "a" * 500_000 + "数据" * 80_000, "1.2." * 125_000, "a-b_c" * 100_000, "\u0301" * 500_000, "🚀" * 250_000],
    ids=["han", "one word", "two words", "many words", "points", "mixed", "version", "compound", "marks", "emoji"],
)  # fmt: skip
def test_a_query_of_a_megabyte_is_answered_in_bounded_time(indexer, query):
    with cpu_limit(30):
        hits = indexer.search(query, 3)
    assert len(hits) <= 3


@given(st.text(max_size=200) | markdown)
@fuzz
def test_any_text_is_analysed_and_its_spans_lie_within_it(text):
    analyzer = ANALYZER
    try:
        terms = analyzer.analyze(text, text[:20])
        query = analyzer.analyze_query(text)
    except AgentRagError:
        return
    assert not any(char.isspace() for term in (*terms.words, *terms.grams) for char in term)
    for start, stop in analyzer.match_spans(text, set(query["words"])):
        assert 0 <= start < stop <= len(text)


ANALYZER = Analyzer()
