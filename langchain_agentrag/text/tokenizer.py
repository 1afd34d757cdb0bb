"""Tokenizer: normalization, runs of one script, Chinese segmentation, terms of word runs, stop words.

A text is folded (NFKC), cut into runs (`RUNS`), and each run becomes terms: Han runs by a segmenter, other
scripts without word spaces by bigrams, word runs (words, identifiers, numbers) by `word_terms`.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import tomllib
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from langchain_agentrag.forks import fork_safe_lock
from langchain_agentrag.normalization import normalize

# ---- Normalization ----

# Soft hyphen, zero-width space and joiners, direction marks, variation selectors, byte order mark, tags: they are
# not displayed, so a word that contains one is still the same word.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]+"
)
_LATIN_ACCENTS = re.compile("[\u0300-\u036f]+")
_HAN_BLOCKS = ((0x3400, 0xA000), (0x20000, 0x323B0))


def fold(text: str) -> str:
    """Return a text in NFKC without invisible characters; case is kept, because `CamelCase` is split by it."""
    if text.isascii():
        return text
    return _INVISIBLE.sub("", normalize("NFKC", text))


def fold_case(word: str) -> str:
    """Return a word of a folded text in lower case, without accents on Latin letters."""
    if word.isascii():
        return word.lower()
    plain = _LATIN_ACCENTS.sub("", normalize("NFKD", word.casefold()))
    return normalize("NFKC", plain)


class _TraditionalConverter:
    """Traditional to simplified Chinese by OpenCC, called only for text that contains a traditional character."""

    def __init__(self) -> None:
        import opencc

        self._converter = opencc.OpenCC("t2s")
        han = [chr(code) for first, end in _HAN_BLOCKS for code in range(first, end)]
        simplified = self._converter.convert("\n".join(han)).split("\n")
        self._by_character = {ord(a): b for a, b in zip(han, simplified, strict=True) if a != b and len(b) == 1}
        self._traditional = re.compile("[" + "".join(map(chr, self._by_character)) + "]")

    def __call__(self, han: str) -> str:
        if self._traditional.search(han) is None:
            return han
        simplified: str = self._converter.convert(han)
        # Offsets in the result must be offsets in the run, so a phrase must not change its length.
        return simplified if len(simplified) == len(han) else han.translate(self._by_character)


_converter_lock = fork_safe_lock()


@cache
def _load_converter() -> _TraditionalConverter:
    return _TraditionalConverter()


def to_simplified(han: str) -> str:
    """Return a run of Han characters in simplified form, with the same length."""
    with _converter_lock:
        converter = _load_converter()
    return converter(han)


class FoldedText:
    """A folded text with the offsets of its characters in the original.

    Attributes:
        text: The folded text.
    """

    def __init__(self, original: str) -> None:
        self.text = fold(original)
        self._starts: list[int] | None = None  # None: offsets are equal
        if len(self.text) != len(original) or normalize("NFKC", original) != original:
            self._align(original)

    def _align(self, original: str) -> None:
        starts, ends = [], []
        for start, end in _combining_sequences(original):
            for _ in fold(original[start:end]):
                starts.append(start)
                ends.append(end)
        self._starts, self._ends = starts, ends

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original for a non-empty span of the folded text."""
        if self._starts is None:
            return start, end
        last = len(self._starts) - 1
        return self._starts[min(start, last)], self._ends[min(end - 1, last)]


def _combining_sequences(text: str) -> Iterator[tuple[int, int]]:
    """Yield spans that NFKC treats independently: a character and the marks or jamo that may combine with it."""
    start = 0
    for position, character in enumerate(text):
        if position > start and not _combines(character):
            yield start, position
            start = position
    if text:
        yield start, len(text)


def _combines(character: str) -> bool:
    if character < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.category(first)[0] == "M" or "\u1100" <= first <= "\u11ff"


# ---- Runs of one script ----

