"""The package's own memory table: idempotent writes, exact agents, order, deletion."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from langchain_agentrag.connectors.memory import MemoryTable, ToolCall, Turn
from langchain_agentrag.errors import ConnectorError, ScopeError, UsageError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ALIKE = ["a", "A", "a ", " a", "á", "a\u0301", "a%", "_", "a\x00", "ａ", "α", "a" * 300, "甲", "'; drop table x; --"]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def table(request, tmp_path):
    """A table in each database; MariaDB's collation takes `a`, `A` and `a ` for one."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/memory.db"
    else:
        url = request.getfixturevalue("postgres_url" if request.param == "postgresql" else "mariadb_url")
    with MemoryTable(url, table=f"memory_{uuid.uuid4().hex[:8]}") as opened:
        yield opened
        with opened.engine.begin() as connection:
            connection.execute(text(f"drop table if exists {opened.table_name}"))


def turn(number: int, text: str = "你好", **more) -> Turn:
    return Turn(session="s", entry_id=str(number), role="user", text=text, **more)


def test_what_is_read_is_what_was_written(table):
    entries = [
        turn(0, "NUL \x00 and \ud800", position=0, time=NOON.astimezone(timezone(timedelta(hours=8)))),
        ToolCall(session="s", entry_id="1", tool="t", arguments={"q": ["退款", None, 1.5]}, result="", outcome="error",
                 position=1, duration=0.1, call_id="c", parts=("image",), extra={"when": NOON}),
    ]  # fmt: skip
    assert table.append("a", entries) == entries
    assert table.read("a") == entries


def test_writing_again_adds_nothing_and_a_change_replaces(table):
    assert len(table.append("a", [turn(0), turn(1)])) == 2
    assert table.append("a", [turn(0), turn(1)]) == []
    changed = table.append("a", [turn(0), turn(1, "再见")])
    assert [entry.text for entry in changed] == ["再见"]
    assert [(entry.text, entry.position) for entry in table.read("a")] == [("你好", 0), ("再见", 1)]


def test_positions_go_on_where_the_session_stopped(table):
    table.append("a", [turn(0), turn(1)])
    assert [entry.position for entry in table.append("a", [turn(2), turn(3)])] == [2, 3]
    assert [entry.position for entry in table.append("b", [turn(2)])] == [0]


def test_equal_and_backward_times_keep_the_order(table):
    times = [NOON, NOON, NOON, NOON - timedelta(milliseconds=40), NOON, NOON]
    table.append("a", [turn(n, time=time) for n, time in enumerate(times)])
    assert [entry.entry_id for entry in table.read("a")] == list("012345")


def test_agents_that_look_alike_are_strangers(table):
    for agent in ALIKE:
        table.append(agent, [turn(0, agent)])
    for agent in ALIKE:
        assert [entry.text for entry in table.read(agent)] == [agent]
    assert [session.agent_id for session in table.sessions()] == ALIKE
    assert table.delete("a") == 1
    assert [session.agent_id for session in table.sessions()] == ALIKE[1:]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1)), max_size=8))
def test_any_names_are_kept_apart(names):
    table = MemoryTable(create_engine("sqlite://"))
    names = [name for name in names if name[0].isprintable()]
    for agent, session, entry in names:
        table.append(agent, [Turn(session=session, entry_id=entry, role="user", text="x")])
    for agent in {name[0] for name in names}:
        addresses = {(entry.session, entry.entry_id) for entry in table.read(agent)}
        assert addresses == {name[1:] for name in names if name[0] == agent}


@pytest.mark.parametrize("agent", [None, "", 7])
def test_nothing_is_done_for_nobody(table, agent):
    table.append("a", [turn(0)])
    for attempt in (table.delete, table.read, lambda who: table.append(who, [turn(1)])):
        with pytest.raises(ScopeError):
            attempt(agent)
    assert len(table.read("a")) == 1


def test_deletion_by_session_and_time_touches_one_agent(table):
    for agent in ("a", "b"):
        table.append(agent, [turn(n, time=NOON + timedelta(hours=n)) for n in range(4)])
        table.append(agent, [replace(turn(9), session="other"), turn(10)])
    hour = timedelta(hours=1)
    assert table.delete("a", after=NOON + hour, before=NOON + 2 * hour) == 1
    assert table.delete("a", session="other") == 1
    assert table.delete("a", before=NOON + 3 * hour) == 2
    assert [entry.entry_id for entry in table.read("a")] == ["3", "10"]
    assert len(table.read("b")) == 6
    with pytest.raises(UsageError, match="zone"):
        table.delete("a", before=datetime(2024, 5, 1))


def test_what_is_deleted_is_gone_from_the_file(tmp_path):
    table = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
    table.append("a", [turn(n, f"UNFORGETTABLE{n} " * 50) for n in range(20)])
    table.delete("a")
    assert b"UNFORGETTABLE" not in (tmp_path / "memory.db").read_bytes()


def test_versions_change_exactly_with_a_session(table):
    def versions():
        return {(row.agent_id, row.session): row.version for row in table.sessions()}

    table.append("a", [turn(0), replace(turn(0), session="other")])
    table.append("b", [turn(0)])
    before = versions()
    table.append("a", [turn(0)])
    assert versions() == before
    table.append("a", [turn(0, "再见")])
    after = versions()
    assert [key for key in before if before[key] != after[key]] == [("a", "s")]


def test_the_last_entries_come_in_their_order(table):
    table.append("a", [turn(n) for n in range(5)])
    assert [entry.entry_id for entry in table.read("a", last=2)] == ["3", "4"]


def test_a_table_that_nobody_wrote_is_empty_and_stays_unmade(table):
    assert (table.read("a"), table.sessions(), table.delete("a")) == ([], [], 0)
    with pytest.raises(ConnectorError, match="Cannot"):
        MemoryTable("sqlite:////nowhere/at/all.db").read("a")


def test_threads_that_write_the_same_entries_write_them_once(table):
    entries = [turn(n) for n in range(20)]
    failures = []

    def write():
        try:
            table.append("a", entries)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(table.read("a")) == 20


@pytest.mark.parametrize("url", ["nonsense", "sqlite+aiosqlite:///:memory:", 7])
def test_urls_are_checked_and_asynchronous_ones_understood(url):
    if url in (7, "nonsense"):
        with pytest.raises(UsageError, match="sqlite:///memory"):
            MemoryTable(url)
    else:
        assert MemoryTable(url).engine.driver == "pysqlite"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:SECRET@localhost/x",
        "postgresql://localhost/x?user=user&password=SECRET",
        "postgresql://localhost/x?sslpassword=SECRET&sslmode=require",
        "mysql+pymysql://localhost/x?passwd=SECRET",
    ],
)
def test_a_password_is_never_printed_wherever_it_stands_in_the_url(url):
    assert "SECRET" not in repr(MemoryTable(url))
