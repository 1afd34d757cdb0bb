"""Background indexing: rows are found before and after, none is lost, and no agent sees the rows of another."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag import DualIndexer, SourceDocument, indexer
from langchain_agentrag.cli.app import app
from langchain_agentrag.errors import StoreError
from langchain_agentrag.store import background_indexing, vector_index
from langchain_agentrag.store.vector_index import ChromaVectorIndex
from tests.store.erasure import find_deleted_text

LIMIT = 20
OPEN = {"embeddings": "hash", "chroma": "auto", "exact_limit": LIMIT}
WORDS = [
    "数据库",
    "连接",
    "超时",
    "网关",
    "重启",
    "配置",
    "权限",
    "refund",
    "order",
    "timeout",
    "gateway",
    "E1102",
    "server",
    "restart",
    "index",
    "退款",
    "v2.3",
]
QUERIES = ["数据库连接超时", "gateway timeout", "E1102 网关 restart", "refund 退款"]


def documents(numbers: range, version: int = 0) -> list[SourceDocument]:
    batch = []
    for number in numbers:
        rng = random.Random(f"{number} {version}")
        batch.append(
            SourceDocument(
                f"d{number}",
                f"{' '.join(rng.choices(WORDS, k=9))} 第{number}号 case{number}",
                {"half": number % 2, "tenth": number % 10, "version": version},
            )
        )
    return batch


def answers(store: DualIndexer, agent: str | None = None) -> list[list[tuple[object, ...]]]:
    """What every kind of search says, without how it was found."""
    return [
        [
            (hit.doc_id, hit.text, hit.score, hit.agent_id)
            for hit in store.search(query, 12, agent_id=agent, mode=mode, filter=condition)
        ]
        for query in QUERIES
        for mode in ("hybrid", "vector")
        for condition in (None, {"half": 1}, {"tenth": 3})
    ]


def assert_sound(store: DualIndexer) -> None:
    report = store.verify()
    assert report.ok, report.problems


@pytest.fixture
def exact(tmp_path: Path) -> Iterator[DualIndexer]:
    """A store that scores everything exactly: what the other one must answer, whatever is unindexed."""
    with DualIndexer(tmp_path / "exact", "hash") as store:
        yield store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DualIndexer]:
    """A store whose background never comes to work by itself."""
    monkeypatch.setattr(background_indexing, "_WRITE_DELAY", 3600.0)
    monkeypatch.setattr(background_indexing, "_OPEN_DELAY", 3600.0)
    monkeypatch.setattr(background_indexing, "_SLICE_ROWS", 32)
    with DualIndexer(tmp_path / "store", **OPEN) as opened:
        yield opened


def unindexed(store: DualIndexer, agent: str | None = None) -> int:
    return store.stats(agent).unindexed


def test_every_answer_is_the_exact_one_while_rows_are_unindexed_and_afterwards(store: DualIndexer, exact: DualIndexer):
    for numbers in (range(90), range(90, 130), range(130, 170)):
        for each in (store, exact):
            each.index_documents(documents(numbers))
        assert 0 < unindexed(store) <= background_indexing._MAX_UNINDEXED_FACTOR * LIMIT
        assert answers(store) == answers(exact)
        assert_sound(store)
    assert 0 < unindexed(store) < store.stats().chunks, "some in the graph, some not"
    left = unindexed(store)
    assert store.optimize() == left
    assert unindexed(store) == 0
    assert answers(store) == answers(exact)
    assert_sound(store)
    assert store.verify().vectors == 170


def test_a_store_below_the_exact_limit_has_no_unindexed_rows(store: DualIndexer):
    store.index_documents(documents(range(LIMIT)))
    assert unindexed(store) == 0
    assert store.optimize() == 0


def test_what_is_replaced_or_deleted_while_unindexed_is_gone_before_and_after(store: DualIndexer, exact: DualIndexer):
    for each in (store, exact):
        each.index_documents(documents(range(160)))
        each.index_documents(documents(range(50, 70), version=1))
        each.index_documents(documents(range(150, 155), version=1))
        each.delete([f"d{number}" for number in [*range(10), *range(90, 100), *range(155, 160)]])
    assert unindexed(store) > 0
    assert answers(store) == answers(exact)
    assert_sound(store)
    store.optimize()
    assert answers(store) == answers(exact)
    assert_sound(store)


def test_a_filter_gets_its_k_hits_however_the_rows_are_spread(store: DualIndexer):
    store.index_documents(documents(range(100)))
    store.optimize()
    store.index_documents(documents(range(100, 130)))
    for value in range(10):
        hits = store.search("数据库 gateway", 13, mode="vector", filter={"tenth": value})
        assert len(hits) == 13
        assert {int(hit.doc_id[1:]) % 10 for hit in hits} == {value}


def test_stats_of_an_agent_count_its_own_and_shared_rows_only(store: DualIndexer):
    store.index_documents(documents(range(40)), "a")
    store.index_documents(documents(range(30)), "b")
    assert (unindexed(store, "a"), unindexed(store, "b"), unindexed(store, "c"), unindexed(store)) == (40, 30, 0, 70)
    store.index_documents(documents(range(25)))
    assert (unindexed(store, "a"), unindexed(store, "c")) == (65, 25)
    before = answers(store, "a")
    store.forget_agent("b")
    assert answers(store, "a") == before
    store.optimize()
    assert answers(store, "a") == before


def test_nothing_of_a_forgotten_agent_comes_back_with_unindexed_rows(store: DualIndexer):
    store.index_documents([SourceDocument(f"s{n}", f"geheimwort{n} 密码本 {n}") for n in range(60)], "a")
    store.index_documents(documents(range(60)))
    assert unindexed(store, "a") > 60
    store.forget_agent("a")
    store.optimize()
    assert_sound(store)
    assert len(store.search("geheimwort7", 5, agent_id="a", filter={"doc_id": "s7"})) == 0
    assert find_deleted_text(store._store, ["geheimwort7", "密码本"]) == []


def test_background_indexing_changes_no_search(tmp_path: Path, exact: DualIndexer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background_indexing, "_WRITE_DELAY", 0.0)
    monkeypatch.setattr(background_indexing, "_BACKGROUND_SLICE_ROWS", 8)
    exact.index_documents(documents(range(120)))
    expected = answers(exact)
    with DualIndexer(tmp_path / "store", **OPEN) as store:
        store.index_documents(documents(range(120)))
        deadline = time.monotonic() + 60
        while unindexed(store) and time.monotonic() < deadline:
            assert answers(store) == expected
        assert unindexed(store) == 0
        assert answers(store) == expected
        assert_sound(store)


def test_rows_unindexed_at_closing_are_indexed_after_the_next_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background_indexing, "_WRITE_DELAY", 3600.0)
    with DualIndexer(tmp_path / "store", **OPEN) as store:
        store.index_documents(documents(range(90)))
        left = unindexed(store)
        assert left
    monkeypatch.setattr(background_indexing, "_OPEN_DELAY", 0.0)
    with DualIndexer(tmp_path / "store", **OPEN) as store:
        deadline = time.monotonic() + 60
        while unindexed(store) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert unindexed(store) == 0
        assert_sound(store)


@pytest.mark.parametrize("ending", ["", "store.close()", "raise SystemExit(0)"])
def test_a_process_may_end_in_the_middle_of_it(tmp_path: Path, ending: str):
    code = (
        "import sys\nfrom langchain_agentrag import DualIndexer\nfrom langchain_agentrag.store import background_indexing\n"
        "from tests.store.test_background_indexing import OPEN, documents\n"
        "background_indexing._WRITE_DELAY, background_indexing._BACKGROUND_SLICE_ROWS = 0.0, 4\n"
        "store = DualIndexer(sys.argv[1], **OPEN)\nstore.index_documents(documents(range(110)))\n"
        f"store.search('timeout')\n{ending}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with DualIndexer(tmp_path / "store", **OPEN) as store:
        assert_sound(store)
        assert store.stats().chunks == 110


def elsewhere(folder: Path, code: str) -> None:
    setup = (
        "import sys\nfrom langchain_agentrag import DualIndexer\nfrom langchain_agentrag.store import background_indexing\n"
        "from tests.store.test_background_indexing import OPEN, documents\nbackground_indexing._WRITE_DELAY = 3600.0\n"
        f"with DualIndexer(sys.argv[1], **OPEN) as store:\n    {code}\n"
    )
    subprocess.run([sys.executable, "-c", setup, str(folder)], check=True, timeout=120)


def test_an_open_store_sees_what_another_process_wrote_and_indexed(store: DualIndexer, exact: DualIndexer):
    for each in (store, exact):
        each.index_documents(documents(range(80)))
    store.optimize()
    assert answers(store) == answers(exact)
    for code, numbers in (
        ("store.index_documents(documents(range(80, 110)))", range(80, 110)),
        ("store.optimize()", range(0)),
        ("store.index_documents(documents(range(110, 140))); store.optimize()", range(110, 140)),
    ):
        elsewhere(store.path, code)
        exact.index_documents(documents(numbers))
        assert answers(store) == answers(exact)
    for each in (store, exact):
        each.index_documents(documents(range(140, 190)))
    assert answers(store) == answers(exact)
    store.optimize()
    assert answers(store) == answers(exact)
    assert_sound(store)


def test_a_client_that_cannot_see_many_rows_is_opened_anew(
    store: DualIndexer, exact: DualIndexer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("langchain_agentrag.store.indexes._MAX_UNSEEN_ROWS", 10)
    for each in (store, exact):
        each.index_documents(documents(range(60)))
    store.optimize()
    assert answers(store) == answers(exact)
    elsewhere(store.path, "store.index_documents(documents(range(60, 100))); store.optimize()")
    exact.index_documents(documents(range(60, 100)))
    assert answers(store) == answers(exact)
    partition = store._store.catalog.partition(None)
    assert store._store.indexes.chroma.last_visible_row(partition.collection) == partition.indexed


def test_a_client_opened_between_two_writes_of_another_notices_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Both would store the index in turn, each without what the other has put into it."""
    monkeypatch.setitem(vector_index.HNSW, "sync_threshold", 100)
    always = {**OPEN, "chroma": "always"}
    with DualIndexer(tmp_path / "s", **always) as one, DualIndexer(tmp_path / "s", **always) as two:
        one.index_documents(documents(range(120)))
        two.search("timeout")
        one.index_documents(documents(range(120, 360)))
        two.index_documents(documents(range(360, 600)))
        one.index_documents(documents(range(600, 800)))
        assert_sound(one)
        assert_sound(two)
        for number in (5, 130, 350, 370, 590, 700):
            assert one.vector_search(documents(range(number, number + 1))[0].text, k=1)[0].doc_id == f"d{number}"


