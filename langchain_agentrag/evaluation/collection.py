"""Test questions with their expected sources: read from BEIR folders or JSON lines, written as JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import Hit, SourceDocument

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

Kind = Literal["any", "doc_id", "path", "phrase"]
"""How an expected source is named: by document id, by the path of a file, by a phrase of the passage, or any of them,
tried in this order."""

_FORM = '{"question": "…", "expected": "…"}'
_QUESTION_KEYS = ("question", "query", "text")
_EXPECTED_KEYS = ("expected", "expected_source", "source", "answer_source")
_ID_KEYS = ("id", "_id")
_KNOWN_KEYS = {*_QUESTION_KEYS, *_EXPECTED_KEYS, *_ID_KEYS, "agent_id", "metadata", "made_from"}
_COLUMNS = 3  # of a TREC-style qrels.tsv with a header line


@dataclass(frozen=True, slots=True)
class Expected:
    """One source that answers a question.

    Attributes:
        value: Document id, path, or phrase.
        kind: Which of them.
        grade: How well it answers, >= 1; a higher one counts for more in nDCG.
        document: For a phrase: id of the document it must stand in, or None for any.
    """

    value: str
    kind: Kind = "any"
    grade: int = 1
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question and where its answer stands.

    Attributes:
        id: Unique in its collection.
        text: The question as a user would type it.
        expected: Sources that answer it, at least one.
        agent_id: On whose behalf it is asked; None sees shared documents only.
        made_from: How it came about: "heading", "faq", "model", or "" for one that was given.
    """

    id: str
    text: str
    expected: tuple[Expected, ...]
    agent_id: str | None = None
    made_from: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """Questions, and the documents to search where the collection brings its own.

    Attributes:
        name: For people.
        questions: In the order of the file.
        corpus: File with the documents, or None when a store is to be searched.
    """

    name: str
    questions: tuple[Question, ...]
    corpus: Path | None = field(default=None)

    def documents(self) -> Iterator[SourceDocument]:
        """The documents of the collection, one after the other."""
        if self.corpus is None:
            return
        seen: set[str] = set()
        for place, entry in _entries(self.corpus):
            title, text = str(entry.get("title") or ""), entry.get("text")
            if not isinstance(text, str) or not isinstance(entry.get("_id"), str):
                raise UsageError(f"{place}: a document needs the strings _id and text.")
            _new(place, entry["_id"], seen)
            metadata = entry.get("metadata") or {}
            if not isinstance(metadata, Mapping):
                raise UsageError(f"{place}: metadata must be an object, got {metadata!r}.")
            text = f"{title}\n{text}" if title and not text.startswith(title) else text
            yield SourceDocument(entry["_id"], text, metadata, _agent(place, metadata.get("agent_id")))


def read_collection(path: str | Path, *, qrels: str | None = None, first: int | None = None) -> Collection:
    """The test questions at a path.

    Args:
        path: A folder in the form of BEIR (corpus.jsonl, queries.jsonl, qrels.tsv or qrels/test.tsv), or a file of
            JSON lines {"question": …, "expected": …}, where `expected` is a document id, a file path or a phrase of the
            passage, an object {"doc_id" | "path" | "phrase": …, "grade": …} ({"doc_id": …, "phrase": …} for a phrase in
            one document), or a list of these. An `agent_id`, in the
            line or in a query's metadata, is the agent on whose behalf it is asked.
        qrels: Which judgements of a folder that has several: "cross" for qrels.cross.tsv.
        first: Take only so many questions.

    Raises:
        UsageError: there is nothing of either form, or a line breaks its rules (an id that comes twice is one); the
            message names file and line.
    """
    path = Path(path)
    if path.is_dir():
        found = _read_folder(path, qrels)
    elif path.is_file():
        found = Collection(path.stem, tuple(_read_lines(path)))
    else:
        raise UsageError(
            f"Cannot evaluate {path}: there is no such folder or file. "
            f"`agentrag eval {path} --make` drafts questions from a store into a new file."
        )
    if not found.questions:
        raise UsageError(f"Cannot evaluate {path}: it holds no question with an expected source.")
    chosen = found.questions if first is None else found.questions[:first]
    return Collection(found.name, chosen, found.corpus)


def write_questions(path: str | Path, questions: Iterable[Question]) -> int:
    """Write questions as JSON lines that `read_collection` reads back; how many there were."""
    lines = []
    for question in questions:
        line: dict[str, Any] = {"id": question.id, "question": question.text}
        line["expected"] = [
            {
                **({} if source.document is None else {"doc_id": source.document}),
                source.kind: source.value,
                **({"grade": source.grade} if source.grade != 1 else {}),
            }
            for source in question.expected
        ]
        if question.agent_id is not None:
            line["agent_id"] = question.agent_id
        if question.made_from:
            line["made_from"] = question.made_from
        lines.append(json.dumps(line, ensure_ascii=False))
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


# -- BEIR folders ---------------------------------------------------------------------------------------------------


