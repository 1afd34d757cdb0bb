"""Text to tokens: normalisation, runs of one script, Chinese segmentation, word and identifier terms, stop words."""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
import unicodedata
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

# Soft hyphen, zero-width space and joiners, direction marks, variation selectors, byte order mark, tags: they
# are not seen, so a word with one inside is still that word.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]+"
)
_LATIN_MARKS = re.compile("[\u0300-\u036f]+")
_HAN_BLOCKS = ((0x3400, 0xA000), (0x20000, 0x323B0))


def fold(text: str) -> str:
    """NFKC without invisible characters; case is kept, because `CamelCase` is cut by it."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text)
    return _INVISIBLE.sub("", folded)


def fold_case(word: str) -> str:
    """A word of a folded text in the one form it is compared in: no case, no accents on Latin letters."""
    if word.isascii():
        return word.lower()
    plain = _LATIN_MARKS.sub("", unicodedata.normalize("NFKD", word.casefold()))
    return unicodedata.normalize("NFKC", plain)


class _Simplifier:
    """Traditional to simplified by OpenCC, asked only for text that holds a traditional character."""

    def __init__(self) -> None:
        import opencc

        self._converter = opencc.OpenCC("t2s")
        han = [chr(code) for first, end in _HAN_BLOCKS for code in range(first, end)]
        simple = self._converter.convert("\n".join(han)).split("\n")
        self._characters = {ord(a): b for a, b in zip(han, simple, strict=True) if a != b and len(b) == 1}
        self._traditional = re.compile("[" + "".join(map(chr, self._characters)) + "]")

    def __call__(self, han: str) -> str:
        if self._traditional.search(han) is None:
            return han
        simple: str = self._converter.convert(han)
        # Places in the result must be places in the run; a phrase that changes its length would break that.
        return simple if len(simple) == len(han) else han.translate(self._characters)


_simplifier_lock = threading.Lock()


@cache
def _simplifier() -> _Simplifier:
    return _Simplifier()


def simplify(han: str) -> str:
    """A run of Han characters in simplified form, of the same length."""
    with _simplifier_lock:
        simplifier = _simplifier()
    return simplifier(han)


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Stretches that NFKC treats independently: a character and the marks or jamo that may join it."""
    start = 0
    for place, character in enumerate(text):
        if place > start and not _joins(character):
            yield start, place
            start = place
    if text:
        yield start, len(text)


def _joins(character: str) -> bool:
    if character < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.category(first)[0] == "M" or "\u1100" <= first <= "\u11ff"


class Folded:
    """A folded text that knows where it came from.

    Attributes:
        text: What `fold` makes of the original.
    """

    def __init__(self, original: str) -> None:
        self.text = fold(original)
        self._starts: list[int] | None = None
        if len(self.text) != len(original) or not unicodedata.is_normalized("NFKC", original):
            self._align(original)

    def _align(self, original: str) -> None:
        starts, ends = [], []
        for start, end in _clusters(original):
            for _ in fold(original[start:end]):
                starts.append(start)
                ends.append(end)
        self._starts, self._ends = starts, ends

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where the original holds what the folded text holds at start:end (not empty)."""
        if self._starts is None:
            return start, end
        last = len(self._starts) - 1
        return self._starts[min(start, last)], self._ends[min(end - 1, last)]


HAN, SCRIPT, WORD, EMOJI = 1, 2, 3, 4
"""Kinds of run: the number of the group in `RUNS` that matched it."""

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# Kana, Hangul, Thai, Lao, Burmese, Khmer: words are not set apart (or carry endings), so pairs of characters
# stand in.
_SCRIPT = (
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

ATOM = rf"(?:[^\W_{_HAN}{_SCRIPT}]++[{_MARKS}]*+)++"
"""Letters and digits in one piece. Possessive, so that no text is tried twice."""

_JOINT = r"(?:[._/\\@:'’&=#~+\-‐‑−]|,(?=\d{3}(?!\d)))"
_TAIL = r"(?:\+\+|\#)(?![^\W_])"  # C++, C#

RUNS = re.compile(
    rf"([{_HAN}]++)|([{_SCRIPT}]++)|({ATOM}(?:{_JOINT}{ATOM}|_++{ATOM})*+(?:{_TAIL})?+)"
    "|([\u2600-\u27bf\U0001f000-\U0001faff])"
)

ATOMS = re.compile(ATOM)
"""The atoms of a word run."""


def bigrams(run: str) -> list[str]:
    """Every two neighbouring characters, or the run itself where it has only one."""
    return list(map("".join, pairwise(run))) or [run]


Backend = Literal["auto", "rjieba", "jieba"]

_STRETCH = 2_000  # characters per call: jieba's memory grows with the run, and no sentence is longer


class Segmenter(Protocol):
    """Cuts a run of simplified Han characters."""

    name: str

    def cut(self, run: str) -> list[str]:
        """Words in order; joined they are the run."""

    def parts(self, word: str) -> tuple[str, ...]:
        """Shorter dictionary words within a word of three or more characters: jieba's search mode."""


