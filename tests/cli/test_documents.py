"""`agentrag documents` lists, page by page, exactly what an agent may see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.cli.app import app
from langchain_agentrag.errors import UsageError


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents") / "store"
    with DualIndexer(folder, "hash") as indexer:
        shared = [
            SourceDocument(f"手册/{n}.md", f"第 {n} 章 chapter {n}", {"source": f"/data/手册/{n}.md", "n": n})
            for n in range(5)
        ]
        indexer.index_documents(shared)
        for agent in ("lina", "otto"):
            indexer.index_documents(
                [SourceDocument("note", f"secret of {agent}", {"time": "2026-03-02T12:00Z"})], agent
            )
    return folder


def listed(store: Path, *words: str) -> dict:
    result = CliRunner().invoke(app, ["documents", "--store", str(store), "--json", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_agent_sees_the_shared_documents_and_its_own(store: Path):
    answer = listed(store, "--agent", "lina")
    assert answer["total"] == 6
    assert answer["documents"][-1] == {
        "doc_id": "note", "source": "note", "chunks": 1, "time": "2026-03-02T12:00:00+00:00", "agent_id": "lina",
        "quarantined": False,
    }  # fmt: skip
    assert {one["agent_id"] for one in listed(store)["documents"]} == {None}
    assert [one["agent_id"] for one in listed(store, "--agent", "otto", "--own")["documents"]] == ["otto"]
    assert listed(store, "--agent", "Lina")["total"] == 5


@pytest.mark.parametrize("more", [[], ["--filter", '{"n": {"$gte": 1}}']])
def test_pages_hold_every_document_once(store: Path, more: list[str]):
    whole = listed(store, "--agent", "lina", *more)["documents"]
    pages = [listed(store, "--agent", "lina", "-n", "2", "--offset", str(at), *more) for at in range(0, 8, 2)]
    assert [one for page in pages for one in page["documents"]] == whole
    assert {page["total"] for page in pages} == {len(whole)}


def test_the_table_names_the_next_page(store: Path):
    words = ["documents", "--store", str(store), "-n", "2", "--offset", "2"]
    text = CliRunner().invoke(app, words, env={"COLUMNS": "100"}).stdout
    assert "手册/2.md" in text
    assert "3 to 4 of 5; next: --offset 4" in text


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"offset": -1}, {"limit": True}, {"offset": 1.5}, {"agent_id": ""}])
def test_wrong_arguments_are_refused(store: Path, wrong: dict):
    with DualIndexer(store) as indexer, pytest.raises(UsageError):
        indexer.list_documents(**wrong)
