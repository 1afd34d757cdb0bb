"""`agentrag demo`: scenes on packaged files, each with a claim that is checked; a script stands in for a model."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from langchain_agentrag.agent.citations import check_citations
from langchain_agentrag.cli.language import _, translate
from langchain_agentrag.cli.output import progress_bar, stderr_console, stdout_console
from langchain_agentrag.cli.render import bar, evidence_line, highlighted_snippet, source_label, sync_report_view
from langchain_agentrag.cli.terminal_text import WrappedText
from langchain_agentrag.connectors.files import FileSystemConnector
from langchain_agentrag.errors import NotAStoreError
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.langchain.tools import AgentRAGToolkit
from langchain_agentrag.types import Hit, Hits, SearchMode, SourceDocument, SyncReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from langchain_agentrag.types import Progress

QUESTION = "面板报 E1102 停机，上次是怎么修好的？要换的零件放在哪里？"
FIRST_FACT, SECOND_FACT = "八毫米的快插接头", "cabinet B2"
ANSWER = "上次是气管接头漏气，换了八毫米快插接头 [{first}]。备件在 cabinet B2，还有 2 个 [{second}]。"

_HIT = re.compile(r'\[1\] doc_id="(?P<doc_id>[^"]+)" chunk_id=(?P<chunk_id>\d+) score=\S+ ref=(?P<ref>\w+)')

K = 3
"""Passages per question: few enough that being among them means something."""

SHOWN = 2
"""Passages printed per question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its hits.

    Attributes:
        label: Agent or search mode.
        hits: The hits.
        wanted: Words of the passage that answers the question.
    """

    label: str
    hits: Hits
    wanted: str

    @property
    def rank(self) -> int | None:
        """Rank of the answering passage, from 1, or None when it was not found."""
        return next((rank for rank, hit in enumerate(self.hits, start=1) if self.wanted in hit.text), None)


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene of the demo.

    Attributes:
        title: Its title.
        claim: The claim that it checks.
        holds: Whether the claim holds; None when these embeddings cannot show it.
        report: Report of the write, if the scene wrote.
        questions: Questions and their hits.
        steps: Steps of an agent as (call, answer).
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
    """Copy the files of the demo into a new folder, so that they can be edited.

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
    """Index the files of the demo into an empty store.

    Args:
        indexer: The store.
        connector: The connector of `folder`.
        folder: Folder of the files.
        on_progress: Called for each indexed document.
    """
    report = indexer.sync(connector, on_progress=on_progress)
    formats = sorted({path.suffix.lstrip(".") for path in folder.rglob("*") if path.is_file()})
    claim = f"{report.added} files are indexed ({', '.join(formats)}), one of them in GB18030."
    return Scene("Real files", claim, report.added > 0 and not report.failed, report)


def other_scenes(
    indexer: DualIndexer, connector: FileSystemConnector, folder: Path, *, has_meaning: bool
) -> Iterator[Scene]:
    """Yield the scenes after the first, each computed on demand; the last one edits a file.

    Args:
        indexer: The store that holds the files.
        connector: The connector of `folder`.
        folder: Folder of the files.
        has_meaning: Whether the embeddings know the meaning of words (hashed ones do not).
    """
    yield _paraphrases(indexer, has_meaning=has_meaning)
    yield _exact_code(indexer, has_meaning=has_meaning)
    yield _private_note(indexer)
    yield _agent_at_work(indexer)
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
    holds = all(question.rank == 1 and not question.hits[0].explanation.matched for question in questions)
    return Scene(
        title, "The answer comes first though it shares no word with the question.", holds, questions=questions
    )


def _exact_code(indexer: DualIndexer, *, has_meaning: bool) -> Scene:
    question, wanted = CODE
    hybrid = _ask(indexer, "hybrid", question, wanted)
    title = "An exact code"
    if not has_meaning:
        return Scene(title, "The passage with the code comes first.", hybrid.rank == 1, questions=(hybrid,))
    vector = _ask(indexer, "vector only", question, wanted, mode="vector")
    claim = f"Vectors alone miss it among {K} (E1120 and E1012 look alike); both indexes together put it first."
    return Scene(title, claim, vector.rank is None and hybrid.rank == 1, questions=(vector, hybrid))


