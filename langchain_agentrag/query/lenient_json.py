"""Read the JSON objects in a language model's reply: between prose, in code fences, with common mistakes. Pure.

Strict JSON is parsed as such. Anything else is rewritten as strict JSON first: “ ” 「 」 ‘ ’ and ' as quotes, quotes in
strings, full-width punctuation, superfluous commas, unquoted keys and Python's constants. Values are not changed.

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
_PUNCTUATION = str.maketrans("：，｛｝［］", ":,{}[]")
_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_QUOTES = {'"': '"', "'": "'", "[“”＂]": "[“”＂]", "「": "」", "[‘’]": "[‘’]"}
# A string ends at a closing quote before a comma, a colon or a closing bracket.
_STRING = "|".join(rf"{opening}(?:\\.|[^\\])*?{closing}(?=\s*[,，:：}}｝\]］])" for opening, closing in _QUOTES.items())
_TOKEN = re.compile(
    rf"\s*(?:(?P<mark>[{{}}\[\]:,｛｝［］：，])|(?P<string>{_STRING})"
    r"|(?P<word>(?![＂「‘’])[^\s:,{}\[\]：，｛｝［］\"“”']+)(?P<key>(?=\s*[:：]))?)",
    re.DOTALL,
)


def read_json_objects(text: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects of a text in order, without those in <think> tags; never raise."""
    return list(_iter_objects(_THOUGHTS.sub(" ", text[:_MAX_LENGTH])))


def _iter_objects(text: str) -> Iterator[dict[str, Any]]:
    end = 0
    for _ in range(_MAX_STARTS):
        brace = _BRACE.search(text, end)
        if brace is None:
            return
        try:
            value, end = json.JSONDecoder().raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            try:
                strict, end = _to_strict_json(text, brace.start())
                value = json.loads(strict)
            except ValueError:
                end = brace.end()
                continue
        yield value


def _to_strict_json(text: str, start: int) -> tuple[str, int]:
    """Return the object at an offset as strict JSON, and the offset behind it.

    Raises:
        ValueError: it is not closed, too deep, or has a word that is no key, number or constant.
    """
    pieces: list[str] = []
    depth, end = 0, start
    while not pieces or depth:
        match = _TOKEN.match(text, end)
        if match is None or depth > _MAX_DEPTH:
            raise ValueError(start)
        piece, end = match[0].lstrip().translate(_PUNCTUATION), match.end()
        if match["string"]:
            piece = json.dumps(_unescape(match["string"][1:-1]), ensure_ascii=False)
        elif match["word"]:
            piece = _word_to_json(match["word"], is_key=match["key"] is not None)
        elif piece in "}]":
            depth -= 1
            if pieces[-1] == ",":
                pieces.pop()
        elif piece in "{[":
            depth += 1
        if piece != "," or pieces[-1] not in "{[,":
            pieces.append(piece)
    return "".join(pieces), end


def _word_to_json(word: str, *, is_key: bool) -> str:
    if is_key:
        return json.dumps(word, ensure_ascii=False)
    if _NUMBER.fullmatch(word):
        return word
    if word.lower() not in _CONSTANTS:
        raise ValueError(word)
    return _CONSTANTS[word.lower()]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(json.loads('"' + text.replace('"', '\\"').replace('\\\\"', '\\"') + '"', strict=False))
    except ValueError:
        return text
