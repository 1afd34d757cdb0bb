"""Whatever goes wrong while the store is written: what was acknowledged is there, and the rest wholly or not at all."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import AgentRagError, StoreError
from langchain_agentrag.store import store as store_module
from langchain_agentrag.store.failpoints import FAILPOINTS
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.store.vector_index import HNSW, ChromaVectorIndex
from langchain_agentrag.types import SourceDocument
from tests.store.crash import OPEN, Killer, next_kill, store_often, text_of, word_of

SEED = int(os.environ.get("AGENTRAG_CRASH_SEED", "11"))


def documents(numbers: range, version: int = 0) -> list[SourceDocument]:
    return [SourceDocument(doc_id=str(n), text=text_of(None, n, version)) for n in numbers]


def assert_holds(indexer: DualIndexer, expected: dict[int, int]) -> None:
    """Exactly these documents, in these versions, found by both indexes; nothing for verify() to say."""
    report = indexer.verify()
    assert report.ok, report.problems
    assert report.documents == len(expected)
    assert not indexer._store.catalog.journal()
    for number in sorted(expected)[:: max(1, len(expected) // 6)]:
        version = expected[number]
        for mode, query in (("keyword", word_of(None, number, version)), ("vector", text_of(None, number, version))):
            hits = indexer.search(query, 3, mode=mode)
            assert hits.degraded == ()
            assert hits[0].text == text_of(None, number, version), f"{mode} finds something else first"


@pytest.fixture(scope="module", autouse=True)
def _hnsw_files_written_often() -> Iterator[None]:
    before = dict(HNSW)
    store_often()
    yield
    HNSW.clear()
    HNSW.update(before)


# -- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_kill_at_every_named_point_loses_nothing_acknowledged(tmp_path: Path):
    with Killer(tmp_path, SEED) as killer:
        for point in FAILPOINTS:
            killer.kill_at(point)


@pytest.mark.timeout(300)
def test_kills_at_random_moments_and_during_recovery_lose_nothing_acknowledged(tmp_path: Path):
    with Killer(tmp_path, SEED) as killer:
        killer.kill_at_random()
        killer.kill_at_random()
        killer.kill_twice("")
        killer.kill_twice("dead-rows-removed")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_three_hundred_kills_lose_nothing_acknowledged(tmp_path: Path):
    with Killer(tmp_path, SEED) as killer:
        for count in range(300):
            next_kill(killer, count)


# -- errors -----------------------------------------------------------------------------------------------------------


class InjectedError(Exception):
    """Raised in place of a step."""


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", **OPEN) as indexer:
        indexer.index_documents(documents(range(40)))
        yield indexer


STEPS = {
    "TantivyKeywordIndex.add": (TantivyKeywordIndex, "add"),
    "TantivyKeywordIndex.delete": (TantivyKeywordIndex, "delete"),
    "TantivyKeywordIndex.purge": (TantivyKeywordIndex, "purge"),
    "ChromaVectorIndex.add": (ChromaVectorIndex, "add"),
    "ChromaVectorIndex.delete": (ChromaVectorIndex, "delete"),
    "commit": (store_module, "commit"),
}
REACHED = {
    "add": ("TantivyKeywordIndex.add", "ChromaVectorIndex.add", "commit"),
    "update": ("TantivyKeywordIndex.add", "TantivyKeywordIndex.delete", "ChromaVectorIndex.add", "commit"),
    "erase": tuple(step for step in STEPS if "add" not in step),
}


@pytest.mark.parametrize(
    ("error", "when"),
    [
        (InjectedError("injected"), "before"),
        (InjectedError("injected"), "after"),
        (StoreError("injected"), "before"),
        (KeyboardInterrupt(), "after"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize(("call", "step"), [(call, step) for call, steps in REACHED.items() for step in steps])
def test_an_error_in_any_step_leaves_all_of_a_batch_or_nothing(
    indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch, call: str, step: str, error: BaseException, when: str
):
    before = dict.fromkeys(range(40), 0)
    calls: dict[str, tuple[Callable[[], object], dict[int, int]]] = {
        "add": (lambda: indexer.index_documents(documents(range(40, 60))), before | dict.fromkeys(range(40, 60), 0)),
        "update": (lambda: indexer.index_documents(documents(range(20), 1)), before | dict.fromkeys(range(20), 1)),
        "erase": (lambda: indexer.erase([str(n) for n in range(20)]), dict.fromkeys(range(20, 40), 0)),
    }
    act, after = calls[call]
    place, name = STEPS[step]
    original, pending = getattr(place, name), [error]

    def failing(*args: object, **kwargs: object) -> object:
        if when == "before" and pending:
            raise pending.pop()
        result = original(*args, **kwargs)
        if pending:
            raise pending.pop()
        return result

    monkeypatch.setattr(place, name, failing)
    try:
        act()
        acknowledged = True
    except (InjectedError, AgentRagError, KeyboardInterrupt):
        acknowledged = False
    assert not pending, "the step was not reached"
    monkeypatch.undo()
    texts = {int(d.doc_id): d.text for d in indexer.get([str(n) for n in range(60)])}
    state = next((m for m in (after, before) if texts == {n: text_of(None, n, v) for n, v in m.items()}), None)
    assert state is not None, "part of a batch is there"
    assert not acknowledged or state == after
    indexer.index_documents(documents(range(100, 101)))  # the next write cleans up what this one could not
    indexer._store.purge()
    assert_holds(indexer, state | {100: 0})


def test_an_index_that_fails_for_good_fails_the_batch_and_nothing_of_it_shows(
    indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise InjectedError("for good")

    monkeypatch.setattr(ChromaVectorIndex, "add", broken)
    with pytest.raises(InjectedError):
        indexer.index_documents(documents(range(40, 60)))
    monkeypatch.undo()
    assert_holds(indexer, dict.fromkeys(range(40), 0))
    indexer.index_documents(documents(range(40, 60)))
    assert_holds(indexer, dict.fromkeys(range(60), 0))


_FULL_DISK = """
import os, resource, signal, sys
from pathlib import Path
from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import AgentRagError
from tests.store.crash import OPEN
from tests.store.test_crash_safety import documents
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
indexer, number = DualIndexer(sys.argv[1], **OPEN), 0
if sys.argv[2] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    while number < 60_000:
        indexer.index_documents(documents(range(number, number + 500)))
        number += 500
        print(number, flush=True)