def _private_note(indexer: DualIndexer) -> Scene:
    note = SourceDocument("note-1", NOTE, {"type": "note"}, agent_id="lina")
    report = indexer.index_documents([note], agent_id="lina")
    lina, otto, nobody = (
        _ask(indexer, label, NOTE_QUESTION, "7741", agent_id=agent)
        for label, agent in (("agent lina", "lina"), ("agent otto", "otto"), ("no agent", None))
    )
    claim = "Lina finds her note; Otto does not, nor does a caller without a name."
    holds = lina.rank == 1 and otto.rank is None and nobody.rank is None
    return Scene("A private note", claim, holds, report, (lina, otto, nobody))


def _agent_at_work(indexer: DualIndexer) -> Scene:
    """A scripted agent searches, reads, searches with what it read, reads, and answers with citations.

    The script sees the text that a model sees, and takes document and chunk of the first hit from it.
    """
    search, read = AgentRAGToolkit(indexer=indexer, language="zh").get_tools()
    steps = [("question", QUESTION)]
    passages: list[dict[str, Any]] = []

    def call(tool: Any, **arguments: Any) -> str:  # noqa: ANN401  a LangChain tool
        answer = str(tool.invoke(arguments))
        listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        steps.append((f"{tool.name}({listed})", answer))
        return answer

    def search_and_read(query: str, fact: str) -> tuple[str, bool]:
        hit = _HIT.search(call(search, query=query, k=2))
        if hit is None:
            return "", False
        arguments = {"doc_id": hit["doc_id"], "chunk_id": int(hit["chunk_id"])}
        text = call(read, **arguments)
        tool_call = {"type": "tool_call", "id": "1", "name": read.name, "args": arguments}
        passages.extend(read.invoke(tool_call).artifact)
        return hit["ref"], fact in text

    first, has_first = search_and_read("E1102 停机 上次怎么修好", FIRST_FACT)
    second, has_second = search_and_read("快插接头 8 mm 库存 位置", SECOND_FACT)
    answer = ANSWER.format(first=first, second=second)
    report = check_citations(answer, passages)
    steps += [("answer", answer), ("citations", str(report))]
    holds = has_first and has_second and report.completeness == 1 and not report.refuted
    claim = "An agent with the tools `search` and `read` needs two hops, and cites what it read."
    return Scene("An agent at work", claim, holds, steps=tuple(steps))


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
    claim = f"{name} is edited; one file is read again, and the old sentence is gone from both indexes at once."
    holds = before.rank is not None and after.rank is not None and stale.rank is None and report.updated == 1
    return Scene("An edit", claim, holds, report, (before, after))


_STEP_CHARACTERS = 200  # of the answer of a tool


def run_demo(store: Path | None, embeddings: str, *, quiet: bool) -> dict[str, object]:
    """Run the demo and print it, unless quiet.

    Args:
        store: A folder that does not exist yet; None for a new temporary one, which is kept.
        embeddings: "local" or "hash".
        quiet: Print nothing.

    Returns:
        The JSON document: folders of the store and of the files, embeddings, scenes.

    Raises:
        NotAStoreError: the folder exists already.
    """
    home = store or Path(tempfile.mkdtemp(prefix="agentrag-demo-")) / "store"
    if home.exists():
        message = _("The demo starts from nothing, but {path} exists: name a new folder with --store.", path=home)
        raise NotAStoreError(message)
    folder = unpack(home.with_name(f"{home.name}_files"))
    console = stdout_console()

    def print_view(view: RenderableType) -> None:
        if not quiet:
            console.print(view)

    print_view(_opening(folder, embeddings))
    connector = FileSystemConnector(folder, name="workshop")
    with DualIndexer(home, embeddings=embeddings) as indexer:
        with progress_bar(stderr_console(), _("Indexing"), connector) as update:
            scenes = [first_scene(indexer, connector, folder, on_progress=update)]
        print_view(_scene_view(1, scenes[0]))
        rest = other_scenes(indexer, connector, folder, has_meaning=embeddings != "hash")
        for number, scene in enumerate(rest, start=2):
            scenes.append(scene)
            print_view(_scene_view(number, scene))
    print_view(_closing(home, scenes))
    return {"store": str(home), "files": str(folder), "embeddings": embeddings, "scenes": scenes}


def any_claim_failed(result: dict[str, object]) -> bool:
    """Return whether a claim did not hold."""
    scenes = result["scenes"]
    return isinstance(scenes, list) and any(scene.holds is False for scene in scenes)


