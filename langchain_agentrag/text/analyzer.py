"""Analyzer: index terms and weighted query terms of a text, with user words, synonyms and stop words."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text.numerals import NUMERAL_CHARACTERS, number_variants
from langchain_agentrag.text.tokenizer import (
    BIGRAM_SCRIPT,
    EMOJI,
    HAN,
    RUNS,
    STOP_WORDS,
    FoldedText,
    Segmenter,
    SegmenterBackend,
    bigrams,
    code_terms,
    fold,
    fold_case,
    get_segmenter,
    is_code,
    segment,
    to_simplified,
    word_terms,
)

MAX_USER_WORD = 100
"""Longest user word, in characters after folding."""

_MIN_SYNONYMS = 2  # words of a group
_SPACE = re.compile(r"\s+")
_HAN_CHARACTERS = re.compile("[\u3400-\u9fff\U00020000-\U000323af]+")
_SPACED_CHARACTER = re.compile(
    r"[^\W\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af]"
)


# ---- User words and synonyms ----


class UserWords:
    """Dictionary of user words: domain terms that are matched as a unit, whatever characters they consist of.

    They are matched in the folded text and added to the other terms, so a user word never removes a term from a
    text, and a Latin one never splits a longer word.

    Attributes:
        words: The words in folded form, sorted.

    Raises:
        UsageError: a word is not text, has no letter or digit, or is too long.
    """

    def __init__(self, words: Iterable[str]) -> None:
        if isinstance(words, str) or not isinstance(words, Iterable):
            raise UsageError(f"user_words must be a collection of words, got {words!r}: pass a list of words.")
        self._words = {_check_user_word(word) for word in words}
        self.words = tuple(sorted(self._words))
        lengths: dict[str, set[int]] = {}
        for word in self._words:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        self._first_characters = re.compile("[" + re.escape("".join(self._lengths)) + "]") if self._words else None

    def find(self, folded: str) -> list[tuple[str, int, int]]:
        """Return the occurrences in a folded text as (term, start, end), by their start, with overlaps."""
        if self._first_characters is None:
            return []
        text = matching_form(folded)
        return [
            (_SPACE.sub("_", text[start:end]), start, end)
            for match in self._first_characters.finditer(text)
            for start in (match.start(),)
            for end in (start + size for size in self._lengths[match[0]])
            if text[start:end] in self._words and not _splits_word(text, start, end)
        ]


def matching_form(folded: str) -> str:
    """Return a folded text in lower case and simplified characters, with the same length."""
    if folded.isascii():
        return folded.lower()
    lower = folded.lower()
    if len(lower) != len(folded):
        lower = "".join(low if len(low := character.lower()) == 1 else character for character in folded)
    return _HAN_CHARACTERS.sub(lambda run: to_simplified(run[0]), lower)


def _check_user_word(word: object) -> str:
    if not isinstance(word, str):
        raise UsageError(f"A user word must be a string, got {type(word).__name__}: pass the words as text.")
    folded = matching_form(_SPACE.sub(" ", fold(word).strip()))
    if not any(character.isalnum() for character in folded):
        raise UsageError(f"User word {word!r} has no letter or digit to search for: remove it.")
    if len(folded) > MAX_USER_WORD:
        raise UsageError(f"User word {word[:40]!r}… is {len(folded)} characters long: shorten it to {MAX_USER_WORD}.")
    return folded


def _splits_word(text: str, start: int, end: int) -> bool:
    """Return whether the start or end of a span lies inside a word of a script with word spaces."""
    spaced = _SPACED_CHARACTER.match
    return bool(
        (start > 0 and spaced(text[start]) and spaced(text[start - 1]))
        or (end < len(text) and spaced(text[end - 1]) and spaced(text[end]))
    )


class Synonyms:
    """Synonym groups: a query with one word of a group also matches the others.

    Examples: ("k8s", "Kubernetes"), ("退款", "refund").

    Attributes:
        groups: The groups in folded form, sorted.
        alternatives: Word -> its synonyms.

    Raises:
        UsageError: a group has fewer than two different words, or a word could never be found.
    """

    def __init__(self, groups: Iterable[Iterable[str]]) -> None:
        if isinstance(groups, str) or not isinstance(groups, Iterable):
            raise UsageError(f"synonyms must be groups of words, got {groups!r}: pass a list of lists.")
        self.groups = tuple(sorted({_check_synonyms(group) for group in groups}))
        self._dictionary = UserWords(word for group in self.groups for word in group)
        self.alternatives: dict[str, tuple[str, ...]] = {}
        for group in self.groups:
            for word in group:
                others = (*self.alternatives.get(word, ()), *(other for other in group if other != word))
                self.alternatives[word] = tuple(dict.fromkeys(others))

    def find(self, folded: str) -> set[str]:
        """Return the words with synonyms that occur in a folded text."""
        terms = {term for term, _, _ in self._dictionary.find(folded)}
        return {word for word in self.alternatives if word.replace(" ", "_") in terms}


def _check_synonyms(words: Iterable[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError(f"A group of synonyms must be words, got {words!r}: pass a list of words.")
    group = UserWords(words).words
    if len(group) < _MIN_SYNONYMS:
        raise UsageError(f"Synonym group {group!r} has fewer than two different words: add another word.")
    return group


# ---- Analyzer ----

_VERSION = 1  # raised whenever the same text gives other index terms; part of the fingerprint
_PAIR = 2  # characters; a word of two contains no shorter word

FIELDS: tuple[str, ...] = ("words", "grams", "context")
"""Fields of an analyzed text; each has its own length."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of query terms. They change rankings, never the index, so the fingerprint does not contain them.

    A Chinese word of two characters is matched by the word, the pair and both characters; a word of another
    script by itself alone. `spaced` compensates for that; without it, names and codes in mixed text count too
    little. Measured by `benchmarks/analyzer.py` over eight collections: every value can change by a third
    without losing more than 0.01 nDCG anywhere, so the values are round.

    Attributes:
        words: A Chinese word.
        inner: A shorter word inside a Chinese word.
        grams: A pair of Han characters.
        characters: A single Han character.
        spaced: A word of a script with word spaces, a compound as a whole, a user word.
        parts: Factor for a part of a compound or of a CamelCase name.
        codes: Factor for a code as a whole: a name with a digit, a version, an address, a long number. A query
            for E1102 means that code, however similar a passage on E1103 is to the rest of the query.
        context: Factor for the same term in the context field.
        repeats: Saturation of a term's repetition in the query: k3 of BM25; 0 counts it once.
        synonyms: Factor for the terms of synonyms and of other forms of a number.
    """

    words: float = 1.0
    inner: float = 0.2
    grams: float = 1.0
    characters: float = 1.0
    spaced: float = 3.0
    parts: float = 0.5
    codes: float = 2.5
    context: float = 0.2
    repeats: float = 1.2
    synonyms: float = 0.8


_DEFAULT_WEIGHTS = Weights()

QueryTerms = Mapping[str, Mapping[str, float]]
"""Field -> term -> weight (> 0)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Index terms of a text.

    Attributes:
        words: Words, identifiers as a whole and in parts, words inside words; each as often as it occurs.
        grams: Pairs of Han characters and single characters.
        context: Words and grams of the context.
        lengths: Field -> length for BM25, in positions: a word inside a word, a compound or a pair of characters
            overlaps positions counted already. Never more than the number of terms.
    """

    words: list[str]
    grams: list[str]
    context: list[str]
    lengths: Mapping[str, int]


class Analyzer:
    """Converts texts and queries to terms, deterministically. Thread-safe.

    Args:
        user_words: Terms matched as a unit, of any characters: "云帆科技", "*ST云帆", "Blue Moon认证".
        stop_words: Words dropped from queries; None for the built-in Chinese and English list.
        synonyms: Groups of words that a query treats as equal, in any language: [("k8s", "Kubernetes")].
        backend: Chinese segmenter; "auto" takes rjieba where it is installed and jieba elsewhere.
        weights: Weights of query terms.

    Raises:
        UsageError: a user word or synonym that could never be found, words that are not a collection, an unknown
            backend.
    """

    def __init__(
        self,
        *,
        user_words: Iterable[str] = (),
        stop_words: Iterable[str] | None = None,
        synonyms: Iterable[Iterable[str]] = (),
        backend: SegmenterBackend = "auto",
        weights: Weights = _DEFAULT_WEIGHTS,
    ) -> None:
        backends = get_args(SegmenterBackend)
        if backend not in backends:
            raise UsageError(f"Unknown segmenter backend {backend!r}: choose one of {', '.join(backends)}.")
        self._user_words = UserWords(user_words)
        self._stop_words = _check_stop_words(stop_words)
        self._synonyms = Synonyms(synonyms)
        self._backend = backend
        self._weights = weights

    @cached_property
    def _segmenter(self) -> Segmenter:
        return get_segmenter(self._backend)

    @cached_property
    def fingerprint(self) -> str:
        """Short text that differs whenever index terms may differ.

        It covers the user words and, by the terms of a probe text, the installed stemmer, segmenter and converter.
        Stop words, weights and the choice between equal backends do not change the index.
        """
        probe = self.analyze(_PROBE)
        content = "\n".join((*self._user_words.words, "", *probe.words, "", *probe.grams))
        return f"a{_VERSION}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that a store keeps to create the same analyzer again, as JSON; without weights and backend."""
        custom = None if self._stop_words == STOP_WORDS else sorted(self._stop_words)
        synonyms = [list(group) for group in self._synonyms.groups]
        return {"user_words": list(self._user_words.words), "stop_words": custom, "synonyms": synonyms}

    @property
    def word_weight(self) -> float:
        """Query weight of one plain word: the unit for how much a query and a chunk have in common."""
        return self._weights.spaced

    def analyze(self, text: str, context: str = "") -> Terms:
        """Return the index terms of a chunk; its context (heading path, table header) has a field of its own."""
        words, grams, positions, characters = self._index_terms(text)
        context_terms: list[str] = []
        context_positions = 0
        if context:
            context_terms, context_grams, context_positions, _ = self._index_terms(context)
            context_words = set(context_terms)
            context_terms += [gram for gram in context_grams if gram not in context_words]
        lengths = {"words": positions, "grams": characters, "context": context_positions}
        return Terms(words, grams, context_terms, lengths)

    def _index_terms(self, text: str) -> tuple[list[str], list[str], int, int]:
        """Return words, grams, and the lengths of both fields."""
        folded = fold(text)
        words: list[str] = []
        grams: list[str] = []
        positions = characters = 0
        segmenter = self._segmenter
        for match in RUNS.finditer(folded):
            run, kind = match[0], match.lastindex
            if kind == HAN:
                run = to_simplified(run)
                run_words = segment(segmenter, run)
                positions += len(run_words)
                characters += len(run)
                words += run_words
                for word in run_words:
                    if len(word) > _PAIR:
                        words += segmenter.subwords(word)
                grams += run
                if len(run) > 1:
                    grams += bigrams(run)
            elif kind == BIGRAM_SCRIPT:
                words += bigrams(run)
                grams += run
                positions += max(len(run) - 1, 1)
                characters += len(run)
            elif kind == EMOJI:
                words.append(run)
                positions += 1
            else:
                for term in word_terms(run):
                    words.append(term.text)
                    positions += term.kind == "word"
        counts = Counter(term for term, _, _ in self._user_words.find(folded))
        for user_word, count in counts.items():
            words += [user_word] * (count - words.count(user_word))
        return words, grams, positions, characters

    def analyze_query(self, text: str, *, widen: bool = True) -> QueryTerms:
        """Return the weighted terms of a query per field, without stop words unless it has nothing else.

        Args:
            text: The query.
            widen: Whether to expand the query by synonyms and other forms of numbers (三十 for 30).
        """
        query = self._query_terms(text, self._stop_words)
        query = query if any(query.values()) else self._query_terms(text, frozenset())
        return self.widen(query, text) if widen else query

    def widen(self, query: QueryTerms, text: str) -> QueryTerms:
        """Expand a query by synonyms and other forms of its numbers; the larger weight of a term counts.

        Args:
            query: Result of `analyze_query(text, widen=False)`.
            text: The query.
        """
        expanded, text = {field: dict(terms) for field, terms in query.items()}, matching_form(fold(text))
        numbers = [] if NUMERAL_CHARACTERS.isdisjoint(text) else number_variants(text)
        variants = dict.fromkeys(numbers)
        from_numbers = frozenset(numbers)
        alternatives = self._synonyms.alternatives
        if alternatives:
            inflected = (word for word in alternatives if _contains_word(query, self._query_terms(word, frozenset())))
            matched = self._synonyms.find(text).union(inflected)
            variants |= dict.fromkeys(sorted({other for word in matched for other in alternatives[word]}))
        for variant in variants:
            for field, terms in self._query_terms(variant, frozenset()).items():
                for term, weight in terms.items():
                    if variant in from_numbers and len(term) == 1 and not term.isascii():
                        continue  # 十 alone is in every other text
                    expanded[field][term] = max(weight * self._weights.synonyms, expanded[field].get(term, 0.0))
        return expanded

    def codes(self, text: str) -> frozenset[str]:
        """Return the codes in a text, each as a whole: `E1102`, `v4.7.2`, `10.20.30.40`, a long number."""
        if not any(map(str.isdigit, text)):
            return frozenset()
        runs = RUNS.finditer(fold(text))
        words = (match[0] for match in runs if match.lastindex not in {HAN, BIGRAM_SCRIPT, EMOJI})
        return frozenset(code for word in words for code in code_terms(word))

    def _query_terms(self, text: str, stop_words: frozenset[str]) -> dict[str, dict[str, float]]:
        folded = fold(text)
        weights = self._weights
        words = _QueryField(weights.repeats)
        grams = _QueryField(weights.repeats)
        all_caps = folded.isupper()
        for match in RUNS.finditer(folded):
            run, kind = match[0], match.lastindex
            if kind == HAN:
                self._add_han_run(to_simplified(run), stop_words, words, grams)
            elif kind == BIGRAM_SCRIPT:
                for pair in bigrams(run):
                    words.add(pair, weights.spaced / 2)  # a word of these scripts has about two pairs
                if len(run) == 1:
                    grams.add(run, weights.grams)
            elif kind == EMOJI:
                words.add(run, weights.words)
            else:
                self._add_word_run(run, stop_words, words, all_caps=all_caps)
        for term, _, _ in self._user_words.find(folded):
            words.add(term, weights.spaced)
        fields = {"words": words.weights(), "grams": grams.weights()}
        context: dict[str, float] = {}
        for terms in fields.values():
            for term, weight in terms.items():
                context[term] = max(weight * weights.context, context.get(term, 0.0))
        return {**fields, "context": context}

    def _add_word_run(self, run: str, stop_words: frozenset[str], words: _QueryField, *, all_caps: bool) -> None:
        weights = self._weights
        terms = word_terms(run)
        has_compound = any(term.kind == "compound" for term in terms)
        for term in terms:
            surface = run[term.start : term.end]
            acronym = len(surface) > 1 and surface.isupper() and not all_caps  # IT is not it
            if acronym or _stop_word_form(surface) not in stop_words:
                whole = term.kind == "compound" or (term.kind == "word" and not has_compound)
                factor = 1.0 if whole else weights.parts
                if whole and is_code(term.text):
                    factor = weights.codes
                words.add(term.text, weights.spaced * factor)

    def _add_han_run(self, run: str, stop_words: frozenset[str], words: _QueryField, grams: _QueryField) -> None:
        weights = self._weights
        character_weight = weights.grams if len(run) == 1 else weights.characters
        in_content_word: list[bool] = []  # per character
        for word in segment(self._segmenter, run):
            content = word not in stop_words
            in_content_word += [content] * len(word)
            if content:
                words.add(word, weights.words)
                for character in word:
                    grams.add(character, character_weight)
                if len(word) > _PAIR:
                    for part in self._segmenter.subwords(word):
                        words.add(part, weights.inner)
        if len(run) > 1:
            for position, pair in enumerate(bigrams(run)):
                if in_content_word[position] or in_content_word[position + 1]:
                    grams.add(pair, weights.grams)

    def match_spans(self, text: str, terms: Collection[str]) -> list[tuple[int, int]]:
        """Return the spans of a text that match any of these index terms: merged and sorted, for highlights."""
        wanted = frozenset(terms)
        if not wanted:
            return []
        folded = FoldedText(text)
        sizes = sorted({len(term) for term in wanted if not term.isascii()}, reverse=True)
        spans: list[tuple[int, int]] = []
        for match in RUNS.finditer(folded.text):
            run, kind, offset = match[0], match.lastindex, match.start()
            if kind in {HAN, BIGRAM_SCRIPT}:
                run = to_simplified(run) if kind == HAN else run
                for at in range(len(run)):
                    size = next((size for size in sizes if run[at : at + size] in wanted), 0)
                    if size:
                        spans.append((offset + at, min(offset + at + size, match.end())))
            elif kind == EMOJI:
                if run in wanted:
                    spans.append(match.span())
            else:
                spans += [(offset + term.start, offset + term.end) for term in word_terms(run) if term.text in wanted]
        spans += [(start, end) for term, start, end in self._user_words.find(folded.text) if term in wanted]
        return _merge_spans(folded.original_span(start, end) for start, end in spans)


