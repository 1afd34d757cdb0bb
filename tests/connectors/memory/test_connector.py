"""The connector: whose memory it is, what it costs to read again, what it says when it cannot."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from sqlalchemy import create_engine, text

from langchain_agentrag import AgentMemoryConnector, DualIndexer
from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory import MemoryTable, Turn, table
from langchain_agentrag.errors import ConnectorError, MissingExtraError, ScopeError, UsageError
from tests.connectors.memory.conftest import read, texts_by_role

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def log(tmp_path):
    """A log of two sessions and three agents, one line without any."""
    path = tmp_path / "log.jsonl"
    lines = [
        {"role": "user", "content": "甲的口令是 4711", "session_id": "s", "agent_id": "a"},
        {"role": "user", "content": "乙的口令是 4712", "session_id": "s", "agent_id": "A"},
        {"role": "user", "content": "丙的口令是 4713", "session_id": "t", "agent_id": "a "},
        {"role": "user", "content": "无主的口令是 4714", "session_id": "t"},
    ]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


def gaps(connector):
    return [item for item in connector.items() if isinstance(item, Gap)]


class TestWhose:
    @pytest.mark.parametrize(
        "options", [{}, {"agent_id": None}, {"agent_id": "a", "shared": True}, {"agent_id": ""}, {"agent_id": 7}]
    )
    def test_exactly_one_way_to_name_the_agent_is_required(self, log, options):
        with pytest.raises(ScopeError, match="agent_id"):
            AgentMemoryConnector(log, **options)

    def test_an_agent_in_the_metadata_is_refused(self, log):
        with pytest.raises(UsageError, match="pass agent_id"):
            AgentMemoryConnector(log, agent_id="a", metadata={"agent_id": "b"})

    def test_records_of_other_agents_are_never_taken_over_nor_named(self, log):
        connector = AgentMemoryConnector(log, agent_id="a")
        documents = [d for item in connector.items() if not isinstance(item, Gap) for d in item.load()]
        assert [d.text for d in documents] == ["甲的口令是 4711", "无主的口令是 4714"]
        (gap,) = gaps(connector)
        assert gap.skipped
        assert gap.reason.startswith("2 session(s) name another agent")
        assert "A" not in gap.reason + gap.key

    def test_what_is_shared_takes_nothing_that_names_an_agent(self, log):
        connector = AgentMemoryConnector(log, shared=True)
        texts = [d.text for item in connector.items() if not isinstance(item, Gap) for d in item.load()]
        assert texts == ["无主的口令是 4714"]

    def test_a_function_maps_each_session_and_what_it_cannot_map_is_reported(self, log, indexer):
        report = indexer.sync(AgentMemoryConnector(log, agent_id=lambda session: session.agent_id))
        assert report.added == 3
        assert [failure.key for failure in report.failed] == ["t"]
        assert "returned no agent" in report.failed[0].reason
        for agent, code in (("a", "4711"), ("A", "4712"), ("a ", "4713")):
            assert [hit.text[-4:] for hit in indexer.search("口令", k=9, agent_id=agent)] == [code]
        for stranger in (None, "t", "无主", "a  "):
            assert list(indexer.search("口令 4714", k=9, agent_id=stranger)) == []

    @pytest.mark.parametrize("answer", [None, "", 7, b"a", "\ud800"])
    def test_whatever_is_no_agent_never_becomes_shared(self, log, indexer, answer):
        report = indexer.sync(AgentMemoryConnector(log, agent_id=lambda session: answer))
        assert (report.added, len(report.failed)) == (0, 4)
        assert indexer.stats().documents == 0

    def test_a_function_that_fails_fails_for_its_session_only(self, log, indexer):
        report = indexer.sync(AgentMemoryConnector(log, agent_id=lambda session: {"s": "x"}[session.id]))
        assert (report.added, len(report.failed)) == (2, 2)
        assert "KeyError" in report.failed[0].reason

    def test_a_session_that_is_mapped_to_another_agent_leaves_the_first(self, log, indexer):
        indexer.sync(AgentMemoryConnector(log, agent_id=lambda session: "x"))
        report = indexer.sync(AgentMemoryConnector(log, agent_id=lambda session: "y"))
        assert (report.added, report.deleted) == (4, 4)
        assert list(indexer.search("口令", agent_id="x")) == []

    def test_a_view_takes_only_memory_of_its_own_agent(self, log, indexer):
        with pytest.raises(ScopeError):
            indexer.for_agent("b").sync(AgentMemoryConnector(log, agent_id="a"))
        with pytest.raises(ScopeError):
            indexer.for_agent("b").sync(AgentMemoryConnector(log, agent_id=lambda session: "b"))


class TestOwnTable:
    def entries(self, *texts, session="s"):
        return [Turn(session=session, entry_id=str(n), role="user", text=t, time=NOON) for n, t in enumerate(texts)]

    @pytest.fixture
    def memory(self, tmp_path):
        table = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
        for agent in ("a", "A", "a "):
            table.append(agent, self.entries(f"{agent}: 你好", f"{agent}: hello"))
        return table

    @pytest.mark.parametrize("form", ["table", "url", "engine", "file"])
    def test_only_the_rows_of_the_agent_are_read(self, memory, tmp_path, form):
        source = {
            "table": memory,
            "url": f"sqlite:///{tmp_path}/memory.db",
            "engine": memory.engine,
            "file": tmp_path / "memory.db",
        }[form]
        assert texts_by_role(read(source, agent_id="a")) == [("user", "a: 你好"), ("user", "a: hello")]
        assert gaps(AgentMemoryConnector(source, agent_id="a")) == []

    def test_what_the_recorder_indexed_is_not_indexed_twice(self, memory, indexer):
        indexer.index_documents([memory.document("a", entry) for entry in memory.read("a")], agent_id="a")
        report = indexer.sync(AgentMemoryConnector(memory, agent_id="a"))
        assert (report.added, report.deleted, indexer.stats("a").documents) == (0, 0, 2)

    def test_reading_again_changes_nothing_and_what_is_deleted_goes(self, memory, indexer):
        connector = AgentMemoryConnector(memory, agent_id="a")
        assert indexer.sync(connector).added == 2
        again = indexer.sync(connector)
        assert (again.added, again.updated, again.deleted, again.unchanged) == (0, 0, 0, 2)
        memory.append("a", self.entries("a: 你好", "a: hello", "a: 再见"))
        assert indexer.sync(connector).added == 1
        memory.delete("a", session="s")
        assert (indexer.sync(connector).deleted, indexer.stats("a").documents) == (3, 0)

    def test_two_tables_of_one_agent_are_two_sources(self, memory, tmp_path, indexer):
        other = MemoryTable(f"sqlite:///{tmp_path}/other.db")
        other.append("a", self.entries("elsewhere", session="t"))
        for source in (memory, other):
            indexer.sync(AgentMemoryConnector(source, agent_id="a"))
        assert indexer.stats("a").documents == 3

    def test_one_that_nobody_wrote_yet_is_empty_when_it_is_named(self, tmp_path, indexer):
        url = f"sqlite:///{tmp_path}/none.db"
        assert indexer.sync(AgentMemoryConnector(url, agent_id="a", backend="agentrag")).added == 0
        with pytest.raises((UsageError, ConnectorError), match="Found no agent memory"):
            indexer.sync(AgentMemoryConnector(url, agent_id="a"))


class TestWhere:
    @pytest.mark.parametrize("wrong", [object(), 7, None, ["a"], {"role": "user"}])
    def test_what_is_no_source_is_refused_with_the_list_of_those_that_are(self, wrong):
        with pytest.raises(UsageError, match=r"Cannot read memory from a .*checkpointer"):
            AgentMemoryConnector(wrong, agent_id="a")

    def test_a_path_that_is_not_there_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match=r"no such file or folder.*sqlite:///"):
            AgentMemoryConnector(tmp_path / "none.json", agent_id="a")

    @pytest.mark.parametrize(
        "options", [{"backend": "x"}, {"backend": "langchain-redis"}, {"table": "t"}, {"prefix": "p"}]
    )
    def test_settings_that_do_not_go_with_the_source_are_refused(self, log, options):
        with pytest.raises(UsageError):
            AgentMemoryConnector(log, agent_id="a", **options)

    def test_what_is_only_in_memory_needs_a_name(self):
        with pytest.raises(UsageError, match="pass name"):
            AgentMemoryConnector(InMemorySaver(), agent_id="a")
        assert AgentMemoryConnector(InMemorySaver(), agent_id="a", name="x").name == "x"

    def test_a_database_of_other_things_is_refused_with_its_tables(self, tmp_path, indexer):
        engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
        with engine.begin() as connection:
            connection.execute(text("create table orders (id integer primary key, message text)"))
        with pytest.raises(UsageError, match=r"orders.*DatabaseConnector"):
            indexer.sync(AgentMemoryConnector(engine, agent_id="a"))

    def test_a_database_of_several_memories_asks_which(self, tmp_path, indexer):
        url = f"sqlite:///{tmp_path}/memory.db"
        for name in ("one", "two"):
            MemoryTable(url, table=name).append("a", TestOwnTable().entries(name, session=name))
        with pytest.raises(UsageError, match=r"Several.*'one' \(agentrag\), 'two' \(agentrag\).*table="):
            indexer.sync(AgentMemoryConnector(url, agent_id="a"))
        assert texts_by_role(read(url, agent_id="a", table="two")) == [("user", "two")]
        with pytest.raises(UsageError, match="Found no agent memory as 'langgraph-store'"):
            indexer.sync(AgentMemoryConnector(url, agent_id="a", backend="langgraph-store"))

    def test_a_database_file_that_is_not_there_is_not_made(self, tmp_path, indexer):
        connector = AgentMemoryConnector(f"sqlite:///{tmp_path}/none.db", agent_id="a")
        with pytest.raises(ConnectorError, match="no such file"):
            indexer.sync(connector)
        assert not (tmp_path / "none.db").exists()

    @pytest.mark.parametrize("zone", ["Asia/Atlantis", "", 8, None])
    def test_a_zone_that_is_none_is_refused(self, log, zone):
        with pytest.raises(UsageError, match="zone="):
            AgentMemoryConnector(log, agent_id="a", zone=zone)

    @pytest.mark.parametrize(
        ("library", "source"), [("sqlalchemy", "sqlite:///memory.db"), ("redis", "redis://localhost")]
    )
    def test_a_missing_library_is_named_with_the_command_that_installs_it(self, monkeypatch, library, source):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[memory\]"):
            AgentMemoryConnector(source, agent_id="a")

    @pytest.mark.parametrize("place", ["user:SECRET@/x?host=/nowhere", "/x?host=/nowhere&password=SECRET"])
    def test_a_database_that_cannot_be_reached_is_an_error_without_its_password(self, indexer, place):
        away = AgentMemoryConnector(f"postgresql+psycopg://{place}", agent_id="a")
        with pytest.raises(ConnectorError) as caught:
            indexer.sync(away)
        assert "SECRET" not in str(caught.value) + repr(away)

    def test_names_keep_documents_when_a_source_moves(self, log, tmp_path, indexer):
        assert indexer.sync(AgentMemoryConnector(log, agent_id="a", name="log")).added == 2
        moved = log.rename(tmp_path / "log2.jsonl").rename(log.with_name("log.jsonl"))
        assert indexer.sync(AgentMemoryConnector(moved, agent_id="a", name="log")).unchanged == 2


def test_metadata_of_the_connector_is_added_and_never_replaces_what_means_something(log):
    document, _ = AgentMemoryConnector(log, agent_id="a", metadata={"team": "客服", "type": "x"}).load()
    assert {"team": "客服", "type": "dialogue"}.items() <= document.metadata.items()


def test_settings_that_change_documents_change_versions(log):
    def versions(**options):
        return [
            item.version
            for item in AgentMemoryConnector(log, agent_id="a", **options).items()
            if not isinstance(item, Gap)
        ]

    assert versions() == versions()
    for options in ({"system": True}, {"metadata": {"team": "x"}}, {"name": "y"}):
        assert not set(versions()) & set(versions(**options))


def test_an_unchanged_session_is_not_loaded(tmp_path, indexer, monkeypatch):
    memory = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
    for session in ("s", "t"):
        memory.append("a", TestOwnTable().entries("你好", session=session))
    connector = AgentMemoryConnector(memory, agent_id="a")
    indexer.sync(connector)
    loaded, original = [], table.MemoryTable.read
    monkeypatch.setattr(
        table.MemoryTable, "read", lambda self, *a, **k: loaded.append(k["session"]) or original(self, *a, **k)
    )
    indexer.sync(connector)
    assert loaded == []
    memory.append("a", TestOwnTable().entries("你好", "again", session="t"))
    indexer.sync(connector)
    assert loaded == ["t"]


def test_the_documents_are_found_by_word_in_both_languages(tmp_path):
    memory = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
    memory.append("a", TestOwnTable().entries("上次那个 E1102 是换了滤网解决的", "The invoice number is INV-2024-17"))
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.sync(AgentMemoryConnector(memory, agent_id="a"))
        for query, word in (("E1102 怎么解决", "滤网"), ("invoice number", "INV-2024-17"), ("滤网", "E1102")):
            assert word in indexer.search(query, k=1, agent_id="a")[0].text
