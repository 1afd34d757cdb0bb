"""JSON objects in what a language model wrote: among prose, in fences, with full-width marks. Pure.

Strict JSON is read as such. What is not is read once more with a small grammar that also takes “ ” and ' as quotes,
：，｛｝［］ as marks, commas too many, words as keys, and the constants of Python. Nothing within a value is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_LONGEST = 20_000
_DEEPEST = 20
_MOST_STARTS = 60  # braces that may begin an object
_CLOSING = {'"': '"', "'": "'", "“": "“”＂", "”": "“”＂", "＂": "“”＂", "「": "」", "‘": "‘’", "’": "‘’"}
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_MARKS = str.maketrans("：，｛｝［］", ":,{}[]")
_BARE = re.compile(r"[^\s:,{}\[\]：，｛｝［］\"“”']+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def objects_in(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text, in order, those within others left out; never raises."""
    return list(_objects(_THOUGHTS.sub(" ", text[:_LONGEST])))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    place = 0
    for _ in range(_MOST_STARTS):
        start = _next_brace(text, place)
        if start is None:
            return
        try:
            found, place = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            try:
                found, place = _Reader(text).value(start, 0)
            except _NoJSON:
                place = start + 1
                continue
        if isinstance(found, dict):
            yield found


def _next_brace(text: str, place: int) -> int | None:
    found = [at for at in (text.find("{", place), text.find("｛", place)) if at >= 0]
    return min(found) if found else None


class _NoJSON(Exception):  # noqa: N818  it ends an attempt
    """What stands here is no JSON, however kindly it is read."""


class _Reader:
    """Reads values of a text kindly; each method takes a place and returns a value and the place behind it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, place: int, depth: int) -> tuple[Any, int]:
        place = self._skip(place)
        mark = self._mark(place)
        if depth > _DEEPEST or not mark:
            raise _NoJSON
        if mark == "{":
            return self._object(place + 1, depth)
        if mark == "[":
            return self._array(place + 1, depth)
        if self._text[place] in _CLOSING:
            return self._string(place)
        number = _NUMBER.match(self._text, place)
        if number is not None:
            try:
                return json.loads(number[0]), number.end()
            except ValueError as error:  # more digits than Python reads
                raise _NoJSON from error
        word = _BARE.match(self._text, place)
        if word is None or word[0].lower() not in _WORDS:
            raise _NoJSON
        return _WORDS[word[0].lower()], word.end()

    def _object(self, place: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            place = self._skip(place, also=",")
            if self._mark(place) == "}":
                return found, place + 1
            key, place = self._key(place)
            place = self._skip(place)
            if self._mark(place) != ":":
                raise _NoJSON
            found[key], place = self.value(place + 1, depth + 1)
            place = self._skip(place)
            if self._mark(place) not in {",", "}"}:
                raise _NoJSON

    def _array(self, place: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            place = self._skip(place, also=",")
            if self._mark(place) == "]":
                return found, place + 1
            value, place = self.value(place, depth + 1)
            found.append(value)
            place = self._skip(place)
            if self._mark(place) not in {",", "]"}:
                raise _NoJSON

    def _key(self, place: int) -> tuple[str, int]:
        if place < len(self._text) and self._text[place] in _CLOSING:
            return self._string(place)
        word = _BARE.match(self._text, place)
        if word is None:
            raise _NoJSON
        return word[0], word.end()

    def _string(self, place: int) -> tuple[str, int]:
        """A quoted text: it ends at a closing quote behind which the object goes on or ends."""
        closing, start = _CLOSING[self._text[place]], place + 1
        at = start
        while at < len(self._text):
            if self._text[at] == "\\":
                at += 2
                continue
            if self._text[at] in closing and self._mark(self._skip(at + 1)) in {",", ":", "}", "]"}:
                return self._unescaped(self._text[start:at]), at + 1
            at += 1
        raise _NoJSON

    @staticmethod
    def _unescaped(text: str) -> str:
        if "\\" not in text:
            return text
        try:
            return str(json.loads('"' + text.replace('"', '\\"').replace('\\\\"', '\\"') + '"', strict=False))
        except ValueError:
            return text

    def _skip(self, place: int, also: str = "") -> int:
        while place < len(self._text) and (
            self._text[place].isspace() or (also and self._mark(place) in also)
        ):
            place += 1
        return place

    def _mark(self, place: int) -> str:
        return self._text[place : place + 1].translate(_MARKS)
