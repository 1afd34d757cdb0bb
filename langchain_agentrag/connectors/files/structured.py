"""JSON, JSON Lines and notebooks as readable text, with the path of each part."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from langchain_agentrag.connectors.files.content import Content, TextBuilder, Untyped, clean_text, decoded_metadata
from langchain_agentrag.connectors.files.encodings import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_PART = 600
"""Largest JSON value, in characters of its text, that is one part; larger ones are split into their members."""
_MAX_DEPTH = 60  # values nested deeper are not split
_MAX_INDENT = 20  # values nested deeper are formatted as JSON on one line
_MAX_OUTPUT = 1000  # characters of a notebook output that are indexed; the rest is rarely prose
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def read_json(data: bytes) -> Content:
    """Read a JSON document, or JSON Lines with the suffix .json; invalid JSON is read as text."""
    decoded = decode(data)
    metadata = decoded_metadata(decoded)
    try:
        return _json_content(json.loads(decoded.text), metadata)
    except (ValueError, RecursionError):
        lines = _json_lines(decoded.text)
        if lines is None:
            text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), decoded.text)
            return Content(clean_text(text), "plain", metadata={**metadata, "invalid_json": True})
        return _records(lines, metadata)


def _json_content(value: Untyped, metadata: dict[str, Any]) -> Content:
    builder = TextBuilder()
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, dict) for item in value):
        return _records(((number, _render(item)) for number, item in enumerate(value)), metadata, "item")
    for path, part in _parts(value, ()):
        label = " > ".join(path)
        locator = {"path": ".".join(path)} if path else {}
        builder.add(f"{label}\n{part}" if label else part, locator, context=label)
    return builder.content(metadata=metadata)


def read_jsonl(data: bytes) -> Content:
    """Read JSON Lines, with each line as a section."""
    decoded = decode(data)
    lines = _json_lines(decoded.text)
    return read_json(data) if lines is None else _records(lines, decoded_metadata(decoded))


def _json_lines(text: str) -> list[tuple[int, str]] | None:
    """Return the numbered values of JSON Lines as text, or None when too many lines are invalid."""
    values: list[tuple[int, str]] = []
    invalid = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values.append((number, _render(json.loads(line))))
        except (ValueError, RecursionError):
            invalid += 1
            values.append((number, line.strip()))
        if invalid * 10 > number + 10:
            return None
    return values if len(values) > 1 and invalid * 10 <= len(values) else None


def _records(records: Iterable[tuple[int, str]], metadata: dict[str, Any], unit: str = "line") -> Content:
    builder = TextBuilder()
    for number, text in records:
        builder.add(text, {unit: number}, joinable=False)
    return builder.content(metadata=metadata)


def _parts(value: Untyped, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and text of a value, or of its members when it is large, with small neighbours joined."""
    text = _render(value)
    if len(text) <= _MAX_PART or not isinstance(value, dict | list) or len(path) > _MAX_DEPTH:
        yield path, text
        return
    members: list[tuple[str, Untyped, Untyped]]
    if isinstance(value, dict):
        members = [(str(key), member, {key: member}) for key, member in value.items()]
    else:
        members = [(f"[{number}]", member, [member]) for number, member in enumerate(value)]
    small: list[str] = []
    for name, member, wrapped in members:
        member_text = _render(wrapped)
        if small and len(member_text) + sum(map(len, small)) > _MAX_PART:
            yield path, "\n".join(small)
            small = []
        if len(member_text) > _MAX_PART:
            yield from _parts(_parse_nested(member), (*path, name))
        else:
            small.append(member_text)
    if small:
        yield path, "\n".join(small)


def _render(value: Untyped, indent: str = "", depth: int = 0) -> str:
    """Format a JSON value as `key: value` lines, including JSON inside strings."""
    value = _parse_nested(value)
    if depth > _MAX_INDENT:
        return indent + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if isinstance(value, dict) and value:
        return "\n".join(_entry(f"{indent}{key}:", member, indent, depth) for key, member in value.items())
    if isinstance(value, list) and value:
        return "\n".join(_item(member, indent, depth) for member in value)
    return indent + _scalar(value)


def _entry(label: str, member: Untyped, indent: str, depth: int) -> str:
    member = _parse_nested(member)
    if isinstance(member, dict | list) and member:
        return f"{label}\n{_render(member, indent + '  ', depth + 1)}"
    return f"{label} {_scalar(member)}".rstrip()


def _item(member: Untyped, indent: str, depth: int) -> str:
    """Format a list's member behind a dash, with its first line on the same line."""
    return f"{indent}- {_render(member, indent + '  ', depth + 1).lstrip()}".rstrip()


def _scalar(value: Untyped) -> str:
    if isinstance(value, str):
        return value
    return "" if value in ({}, []) else json.dumps(value, ensure_ascii=False)


def _parse_nested(value: Untyped) -> Untyped:
    """Parse a string that contains a JSON object or list; return other values unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def read_notebook(data: bytes) -> Content:
    """Read a Jupyter notebook as Markdown: text cells, code cells and the beginning of their outputs."""
    decoded = decode(data)
    notebook = json.loads(decoded.text)
    cells = notebook.get("cells") or [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
    language = str(notebook.get("metadata", {}).get("kernelspec", {}).get("language", ""))
    builder = TextBuilder()
    for number, cell in enumerate(cells, 1):
        source = _joined(cell.get("source", cell.get("input", "")))
        if cell.get("cell_type") == "code":
            outputs = "\n".join(filter(None, map(_output, cell.get("outputs", ()))))
            blocks = [f"```{language}\n{source}\n```"] if source.strip() else []
            blocks += [f"```\n{outputs[:_MAX_OUTPUT].rstrip()}\n```"] if outputs.strip() else []
            source = "\n\n".join(blocks)
        builder.add(source, {"cell": number})
    metadata = {"language": language} if language else {}
    return builder.content("markdown", decoded_metadata(decoded) | metadata)


def _output(output: dict[str, Any]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data", output)
    return _joined(output.get("text") or data.get("text/plain") or data.get("text/markdown") or "")


def _joined(source: Untyped) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")
