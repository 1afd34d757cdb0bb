"""Time in the engine: ranges on every method, a bounded bonus for being recent, and documents that expire."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from langchain_agentrag import DualIndexer, HashingEmbeddings, SourceDocument
from langchain_agentrag.cli.options import parse_duration
from langchain_agentrag.cli.sync_config import read_source_file
from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError, UsageError
from langchain_agentrag.llama_index import HybridMemoryBlock
from langchain_agentrag.search.options import check_request
from langchain_agentrag.search.ranking import MAX_RECENCY_BOOST
from langchain_agentrag.testing import assert_consistent, assert_isolated
from langchain_agentrag.times import check_duration, check_time
from tests.contracts.reference import MemoryConnector
from tests.fakes import FixedClock

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
MODES = ("hybrid", "vector", "keyword")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOON)


@pytest.fixture(params=[{}, {"exact_limit": 0, "chroma": "always"}], ids=["exact", "hnsw"])
def indexer(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", HashingEmbeddings(32), clock=clock, **request.param) as opened:
        yield opened


def ids(hits: list) -> set[str]:
    return {hit.doc_id for hit in hits}


# -- ranges -----------------------------------------------------------------------------------------------------------

# the instants are NOON minus 1 hour (inside the last two hours) and minus 3 hours (outside), written in six ways
STAMPS = {
    "naive": lambda t: t.replace(tzinfo=None),
    "utc": lambda t: t,
    "shanghai": lambda t: t.astimezone(ZoneInfo("Asia/Shanghai")),
    "offset text": lambda t: t.astimezone(dt.timezone(8 * HOUR)).isoformat(),
    "Z text": lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "naive text": lambda t: t.strftime("%Y-%m-%d %H:%M:%S"),
    "seconds": lambda t: int(t.timestamp()),
    "milliseconds": lambda t: int(t.timestamp() * 1000),
}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_the_last_two_hours_are_the_same_in_every_zone_and_however_they_were_stamped(
    zone: str, indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        indexer.index_documents(
            [
                SourceDocument(f"{name} {age}", "alarm E1102 主轴报警", {"time": write(NOON - age * HOUR)})
                for name, write in STAMPS.items()
                for age in (1, 3)
            ]
            + [SourceDocument("undated", "alarm E1102 主轴报警", {"time": "yesterday"})]
        )
        inside = {f"{name} 1" for name in STAMPS}
        for after in ("2h", NOON - 2 * HOUR, (NOON - 2 * HOUR).replace(tzinfo=None), "2024-05-01T18:00+08:00"):
            for query in ("E1102", "主轴报警", "E1102 报警 alarm"):
                for mode in MODES:
                    assert ids(indexer.search(query, 50, after=after, mode=mode)) == inside
            assert ids(indexer.get(after=after)) == inside
        outside = {f"{name} 3" for name in STAMPS}
        assert ids(indexer.search("E1102", 50, before=NOON - 2 * HOUR)) == outside
        assert indexer.delete(after="2h").deleted == len(inside)
        assert ids(indexer.search("E1102", 50)) == outside | {"undated"}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_range_holds_its_first_moment_and_not_its_last(indexer: DualIndexer) -> None:
    indexer.index_documents([SourceDocument(f"d{h}", "退款 refund", {"time": NOON + h * HOUR}) for h in range(4)])
    hits = indexer.search("退款", 9, after=NOON + HOUR, before=NOON + 3 * HOUR)
    assert ids(hits) == {"d1", "d2"}
    assert not indexer.search("退款", 9, after=NOON + HOUR, before=NOON + HOUR)
    assert ids(indexer.search("refund", 9, after="2024-05-01", before=dt.date(2024, 5, 2))) == {"d0", "d1", "d2", "d3"}


def test_a_range_narrows_a_filter_and_nobody_sees_more_through_it(indexer: DualIndexer) -> None:
    indexer.index_documents([SourceDocument("shared", "log entry", {"time": NOON, "type": "log"})])
    for agent in ("lina", "otto"):
        indexer.index_documents([SourceDocument(agent, "log entry", {"time": NOON, "type": "log"})], agent)
    for mode in MODES:
        hits = indexer.for_agent("lina").search("log entry", 9, after=NOON, filter={"type": "log"}, mode=mode)
        assert ids(hits) == {"shared", "lina"}
        assert not indexer.search("log entry", 9, after=NOON, filter={"type": "manual"}, mode=mode)
    assert ids(indexer.for_agent("otto").get(after="1d")) == {"shared", "otto"}
    indexer.for_agent("otto").delete(after="1d")
    assert ids(indexer.for_agent("lina").search("log entry", 9)) == {"shared", "lina"}
    assert ids(indexer.for_agent("otto").search("log entry", 9)) == {"shared"}


def test_metadata_cannot_pretend_to_another_time(indexer: DualIndexer) -> None:
    indexer.index_documents([SourceDocument("liar", "words", {"$time": NOON, "$expires": NOON - DAY})])
    assert not indexer.search("words", after=NOON)
    assert ids(indexer.search("words")) == {"liar"}
    assert indexer.get(["liar"])[0].metadata == {"$time": NOON, "$expires": NOON - DAY}


@pytest.mark.parametrize("option", ["after", "before", "now"])
@pytest.mark.parametrize("bad", ["soon", 3, object(), float("nan"), [NOON]])
def test_a_bound_that_is_no_time_is_refused(option: str, bad: object, indexer: DualIndexer) -> None:
    with pytest.raises(InvalidQueryError, match=option):
        indexer.search("x", **{option: bad})


def test_many_times_are_compared_as_the_definition_does(indexer: DualIndexer) -> None:
    """More rows than one page, some without a time, updated and deleted in between."""
    documents = [
        SourceDocument(f"d{n}", f"word {n}", {"time": NOON + n * HOUR} if n % 5 else {"n": n}) for n in range(300)
    ]
    indexer.index_documents(documents)
    assert len(indexer.search("word", 300, after=NOON)) == 240
    indexer.delete([f"d{n}" for n in range(0, 300, 2)])
    indexer.index_documents([SourceDocument("d1", "word 1", {"time": NOON - DAY})])
    expected = {f"d{n}" for n in range(11, 300, 2) if n % 5}
    for mode in MODES:
        assert ids(indexer.search("word", 300, after=NOON + 11 * HOUR, mode=mode)) == expected


# -- recency ----------------------------------------------------------------------------------------------------------


def dated(indexer: DualIndexer, ages: dict[str, dt.timedelta | None], text: str) -> None:
    indexer.index_documents(
        [SourceDocument(name, text, {} if age is None else {"time": NOON - age}) for name, age in ages.items()]
    )


@pytest.mark.parametrize("text", ["the spindle makes a noise", "主轴有异响", "主轴 spindle 异响 noise"])
def test_of_equals_the_recent_one_comes_first(text: str, indexer: DualIndexer) -> None:
    dated(indexer, {"old": 40 * DAY, "undated": None, "new": HOUR, "middle": 3 * DAY}, text)
    query = f"{text} 主轴 alarm"
    assert [hit.doc_id for hit in indexer.search(query, 4, recency=7 * DAY)][:2] == ["new", "middle"]
    assert next(hit.doc_id for hit in indexer.search(query, 4)) == "old"


def test_the_bonus_is_bounded_explained_and_grows_with_youth(indexer: DualIndexer) -> None:
    dated(indexer, {f"d{n}": n * DAY for n in range(30)} | {"undated": None}, "alarm of the spindle 报警")
    for mode in MODES:
        plain = {hit.doc_id: hit for hit in indexer.search("spindle 报警 x", 40, mode=mode)}
        lifted = indexer.search("spindle 报警 x", 40, mode=mode, recency=7 * DAY)
        assert plain.keys() == ids(lifted)
        for hit in lifted:
            before = plain[hit.doc_id].score
            assert hit.score - before == pytest.approx(hit.explanation.recency)
            assert 0 <= hit.explanation.recency <= MAX_RECENCY_BOOST * before
            assert 0 <= hit.score <= 1
            assert plain[hit.doc_id].explanation.recency == 0
        lifts = {hit.doc_id: hit.explanation.recency for hit in lifted}
        assert lifts["undated"] == 0
        assert [lifts[f"d{n}"] for n in range(30)] == sorted((lifts[f"d{n}"] for n in range(30)), reverse=True)
        assert lifts["d7"] == pytest.approx(lifts["d0"] / 2, rel=0.02)


def test_an_old_exact_match_is_not_buried(indexer: DualIndexer) -> None:
    indexer.index_documents(
        [SourceDocument("exact", "Alarm E1102: 主轴过热，更换轴承。", {"time": NOON - 3000 * DAY})]
        + [SourceDocument(f"chat {n}", f"alarm again today, number {n} 又报警了", {"time": NOON}) for n in range(60)]
    )
    for query in ("E1102", "alarm E1102", "E1102 报警怎么处理"):
        assert indexer.search(query, 5, recency=HOUR)[0].doc_id == "exact"


def test_without_times_nothing_changes_and_now_decides_the_age(indexer: DualIndexer) -> None:
    dated(indexer, {"a": None, "b": None}, "same words")
    assert indexer.search("words", recency=DAY) == indexer.search("words")
    dated(indexer, {"c": DAY}, "other words")
    today, then = (
        indexer.search("other", 1, recency=DAY, now=now)[0].explanation.recency for now in (NOON, NOON - DAY)
    )
    assert then == pytest.approx(2 * today)
    assert indexer.search("other", 1, recency=DAY, now=NOON - 9 * DAY)[0].explanation.recency == then  # it is to come


def test_the_recency_boost_reveals_nothing_of_others(indexer: DualIndexer) -> None:
    dated(indexer, {"mine": DAY, "older": 9 * DAY}, "quarterly numbers 季度数据")
    alone = indexer.for_agent("lina").search("quarterly 季度", 5, recency=DAY)
    indexer.index_documents([SourceDocument(f"o{n}", "quarterly 季度", {"time": NOON}) for n in range(20)], "otto")
    assert indexer.for_agent("lina").search("quarterly 季度", 5, recency=DAY) == alone


@pytest.mark.parametrize("bad", [0, -1, dt.timedelta(0), "7 x", "-7d", True, float("inf")])
def test_a_half_life_is_a_positive_time(bad: object, indexer: DualIndexer) -> None:
    with pytest.raises(InvalidQueryError, match="recency"):
        indexer.search("x", recency=bad)


# -- expiry -----------------------------------------------------------------------------------------------------------


def gone(indexer: DualIndexer, agent: str | None, doc_id: str, query: str) -> None:
    """Nothing any method says tells that the document was ever there."""
    for mode in MODES:
        for options in ({}, {"filter": {"doc_id": doc_id}}, {"after": "2000-01-01"}):
            assert doc_id not in ids(indexer.search(query, 50, agent_id=agent, mode=mode, **options))
    with pytest.raises(InvalidQueryError):
        indexer.read(doc_id, agent_id=agent)
    assert indexer.get([doc_id], agent_id=agent) == []
    assert doc_id not in ids(indexer.get(agent_id=agent))


@pytest.mark.parametrize("agent", [None, "lina"])
def test_what_has_expired_is_gone_at_that_moment_and_off_the_disk_after_a_sweep(
    agent: str | None, indexer: DualIndexer, clock: FixedClock
) -> None:
    secret = "一次性密码 onetimecode7741"
    indexer.index_documents([SourceDocument("stays", "password 密码 rules", {})], agent)
    before = indexer.stats(), indexer.search("密码 onetimecode7741", 9, agent_id=agent)
    indexer.index_documents([SourceDocument("code", secret, {"time": NOON})], agent, ttl=HOUR)
    assert indexer.get(["code"], agent_id=agent)[0].metadata["expires_at"] == NOON + HOUR
    clock.now = NOON + HOUR - dt.timedelta(microseconds=1)
    assert "code" in ids(indexer.search("onetimecode7741", agent_id=agent))
    clock.now = NOON + HOUR
    gone(indexer, agent, "code", secret)
    after = indexer.stats(), indexer.search("密码 onetimecode7741", 9, agent_id=agent)
    assert (after[0].documents, after[0].chunks, after[1]) == (before[0].documents, before[0].chunks, before[1])
    assert indexer.verify(deep=True).ok
    assert indexer.verify().documents == 1
    assert indexer.expire().deleted == 1
    assert indexer.expire().deleted == 0
    gone(indexer, agent, "code", secret)
    assert indexer.search("密码 onetimecode7741", 9, agent_id=agent) == before[1]
    indexer.erase([])  # the background has up to 30 seconds
    content = b"".join(path.read_bytes() for path in indexer.path.rglob("*") if path.is_file())
    assert b"onetimecode7741" not in content
    assert_consistent(indexer)
    assert_isolated(indexer)


def test_a_store_opened_later_knows_what_expires(indexer: DualIndexer, clock: FixedClock) -> None:
    indexer.index_documents([SourceDocument("a", "alpha"), SourceDocument("b", "alpha", {"expires_at": NOON + DAY})])
    clock.now = NOON + 2 * DAY
    with DualIndexer(indexer.path, HashingEmbeddings(32), clock=clock, exact_limit=0) as other:
        assert ids(other.search("alpha")) == {"a"}
        assert other.stats().documents == 1


def test_a_store_from_before_documents_could_expire_learns_it(tmp_path: Path, clock: FixedClock) -> None:
    options = {"embeddings": HashingEmbeddings(8), "clock": clock}
    with DualIndexer(tmp_path / "s", **options) as indexer:
        indexer.index_documents([SourceDocument("a", "alpha", {"expires_at": NOON + DAY, "说明": "expires_at"})])
        indexer._store.catalog.connection().execute("DROP TABLE expiry")
    clock.now = NOON + DAY
    with DualIndexer(tmp_path / "s", **options) as indexer:
        assert not indexer.search("alpha")
        assert indexer.expire().deleted == 1


def test_writing_an_expired_document_anew_adds_it(indexer: DualIndexer, clock: FixedClock) -> None:
    indexer.index_documents([SourceDocument("d", "first words")], ttl=HOUR)
    clock.now = NOON + DAY
    report = indexer.index_documents([SourceDocument("d", "other words")], ttl=HOUR)
    assert (report.added, report.updated, report.deleted) == (1, 0, 0)
    assert ids(indexer.search("words")) == {"d"}
    assert indexer.expire().deleted == 0
    clock.now = NOON + 2 * DAY
    indexer.index_documents([SourceDocument("d", "last words")])
    assert indexer.verify().ok
    clock.now = NOON + 900 * DAY
    assert ids(indexer.search("words")) == {"d"}


def test_deleting_and_forgetting_count_what_is_still_there(indexer: DualIndexer, clock: FixedClock) -> None:
    view = indexer.for_agent("lina")
    view.index_documents([SourceDocument("a", "alpha"), SourceDocument("b", "beta")], ttl=HOUR)
    view.index_documents([SourceDocument("c", "gamma"), SourceDocument("d", "delta")])
    clock.now = NOON + DAY
    assert view.delete(["a", "c"]).deleted == 1
    assert view.delete(filter={"doc_id": {"$in": ["b", "c"]}}).deleted == 0
    assert view.forget().deleted == 1
    assert indexer.expire().deleted == 0
    assert indexer.stats().documents == 0


def test_an_expired_document_of_a_source_is_neither_stored_nor_stored_again(
    indexer: DualIndexer, clock: FixedClock
) -> None:
    class Notes(MemoryConnector):
        def _load(self, key: str) -> list[SourceDocument]:
            return [SourceDocument(f"n/{key}", self.texts[key] or "", {"expires_at": NOON + HOUR})]

    notes = Notes({"a": "alpha", "b": "beta"})
    assert indexer.sync(notes).added == 2
    clock.now = NOON + DAY
    assert indexer.sync(notes).unchanged == 0
    assert indexer.expire().deleted == 2
    first, second = indexer.sync(notes), indexer.sync(notes)
    assert (first.added, len(first.skipped), "expired" in first.skipped[0].reason) == (0, 2, True)
    assert (second.added, second.skipped, second.failed) == (0, (), ())


def test_many_expired_documents_are_swept_by_a_write(indexer: DualIndexer, clock: FixedClock, monkeypatch) -> None:
    monkeypatch.setattr("langchain_agentrag.indexer.EXPIRY_SWEEP_THRESHOLD", 5)
    indexer.index_documents([SourceDocument(f"d{n}", f"word {n}") for n in range(6)], ttl=HOUR)
    clock.now = NOON + DAY
    indexer.index_documents(["another word"])
    assert indexer._store.visibility.expired(clock.now) == []
    assert len(indexer.search("word", 9)) == 1


def test_an_expiry_that_is_no_time_is_refused(indexer: DualIndexer) -> None:
    with pytest.raises(InvalidDocumentError, match=r"index 1.*expires_at"):
        indexer.index_documents(["fine", SourceDocument("d", "text", {"expires_at": "never"})])
    with pytest.raises(InvalidQueryError, match="ttl"):
        indexer.index_documents(["x"], ttl=-1)


def test_a_document_with_an_expiry_time_keeps_it(indexer: DualIndexer) -> None:
    indexer.index_documents([SourceDocument("d", "text", {"expires_at": "2024-06-01"})], ttl=HOUR)
    assert indexer.get(["d"])[0].metadata["expires_at"] == "2024-06-01"


def test_the_record_manager_takes_an_expired_document_for_absent(indexer: DualIndexer, clock: FixedClock) -> None:
    records = indexer.record_keys("n")
    indexer.index_documents([SourceDocument("d", "text")], ttl=HOUR)
    records.put(["d"], [None], 1.0)
    assert records.existing(["d"]) == {"d"}
    clock.now = NOON + DAY
    assert records.existing(["d"]) == set()


# -- deletion ---------------------------------------------------------------------------------------------------------


def test_a_session_is_deleted_of_one_owner_only(indexer: DualIndexer) -> None:
    for agent in ("lina", "otto", None):
        indexer.index_documents(
            [SourceDocument(f"m{n}", f"turn {n} 对话", {"session": "s1" if n < 3 else "s10"}) for n in range(5)], agent
        )
    assert indexer.for_agent("lina").delete(session="s1").deleted == 3
    assert len(indexer.get(agent_id="otto")) == len(indexer.get()) == 5
    assert {d.doc_id for d in indexer.get(filter={"agent_id": "lina"}, agent_id="lina")} == {"m3", "m4"}
    assert indexer.delete(session="s", before="2030-01-01").deleted == 0


def test_deleting_by_time_takes_no_document_without_one(indexer: DualIndexer) -> None:
    dated(indexer, {"old": 9 * DAY, "new": HOUR, "undated": None}, "text")
    assert indexer.delete(before="7d").deleted == 1
    assert ids(indexer.get()) == {"new", "undated"}
    assert indexer.delete(["new", "undated"], before=NOON).deleted == 1
    with pytest.raises(UsageError, match="delete everything"):
        indexer.delete(filter={})


@pytest.mark.parametrize("value", ["90s", "36h", "7d", "2 weeks", "7天", dt.timedelta(days=7)])
def test_one_rule_holds_for_every_option_that_takes_a_duration(value, tmp_path) -> None:
    """`recency` and `ttl` take what `after` takes as an age, on the command line too."""
    ago = NOON - check_time("after", value, NOON)
    assert check_duration("recency", value) == ago
    options = {"recency": value, "after": value, "before": value}
    checked = check_request("q", 1, agent_id=None, options=options, present=NOON)
    bounds = [part.operand for part in checked.condition.parts]
    assert (checked.recency, bounds) == (ago, [NOON - ago] * 2)
    with DualIndexer(tmp_path / "store", "hash", clock=lambda: NOON) as indexer:
        indexer.index_documents(["a text"], ttl=value)
        assert indexer.get()[0].metadata["expires_at"] == NOON + ago
        block = HybridMemoryBlock(indexer=indexer, agent_id="lina", half_life=value, ttl=value)
        assert (block.half_life, block.ttl) == (ago, ago)
    if isinstance(value, str):
        assert parse_duration(value, "--recency") == ago
        source = '[[source]]\nname = "n"\ntype = "files"\npath = "."\n'
        (tmp_path / "sync.toml").write_text(f'store = "s"\ninterval = "{value}"\n{source}', encoding="utf-8")
        assert read_source_file(tmp_path / "sync.toml").interval == ago
