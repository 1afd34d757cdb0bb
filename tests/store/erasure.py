"""Search the files of a store for texts that were deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

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
