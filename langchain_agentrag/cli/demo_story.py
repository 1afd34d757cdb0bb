"""The demo's story: each scene does something real and checks its own claim."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_agentrag.types import Hit, Hits, SearchMode, SourceDocument, SyncReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.types import Progress

K = 3
"""Passages per question: few enough that being among them means something."""

SHOWN = 2
"""Passages drawn per question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that was asked, and what came back.

    Attributes:
        label: Who asked, or how.
        hits: The answer.
        wanted: Words of the passage that answers the question.
    """

    label: str
    hits: Hits
    wanted: str

    @property
    def rank(self) -> int | None:
        """Rank of the passage that answers, from 1, or None when it was not found."""
        return next((rank for rank, hit in enumerate(self.hits, start=1) if self.wanted in hit.text), None)

    @property
    def best(self) -> Hit | None:
        """The passage that answers, if found."""
        return None if self.rank is None else self.hits[self.rank - 1]


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing shown.

    Attributes:
        title: What it is about.
        claim: What is said to be so.
        holds: Whether it was so; None when these embeddings cannot show it.
        report: What a write did, if the scene wrote.
        questions: What was asked, if it asked.
        steps: What an agent did, if one was at work: (call, what came back).
    """

    title: str
    claim: str
    holds: bool | None
    report: SyncReport | None = None
    questions: tuple[Question, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()


PARAPHRASES = (
    ("English", "I feel sick this morning", "Call the foreman before seven"),
    ("中文", "累了可以歇会儿吗", "须离开工位活动十分钟"),
    ("English question, Chinese answer", "What should a vegetarian eat at noon?", "两道不含肉和蛋的菜"),
)
CODE = ("E1102", "快插接头，下午恢复生产")
NOTE = "周师傅托我订的蛋糕放在门卫室，取货码是 7741。请不要告诉他。"
NOTE_QUESTION = "蛋糕放在哪里"
EDIT = ("office/welcome.md", "Lost keys cost 200 yuan", "Lost keys cost 350 yuan")
EDIT_QUESTION = "What do lost keys cost?"


def unpack(folder: Path) -> Path:
    """Copy the demo's files into this folder, so that they can be edited.

    Raises:
        FileExistsError: the folder exists already.
    """
    with as_file(files("langchain_agentrag.cli") / "demo_files") as packaged:
        return Path(shutil.copytree(packaged, folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")))


def first_scene(
    indexer: DualIndexer,
    connector: FileSystemConnector,
    folder: Path,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> Scene:
    """Index the demo's files into an empty store.

    Args:
        indexer: The store.
        connector: The connector of `folder`.
        folder: Where the demo's files are.
        on_progress: Told of each document that is indexed.
    """
    report = indexer.sync(connector, on_progress=on_progress)
    formats = sorted({path.suffix.lstrip(".") for path in folder.rglob("*") if path.is_file()})
    claim = f"{report.added} files are indexed ({', '.join(formats)}), one of them in GB18030."
    return Scene("Real files", claim, report.added > 0 and not report.failed, report)


def other_scenes(
    indexer: DualIndexer, connector: FileSystemConnector, folder: Path, *, has_meaning: bool
) -> Iterator[Scene]:
    """The scenes after the first, each computed when it is asked for; the last one edits a file.

    Args:
        indexer: The store that holds the files.
        connector: The connector of `folder`.
        folder: Where the demo's files are.
        has_meaning: Whether the embeddings know what words mean (hashed ones do not).
    """
    yield _paraphrases(indexer, has_meaning=has_meaning)
    yield _exact_code(indexer, has_meaning=has_meaning)
    yield _private_note(indexer)
    yield _two_hops(indexer)
    yield _again(indexer, connector, folder)
    yield _edit(indexer, connector, folder)


def _ask(
    indexer: DualIndexer,
    label: str,
    question: str,
    wanted: str,
    *,
    agent_id: str | None = None,
    mode: SearchMode = "hybrid",
) -> Question:
    return Question(label, indexer.search(question, k=K, agent_id=agent_id, mode=mode), wanted)


def _paraphrases(indexer: DualIndexer, *, has_meaning: bool) -> Scene:
    title = "Other words than the answer's"
    if not has_meaning:
        return Scene(title, "This takes a model; hashed embeddings know no meaning.", None)
    questions = tuple(_ask(indexer, label, question, wanted) for label, question, wanted in PARAPHRASES)
    held = all(question.rank == 1 and not question.hits[0].explanation.matched for question in questions)
    return Scene(
        title, "The answer comes first though it shares no word with the question.", held, questions=questions
    )


def _exact_code(indexer: DualIndexer, *, has_meaning: bool) -> Scene:
    question, wanted = CODE
    hybrid = _ask(indexer, "hybrid", question, wanted)
    title = "An exact code"
    if not has_meaning:
        return Scene(title, "The passage with the code comes first.", hybrid.rank == 1, questions=(hybrid,))
    vector = _ask(indexer, "vector only", question, wanted, mode="vector")
    claim = f"Vectors alone miss it among {K} (E1120 and E1012 look alike); both legs together put it first."
    return Scene(title, claim, vector.rank is None and hybrid.rank == 1, questions=(vector, hybrid))


def _private_note(indexer: DualIndexer) -> Scene:
    note = SourceDocument("note-1", NOTE, {"type": "note"}, agent_id="lina")
    report = indexer.index_documents([note], agent_id="lina")
    lina, otto, nobody = (
        _ask(indexer, label, NOTE_QUESTION, "7741", agent_id=agent)
        for label, agent in (("agent lina", "lina"), ("agent otto", "otto"), ("no agent", None))
    )
    claim = "Lina finds her note; Otto does not, nor does a caller without a name."
    held = lina.rank == 1 and otto.rank is None and nobody.rank is None
    return Scene("A private note", claim, held, report, (lina, otto, nobody))


def _two_hops(indexer: DualIndexer) -> Scene:
    from langchain_agentrag.cli.demo_trajectory import QUESTION, two_hops

    steps, held = two_hops(indexer)
    claim = "An agent with the tools `search` and `read` needs two hops, and cites what it read."
    return Scene("An agent at work", claim, held, steps=(("question", QUESTION), *steps))


def _again(indexer: DualIndexer, connector: FileSystemConnector, folder: Path) -> Scene:
    report = indexer.sync(connector)
    files = sum(path.is_file() for path in folder.rglob("*"))
    wrote = report.embedded or report.chunks or report.added or report.updated or report.deleted
    claim = "Nothing changed, so nothing is embedded and nothing is written."
    return Scene("Running again", claim, report.unchanged == files and not wrote, report)


def _edit(indexer: DualIndexer, connector: FileSystemConnector, folder: Path) -> Scene:
    name, old, new = EDIT
    before = _ask(indexer, "before", EDIT_QUESTION, old)
    path = folder / name
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    report = indexer.sync(connector)
    after = _ask(indexer, "after", EDIT_QUESTION, new)
    stale = _ask(indexer, "after", old, old)
    claim = f"{name} is edited; one file is read again, and the old sentence is gone from both legs at once."
    held = before.rank is not None and after.rank is not None and stale.rank is None and report.updated == 1
    return Scene("An edit", claim, held, report, (before, after))