class _RJieba:
    name = "rjieba"

    def __init__(self) -> None:
        import rjieba

        self._jieba: Any = rjieba.Jieba()
        self.parts = lru_cache(maxsize=65_536)(self._parts)

    def cut(self, run: str) -> list[str]:
        words: list[str] = self._jieba.cut(run)
        return words

    def tag(self, run: str) -> list[tuple[str, str]]:
        """Words with their parts of speech."""
        bigrams: list[tuple[str, str]] = self._jieba.tag(run)
        return bigrams

    def _parts(self, word: str) -> tuple[str, ...]:
        return tuple(part for part in _inner(word) if self._jieba.has_word(part))


class _Jieba:
    name = "jieba"

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its source has outdated escapes and imports
            import jieba  # type: ignore[import-untyped]

        level = jieba.default_logger.level
        jieba.default_logger.setLevel(logging.ERROR)  # it logs to stderr while it loads
        try:
            self._jieba: Any = jieba.Tokenizer()
            self._jieba.initialize()
        finally:
            jieba.default_logger.setLevel(level)
        self.parts = lru_cache(maxsize=65_536)(self._parts)

    def cut(self, run: str) -> list[str]:
        words: list[str] = self._jieba.lcut(run)
        return words

    def _parts(self, word: str) -> tuple[str, ...]:
        return tuple(part for part in _inner(word) if self._jieba.FREQ.get(part))


def _inner(word: str) -> list[str]:
    size = len(word)
    return [
        word[place : place + length]
        for length in (2, 3)
        if length < size
        for place in range(size - length + 1)
    ]


_load_lock = threading.Lock()


@cache
def _load(name: str) -> Segmenter:
    return _RJieba() if name == "rjieba" else _Jieba()


def choose(backend: Backend) -> str:
    """The backend that "auto" stands for here, without loading it."""
    if backend != "auto":
        return backend
    return "rjieba" if importlib.util.find_spec("rjieba") else "jieba"


def segmenter(name: str) -> Segmenter:
    """The process-wide segmenter of that name, loaded on first use."""
    with _load_lock:
        return _load(name)


# The two disagree on what lies outside the characters their dictionary was made for.
_OUTSIDE = re.compile("[^\u4e00-\u9fd5]")
_PIECES = re.compile("[\u4e00-\u9fd5]+|.", re.DOTALL)


def cut(segmenter: Segmenter, run: str) -> list[str]:
    """Words of a run of any length; joined they are the run. Rare Han characters stand alone."""
    if len(run) > _STRETCH:
        stretches = (run[place : place + _STRETCH] for place in range(0, len(run), _STRETCH))
        return [word for stretch in stretches for word in cut(segmenter, stretch)]
    if _OUTSIDE.search(run) is None:
        return segmenter.cut(run)
    return [
        word
        for piece in _PIECES.findall(run)
        for word in (segmenter.cut(piece) if len(piece) > 1 else [piece])
    ]


Tagger = Callable[[str], list[tuple[str, str]]]


def tagged(run: str) -> list[tuple[str, str]]:
    """(word, tag) of a run of Han characters; tags that begin with "n" are nouns and names, "v" verbs, "r" pronouns."""
    return _tagger()(run)


