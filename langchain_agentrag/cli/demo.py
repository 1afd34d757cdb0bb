"""`agentrag demo`: draws the story of `langchain_agentrag.demo`, scene by scene."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from langchain_agentrag.cli import demo_story
from langchain_agentrag.cli.render import bar, marked, reasons, report_view, source_of
from langchain_agentrag.cli.session import side_channel, terminal
from langchain_agentrag.errors import NotAStoreError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from langchain_agentrag.types import Hit


_STEP_CHARACTERS = 200  # of what a tool answered


def play(store: Path | None, embeddings: str, *, quiet: bool) -> dict[str, object]:
    """Run the demo and draw it, unless quiet.

    Args:
        store: A folder that does not exist yet; None for a new temporary one, which is kept.
        embeddings: "local" or "hash".
        quiet: Draw nothing.

    Returns:
        What happened: where the store and the files are, and each scene.

    Raises:
        NotAStoreError: the folder exists already.
    """
    from langchain_agentrag.cli.progress import progress_bar
    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.indexer import DualIndexer

    home = store or Path(tempfile.mkdtemp(prefix="agentrag-demo-")) / "store"
    if home.exists():
        msg = f"The demo starts from nothing, but {home} exists: name a folder that does not, or none."
        raise NotAStoreError(msg)
    folder = demo_story.unpack(home.with_name(f"{home.name}_files"))
    console = terminal()

    def show(view: RenderableType) -> None:
        if not quiet:
            console.print(view)

    show(_opening(folder, embeddings))
    connector = FileSystemConnector(folder, name="workshop")
    with DualIndexer(home, embeddings=embeddings) as indexer:
        with progress_bar(side_channel(), "Indexing", connector) as moved:
            scenes = [demo_story.first_scene(indexer, connector, folder, on_progress=moved)]
        show(_scene_view(1, scenes[0]))
        rest = demo_story.other_scenes(indexer, connector, folder, has_meaning=embeddings != "hash")
        for number, scene in enumerate(rest, start=2):
            scenes.append(scene)
            show(_scene_view(number, scene))
    show(_closing(home, scenes))
    return {"store": str(home), "files": str(folder), "embeddings": embeddings, "scenes": scenes}


def failed(result: dict[str, object]) -> bool:
    """Whether a claim did not hold."""
    scenes = result["scenes"]
    return isinstance(scenes, list) and any(scene.holds is False for scene in scenes)


def _opening(folder: Path, embeddings: str) -> RenderableType:
    model = {"local": "multilingual-e5-small, on this machine", "hash": "hashed words, no model"}
    return Text(
        f"A small workshop's files are in {folder}\nEmbeddings: {model.get(embeddings, embeddings)}", "dim"
    )


def _scene_view(number: int, scene: demo_story.Scene) -> RenderableType:
    parts: list[RenderableType] = [Text(""), Rule(Text(f"{number}. {scene.title}", "bold"), align="left")]
    parts += [_question_view(question) for question in scene.questions]
    parts += [_step_view(call, answer) for call, answer in scene.steps]
    if scene.report is not None:
        parts.append(Padding(report_view(scene.report), (0, 0, 0, 2)))
    parts.append(_verdict(scene))
    return Group(*parts)


def _step_view(call: str, answer: str) -> RenderableType:
    """One step of an agent: what it called, and the beginning of what came back."""
    if call in {"question", "answer", "citations"}:
        return Padding(Text.assemble((f"{call}: ", "cyan"), (answer, "bold")), (0, 0, 0, 2))
    lines = [line for line in answer.splitlines()[1:] if line.strip()]
    shown = " ".join(line.strip() for line in lines)
    came_back = Text(shown[:_STEP_CHARACTERS] + ("…" if len(shown) > _STEP_CHARACTERS else ""), "dim")
    return Group(Padding(Text(f"→ {call}", "blue"), (0, 0, 0, 2)), Padding(came_back, (0, 0, 0, 6)))


def _verdict(scene: demo_story.Scene) -> Text:
    mark, style = {True: ("✓", "bold green"), False: ("✗", "bold red"), None: ("–", "dim")}[scene.holds]
    return Text.assemble((f"{mark} ", style), scene.claim)


def _question_view(question: demo_story.Question) -> RenderableType:
    head = Text.assemble((f"{question.label}: ", "cyan"), (question.hits.query, "bold"))
    lines: list[RenderableType] = [head]
    for rank, hit in enumerate(question.hits[: demo_story.SHOWN], start=1):
        wanted = question.wanted if rank == question.rank else ""
        lines.append(Padding(_hit_view(rank, hit, wanted), (0, 0, 0, 2)))
    if question.rank is None:
        lines.append(Text(f"  not among the first {demo_story.K}", "dim"))
    elif question.rank > demo_story.SHOWN:
        lines.append(Text(f"  the answer is number {question.rank}", "dim"))
    return Padding(Group(*lines), (0, 0, 1, 2))


def _hit_view(rank: int, hit: Hit, wanted: str) -> RenderableType:
    """One hit; the words that answer the question, if any, stand out like those that matched."""
    head = Text.assemble(
        (f"{rank} ", "bold"), (bar(hit.score), "cyan"), f" {hit.score:.2f} ", (source_of(hit), "blue")
    )
    spans = list(hit.explanation.highlights)
    if wanted:
        start = hit.text.index(wanted)
        spans.append((start, start + len(wanted)))
        head.append("  ← answers", "bold green")
    return Group(head, Padding(Group(marked(hit.text, spans), reasons(hit)), (0, 0, 0, 2)))


def _command() -> str:
    """What to type for this command: its name, or its path where the shell would not find it by name."""
    run = Path(sys.argv[0])
    found = shutil.which("agentrag")
    return str(run) if run.name == "agentrag" and (found is None or not run.samefile(found)) else "agentrag"


def _closing(home: Path, scenes: list[demo_story.Scene]) -> RenderableType:
    shown = [scene for scene in scenes if scene.holds is not None]
    held = sum(scene.holds is True for scene in shown)
    verdict = Text(
        f"\n{held} of {len(shown)} claims held.", "bold green" if held == len(shown) else "bold red"
    )
    where, command = shlex.quote(str(home)), shlex.quote(_command())
    more = f"The store is kept in {home}. Ask it yourself:\n  {command} search --store {where} 吃素的人中午吃什么"
    return Group(verdict, Text(more, overflow="fold"))
