"""User words: terms of the trade that must be found as a unit, whatever characters they are made of.

They are matched in the folded text and added to what the analysis gives anyway, so a user word never takes a
term away from any text, and a Latin one never cuts a longer word.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text.numerals import number_variants
from langchain_agentrag.text.tokenizer import (
    EMOJI,
    HAN,
    RUNS,
    SCRIPT,
    STOP_WORDS,
    Backend,
    Folded,
    bigrams,
    choose,
    cut,
    fold,
    fold_case,
    is_code,
    segmenter,
    simplify,
    whole_terms,
)
from langchain_agentrag.text.tokenizer import terms as word_terms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from langchain_agentrag.text.tokenizer import Segmenter

LONGEST_USER_WORD = 100
"""In characters, after folding."""

_SPACE = re.compile(r"\s+")
_WORDLIKE = re.compile(
    r"[^\W\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af]"
)


class UserWords:
    """A dictionary of user words, ready to be looked for.

    Attributes:
        words: The words in folded form, sorted.

    Raises:
        UsageError: a word is not text, has no letter or digit, or is too long.
    """

    def __init__(self, words: Iterable[str]) -> None:
        if isinstance(words, str) or not isinstance(words, Iterable):
            msg = f"user_words must be a collection of words, got {words!r}: pass a list of words."
            raise UsageError(msg)
        known = {_checked(word) for word in words}
        self.words = tuple(sorted(known))
        self._known = known
        lengths: dict[str, set[int]] = {}
        for word in known:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        self._firsts = re.compile("[" + re.escape("".join(self._lengths)) + "]") if known else None

    def find(self, folded: str) -> list[tuple[str, int, int]]:
        """Occurrences in a folded text as (term, start, end), in order of their start, overlaps included."""
        if self._firsts is None:
            return []
        text = comparable(folded)
        return [
            (_SPACE.sub("_", text[start:end]), start, end)
            for match in self._firsts.finditer(text)
            for start in (match.start(),)
            for end in (start + size for size in self._lengths[match[0]])
            if text[start:end] in self._known and _stands_alone(text, start, end)
        ]


def comparable(folded: str) -> str:
    """A folded text in lower case and simplified characters, without a change of length."""
    if folded.isascii():
        return folded.lower()
    lower = folded.lower()
    if len(lower) != len(folded):
        lower = "".join(low if len(low := character.lower()) == 1 else character for character in folded)
    return re.sub("[\u3400-\u9fff\U00020000-\U000323af]+", lambda run: simplify(run[0]), lower)


def _checked(word: object) -> str:
    if not isinstance(word, str):
        msg = f"A user word must be a string, got {type(word).__name__}: pass the words as text."
        raise UsageError(msg)
    folded = comparable(_SPACE.sub(" ", fold(word).strip()))
    if not any(character.isalnum() for character in folded):
        msg = f"User word {word!r} has no letter or digit to search for: remove it."
        raise UsageError(msg)
    if len(folded) > LONGEST_USER_WORD:
        msg = f"User word {word[:40]!r}… is {len(folded)} characters long: shorten it to {LONGEST_USER_WORD}."
        raise UsageError(msg)
    return folded


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether neither edge lies within a word of a script that sets words apart."""
    starts_within = start > 0 and _WORDLIKE.match(text[start]) and _WORDLIKE.match(text[start - 1])
    ends_within = end < len(text) and _WORDLIKE.match(text[end - 1]) and _WORDLIKE.match(text[end])
    return not starts_within and not ends_within


_FEWEST = 2  # words of a group


class Synonyms:
    """Groups of words, any of which a query may hold for any other: ("k8s", "Kubernetes"), ("退款", "refund").

    Attributes:
        groups: The groups in folded form, sorted.

    Raises:
        UsageError: a group has fewer than two different words, or a word could never be found.
    """

    def __init__(self, groups: Iterable[Iterable[str]]) -> None:
        if isinstance(groups, str) or not isinstance(groups, Iterable):
            raise UsageError(f"synonyms must be groups of words, got {groups!r}: pass a list of lists.")
        self.groups = tuple(sorted({_group(group) for group in groups}))
        self._finder = UserWords(word for group in self.groups for word in group)
        self._others: dict[str, tuple[str, ...]] = {}
        for group in self.groups:
            for word in group:
                rest = (*self._others.get(word, ()), *(other for other in group if other != word))
                self._others[word] = tuple(dict.fromkeys(rest))

    def __bool__(self) -> bool:
        return bool(self.groups)

    def words(self) -> tuple[str, ...]:
        """Every word that has a synonym."""
        return tuple(self._others)

    def others(self, word: str) -> tuple[str, ...]:
        """What else says the same as one of `words`."""
        return self._others[word]

    def found(self, folded: str) -> set[str]:
        """Those of `words` that a folded text holds."""
        spans = self._finder.find(folded)
        held = {term for term, _, _ in spans}
        return {word for word in self._others if word.replace(" ", "_") in held}


