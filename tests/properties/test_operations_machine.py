"""Operations against a plain model, by agents that look alike: none sees, repeats or reconciles another's."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.operations import Operations
from langchain_agentrag.guard.tool_rules import GuardedTool, NothingDone, ToolRule

AGENTS = [
    "a", "A", "a ", "a1", "a10", "a%", "%", "*", "_", "a\0", "a\0b", "\u00e9", "e\u0301", "用户", "用户1", "a'; DROP TABLE operations;--",
    "../a", "a/b", "x" * 300, "None", "null", "shared",
]  # fmt: skip
SCHEMA = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = {name: GuardedTool(name, SCHEMA, ToolRule("low")) for name in ("send", "Send", "send ")}

agents, tools = st.sampled_from(AGENTS), st.sampled_from(sorted(TOOLS))
numbers, scopes = st.integers(0, 2), st.sampled_from(["s", "S", "s%"])
ids = st.sampled_from([None, None, "mine"])


class OperationsMachine(RuleBasedStateMachine):
    """Random calls, failures, reconciliations and reopenings."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.operations = Operations(self.folder / "o")
        self.states: dict[tuple, tuple[str, object]] = {}  # (agent, id) or (agent, tool, n, scope) → state, result
        self.names: dict[tuple, str] = {}
        self.executed = 0

    def teardown(self):
        self.operations.close()
        shutil.rmtree(self.folder)

    def key(self, agent, tool, n, scope, operation_id):
        return (agent, operation_id) if operation_id else (agent, tool, n, scope)

    @rule(
        agent=agents,
        tool=tools,
        n=numbers,
        scope=scopes,
        operation_id=ids,
        how=st.sampled_from(["works", "breaks", "nothing"]),
    )
    def call(self, agent, tool, n, scope, operation_id, how):
        key, identity = self.key(agent, tool, n, scope, operation_id), (tool, n, scope)
        before = self.executed

        def execute(arguments):
            assert arguments == {"n": n}
            if how == "nothing":
                raise NothingDone("no")
            self.executed += 1
            if how == "breaks":
                raise ConnectionError
            return [self.executed, agent]

        view = self.operations.for_agent(agent)
        known = self.states.get(key)
        if operation_id and known and known[2] != identity:
            try:
                view.call(TOOLS[tool], {"n": n}, execute, scope=scope, operation_id=operation_id)
            except UsageError:
                assert self.executed == before
                return
            raise AssertionError("an id was reused for something else")
        outcome = view.call(TOOLS[tool], {"n": n}, execute, scope=scope, operation_id=operation_id)
        self.names[key] = outcome.operation_id
        if known is None or known[0] == "not_done":
            expected = {"works": "done", "breaks": "needs_reconcile", "nothing": "not_done"}[how]
            assert outcome.status == expected
            self.states[key] = (expected, outcome.result if how == "works" else None, identity)
        else:
            assert self.executed == before, "a call was made a second time"
            assert outcome.status == ("replayed" if known[0] == "done" else "needs_reconcile")
            assert outcome.result == known[1]

    @rule(
        agent=agents,
        tool=tools,
        n=numbers,
        scope=scopes,
        operation_id=ids,
        verdict=st.sampled_from(["done", "not_done", "unknown"]),
    )
    def reconcile(self, agent, tool, n, scope, operation_id, verdict):
        key = self.key(agent, tool, n, scope, operation_id)
        if key not in self.names:
            return
        state, _, identity = self.states[key]
        view, result = self.operations.for_agent(agent), [-1, agent]
        try:
            view.reconcile(self.names[key], verdict, result=result)
        except UsageError:
            assert state != "needs_reconcile"
            return
        assert state == "needs_reconcile"
        becomes = {"unknown": "needs_reconcile"}.get(verdict, verdict)
        self.states[key] = (becomes, result if verdict == "done" else None, identity)

    @rule(agent=agents, unresolved=st.booleans())
    def forget(self, agent, unresolved):
        mine = [key for key in self.states if key[0] == agent]
        gone = [key for key in mine if unresolved or self.states[key][0] != "needs_reconcile"]
        assert self.operations.for_agent(agent).forget(unresolved=unresolved) == len(gone)
        for key in gone:
            del self.states[key], self.names[key]

    @rule()
    def reopen(self):
        self.operations.close()
        self.operations = Operations(self.folder / "o")

    @rule(agent=agents, other=agents)
    def pry(self, agent, other):
        """What one agent has, another one cannot find or reconcile."""
        if agent == other:
            return
        view = self.operations.for_agent(agent)
        for key, name in self.names.items():
            if key[0] == other and len(key) == 4:
                assert view.get(name) is None
                with contextlib.suppress(UsageError):
                    view.reconcile(name, "done", result="stolen", executing=True)
                    raise AssertionError("another agent's operation was reconciled")

    @invariant()
    def each_agent_has_its_own_operations(self):
        for agent in {key[0] for key in self.states}:
            view = self.operations.for_agent(agent)
            unknown = sorted(
                self.names[key]
                for key, (state, _, _) in self.states.items()
                if key[0] == agent and state == "needs_reconcile"
            )
            assert sorted(operation.operation_id for operation in view.unresolved()) == unknown
            for key, (state, result, identity) in self.states.items():
                if key[0] == agent:
                    stored = view.get(self.names[key])
                    assert (stored.principal, stored.state, stored.result) == (agent, state, result)
                    assert (stored.tool, stored.arguments["n"], stored.scope) == identity


TestOperations = OperationsMachine.TestCase
TestOperations.settings = settings(max_examples=25, stateful_step_count=30)


def test_an_equal_call_of_each_agent_is_an_operation_of_its_own(tmp_path):
    executed = []
    with Operations(tmp_path / "o") as operations:
        for _ in range(2):
            for agent in AGENTS:
                outcome = operations.for_agent(agent).call(
                    TOOLS["send"], {"n": 1}, lambda _, agent=agent: executed.append(agent) or agent, scope="s"
                )
                assert outcome.result == agent
    assert executed == AGENTS
