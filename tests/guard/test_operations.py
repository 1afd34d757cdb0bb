"""Calls with side effects: at most once, and every caller gets the outcome. Real files, real threads."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from langchain_agentrag.errors import NotAStoreError, ScopeError, StoreError, UsageError
from langchain_agentrag.guard.operations import Operations
from langchain_agentrag.guard.tool_rules import GuardedTool, NothingDone, ToolRule

MAIL = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "text": {"type": "string"}, "copies": {"type": "integer", "default": 1}},
    "required": ["to", "text"],
}
ARGUMENTS = {"to": "丽娜", "text": "退款 5 元"}


def tool(risk="low", **rule) -> GuardedTool:
    return GuardedTool("send_mail", MAIL, ToolRule(risk, **rule))


class Mails(list):
    """The world outside: each call leaves a trace."""

    def send(self, arguments):
        self.append(arguments)
        return f"sent {len(self)}"

    def break_off(self, arguments):
        self.append(arguments)
        raise ConnectionError("the line went dead")


@pytest.fixture
def sent() -> Mails:
    return Mails()


@pytest.fixture
def lina(operations):
    return operations.for_agent("lina")


def test_a_call_is_made_once_and_its_result_replayed(lina, sent):
    first = lina.call(tool(), ARGUMENTS, sent.send, scope="task-1")
    again = lina.call(tool(), dict(reversed(ARGUMENTS.items())), sent.send, scope="task-1")
    assert (first.status, first.result, first.message) == ("done", "sent 1", "")
    assert (again.status, again.result, again.operation_id) == ("replayed", "sent 1", first.operation_id)
    assert "not done again" in again.message
    assert len(sent) == 1


def test_a_default_written_out_is_the_same_operation(lina, sent):
    lina.call(tool(), ARGUMENTS, sent.send, scope="task-1")
    assert lina.call(tool(), {**ARGUMENTS, "copies": 1.0}, sent.send, scope="task-1").status == "replayed"
    assert lina.call(tool(), {**ARGUMENTS, "copies": "1"}, sent.send, scope="task-1").status == "replayed"
    assert lina.call(tool(), {**ARGUMENTS, "copies": 2}, sent.send, scope="task-1").status == "done"
    assert sent[0] == ARGUMENTS


def test_another_scope_is_another_operation(lina, sent):
    for scope in ("task-1", "task-2"):
        assert lina.call(tool(), ARGUMENTS, sent.send, scope=scope).status == "done"


@pytest.mark.parametrize("result", ["text", {"a": [1, None, "中文"]}, None, 0, False])
def test_json_results_are_replayed_as_they_were(lina, result):
    for _ in range(2):
        assert lina.call(tool(), ARGUMENTS, lambda _: result, scope="t").result == result


@pytest.mark.parametrize(
    "result", [{1, 2}, object(), float("nan"), "\ud83d", b"x"], ids=["set", "object", "nan", "surrogate", "bytes"]
)
def test_a_result_that_is_no_json_is_kept_as_text(lina, sent, result):
    assert lina.call(tool(), ARGUMENTS, lambda _: result, scope="t").result is result
    again = lina.call(tool(), ARGUMENTS, sent.send, scope="t")
    assert (again.status, again.result, len(sent)) == ("replayed", str(result), 0)


def test_an_exception_leaves_an_unknown_outcome_and_is_never_repeated(lina, sent):
    first = lina.call(tool(), ARGUMENTS, sent.break_off, scope="t")
    again = lina.call(tool(), ARGUMENTS, sent.send, scope="t")
    assert first.status == again.status == "needs_reconcile"
    assert "the line went dead" in first.message
    assert first.operation_id in first.message
    assert len(sent) == 1


def test_a_tool_that_raises_nothing_done_may_be_called_again(lina, sent):
    def refuse(_):
        raise NothingDone("the mailbox is full")

    first = lina.call(tool(), ARGUMENTS, refuse, scope="t")
    assert (first.status, "mailbox is full" in first.message) == ("not_done", True)
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").status == "done"
    assert lina.get(first.operation_id).attempts == 2


@pytest.mark.parametrize(
    ("verdict", "then", "calls"), [("done", "replayed", 1), ("not_done", "done", 2), ("unknown", "needs_reconcile", 1)]
)
def test_the_verdict_of_reconcile_decides(lina, sent, verdict, then, calls):
    unknown = lina.call(tool(), ARGUMENTS, sent.break_off, scope="t").operation_id
    assert [operation.operation_id for operation in lina.unresolved()] == [unknown]
    reconciled = lina.reconcile(unknown, verdict, result={"number": 7}, note="looked into the outbox")
    assert reconciled.note == "looked into the outbox"
    again = lina.call(tool(), ARGUMENTS, sent.send, scope="t")
    assert (again.status, len(sent)) == (then, calls)
    if verdict == "done":
        assert again.result == {"number": 7}
    assert (lina.unresolved() == []) == (verdict != "unknown")


def test_only_an_unknown_outcome_is_reconciled(lina, sent):
    known = lina.call(tool(), ARGUMENTS, sent.send, scope="t").operation_id
    with pytest.raises(UsageError, match="is done"):
        lina.reconcile(known, "not_done")
    with pytest.raises(UsageError, match="no operation"):
        lina.reconcile("nothing", "done")
    with pytest.raises(UsageError, match="not_done"):
        lina.reconcile(known, "perhaps")


def test_a_report_on_an_earlier_attempt_does_not_reconcile_a_later_one(lina, sent):
    """Two look at once; the slower one must not let a call that the other has made run again."""
    unknown = lina.call(tool(), ARGUMENTS, sent.break_off, scope="t").operation_id
    operation = lina.get(unknown)
    lina.reconcile(unknown, "not_done", attempts=operation.attempts)
    lina.call(tool(), ARGUMENTS, sent.break_off, scope="t")
    with pytest.raises(UsageError, match="look again"):
        lina.reconcile(unknown, "not_done", attempts=operation.attempts)
    assert lina.reconcile(unknown, "done", attempts=lina.get(unknown).attempts).state == "done"


def test_an_id_stands_for_one_operation(lina, sent):
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t", operation_id="order-7").status == "done"
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t", operation_id="order-7").status == "replayed"
    other = GuardedTool("send_fax", MAIL, ToolRule("low"))
    for changed in ((tool(), {**ARGUMENTS, "text": "x"}, "t"), (tool(), ARGUMENTS, "t2"), (other, ARGUMENTS, "t")):
        with pytest.raises(UsageError, match="order-7"):
            lina.call(changed[0], changed[1], sent.send, scope=changed[2], operation_id="order-7")
    assert len(sent) == 1


def test_wrong_arguments_leave_no_record(lina, sent):
    outcome = lina.call(tool(), {"to": "丽娜", "text": "x", "copies": True}, sent.send, scope="t")
    assert (outcome.status, outcome.operation_id, len(sent)) == ("invalid", "", 0)
    assert outcome.errors[0].path == "copies"
    assert lina.unresolved() == []


@pytest.mark.parametrize("most", ["read", "low", "medium", "high"])
@pytest.mark.parametrize("risk", ["read", "low", "medium", "high"])
def test_a_level_above_the_delegated_one_is_refused(tmp_path, sent, risk, most):
    levels = ["read", "low", "medium", "high"]
    with Operations(tmp_path / "o", max_risk=most) as operations:
        outcome = operations.for_agent("lina").call(tool(risk), ARGUMENTS, sent.send, scope="t")
    allowed = levels.index(risk) <= levels.index(most)
    assert (outcome.status == "done", len(sent)) == (allowed, int(allowed))


def test_risk_may_depend_on_the_arguments_and_authority_on_the_agent(tmp_path, sent):
    rule = tool(lambda arguments: "high" if arguments["to"] == "everybody" else "low")
    with Operations(tmp_path / "o", max_risk={"lina": "high", "otto": "low"}.__getitem__) as operations:
        statuses = [
            operations.for_agent(agent).call(rule, {"to": to, "text": ""}, sent.send, scope="t").status
            for agent in ("lina", "otto")
            for to in ("one", "everybody")
        ]
    assert statuses == ["done", "done", "done", "refused"]


def test_reading_is_done_each_time_and_leaves_no_record(lina, sent):
    for _ in range(2):
        assert lina.call(tool("read"), ARGUMENTS, sent.send, scope="t").status == "done"
    assert lina.call(tool("read"), ARGUMENTS, sent.break_off, scope="t").status == "not_done"
    assert lina.unresolved() == []


@pytest.mark.parametrize(
    ("decision", "status"),
    [(True, "done"), (False, "refused"), ("not on Fridays", "refused"), (None, "refused"), (1, "refused")],
)
def test_only_a_yes_is_an_approval(tmp_path, sent, decision, status):
    previews = []
    operations = Operations(tmp_path / "o", max_risk="high", approval=lambda p: previews.append(p) or decision)
    outcome = operations.for_agent("lina").call(tool("high"), ARGUMENTS, sent.send, scope="t")
    assert (outcome.status, len(sent)) == (status, int(decision is True))
    assert (previews[0].tool, previews[0].arguments, previews[0].risk) == ("send_mail", ARGUMENTS, "high")
    if isinstance(decision, str):
        assert decision in outcome.message
    operations.for_agent("lina").call(tool("medium"), ARGUMENTS, sent.send, scope="t2")
    assert len(previews) == 1


def test_no_approval_is_requested_for_a_replayed_call(tmp_path, sent):
    previews = []
    operations = Operations(tmp_path / "o", max_risk="high", approval=lambda p: previews.append(p) or True)
    lina = operations.for_agent("lina")
    for execute in (sent.break_off, sent.send):
        lina.call(tool("high"), ARGUMENTS, execute, scope="t")
    assert (len(previews), len(sent)) == (1, 1)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_answer_is_in_the_language_of_the_guard(tmp_path, sent, language):
    with Operations(tmp_path / "o", max_risk="low", language=language) as operations:
        lina = operations.for_agent("丽娜")
        messages = [
            lina.call(tool(), {}, sent.send, scope="t").message,
            lina.call(tool("high"), ARGUMENTS, sent.send, scope="t").message,
            lina.call(tool(), ARGUMENTS, sent.break_off, scope="t").message,
            lina.call(tool(), ARGUMENTS, sent.send, scope="t").message,
        ]
        lina.call(tool(), ARGUMENTS, sent.send, scope="t2")
        messages.append(lina.call(tool(), ARGUMENTS, sent.send, scope="t2").message)
    assert all("send_mail" in message for message in messages)
    assert all(("没有" in message or "不知道" in message) == (language == "zh") for message in messages)


# -- time, threads, tasks ---------------------------------------------------------------------------------------------


def test_a_call_that_takes_too_long_is_unknown_until_it_ends_by_itself(lina, sent):
    release, ended = threading.Event(), threading.Event()

    def slow(arguments):
        release.wait(30)
        try:
            return sent.send(arguments)
        finally:
            ended.set()

    outcome = lina.call(tool(timeout=0.05), ARGUMENTS, slow, scope="t")
    assert outcome.status == "needs_reconcile"
    with pytest.raises(UsageError, match="may still be executed"):
        lina.reconcile(outcome.operation_id, "not_done")
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").status == "needs_reconcile"
    release.set()
    ended.wait(30)
    wait_for(lambda: lina.get(outcome.operation_id).state == "done")
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").result == "sent 1"
    assert len(sent) == 1


def test_the_result_of_a_late_call_is_ignored_after_reconciliation(lina, sent, caplog):
    release, calls = threading.Event(), []

    def slow(arguments):
        calls.append(arguments)
        release.wait(30)
        return "late"

    unknown = lina.call(tool(timeout=0.05), ARGUMENTS, slow, scope="t").operation_id
    lina.reconcile(unknown, "not_done", executing=True)
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").result == "sent 1"
    release.set()
    wait_for(lambda: "after it was reconciled" in caplog.text)
    assert lina.get(unknown).result == "sent 1"


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_of_many_threads_one_makes_the_call(tmp_path):
    path, calls, outcomes = tmp_path / "o", [], []
    barrier = threading.Barrier(16)

    def one():
        barrier.wait(30)
        with Operations(path) as operations:  # each makes or opens the file, with a connection of its own
            for n in range(10):
                arguments = {"to": str(n), "text": ""}
                outcomes.append(
                    operations.for_agent("lina").call(tool(), arguments, lambda a: calls.append(a["to"]), scope="t")
                )

    threads = [threading.Thread(target=one) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(calls) == [str(n) for n in range(10)]
    assert len(outcomes) == 160
    assert {outcome.status for outcome in outcomes} <= {"done", "replayed", "running"}


def test_a_call_that_ends_while_it_is_looked_at_is_not_taken_for_dead(lina, sent, monkeypatch):
    """The record is read as under way; then the call ends; then nobody is found who makes it."""
    from langchain_agentrag.guard import operation_log

    name, read = lina.call(tool(), ARGUMENTS, sent.send, scope="t").operation_id, operation_log._select
    stale = [dict(read(lina._log._connection, "lina", name)) | {"state": "in_flight", "pid": os.getpid()}]
    monkeypatch.setattr(operation_log, "_select", lambda *args: stale.pop() if stale else read(*args))
    assert lina.get(name).state == "done"
    assert not stale


def test_an_operation_under_way_is_not_begun_again(lina, sent):
    entered, release = threading.Event(), threading.Event()

    def slow(arguments):
        entered.set()
        release.wait(30)
        return sent.send(arguments)

    thread = threading.Thread(target=lambda: lina.call(tool(), ARGUMENTS, slow, scope="t"))
    thread.start()
    entered.wait(30)
    again = lina.call(tool(), ARGUMENTS, sent.send, scope="t")
    assert (again.status, again.operation_id in again.message) == ("running", True)
    with pytest.raises(UsageError, match="may still be executed"):
        lina.reconcile(again.operation_id, "not_done")
    release.set()
    thread.join(30)
    assert len(sent) == 1


async def test_the_same_calls_asynchronously(operations, sent):
    lina = operations.for_agent("lina")

    async def send(arguments):
        await asyncio.sleep(0.01)
        return sent.send(arguments)

    outcomes = await asyncio.gather(*(lina.acall(tool(), ARGUMENTS, send, scope="t") for _ in range(8)))
    statuses = [outcome.status for outcome in outcomes]
    assert statuses.count("done") == 1
    assert set(statuses) <= {"done", "running", "replayed"}
    assert (await lina.acall(tool(), ARGUMENTS, send, scope="t")).status == "replayed"
    assert len(sent) == 1


async def test_approval_may_be_asynchronous(tmp_path, sent):
    async def approve(proposal):
        await asyncio.sleep(0)
        return proposal.arguments["to"] == "丽娜"

    async def send(arguments):
        return sent.send(arguments)

    lina = Operations(tmp_path / "o", max_risk="high", approval=approve).for_agent("lina")
    assert (await lina.acall(tool("high"), ARGUMENTS, send, scope="t")).status == "done"
    assert (await lina.acall(tool("high"), {"to": "x", "text": ""}, send, scope="t")).status == "refused"


@pytest.mark.parametrize("how", ["timeout", "cancel", "raise"])
async def test_an_asynchronous_call_that_is_cut_off_is_unknown(operations, sent, how):
    lina, begun = operations.for_agent("lina"), asyncio.Event()

    async def hang(arguments):
        sent.send(arguments)
        begun.set()
        if how == "raise":
            raise ConnectionError
        await asyncio.sleep(60)

    task = asyncio.ensure_future(
        lina.acall(tool(timeout=0.05 if how == "timeout" else None), ARGUMENTS, hang, scope="t")
    )
    await begun.wait()
    if how == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert (await task).status == "needs_reconcile"

    async def send(arguments):
        return sent.send(arguments)

    assert (await lina.acall(tool(), ARGUMENTS, send, scope="t")).status == "needs_reconcile"
    assert len(sent) == 1


async def test_a_call_cancelled_before_it_was_made_may_be_made_later(operations, sent, monkeypatch):
    lina, file = operations.for_agent("lina"), operations.file
    begin, entered, release = file.begin, threading.Event(), threading.Event()

    def slowly(*args, **kwargs):
        entered.set()
        release.wait(30)
        return begin(*args, **kwargs)

    async def send(arguments):
        return sent.send(arguments)

    monkeypatch.setattr(file, "begin", slowly)
    task = asyncio.ensure_future(lina.acall(tool(), ARGUMENTS, send, scope="t"))
    while not entered.is_set():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    release.set()
    for _ in range(1000):
        outcome = await lina.acall(tool(), ARGUMENTS, send, scope="t")
        if outcome.status == "done":
            break
        await asyncio.sleep(0.01)
    assert (outcome.status, len(sent)) == ("done", 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_during_a_call_is_raised_and_leaves_an_unknown_outcome(lina, sent, error):
    def leave(arguments):
        sent.send(arguments)
        raise error

    with pytest.raises(error):
        lina.call(tool(), ARGUMENTS, leave, scope="t")
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").status == "needs_reconcile"


def test_a_pause_is_raised_and_the_call_made_later(lina, sent):
    class PauseError(Exception):
        pass

    def pause(_):
        raise PauseError

    with pytest.raises(PauseError):
        lina.call(tool(), ARGUMENTS, pause, scope="t", paused_by=(PauseError,))
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t", paused_by=(PauseError,)).status == "done"


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_call_that_cannot_be_written_down_is_not_made(operations, lina, sent, tmp_path):
    with sqlite3.connect(tmp_path / "operations.sqlite") as other:
        other.execute("DROP TABLE operations")
    with pytest.raises(StoreError):
        lina.call(tool(), ARGUMENTS, sent.send, scope="t")
    assert sent == []


def test_a_result_that_cannot_be_written_down_is_returned_and_the_call_never_repeated(
    operations, lina, sent, monkeypatch, caplog
):
    def full(*_, **__):
        raise StoreError("disk full")

    monkeypatch.setattr(operations.file, "record_outcome", full)
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").result == "sent 1"
    assert "could not be written down" in caplog.text
    monkeypatch.undo()
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").status == "needs_reconcile"
    assert len(sent) == 1


@pytest.mark.parametrize("content", [b"no database at all, but long enough to look like one" * 50, None])
def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "other"
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine(a)")
        other.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(NotAStoreError):
        Operations(path)
    assert path.read_bytes() == before


def test_many_may_make_the_file_at_once(tmp_path):
    for turn in range(20):
        barrier, failed = threading.Barrier(12), []

        def one(path=tmp_path / str(turn), barrier=barrier, failed=failed):
            barrier.wait(30)
            try:
                Operations(path).close()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=one) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failed == []


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    Operations(tmp_path / "o").close()
    with sqlite3.connect(tmp_path / "o") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer version"):
        Operations(tmp_path / "o")


def test_records_are_forgotten_by_age_and_unknown_ones_only_on_request(lina, sent, tmp_path):
    lina.call(tool(), {"to": "a", "text": "zebra-secret"}, sent.send, scope="t")
    lina.call(tool(), ARGUMENTS, sent.break_off, scope="t")
    now = dt.datetime.now(dt.UTC)
    assert lina.forget(before=now - dt.timedelta(days=1)) == 0
    assert lina.forget(before=now + dt.timedelta(days=1)) == 1
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").status == "needs_reconcile"
    assert lina.forget(unresolved=True) == 1
    for path in tmp_path.iterdir():
        assert b"zebra-secret" not in path.read_bytes()
    with pytest.raises(UsageError, match="timezone"):
        lina.forget(before=dt.datetime(2024, 1, 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_uses_the_file_on_its_own(operations, lina, sent):
    lina.call(tool(), ARGUMENTS, sent.send, scope="t")
    child = os.fork()
    if not child:
        status = lina.call(tool(), ARGUMENTS, sent.send, scope="t").status
        outcome_status = lina.call(tool(), ARGUMENTS, sent.send, scope="child").status
        os._exit(0 if (status, outcome_status) == ("replayed", "done") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lina.call(tool(), ARGUMENTS, sent.send, scope="child").status == "replayed"
    assert len(sent) == 1


def test_a_process_that_died_during_a_call_leaves_an_unknown_outcome(tmp_path, sent):
    code = (
        "import os, sys\n"
        "from tests.guard.test_operations import *\n"
        "Operations(sys.argv[1]).for_agent('lina').call(tool(), ARGUMENTS, lambda _: os._exit(7), scope='t')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "o")], check=False)
    assert done.returncode == 7
    with Operations(tmp_path / "o") as operations:
        lina = operations.for_agent("lina")
        outcome = lina.call(tool(), ARGUMENTS, sent.send, scope="t")
        assert (outcome.status, sent) == ("needs_reconcile", [])
        assert "died" in outcome.message
        lina.reconcile(outcome.operation_id, "not_done")
        assert lina.call(tool(), ARGUMENTS, sent.send, scope="t").status == "done"


def test_an_agent_must_be_named(operations):
    for nobody in (None, "", 7):
        with pytest.raises(ScopeError):
            operations.for_agent(nobody)


@pytest.mark.parametrize("scope", ["", None, 7, "\ud83d"])
def test_a_scope_must_be_named(lina, sent, scope):
    with pytest.raises(UsageError):
        lina.call(tool(), ARGUMENTS, sent.send, scope=scope)
    assert sent == []


@pytest.mark.parametrize("settings", [{"max_risk": "extreme"}, {"approve_from": ""}, {"durable_from": "none"}])
def test_an_unknown_level_is_refused(tmp_path, settings):
    with pytest.raises(UsageError, match="read, low, medium, high"):
        Operations(tmp_path / "o", **settings)


def test_a_rule_that_makes_no_sense_is_refused():
    with pytest.raises(UsageError):
        ToolRule("extreme")
    with pytest.raises(UsageError):
        ToolRule(timeout=0)