def _group(words: Iterable[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError(f"A group of synonyms must be words, got {words!r}: pass a list of words.")
    group = UserWords(words).words
    if len(group) < _FEWEST:
        raise UsageError(f"Synonyms {group!r} are fewer than two different words: name what they stand for.")
    return group


VERSION = 1
"""Raised whenever the same text gives other index terms; part of the fingerprint."""

_PAIR = 2  # characters; a word of two holds no shorter word

FIELDS: tuple[str, ...] = ("words", "grams", "context")
"""Fields of an analysed text, each with a length of its own."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Query weights. They change rankings, never the index, so they are not part of the fingerprint.

    A Chinese word of two characters is found by the word, the pair and both characters; a word of another
    script by itself alone. `spaced` evens that out, without it the names and codes in mixed text are
    outvoted. Measured by `benchmarks/analyzer.py` over eight collections: all values can be moved by a third
    without losing more than 0.01 nDCG anywhere, so they are round.

    Attributes:
        words: A Chinese word.
        inner: A shorter word within a Chinese word.
        grams: A pair of Han characters.
        characters: A single Han character.
        spaced: A word of a script that sets words apart, a compound as a whole, a user word.
        parts: Factor for a part of a compound and a hump of a CamelCase name.
        codes: Factor for a code as a whole: a name with a digit in it, a version, an address, a long number. Who
            writes E1102 means that one, however much a passage on E1103 resembles the rest of the question.
        context: Factor for the same term in the context field.
        repeats: Saturation of a term's repetition in the query: k3 of BM25, 0 counts it once.
        synonyms: Factor for the terms of a word's synonyms, and of a number's other form.
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


WEIGHTS = Weights()
FIELD_WEIGHTS: Mapping[str, float] = {
    "words": WEIGHTS.words,
    "grams": WEIGHTS.grams,
    "context": WEIGHTS.context,
}
"""Weight of a Chinese word, of a pair, and the factor of the context; already in the weights of a query."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a text is indexed by.

    Attributes:
        words: Words, identifiers whole and in parts, words within words, as often as they occur.
        grams: Pairs of Han characters and single characters.
        context: Words and grams of the context.
        lengths: Field -> length for BM25. It counts positions: a word within a word, an identifier as a whole
            or a pair of characters lies over positions counted already. Never more than the list holds.
    """

    words: list[str]
    grams: list[str]
    context: list[str]
    lengths: Mapping[str, int]


class Analyzer:
    """Turns texts and queries into terms, always the same for the same text. Threads may share it.

    Args:
        user_words: Terms to be found as a unit, of any characters: "云帆科技", "*ST云帆", "Blue Moon认证".
        stop_words: Words dropped from queries; None for the built-in Chinese and English list.
        synonyms: Groups of words that stand for one another in a query, in any language: [("k8s", "Kubernetes")].
        backend: Chinese segmenter; "auto" takes rjieba where it is installed and jieba elsewhere.
        weights: Query weights.

    Raises:
        UsageError: a user word or synonym that could never be found, words that are no collection, an unknown backend.
    """

    def __init__(
        self,
        *,
        user_words: Iterable[str] = (),
        stop_words: Iterable[str] | None = None,
        synonyms: Iterable[Iterable[str]] = (),
        backend: Backend = "auto",
        weights: Weights = WEIGHTS,
    ) -> None:
        if backend not in get_args(Backend):
            msg = f"Unknown segmenter backend {backend!r}: choose one of {', '.join(get_args(Backend))}."
            raise UsageError(msg)
        self._user_words = UserWords(user_words)
        self._stop_words = _stop_words(stop_words)
        self._synonyms = Synonyms(synonyms)
        self._backend = choose(backend)
        self._weights = weights

    @cached_property
    def _segmenter(self) -> Segmenter:
        return segmenter(self._backend)

    @cached_property
    def fingerprint(self) -> str:
        """Short text that differs whenever index terms may differ.

        It covers the user words and, through a probe text, what the installed stemmer, segmenter and
        converter make of it. Stop words, weights and the choice between equal backends leave the index as it
        is.
        """
        probe = self.analyze(_PROBE)
        content = "\n".join((*self._user_words.words, "", *probe.words, "", *probe.grams))
        return f"a{VERSION}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    @property
    def settings(self) -> dict[str, Any]:
        """What a store keeps to make the same analyzer again, as JSON; weights and the choice of backend are not."""
        own = None if self._stop_words == STOP_WORDS else sorted(self._stop_words)
        return {
            "user_words": list(self._user_words.words),
            "stop_words": own,
            "synonyms": [list(group) for group in self._synonyms.groups],
        }

    @property
    def word_weight(self) -> float:
        """Query weight of one plain word, the yardstick of how much a query and a chunk share."""
        return self._weights.spaced

    def analyze(self, text: str, context: str = "") -> Terms:
        """Index terms of a chunk; its context (heading path, table header) goes to a field of its own."""
        words, grams, positions, characters = self._index(text)
        around: list[str] = []
        around_positions = 0
        if context:
            around, around_grams, around_positions, _ = self._index(context)
            known = set(around)
            around += [gram for gram in around_grams if gram not in known]
        lengths = {"words": positions, "grams": characters, "context": around_positions}
        return Terms(words, grams, around, lengths)

    def _index(self, text: str) -> tuple[list[str], list[str], int, int]:
        folded = fold(text)
        words: list[str] = []
        grams: list[str] = []
        positions = characters = 0
        cutter = self._segmenter
        for match in RUNS.finditer(folded):
            run, kind = match[0], match.lastindex
            if kind == HAN:
                run = simplify(run)
                pieces = cut(cutter, run)
                positions += len(pieces)
                characters += len(run)
                words += pieces
                for piece in pieces:
                    if len(piece) > _PAIR:
                        words += cutter.parts(piece)
                grams += run
                if len(run) > 1:
                    grams += bigrams(run)
            elif kind == SCRIPT:
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
        self._add_user_words(folded, words)
        return words, grams, positions, characters

    def _add_user_words(self, folded: str, words: list[str]) -> None:
        found = Counter(term for term, _, _ in self._user_words.find(folded))
        for term, count in found.items():
            words += [term] * (count - words.count(term))

    def analyze_query(self, text: str, *, widen: bool = True) -> Mapping[str, Mapping[str, float]]:
        """Field -> distinct term -> weight (> 0), without stop words unless nothing else is there.

        Args:
            text: The question.
            widen: Whether synonyms and the other forms of numbers are added (三十 for 30) or only what was asked.
        """
        query = self._query(text, self._stop_words)
        query = query if any(query.values()) else self._query(text, frozenset())
        return self.widen(query, text) if widen else query

    def widen(self, query: Mapping[str, Mapping[str, float]], text: str) -> Mapping[str, Mapping[str, float]]:
        """The analysed question with its words' synonyms and its numbers' other forms; the larger weight counts.

        Args:
            query: What `analyze_query(text, widen=False)` gave.
            text: The question.
        """
        wider, text = {field: dict(terms) for field, terms in query.items()}, comparable(fold(text))
        numbers = number_variants(text)
        others = dict.fromkeys(numbers)
        if self._synonyms:
            held = self._synonyms.found(text)
            held |= {word for word in self._synonyms.words() if _names(self._query(word, frozenset()), query)}
            others |= dict.fromkeys(sorted({other for word in held for other in self._synonyms.others(word)}))
        for other in others:
            for field, terms in self._query(other, frozenset()).items():
                for term, weight in terms.items():
                    if other in numbers and len(term) == 1 and not term.isascii():
                        continue  # 十 alone is in every other text
                    wider[field][term] = max(weight * self._weights.synonyms, wider[field].get(term, 0.0))
        return wider

    def codes(self, text: str) -> frozenset[str]:
        """Terms of the codes that a text names, as a whole: `E1102`, `v4.7.2`, `10.20.30.40`, a long number."""
        if not any(map(str.isdigit, text)):
            return frozenset()
        runs = (
            match[0] for match in RUNS.finditer(fold(text)) if match.lastindex not in {HAN, SCRIPT, EMOJI}
        )
        whole = (term for run in runs for term in whole_terms(run))
        return frozenset(term for term in whole if is_code(term))

    def _query(self, text: str, stop_words: frozenset[str]) -> dict[str, dict[str, float]]:
        folded = fold(text)
        weigh = self._weights
        words = _Bag(weigh.repeats)
        grams = _Bag(weigh.repeats)
        shouted = folded.isupper()
        for match in RUNS.finditer(folded):
            run, kind = match[0], match.lastindex
            if kind == HAN:
                self._query_han(simplify(run), stop_words, words, grams)
            elif kind == SCRIPT:
                for pair in bigrams(run):
                    words.add(pair, weigh.spaced / 2)  # a word of these scripts makes about two pairs
                if len(run) == 1:
                    grams.add(run, weigh.grams)
            elif kind == EMOJI:
                words.add(run, weigh.words)
            else:
                self._query_word(run, stop_words, words, shouted=shouted)
        for unit, _, _ in self._user_words.find(folded):
            words.add(unit, weigh.spaced)
        fields = {"words": words.weights(), "grams": grams.weights()}
        context: dict[str, float] = {}
        for found_terms in fields.values():
            for name, weight in found_terms.items():
                context[name] = max(weight * weigh.context, context.get(name, 0.0))
        return {**fields, "context": context}

    def _query_word(self, run: str, stop_words: frozenset[str], words: _Bag, *, shouted: bool) -> None:
        weigh = self._weights
        found = word_terms(run)
        compound = any(term.kind == "whole" for term in found)
        for term in found:
            surface = run[term.start : term.end]
            acronym = len(surface) > 1 and surface.isupper() and not shouted  # IT is not it
            if acronym or _surface(surface) not in stop_words:
                plain = term.kind == "whole" or (term.kind == "word" and not compound)
                factor = 1.0 if plain else weigh.parts
                if plain and is_code(term.text):
                    factor = weigh.codes
                words.add(term.text, weigh.spaced * factor)

    def _query_han(self, run: str, stop_words: frozenset[str], words: _Bag, grams: _Bag) -> None:
        weigh = self._weights
        alone = weigh.grams if len(run) == 1 else weigh.characters
        told: list[bool] = []  # per character: whether it belongs to a word that says something
        for piece in cut(self._segmenter, run):
            says = piece not in stop_words
            told += [says] * len(piece)
            if says:
                words.add(piece, weigh.words)
                for character in piece:
                    grams.add(character, alone)
                if len(piece) > _PAIR:
                    for part in self._segmenter.parts(piece):
                        words.add(part, weigh.inner)
        if len(run) > 1:
            for place, pair in enumerate(bigrams(run)):
                if told[place] or told[place + 1]:
                    grams.add(pair, weigh.grams)

    def match_spans(self, text: str, terms: Collection[str]) -> list[tuple[int, int]]:
        """Where the text holds any of these index terms: merged, sorted, not overlapping, for highlights."""
        wanted = frozenset(terms)
        if not wanted:
            return []
        folded = Folded(text)
        sizes = sorted({len(term) for term in wanted if not term.isascii()}, reverse=True)
        spans: list[tuple[int, int]] = []
        for match in RUNS.finditer(folded.text):
            run, kind, at = match[0], match.lastindex, match.start()
            if kind in {HAN, SCRIPT}:
                run = simplify(run) if kind == HAN else run
                for place in range(len(run)):
                    size = next((size for size in sizes if run[place : place + size] in wanted), 0)
                    if size:
                        spans.append((at + place, min(at + place + size, match.end())))
            elif kind == EMOJI:
                if run in wanted:
                    spans.append(match.span())
            else:
                spans += [(at + term.start, at + term.end) for term in word_terms(run) if term.text in wanted]
        spans += [(start, end) for term, start, end in self._user_words.find(folded.text) if term in wanted]
        return _merged(folded.span(start, end) for start, end in spans)


class _Bag:
    """Weights of distinct terms; repetition saturates as in BM25's query side."""

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


def _names(word: Mapping[str, Mapping[str, float]], query: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether a query holds a word of a script that sets words apart, in whatever form: refund in "refunds"."""
    return len(word["words"]) == 1 and not word["grams"] and word["words"].keys() <= query["words"].keys()


def _stop_words(words: Iterable[str] | None) -> frozenset[str]:
    if words is None:
        return STOP_WORDS
    if isinstance(words, str) or not isinstance(words, Iterable):
        msg = f"stop_words must be a collection of words, got {words!r}: pass a list of words."
        raise UsageError(msg)
    return frozenset(map(_surface, words))


def _surface(word: str) -> str:
    """The form a stop word is compared in: folded, not stemmed."""
    return comparable(fold_case(fold(word))).replace("’", "'")


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
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