except AgentRagError as error:
    print("refused", type(error).__name__, flush=True)
os._exit(0)
"""


def fill(folder: Path, limit: int) -> int:
    """Write until the disk is full; the number of acknowledged documents."""
    run = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(folder), str(limit)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=240,
        check=False,
    )
    lines = run.stdout.split("\n")[:-1]
    assert "".join(lines[-1:]).startswith("refused"), run.stdout + run.stderr
    return int(lines[-2]) if len(lines) > 1 else 0


def assert_prefix_survived(folder: Path, acknowledged: int) -> None:
    with DualIndexer(folder, **OPEN) as indexer:
        count = indexer.stats().documents
        assert acknowledged <= count < acknowledged + 500
        assert_holds(indexer, dict.fromkeys(range(count), 0))
        indexer.index_documents(documents(range(count, count + 100)))
        assert_holds(indexer, dict.fromkeys(range(count + 100), 0))


@pytest.mark.parametrize("limit", [700_000, 1_500_000, 3_000_000])
def test_files_that_may_not_grow_are_an_error_and_lose_nothing_acknowledged(tmp_path: Path, limit: int):
    acknowledged = fill(tmp_path / "store", limit)
    assert_prefix_survived(tmp_path / "store", acknowledged)


def test_a_full_disk_is_an_error_and_loses_nothing_acknowledged(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs privileges: the test before this one limits the size of files")
    try:
        acknowledged = fill(disk / "store", 0)
        shutil.copytree(disk / "store", tmp_path / "store")  # the same files on a disk with room
        assert_prefix_survived(tmp_path / "store", acknowledged)
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        assert_prefix_survived(disk / "store", acknowledged)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # a file may be closed a moment later


# -- damage from outside ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "store"
    with DualIndexer(folder, **OPEN) as indexer:
        indexer.index_documents(documents(range(1_500)))
        indexer.index_documents(documents(range(10)), agent_id="a")
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def files(folder: Path, pattern: str) -> list[Path]:
    files = [path for path in folder.rglob(pattern) if path.is_file() and path.stat().st_size]
    assert files
    return files


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    rng = random.Random(7)
    for place in range(len(data) // 3, len(data) - len(data) // 4):
        data[place] = rng.randrange(256)
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "Chroma deleted": lambda folder: shutil.rmtree(folder / "chroma"),
    "Chroma's database deleted": lambda folder: (folder / "chroma/chroma.sqlite3").unlink(),
    "Chroma's database emptied": lambda folder: cut(folder / "chroma/chroma.sqlite3", 0),
    "Chroma's database cut": lambda folder: cut(folder / "chroma/chroma.sqlite3", 0.4),
    "Chroma's database garbled": lambda folder: garble(folder / "chroma/chroma.sqlite3"),
    "an HNSW folder deleted": lambda folder: shutil.rmtree(files(folder / "chroma", "header.bin")[0].parent),
    "HNSW data cut": lambda folder: [cut(path, 0.5) for path in files(folder / "chroma", "data_level0.bin")],
    "HNSW links cut": lambda folder: [cut(path, 0.5) for path in files(folder / "chroma", "link_lists.bin")],
    "HNSW links garbled": lambda folder: [garble(path) for path in files(folder / "chroma", "link_lists.bin")],
    "HNSW links emptied": lambda folder: [cut(path, 0) for path in files(folder / "chroma", "link_lists.bin")],
    "HNSW header garbled": lambda folder: [garble(path) for path in files(folder / "chroma", "header.bin")],
    "HNSW metadata cut": lambda folder: [cut(path, 0.5) for path in files(folder / "chroma", "*.pickle")],
    "tantivy deleted": lambda folder: shutil.rmtree(folder / "keyword"),
    "tantivy's meta.json deleted": lambda folder: [path.unlink() for path in files(folder / "keyword", "meta.json")],
    "tantivy's meta.json garbled": lambda folder: [garble(path) for path in files(folder / "keyword", "meta.json")],
    **{
        f"tantivy's .{end} {how.__name__}": lambda folder, end=end, how=how: [
            how(path) if how is garble else cut(path, 0.5) for path in files(folder / "keyword", f"*.{end}")
        ]
        for end in ("term", "idx", "fast", "fieldnorm")
        for how in (garble, cut)
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_rebuilt_and_every_document_is_found_again(copy: Path, damage: str):
    DAMAGE[damage](copy)
    with DualIndexer(copy, **OPEN) as indexer:
        for number in (3, 700, 1_400):
            hits = indexer.search(text_of(None, number, 0), 3)
            assert hits[0].doc_id == str(number)
        hits = indexer.search(text_of(None, 4, 0), 3, agent_id="a")
        assert {hit.agent_id for hit in hits[:2]} == {None, "a"}
        report = indexer.verify()
        assert report.ok, report.problems
        indexer.index_documents(documents(range(1_500, 1_600)))
        assert indexer.delete([str(n) for n in range(50)]).deleted == 50
        assert indexer.delete([str(n) for n in range(10)], agent_id="a").deleted == 10
        assert_holds(indexer, dict.fromkeys(range(50, 1_600), 0))


def test_an_index_that_cannot_be_rebuilt_does_not_keep_the_store_from_opening(
    copy: Path, monkeypatch: pytest.MonkeyPatch
):
    DAMAGE["Chroma deleted"](copy)

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(ChromaVectorIndex, "add", full)
    with DualIndexer(copy, **OPEN) as indexer:
        hits = indexer.search(text_of(None, 700, 0), 3, mode="vector")
        assert hits[0].doc_id == "700"
        monkeypatch.undo()
        indexer.index_documents(documents(range(1_500, 1_600)))
        indexer.forget_agent("a")
        assert_holds(indexer, dict.fromkeys(range(1_600), 0))
        assert indexer._store.catalog.partition(None).in_chroma


@pytest.mark.parametrize("damage", ["Chroma deleted", "Chroma's database deleted", "tantivy deleted"])
def test_an_index_deleted_under_an_open_store_is_reported_then_repaired(copy: Path, damage: str):
    with DualIndexer(copy, **OPEN) as indexer:
        indexer.search(text_of(None, 3, 0))
        DAMAGE[damage](copy)
        assert not indexer.verify().ok
        assert indexer.repair().ok
        indexer.forget_agent("a")
        assert_holds(indexer, dict.fromkeys(range(1_500), 0))


@pytest.mark.parametrize("damage", ["Chroma deleted", "Chroma's database deleted", "tantivy deleted"])
def test_a_write_to_an_index_that_was_deleted_under_an_open_store_succeeds(copy: Path, damage: str):
    with DualIndexer(copy, **OPEN) as indexer:
        indexer.search(text_of(None, 3, 0))
        DAMAGE[damage](copy)
        indexer.index_documents(documents(range(1_500, 1_600)))
        indexer.forget_agent("a")
        assert_holds(indexer, dict.fromkeys(range(1_600), 0))


JUNK = {
    "dead rows are no JSON": ("cleaning", 0, -1, "[1, 2"),
    "dead rows are no numbers": ("cleaning", 0, -1, '["x", null]'),
    "dead rows are live": ("cleaning", 0, -1, str(list(range(1, 600)))),
    "an unknown state": ("w\x00iting", 1, 5, "[]"),
    "reserved rows are live": ("writing", 1, 900, "[]"),
    "a range without end": ("writing", 1, 10**15, "[]"),
    "a range of text": ("writing", "x", "y", "[]"),
    "an index to drop that is in use": ("dropping", 0, -1, '{"keyword": "?", "collection": "?"}'),
    "an index to drop outside the store": ("dropping", 0, -1, '{"keyword": "../../sound", "collection": null}'),
    "an index to drop that is a number": ("dropping", 0, -1, '{"keyword": 7, "collection": [1]}'),
    "an unknown partition": ("purging", 0, -1, "[]"),
}


@pytest.mark.parametrize("junk", JUNK)
def test_a_corrupted_journal_entry_costs_a_check_and_no_document(copy: Path, junk: str, tmp_path: Path):
    outside = tmp_path / "sound"
    outside.mkdir()
    state, first, last, dead = JUNK[junk]
    with sqlite3.connect(copy / "catalog.sqlite") as connection:
        name, collection = connection.execute("SELECT name, collection FROM partitions WHERE id = 1").fetchone()
        dead = dead.replace("?", name, 1).replace("?", collection, 1)
        partition = 999 if junk == "an unknown partition" else 1
        connection.execute(
            "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, ?, ?, ?, ?)",
            (partition, state, first, last, dead),
        )
    connection.close()
    with DualIndexer(copy, **OPEN) as indexer:
        indexer.forget_agent("a")
        assert_holds(indexer, dict.fromkeys(range(1_500), 0))
    assert outside.exists()


def test_a_stray_index_is_reported_by_verify_and_removed_by_repair(copy: Path):
    (copy / "keyword/agent-stray").mkdir()
    with DualIndexer(copy, **OPEN) as indexer:
        assert "agent-stray is an index of no partition" in indexer.verify().problems
        assert indexer.repair().ok
    assert not (copy / "keyword/agent-stray").exists()


def test_ctrl_c_during_a_write_leaves_a_sound_store(tmp_path: Path):
    script = f"""
        import os, signal, threading, time
        from langchain_agentrag import DualIndexer
        from tests.store.crash import OPEN
        from tests.store.test_crash_safety import documents
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background
        indexer = DualIndexer({str(tmp_path / "store")!r}, **OPEN)
        indexer.index_documents(documents(range(100)))
        def interrupt():
            while not indexer._store.catalog.journal():
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            indexer.index_documents(documents(range(100, 3_000)))
        except KeyboardInterrupt:
            report = indexer.verify()
            print(report.problems, indexer.stats().documents < 3_000)
        indexer.close()
    """
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
        check=False,
    )
    assert run.stdout == "() True\n", run.stdout + run.stderr
    with DualIndexer(tmp_path / "store", **OPEN) as indexer:
        assert_holds(indexer, dict.fromkeys(range(indexer.stats().documents), 0))
