"""Relevance of hits: expected sources looked up in the store, and which of them a hit meets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_agentrag.evaluation.collection import Expected, Question
from langchain_agentrag.types import Hit, SourceDocument

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

_PATH_KEYS = ("source", "path", "file_path", "file_name")
_WHITE_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question with its expected sources looked up in what its agent may see.

    Attributes:
        question: The question.
        sources: Its expected sources, each of kind "doc_id", "path" or "phrase".
        missing: Those of them that are nowhere in what the agent may see; no search can find them.
    """

    question: Question
    sources: tuple[Expected, ...]
    missing: tuple[Expected, ...] = ()

    @property
    def qrels(self) -> dict[str, int]:
        """Unit → grade: what a perfect ranking would hold."""
        return {_unit(source): source.grade for source in self.sources}

    def units(self, hits: Sequence[Hit]) -> list[str]:
        """Return the hits as units to rank, best first, each once: an expected source, else the document."""
        return list(dict.fromkeys(self._unit_of(hit) for hit in hits))

    def is_expected(self, hit: Hit) -> bool:
        """Return whether a hit meets an expected source."""
        return self._source_of(hit) is not None

    def _unit_of(self, hit: Hit) -> str:
        source = self._source_of(hit)
        return f"document:{hit.doc_id}" if source is None else _unit(source)

    def _source_of(self, hit: Hit) -> Expected | None:
        matching = (source for source in self.sources if _matches(source, hit.doc_id, hit.metadata, hit.text))
        return next(matching, None)


def judge_questions(indexer: DualIndexer, questions: Sequence[Question]) -> list[JudgedQuestion]:
    """Look up the expected sources of questions, each in what its own agent may see and nowhere else."""
    judged: dict[str, JudgedQuestion] = {}
    by_agent: dict[str | None, list[Question]] = {}
    for question in questions:
        by_agent.setdefault(question.agent_id, []).append(question)
    for agent, group in by_agent.items():
        visible = _VisibleDocuments(
            indexer, agent, (source.value for question in group for source in question.expected)
        )
        for question in group:
            sources = tuple(visible.resolve(source) for source in question.expected)
            missing = tuple(source for source in sources if not visible.has(source))
            judged[question.id] = JudgedQuestion(question, sources, missing)
    return [judged[question.id] for question in questions]


class _VisibleDocuments:
    """Documents that one agent may see, and which of the expected names are ids among them."""

    def __init__(self, indexer: DualIndexer, agent: str | None, names: Iterable[str]) -> None:
        self._indexer, self._agent = indexer, agent
        self._ids = {document.doc_id for document in indexer.get(names, agent_id=agent)}
        self._documents: list[SourceDocument] | None = None

    def has(self, source: Expected) -> bool:
        if source.kind == "doc_id":
            return source.value in self._ids
        if self._documents is None:  # read only when a phrase or a path is looked for
            self._documents = self._indexer.get(agent_id=self._agent)
        return any(_matches(source, document.doc_id, document.metadata, document.text) for document in self._documents)

    def resolve(self, source: Expected) -> Expected:
        """Return the source with its kind settled: the first kind that matches something, else a phrase."""
        if source.kind != "any":
            return source
        for kind in ("doc_id", "path"):
            resolved = Expected(source.value, kind, source.grade)
            if self.has(resolved):
                return resolved
        return Expected(source.value, "phrase", source.grade)


def _unit(source: Expected) -> str:
    return f"{source.kind}:{source.document or ''}:{source.value}"


def _matches(source: Expected, doc_id: str, metadata: Mapping[str, Any], text: str) -> bool:
    if source.kind == "doc_id":
        return doc_id == source.value
    if source.kind == "path":
        names = (doc_id, *(metadata.get(key) for key in _PATH_KEYS))
        return any(isinstance(name, str) and _path_ends_with(name, source.value) for name in names)
    same_document = source.document is None or doc_id == source.document
    return same_document and _normalize(source.value) in _normalize(text)


def _path_ends_with(name: str, path: str) -> bool:
    """Return whether a name ends with whole parts of a path: "docs/a.md" ends with "a.md", "data.md" does not."""
    # "name:" may stand before the first part, and a part of the file after it as "#3"
    parts = re.split(r"[#?]", name.replace("\\", "/"), maxsplit=1)[0].split("/")
    expected = [part for part in path.replace("\\", "/").split("/") if part not in {"", "."}]
    if not expected or len(parts) < len(expected):
        return False
    tail = parts[-len(expected) :]
    return tail[1:] == expected[1:] and expected[0] in {tail[0], tail[0].rpartition(":")[2]}


def _normalize(text: str) -> str:
    """Return the text without case, and with white space as one space, because line breaks differ between copies."""
    return _WHITE_SPACE.sub(" ", text).strip().casefold()
