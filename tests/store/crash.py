"""Kill a writer, open what it left behind, compare it with what it had acknowledged.

    python -m tests.store.crash --kills 300 --seed 1

prints the table of kills. The writer is a child process that notes every call before it makes it and after it has
returned. A zygote with the third-party imports done forks one writer after the other, so that a kill costs little more
than the work it interrupts.
"""
# ruff: noqa: T201  (a script: printing is its job, and how the zygote answers)

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

AGENT = "智能体-a"
SHARED_BATCH, AGENT_BATCH = 600, 150
RECOVERY_POINTS = (
    "dead-rows-removed",
    "journal-cleared",
    "rebuild-filled",
    "promotion-filled",
    "purge-started",
    "purged",
    "vectors-deleted",
    "vectors-erased",
    "indexes-purged",
    "erased",
)
OPEN = {"embeddings": "hash", "chroma": "always", "exact_limit": 0, "lock_timeout": 60.0}
BEHIND = {**OPEN, "chroma": "auto", "exact_limit": 100}  # vectors reach Chroma after the commit


_SYLLABLES = ["ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "xe"]
_SIGNS = "轴刀泵阀轮盘带链塔臂箱油水气电热冷快慢停"


def text_of(owner: str | None, number: int, version: int) -> str:
    """A passage with a word nobody else has, which tells the document and its version, among random ones.

    Random, because an approximate index may miss one of many vectors that hardly differ.
    """
    rng = random.Random(f"{owner} {number} {version}")
    words = ["".join(rng.choices(_SYLLABLES, k=3)) for _ in range(8)]
    return f"{word_of(owner, number, version)} {' '.join(words)} {''.join(rng.choices(_SIGNS, k=12))}"


def word_of(owner: str | None, number: int, version: int) -> str:
    return f"zq{'a' if owner else 's'}{number}v{version}"


@dataclass
class Model:
    """What the store must hold: owner → number → version. `doubt`: what the call under way may have changed already."""

    shared: dict[int, int] = field(default_factory=dict)
    agent: dict[int, int] = field(default_factory=dict)
    doubt: dict | None = None

    def of(self, owner: str | None) -> dict[int, int]:
        return self.agent if owner else self.shared

    def apply(self, call: dict) -> None:
        documents = self.of(call["owner"])
        match call["action"]:
            case "put":
                documents.update(dict.fromkeys(call["numbers"], call["version"]))
            case "delete" | "erase":
                for number in call["numbers"]:
                    documents.pop(number, None)
            case "forget":
                documents.clear()

    @classmethod
    def read(cls, journal: Path) -> Model:
        model = cls()
        for line in journal.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["kind"] == "state":
                model = cls(
                    {int(k): v for k, v in entry["shared"].items()}, {int(k): v for k, v in entry["agent"].items()}
                )
            elif entry["kind"] == "begin":
                model.doubt = entry
            else:
                model.apply(model.doubt or {})
                model.doubt = None
        return model

    def write(self, journal: Path) -> None:
        state = {"kind": "state", "shared": self.shared, "agent": self.agent}
        journal.write_text(json.dumps(state) + "\n", "utf-8")


def store_often() -> None:
    """Have Chroma write its HNSW files every 500 rows, and index and purge at any time: worth hitting often."""
    from langchain_agentrag.store import background_indexing
    from langchain_agentrag.store.vector_index import HNSW

    HNSW["sync_threshold"] = 500
    background_indexing._SLICE_ROWS, background_indexing._BACKGROUND_SLICE_ROWS = 200, 100
    background_indexing._WRITE_DELAY, background_indexing._OPEN_DELAY = 0.0, 0.0
    background_indexing._PURGE_DELAY, background_indexing._MAX_PURGE_DELAY = 0.0, 0.5
    background_indexing._REWRITTEN_ROWS = 200


# -- the writer -------------------------------------------------------------------------------------------------------


def write_without_end(folder: Path, journal: Path, seed: int, *, behind: bool) -> None:
    """Calls in random order until somebody kills the process."""
    from langchain_agentrag import DualIndexer
    from langchain_agentrag.types import SourceDocument

    store_often()
    rng, model = random.Random(seed), Model.read(journal)
    log = journal.open("a", encoding="utf-8")

    def note(entry: dict) -> None:
        log.write(json.dumps(entry) + "\n")
        log.flush()

    indexer = DualIndexer(folder, **(BEHIND if behind else OPEN))
    store = indexer._store
    # also beyond every version: a version that comes again would look like work already done
    first = max([0, *model.shared, *model.agent, *model.shared.values(), *model.agent.values()]) + 1
    plan: list[dict] = []
    while True:
        if not plan:
            plan = _plan(rng, model, first)
            first += SHARED_BATCH + AGENT_BATCH
        call = plan.pop(0)
        note({"kind": "begin", **call})
        owner, numbers = call["owner"], call["numbers"]
        match call["action"]:
            case "put":
                indexer.index_documents(
                    [
                        SourceDocument(doc_id=str(number), text=text_of(owner, number, call["version"]))
                        for number in numbers
                    ],
                    agent_id=owner,
                )
            case "delete":
                indexer.delete([str(number) for number in numbers], agent_id=owner)
            case "erase":
                indexer.erase([str(number) for number in numbers], agent_id=owner)
            case "forget":
                indexer.forget_agent(owner)
            case "rebuild":
                with store.lock.acquire():
                    partition = store.ensure_partition(None)
                    store.indexes.rebuild_vector_index(store.indexes.rebuild_keyword_index(partition))
            case "reset":
                with store.lock.acquire():
                    store.indexes.rebuild_chroma()
        note({"kind": "done"})
        model.apply(call)


def open_once(folder: Path, *, behind: bool) -> None:
    """Open the store, which finishes what an earlier kill interrupted, and leave."""
    from langchain_agentrag import DualIndexer

    store_often()
    DualIndexer(folder, **(BEHIND if behind else OPEN))
    os._exit(0)


def _plan(rng: random.Random, model: Model, first: int) -> list[dict]:
    def call(action: str, owner: str | None = None, numbers: object = (), version: int = 0) -> dict:
        return {"action": action, "owner": owner, "numbers": list(numbers), "version": version}

    fresh = range(first, first + SHARED_BATCH)
    old = rng.sample(sorted(model.shared), min(150, len(model.shared)))
    calls = [
        call("put", None, fresh),
        call("put", AGENT, range(first + SHARED_BATCH, first + SHARED_BATCH + AGENT_BATCH)),
        call("put", None, old[:100] or list(fresh)[:100], first),
        call(rng.choice(["delete", "erase"]), None, old[50:] or list(fresh)[:50]),
    ]
    rng.shuffle(calls)
    last = call(rng.choice(["forget", "forget", "rebuild", "reset"]), AGENT)
    point = os.environ.get("AGENTRAG_FAILPOINT", "")
    for action, start in (("forget", "forget"), ("rebuild", "rebuild"), ("reset", "chroma-")):
        if point.startswith(start):  # do not write for long before the point is reached
            return [*calls[:2], call(action, AGENT)]
    return [*calls, last]


def zygote() -> None:
    """Fork a writer per line of standard input; tell its process id, then how it ended."""
    for library in ("chromadb", "jieba", "langchain_core.documents", "numpy", "opencc", "tantivy"):
        importlib.import_module(library)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            os.environ["AGENTRAG_FAILPOINT"] = order["fault"]  # read when the package is imported, which is now
            logging.disable(logging.CRITICAL)
            try:
                if order["action"] == "open":
                    open_once(Path(order["folder"]), behind=order["behind"])
                else:
                    write_without_end(
                        Path(order["folder"]), Path(order["journal"]), order["seed"], behind=order["behind"]
                    )
            except BaseException as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
            os._exit(1)
        print(json.dumps({"pid": child}), flush=True)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}), flush=True)