def _opening(folder: Path, embeddings: str) -> RenderableType:
    model = _("hashed words, no model") if embeddings == "hash" else _("multilingual-e5-small, on this machine")
    lines = (_("A small workshop's files are in {folder}", folder=folder), _("Embeddings: {model}", model=model))
    return Text("\n".join(lines), "dim")


def _scene_view(number: int, scene: Scene) -> RenderableType:
    parts: list[RenderableType] = [Text(""), Rule(Text(f"{number}. {translate(scene.title)}", "bold"), align="left")]
    parts += [_question_view(question) for question in scene.questions]
    parts += [_step_view(call, answer) for call, answer in scene.steps]
    if scene.report is not None:
        parts.append(Padding(sync_report_view(scene.report), (0, 0, 0, 2)))
    parts.append(_verdict(scene))
    return Group(*parts)


def _step_view(call: str, answer: str) -> RenderableType:
    """Return one step of an agent: the call and the beginning of the answer."""
    if call in {"question", "answer", "citations"}:
        return Padding(
            WrappedText(
                Text.assemble((f"{_(call)}: ", "cyan"), ("\n".join(map(translate, answer.splitlines())), "bold"))
            ),
            (0, 0, 0, 2),
        )
    lines = [line for line in answer.splitlines()[1:] if line.strip()]
    text = " ".join(line.strip() for line in lines)
    beginning = WrappedText(Text(text[:_STEP_CHARACTERS] + ("…" if len(text) > _STEP_CHARACTERS else ""), "dim"))
    return Group(Padding(Text(f"→ {call}", "blue"), (0, 0, 0, 2)), Padding(beginning, (0, 0, 0, 6)))


def _verdict(scene: Scene) -> RenderableType:
    mark, style = {True: ("✓", "bold green"), False: ("✗", "bold red"), None: ("–", "dim")}[scene.holds]
    return WrappedText(Text.assemble((f"{mark} ", style), translate(scene.claim)))


def _question_view(question: Question) -> RenderableType:
    head = Text.assemble((f"{translate(_(question.label))}: ", "cyan"), (question.hits.query, "bold"))
    lines: list[RenderableType] = [head]
    for rank, hit in enumerate(question.hits[:SHOWN], start=1):
        wanted = question.wanted if rank == question.rank else ""
        lines.append(Padding(_hit_view(rank, hit, wanted), (0, 0, 0, 2)))
    if question.rank is None:
        lines.append(Text(_("  not among the first {k}", k=K), "dim"))
    elif question.rank > SHOWN:
        lines.append(Text(_("  the answer is number {rank}", rank=question.rank), "dim"))
    return Padding(Group(*lines), (0, 0, 1, 2))


def _hit_view(rank: int, hit: Hit, wanted: str) -> RenderableType:
    """Return one hit with the matched words, and those that answer the question, highlighted."""
    head = Text.assemble(
        (f"{rank} ", "bold"), (bar(hit.score), "cyan"), f" {hit.score:.2f} ", (source_label(hit), "blue")
    )
    spans = list(hit.explanation.highlights)
    if wanted:
        start = hit.text.index(wanted)
        spans.append((start, start + len(wanted)))
        head.append(_("  ← answers"), "bold green")
    return Group(head, Padding(Group(highlighted_snippet(hit.text, spans), evidence_line(hit)), (0, 0, 0, 2)))


def _command() -> str:
    """Return the name of this command, or its path where the shell does not find it by name."""
    running = Path(sys.argv[0])
    installed = shutil.which("agentrag")
    is_other = running.name == "agentrag" and (installed is None or not running.samefile(installed))
    return str(running) if is_other else "agentrag"


def _closing(home: Path, scenes: list[Scene]) -> RenderableType:
    checked = [scene for scene in scenes if scene.holds is not None]
    held = sum(scene.holds is True for scene in checked)
    text = _("{held} of {total} claims held.", held=held, total=len(checked))
    verdict = Text(f"\n{text}", "bold green" if held == len(checked) else "bold red")
    path, command = shlex.quote(str(home)), shlex.quote(_command())
    kept = _("The store is kept in {path}. Ask it yourself:", path=home)
    more = f"{kept}\n  {command} search --store {path} 吃素的人中午吃什么"
    return Group(verdict, Text(more, overflow="fold"))
