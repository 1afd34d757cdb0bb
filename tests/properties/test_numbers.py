"""A number of any size in text or arguments from outside is read, left alone or refused with an error of ours.

Python raises `ValueError` for integers of more than 4,300 digits, `OverflowError` for those that are no float or no
64-bit integer, and `RecursionError` for nested JSON.
"""

from __future__ import annotations

import contextlib
import json
import math
from decimal import Decimal

import click
import pytest
from pydantic import ValidationError

from langchain_agentrag import DualIndexer, HashingEmbeddings, SourceDocument
from langchain_agentrag.agent.citation_support import find_quantities, judge_by_rules, normalize_quantities
from langchain_agentrag.agent.citations import check_citations
from langchain_agentrag.agent.prompt_injection import PassageSafety, instruction_kinds
from langchain_agentrag.agent.tool_arguments import read_arguments, search_arguments
from langchain_agentrag.cli.options import parse_filter
from langchain_agentrag.errors import AgentRagError, InvalidQueryError
from langchain_agentrag.search.fusion import check_weights
from langchain_agentrag.text import Analyzer
from langchain_agentrag.text.numerals import number_variants, read_chinese, read_chinese_strictly
from langchain_agentrag.times import check_duration, check_time, parse_time
from langchain_agentrag.types import Hit

