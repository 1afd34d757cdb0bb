"""Which hits are an expected source: from a question's expectations to what a measure counts."""

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
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Judged:
    """A question whose expectations were looked up in the store, in what its agent may see.

    Attributes:
        question: The question.
        sources: Its expectations, of kind "doc_id", "path" or "phrase" each.
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
        """The hits as units, best first, each once: an expectation that is met, else the document."""
        return list(dict.fromkeys(self.unit(hit) for hit in hits))

    def unit(self, hit: Hit) -> str:
        """The expectation a hit meets, else a name of its document that is no expectation's."""
        for source in self.sources:
            if _meets(source, hit.doc_id, hit.metadata, hit.text):
                return _unit(source)
        return f"document:{hit.doc_id}"

    def is_expected(self, hit: Hit) -> bool:
        """Whether the hit meets an expectation."""
        return any(_meets(source, hit.doc_id, hit.metadata, hit.text) for source in self.sources)


def judge(indexer: DualIndexer, questions: Sequence[Question]) -> list[Judged]:
    """The questions with their expectations looked up, each in what its own agent may see and nowhere else."""
    judged: dict[str, Judged] = {}
    by_agent: dict[str | None, list[Question]] = {}
    for question in questions:
        by_agent.setdefault(question.agent_id, []).append(question)
    for agent, asked in by_agent.items():
        look = _Library(indexer, agent, (source.value for question in asked for source in question.expected))
        for question in asked:
            sources = tuple(look.resolve(source) for source in question.expected)
            missing = tuple(source for source in sources if not look.holds(source))
            judged[question.id] = Judged(question, sources, missing)
    return [judged[question.id] for question in questions]


class _Library:
    """What one agent may see, and which names are ids of documents in it."""

    def __init__(self, indexer: DualIndexer, agent: str | None, names: Iterable[str]) -> None:
        self._indexer, self._agent = indexer, agent
        self._ids = {document.doc_id for document in indexer.get(names, agent_id=agent)}
        self._documents: list[SourceDocument] | None = None

    @property
    def documents(self) -> list[SourceDocument]:
        """All of them, read when a phrase or a path has to be looked for."""
        if self._documents is None:
            self._documents = self._indexer.get(agent_id=self._agent)
        return self._documents

    def holds(self, source: Expected) -> bool:
        if source.kind == "doc_id":
            return source.value in self._ids
        return any(_meets(source, found.doc_id, found.metadata, found.text) for found in self.documents)

    def resolve(self, source: Expected) -> Expected:
        """The expectation with its kind settled: the first reading that fits something, else a phrase."""
        if source.kind != "any":
            return source
        for kind in ("doc_id", "path"):
            settled = Expected(source.value, kind, source.grade)
            if self.holds(settled):
                return settled
        return Expected(source.value, "phrase", source.grade)


def _unit(source: Expected) -> str:
    return f"{source.kind}:{source.document or ''}:{source.value}"


def _meets(source: Expected, doc_id: str, metadata: Mapping[str, Any], text: str) -> bool:
    if source.kind == "doc_id":
        return doc_id == source.value
    if source.kind == "path":
        names = (doc_id, *(metadata.get(key) for key in _PATH_KEYS))
        return any(isinstance(name, str) and _ends_with(name, source.value) for name in names)
    there = source.document is None or doc_id == source.document
    return there and _flat(source.value) in _flat(text)


def _ends_with(name: str, path: str) -> bool:
    """Whether a name ends with the whole parts of a path: "docs/a.md" ends with "a.md", "data.md" does not."""
    # "name:" may stand before the first part, and a part of the file behind it as "#3"
    parts = re.split(r"[#?]", name.replace("\\", "/"), maxsplit=1)[0].split("/")
    wanted = [part for part in path.replace("\\", "/").split("/") if part not in {"", "."}]
    if not wanted or len(parts) < len(wanted):
        return False
    tail = parts[-len(wanted) :]
    return tail[1:] == wanted[1:] and wanted[0] in {tail[0], tail[0].rpartition(":")[2]}


def _flat(text: str) -> str:
    """The text without case, and with white space as one space, as line breaks differ between copies."""
    return _SPACE.sub(" ", text).strip().casefold()
