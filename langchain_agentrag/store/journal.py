"""Entries of the journal: work that was begun and is not finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One piece of unfinished work.

    Attributes:
        id: Key in the journal.
        partition: Partition it concerns.
        state: "writing": `rows` may be in the legs and are not live. "cleaning": `payload` lists dead rows that may
            still be in the legs. "handing": `rows` may be in the collection and are not counted to it. "dropping":
            `payload` names a keyword folder and a collection that belong to no partition. "purging": terms of deleted
            rows may still be in the partition's keyword index. "unreadable".
        rows: Rows reserved for a write, or handed over.
        payload: See `state`; None when it cannot be read.
    """

    id: int
    partition: int
    state: str
    rows: range
    payload: Any


def journal_entry(*values: Any) -> JournalEntry:  # noqa: ANN401
    """An entry from its row in the catalog, whatever has become of it."""
    key, partition, state, first, last, packed = values
    try:
        return JournalEntry(key, partition, state, range(first, last + 1), json.loads(packed))
    except (TypeError, ValueError):
        return JournalEntry(key, partition, "unreadable", range(0), None)