@cache
def _tagger() -> Tagger:
    backend = segmenter(choose("auto"))
    own: Tagger | None = getattr(backend, "tag", None)
    return own or _jieba_tagger()


def _jieba_tagger() -> Tagger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has outdated escapes and imports
        import jieba
        import jieba.posseg  # type: ignore[import-untyped]

    jieba.default_logger.setLevel(logging.ERROR)  # it logs to stderr while it loads
    tagger = jieba.posseg.POSTokenizer(jieba.Tokenizer())  # the host program's jieba stays as it is
    return lambda run: [(pair.word, pair.flag) for pair in tagger.lcut(run)]


LONGEST = 200
"""Longest term. A longer unbroken word is cut into pieces; a longer compound is indexed by its parts only."""

_REMEMBERED = 64  # characters; longer words hardly come again and would fill the cache

_LONG_NUMBER = 4  # digits; a longer one is no year and no amount in everyday text
_SHORTEST_STEMMED = 3  # Snowball leaves shorter words as they are

Kind = Literal["word", "whole", "part"]


class Term(NamedTuple):
    """One term of a word run.

    Attributes:
        text: The term.
        start: First character in the run.
        end: One past the last.
        kind: "word" takes a position of its own; "whole" and "part" lie over the same positions.
    """

    text: str
    start: int
    end: int
    kind: Kind


_stemmer_lock = threading.Lock()
_stemmer: list[Any] = []


@lru_cache(maxsize=131_072)
def stem(word: str) -> str:
    """English Snowball stem of a lower-case word; anything but plain letters comes back as it is."""
    if not _SHORTEST_STEMMED <= len(word) <= _REMEMBERED or not (word.isascii() and word.isalpha()):
        return word
    with _stemmer_lock:  # a PyStemmer object must not be shared by threads that run at once
        if not _stemmer:
            import Stemmer  # type: ignore[import-not-found]

            _stemmer.append(Stemmer.Stemmer("english"))
        return str(_stemmer[0].stemWord(word)) or word


_OUTER = re.compile(r"[/\\@:=&~,]+")
_DOTS = re.compile(r"[.]+")
_HYPHENS = re.compile(r"[_'’+#\-‐‑−]+")
_HYPHEN = str.maketrans({"‐": "-", "‑": "-", "−": "-", "’": "'"})
_HUMPS = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LETTERS = re.compile("[A-Za-z]+")
_CONTRACTION = re.compile(r"[^\W\d_]+['’](?:s|t|re|ve|ll|d|m)", re.IGNORECASE)
_VERSION = re.compile(r"[vV](?=\d)")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def terms(run: str) -> tuple[Term, ...]:
    """All terms of a word run, in order of their start, longest first."""
    return _remembered(run) if len(run) <= _REMEMBERED else _terms(run)


def whole_terms(run: str) -> list[str]:
    """Terms of a word run that are no parts of others."""
    found = terms(run)
    kind = "whole" if any(term.kind == "whole" for term in found) else "word"
    return [term.text for term in found if term.kind == kind]


def is_code(term: str) -> bool:
    """Whether a term is a code: a name with a digit in it, a version, an address, a long number."""
    return any(char.isdigit() for char in term) and (len(term) > _LONG_NUMBER or not term.isdigit())


def _terms(run: str) -> tuple[Term, ...]:
    if run.isalpha() and (run.islower() or run[1:].islower()) and len(run) <= LONGEST:
        return (Term(stem(fold_case(run)), 0, len(run), "word"),)
    if _CONTRACTION.fullmatch(run):
        return _contraction(run)
    found = [*_wholes(run), *(term for atom in ATOMS.finditer(run) for term in _atom(atom[0], atom.start()))]
    found.sort(key=lambda term: (term.start, -term.end))
    return tuple(term for term in found if term.text)


_remembered = lru_cache(maxsize=131_072)(_terms)


def _contraction(run: str) -> tuple[Term, ...]:
    word = fold_case(run).translate(_HYPHEN)
    if word.endswith("'s"):
        word = stem(word[:-2])
    return (Term(word, 0, len(run), "word"),) if len(word) <= LONGEST else ()


