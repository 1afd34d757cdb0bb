"""Kill processes in the middle of calls with side effects, and count how often each call took effect.

    python -m tests.guard.operations_kills --kills 200 --seed 1

The side effect is a line appended to a file, so a call that was made twice is seen there. Workers, two at a time every
fourth round, go through the same list of calls; whoever finds one of unknown outcome looks into the file and says what
happened, as the program around an agent would. In the end every call must stand there exactly once, with the result the
records give. `--broken` shows that the count can fail: there, what a
dead process had begun is taken for not done.
"""
# ruff: noqa: T201  (a script: printing is its job, and how a worker answers)

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.operation_log import FAILPOINTS
from langchain_agentrag.guard.operations import AgentOperations, Operations
from langchain_agentrag.guard.tool_rules import GuardedTool, ToolRule
from langchain_agentrag.store.failpoints import failpoint

EFFECT_POINTS = ("effect-before", "effect-after")
AGENTS = ("lina", "智能体-a")
PER_ROUND = 12
SCHEMA = {"properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOLS = [GuardedTool("append", SCHEMA, ToolRule(risk)) for risk in ("low", "high")]


# -- the worker -------------------------------------------------------------------------------------------------------


def effects(folder: Path) -> list[tuple[str, int, str]]:
    """(agent, number, what the call answered) of every call that took effect, in order."""
    path = folder / "effects"
    return [tuple(json.loads(line)) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def append(folder: Path, agent: str, number: int) -> str:
    answer = uuid.uuid4().hex
    line = json.dumps([agent, number, answer]) + "\n"
    failpoint("effect-before")
    descriptor = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)
    failpoint("effect-after")
    return answer


def reconcile(mine: AgentOperations, folder: Path, agent: str, number: int, operation_id: str) -> None:
    """Say what really happened to a call of unknown outcome."""
    operation = mine.get(operation_id)
    if operation is None or operation.state != "needs_reconcile":
        return
    happened = [answer for who, which, answer in effects(folder) if (who, which) == (agent, number)]
    with contextlib.suppress(UsageError):  # the other worker was faster
        if happened:
            mine.reconcile(operation_id, "done", result=happened[0], attempts=operation.attempts)
        else:
            mine.reconcile(operation_id, "not_done", attempts=operation.attempts)


def work(folder: Path, first: int, last: int) -> None:
    """Make every call of the list, and tell each that is known to have happened."""
    operations = Operations(folder / "operations.sqlite", max_risk="high")
    print(json.dumps(["ready"]), flush=True)
    left = [(agent, number) for number in range(first, last) for agent in AGENTS]
    while left:
        for agent, number in list(left):
            mine = operations.for_agent(agent)
            outcome = mine.call(
                TOOLS[number % 2],
                {"number": number},
                lambda arguments, agent=agent: append(folder, agent, arguments["number"]),
                scope="kills",
            )
            if outcome.status in {"done", "replayed"}:
                print(json.dumps([agent, number, outcome.result]), flush=True)
                left.remove((agent, number))
            elif outcome.status == "needs_reconcile":
                reconcile(mine, folder, agent, number, outcome.operation_id)
        time.sleep(0.001)


def break_it() -> None:
    """The same with a common mistake: what a dead process had begun is taken for not done."""
    from dataclasses import replace

    from langchain_agentrag.guard import operation_log

    read = operation_log.operation_from_row

    def read_wrongly(row):
        operation = read(row)
        died = operation.error == operation_log.PROCESS_DIED
        return replace(operation, state="not_done") if died else operation

    operation_log.operation_from_row = read_wrongly


# -- the judge --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was seen.

    Attributes:
        kills: Workers that died by a signal, by the point or "random".
        acknowledged: Calls a worker told of: (agent, number) → what they answered.
        faults: What must not be.
    """

    kills: Counter = field(default_factory=Counter)
    acknowledged: dict = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    unknown: int = 0


def run(kills: int, seed: int, *, broken: bool = False, folder: Path) -> Tally:
    rng, tally, number = random.Random(seed), Tally(), 0
    points = [*FAILPOINTS, *EFFECT_POINTS]
    rng.shuffle(points)
    turn = -1
    while sum(tally.kills.values()) < kills:
        turn += 1
        point = points[turn % len(points)]
        fault = "" if turn % 3 == 2 else f"{point}:{rng.randint(1, 6)}"
        workers = [start(folder, number, number + PER_ROUND, fault, broken=broken)]
        if turn % 4 == 0:
            workers.append(start(folder, number, number + PER_ROUND, "", broken=broken))
        moment = time.monotonic() + rng.uniform(0.0, 0.08)
        for worker in workers[1:] if fault else workers:
            worker.stdout.readline()  # ready
            time.sleep(max(0.0, moment - time.monotonic()))
            worker.kill()
        for worker in workers:
            name = point if fault and worker is workers[0] else "random"
            collect(worker, tally, name)
        check(folder, tally, complete_below=0)
        if turn % 4 == 3:  # what was left behind must come to an end
            finish(folder, number, number + PER_ROUND, tally, broken=broken)
            number += PER_ROUND
            check(folder, tally, complete_below=number)
        if tally.faults:
            return tally
    finish(folder, number, number + PER_ROUND, tally, broken=broken)
    check(folder, tally, complete_below=number + PER_ROUND)
    return tally


def start(folder: Path, first: int, last: int, fault: str, *, broken: bool) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.guard.operations_kills", "--worker", str(folder), str(first), str(last)]
    return subprocess.Popen(
        [*command, *(["--broken"] if broken else [])],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "AGENTRAG_FAILPOINT": fault},
    )


def collect(worker: subprocess.Popen, tally: Tally, name: str) -> None:
    output, _ = worker.communicate(timeout=120)
    if worker.returncode == -signal.SIGKILL:
        tally.kills[name] += 1
    elif worker.returncode:
        tally.faults.append(f"a worker failed with {worker.returncode}")
    for line in output.splitlines():
        with contextlib.suppress(ValueError):  # a line that was cut by the kill
            agent, number, answer = [*json.loads(line), None, None][:3]
            if answer is None:
                continue
            known = tally.acknowledged.setdefault((agent, number), answer)
            if known != answer:
                tally.faults.append(f"call {number} of {agent} answered {known}, then {answer}")


def finish(folder: Path, first: int, last: int, tally: Tally, *, broken: bool) -> None:
    collect(start(folder, first, last, "", broken=broken), tally, "none")


def check(folder: Path, tally: Tally, *, complete_below: int) -> None:
    effects_before = effects(folder)
    counts = Counter((agent, number) for agent, number, _ in effects_before)
    answers = {(agent, number): answer for agent, number, answer in effects_before}
    tally.faults += [f"call {key} took effect {count} times" for key, count in counts.items() if count > 1]
    tally.faults += [
        f"call {key} answered {answer}, which is not what happened"
        for key, answer in tally.acknowledged.items()
        if answers.get(key) != answer
    ]
    with Operations(folder / "operations.sqlite", max_risk="high") as operations:
        for agent in AGENTS:
            tally.unknown += len(operations.for_agent(agent).unresolved())
            for number in range(complete_below):
                if not counts[agent, number]:
                    tally.faults.append(f"call {number} of {agent} never took effect")
        if complete_below and any(operations.for_agent(agent).unresolved() for agent in AGENTS):
            tally.faults.append("an outcome is unknown although every call was made")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--worker", nargs=3)
    options = parser.parse_args()
    if options.worker:
        if options.broken:
            break_it()
        work(Path(options.worker[0]), *map(int, options.worker[1:]))
        return 0
    tally, begun = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = run(options.kills, options.seed, broken=options.broken, folder=Path(folder))
        calls = len(effects(Path(folder)))
    for point, count in sorted(tally.kills.items()):
        print(f"{point:24} {count:4} kills")
    print(f"{sum(tally.kills.values())} kills, {calls} calls took effect, {tally.unknown} times an outcome was unknown")
    print(f"faults: {tally.faults[:5] or 'none'}; no call was made twice: {not tally.faults}")
    print(f"{time.monotonic() - begun:.0f} s")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
