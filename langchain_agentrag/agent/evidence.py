"""What a retrieval call was about and what it brought, from the arguments and the answer of any tool. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_agentrag.agent.budget import Call, Kind, head_of, key_of

_ASKED = 80
_NAMES = ("query", "q", "question", "search_query", "text", "input", "sql", "url")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passages of an answer.

    Attributes:
        refs: What tells each from every other, "doc_id#chunk_id" where it has such an address.
        texts: Their texts.
    """

    refs: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def evidence_of(content: str, artifact: object) -> Evidence:
    """The passages of an answer.

    Args:
        content: What the model is told.
        artifact: Records as of our tools, Documents or nodes, one or a list; without any, the content counts as one
            passage.
    """
    found = artifact if isinstance(artifact, list | tuple) else [artifact]
    if artifact is None:
        return Evidence((_digest(content),), (content,)) if content.strip() else Evidence()
    passages = dict(_passage(item) for item in found)
    return Evidence(tuple(passages), tuple(passages.values()))


def call_of(
    kind: Kind, arguments: Mapping[str, Any], name: str, evidence: Evidence, call_id: str = ""
) -> Call:
    """The record of a call; its number is given when it is accounted.

    Args:
        kind: Whether it searched or read.
        arguments: As the model gave them.
        name: The tool: an equal query to another one is another call.
        evidence: What it brought.
        call_id: Where its answer stands.
    """
    heads = tuple(head_of(text) for text in evidence.texts)
    return Call(0, kind, full_key(kind, name, arguments), asked_of(arguments), evidence.refs, heads, call_id)


def full_key(kind: Kind, name: str, arguments: Mapping[str, Any]) -> str:
    """`key_of` with the name of the tool."""
    return f"{name} {key_of(kind, arguments)}"


def asked_of(arguments: Mapping[str, Any]) -> str:
    """What a call asked for, in a few words for people."""
    given = next(
        (arguments[name] for name in _NAMES if isinstance(arguments.get(name), str) and arguments[name]), None
    )
    if given is None and isinstance(arguments.get("doc_id"), str):
        given = f"{arguments['doc_id']}#{arguments.get('chunk_id') or 0}"
    line = " ".join(str(dict(arguments) if given is None else given).split())
    return line if len(line) <= _ASKED else f"{line[: _ASKED - 1]}…"


def _passage(item: Any) -> tuple[str, str]:  # noqa: ANN401  somebody's artifact
    """Address and text of a record, Document or node."""
    if isinstance(item, Mapping):
        text = item.get("text") or item.get("page_content") or item.get("content")
        text = text if isinstance(text, str) else json.dumps(item, ensure_ascii=False, default=str)
        doc_id = item.get("doc_id") or item.get("id")
        chunk = item.get("chunk_id")
    else:
        node = getattr(item, "node", item)
        text = getattr(node, "page_content", None) or getattr(node, "text", None)
        text = text if isinstance(text, str) and text else str(node)
        metadata = getattr(node, "metadata", None)
        metadata = metadata if isinstance(metadata, Mapping) else {}
        doc_id = metadata.get("doc_id") or getattr(node, "node_id", None) or getattr(node, "id", None)
        chunk = metadata.get("chunk_id")
    if not isinstance(doc_id, str) or not doc_id:
        return _digest(text), text
    return doc_id if chunk is None else f"{doc_id}#{chunk}", text


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
