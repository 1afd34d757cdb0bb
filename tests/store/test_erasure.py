"""What is deleted or forgotten is in no file of the store: no text, no word of it, no agent id."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import StoreError
from langchain_agentrag.store import chroma
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.text import Analyzer
from langchain_agentrag.types import SourceDocument
from tests.store.crash import Killer, Model
from tests.store.erasure import find_deleted_text

SECRETS = {
    "en": "The launch code of the reactor is xylophonequartz seventeen, said Quillfeather.",
    "zh": "龘靐齉爩的保险箱密码写在鸑鷟图纸背面，编号ZQX-90817-秘。",
    "hant": "機密：彅氿工廠的鑰匙在魑魅魍魎櫃第三格。",
    "code": "def frobnicate_zzyzx(): return 'E-77991-qqx'",
}
WORDS = [
    "xylophonequartz",
    "Quillfeather",
    "quillfeath",
    "龘靐齉爩",
    "鸑鷟",
    "ZQX-90817",
    "zqx-90817",
    "frobnicate_zzyzx",
    "魑魅魍魎",
]
OWNER = "agent-秘密-bluebird"


def filler(count: int, start: int = 0) -> list[SourceDocument]:
    rng = random.Random(start)
    return [
        SourceDocument(doc_id=f"f{n}", text=f"row {n} " + " ".join(f"w{rng.randrange(500)}" for _ in range(20)))
        for n in range(start, start + count)
    ]


def secrets(prefix: str = "s") -> list[SourceDocument]:
    return [
        SourceDocument(doc_id=f"{prefix}-{name}", text=text, metadata={"note": f"{name} {text[:12]}"})
        for name, text in SECRETS.items()
    ]


def traces(*more: str) -> list[str]:
    return [*SECRETS.values(), *WORDS, *(text[:12] for text in SECRETS.values()), *more]


def terms_of_secrets() -> set[tuple[str, str]]:
    analyzer, stored_terms = Analyzer(), set()
    for text in SECRETS.values():
        terms = analyzer.analyze(text, "")
        stored_terms |= {(field, term) for field in ("words", "grams") for term in getattr(terms, field)}
    return stored_terms


def assert_gone(indexer: DualIndexer, *more: str) -> None:
    problems = find_deleted_text(indexer._store, traces(*more))
    assert problems == []
    # the dictionaries themselves: only terms that some live row has
    common = {
        (field, term)
        for document in filler(10)
        for field in ("words", "grams")
        for term in getattr(Analyzer().analyze(document.text, ""), field)
    }
    for partition in indexer._store.catalog.partitions():
        if partition.chunks:
            searcher = TantivyKeywordIndex(indexer._store.indexes.keyword_folder(partition.name))._index.searcher()
            left = {pair for pair in terms_of_secrets() - common if searcher.doc_freq(*pair)}
            assert left == set()


@pytest.fixture(params=["always", "auto"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DualIndexer:
    return DualIndexer(tmp_path / "store", embeddings="hash", chroma=request.param)


def test_the_scan_sees_what_is_there(store: DualIndexer):
    with store as indexer:
        indexer.index_documents([*filler(20), *secrets()])
        problems = find_deleted_text(indexer._store, [*traces(), "never stored anywhere"])
        numbers = {int(finding.rsplit(" ", 1)[1]) for finding in problems if finding.startswith("catalog")}
        assert numbers >= set(range(len(SECRETS)))
        assert len(traces()) not in numbers
        indexer._store.catalog.connection().execute("DELETE FROM chunks WHERE text = ?", (SECRETS["en"],))
        partition = indexer._store.catalog.partition(None)
        indexer._store.indexes.keyword_index(partition).delete([21])
        assert any("deleted rows" in finding for finding in find_deleted_text(indexer._store, []))


def test_an_erased_document_is_in_no_file_while_the_store_is_open_and_after(store: DualIndexer):
    with store as indexer:
        indexer.index_documents([*filler(300), *secrets(), *filler(300, 300)])
        indexer.search("xylophonequartz", 3)
        assert indexer.erase([f"s-{name}" for name in SECRETS]).deleted == len(SECRETS)
        assert_gone(indexer)
        assert indexer.verify().ok
        assert len(indexer.keyword_search("row 7", 5)) == 5
    with DualIndexer(indexer.path) as again:
        assert_gone(again)
        assert again.verify().ok


def test_a_document_that_was_updated_before_it_was_deleted_leaves_no_version(store: DualIndexer):
    with store as indexer:
        indexer.index_documents([*filler(50), *secrets()])
        indexer.index_documents([SourceDocument(doc_id=f"s-{name}", text="harmless") for name in SECRETS])
        indexer.erase([f"s-{name}" for name in SECRETS])
        assert_gone(indexer)


def test_deletion_by_filter_and_in_many_batches_leaves_nothing(store: DualIndexer):
    with store as indexer:
        indexer.index_documents([*filler(100), *secrets()])
        indexer.index_documents(
            [SourceDocument(doc_id=f"x{n}", text=f"{SECRETS['en']} {n}", metadata={"kind": "x"}) for n in range(1_300)]
        )
        assert indexer.delete(filter={"kind": "x"}).deleted == 1_300
        indexer.erase([f"s-{name}" for name in SECRETS])
        assert_gone(indexer)
        assert indexer.verify().ok


def test_a_forgotten_agent_leaves_neither_text_nor_word_nor_its_name(store: DualIndexer):
    with store as indexer:
        indexer.index_documents(filler(200))
        indexer.index_documents(filler(20), agent_id="bystander")
        indexer.index_documents([*secrets(), *filler(1_200)], agent_id=OWNER)
        indexer.search("xylophonequartz", 3, agent_id=OWNER)
        indexer.index_documents(secrets()[:1], agent_id=OWNER)
        indexer.forget_agent(OWNER)
        assert_gone(indexer, OWNER, "bluebird")
        assert indexer.verify().ok
        assert len(indexer.search("row 7", 5, agent_id="bystander")) == 5
    with DualIndexer(indexer.path) as again:
        assert_gone(again, OWNER, "bluebird")


def test_an_agent_that_returns_after_it_was_forgotten_finds_nothing_of_before(store: DualIndexer):
    with store as indexer:
        indexer.index_documents(secrets(), agent_id=OWNER)
        indexer.forget_agent(OWNER)
        indexer.index_documents(filler(3), agent_id=OWNER)
        assert {hit.doc_id for hit in indexer.search("xylophonequartz", 10, agent_id=OWNER)} <= {"f0", "f1", "f2"}
        indexer.forget_agent(OWNER)
        assert_gone(indexer, OWNER)


def test_nothing_of_the_vectors_of_a_forgotten_agent_stays_in_chroma(tmp_path: Path):
    with DualIndexer(tmp_path / "store", embeddings="hash", chroma="always") as indexer:
        indexer.index_documents(filler(50))
        before = {path.name for path in (tmp_path / "store/chroma").iterdir()}
        indexer.index_documents(secrets() + filler(1_300), agent_id=OWNER)
        connection = indexer._store.catalog.connection()
        (vector,) = connection.execute("SELECT vector FROM vectors ORDER BY row DESC").fetchone()
        pieces = [vector[at : at + 32] for at in range(0, len(vector), 32)]
        piece = max(pieces, key=lambda piece: len(set(piece)))  # hashed vectors are mostly zeros
        indexer.forget_agent(OWNER)
        assert {path.name for path in (tmp_path / "store/chroma").iterdir()} == before
        for path in (tmp_path / "store").rglob("*"):
            assert not path.is_file() or piece not in path.read_bytes()


def test_deletion_in_one_process_erases_from_under_another_that_reads(tmp_path: Path):
    """The other process has the keyword files mapped and a connection open; its next search is right."""
    with DualIndexer(tmp_path / "store", embeddings="hash", chroma="always") as reader:
        reader.index_documents([*filler(300), *secrets()])
        assert reader.keyword_search("xylophonequartz", 1)[0].doc_id == "s-en"
        script = (
            "import sys; from langchain_agentrag import DualIndexer\n"
            "with DualIndexer(sys.argv[1]) as indexer: indexer.delete(sys.argv[2:])"
        )
        subprocess.run(
            [sys.executable, "-c", script, str(reader.path), *(f"s-{name}" for name in SECRETS)],
            check=True,
            timeout=120,
        )
        assert_gone(reader)
        assert "s-en" not in {hit.doc_id for hit in reader.keyword_search("xylophonequartz row", 5)}
        assert len(reader.search("row 7", 5)) == 5


def test_failed_erasure_is_reported_and_done_when_the_store_is_opened_again(
    store: DualIndexer, monkeypatch: pytest.MonkeyPatch
):
    with store as indexer:
        indexer.index_documents(filler(50))
        indexer.index_documents(secrets(), agent_id=OWNER)

        def refuse(*_: object) -> None:
            raise StoreError("the disk says no")

        monkeypatch.setattr(TantivyKeywordIndex, "destroy", refuse)
        monkeypatch.setattr(chroma.ChromaFolder, "delete_leftovers", refuse)
        with pytest.raises(StoreError, match="still holds some of it on disk"):
            indexer.forget_agent(OWNER)
        assert indexer.search("xylophonequartz", 3, agent_id=OWNER).degraded == ()
        assert all(hit.agent_id is None for hit in indexer.search("xylophonequartz", 3, agent_id=OWNER))
        assert any("was not finished" in problem for problem in indexer.verify().problems)
        monkeypatch.undo()
    with DualIndexer(indexer.path) as again:
        assert again.verify().ok
        assert_gone(again, OWNER)


def test_a_reader_with_an_old_snapshot_delays_the_erasure_and_the_caller_gets_an_error(
    store: DualIndexer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("langchain_agentrag.store.catalog._BUSY_SECONDS", 0.2)
    with store as indexer:
        indexer.index_documents([*filler(20), *secrets()])
        reader = sqlite3.connect(indexer.path / "catalog.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chunks").fetchone()
        indexer._store.catalog.close_connections()  # those with the shorter time-out
        with pytest.raises(StoreError, match="still holds some of it on disk"):
            indexer.erase(["s-en"])
        assert not indexer.keyword_search("xylophonequartz", 3)
        assert indexer.stats().unpurged == 1
        reader.execute("COMMIT")
        reader.close()
        indexer.erase(["s-zh", "s-hant", "s-code"])
        assert_gone(indexer)


@pytest.mark.parametrize("point", ["forget-committed", "forget-dropped", "purged", "committed", "dead-rows-removed"])
def test_an_erasure_that_was_killed_is_finished_when_the_store_is_opened(tmp_path: Path, point: str):
    with Killer(tmp_path, 5) as killer:
        killer.kill_at(point)
        model = Model.read(killer.journal)
    with DualIndexer(tmp_path / "store") as indexer:
        assert find_deleted_text(indexer._store, []) == []
        assert indexer.stats().documents == len(model.shared) + len(model.agent)


def test_the_catalog_keeps_no_deleted_bytes_whatever_the_order_of_writes(tmp_path: Path):
    """SQLite moves cells between pages; secure_delete must hold through that."""
    rng = random.Random(3)
    with DualIndexer(tmp_path / "store", embeddings="hash", chroma="auto") as indexer:
        live: dict[str, str] = {}
        dead: set[str] = set()
        for _ in range(25):
            documents = {}
            for _ in range(rng.randint(1, 25)):
                key = rng.choice(sorted(live)) if live and rng.random() < 0.3 else f"d{rng.randrange(10**6)}"
                word = "zq" + "".join(rng.choices("bcdfghjklm", k=10))
                dead.add(live.get(key, word))
                live[key] = word
                documents[key] = SourceDocument(doc_id=key, text=f"{word} filler " * rng.choice([1, 3, 40, 300]))
            indexer.index_documents(list(documents.values()))
            gone = rng.sample(sorted(live), min(len(live), rng.randint(1, 15)))
            dead |= {live.pop(key) for key in gone}
            indexer.delete(gone)
        indexer.erase([])
        assert find_deleted_text(indexer._store, sorted(dead - set(live.values()))) == []


def test_connections_of_the_catalog_overwrite_what_they_delete(tmp_path: Path):
    catalog = Catalog(tmp_path / "catalog.sqlite")
    assert catalog.connection().execute("PRAGMA secure_delete").fetchone() == (1,)
    catalog.close()


def test_memory_that_chroma_copies_into_a_new_index_is_zeroed(tmp_path: Path):
    with DualIndexer(tmp_path / "store", embeddings="hash", chroma="always") as indexer:
        indexer.index_documents(filler(5))
        indexer.index_documents(filler(5), agent_id="a")
        indexer._store.indexes.chroma.close()
        indexer.search("row", 3, agent_id="a")
        indexer.index_documents(filler(5, 5), agent_id="a")
        stored = list((tmp_path / "store/chroma").glob("*/data_level0.bin"))
        assert len(stored) == 2
        for path in stored:
            assert not any(path.read_bytes()), "an index without elements holds something"