def test_a_store_changes_over_to_always_and_back(store: DualIndexer, tmp_path: Path, exact: DualIndexer):
    numbers = (range(90), range(90, 120), range(120, 150))
    store.index_documents(documents(numbers[0]))
    assert unindexed(store)
    with DualIndexer(tmp_path / "store", **{**OPEN, "chroma": "always"}) as other:
        other.index_documents(documents(numbers[1]))
        assert unindexed(other) == 0
        assert_sound(other)
    store.index_documents(documents(numbers[2]))
    assert unindexed(store) == 30
    for part in numbers:
        exact.index_documents(documents(part))
    assert answers(store) == answers(exact)
    assert_sound(store)


def test_a_chroma_that_fails_costs_no_write_and_no_hit(
    store: DualIndexer, exact: DualIndexer, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(ChromaVectorIndex, "add", full)
        for each in (store, exact):
            report = each.index_documents(documents(range(150)))
            assert report.added == 150
        assert unindexed(store) == 150
        assert answers(store) == answers(exact)
        assert store.search("timeout").degraded == ()
        with pytest.raises(StoreError, match="disk is full"):
            store.optimize()
    assert store.optimize() == 150
    assert answers(store) == answers(exact)
    assert_sound(store)


def test_repair_builds_the_graph(store: DualIndexer):
    store.index_documents(documents(range(100)))
    assert unindexed(store)
    assert store.repair().ok
    assert unindexed(store) == 0


def test_a_store_without_the_column_indexed_opens_as_it_is(tmp_path: Path):
    with DualIndexer(tmp_path / "store", **{**OPEN, "chroma": "always"}) as store:
        store.index_documents(documents(range(60)))
        collection = store._store.catalog.partition(None).collection
    with sqlite3.connect(tmp_path / "store" / "catalog.sqlite") as connection:
        connection.execute("ALTER TABLE partitions DROP COLUMN indexed")
    connection.close()
    with DualIndexer(tmp_path / "store", **OPEN) as store:
        assert_sound(store)
        assert unindexed(store) == 0
        assert store._store.catalog.partition(None).collection == collection, "nothing had to be built"
        store.index_documents(documents(range(60, 90)))
        assert unindexed(store) == 30
        assert_sound(store)


def test_the_command_that_indexes_leaves_no_unindexed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background_indexing, "_WRITE_DELAY", 3600.0)
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.md").write_text(f"网关 {number} timeout", encoding="utf-8")
    opened = partial(DualIndexer, **OPEN)
    monkeypatch.setattr(indexer, "DualIndexer", lambda path, embeddings=None: opened(path, embeddings="hash"))
    done = CliRunner().invoke(app, ["index", str(folder), "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.output
    with opened(tmp_path / "store") as store:
        assert (store.stats().chunks, unindexed(store)) == (30, 0)
        assert store._store.catalog.partition(None).in_chroma