LENGTHS = (19, 281, 310, 4_301)
WRITTEN = [
    *("9" * length for length in LENGTHS),
    *("1" + ",000" * (length // 4) for length in LENGTHS),
    *("0." + "3" * length for length in LENGTHS),
    *("九" * length for length in LENGTHS),
    *("一" + "亿" * length for length in LENGTHS),
    *("九万亿" * length for length in (90, 1_500)),
    *("hundred " * length for length in (30, 31, 160, 2_200)),
    *("nine hundred million billion " * length for length in (8, 1_500)),
    *(f"1e{'9' * length}" for length in (3, 4_301)),
    *("٣" * length for length in (5, 4_301)),
    *(f"&#{'7' * length};" for length in (8, 4_301)),
    *(f"&#x{'f' * length};" for length in (8, 4_301)),
    *("１" * length for length in (5, 4_301)),
    "百分之٣٣",
    "∞ NaN inf -inf 1e999",
]
SENTENCES = [
    "It weighs {} kg and costs ${} per hour.",
    "它重{}公斤，占百分之{}，每小时{}元。",
    "On 3 May {} the pump ran {}th.",
    "[{}] it is so [1-{}].",
]
HUGE = [10**18, 2**63, 10**30, 10**308, 10**309, 10**4_300, 10**5_000]


def readable(number: str) -> list[str]:
    return [sentence.replace("{}", number) for sentence in SENTENCES]


@pytest.mark.parametrize("number", WRITTEN, ids=lambda number: f"{number[:12]}…{len(number)}")
def test_text_with_a_number_of_any_size_is_read(number):
    for text in readable(number):
        find_quantities(text)
        normalize_quantities(text)
        instruction_kinds(text)
        PassageSafety().text(text)
        PassageSafety().name(text)
        number_variants(text)
        Analyzer().analyze_query(text[:5_000])
        parse_time(number)
        for answer, passage in (
            (f"{text} [1].", "It weighs 5 kg. 它重五公斤。"),
            ("It weighs 5 kg [1]. 它重五公斤[1]。", text),
            (f"{text} [1].", text),
        ):
            report = check_citations(answer, [Hit("d", 0, passage, 0.5)])
            assert str(report)
        judge_by_rules(text, text.replace("kg", "t"))


@pytest.mark.parametrize("length", [281, 4_301, 100_000])
def test_a_chinese_numeral_of_any_length_is_read_or_not(length):
    for digits in ("九", "一十", "亿", "九点九"):
        numeral = digits * length
        assert read_chinese(numeral) is None
        assert read_chinese_strictly(numeral.replace("点", "")) is None


def _refusal(call) -> str:
    """Return the error of ours with which a call is refused; "" if it is not. Any other error is a failure."""
    try:
        call()
    except (AgentRagError, ValidationError) as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with DualIndexer(tmp_path_factory.mktemp("store"), embeddings=HashingEmbeddings(32)) as indexer:
        indexer.index_documents([SourceDocument("d", "The pump of hall 3", metadata={"n": 1})])
        yield indexer


@pytest.mark.parametrize(
    "number",
    [*HUGE, *(-number for number in HUGE), math.inf, -math.inf, math.nan, 1e308],
    ids=lambda n: f"{n:.3g}" if isinstance(n, float) else f"{'-' if n < 0 else ''}2**{n.bit_length()}",
)
def test_arguments_of_any_size_are_taken_or_refused_with_an_error_of_ours(store, number):
    calls = [
        *(
            lambda name=name: store.search("pump", 1, **{name: number})
            for name in (
                "fetch_k",
                "diversity",
                "score_threshold",
                "collapse",
                "neighbours",
                "recency",
                "after",
                "before",
                "now",
                "max_per_document",
                "rerank_timeout",
                "rewrite_timeout",
            )
        ),
        lambda: store.search("pump", number),
        lambda: store.search("pump", 1, weights=(number, 0.5)),
        lambda: store.search("pump", 1, weights=(number, 1)),
        lambda: store.search("pump", 1, filter={"n": number}),
        lambda: store.search("pump", 1, filter={"n": {"$gt": number}}),
        lambda: store.read("d", number),
        lambda: store.read("d", 0, before=number, after=number),
        lambda: check_duration("ttl", number),
        lambda: check_time("after", number),
        lambda: check_weights((number, 1.5)),
    ]
    for call in calls:
        assert len(_refusal(call)) < 2_000


def test_a_negative_duration_of_any_size_is_refused():
    for number in (-1, -1e300, -(10**400), -math.inf):
        with pytest.raises(InvalidQueryError):
            check_duration("recency", number)


@pytest.mark.parametrize(
    "written", ["9" * 5_000, "1e300", "1e999", "-1e300", "0x10", "1_0", "9" * 30, "nan", "inf", "1." + "0" * 5_000]
)
def test_a_model_may_write_any_number(store, written):
    for schema, fields in (
        (
            read_arguments("en"),
            ({"doc_id": f"d#{written}"}, {"doc_id": "d", "chunk_id": written}, {"doc_id": "d", "before": written}),
        ),
        (
            search_arguments("zh", 5),
            (
                {"query": "a", "k": written},
                {"query": "a", "after": written},
                {"query": "a", "filter": f'{{"n": {written}}}'},
            ),
        ),
    ):
        for arguments in fields:
            read = None
            with contextlib.suppress(ValidationError):
                read = schema.model_validate(arguments)
            refusal = _refusal(lambda schema=schema, arguments=arguments: schema.model_validate(arguments))
            assert "Exceeds the limit" not in refusal
            if isinstance(getattr(read, "chunk_id", None), int):
                assert len(_refusal(lambda read=read: store.read(read.doc_id, read.chunk_id))) < 20_000


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5_000 + "}", "1" * 5_000, "[1]", "{"]
)
def test_json_of_any_depth_and_with_any_number_is_refused_with_words(text):
    with pytest.raises(click.BadParameter) as refused:
        parse_filter(text)
    assert len(str(refused.value)) < 500
    with pytest.raises(ValidationError):
        search_arguments("en", 5).model_validate({"query": "a", "filter": text})


def test_references_with_any_number_name_no_chunk(store):
    from langchain_agentrag.langchain.vectorstore import HybridVectorStore

    for number in ("9" * 19, "9" * 5_000, "٣" * 5_000, "-1", ""):
        assert HybridVectorStore(store).get_by_ids([f"d#{number}"]) == []
    assert json.dumps(str(Decimal("1e999999")))
