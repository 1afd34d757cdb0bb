"""Search the files of a store for texts that were deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.store import Store

_BLOCK_BYTES = 1 << 22


def find_deleted_text(store: Store, texts: Iterable[str]) -> list[str]:
    """Return where any of the texts is still on disk; empty when all are gone.

    Files are searched for the texts as UTF-8 and as JSON escapes. That does not find words in a keyword index, whose
    dictionary is compressed; there the check is that no index holds deleted rows or unused files.

    Args:
        store: The store, open or not in use by others.
        texts: Texts, words, agent ids; each is searched as a whole.

    Returns:
        One sentence per finding, with the file's path within the store and without the text.
    """
    patterns = {
        form: number
        for number, text in enumerate(filter(None, texts))
        for form in (text.encode("utf-8"), json.dumps(text)[1:-1].encode("ascii"))
    }
    findings = []
    for path in sorted(store.folder.rglob("*")):
        if path.is_file():
            hits = sorted(set(_search_file(path, patterns)))
            name = path.relative_to(store.folder).as_posix()
            findings += [f"{name} holds text {number}" for number in hits]
    for partition in store.catalog.partitions():
        folder = store.indexes.keyword_folder(partition.name)
        if folder.exists():
            findings += [f"keyword/{partition.name} {problem}" for problem in _keyword_index_problems(folder)]
    return findings


def _search_file(path: Path, patterns: dict[bytes, int]) -> Iterator[int]:
    overlap = max(map(len, patterns), default=1) - 1
    tail = b""
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                content = tail + block
                yield from (number for pattern, number in patterns.items() if pattern in content)
                tail = content[len(content) - overlap :] if overlap else b""
    except FileNotFoundError:
        return  # removed by a merge or checkpoint meanwhile


def _keyword_index_problems(folder: Path) -> list[str]:
    try:
        segments = json.loads((folder / "meta.json").read_text("utf-8"))["segments"]
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"Cannot read the segments of {folder}: {error}. Run repair(), then check again.") from error
    problems = [
        f"holds terms of {segment['deletes']['num_deleted_docs']} deleted rows"
        for segment in segments
        if segment["deletes"]
    ]
    used = {segment["segment_id"].replace("-", "") for segment in segments}
    unused = [path.name for path in folder.iterdir() if path.suffix and path.name.partition(".")[0] not in used]
    return problems + [
        f"holds a file of no segment, {name}"
        for name in sorted(unused)
        if not name.startswith(".") and name != "meta.json"
    ]


def wait_until_purged(indexer: DualIndexer) -> None:
    """Wait until the background has erased everything that was deleted."""
    deadline = time.monotonic() + 30
    while indexer.stats().unpurged_since is not None:
        assert time.monotonic() < deadline, "not erased within 30 seconds"
        time.sleep(0.05)


def find_vectors(folder: Path, vectors: Iterable[Sequence[float]]) -> list[str]:
    """Return which files hold one of the vectors as float32, as it is or scaled to length 1.

    Three neighbouring numbers that agree to six digits count, at any byte of a file.
    """
    patterns = []
    for vector in vectors:
        raw = np.asarray(vector, dtype=np.float64)
        patterns += [raw[:3], (raw / np.linalg.norm(raw))[:3]]
    findings = []
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        for shift in range(4):
            end = shift + (len(content) - shift) // 4 * 4
            numbers = np.nan_to_num(np.frombuffer(content[shift:end], dtype="<f4"))
            if len(numbers) >= 3 and any(_holds(numbers, pattern) for pattern in patterns):
                findings.append(path.relative_to(folder).as_posix())
    return sorted(set(findings))


def _holds(numbers: np.ndarray, pattern: np.ndarray) -> bool:
    close = [np.abs(numbers[place : len(numbers) - 2 + place] - value) < 1e-6 for place, value in enumerate(pattern)]
    return bool((close[0] & close[1] & close[2]).any())