# -- the judge --------------------------------------------------------------------------------------------------------


def judge(folder: Path, model: Model, rng: random.Random) -> Model:
    """Open the store after a kill and hold it against the model; the model with its doubt resolved."""
    from langchain_agentrag import DualIndexer

    store_often()
    with DualIndexer(folder, **rng.choice([OPEN, BEHIND])) as indexer:
        report = indexer.verify()
        assert report.ok, report.problems
        with indexer._store.lock.acquire():
            assert not indexer._store.catalog.journal()
            assert not indexer._store.catalog.purges()
        stored = Model(*(_stored_versions(indexer, model, owner) for owner in (None, AGENT)))
        for owner in (None, AGENT):
            _find(indexer, owner, stored, rng)
        _miss(indexer, model, stored, rng)
        return stored


def _stored_versions(indexer, model: Model, owner: str | None) -> dict[int, int]:
    from langchain_agentrag.store.queries import document_text, documents_of

    connection = indexer._store.catalog.connection()
    versions_by_number = {}
    for known, _ in documents_of(connection, owner, indexer._store.now()):
        text, number = document_text(connection, known.key)[0], int(known.doc_id)
        versions = {text_of(owner, number, version): version for version in _versions(model, owner, number)}
        assert text in versions, f"{known.doc_id} holds what nobody wrote: {text!r}"
        versions_by_number[number] = versions[text]
    expected, doubt = model.of(owner), model.doubt
    moved = set(doubt["numbers"]) if doubt and doubt["owner"] == owner else set()
    if doubt and doubt["action"] == "forget" and owner:
        assert versions_by_number in ({}, expected), "an agent was forgotten in part"
        return versions_by_number
    lost = {number for number in expected.keys() - moved if versions_by_number.get(number) != expected[number]}
    assert not lost, f"acknowledged documents are lost or old: {sorted(lost)[:10]}"
    assert versions_by_number.keys() - expected.keys() <= moved, (
        "documents are there that nobody wrote, or that were deleted"
    )
    if doubt and moved and doubt["action"] in {"put", "delete", "erase"}:
        # batches commit in order: what is done of a call is its beginning
        target = doubt["version"] if doubt["action"] == "put" else None
        done = [versions_by_number.get(number) == target for number in doubt["numbers"]]
        assert done == sorted(done, reverse=True), "a later part of a call is there, an earlier one is not"
    return versions_by_number