HAN, BIGRAM_SCRIPT, WORD, EMOJI = 1, 2, 3, 4
"""Kinds of run: the number of the group in `RUNS` that matched it."""

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# Kana, Hangul, Thai, Lao, Burmese, Khmer: no spaces between words, or words with endings. Indexed by bigrams.
_BIGRAM_SCRIPT = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u109f\u1780-\u17d3"
)
# Vowel signs and accents that Python does not count as word characters.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f"
    "\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u09d7\u0a01-\u0a03\u0a3c-\u0a4d\u0abc-\u0acd"
    "\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0d57"
)
# Letters and digits without a separator. Possessive quantifiers, so no text is scanned twice.
_ATOM = rf"(?:[^\W_{_HAN}{_BIGRAM_SCRIPT}]++[{_MARKS}]*+)++"
_JOINT = r"(?:[._/\\@:'’&=#~+\-‐‑−]|,(?=\d{3}(?!\d)))"
_TAIL = r"(?:\+\+|\#)(?![^\W_])"  # C++, C#

RUNS = re.compile(
    rf"([{_HAN}]++)|([{_BIGRAM_SCRIPT}]++)|({_ATOM}(?:{_JOINT}{_ATOM}|_++{_ATOM})*+(?:{_TAIL})?+)"
    "|([\u2600-\u27bf\U0001f000-\U0001faff])"
)
_ATOMS = re.compile(_ATOM)


def bigrams(run: str) -> list[str]:
    """Return the character bigrams of a run, or the run itself when it has only one character."""
    return list(map("".join, pairwise(run))) or [run]


# ---- Chinese segmentation ----

SegmenterBackend = Literal["auto", "rjieba", "jieba"]
"""Chinese segmenter; "auto" takes rjieba where it is installed and jieba elsewhere."""

_MAX_SEGMENTED = 2_000  # characters per call: jieba's memory grows with the run, and no sentence is longer


class Segmenter:
    """Chinese word segmenter for runs of simplified Han characters.

    Attributes:
        cut: Splits a run into words; joined they are the run.
    """

    def __init__(self, cut: Callable[[str], list[str]], is_word: Callable[[str], object]) -> None:
        self.cut = cut
        self._is_word = is_word
        self.subwords = lru_cache(maxsize=65_536)(self._subwords)

    def _subwords(self, word: str) -> tuple[str, ...]:
        """Return the shorter dictionary words inside a word of three or more characters (jieba's search mode)."""
        size = len(word)
        return tuple(
            part
            for length in (2, 3)
            if length < size
            for at in range(size - length + 1)
            if self._is_word(part := word[at : at + length])
        )


@cache
def _load_rjieba() -> Any:  # noqa: ANN401  it has no types
    import rjieba

    return rjieba.Jieba()


def _import_jieba(module: str) -> Any:  # noqa: ANN401  it has no types
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has outdated escapes and imports
        return importlib.import_module(module)


def _load_jieba() -> Any:  # noqa: ANN401  it has no types
    jieba = _import_jieba("jieba")
    level = jieba.default_logger.level
    jieba.default_logger.setLevel(logging.ERROR)  # it logs to stderr while it loads
    try:
        tokenizer = jieba.Tokenizer()  # a tokenizer of its own: the host program's jieba is not changed
        tokenizer.initialize()
    finally:
        jieba.default_logger.setLevel(level)
    return tokenizer


def _is_rjieba(backend: SegmenterBackend) -> bool:
    return backend == "rjieba" or (backend == "auto" and importlib.util.find_spec("rjieba") is not None)


@cache
def _load_segmenter(*, rjieba: bool) -> Segmenter:
    if rjieba:
        return Segmenter(_load_rjieba().cut, _load_rjieba().has_word)
    jieba = _load_jieba()
    return Segmenter(jieba.lcut, jieba.FREQ.get)


_segmenter_lock = fork_safe_lock()


def get_segmenter(backend: SegmenterBackend = "auto") -> Segmenter:
    """Return the process-wide segmenter of a backend, loaded on first use."""
    with _segmenter_lock:
        return _load_segmenter(rjieba=_is_rjieba(backend))


# rjieba and jieba disagree on characters outside the range that their dictionary covers.
_OUTSIDE_DICTIONARY = re.compile("[^\u4e00-\u9fd5]")
_DICTIONARY_PIECES = re.compile("[\u4e00-\u9fd5]+|.", re.DOTALL)