def _read_folder(folder: Path, qrels: str | None) -> Collection:
    queries, judged = folder / "queries.jsonl", _qrels_file(folder, qrels)
    corpus = folder / "corpus.jsonl"
    # questions that belong to a set of judgements of their own may stand in a file of their own
    own = folder / f"queries.{qrels}.jsonl"
    queries = own if qrels is not None and own.is_file() else queries
    if not queries.is_file():
        raise UsageError(
            f"Cannot evaluate the folder {folder}: it has no queries.jsonl. A folder in the form of BEIR holds "
            f"corpus.jsonl, queries.jsonl and qrels.tsv; otherwise give a file of lines {_FORM}."
        )
    relevant = _read_qrels(judged)
    questions: list[Question] = []
    seen: set[str] = set()
    for place, entry in _entries(queries):
        name, text, metadata = entry.get("_id"), entry.get("text"), entry.get("metadata") or {}
        if not isinstance(name, str) or not isinstance(text, str) or not isinstance(metadata, Mapping):
            raise UsageError(f"{place}: a query needs the strings _id and text, and metadata as an object.")
        _new(place, name, seen)
        agent = _agent(place, metadata.get("agent_id"))
        if sources := relevant.get(name):
            questions.append(Question(name, text, tuple(sources), agent))
    return Collection(
        folder.name if qrels is None else f"{folder.name}.{qrels}",
        tuple(questions),
        corpus if corpus.is_file() else None,
    )


def _qrels_file(folder: Path, name: str | None) -> Path:
    wanted = (
        ("qrels.tsv", "qrels/test.tsv") if name is None else (f"qrels.{name}.tsv", f"qrels/{name}.tsv", name)
    )
    for candidate in wanted:
        if (folder / candidate).is_file():
            return folder / candidate
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.tsv"))
    raise UsageError(
        f"Cannot evaluate the folder {folder}: it has no {' or '.join(wanted)}. "
        f"There is {', '.join(there) or 'no .tsv file'}; choose one with qrels."
    )


def _read_qrels(path: Path) -> dict[str, list[Expected]]:
    relevant: dict[str, list[Expected]] = {}
    for number, line in _lines(path):
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) < _COLUMNS:
            columns = line.split()
        # TREC writes four columns, the second without meaning; BEIR writes three and a header
        query, document, grade = (
            (columns[0], columns[-2], columns[-1]) if len(columns) >= _COLUMNS else ("", "", "")
        )
        if number == 1 and not grade.strip().lstrip("-").isdigit():
            continue
        try:
            worth = int(grade)
        except ValueError:
            raise UsageError(
                f"{path}, line {number}: expected query-id, corpus-id and a whole number with tabs between them, "
                f"got {line!r}."
            ) from None
        if worth > 0:
            relevant.setdefault(query, []).append(Expected(document, "doc_id", worth))
    return relevant


# -- JSON lines -----------------------------------------------------------------------------------------------------


def _read_lines(path: Path) -> Iterator[Question]:
    seen: set[str] = set()
    for number, (place, entry) in enumerate(_entries(path), 1):
        text, named = _first(entry, _QUESTION_KEYS), _first(entry, _EXPECTED_KEYS)
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"{place}: there is no question. A line looks like {_FORM}.")
        if unknown := sorted(entry.keys() - _KNOWN_KEYS):
            raise UsageError(
                f"{place}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_KNOWN_KEYS))}."
            )
        sources = tuple(_expected(place, item) for item in (named if isinstance(named, list) else [named]))
        if not sources:
            raise UsageError(f"{place}: no source is expected; name at least one.")
        name = str(_first(entry, _ID_KEYS) or f"q{number}")
        _new(place, name, seen)
        metadata = entry.get("metadata")
        claimed = metadata.get("agent_id") if isinstance(metadata, Mapping) else None
        agent = _agent(place, entry.get("agent_id", claimed))
        yield Question(name, text, sources, agent, str(entry.get("made_from") or ""))


def _expected(place: str, item: object) -> Expected:
    if isinstance(item, str) and item.strip():
        return Expected(item)
    if isinstance(item, Mapping):
        named = {kind: item[kind] for kind in get_args(Kind) if kind in item}
        document = named.pop("doc_id") if named.keys() == {"doc_id", "phrase"} else None
        grade = item.get("grade", 1)
        texts = [*named.values(), "-" if document is None else document]
        fits = len(named) == 1 and item.keys() <= {*get_args(Kind), "grade"}
        if fits and all(isinstance(text, str) and text.strip() for text in texts) and _is_grade(grade):
            ((kind, value),) = named.items()
            return Expected(value, kind, grade, document)
    raise UsageError(
        f"{place}: cannot read the expected source {item!r}: give a document id, a file path or a phrase as a "
        'string, or {"doc_id": …}, {"path": …}, {"phrase": …} or {"doc_id": …, "phrase": …}, '
        "with a grade >= 1 where one counts for more."
    )


def _is_grade(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _first(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:  # noqa: ANN401  (a value of JSON)
    return next((entry[key] for key in keys if key in entry), None)


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of every line that is not blank."""
    for number, line in _lines(path):
        place = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{place}: this is no JSON ({error}); one object per line.") from error
        if not isinstance(entry, dict):
            raise UsageError(f"{place}: expected a JSON object such as {_FORM}, got {line.strip()[:80]}.")
        yield place, entry


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of every line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}. It must be a text in UTF-8.") from error


def _new(place: str, name: str, seen: set[str]) -> None:
    if name in seen:
        raise UsageError(f"{place}: the id {name!r} was there already; each may stand in one line only.")
    seen.add(name)


def _agent(place: str, claimed: object) -> str | None:
    try:
        return check_agent_id(claimed)
    except ScopeError as error:
        raise ScopeError(f"{place}: {error}") from error


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
