"""What happens to an open store when its folder, its files or the open files of the process are taken away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import StoreError
from langchain_agentrag.types import SourceDocument

OPEN = {"embeddings": "hash", "exact_limit": 20}
CHROMA = pytest.mark.parametrize("chroma", ["auto", "always"])
ROOT = Path(__file__).parents[2]


def documents(first: int, count: int) -> list[SourceDocument]:
    return [SourceDocument(f"d{n}", f"text number {n} 轴承 thing{n}") for n in range(first, first + count)]


def open_filled(folder: Path, chroma: str) -> DualIndexer:
    indexer = DualIndexer(folder, chroma=chroma, **OPEN)
    indexer.index_documents(documents(0, 40))
    indexer.optimize()
    assert indexer.search("thing3 轴承")[0].doc_id == "d3"
    return indexer


def calls(indexer: DualIndexer) -> dict[str, Callable[[], object]]:
    view = indexer.for_agent("agent")
    return {
        "read": lambda: indexer.read("d3"),
        "get": lambda: indexer.get(["d3"]),
        "search": lambda: indexer.search("thing3"),
        "keyword": lambda: indexer.search("thing3", mode="keyword"),
        "vector": lambda: indexer.search("thing3", mode="vector"),
        "write": lambda: indexer.index_documents(documents(100, 3)),
        "delete": lambda: indexer.delete(["d5"]),
        "stats": indexer.stats,
        "verify": indexer.verify,
        "repair": indexer.repair,
        "optimize": indexer.optimize,
        "forget": lambda: indexer.forget_agent("agent"),
        "view": lambda: view.index_documents(["of its own"]),
        "keys": lambda: indexer.record_keys("names").put(["k"], [None], 1.0),
    }


def refused(indexer: DualIndexer, match: str) -> None:
    """Every call raises our error, on this thread and on one that has no connection yet."""
    for name, call in calls(indexer).items():
        with pytest.raises(StoreError, match=match):
            call()
        with ThreadPoolExecutor(1) as pool:
            error = pool.submit(call).exception()
        assert type(error) is StoreError, name


def works(indexer: DualIndexer, expected: int = 40) -> None:
    assert indexer.stats().documents == expected
    for mode in ("keyword", "vector", "hybrid"):
        hits = indexer.search("number 3 thing3 轴承", 3, mode=mode)
        assert hits[0].doc_id == "d3"
        assert hits.degraded == ()
    assert indexer.index_documents(documents(200, 3)).added == 3
    assert indexer.delete(["d200", "d201", "d202"]).deleted == 3
    assert indexer.verify().problems == ()


@CHROMA
def test_a_folder_that_was_renamed_is_an_error_and_moved_back_everything_is_there(tmp_path: Path, chroma: str):
    folder, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with open_filled(folder, chroma) as indexer:
        folder.rename(elsewhere)
        refused(indexer, "moved, renamed or removed")
        assert not folder.exists()
        elsewhere.rename(folder)
        works(indexer)
        folder.rename(elsewhere)
    assert not folder.exists()
    with DualIndexer(elsewhere, chroma=chroma, **OPEN) as again:
        works(again)


@CHROMA
def test_a_folder_that_was_removed_is_an_error_and_nothing_is_created_there(tmp_path: Path, chroma: str):
    folder = tmp_path / "store"
    with open_filled(folder, chroma) as indexer:
        shutil.rmtree(folder)
        refused(indexer, "moved, renamed or removed")
        assert not folder.exists()
        folder.mkdir()
        refused(indexer, "moved, renamed or removed")
        assert list(folder.iterdir()) == []


def test_a_store_put_in_the_place_of_an_open_one_is_neither_read_nor_touched(tmp_path: Path):
    folder, elsewhere, other = tmp_path / "store", tmp_path / "elsewhere", tmp_path / "other"
    with DualIndexer(other, "hash") as another:
        another.index_documents(["of another store"])
    with open_filled(folder, "auto") as indexer:
        folder.rename(elsewhere)
        other.rename(folder)
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
        refused(indexer, "replaced by another")
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
    with DualIndexer(folder) as another:
        assert another.stats().documents == 1
        assert another.verify().ok
    with DualIndexer(elsewhere, chroma="auto", **OPEN) as moved:
        works(moved)


def test_the_catalog_of_another_store_in_place_of_the_open_one_is_refused(tmp_path: Path):
    with DualIndexer(tmp_path / "other", "hash") as another:
        another.index_documents(["of another store"])
    with open_filled(tmp_path / "store", "auto") as indexer:
        kept = tmp_path / "kept.sqlite"
        (tmp_path / "store" / "catalog.sqlite").rename(kept)
        shutil.copy(tmp_path / "other" / "catalog.sqlite", tmp_path / "store" / "catalog.sqlite")
        refused(indexer, "replaced by another")
        kept.replace(tmp_path / "store" / "catalog.sqlite")
        works(indexer)


def test_the_working_directory_may_change_while_a_store_of_a_relative_path_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_filled(Path("store"), "always") as indexer:
        monkeypatch.chdir(tmp_path / "elsewhere")
        works(indexer)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@CHROMA
@pytest.mark.parametrize("part", ["write.lock", "keyword", "chroma"])
def test_a_part_that_was_removed_is_made_again(tmp_path: Path, chroma: str, part: str):
    folder = tmp_path / "store"
    with open_filled(folder, chroma) as indexer:
        path = folder / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        hits = indexer.search("number 3 thing3 轴承", 3)
        assert hits[0].doc_id == "d3"
        assert indexer.index_documents(documents(100, 3)).added == 3
        assert indexer.delete(["d100", "d101", "d102"]).deleted == 3
        assert indexer.repair().problems == ()
        works(indexer)
    with DualIndexer(folder, chroma=chroma, **OPEN) as again:
        works(again)


FEW_FILES = """
import json, os, resource, sys
from pathlib import Path
from langchain_agentrag.errors import StoreError
from tests.store.test_folder import calls, open_filled, works
indexer = open_filled(Path(sys.argv[1]), sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
outcomes = {}
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + int(sys.argv[3]), hard))
for name, call in calls(indexer).items():
    if name in {"delete", "forget"}: continue
    try:
        call()
        outcomes[name] = "ok"
    except StoreError as error:
        outcomes[name] = "StoreError"
    except BaseException as error:
        outcomes[name] = repr(error)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
written = indexer.stats().documents
indexer.delete([f"d{n}" for n in range(100, 103)])
works(indexer)
indexer.close()
print(json.dumps([outcomes, written]))
"""


@CHROMA
@pytest.mark.parametrize("left", [0, 3, 12])
def test_a_process_that_may_open_no_more_files_gets_our_error_and_loses_nothing(tmp_path: Path, chroma: str, left: int):
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not list open files")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FEW_FILES), str(tmp_path / "store"), chroma, str(left)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    outcomes, written = json.loads(done.stdout.splitlines()[-1])
    assert set(outcomes.values()) <= {"ok", "StoreError"}
    assert outcomes["write"] == "StoreError"
    assert written == 40


def test_a_read_only_file_system_is_our_error(tmp_path: Path):
    if os.getuid() == 0 and shutil.which("mount") is None:
        pytest.skip("root may write anywhere, and there is no mount")
    folder = tmp_path / "store"
    open_filled(folder, "auto").close()
    mounted = subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True, check=False).returncode
    if mounted:
        pytest.skip("this process may not mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        with pytest.raises(StoreError), DualIndexer(folder, chroma="auto", **OPEN) as indexer:
            indexer.index_documents(documents(100, 1))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    with DualIndexer(folder, chroma="auto", **OPEN) as again:
        works(again)
