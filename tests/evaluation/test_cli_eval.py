"""`agentrag eval` as a person or a script runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.cli.app import app
from tests.evaluation.test_collections import beir


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["eval", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code == 0 else result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return beir(tmp_path / "pumps")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    topics = ["水泵", "轴承", "spindle", "coolant"]
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents(
            [
                SourceDocument(
                    f"{topic}.md",
                    f"# {topic}保养 care\n\n{topic} 每隔 {n + 2} 周保养一次，由值班人员登记在册，must be noted.",
                )
                for n, topic in enumerate(topics)
            ]
        )
        indexer.index_documents(
            [SourceDocument("vault.md", "# The vault of Lina\n\nThe code of the vault is 7741, do not tell.")], "lina"
        )
    return tmp_path / "store"


def test_a_beir_folder_is_measured_on_its_own_corpus(folder: Path):
    answer = json.loads(run(folder, "--embeddings", "hash", "--json"))
    settings = answer["run"]["settings"]
    assert list(settings) == ["vector", "keyword", "hybrid"]
    assert settings["keyword"]["means"]["nDCG@10"]["mean"] == 1.0
    assert settings["keyword"]["ranks"] == {"q1": 1, "q2": 1}, "q2 is asked as the agent it belongs to"
    text = run(folder, "--embeddings", "hash")
    for part in ("pumps: 2 questions", "keyword", "nDCG@10", "p50 / p95 ms", "Nothing missed."):
        assert part in text


def test_missing_expected_sources_are_reported(store: Path, tmp_path: Path):
    lines = [
        {"question": "水泵保养", "expected": ["水泵.md", {"doc_id": "lost.md"}]},
        {"question": "code of the vault", "expected": {"doc_id": "vault.md"}},  # asked by nobody, so not seen
        {"question": "spindle", "expected": "spindle.md"},
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    output = run(tmp_path / "q.jsonl", "--store", store)
    assert "1 question: no expected source" in output
    assert "1 question: not every expected source" in output
    assert "7741" not in output


def test_drafted_questions_are_measured_kept_and_compared(store: Path, tmp_path: Path):
    questions, page, paths = tmp_path / "q.jsonl", tmp_path / "r.html", tmp_path / "run.json"
    assert "Drafted 4 questions" in run(questions, "--make", "--store", store)
    assert "7741" not in questions.read_text(encoding="utf-8")
    run(questions, "--store", store, "--save", paths, "--html", page, "--language", "zh")
    assert '<html lang="zh">' in page.read_text(encoding="utf-8")
    text = run(questions, "--store", store, "--baseline", paths)
    assert "hybrid against hybrid of the baseline: +0.0000" in text
    assert "is there already" in run(questions, "--make", "--store", store, code=1)


def test_an_agent_drafts_from_its_own_view(store: Path, tmp_path: Path):
    run(tmp_path / "q.jsonl", "--make", "--store", store, "--agent", "lina")
    lines = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 5
    assert {line["agent_id"] for line in lines} == {"lina"}
    answer = json.loads(run(tmp_path / "q.jsonl", "--store", store, "--json"))
    assert set(answer["run"]["settings"]["keyword"]["ranks"].values()) == {1}
    assert "asked for 'lina'" in run(tmp_path / "q.jsonl", "--store", store, "--agent", "otto", code=2)


def test_a_sweep_recommends_a_setting_or_reports_noise(store: Path, tmp_path: Path):
    lines = [
        {"question": f"{topic} 保养 {n}", "expected": f"{topic}.md"}
        for n in range(6)
        for topic in ("水泵", "轴承", "spindle", "coolant")
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    answer = json.loads(run(tmp_path / "q.jsonl", "--store", store, "--sweep", "--measure", "nDCG@10", "--json"))
    advice = answer["advice"]
    assert advice["worthwhile"] is False
    assert len(advice["table"]) > 10
    output = run(tmp_path / "q.jsonl", "--store", store, "--sweep", "--measure", "nDCG@10")
    assert "Keep the defaults" in output
    assert "others, defaults" not in output, "the defaults are none of the others"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("absent",), 2, "no such"),
        (("{folder}", "--measure", "nonsense"), 2, "no measure"),
        (("{folder}", "--language", "fr"), 2, "is not one of 'en', 'zh'"),
        (("{folder}", "--qrels", "none"), 2, "qrels"),
        (("{folder}", "--reranker", "nowhere:thing"), 2, "module:attribute"),
        (("{folder}", "--store", "absent"), 1, "no store"),
        (("{folder}", "--save", "{folder}"), 2, "cannot write"),
        (("{folder}", "--html", "{folder}/absent/report.html"), 2, "cannot write"),
    ],
)
def test_wrong_usage_is_reported(words: tuple[str, ...], code: int, message: str, folder: Path):
    text = run(*(word.format(folder=folder) for word in words), "--embeddings", "hash", code=code)
    assert message in " ".join(text.split())


def test_a_reranker_by_name_of_a_function(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_reranker.py").write_text(
        "def flat(query, texts):\n    return [0.5] * len(texts)\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    answer = json.loads(run(folder, "--embeddings", "hash", "--reranker", "my_reranker:flat", "--json"))
    assert "hybrid + reranker" in answer["run"]["settings"]
