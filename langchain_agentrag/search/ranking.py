"""Who said it: a question that names a speaker is answered by that speaker's words. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.fusion import (
    SCALED,
    Weights,
    adaptive_weights,
    calibrate_bm25,
    calibrate_cosine,
    combined_evidence,
    confidence,
    convex,
    fuse,
    keyword_evidence,
    recency_boost,
)
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.store.partition_cache import cosines, unpack_vectors
from langchain_agentrag.store.queries import ScoringRow, document_speakers, document_times
from langchain_agentrag.text import FIELDS
from langchain_agentrag.text.analyzer import MAX_USER_WORD, UserWords, matching_form
from langchain_agentrag.text.tokenizer import ENGLISH_STOP_WORDS, fold
from langchain_agentrag.types import IndexEvidence

if TYPE_CHECKING:
    import sqlite3

_Row = TypeVar("_Row")

OTHER_SPEAKER_FACTOR = 0.7
"""What is left of the score of somebody else's words. `benchmarks/quality.py`: locomo gains .03, and of the answers
that came first from another speaker than the one asked for, 1 in 20 was right."""

_ROLES = frozenset(
    "user assistant system tool human ai bot model agent function developer chatbot customer client caller operator "  # noqa: SIM905
    "support speaker interviewer interviewee host guest narrator moderator participant admin unknown anonymous doctor "
    "patient teacher student mr mrs ms miss dr prof "
    "用户 助手 助理 系统 工具 模型 机器人 客服 客户 顾客 智能体 人工智能 智能客服 智能助手 管理员 开发者 说话人 发言人 "
    "主持人 嘉宾 旁白 记者 采访者 受访者 医生 患者 病人 老师 学生 对方 未知 匿名".split()
)
_SHORTEST = 2  # characters of a name; one letter or character stands in every other question
_HOMOGRAPHS = ENGLISH_STOP_WORDS | {"may"}  # function words that people are called by: Will, May
_SENTENCE_START = re.compile(r"(?:^|[.!?。！？])[^\w]*$")


def named_speakers(query: str, speakers: Iterable[str]) -> set[str]:
    """Those of the speakers whom the query names, by the whole name or one word of it.

    A role ("user", "客服", "Dr.") is no name, nor is a single character or a number. A name written with a capital is
    none where the query writes the word without, unless it has no capitals at all; one that is a function word as well
    ("Will") must stand with a capital inside a sentence. Where two names overlap, the longer one is meant.
    """
    text = fold(query)
    found = [(start, end, speaker) for speaker in speakers for start, end in _mentions(text, speaker)]
    return {
        speaker
        for start, end, speaker in found
        if not any(first <= start and end <= last and last - first > end - start for first, last, _ in found)
    }


def other_speakers(query: str, speakers: Mapping[int, str]) -> dict[int, str]:
    """Row → who was asked for, of every row that is somebody else's words; empty when the query names nobody.

    Args:
        query: The question.
        speakers: Row → who speaks; a row that nobody says is no other's.
    """
    asked = named_speakers(query, set(speakers.values()))
    if not asked:
        return {}
    names = ", ".join(sorted(asked))
    return {row: names for row, speaker in speakers.items() if speaker not in asked}


def _mentions(text: str, speaker: str) -> Iterator[tuple[int, int]]:
    """Where a folded query names the speaker."""
    name = fold(speaker).strip()
    words = [name, *(part for part in name.split() if name.islower() or not part.islower())]
    known = {matching_form(word): word for word in words if _tells(word)}
    if not known:
        return
    cased = not (text.islower() or text.isupper())
    for term, start, end in UserWords(known).find(text):
        written = known.get(matching_form(text[start:end])) or known.get(term, "")
        capital = text[start:end] != text[start:end].lower()
        if cased and not capital and written != written.lower():
            continue
        if matching_form(written) in _HOMOGRAPHS and not (
            cased and capital and not _SENTENCE_START.search(text[:start])
        ):
            continue
        yield start, end


def _tells(word: str) -> bool:
    """Whether a name, or a word of one, tells somebody from everybody else."""
    parts = [part.strip(".,:") for part in matching_form(word).split()]
    return (
        _SHORTEST <= len(word) <= MAX_USER_WORD
        and any(map(str.isalpha, word))
        and not all(part in _ROLES for part in parts)
    )


_OTHERS_LIKELY = 0.3  # of such hits that came first 1 in 20 was right, of the others one in two


@dataclass(slots=True)
class IndexScores:
    """Evidence of one leg.

    Attributes:
        raw: Cosine or BM25 of each row; a row without a matching word is not in it.
        score: The same on the common scale.
        ranking: The leg's own list, best first.
        evidence: What the row's raw score tells by itself, in [0, 1], whatever rule fuses the legs.
        coverage: Share of the query's information each row matched; of the keyword leg only.
        code_rarity: Rarity of the rarest code of the question that each row holds; of the keyword leg only.
    """

    raw: dict[int, float] = field(default_factory=dict)
    score: dict[int, float] = field(default_factory=dict)
    ranking: list[int] = field(default_factory=list)
    evidence: dict[int, float] = field(default_factory=dict)
    coverage: dict[int, float] = field(default_factory=dict)
    code_rarity: dict[int, float] = field(default_factory=dict)

    def said_of(self, row: int, ranks: Mapping[int, int]) -> IndexEvidence | None:
        """What the leg says of a row, if anything."""
        if row not in self.raw:
            return None
        return IndexEvidence(rank=ranks.get(row), raw=self.raw[row], score=self.score[row])


class KeywordMatch(NamedTuple):
    """What a row holds of the question's words; see the fields of the same names of `Leg`."""

    raw: float
    coverage: float
    code_rarity: float


