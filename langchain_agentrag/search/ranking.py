"""Ranking of the candidates: exact scores in both indexes, fused score, speakers, recency, limits, confidence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.fusion import (
    SPREAD_DEPTH,
    VECTOR_SHARE,
    Weights,
    adaptive_weights,
    calibrate_bm25,
    calibrate_cosine,
    clip,
    fuse,
    keyword_evidence,
)
from langchain_agentrag.search.options import PreparedQuery
from langchain_agentrag.store.columnar_cache import cosines, unpack_vectors
from langchain_agentrag.store.queries import ScoringRow, document_speakers, document_times
from langchain_agentrag.text import FIELDS
from langchain_agentrag.text.analyzer import MAX_USER_WORD, UserWords, matching_form
from langchain_agentrag.text.tokenizer import ENGLISH_STOP_WORDS, fold, word_list
from langchain_agentrag.types import IndexEvidence

if TYPE_CHECKING:
    import sqlite3

_Row = TypeVar("_Row")

_OTHER_SPEAKER_CONFIDENCE = 0.3  # such hits at rank 1 were right 1 time in 20, others 1 time in 2

OTHER_SPEAKER_FACTOR = 0.7
"""Factor for the score of a passage said by another speaker than the query names. `benchmarks/quality.py`: locomo gains
.03; of the answers at rank 1 from another speaker, 1 in 20 was right."""


@dataclass(slots=True)
class IndexScores:
    """Scores of the candidates in one index.

    Attributes:
        raw: Row → cosine or BM25; a row without a matching term has no BM25.
        score: Row → calibrated score, in [0, 1].
        ranking: Rows of the index's own ranking, best first.
        evidence: Row → calibrated score of the adaptive rule, in [0, 1], whatever the fusion rule of the request.
        coverage: Row → share of the query's information that it matches; keyword index only.
        code_rarity: Row → rarity of the rarest code of the query that it contains; keyword index only.
    """

    raw: dict[int, float] = field(default_factory=dict)
    score: dict[int, float] = field(default_factory=dict)
    ranking: list[int] = field(default_factory=list)
    evidence: dict[int, float] = field(default_factory=dict)
    coverage: dict[int, float] = field(default_factory=dict)
    code_rarity: dict[int, float] = field(default_factory=dict)

    def evidence_of(self, row: int, ranks: Mapping[int, int]) -> IndexEvidence | None:
        """Return rank and score of a row; None when the index has no score for it."""
        if row not in self.raw:
            return None
        return IndexEvidence(rank=ranks.get(row), raw=self.raw[row], score=self.score[row])


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates of both indexes with exact scores in each.

    Attributes:
        live: Row → candidate.
        vector: Scores in the vector index.
        keyword: Scores in the keyword index.
        scorer: BM25 over the scope; None when the keyword index was not used or failed.
    """

    live: Mapping[int, ScoringRow]
    vector: IndexScores
    keyword: IndexScores
    scorer: Scorer | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates in their final order.

    Attributes:
        weights: Weight of each index, (vector, keyword).
        scores: Row → fused score.
        returned: Row → the score that the request asks for, which its threshold applies to.
        recency_boosts: Row → part of the score that recency added.
        other_speakers: Row → speakers named by the query, for rows of other speakers.
        order: All rows, best first.
        best: The first `fetch_k` rows that reach the threshold, at most `max_per_document` of each document.
    """

    weights: Weights
    scores: Mapping[int, float]
    returned: Mapping[int, float]
    recency_boosts: Mapping[int, float]
    other_speakers: Mapping[int, str]
    order: list[int]
    best: list[int]


def rank(connection: sqlite3.Connection, query: PreparedQuery, candidates: Candidates) -> Ranking:
    """Fuse the scores and sort the candidates; ties by cosine, then in document order."""
    request, live = query.request, candidates.live
    weights = request.weights or index_weights(candidates.vector, candidates.keyword)
    scores = fuse_scores(query, weights, candidates.vector, candidates.keyword)
    others = _rows_of_other_speakers(connection, query, live)
    scores |= {row: scores[row] * OTHER_SPEAKER_FACTOR for row in others.keys() & scores.keys()}
    boosts = _recency_boosts(connection, query, live, scores)
    scores |= {row: min(1.0, scores[row] + boost) for row, boost in boosts.items()}
    order = _ordered(scores, candidates.vector.raw, live)
    returned: Mapping[int, float] = scores
    if request.score != "fused":
        raw = candidates.vector.raw if request.score == "cosine" else candidates.keyword.raw
        returned = {row: raw.get(row, 0.0) for row in scores}
    threshold = request.score_threshold
    good = ((row, live[row].document) for row in order if threshold is None or returned[row] >= threshold)
    best = cap_per_group(good, request.max_per_document)[: request.fetch_k]
    return Ranking(weights, scores, returned, boosts, others, order, best)


def cap_per_group(rows: Iterable[tuple[_Row, Hashable]], limit: int | None) -> list[_Row]:
    """Return the rows in order, at most `limit` of each group.

    Args:
        rows: (row, group), best first.
        limit: Most rows of one group; None for no limit.
    """
    counts: Counter[Hashable] = Counter()
    kept = []
    for row, group in rows:
        counts[group] += 1
        if limit is None or counts[group] <= limit:
            kept.append(row)
    return kept


def _ordered(scores: Mapping[int, float], cosine: Mapping[int, float], live: Mapping[int, ScoringRow]) -> list[int]:
    return sorted(
        scores,
        # a passage no closer than unrelated text scores 0; of two such passages the nearer one comes first
        key=lambda row: (-scores[row], -cosine.get(row, -1.0), live[row].document, live[row].ordinal),
    )


def _rows_of_other_speakers(
    connection: sqlite3.Connection, query: PreparedQuery, live: Mapping[int, ScoringRow]
) -> dict[int, str]:
    documents = {row: chunk.document for row, chunk in live.items() if not chunk.terms.endswith("\n")}
    if not documents:  # no candidate has a context, so none has a speaker
        return {}
    speakers = document_speakers(connection, list(set(documents.values())))
    rows = {row: speakers[document] for row, document in documents.items() if document in speakers}
    return other_speakers(query.text, rows)


MAX_RECENCY_BOOST = 0.1
"""Largest relative increase of a score by recency."""


def recency_boost(score: float, age: timedelta, half_life: timedelta) -> float:
    """Amount that recency adds to a score: `MAX_RECENCY_BOOST * 2 ** (-age / half_life) * score * (1 - score)`.

    It is below a tenth of the score and 0 at scores of 0 and 1, so only hits of similar score change places and scores
    stay in [0, 1]. It keeps the order of documents of the same age.

    Args:
        score: Fused score, in [0, 1].
        age: Time since the document's date; a date in the future counts as 0.
        half_life: Age at which the boost is halved, > 0.
    """
    halvings = min(max(age, timedelta(0)) / half_life, 1_000.0)
    return MAX_RECENCY_BOOST * float(0.5**halvings) * score * (1.0 - score)


def _recency_boosts(
    connection: sqlite3.Connection, query: PreparedQuery, live: Mapping[int, ScoringRow], scores: Mapping[int, float]
) -> dict[int, float]:
    recency, now = query.request.recency, query.request.now
    if recency is None:
        return {}
    times = document_times(connection, list({live[row].document for row in scores}))
    return {
        row: recency_boost(score, now - times[live[row].document], recency)
        for row, score in scores.items()
        if live[row].document in times
    }


# -- scores in each index -------------------------------------------------------------------------------------------


class KeywordMatch(NamedTuple):
    """BM25 of a row and what it matches of the query; see the attributes of the same names of `IndexScores`."""

    raw: float
    coverage: float
    code_rarity: float


def match_rows(scorer: Scorer, codes: Collection[str], rows: Iterable[ScoringRow]) -> dict[int, KeywordMatch]:
    """Return row → keyword match; rows without a matching term are left out.

    Args:
        scorer: BM25 over the scope.
        codes: Terms of the codes in the query.
        rows: Candidates.
    """
    rarities = [(rarity, f" {code} ") for code in codes if (rarity := scorer.rarity("words", code))]
    rarities.sort(reverse=True)
    matches = {}
    for candidate in rows:
        lines = dict(zip(FIELDS, candidate.terms.split("\n"), strict=True))
        lengths = dict(zip(FIELDS, candidate.lengths.split(" "), strict=True))
        score, gain = scorer.score_lines(lines, lengths)
        if score > 0:
            words = f" {lines['words']} "
            rarity = next((rarity for rarity, code in rarities if code in words), 0.0) if rarities else 0.0
            matches[candidate.row] = KeywordMatch(score, scorer.coverage(gain), rarity)
    return matches


def score_keywords(
    query: PreparedQuery,
    scorer: Scorer,
    word_weight: float,
    matches: Mapping[int, KeywordMatch],
    live: Mapping[int, ScoringRow],
    limit: int,
) -> IndexScores:
    """Return the scores in the keyword index.

    Args:
        query: The prepared query.
        scorer: BM25 over the scope.
        word_weight: Query weight of one plain word.
        matches: Row → keyword match.
        live: The candidates.
        limit: Length of the ranking.
    """
    raw = {row: match.raw for row, match in matches.items()}
    unit = word_weight * scorer.rarest
    evidence = {
        row: keyword_evidence(match.raw / unit, match.coverage, match.code_rarity) if unit else 0.0
        for row, match in matches.items()
    }
    score = evidence
    if not query.request.is_adaptive:
        score = {row: calibrate_bm25(value, scorer.maximum) for row, value in raw.items()}
    coverage = {row: match.coverage for row, match in matches.items()}
    code_rarity = {row: match.code_rarity for row, match in matches.items() if match.code_rarity}
    return IndexScores(raw, score, _index_ranking(raw, live, limit), evidence, coverage, code_rarity)


def score_vectors(query: PreparedQuery, live: Mapping[int, ScoringRow], limit: int) -> IndexScores:
    """Return the scores in the vector index: exact cosines of all candidates."""
    if not live or query.vector is None:
        return IndexScores()
    measured = cosines(unpack_vectors([row.vector for row in live.values()]), query.vector)
    raw = dict(zip(live, measured.tolist(), strict=True))
    evidence = {row: calibrate_cosine(value, query.lowest_background) for row, value in raw.items()}
    score = {row: calibrate_cosine(value, query.background) for row, value in raw.items()}
    return IndexScores(raw, score, _index_ranking(raw, live, limit), evidence)


def _index_ranking(raw: Mapping[int, float], live: Mapping[int, ScoringRow], limit: int) -> list[int]:
    return sorted(raw, key=lambda row: (-raw[row], live[row].document, live[row].ordinal))[:limit]


# -- fusion and confidence ------------------------------------------------------------------------------------------


def index_weights(vector: IndexScores, keyword: IndexScores) -> Weights:
    """Return the weight of each index, chosen for this query."""
    best = keyword.ranking[0] if keyword.ranking else None
    return adaptive_weights(
        [vector.evidence[row] for row in vector.ranking],
        None if best is None else (vector.evidence.get(best, 0.0), keyword.coverage[best]),
        max(keyword.code_rarity.values(), default=0.0),
    )


def fuse_scores(query: PreparedQuery, weights: Weights, vector: IndexScores, keyword: IndexScores) -> dict[int, float]:
    """Return row → fused score."""
    request = query.request
    if request.mode == "vector":
        return {row: vector.score[row] for row in vector.ranking}
    if request.mode == "keyword":
        return {row: keyword.score[row] for row in keyword.ranking}
    if request.fusion == "adaptive":
        rankings = [list(index.evidence.items()) for index in (vector, keyword)]
    elif request.fusion == "convex":
        rankings = [list(index.score.items()) for index in (vector, keyword)]
    else:
        rankings = [[(row, index.score[row]) for row in index.ranking] for index in (vector, keyword)]
    return fuse(request.fusion, rankings, weights)


def confidence(keyword: float, margin: float, lead: float) -> float:
    """Estimated probability that a passage answers the query, in (0, 1).

    A logistic function that rises with each of its three features. Coefficients are rounded from a fit to the first
    hits of nine collections, and to queries whose answer lies in another collection, leaving out one collection at a
    time (`benchmarks/quality.py --confidence`).

    Args:
        keyword: `keyword_evidence` of the passage.
        margin: Its calibrated cosine above that of the 30th nearest passage.
        lead: Its `combined_evidence` above that of the best other document, 0 if it is behind.
    """
    features = 3.6 * clip(keyword) + 2.6 * min(1.0, clip(lead) / 0.2) + 2.2 * min(1.0, clip(margin) / 0.3)
    return 1.0 / (1.0 + math.exp(3.1 - features))


def combined_evidence(cosine: float, keyword: float) -> float:
    """Evidence of both indexes with the default weights, in [0, 1]: 0.7 of the cosine, 0.3 of the keyword evidence."""
    return VECTOR_SHARE * cosine + (1.0 - VECTOR_SHARE) * keyword


def confidences(rows: Sequence[int], candidates: Candidates, other_speakers: Collection[int] = ()) -> dict[int, float]:
    """Return row → probability that it answers the question; see `confidence`.

    Passages of other speakers count in full as rivals: if they match better, the question may have no answer.

    Args:
        rows: Rows to compute it for.
        candidates: All candidates.
        other_speakers: Rows said by another speaker than the query names.
    """
    live, vector, keyword = candidates.live, candidates.vector.evidence, candidates.keyword.evidence
    evidence = {row: combined_evidence(vector.get(row, 0.0), keyword.get(row, 0.0)) for row in live}
    best: dict[int, float] = {}
    for row, chunk in live.items():
        best[chunk.document] = max(evidence[row], best.get(chunk.document, 0.0))
    leaders = sorted(best.values(), reverse=True)[:2]
    nearest = candidates.vector.ranking[:SPREAD_DEPTH]
    lowest = vector[nearest[-1]] if nearest else 0.0
    confidence_by_row = {}
    for row in rows:
        cosine, terms = vector.get(row, 0.0), keyword.get(row, 0.0)
        rival = leaders[-1] if best[live[row].document] == leaders[0] else leaders[0]
        lead = evidence[row] - rival if len(leaders) > 1 else 0.0
        margin = (cosine - lowest) * len(nearest) / SPREAD_DEPTH  # a margin over few passages says less
        likely = confidence(terms, margin, lead) if cosine or terms else 0.0
        confidence_by_row[row] = likely * _OTHER_SPEAKER_CONFIDENCE if row in other_speakers else likely
    return confidence_by_row


# -- speakers -------------------------------------------------------------------------------------------------------

_ROLES = word_list("speaker_roles")
_MAX_NAME_LENGTH = 200  # characters; nobody has a longer name
_MIN_NAME_LENGTH = 2  # characters; a single one occurs in every other question
_HOMOGRAPHS = ENGLISH_STOP_WORDS | {"may"}  # function words that are also names: Will, May
_WORD_OR_SENTENCE_END = re.compile(r"[\w.!?。！？]")


def named_speakers(query: str, speakers: Iterable[str]) -> set[str]:
    """Return the speakers that a query names, by the whole name or one word of it.

    Roles ("user", "客服", "Dr."), single characters and numbers are not names. A capitalized name is not matched by a
    lower-case word, unless the query has no capitals at all; a name that is also a function word ("Will") must be
    capitalized inside a sentence. Of overlapping names the longer one is meant.
    """
    text = fold(query)
    by_span: dict[tuple[int, int], set[str]] = {}
    for speaker in speakers:
        for span in _mentions(text, speaker):
            by_span.setdefault(span, set()).add(speaker)
    named: set[str] = set()
    furthest = 0  # end of the spans that start here or before, of those that start here only the longer ones
    for start, end in sorted(by_span, key=lambda span: (span[0], -span[1])):
        if end > furthest:
            named |= by_span[start, end]
            furthest = end
    return named


def other_speakers(query: str, speakers: Mapping[int, str]) -> dict[int, str]:
    """Return row → speakers named by the query, for the rows of other speakers; empty when it names nobody.

    Args:
        query: The question.
        speakers: Row → speaker, for rows that have one.
    """
    named = named_speakers(query, set(speakers.values()))
    if not named:
        return {}
    names = ", ".join(sorted(named))
    return {row: names for row, speaker in speakers.items() if speaker not in named}


def _mentions(text: str, speaker: str) -> Iterator[tuple[int, int]]:
    """Spans of a folded query that name the speaker."""
    name = fold(speaker[:_MAX_NAME_LENGTH]).strip()
    words = [name, *(part for part in name.split() if name.islower() or not part.islower())]
    known = {matching_form(word): word for word in words if _is_name(word)}
    if not known:
        return
    cased = not (text.islower() or text.isupper())
    for term, start, end in UserWords(known).find(text):
        written = known.get(matching_form(text[start:end])) or known.get(term, "")
        capital = text[start:end] != text[start:end].lower()
        if cased and not capital and written != written.lower():
            continue
        if matching_form(written) in _HOMOGRAPHS and not (cased and capital and not _starts_sentence(text, start)):
            continue
        yield start, end


def _starts_sentence(text: str, position: int) -> bool:
    """Return whether no word stands between the position and the end of the sentence before, or the text's start."""
    while position and not _WORD_OR_SENTENCE_END.match(text, position - 1):
        position -= 1
    return not position or text[position - 1] in ".!?。！？"


def _is_name(word: str) -> bool:
    """Whether a name, or one word of it, identifies a speaker: no role, no number, no single letter."""
    parts = [part.strip(".,:") for part in matching_form(word).split()]
    return (
        _MIN_NAME_LENGTH <= len(word) <= MAX_USER_WORD
        and any(map(str.isalpha, word))
        and not all(part in _ROLES for part in parts)
    )


_OTHERS_LIKELY = 0.3  # of such hits that came first 1 in 20 was right, of the others one in two
