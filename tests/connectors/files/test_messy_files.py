"""Real files of many makes through the command line: every phrase is found, the scan is reported, nothing else fails.

The files are not ours to ship: `AGENTRAG_DATA` names a folder that holds `messy_files/` with its `MANIFEST.tsv`. Files
of the same kinds that the tests write themselves are in `tests/unit/test_connectors_formats.py`.
"""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag.cli.app import app

FOLDER = Path(os.environ.get("AGENTRAG_DATA", "absent")) / "messy_files"
pytestmark = pytest.mark.skipif(
    not (FOLDER / "MANIFEST.tsv").exists(), reason="AGENTRAG_DATA does not name a folder that holds messy_files"
)


def run(*arguments: object) -> dict:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def squeezed(text: str) -> str:
    return re.sub(r"[\s*`|]+", "", text)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("messy") / "store"


@pytest.fixture(scope="module")
def report(store: Path) -> dict:
    return run("index", "--store", store, "--embeddings", "hash", FOLDER)


def manifest() -> list[dict[str, str]]:
    if not FOLDER.exists():
        return []
    with (FOLDER / "MANIFEST.tsv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def test_only_the_scan_fails_and_has_its_reason(report: dict):
    assert [failure["key"] for failure in report["failed"]] == ["scan_without_text.pdf"]
    assert "text layer" in report["failed"][0]["reason"]


@pytest.mark.parametrize("entry", manifest(), ids=lambda entry: entry["file"])
def test_each_phrase_is_found_in_its_file(entry: dict[str, str], store: Path, report: dict):
    if not entry["phrase"]:
        return  # the scan: the test above
    hits = run("search", "--store", store, "-k", 5, entry["phrase"])["hits"]
    matching = [hit for hit in hits if hit["doc_id"].endswith(entry["file"])]
    assert any(squeezed(entry["phrase"]) in squeezed(hit["text"] + hit["context"]) for hit in matching), [
        hit["doc_id"] for hit in hits
    ]