def _versions(model: Model, owner: str | None, number: int) -> set[int]:
    versions = {model.of(owner)[number]} if number in model.of(owner) else set()
    if model.doubt and model.doubt["action"] == "put" and model.doubt["owner"] == owner:
        versions.add(model.doubt["version"])
    return versions


def _find(indexer, owner: str | None, model: Model, rng: random.Random) -> None:
    documents = model.of(owner)
    for number in rng.sample(sorted(documents), min(6, len(documents))):
        version = documents[number]
        for mode, query in (("keyword", word_of(owner, number, version)), ("vector", text_of(owner, number, version))):
            hits = indexer.search(query, 3, agent_id=owner, mode=mode)
            assert not hits.degraded, hits.degraded
            assert hits, f"{mode}: {query} finds nothing"
            assert hits[0].doc_id == str(number), f"{mode}: {query} finds {hits[0].text}"


def _miss(indexer, before: Model, after: Model, rng: random.Random) -> None:
    from tests.store.erasure import find_deleted_text

    gone = sorted(before.shared.keys() - after.shared.keys())
    for number in rng.sample(gone, min(3, len(gone))):
        hits = indexer.keyword_search(word_of(None, number, before.shared[number]), 50, agent_id=AGENT)
        assert str(number) not in {hit.doc_id for hit in hits}, f"{number} was deleted and is found"
    texts = [text_of(None, number, before.shared[number]) for number in gone]
    findings = find_deleted_text(indexer._store, texts)
    assert not findings, f"what was deleted is on disk: {findings}"


@dataclass
class Kill:
    """One kill: where, whether the call under way had committed anything, how the store was healed."""

    point: str
    call: str
    healed: Counter


class _Healings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("rebuilding"):
            self.counts[record.getMessage().split(":")[0]] += 1