def segment(segmenter: Segmenter, run: str) -> list[str]:
    """Return the words of a run of any length; joined they are the run. Rare Han characters stand alone."""
    if len(run) > _MAX_SEGMENTED:
        pieces = (run[at : at + _MAX_SEGMENTED] for at in range(0, len(run), _MAX_SEGMENTED))
        return [word for piece in pieces for word in segment(segmenter, piece)]
    if _OUTSIDE_DICTIONARY.search(run) is None:
        return segmenter.cut(run)
    return [
        word
        for piece in _DICTIONARY_PIECES.findall(run)
        for word in (segmenter.cut(piece) if len(piece) > 1 else [piece])
    ]


def pos_tags(run: str) -> list[tuple[str, str]]:
    """Return (word, part-of-speech tag) pairs of a run of Han characters.

    Tags that begin with "n" are nouns and names, "v" verbs, "r" pronouns.
    """
    return _load_tagger()(run)


@cache
def _load_tagger() -> Callable[[str], list[tuple[str, str]]]:
    if _is_rjieba("auto"):
        tag: Callable[[str], list[tuple[str, str]]] = _load_rjieba().tag
        return tag
    tagger = _import_jieba("jieba.posseg").POSTokenizer(_load_jieba())
    return lambda run: [(pair.word, pair.flag) for pair in tagger.lcut(run)]


# ---- Terms of word runs ----

_MAX_TERM = 200  # characters; a longer word is cut into pieces, a longer compound is indexed by its parts only
_MAX_CACHED = 64  # characters; longer words seldom repeat and would fill the cache
_MIN_CODE_NUMBER = 5  # digits; a shorter number is a year or an amount in everyday text
_MIN_STEMMED = 3  # characters; Snowball leaves shorter words unchanged


class Term(NamedTuple):
    """One term of a word run.

    Attributes:
        text: The term.
        start: First character in the run.
        end: One past the last.
        kind: "word" has a position of its own; "compound" and "part" overlap positions counted already.
    """

    text: str
    start: int
    end: int
    kind: Literal["word", "compound", "part"]


_stemmer_lock = fork_safe_lock()


@cache
def _load_stemmer() -> Any:  # noqa: ANN401  it has no types
    import Stemmer  # type: ignore[import-not-found]

    return Stemmer.Stemmer("english")


@lru_cache(maxsize=131_072)
def stem(word: str) -> str:
    """Return the English Snowball stem of a lower-case word; anything but plain letters is returned unchanged."""
    if not _MIN_STEMMED <= len(word) <= _MAX_CACHED or not (word.isascii() and word.isalpha()):
        return word
    with _stemmer_lock:  # a PyStemmer object must not be used by two threads at once
        return str(_load_stemmer().stemWord(word)) or word


_OUTER_JOINTS = re.compile(r"[/\\@:=&~,]+")
_DOTS = re.compile(r"[.]+")
_INNER_JOINTS = re.compile(r"[_'’+#\-‐‑−]+")
_ASCII_JOINTS = str.maketrans({"‐": "-", "‑": "-", "−": "-", "’": "'"})
_CAMEL_CASE = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LETTERS = re.compile("[A-Za-z]+")
_CONTRACTION = re.compile(r"[^\W\d_]+['’](?:s|t|re|ve|ll|d|m)", re.IGNORECASE)
_VERSION = re.compile(r"[vV](?=\d)")
_GROUPED_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def word_terms(run: str) -> tuple[Term, ...]:
    """Return all terms of a word run, by their start, longest first."""
    return _cached_word_terms(run) if len(run) <= _MAX_CACHED else _word_terms(run)


def code_terms(run: str) -> list[str]:
    """Return the codes of a word run as a whole, without their parts."""
    terms = word_terms(run)
    kind = "compound" if any(term.kind == "compound" for term in terms) else "word"
    return [term.text for term in terms if term.kind == kind and is_code(term.text)]


def has_content(text: str) -> bool:
    """Return whether a text has a letter, digit or symbol, not only space, control characters and punctuation."""
    return any(unicodedata.category(char)[0] not in "ZCP" for char in text)


