"""The paraphrase collection is what its README says: no shared words, one distractor, one passage per code."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from langchain_agentrag import Analyzer

FOLDER = Path(__file__).parents[2] / "benchmarks" / "paraphrase"
CODE = re.compile(r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*", re.ASCII)
CHARACTERS_SHARED = 2  # single Han characters a question may share with its answer
HAN = re.compile(r"[\u4e00-\u9fff]")


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


CORPUS = {entry["_id"]: entry for entry in lines("corpus.jsonl")}
QUERIES = {entry["_id"]: entry for entry in lines("queries.jsonl")}
HEADER, *QRELS = table("qrels.tsv")
ANSWERS = {query: passage for query, passage, _ in QRELS}
WORDLESS = [name for name, query in QUERIES.items() if query["metadata"]["kind"] != "identifier"]
IDENTIFIERS = [name for name, query in QUERIES.items() if query["metadata"]["kind"] == "identifier"]
ANALYZER = Analyzer()


def query_terms(query: str) -> tuple[set[str], set[str]]:
    terms = ANALYZER.analyze_query(QUERIES[query]["text"])
    return set(terms["words"]), set(terms["grams"])


def passage_terms(passage: str) -> tuple[set[str], set[str]]:
    terms = ANALYZER.analyze(CORPUS[passage]["text"])
    return set(terms.words), set(terms.grams)


def shared(query: str, passage: str) -> tuple[set[str], set[str], set[str]]:
    """Words, pairs and single characters that a query and a passage have in common."""
    (query_words, query_grams), (words, grams) = query_terms(query), passage_terms(passage)
    common = query_grams & grams
    return (
        query_words & words,
        {gram for gram in common if len(gram) > 1},
        {gram for gram in common if len(gram) == 1},
    )


def codes(text: str) -> list[str]:
    matches = CODE.findall(text)
    return [code for code in matches if re.search(r"\d.*\d", code) or code.endswith("Error")]


def family(code: str) -> str:
    """What codes of one kind have in common: everything but their numbers, or the name of the class."""
    return re.sub(r"[A-Z][a-z]+(?=Error)|\d+", "#", code)


def test_ids_resolve_and_nothing_is_there_twice():
    assert HEADER == ["query-id", "corpus-id", "score"]
    assert len(CORPUS) == len(lines("corpus.jsonl"))
    assert len(QUERIES) == len(lines("queries.jsonl"))
    assert [query for query, _, _ in QRELS] == list(QUERIES)
    assert {score for _, _, score in QRELS} == {"1"}
    assert set(ANSWERS.values()) <= set(CORPUS)
    distractors = [QUERIES[name]["metadata"]["distractor"] for name in WORDLESS]
    used = [*ANSWERS.values(), *distractors]
    assert set(distractors) <= set(CORPUS)
    assert len(set(used)) == len(used)
    for entries in (CORPUS, QUERIES):
        assert len({entry["text"] for entry in entries.values()}) == len(entries)


def test_the_kinds_are_as_many_as_in_the_readme():
    ways = Counter(
        (query["metadata"]["kind"], query["metadata"]["lang"], CORPUS[ANSWERS[name]]["metadata"]["lang"])
        for name, query in QUERIES.items()
        if name in WORDLESS
    )
    assert ways == {
        ("paraphrase", "zh", "zh"): 31,
        ("paraphrase", "en", "en"): 31,
        ("across", "zh", "en"): 10,
        ("across", "en", "zh"): 10,
    }
    assert Counter(QUERIES[name]["metadata"]["lang"] for name in IDENTIFIERS) == {"zh": 7, "en": 7}
    assert (len(QUERIES), len(CORPUS)) == (96, 239)


def test_a_text_is_in_its_declared_language():
    for entry in (*CORPUS.values(), *QUERIES.values()):
        assert bool(HAN.search(entry["text"])) == (entry["metadata"]["lang"] == "zh"), entry


@pytest.mark.parametrize("name", WORDLESS)
def test_a_question_is_a_sentence(name):
    text = QUERIES[name]["text"]
    if QUERIES[name]["metadata"]["lang"] == "zh":
        assert 15 <= len(text) <= 60
    else:
        assert 8 <= len(text.split()) <= 30


@pytest.mark.parametrize("name", WORDLESS)
def test_a_question_shares_no_word_and_no_pair_with_its_answer(name):
    words, pairs, characters = shared(name, ANSWERS[name])
    assert (words, pairs) == (set(), set())
    assert len(characters) <= CHARACTERS_SHARED


@pytest.mark.parametrize("name", WORDLESS)
def test_a_question_shares_exactly_one_word_with_its_distractor(name):
    distractor = QUERIES[name]["metadata"]["distractor"]
    words, pairs, _ = shared(name, distractor)
    assert len(words) == 1
    assert all(pair in next(iter(words)) for pair in pairs)
    assert CORPUS[distractor]["metadata"]["lang"] == QUERIES[name]["metadata"]["lang"]


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_one_passage_holds_the_code_and_several_hold_its_siblings(name):
    [code] = codes(QUERIES[name]["text"])
    assert [key for key, entry in CORPUS.items() if code in codes(entry["text"])] == [ANSWERS[name]]
    siblings = [
        key
        for key, entry in CORPUS.items()
        if family(code) in map(family, codes(entry["text"])) and key != ANSWERS[name]
    ]
    assert len(siblings) >= 3


def test_vague_words_speak_for_a_sibling_in_most_identifier_questions():
    """Counted without the code and its parts: the right passage never has more of the rest than every sibling."""
    misled = 0
    for name in IDENTIFIERS:
        [code] = codes(QUERIES[name]["text"])
        rest = query_terms(name)[0] - set(ANALYZER.analyze_query(code)["words"])
        others = [
            len(rest & passage_terms(key)[0])
            for key, entry in CORPUS.items()
            if family(code) in map(family, codes(entry["text"])) and key != ANSWERS[name]
        ]
        right = len(rest & passage_terms(ANSWERS[name])[0])
        assert right <= max(others), name
        misled += right < max(others)
    assert misled > len(IDENTIFIERS) / 2
