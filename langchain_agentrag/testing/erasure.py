"""What is left on disk of texts that were deleted: every file is read, and the keyword indexes are asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.store import Store

_BLOCK = 1 << 22


def leftovers(store: Store, texts: Iterable[str]) -> list[str]:
    """Where something of these texts is still on disk; empty when they are gone.

    Files are searched for the texts as UTF-8 and as JSON escapes. That does not find words in a keyword index, whose
    dictionary is compressed: there, what counts is that no index holds a deleted row, and no file that is not in use.

    Args:
        store: The store, open or not in use by others.
        texts: Texts, words, agent ids; each is looked for as a whole.

    Returns:
        One sentence per finding, with the file's path within the store and without the text.
    """
    wanted = [text for text in texts if text]
    needles = {
        form: number
        for number, text in enumerate(wanted)
        for form in (text.encode("utf-8"), json.dumps(text)[1:-1].encode("ascii"))
    }
    findings = []
    for path in sorted(store.folder.rglob("*")):
        if path.is_file():
            hits = sorted(set(_search(path, needles)))
            name = path.relative_to(store.folder).as_posix()
            findings += [f"{name} holds text {number}" for number in hits]
    for partition in store.catalog.partitions():
        folder = store.indexes.keyword_folder(partition.name)
        if folder.exists():
            findings += [f"keyword/{partition.name} {problem}" for problem in _dead_terms(folder)]
    return findings


def _search(path: Path, needles: dict[bytes, int]) -> Iterator[int]:
    overlap = max(map(len, needles), default=1) - 1
    kept = b""
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                content = kept + block
                yield from (number for needle, number in needles.items() if needle in content)
                kept = content[len(content) - overlap :] if overlap else b""
    except FileNotFoundError:
        return  # merged or checkpointed away meanwhile


def _dead_terms(folder: Path) -> list[str]:
    try:
        segments = json.loads((folder / "meta.json").read_text("utf-8"))["segments"]
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(
            f"Cannot tell what {folder} holds: {error}. Run repair(), then ask again."
        ) from error
    problems = [
        f"holds terms of {segment['deletes']['num_deleted_docs']} deleted rows"
        for segment in segments
        if segment["deletes"]
    ]
    used = {segment["segment_id"].replace("-", "") for segment in segments}
    unused = [
        path.name for path in folder.iterdir() if path.suffix and path.name.partition(".")[0] not in used
    ]
    return problems + [
        f"holds a file of no segment, {name}"
        for name in sorted(unused)
        if not name.startswith(".") and name != "meta.json"
    ]
