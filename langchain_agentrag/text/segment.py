"""Cutting runs of Han characters into words: jieba-rs where it is installed, jieba otherwise.

Both ship the same dictionary and give the same words. Neither is ever changed: user words are matched by
`user_words.py`, and jieba runs in an instance of its own, so the host program's jieba stays as it is.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
import warnings
from functools import cache, lru_cache
from typing import Any, Literal, Protocol

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
        pairs: list[tuple[str, str]] = self._jieba.tag(run)
        return pairs

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
