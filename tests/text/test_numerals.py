"""Numbers are found in either written form, and words that only look like numbers are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag import Analyzer, DualIndexer, SourceDocument
from langchain_agentrag.text.numerals import number_variants


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("30天内可以退款", ["三十天"]),
        ("三十天内可以退款", ["30"]),
        ("2024年5月的会议", ["二零二四年", "二〇二四年", "五月"]),
        ("二〇二四年五月", ["2024", "5"]),
        ("第12条", ["十二条"]),
        ("两百零五元", ["205"]),
        ("一万两千三百", ["12300"]),
        ("105页", ["一百零五"]),
        ("十月", ["10"]),
    ],
)
def test_a_number_has_another_form(text, others):
    assert number_variants(text) == others


@pytest.mark.parametrize("text", ["万一出错", "千万不要", "三三两两", "v1.2.30 E1102", "3.5米", "10:30", "一", "007", "a1b2", "五", "123456789"])  # fmt: skip
def test_what_is_no_plain_number_has_none(text):
    assert number_variants(text) == []


@given(st.integers(10, 99_999_999))
def test_every_number_comes_back_from_characters(number):
    (written,) = number_variants(f"{number} ")
    assert number_variants(written) == [str(number)]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("30天内退货", "han"), ("三十天内退货", "arabic"), ("2023年3月", "year"), ("二〇二三年三月", "year2")],
)
def test_a_question_finds_the_other_form(tmp_path, query, wanted):
    texts = {
        "han": "客户可在三十天以内办理手续。",
        "arabic": "客户可在 30 天以内办理手续。",
        "year": "会议于二〇二三年三月召开。",
        "year2": "会议于 2023 年 3 月召开。",
        "none": "今天天气很好，适合散步。",
    }
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        indexer.index_documents([SourceDocument(name, text) for name, text in texts.items()])
        assert wanted in [hit.doc_id for hit in indexer.search(query, 2, mode="keyword")]


@pytest.mark.parametrize("query", ["30天内退货", "k8s 集群升级"])
def test_another_way_to_say_it_does_not_make_an_answer_less_likely(tmp_path, query):
    texts = ["30天内退货可以全额退款。", "k8s 集群升级前请备份。", *(f"无关的第{n}段文字。" for n in "甲乙丙丁")]
    groups = [("k8s", "Kubernetes", "容器编排平台")]
    numbers = []
    for name, analyzer in (("plain", Analyzer()), ("wide", Analyzer(synonyms=groups))):
        with DualIndexer(tmp_path / name, "hash", analyzer=analyzer) as indexer:
            indexer.index_documents([SourceDocument(str(n), text) for n, text in enumerate(texts)])
            numbers.append(indexer.search(query, 1))
    plain, wide = numbers
    assert plain[0].doc_id == wide[0].doc_id
    assert wide.confidence >= plain.confidence - 1e-9
