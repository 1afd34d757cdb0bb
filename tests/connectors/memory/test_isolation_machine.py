"""Any history of writing, mapping, syncing and forgetting: each agent's store holds exactly its own memory."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from langchain_agentrag import AgentMemoryConnector, DualIndexer, HashingEmbeddings
from langchain_agentrag.connectors.memory import MemoryTable, ToolCall, Turn

AGENTS = ["a", "A", "a ", "a%", "a\u0301", "á", "甲"]
who = st.sampled_from(AGENTS)
sessions = st.sampled_from(["s", "s/", "S", "会话", ""])
numbers = st.integers(0, 3)


class Memories(RuleBasedStateMachine):
    """A table that is read agent by agent, and a log whose sessions a function maps."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.indexer = DualIndexer(self.folder / "store", HashingEmbeddings(16))
        self.table = MemoryTable(f"sqlite:///{self.folder}/memory.db")
        self.log = self.folder / "log.jsonl"
        self.log.touch()
        self.lines: list[dict] = []
        self.recorded: dict[str, dict[tuple[str, str], str]] = {agent: {} for agent in AGENTS}
        self.visible: dict[str, dict[str, list[str]]] = {agent: {"table": [], "log": []} for agent in AGENTS}
        self.mapping: dict[str, str | None] = {}
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.indexer.close()
            self.table.close()
            shutil.rmtree(self.folder)

    def text(self, agent: object) -> str:
        self.count += 1
        return f"记忆 memory {self.count} of {AGENTS.index(agent) if agent in AGENTS else 'nobody'}"

    @rule(agent=who, session=sessions, number=numbers, call=st.booleans())
    def record(self, agent: str, session: str, number: int, call: bool) -> None:
        text, name = self.text(agent), str(number)
        if call:
            entry = ToolCall(session=session, entry_id=name, tool="t", result=text)
            text = f"t()\n→ {text}"
        else:
            entry = Turn(session=session, entry_id=name, role="user", text=text)
        self.table.append(agent, [entry])
        self.recorded[agent][session, name] = text

    @rule(agent=who, session=st.none() | sessions)
    def erase(self, agent: str, session: str | None) -> None:
        self.table.delete(agent, session=session)
        recorded = self.recorded[agent]
        self.recorded[agent] = (
            {} if session is None else {key: text for key, text in recorded.items() if key[0] != session}
        )

    @rule(agent=who)
    def sync_one(self, agent: str) -> None:
        report = self.indexer.for_agent(agent).sync(AgentMemoryConnector(self.table, agent_id=agent))
        assert (report.failed, report.skipped) == ((), ())
        self.visible[agent]["table"] = sorted(self.recorded[agent].values())

    @rule(agent=st.none() | who, session=sessions)
    def say(self, agent: str | None, session: str) -> None:
        line = {"role": "user", "content": self.text(agent), "session": session or "log"}
        self.lines.append(line | ({} if agent is None else {"agent_id": agent}))
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.lines[-1]) + "\n")

    @rule(session=sessions, agent=st.none() | who)
    def map_nameless(self, session: str, agent: str | None) -> None:
        """From now on this session, where its lines name nobody, is the agent's, or nobody's."""
        self.mapping[session or "log"] = agent

    @rule()
    def sync_log(self) -> None:
        def agent_of(session):
            return session.agent_id if session.agent_id is not None else self.mapping.get(session.id)

        self.indexer.sync(AgentMemoryConnector(self.log, agent_id=agent_of))
        unmapped = {line["session"] for line in self.lines if "agent_id" not in line} - {
            session for session, agent in self.mapping.items() if agent is not None
        }
        for agent in AGENTS:
            mine = [
                line["content"]
                for line in self.lines
                if line.get("agent_id", self.mapping.get(line["session"])) == agent
            ]
            unmapped_texts = [  # what was stored of a session that nobody owns now stays where it was
                line["content"]
                for line in self.lines
                if "agent_id" not in line
                and line["session"] in unmapped
                and line["content"] in self.visible[agent]["log"]
            ]
            self.visible[agent]["log"] = sorted(mine + unmapped_texts)

    @rule(agent=who)
    def forget(self, agent: str) -> None:
        self.indexer.forget_agent(agent)
        self.visible[agent] = {"table": [], "log": []}
        # what is still in the sources comes back with the next sync of its source, and nowhere else
        self.sync_one(agent)
        self.sync_log()

    @invariant()
    def each_agent_sees_exactly_its_own(self) -> None:
        if not hasattr(self, "folder"):
            return
        for agent in AGENTS:
            hits = self.indexer.search("记忆 memory", k=200, agent_id=agent, mode="vector")
            assert {hit.agent_id for hit in hits} <= {agent}
            assert sorted(hit.text for hit in hits) == sorted(self.visible[agent]["table"] + self.visible[agent]["log"])
        assert list(self.indexer.search("记忆 memory", k=200)) == []


TestMemories = Memories.TestCase
PROOF = os.environ.get("HYPOTHESIS_PROFILE") == "proof"
TestMemories.settings = settings(
    max_examples=150 if PROOF else 12,
    stateful_step_count=30 if PROOF else 20,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