def match_rows(scorer: Scorer, codes: Collection[str], rows: Iterable[ScoringRow]) -> dict[int, KeywordMatch]:
    """What each of the rows holds of the question's words; rows without any are left out.

    Args:
        scorer: BM25 over the scope.
        codes: Terms of the codes that the question names.
        rows: Candidates.
    """
    rarities = [(rarity, f" {code} ") for code in codes if (rarity := scorer.rarity("words", code))]
    rarities.sort(reverse=True)
    found = {}
    for stored in rows:
        lines = dict(zip(FIELDS, stored.terms.split("\n"), strict=True))
        value, held = scorer.score_lines(lines, dict(zip(FIELDS, stored.lengths.split(" "), strict=True)))
        if value > 0:
            line = f" {lines['words']} "
            code_rarity = (
                next((rarity for rarity, code in rarities if code in line), 0.0) if rarities else 0.0
            )
            found[stored.row] = KeywordMatch(value, scorer.coverage(held), code_rarity)
    return found


def score_keywords(
    request: SearchRequest,
    scorer: Scorer,
    word: float,
    read: Mapping[int, KeywordMatch],
    live: Mapping[int, ScoringRow],
    wanted: int,
) -> IndexScores:
    """The keyword leg's evidence.

    Args:
        request: What was asked.
        scorer: BM25 over the scope.
        word: Query weight of one plain word.
        read: What each row holds of the words.
        live: The candidates.
        wanted: Length of the leg's list.
    """
    raw = {row: found.raw for row, found in read.items()}
    unit = word * scorer.rarest
    told = {
        row: keyword_evidence(found.raw / unit, found.coverage, found.code_rarity) if unit else 0.0
        for row, found in read.items()
    }
    score = told
    if not request.is_adaptive:
        score = {row: calibrate_bm25(value, scorer.maximum) for row, value in raw.items()}
    coverage = {row: found.coverage for row, found in read.items()}
    code_rarity = {row: found.code_rarity for row, found in read.items() if found.code_rarity}
    return IndexScores(raw, score, _ranked(raw, live, wanted), told, coverage, code_rarity)


def score_vectors(request: SearchRequest, live: Mapping[int, ScoringRow], wanted: int) -> IndexScores:
    """The vector leg's evidence."""
    if not live or request.vector is None:
        return IndexScores()
    measured = cosines(unpack_vectors([row.vector for row in live.values()]), request.vector)
    raw = dict(zip(live, measured.tolist(), strict=True))
    near = {row: calibrate_cosine(value, request.lowest) for row, value in raw.items()}
    score = {row: calibrate_cosine(value, request.background) for row, value in raw.items()}
    return IndexScores(raw, score, _ranked(raw, live, wanted), near)


def index_weights(vector: IndexScores, keyword: IndexScores) -> Weights:
    """Share of each leg, chosen for this query."""
    best = keyword.ranking[0] if keyword.ranking else None
    near = [vector.evidence[row] for row in vector.ranking]
    return adaptive_weights(
        near,
        None if best is None else (vector.evidence.get(best, 0.0), keyword.coverage[best]),
        max(keyword.code_rarity.values(), default=0.0),
    )


def fuse_scores(
    request: SearchRequest, weights: Weights, vector: IndexScores, keyword: IndexScores
) -> dict[int, float]:
    """What the legs come to together, by row."""
    if request.mode == "vector":
        return {row: vector.score[row] for row in vector.ranking}
    if request.mode == "keyword":
        return {row: keyword.score[row] for row in keyword.ranking}
    if request.fusion == "adaptive":  # every candidate was scored by both legs: no list is cut
        return convex(vector.evidence, keyword.evidence, weights)
    if request.fusion == "convex":
        return convex(vector.score, keyword.score, weights)
    lists = [[(row, leg.score[row]) for row in leg.ranking] for leg in (vector, keyword)]
    return fuse(request.fusion, lists, weights)


