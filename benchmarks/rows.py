"""DatabaseConnector: search quality on tau_retail_sql, and memory use on a large table.

    python benchmarks/rows.py quality DATA [--embeddings hash|local]
    python benchmarks/rows.py memory [--rows 1000000] [--url URL] [--dimensions 8] [--chroma auto]

`quality` loads DATA/tau_retail_sql/retail.sql into SQLite and indexes its tables with the default text of a row;
documents are identified by `table:key`, as in the qrels. `memory` prints the process's memory while a table is indexed
and synced again (Linux). Without --url the table is in SQLite; with one it is created there, as `agentrag_rows`, and
dropped afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from langchain_agentrag import DatabaseConnector, DualIndexer, HashingEmbeddings

TABLES = ("users", "orders", "products")  # those in the qrels
VIEWS = tuple(f"document_{table}" for table in TABLES)
DEPTH = 30  # chunks per query, so that ten documents remain
CHINESE = "机床 主轴 报警 冷却液 温度 备件 巡检 订单 客户 退货"
ENGLISH = "spindle alarm coolant order refund customer invoice pump valve filter"
WORDS = f"{CHINESE} {ENGLISH}".split()


def quality(options: argparse.Namespace) -> None:
    import ir_measures
    from ir_measures import RR, R, nDCG

    folder, measures = options.data / "tau_retail_sql", [nDCG @ 10, R @ 10, RR @ 10]
    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        qrels.setdefault(query, {})[document] = int(grade)
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [query for query in map(json.loads, lines) if query["_id"] in qrels]
    home = Path(tempfile.mkdtemp())
    with sqlite3.connect(home / "retail.db") as database:
        database.executescript((folder / "retail.sql").read_text(encoding="utf-8"))
    url = f"sqlite:///{home / 'retail.db'}"
    views = {view: {"table": view, "key": "id"} for view in VIEWS}
    sources = {
        "tables": {table: {"table": table} for table in TABLES},
        "joining views": views,
        'joining views, text="{text}"': {view: settings | {"text": "{text}"} for view, settings in views.items()},
    }
    print("| rows of | documents | setting | nDCG@10 | Recall@10 | MRR@10 |\n|---|---|---|---|---|---|")
    for number, (label, connectors) in enumerate(sources.items()):
        with DualIndexer(home / f"store{number}", options.embeddings) as indexer:
            for name, settings in connectors.items():
                indexer.sync(DatabaseConnector(url, name=name, **settings))
            for mode in ("keyword", "hybrid"):
                answers: dict[str, dict[str, float]] = {}
                for query in queries:
                    best = answers.setdefault(query["_id"], {})
                    for hit in indexer.search(query["text"], k=DEPTH, mode=mode):
                        best.setdefault(qrels_name(hit.doc_id), hit.score)
                means = ir_measures.calc_aggregate(measures, qrels, answers)
                figures = " | ".join(f"{means[measure]:.4f}" for measure in measures)
                print(f"| {label} | {indexer.stats().documents} | {mode} | {figures} |", flush=True)


def qrels_name(doc_id: str) -> str:
    """Return the name of a document in the qrels, which is the key of a view's row."""
    name, _, key = doc_id.partition(":")
    return key if name in VIEWS else doc_id


def resident() -> str:
    """Return the process's own memory, and that of mapped files, which the system can reclaim."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    sizes = dict(re.findall(r"^(Rss\w+):\s+(\d+) kB", status, re.MULTILINE))
    return f"{int(sizes['RssAnon']) // 1024:5} MB, files {int(sizes['RssFile']) // 1024:5} MB"


def fill(engine: sa.Engine, rows: int) -> sa.Table:
    table = sa.Table(
        "agentrag_rows",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("note", sa.String(200)),
        sa.Column("amount", sa.Numeric(10, 2)),
    )
    table.metadata.drop_all(engine)
    table.metadata.create_all(engine)
    rng = random.Random(7)
    for start in range(0, rows, 5_000):
        with engine.begin() as connection:
            connection.execute(
                table.insert(),
                [
                    {"id": number, "note": " ".join(rng.choices(WORDS, k=8)), "amount": number % 997}
                    for number in range(start, min(start + 5_000, rows))
                ],
            )
    return table


def memory(options: argparse.Namespace) -> None:
    home = Path(tempfile.mkdtemp())
    engine = sa.create_engine(options.url or f"sqlite:///{home / 'rows.db'}")
    table = fill(engine, options.rows)
    step, started = max(options.rows // 10, 1), time.monotonic()

    def print_progress(progress) -> None:
        nonlocal printed
        if progress.item and progress.done - printed >= step:
            printed = progress.done
            print(f"{printed:>9,} rows  {resident()}  {time.monotonic() - started:6.0f} s", flush=True)

    with DualIndexer(
        home / "store", HashingEmbeddings(options.dimensions), chroma=options.chroma, exact_limit=options.exact_limit
    ) as indexer:
        for phase in ("indexed", "synced again"):
            printed = 0
            print(f"{phase}: {resident()} before", flush=True)
            report = indexer.sync(
                DatabaseConnector(engine, table="agentrag_rows", name="rows"), on_progress=print_progress
            )
            print(f"{phase}: {report.added:,} added, {report.unchanged:,} unchanged in {report.seconds:.0f} s")
    table.metadata.drop_all(engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("quality")
    one.add_argument("data", type=Path)
    one.add_argument("--embeddings", default="hash")
    one.set_defaults(run=quality)
    two = commands.add_parser("memory")
    two.add_argument("--rows", type=int, default=1_000_000)
    two.add_argument("--url")
    two.add_argument("--dimensions", type=int, default=8)
    two.add_argument("--chroma", default="auto")
    two.add_argument("--exact-limit", type=int, default=10_000_000, help="rows before Chroma's graph, held in memory")
    two.set_defaults(run=memory)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
