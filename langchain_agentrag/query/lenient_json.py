"""Read the JSON objects in a language model's reply: between prose, in code fences, with common mistakes. Pure.

Strict JSON is parsed as such. Anything else is parsed once more by a grammar that also accepts “ ” 「 」 ‘ ’ and ' as
quotes, full-width punctuation, superfluous commas, unquoted keys and Python's constants. Values are not changed.

The package json-repair (0.64) is no replacement: of two objects that differ it returns the last only, it takes cut-off
objects for complete ones, reads {“q”：“a “b” c”，“m”：“x”} as one key, does not know ｛｝, and needs 10 s for 20,000
characters of `{"`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_MAX_LENGTH = 20_000  # characters of a reply
_MAX_DEPTH = 20
_MAX_STARTS = 60  # braces that are tried as the start of an object
_BRACE = re.compile(r"[{｛]")
_CLOSING_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "“”＂",
    "”": "“”＂",
    "＂": "“”＂",
    "「": "」",
    "‘": "‘’",
    "’": "‘’",
}
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_TO_ASCII = str.maketrans("：，｛｝［］", ":,{}[]")
_SPACES = re.compile(r"\s*")
_SPACES_AND_COMMAS = re.compile(r"[\s,，]*")
_WORD = re.compile(r"[^\s:,{}\[\]：，｛｝［］\"“”']+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def read_json_objects(text: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects of a text in order, without those in <think> tags; never raise."""
    return list(_iter_objects(_THOUGHTS.sub(" ", text[:_MAX_LENGTH])))


def _iter_objects(text: str) -> Iterator[dict[str, Any]]:
    place = 0
    for _ in range(_MAX_STARTS):
        brace = _BRACE.search(text, place)
        if brace is None:
            return
        try:
            value, place = json.JSONDecoder().raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            try:
                value, place = _Reader(text).value(brace.start(), 0)
            except _InvalidJSONError:
                place = brace.end()
                continue
        if isinstance(value, dict):
            yield value


class _InvalidJSONError(Exception):
    """The text at this place is not JSON, even leniently read."""


class _Reader:
    """Recursive descent over a text; each method takes an offset and returns a value and the offset behind it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, place: int, depth: int) -> tuple[Any, int]:
        place = self._skip(_SPACES, place)
        character = self._at(place)
        if depth > _MAX_DEPTH or not character:
            raise _InvalidJSONError
        if character == "{":
            return self._object(place + 1, depth)
        if character == "[":
            return self._array(place + 1, depth)
        if character in _CLOSING_QUOTES:
            return self._string(place)
        number = _NUMBER.match(self._text, place)
        if number is not None:
            try:
                return json.loads(number[0]), number.end()
            except ValueError as error:  # more digits than Python converts
                raise _InvalidJSONError from error
        word = _WORD.match(self._text, place)
        if word is None or word[0].lower() not in _CONSTANTS:
            raise _InvalidJSONError
        return _CONSTANTS[word[0].lower()], word.end()

    def _object(self, place: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        while True:
            place = self._skip(_SPACES_AND_COMMAS, place)
            if self._at(place) == "}":
                return members, place + 1
            key, place = self._key(place)
            place = self._skip(_SPACES, place)
            if self._at(place) != ":":
                raise _InvalidJSONError
            members[key], place = self._element(place + 1, depth, "}")

    def _array(self, place: int, depth: int) -> tuple[list[Any], int]:
        elements: list[Any] = []
        while True:
            place = self._skip(_SPACES_AND_COMMAS, place)
            if self._at(place) == "]":
                return elements, place + 1
            element, place = self._element(place, depth, "]")
            elements.append(element)

    def _element(self, place: int, depth: int, closing: str) -> tuple[Any, int]:
        """Read a value that a comma or the closing bracket follows."""
        value, place = self.value(place, depth + 1)
        place = self._skip(_SPACES, place)
        if self._at(place) not in {",", closing}:
            raise _InvalidJSONError
        return value, place

    def _key(self, place: int) -> tuple[str, int]:
        if self._at(place) in _CLOSING_QUOTES:
            return self._string(place)
        word = _WORD.match(self._text, place)
        if word is None:
            raise _InvalidJSONError
        return word[0], word.end()

    def _string(self, place: int) -> tuple[str, int]:
        """Read a quoted string: it ends at a closing quote before a comma, a colon or a closing bracket."""
        closing, start = _CLOSING_QUOTES[self._text[place]], place + 1
        end = start
        while end < len(self._text):
            if self._text[end] == "\\":
                end += 2
                continue
            if self._text[end] in closing and self._at(self._skip(_SPACES, end + 1)) in {",", ":", "}", "]"}:
                return self._unescape(self._text[start:end]), end + 1
            end += 1
        raise _InvalidJSONError

    @staticmethod
    def _unescape(text: str) -> str:
        if "\\" not in text:
            return text
        try:
            return str(json.loads('"' + text.replace('"', '\\"').replace('\\\\"', '\\"') + '"', strict=False))
        except ValueError:
            return text

    def _skip(self, pattern: re.Pattern[str], place: int) -> int:
        match = pattern.match(self._text, place)
        return place if match is None else match.end()

    def _at(self, place: int) -> str:
        """Return the character at an offset with ASCII punctuation, "" at the end."""
        return self._text[place : place + 1].translate(_TO_ASCII)
