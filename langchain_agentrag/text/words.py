"""Terms of a word run: stemmed words; identifiers, versions, addresses, paths, codes whole and in parts."""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from langchain_agentrag.text.fold import fold_case
from langchain_agentrag.text.runs import ATOMS

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