def is_code(term: str) -> bool:
    """Return whether a term is a code: a name with a digit, a version, an address, a long number."""
    return any(char.isdigit() for char in term) and (len(term) >= _MIN_CODE_NUMBER or not term.isdigit())


def _word_terms(run: str) -> tuple[Term, ...]:
    if run.isalpha() and (run.islower() or run[1:].islower()) and len(run) <= _MAX_TERM:
        return (Term(stem(fold_case(run)), 0, len(run), "word"),)
    if _CONTRACTION.fullmatch(run):
        return _contraction_terms(run)
    terms = _compound_terms(run)
    terms += (term for atom in _ATOMS.finditer(run) for term in _atom_terms(atom[0], atom.start()))
    terms.sort(key=lambda term: (term.start, -term.end))
    return tuple(term for term in terms if term.text)


_cached_word_terms = lru_cache(maxsize=131_072)(_word_terms)


def _contraction_terms(run: str) -> tuple[Term, ...]:
    word = fold_case(run).translate(_ASCII_JOINTS)
    if word.endswith("'s"):
        word = stem(word[:-2])
    return (Term(word, 0, len(run), "word"),) if len(word) <= _MAX_TERM else ()


def _compound_terms(run: str) -> list[Term]:
    """Return the compound and the segments of it that are compounds too: a URL, its host, the names in its path."""
    spans = {(0, len(run))}
    for start, end in _split_spans(_OUTER_JOINTS, run, 0, len(run)):
        spans.add((start, end))
        spans.update(_split_spans(_DOTS, run, start, end))
        spans.update(_split_spans(_INNER_JOINTS, run, start, end))
        if _VERSION.match(run, start):
            spans.add((start + 1, end))
    atoms = {atom.span() for atom in _ATOMS.finditer(run)}
    terms = []
    for start, end in sorted(spans - atoms):
        if end - start <= _MAX_TERM and not run[start:end].isalnum():
            text = fold_case(run[start:end]).translate(_ASCII_JOINTS)
            if _GROUPED_NUMBER.fullmatch(text):
                text = text.replace(",", "")
            if len(text) <= _MAX_TERM:
                terms.append(Term(text, start, end, "compound"))
    return terms


def _split_spans(joint: re.Pattern[str], run: str, start: int, end: int) -> list[tuple[int, int]]:
    spans, position = [], start
    for match in joint.finditer(run, start, end):
        spans.append((position, match.start()))
        position = match.end()
    spans.append((position, end))
    return [(first, last) for first, last in spans if first < last]


def _atom_terms(atom: str, offset: int) -> list[Term]:
    """Return the word of an atom and, for a name with capitals or digits, its parts."""
    size, step = len(atom), _MAX_TERM // 2
    if size > step:  # cut at half the limit, because case folding can lengthen a piece
        return [
            Term(fold_case(atom[at : at + step])[:_MAX_TERM], offset + at, offset + min(at + step, size), "word")
            for at in range(0, size, step)
        ]
    terms = [Term(stem(fold_case(atom)), offset, offset + size, "word")]
    if atom.isascii() and not atom.isdigit():
        parts = {part.span() for pattern in (_CAMEL_CASE, _LETTERS) for part in pattern.finditer(atom)}
        for start, end in sorted(parts - {(0, size)}):
            if end - start > 1 or atom[start].isdigit():  # a single letter has no meaning
                terms.append(Term(stem(fold_case(atom[start:end])), offset + start, offset + end, "part"))
    return terms


# ---- Stop words ----


@cache
def word_list(name: str) -> frozenset[str]:
    """Return a list of words from `word_lists.toml`."""
    lists = tomllib.loads((files("langchain_agentrag.text") / "word_lists.toml").read_text(encoding="utf-8"))
    return frozenset(lists[name].split())


ENGLISH_STOP_WORDS = word_list("english_stop_words")
"""Stop words of English: Snowball's list."""

STOP_WORDS = ENGLISH_STOP_WORDS | word_list("chinese_stop_words")
"""Stop words of English, and function and question words of modern Chinese."""