def confidences(
    rows: Sequence[int],
    vector: IndexScores,
    keyword: IndexScores,
    live: Mapping[int, ScoringRow],
    others: Collection[int] = (),
) -> dict[int, float]:
    """How likely each of the rows answers the question; see `fusion.confidence`.

    What others say counts in full as a rival: words that fit better, of somebody who was not asked for, are a sign that
    the question has no answer.

    Args:
        rows: The rows wanted.
        vector: The vector leg.
        keyword: The keyword leg.
        live: The candidates.
        others: Those of the candidates that somebody else says than the one who was asked for.
    """
    tells = {
        row: combined_evidence(vector.evidence.get(row, 0.0), keyword.evidence.get(row, 0.0)) for row in live
    }
    best: dict[int, float] = {}
    for row, stored in live.items():
        best[stored.document] = max(tells[row], best.get(stored.document, 0.0))
    leaders = sorted(best.values(), reverse=True)[:2]
    crowd = vector.ranking[:SCALED]
    lowest = vector.evidence[crowd[-1]] if crowd else 0.0
    found = {}
    for row in rows:
        near, words = vector.evidence.get(row, 0.0), keyword.evidence.get(row, 0.0)
        rival = leaders[-1] if best[live[row].document] == leaders[0] else leaders[0]
        lead = tells[row] - rival if len(leaders) > 1 else 0.0
        apart = (near - lowest) * len(crowd) / SCALED  # to stand out from a handful says less
        likely = confidence(words, apart, lead) if near or words else 0.0
        found[row] = likely * _OTHERS_LIKELY if row in others else likely
    return found


def _ranked(raw: Mapping[int, float], live: Mapping[int, ScoringRow], wanted: int) -> list[int]:
    return sorted(raw, key=lambda row: (-raw[row], live[row].document, live[row].ordinal))[:wanted]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the legs found, scored exactly by both.

    Attributes:
        live: Each candidate by its row.
        vector: What the vector leg says of them.
        keyword: What the keyword leg says of them.
        scorer: BM25 over the scope; None where the keyword leg did not answer.
    """

    live: Mapping[int, ScoringRow]
    vector: IndexScores
    keyword: IndexScores
    scorer: Scorer | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates in one order.

    Attributes:
        weights: Share of each leg.
        scores: What each row comes to.
        lifts: Of that, what being recent added; empty when it was not asked for.
        others: Row → who was asked for, of the rows that another speaker says.
        order: All rows, best first.
        best: Those that reach the threshold, capped per document, as many as are wanted.
    """

    weights: Weights
    scores: Mapping[int, float]
    recency_boosts: Mapping[int, float]
    other_speakers: Mapping[int, str]
    order: list[int]
    best: list[int]


def rank(connection: sqlite3.Connection, request: SearchRequest, found: Candidates) -> Ranking:
    """Put the candidates in order; ties by cosine, then in document order."""
    live, near = found.live, found.vector.raw
    weights = request.weights or index_weights(found.vector, found.keyword)
    scores = fuse_scores(request, weights, found.vector, found.keyword)
    others = _said_by_others(connection, request, live)
    scores |= {row: scores[row] * OTHER_SPEAKER_FACTOR for row in others.keys() & scores.keys()}
    lifts = _lifts(connection, request, live, scores)
    scores |= {row: min(1.0, scores[row] + lift) for row, lift in lifts.items()}
    order = sorted(
        scores,
        # what is no closer than unrelated text scores 0, yet of two such passages the nearer one comes first
        key=lambda row: (-scores[row], -near.get(row, -1.0), live[row].document, live[row].ordinal),
    )
    good = ((row, live[row].document) for row in order if scores[row] >= request.score_threshold)
    best = cap_per_group(good, request.max_per_document)[: request.pool]
    return Ranking(weights, scores, lifts, others, order, best)


def _said_by_others(
    connection: sqlite3.Connection, request: SearchRequest, live: Mapping[int, ScoringRow]
) -> dict[int, str]:
    told = {row: stored.document for row, stored in live.items() if not stored.terms.endswith("\n")}
    if not told:  # no candidate has a context, so nobody speaks
        return {}
    speakers = document_speakers(connection, list(set(told.values())))
    rows = {row: speakers[document] for row, document in told.items() if document in speakers}
    return other_speakers(request.searched, rows)


def _lifts(
    connection: sqlite3.Connection,
    request: SearchRequest,
    live: Mapping[int, ScoringRow],
    scores: Mapping[int, float],
) -> dict[int, float]:
    if request.recency is None:
        return {}
    times = document_times(connection, list({live[row].document for row in scores}))
    return {
        row: recency_boost(score, request.now - times[live[row].document], request.recency)
        for row, score in scores.items()
        if live[row].document in times
    }


def cap_per_group(rows: Iterable[tuple[_Row, Hashable]], most: int | None) -> list[_Row]:
    """The rows in their order, without those whose group had its share already.

    Args:
        rows: (row, group), best first.
        most: Largest number of rows of one group; None for no limit.
    """
    counts: Counter[Hashable] = Counter()
    kept = []
    for row, group in rows:
        counts[group] += 1
        if most is None or counts[group] <= most:
            kept.append(row)
    return kept
