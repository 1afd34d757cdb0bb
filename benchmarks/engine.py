"""Speed of the engine, embedding excluded: writing, reopening, hybrid search, filters, recall of the vector index.

    python benchmarks/engine.py [--shared 100000] [--private 5000] [--rounds 200] [--peer 100000] [--unindexed 80000]

Vectors are precomputed (384 dimensions, clustered like text embeddings); texts are mixed Chinese and English. With
`--peer N`, N of the texts are also written by langchain-chroma in the same run, for the ratio; with `--unindexed N`, N
of them are searched before their graph is built.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_agentrag import DualIndexer

SETTINGS = {
    "hybrid": {},
    "vector": {"mode": "vector"},
    "keyword": {"mode": "keyword"},
    "hybrid, filter keeps 1 %": {"filter": {"topic": 7}},
    "hybrid, filter keeps 50 %": {"filter": {"half": 1}},
}
DIMENSION, CLUSTERS, SPREAD = 384, 400, 0.9
ZH = (
    "数据库", "连接", "超时", "网关", "重启", "配置", "权限", "日志", "索引", "查询", "缓存", "集群", "节点",
    "备份", "恢复", "监控", "告警", "部署", "版本", "升级", "退款", "订单", "支付", "物流", "客服", "会员",
)  # fmt: skip
EN = (
    "server", "timeout", "index", "query", "cache", "cluster", "node", "backup", "restore", "monitor", "alert",
    "deploy", "release", "upgrade", "refund", "order",
)  # fmt: skip


class PreparedEmbeddings(Embeddings):
    """Prepared vectors of known texts; any other text gets a random direction of its own."""

    def __init__(self) -> None:
        self.known: dict[str, np.ndarray] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vector(text).tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._vector(text).tolist()

    def _vector(self, text: str) -> np.ndarray:
        if text in self.known:
            return self.known[text]
        return np.random.default_rng(abs(hash(text)) % 2**32).normal(size=DIMENSION)


def make_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    vocabulary = [f"{a}{b}" for a in ZH for b in ZH] + [f"{a}{n}" for a in EN for n in range(60)]
    weights = [1 / (rank + 10) for rank in range(len(vocabulary))]
    rng.shuffle(vocabulary)
    return [
        " ".join(rng.choices(vocabulary, weights, k=16)) + f"，编号 E{rng.randrange(10_000):04d}。 case {i}-{seed}"
        for i in range(count)
    ]


def make_vectors(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(CLUSTERS, DIMENSION))
    vectors = centres[rng.integers(CLUSTERS, size=count)] + SPREAD * rng.normal(size=(count, DIMENSION))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def timed(rounds: int, action) -> tuple[float, float]:
    """Return median and 95th percentile in milliseconds."""
    spent = []
    for number in range(rounds):
        started = time.perf_counter()
        action(number)
        spent.append(1000 * (time.perf_counter() - started))
    return statistics.median(spent), statistics.quantiles(spent, n=20)[-1]


def write_peer(texts: list[str], model: PreparedEmbeddings) -> float:
    from langchain_chroma import Chroma

    home = tempfile.mkdtemp()
    store = Chroma("peer", model, persist_directory=home, collection_metadata={"hnsw:space": "cosine"})
    started = time.perf_counter()
    for start in range(0, len(texts), 1000):
        part = texts[start : start + 1000]
        store.add_texts(part, [{"topic": i % 100} for i in range(len(part))])
    rate = len(texts) / (time.perf_counter() - started)
    shutil.rmtree(home, ignore_errors=True)
    return rate


def documents(texts: list[str], prefix: str) -> list[Document]:
    return [
        Document(id=f"{prefix}{i}", page_content=text, metadata={"topic": i % 100, "half": i % 2})
        for i, text in enumerate(texts)
    ]


def recall(
    indexer: DualIndexer, queries: list[str], model: PreparedEmbeddings, texts: list[str], vectors: np.ndarray
) -> float:
    recalls = []
    for query in queries:
        exact = np.argsort(-(vectors @ model.known[query]))[:10]
        approximate = {hit.text for hit in indexer.vector_search(query, k=10)}
        recalls.append(sum(texts[i] in approximate for i in exact) / 10)
    return statistics.mean(recalls)


def import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def write_ours(
    home: Path, texts: list[str], model: PreparedEmbeddings, agent: str | None = None
) -> tuple[float, float]:
    """Return chunks per second until all are written and found, and until the graph holds them all."""
    with DualIndexer(home, model) as indexer:
        started = time.perf_counter()
        indexer.index_documents(documents(texts, agent or "shared"), agent)
        written = time.perf_counter() - started
        indexer.optimize()
        return len(texts) / written, len(texts) / (time.perf_counter() - started)


def compare_writing(texts: list[str], model: PreparedEmbeddings) -> None:
    """Write the same texts and vectors into a store of ours and into langchain-chroma."""
    home = Path(tempfile.mkdtemp())
    (ours, complete), peer = write_ours(home / "store", texts, model), write_peer(texts, model)
    shutil.rmtree(home, ignore_errors=True)
    print(f"| writing the same {len(texts):,}: ours, until all is found | {ours:,.0f} chunks/s |")
    print(f"| writing the same {len(texts):,}: ours, until the graph is complete | {complete:,.0f} chunks/s |")
    print(f"| writing the same {len(texts):,}: langchain-chroma add_texts | {peer:,.0f} chunks/s |")
    print(f"| ratio | {ours / peer:.2f}, with the graph {complete / peer:.2f} |")


def search_unindexed(texts: list[str], model: PreparedEmbeddings, queries: list[str]) -> None:
    """Search a store whose graph is not built yet: unindexed vectors are scanned exactly."""
    home = Path(tempfile.mkdtemp())
    with DualIndexer(home / "store", model) as indexer:
        indexer.index_documents(documents(texts, "shared"))
    with DualIndexer(home / "store", model) as indexer:
        started = time.perf_counter()
        indexer.search(queries[0], k=10)
        first = time.perf_counter() - started
        unindexed = indexer.stats().unindexed
        median, high = timed(min(50, len(queries)), lambda number: indexer.search(queries[number], k=10))
    shutil.rmtree(home, ignore_errors=True)
    times = f"p50 {median:.1f} ms, p95 {high:.1f} ms, first {first:.2f} s"
    print(f"| hybrid while {unindexed:,} wait for the graph | {times} |")


def bare_times(indexer: DualIndexer, queries: list[str], model: PreparedEmbeddings) -> None:
    """Time the calls of Chroma and tantivy for the same candidates, without scoring: the time of a bare prototype."""
    store, analyzer = indexer._store, indexer._analyzer  # noqa: SLF001
    shared, own = store.catalog.partition(None), store.catalog.partition("planner")
    vectors, terms = store.indexes.vector_index(shared), [analyzer.analyze_query(query) for query in queries]

    def ask(number: int) -> None:
        vectors.nearest(model.known[queries[number]], 30)
        for partition in (shared, own):
            store.indexes.keyword_index(partition).candidates(terms[number], 120)

    median, high = timed(len(queries), ask)
    print(f"| bare Chroma and tantivy, their calls alone | p50 {median:.1f} ms, p95 {high:.1f} ms |")


def search_times(indexer: DualIndexer, queries: list[str]) -> None:
    for name, options in SETTINGS.items():
        counts = set()

        def ask(number: int, options=options, counts=counts) -> None:
            counts.add(len(indexer.search(queries[number], k=10, agent_id="planner", **options)))

        started = time.perf_counter()
        ask(0)
        first = 1000 * (time.perf_counter() - started)
        median, high = timed(len(queries), ask)
        spread = f"p50 {median:.1f} ms, p95 {high:.1f} ms, first {first:.0f} ms"
        print(f"| {name}, k=10 | {spread}, hits {sorted(counts)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=int, default=100_000)
    parser.add_argument("--private", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--peer", type=int, default=0, metavar="N", help="compare writing N texts")
    parser.add_argument("--unindexed", type=int, default=0, metavar="N", help="search while N wait for the graph")
    parser.add_argument("--store", help="keep the store here, and reuse it when it is there")
    options = parser.parse_args()

    shared, private = make_texts(options.shared, 1), make_texts(options.private, 2)
    shared_vectors = make_vectors(options.shared, 1)
    rng = random.Random(4)
    queries = [" ".join(rng.choice(shared).split()[:7]) + f" #{i}" for i in range(options.rounds)]
    model = PreparedEmbeddings()
    model.known |= dict(zip(shared, shared_vectors, strict=True))
    model.known |= dict(zip(private, make_vectors(options.private, 2), strict=True))
    model.known |= dict(zip(queries, make_vectors(options.rounds, 3), strict=True))
    home = Path(options.store or tempfile.mkdtemp()) / "store"

    print("| what | figure |\n|---|---|")
    if options.peer:
        compare_writing(shared[: options.peer], model)
    if options.unindexed:
        search_unindexed(shared[: options.unindexed], model, queries)
    if not home.exists():
        rate, complete = write_ours(home, shared, model)
        print(f"| writing {options.shared:,} shared, until all is found | {rate:,.0f} chunks/s |")
        print(f"| writing {options.shared:,} shared, until the graph is complete | {complete:,.0f} chunks/s |")
        rate, _ = write_ours(home, private, model, "planner")
        print(f"| writing {options.private:,} of one agent | {rate:,.0f} chunks/s |")
    started = time.perf_counter()
    with DualIndexer(home, model) as indexer:
        indexer.search(queries[0], k=10, agent_id="planner")
        print(f"| reopening and first query | {time.perf_counter() - started:.2f} s |")
        search_times(indexer, queries)
        bare_times(indexer, queries, model)
        share = recall(indexer, queries[:100], model, shared, shared_vectors)
        print(f"| recall@10 of the vector index | {share:.3f} |")
    bare, ours = import_seconds("langchain_core"), import_seconds("langchain_core, langchain_agentrag")
    print(f"| import beyond langchain_core | {ours - bare:.3f} s |")
    if not options.store:
        shutil.rmtree(home.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
