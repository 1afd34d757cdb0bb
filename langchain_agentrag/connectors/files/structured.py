"""JSON, JSON Lines and notebooks as readable text in their own script, with the path to each part."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from langchain_agentrag.connectors.files.content import (
    Content,
    Foreign,
    TextBuilder,
    decoded_metadata,
    storable,
)
from langchain_agentrag.connectors.files.encodings import decode
from langchain_agentrag.errors import UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART = 600
"""Largest JSON value, in characters of its text, that is shown as one part; larger ones are opened."""
_MAX_DEPTH = 60
"""Deeper values are shown as JSON on one line."""
_INDENT_LIMIT = 20
_OUTPUT = 1000
"""Characters of a notebook output that are kept; the rest is rarely prose."""
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def read_json(data: bytes) -> Content:
    """A JSON document, or JSON Lines under that name; broken JSON is kept as text."""
    decoded = decode(data)
    metadata = decoded_metadata(decoded)
    try:
        value = json.loads(decoded.text)
    except (ValueError, RecursionError):
        lines = _json_lines(decoded.text)
        if lines is None:
            text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), decoded.text)
            return Content(storable(text), "plain", metadata={**metadata, "invalid_json": True})
        return _records(lines, metadata)
    builder = TextBuilder()
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, dict) for item in value):
        return _records(enumerate(value), metadata, "item")
    for path, part in _parts(value, ()):
        label = " > ".join(path)
        builder.add(
            f"{label}\n{part}" if label else part, {"path": ".".join(path)} if path else {}, context=label
        )
    return builder.content(metadata=metadata)


def read_jsonl(data: bytes) -> Content:
    """JSON Lines: each line is a passage of its own."""
    decoded = decode(data)
    lines = _json_lines(decoded.text)
    return read_json(data) if lines is None else _records(lines, decoded_metadata(decoded))


def _json_lines(text: str) -> list[tuple[int, Any]] | None:
    """Numbered values of JSON Lines, or None when most lines are something else."""
    values: list[tuple[int, Any]] = []
    broken = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values.append((number, json.loads(line)))
        except (ValueError, RecursionError):
            broken += 1
            values.append((number, line.strip()))
        if broken * 10 > number + 10:
            return None
    return values if len(values) > 1 and broken * 10 <= len(values) else None


def _records(records: Foreign, metadata: dict[str, Any], place: str = "line") -> Content:
    builder = TextBuilder()
    for number, value in records:
        builder.add(render(value), {place: number}, joinable=False)
    return builder.content(metadata=metadata)


def _parts(value: Foreign, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """A value as one text if it is small, else its members' texts, small neighbours together."""
    text = render(value)
    if len(text) <= _PART or not isinstance(value, dict | list) or len(path) > _MAX_DEPTH:
        yield path, text
        return
    members = (
        value.items()
        if isinstance(value, dict)
        else ((f"[{number}]", item) for number, item in enumerate(value))
    )
    small: list[str] = []
    for key, member in members:
        shown = render({key: member}) if isinstance(value, dict) else render([member])
        if small and len(shown) + sum(map(len, small)) > _PART:
            yield path, "\n".join(small)
            small = []
        if len(shown) > _PART:
            yield from _parts(_opened(member), (*path, str(key)))
        else:
            small.append(shown)
    if small:
        yield path, "\n".join(small)


def render(value: Foreign, indent: str = "", depth: int = 0) -> str:
    """A JSON value as `key: value` lines; JSON inside strings is opened, too."""
    value = _opened(value)
    if depth > _INDENT_LIMIT:
        return indent + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if isinstance(value, dict) and value:
        return "\n".join(_entry(f"{indent}{key}:", member, indent, depth) for key, member in value.items())
    if isinstance(value, list) and value:
        return "\n".join(_item(member, indent, depth) for member in value)
    return indent + _scalar(value)


def _entry(label: str, member: Foreign, indent: str, depth: int) -> str:
    member = _opened(member)
    if isinstance(member, dict | list) and member:
        return f"{label}\n{render(member, indent + '  ', depth + 1)}"
    return f"{label} {_scalar(member)}".rstrip()


def _item(member: Foreign, indent: str, depth: int) -> str:
    """A list's member behind a dash, its first line on the same line."""
    return f"{indent}- {render(member, indent + '  ', depth + 1).lstrip()}".rstrip()


def _scalar(value: Foreign) -> str:
    if isinstance(value, str):
        return value
    return "" if value in ({}, []) else json.dumps(value, ensure_ascii=False)


def _opened(value: Foreign) -> Foreign:
    """The value inside a string that holds a JSON object or list."""
    if isinstance(value, str) and value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def read_notebook(data: bytes) -> Content:
    """A Jupyter notebook: text and code cells with the beginning of their outputs, as Markdown."""
    decoded = decode(data)
    try:
        notebook = json.loads(decoded.text)
        cells = notebook.get("cells") or [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
        raise UnreadableSourceError(f"damaged notebook: {type(error).__name__}: {error}") from error
    language = str(notebook.get("metadata", {}).get("kernelspec", {}).get("language", ""))
    builder = TextBuilder()
    for number, cell in enumerate(cells, 1):
        source = _joined(cell.get("source", cell.get("input", "")))
        if cell.get("cell_type") == "code":
            outputs = "\n".join(filter(None, map(_output, cell.get("outputs", ()))))
            blocks = [f"```{language}\n{source}\n```"] if source.strip() else []
            blocks += [f"```\n{outputs[:_OUTPUT].rstrip()}\n```"] if outputs.strip() else []
            source = "\n\n".join(blocks)
        builder.add(source, {"cell": number})
    return builder.content(
        "markdown", decoded_metadata(decoded) | ({"language": language} if language else {})
    )


def _output(output: dict[str, Any]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data", output)
    return _joined(output.get("text") or data.get("text/plain") or data.get("text/markdown") or "")


def _joined(source: Foreign) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")