def _wholes(run: str) -> list[Term]:
    """The compound and its segments that are still compounds: the URL, its host, its path's names."""
    spans = {(0, len(run))}
    for start, end in _between(_OUTER, run, 0, len(run)):
        spans.add((start, end))
        spans.update(_between(_DOTS, run, start, end))
        spans.update(_between(_HYPHENS, run, start, end))
        if _VERSION.match(run, start):
            spans.add((start + 1, end))
    atoms = {atom.span() for atom in ATOMS.finditer(run)}
    wholes = []
    for start, end in sorted(spans - atoms):
        if end - start <= LONGEST and not (run[start:end].isalnum()):
            text = fold_case(run[start:end]).translate(_HYPHEN)
            if _GROUPED.fullmatch(text):
                text = text.replace(",", "")
            if len(text) <= LONGEST:
                wholes.append(Term(text, start, end, "whole"))
    return wholes


def _between(joint: re.Pattern[str], run: str, start: int, end: int) -> list[tuple[int, int]]:
    spans, place = [], start
    for match in joint.finditer(run, start, end):
        spans.append((place, match.start()))
        place = match.end()
    spans.append((place, end))
    return [(a, b) for a, b in spans if a < b]


def _atom(atom: str, at: int) -> list[Term]:
    if len(atom) > LONGEST // 2:  # folding can lengthen it
        step = LONGEST // 2
        return [
            Term(
                fold_case(atom[place : place + step])[:LONGEST],
                at + place,
                at + min(place + step, len(atom)),
                "word",
            )
            for place in range(0, len(atom), step)
        ]
    word = fold_case(atom)
    found = [Term(stem(word), at, at + len(atom), "word")]
    if atom.isascii() and not atom.isdigit():
        spans = {part.span() for pattern in (_HUMPS, _LETTERS) for part in pattern.finditer(atom)} - {
            (0, len(atom))
        }
        for start, end in sorted(spans):
            if end - start > 1 or atom[start].isdigit():  # a single letter says nothing
                part = stem(fold_case(atom[start:end]))
                found.append(Term(part, at + start, at + end, "part"))
    return found


_ENGLISH = """
a about above after again against all am an and any are aren't as at be because been before being
below between both but by can can't cannot could couldn't did didn't do does doesn't doing don't
down during each few for from further had hadn't has hasn't have haven't having he he'd he'll he's
her here here's hers herself him himself his how how's i i'd i'll i'm i've if in into is isn't it
it's its itself let let's me more most mustn't my myself no nor not of off on once only or other
ought our ours ourselves out over own same shan't she she'd she'll she's should shouldn't so some
such than that that's the their theirs them themselves then there there's these they they'd they'll
they're they've this those through to too under until up very was wasn't we we'd we'll we're we've
were weren't what what's when when's where where's which while who who's whom why why's will with
won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
"""

_CHINESE = """
的 了 和 是 在 有 也 与 及 或 都 就 而 并 把 被 对 从 到 向 以 于 为 由 让 使 给 跟 同 比 之 其 此
该 这 那 这个 那个 这些 那些 这样 那样 这里 那里 这么 那么 我 你 您 他 她 它 我们 你们 他们 她们
它们 自己 什么 怎么 怎样 怎么样 怎么办 如何 为什么 为何 哪 哪个 哪些 哪里 哪儿 哪一 谁 何 几 吗 呢
吧 啊 呀 嘛 哦 嗯 着 过 地 得 所 则 若 但 但是 因为 所以 如果 虽然 而且 并且 或者 以及 还是 还 又
再 很 太 更 最 非常 已 已经 曾 曾经 将 会 能 可 可以 能够 应该 要 想 请 请问 一个 一些 一下 一种 没
没有 不 是否 是不是 有没有 能否 关于 对于 根据 通过 进行 只 只是 仅 才 却 即 即使 等 等等 时 时候
里 中 上 下
"""

ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())
"""Snowball's English list."""

CHINESE_STOP_WORDS = frozenset(_CHINESE.split())
"""Function and question words of modern Chinese."""

STOP_WORDS = ENGLISH_STOP_WORDS | CHINESE_STOP_WORDS