class Killer:
    """Writers, kills and judgements on one folder.

    Args:
        root: Where the store and the writer's notes live.
        seed: Of every random choice.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.folder, self.journal = root / "store", root / "acknowledged.jsonl"
        self.rng, self._count = random.Random(seed), 0
        Model().write(self.journal)
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.store.crash", "--zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *error: object) -> None:
        self._zygote.stdin.close()
        self._zygote.wait(60)
        self._zygote.stdout.close()

    def kill_at(self, point: str, times: int = 1) -> Kill:
        """Let a writer run into a named point."""
        pid = self._start(f"{point}:{times}")
        self._end(pid, patience=120)
        return self._judge(point)

    def kill_at_random(self) -> Kill:
        """Kill a writer some time after it has begun to write."""
        self._kill_somewhere()
        return self._judge("random")

    def kill_twice(self, point: str) -> Kill:
        """Kill a writer, then whoever opens the store next while it cleans up: at a named point or at random."""
        self._kill_somewhere()
        pid = self._start(point, action="open")
        if not point:
            time.sleep(self.rng.uniform(0.2, 1.0))
            with contextlib.suppress(ProcessLookupError):  # it had nothing left to do
                os.kill(pid, signal.SIGKILL)
        killed = self._end(pid, patience=60, may_end=True)
        return self._judge(f"recovery, {point or 'random'}" if killed else "random")

    def _kill_somewhere(self) -> None:
        before = len(self.journal.read_text("utf-8").splitlines())
        pid = self._start("")
        deadline = time.monotonic() + 60
        while len(self.journal.read_text("utf-8").splitlines()) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self.rng.uniform(0, 2.0))
        os.kill(pid, signal.SIGKILL)
        self._end(pid, patience=30)

    def _start(self, fault: str, action: str = "write") -> int:
        if action == "write" and len(Model.read(self.journal).shared) > 4_000:  # keep each judgement short
            shutil.rmtree(self.folder)
            Model().write(self.journal)
        self._count += 1
        order = {
            "folder": str(self.folder),
            "journal": str(self.journal),
            "seed": self.rng.randrange(1 << 30),
            "fault": fault,
            "action": action,
            "behind": fault.startswith("background") or self.rng.random() < 1 / 2,
        }
        self._zygote.stdin.write(json.dumps(order) + "\n")
        self._zygote.stdin.flush()
        return json.loads(self._zygote.stdout.readline())["pid"]

    def _end(self, pid: int, patience: float, *, may_end: bool = False) -> bool:
        """Wait for a child's end; whether it was killed."""
        timer = time.monotonic() + patience
        while Path(f"/proc/{pid}").exists() and "State:\tZ" not in _status(pid):
            if time.monotonic() > timer:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"the child did not reach the point within {patience} s")
            time.sleep(0.02)
        ended = json.loads(self._zygote.stdout.readline())
        assert "error" not in ended, f"the child failed before it was killed: {ended['error']}"
        assert may_end or ended["signal"] == signal.SIGKILL
        return ended["signal"] == signal.SIGKILL

    def _judge(self, point: str) -> Kill:
        model, healings = Model.read(self.journal), _Healings()
        logging.getLogger("langchain_agentrag").addHandler(healings)
        try:
            judge(self.folder, model, self.rng).write(self.journal)
        finally:
            logging.getLogger("langchain_agentrag").removeHandler(healings)
        return Kill(point, (model.doubt or {"action": "between calls"})["action"], healings.counts)


def next_kill(killer: Killer, count: int) -> Kill:
    """A third at named points, a third at random, a third followed by a kill of the recovery."""
    from langchain_agentrag.store.failpoints import FAILPOINTS

    if count % 3 == 0:
        return killer.kill_at(FAILPOINTS[count // 3 % len(FAILPOINTS)], killer.rng.choice([1, 1, 2, 3]))
    if count % 3 == 1:
        return killer.kill_at_random()
    return killer.kill_twice(killer.rng.choice(["", "", *RECOVERY_POINTS]))


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.zygote:
        zygote()
        return
    print(f"seed {options.seed}")
    table: dict[str, list[Kill]] = {}
    root = Path(tempfile.mkdtemp(prefix="agentrag-crash-"))
    logging.getLogger("langchain_agentrag").propagate = False
    with Killer(root, options.seed) as killer:
        for count in range(options.kills):
            kill = next_kill(killer, count)
            table.setdefault(kill.point, []).append(kill)
            print(f"\r{count + 1} kills survived", end="", file=sys.stderr, flush=True)
    shutil.rmtree(root)
    print(f"\n{'point':<20}{'kills':>7}{'healed':>8}  calls interrupted")
    for point, kills in table.items():
        calls = ", ".join(f"{call} {n}" for call, n in Counter(kill.call for kill in kills).most_common())
        print(f"{point:<20}{len(kills):>7}{sum(bool(kill.healed) for kill in kills):>8}  {calls}")
    print(f"{'all':<20}{sum(map(len, table.values())):>7}")


if __name__ == "__main__":
    main()