class _QueryField:
    """Weights of the distinct query terms of one field; repetition saturates as in the query part of BM25."""

    def __init__(self, k3: float) -> None:
        self._k3 = k3
        self._weights: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, term: str, weight: float) -> None:
        if weight > 0:
            self._weights[term] = max(weight, self._weights.get(term, 0.0))
            self._counts[term] = self._counts.get(term, 0) + 1

    def weights(self) -> dict[str, float]:
        k3 = self._k3
        return {
            term: weight * self._counts[term] * (k3 + 1.0) / (self._counts[term] + k3)
            for term, weight in self._weights.items()
        }


def _contains_word(query: QueryTerms, word: QueryTerms) -> bool:
    """Return whether a query has a word of a script with word spaces, in any inflection: refund in "refunds"."""
    return len(word["words"]) == 1 and not word["grams"] and word["words"].keys() <= query["words"].keys()


def _check_stop_words(words: Iterable[str] | None) -> frozenset[str]:
    if words is None:
        return STOP_WORDS
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError(f"stop_words must be a collection of words, got {words!r}: pass a list of words.")
    return frozenset(map(_stop_word_form, words))


def _stop_word_form(word: str) -> str:
    """Return a word in the form in which stop words are compared: folded, not stemmed."""
    return matching_form(fold_case(fold(word))).replace("’", "'")


def _merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


_PROBE = (
    "中国农业发展银行年度报告显示，他们研究生命科学的成果。漢字轉換計畫與乾隆頭髮。"
    "机器学习模型训练和推理性能优化。南京市长江大桥，结婚的和尚未结婚的。"
    "网关 10.20.30.40 升级到 v2.10.3，报错 ORA-00942 ModuleNotFoundError。"
    "running generously relational happiness organizations conditionally studies agreed skies dying news "
    "カタカナ ひらがな 한국어 Straße café C++ snake_case"
)
