"""Test collections: questions with expected sources, read from BEIR folders or JSON lines, written as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

Kind = Literal["any", "doc_id", "path", "phrase"]
"""How an expected source is identified: by document id, file path, phrase of the passage, or the first of these that
matches."""

_EXAMPLE = '{"question": "…", "expected": "…"}'
_QUESTION_KEYS = ("question", "query", "text")
_EXPECTED_KEYS = ("expected", "expected_source", "source", "answer_source")
_ID_KEYS = ("id", "_id")
_KNOWN_KEYS = {*_QUESTION_KEYS, *_EXPECTED_KEYS, *_ID_KEYS, "agent_id", "metadata", "made_from"}
_COLUMNS = 3  # of a qrels.tsv: query, document, grade


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
    """A test question and the sources that answer it.

    Attributes:
        id: Unique in its collection.
        text: The question as a user would type it.
        expected: Sources that answer it, at least one.
        agent_id: Agent on whose behalf it is asked; None sees shared documents only.
        made_from: Origin of a drafted question: "heading", "faq" or "model"; "" for any other.
    """

    id: str
    text: str
    expected: tuple[Expected, ...]
    agent_id: str | None = None
    made_from: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """Questions, and the corpus to search where the collection has its own.

    Attributes:
        name: Display name.
        questions: In the order of the file.
        corpus: File with the documents, or None when a store is to be searched.
    """

    name: str
    questions: tuple[Question, ...]
    corpus: Path | None = None

    def documents(self) -> Iterator[SourceDocument]:
        """Yield the documents of the corpus."""
        if self.corpus is None:
            return
        seen: set[str] = set()
        for location, entry in _read_objects(self.corpus):
            title, text = str(entry.get("title") or ""), entry.get("text")
            if not isinstance(text, str) or not isinstance(entry.get("_id"), str):
                raise UsageError(f"{location}: a document needs the strings _id and text.")
            _check_new_id(location, entry["_id"], seen)
            metadata = entry.get("metadata") or {}
            if not isinstance(metadata, Mapping):
                raise UsageError(f"{location}: metadata must be an object, got {metadata!r}.")
            text = f"{title}\n{text}" if title and not text.startswith(title) else text
            yield SourceDocument(entry["_id"], text, metadata, _agent_id(location, metadata.get("agent_id")))


def read_collection(path: str | Path, *, qrels: str | None = None, first: int | None = None) -> Collection:
    """Read the test questions at a path.

    Args:
        path: A BEIR folder (corpus.jsonl, queries.jsonl, qrels.tsv or qrels/test.tsv), or a file of JSON lines
            {"question": …, "expected": …}, where `expected` is a document id, a file path or a phrase of the passage,
            an object {"doc_id" | "path" | "phrase": …, "grade": …} ({"doc_id": …, "phrase": …} for a phrase in one
            document), or a list of these. An `agent_id`, in the line or in a query's metadata, is the agent on whose
            behalf it is asked.
        qrels: Which judgments of a folder that has several: "cross" for qrels.cross.tsv.
        first: Take only the first so many questions.

    Raises:
        UsageError: the path holds neither form, or a line is invalid (a repeated id, for one); the message names file
            and line.
    """
    path = Path(path)
    if path.is_dir():
        collection = _read_beir_folder(path, qrels)
    elif path.is_file():
        collection = Collection(path.stem, tuple(_read_json_lines(path)))
    else:
        raise UsageError(
            f"Cannot evaluate {path}: there is no such folder or file. "
            f"`agentrag eval {path} --make` drafts questions from a store into a new file."
        )
    if not collection.questions:
        raise UsageError(f"Cannot evaluate {path}: it holds no question with an expected source.")
    return replace(collection, questions=collection.questions[:first])


def write_questions(path: str | Path, questions: Iterable[Question]) -> int:
    """Write questions as JSON lines that `read_collection` reads; return their number."""
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


def _read_beir_folder(folder: Path, qrels: str | None) -> Collection:
    qrels_path = _find_qrels(folder, qrels)
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    # a further set of judgments may have questions of its own
    own = folder / f"queries.{qrels}.jsonl"
    queries = own if qrels is not None and own.is_file() else queries
    if not queries.is_file():
        raise UsageError(
            f"Cannot evaluate the folder {folder}: it has no queries.jsonl. A BEIR folder holds "
            f"corpus.jsonl, queries.jsonl and qrels.tsv; otherwise give a file of lines {_EXAMPLE}."
        )
    relevant = _read_qrels(qrels_path)
    questions: list[Question] = []
    seen: set[str] = set()
    for location, entry in _read_objects(queries):
        name, text, metadata = entry.get("_id"), entry.get("text"), entry.get("metadata") or {}
        if not isinstance(name, str) or not isinstance(text, str) or not isinstance(metadata, Mapping):
            raise UsageError(f"{location}: a query needs the strings _id and text, and metadata as an object.")
        _check_new_id(location, name, seen)
        agent = _agent_id(location, metadata.get("agent_id"))
        if sources := relevant.get(name):
            questions.append(Question(name, text, tuple(sources), agent))
    return Collection(
        folder.name if qrels is None else f"{folder.name}.{qrels}",
        tuple(questions),
        corpus if corpus.is_file() else None,
    )


def _find_qrels(folder: Path, name: str | None) -> Path:
    candidates = ("qrels.tsv", "qrels/test.tsv") if name is None else (f"qrels.{name}.tsv", f"qrels/{name}.tsv", name)
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    existing = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.tsv"))
    raise UsageError(
        f"Cannot evaluate the folder {folder}: it has no {' or '.join(candidates)}. "
        f"There is {', '.join(existing) or 'no .tsv file'}; choose one with qrels."
    )


def _read_qrels(path: Path) -> dict[str, list[Expected]]:
    relevant: dict[str, list[Expected]] = {}
    for number, line in _read_numbered_lines(path):
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) < _COLUMNS:
            columns = line.split()
        # TREC writes four columns, the second without meaning; BEIR writes three and a header
        query, document, grade = (columns[0], columns[-2], columns[-1]) if len(columns) >= _COLUMNS else ("", "", "")
        if number == 1 and not grade.strip().lstrip("-").isdigit():
            continue
        try:
            value = int(grade)
        except ValueError:
            raise UsageError(
                f"{path}, line {number}: expected query-id, corpus-id and a whole number with tabs between them, "
                f"got {line!r}."
            ) from None
        if value > 0:
            relevant.setdefault(query, []).append(Expected(document, "doc_id", value))
    return relevant


# -- JSON lines -----------------------------------------------------------------------------------------------------


def _read_json_lines(path: Path) -> Iterator[Question]:
    seen: set[str] = set()
    for number, (location, entry) in enumerate(_read_objects(path), 1):
        text, expected = _first_value(entry, _QUESTION_KEYS), _first_value(entry, _EXPECTED_KEYS)
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"{location}: there is no question. A line looks like {_EXAMPLE}.")
        if unknown := sorted(entry.keys() - _KNOWN_KEYS):
            raise UsageError(f"{location}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_KNOWN_KEYS))}.")
        items = expected if isinstance(expected, list) else [expected]
        sources = tuple(_parse_expected(location, item) for item in items)
        if not sources:
            raise UsageError(f"{location}: no source is expected; name at least one.")
        name = str(_first_value(entry, _ID_KEYS) or f"q{number}")
        _check_new_id(location, name, seen)
        metadata = entry.get("metadata")
        default = metadata.get("agent_id") if isinstance(metadata, Mapping) else None
        agent = _agent_id(location, entry.get("agent_id", default))
        yield Question(name, text, sources, agent, str(entry.get("made_from") or ""))


def _parse_expected(location: str, item: object) -> Expected:
    if isinstance(item, str) and item.strip():
        return Expected(item)
    if isinstance(item, Mapping):
        values = {kind: item[kind] for kind in get_args(Kind) if kind in item}
        document = values.pop("doc_id") if values.keys() == {"doc_id", "phrase"} else None
        grade = item.get("grade", 1)
        texts = [*values.values(), "-" if document is None else document]
        valid = len(values) == 1 and item.keys() <= {*get_args(Kind), "grade"}
        if valid and all(isinstance(text, str) and text.strip() for text in texts) and _is_grade(grade):
            ((kind, value),) = values.items()
            return Expected(value, kind, grade, document)
    raise UsageError(
        f"{location}: cannot read the expected source {item!r}: give a document id, a file path or a phrase as a "
        'string, or {"doc_id": …}, {"path": …}, {"phrase": …} or {"doc_id": …, "phrase": …}, '
        "with a grade >= 1 where one counts for more."
    )


def _is_grade(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _first_value(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:  # noqa: ANN401  (a value of JSON)
    return next((entry[key] for key in keys if key in entry), None)


def _read_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of every line that is not blank."""
    for number, line in _read_numbered_lines(path):
        location = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{location}: this is no JSON ({error}); write one object per line.") from error
        if not isinstance(entry, dict):
            raise UsageError(f"{location}: expected a JSON object such as {_EXAMPLE}, got {line.strip()[:80]}.")
        yield location, entry


def _read_numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of every line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}. It must be a text in UTF-8.") from error


def _check_new_id(location: str, name: str, seen: set[str]) -> None:
    if name in seen:
        raise UsageError(f"{location}: the id {name!r} was used before; each line needs its own.")
    seen.add(name)


def _agent_id(location: str, value: object) -> str | None:
    try:
        return check_agent_id(value)
    except ScopeError as error:
        raise ScopeError(f"{location}: {error}") from error
