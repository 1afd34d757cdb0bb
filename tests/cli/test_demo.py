"""The demo's claims are true, judged here again from what was found rather than from what it says of itself."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from langchain_agentrag.cli import demo
from langchain_agentrag.connectors.files import FileSystemConnector
from langchain_agentrag.indexer import DualIndexer


def play(root: Path, embeddings: str) -> dict[str, demo.Scene]:
    folder = demo.unpack(root / "files")
    with DualIndexer(root / "store", embeddings=embeddings) as indexer:
        connector = FileSystemConnector(folder, name="workshop")
        first = demo.first_scene(indexer, connector, folder)
        rest = demo.other_scenes(indexer, connector, folder, has_meaning=embeddings != "hash")
        return {scene.title: scene for scene in (first, *rest)}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, demo.Scene]:
    return play(tmp_path_factory.mktemp("demo"), "local")


@pytest.mark.model
class TestWithTheModel:
    def test_every_claim_of_the_demo_is_printed_and_holds(self, scenes: dict[str, demo.Scene]):
        assert {title: scene.holds for title, scene in scenes.items()} == dict.fromkeys(scenes, True)
        assert len(scenes) == 7

    def test_every_file_of_every_format_is_indexed(self, scenes: dict[str, demo.Scene], tmp_path: Path):
        files = [path for path in demo.unpack(tmp_path / "files").rglob("*") if path.is_file()]
        report = scenes["Real files"].report
        assert report.added == len(files) >= 9
        assert {path.suffix for path in files} >= {
            ".md",
            ".html",
            ".txt",
            ".csv",
            ".jsonl",
            ".json",
            ".py",
            ".docx",
            ".pdf",
        }
        assert report.chunks <= 40, "the offline model is slow: keep the demo small"

    def test_paraphrases_share_no_word_with_their_answer(self, scenes: dict[str, demo.Scene]):
        for question in scenes["Other words than the answer's"].questions:
            assert question.wanted in question.hits[0].text
            assert question.hits[0].explanation.matched == ()
            assert question.hits[0].explanation.vector is not None

    def test_the_code_is_missed_by_vectors_and_found_by_both(self, scenes: dict[str, demo.Scene]):
        vector, hybrid = scenes["An exact code"].questions
        assert len(vector.hits) == len(hybrid.hits) == demo.K
        assert not any("E1102" in hit.text for hit in vector.hits)
        assert "E1102" in hybrid.hits[0].text
        assert "E1102" in hybrid.hits[0].explanation.matched

    def test_the_note_is_seen_by_its_owner_only(self, scenes: dict[str, demo.Scene]):
        lina, otto, nobody = scenes["A private note"].questions
        assert lina.hits[0].agent_id == "lina"
        for other in (otto, nobody):
            assert other.hits, "the others search a store that is not empty"
            assert not any("7741" in hit.text or hit.agent_id for hit in other.hits)

    def test_the_agent_searches_reads_and_cites_twice(self, scenes: dict[str, demo.Scene]):
        calls = [call.partition("(")[0] for call, _ in scenes["An agent at work"].steps]
        assert calls == ["question", "search", "read", "search", "read", "answer", "citations"]
        answers = [answer for _, answer in scenes["An agent at work"].steps]
        assert "八毫米的快插接头" in answers[2]
        assert "cabinet B2" in answers[4]
        refs = [re.search(r"ref=(c[0-9a-f]{6})", answer)[1] for answer in (answers[2], answers[4])]
        assert [f"[{ref}]" in answers[5] for ref in refs] == [True, True]
        assert answers[6].startswith("2 statements, 2 cited")

    def test_a_second_run_does_nothing(self, scenes: dict[str, demo.Scene]):
        report = scenes["Running again"].report
        assert report.unchanged == scenes["Real files"].report.added
        assert (report.embedded, report.chunks, report.added, report.updated, report.deleted) == (0, 0, 0, 0, 0)

    def test_an_edit_touches_one_file_and_embeds_only_what_changed(self, scenes: dict[str, demo.Scene]):
        scene = scenes["An edit"]
        assert scene.report.updated == 1
        assert scene.report.unchanged == scenes["Real files"].report.added - 1
        before, after = scene.questions
        assert "200 yuan" in before.hits[before.rank - 1].text
        assert "350 yuan" in after.hits[after.rank - 1].text
        assert not any("200 yuan" in hit.text for hit in after.hits)


def test_hashed_embeddings_do_not_pretend_to_know_meaning(tmp_path: Path):
    scenes = play(tmp_path, "hash")
    assert scenes["Other words than the answer's"].holds is None
    others = {title: scene.holds for title, scene in scenes.items() if scene.holds is not None}
    assert others == dict.fromkeys(others, True)
    assert len(others) == 6


@pytest.mark.parametrize("known", [True, False])
def test_the_command_to_go_on_with_is_one_the_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool):
    """`make demo` runs it from a virtual environment that is not on the path."""
    program = tmp_path / "my env" / "agentrag"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", str(program.parent if known else tmp_path))
    assert shutil.which(demo._command()) == str(program)
