"""Records of retrieval tool calls: the query, the passages of the result, and the key that equal calls share."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.text import Analyzer
from langchain_agentrag.text.tokenizer import STOP_WORDS, fold, fold_case

Kind = Literal["search", "read"]

_PREVIEW = 80  # characters of a query or of a passage in a list
_QUERY_ARGUMENTS = frozenset({"query", "q", "question", "search_query", "text", "input", "tool_input", "keywords"})
_LABEL_ARGUMENTS = ("query", "q", "question", "search_query", "text", "input", "sql", "url")
_PUNCTUATION = r",;:!?\"'()\[\]{}`、。「」『』《》〈〉【】“”‘’…—·"
_SEPARATOR = re.compile(rf"\s+|(?<![a-zA-Z0-9])[{_PUNCTUATION}.]+|[{_PUNCTUATION}.]+(?![a-zA-Z0-9])")
_SIGN = re.compile(r"[<>=≤≥≠±$€£¥%]|(?<!\w)[-\u2212](?=\d)")
_RELATION_WORDS = STOP_WORDS | {
    *("without", "since"),
    *("前", "后", "之前", "之后", "以前", "以后", "大于", "小于", "高于", "低于"),
}


@dataclass(frozen=True, slots=True)
class CallKey:
    """Key of a call; near-identical calls have equal keys (see `call_key`).

    Attributes:
        kind: Whether the call searches or reads.
        text: Name of the tool and normalised arguments.
    """

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passages in the result of a call.

    Attributes:
        passage_ids: "doc_id#chunk_id" where a passage has such an address, else its id or a hash of its text.
        texts: Their texts.
    """

    passage_ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetrievalCall:
    """A retrieval call that was executed.

    Attributes:
        number: From 1, within the run.
        key: Equal for near-identical calls.
        label: The query or address, shortened for people.
        passage_ids: Passages that it returned, best first; see `Evidence`.
        previews: First characters of each passage.
        call_id: Id of the tool call, whose message has the full result.
    """

    number: int
    key: CallKey
    label: str
    passage_ids: tuple[str, ...] = ()
    previews: tuple[str, ...] = ()
    call_id: str = ""

    @classmethod
    def from_tool_call(
        cls, kind: Kind, tool: str, arguments: Mapping[str, Any], evidence: Evidence, call_id: str = ""
    ) -> RetrievalCall:
        """Return the record of a tool call and its passages; `RetrievalHistory.with_call` numbers it."""
        key, previews = call_key(kind, tool, arguments), tuple(map(preview, evidence.texts))
        return cls(0, key, _label(arguments), evidence.passage_ids, previews, call_id)

    @property
    def kind(self) -> Kind:
        """Whether it searched or read."""
        return self.key.kind

    def as_json(self) -> dict[str, Any]:
        """Return the call as JSON-safe values."""
        return {
            "number": self.number,
            "kind": self.key.kind,
            "key": self.key.text,
            "asked": self.label,
            "refs": list(self.passage_ids),
            "heads": list(self.previews),
            "call_id": self.call_id,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RetrievalCall:
        """Return the call that `as_json` wrote."""
        return cls(
            stored["number"],
            CallKey(stored["kind"], stored["key"]),
            stored["asked"],
            tuple(stored["refs"]),
            tuple(stored["heads"]),
            stored["call_id"],
        )


def call_key(kind: Kind, tool: str, arguments: Mapping[str, Any]) -> CallKey:
    """Return the key of a call; near-identical calls of a tool have equal keys.

    The query of a search is compared by its words: punctuation, width, case and simplified or traditional characters
    make no difference, every word counts ("without" and 不 too), and so do the signs of a comparison, a currency or a
    negative number. Keywords may stand in any order. Order counts where it has a meaning: within Chinese written
    without a space (重启前备份 is not 备份前重启), and next to words such as "from" or 到. Other arguments, such as
    SQL, a filter or the address of a passage, are compared by value; an empty one equals an absent one.
    """
    values = {name: value for name, value in arguments.items() if value not in (None, "", {}, [])}
    if kind == "search":
        for name in values.keys() & _QUERY_ARGUMENTS:
            if isinstance(values[name], str):
                values[name] = _query_words(values[name])
    try:
        text = canonical(values)
    except UsageError:
        text = short_repr(values)
    return CallKey(kind, f"{tool} {text}")


def _query_words(query: str) -> list[list[str]]:
    """Return the words of each stretch between separators; sorted unless a word relates its neighbours."""
    folded = fold(query)
    split = ([*_analyzer().analyze(text).words, *_SIGN.findall(text)] for text in _SEPARATOR.split(folded))
    stretches = [words for words in split if words]
    if not any(all(word in _relation_words() or _SIGN.fullmatch(word) for word in words) for words in stretches):
        stretches.sort()
    return stretches or [[fold_case(folded)]]


@cache
def _relation_words() -> frozenset[str]:
    return _RELATION_WORDS | {stem for word in _RELATION_WORDS for stem in _analyzer().analyze(word).words}


@cache
def _analyzer() -> Analyzer:
    return Analyzer(stop_words=())


def extract_evidence(content: str, artifact: object) -> Evidence:
    """Return the passages in the result of a tool.

    Args:
        content: Text of the result.
        artifact: Records of this package's tools, Documents or nodes, one or a list. Without an artifact the content
            counts as one passage.
    """
    if artifact is None:
        return Evidence((_text_hash(content),), (content,)) if content.strip() else Evidence()
    items = artifact if isinstance(artifact, list | tuple) else [artifact]
    passages = dict(map(_id_and_text, items))
    return Evidence(tuple(passages), tuple(passages.values()))


def _id_and_text(item: Any) -> tuple[str, str]:  # noqa: ANN401  artifact of any tool
    if isinstance(item, Mapping):
        text = item.get("text") or item.get("page_content") or item.get("content")
        text = text if isinstance(text, str) else _json(item)
        doc_id = item.get("doc_id") or item.get("id")
        chunk_id = item.get("chunk_id")
    else:
        node = getattr(item, "node", item)
        text = getattr(node, "page_content", None) or getattr(node, "text", None)
        text = text if isinstance(text, str) and text else str(node)
        metadata = getattr(node, "metadata", None)
        metadata = metadata if isinstance(metadata, Mapping) else {}
        doc_id = metadata.get("doc_id") or getattr(node, "node_id", None) or getattr(node, "id", None)
        chunk_id = metadata.get("chunk_id")
    if not isinstance(doc_id, str) or not doc_id:
        return _text_hash(text), text
    return doc_id if chunk_id is None else f"{doc_id}#{chunk_id}", text


def _json(item: Mapping[str, Any]) -> str:
    try:
        return json.dumps(item, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no JSON, a cycle, nested too deep
        return short_repr(item)


def _text_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _label(arguments: Mapping[str, Any]) -> str:
    """Return the query, SQL, URL or address in the arguments, else all of them, shortened."""
    label: Any = next((v for name in _LABEL_ARGUMENTS if isinstance(v := arguments.get(name), str) and v), None)
    if label is None and isinstance(arguments.get("doc_id"), str):
        label = f"{arguments['doc_id']}#{arguments.get('chunk_id') or 0}"
    return shorten_line(short_repr(dict(arguments)) if label is None else label, _PREVIEW)


def preview(text: str) -> str:
    """Return the first characters of a passage on one line."""
    return shorten_line(text[: 4 * _PREVIEW], _PREVIEW)


def shorten_line(text: str, limit: int) -> str:
    """Return a text on one line, cut with "…" to at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
