"""Hits with the chunks before and after them, as one passage as written in the document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_agentrag.scope import Scope
from langchain_agentrag.search.explain import LateExplanation, Spans, note
from langchain_agentrag.store.queries import chunk_spans, document_text, find_document
from langchain_agentrag.store.store import Store
from langchain_agentrag.types import Hit

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

_Spans = Sequence[tuple[int, int, str]]


class _Block:
    """A hit and the chunks it has grown to."""

    def __init__(self, hit: Hit, text: str, spans: _Spans, first: int, last: int) -> None:
        self.hit, self.text, self.spans, self.first, self.last = hit, text, spans, first, last
        self.taken: list[int] = []


def with_neighbours(
    store: Store, scope: Scope, hits: Sequence[Hit], k: int, reach: int, find: Callable[[str], Spans]
) -> list[Hit]:
    """The first k passages of the hits with `reach` chunks on each side, best first.

    Passages that share a chunk become one, in the place of the better one, so that no chunk comes twice; the text
    is exactly `document.text[start:end]`. A hit whose document was changed meanwhile stays as it is.

    Args:
        store: The store.
        scope: What the caller may see.
        hits: Candidates, best first; those behind the k-th passage fill up what merging leaves open.
        k: Passages wanted.
        reach: Chunks to add on each side, >= 1.
        find: Spans of the matched words in a text.
    """
    blocks: list[_Block | Hit] = []
    documents: dict[tuple[str | None, str], tuple[str, _Spans] | None] = {}
    with store.catalog.snapshot() as connection:
        for hit in hits:
            if len(blocks) >= k:
                break
            address = hit.agent_id, hit.doc_id
            if address not in documents:
                documents[address] = _read(connection, scope, hit, store.now())
            known = documents[address]
            if known is None or not _unchanged(hit, *known):
                blocks.append(hit)
                continue
            text, spans = known
            first, last = max(0, hit.chunk_id - reach), min(len(spans) - 1, hit.chunk_id + reach)
            same = next((block for block in blocks if _is_part(block, hit, first, last)), None)
            if isinstance(same, _Block):
                same.first, same.last = min(first, same.first), max(last, same.last)
                same.taken.append(hit.chunk_id)
            else:
                blocks.append(_Block(hit, text, spans, first, last))
    return [block if isinstance(block, Hit) else _grown(block, find) for block in _joined(blocks)]


def _is_part(block: _Block | Hit, hit: Hit, first: int, last: int) -> bool:
    if isinstance(block, Hit) or (block.hit.agent_id, block.hit.doc_id) != (hit.agent_id, hit.doc_id):
        return False
    return first <= block.last and last >= block.first


def _joined(blocks: Sequence[_Block | Hit]) -> list[_Block | Hit]:
    """The blocks without two that share a chunk, which one that grew later may have caused."""
    kept: list[_Block | Hit] = []
    for block in blocks:
        same = next(
            (
                one
                for one in kept
                if isinstance(block, _Block) and _is_part(one, block.hit, block.first, block.last)
            ),
            None,
        )
        if isinstance(same, _Block) and isinstance(block, _Block):
            same.first, same.last = min(same.first, block.first), max(same.last, block.last)
            same.taken += [block.hit.chunk_id, *block.taken]
        else:
            kept.append(block)
    return kept if len(kept) == len(blocks) else _joined(kept)


def _grown(block: _Block, find: Callable[[str], Spans]) -> Hit:
    hit = block.hit
    if (block.first, block.last) == (hit.chunk_id, hit.chunk_id):
        return hit
    start, end = block.spans[block.first][0], block.spans[block.last][1]
    text = block.text[start:end]
    why = hit.explanation
    if isinstance(why, LateExplanation):
        why = why.over(text, find)
    told = f"chunks {block.first} to {block.last} read with it"
    if block.taken:
        told += f", hits {', '.join(map(str, sorted(block.taken)))} among them"
    note(why, told)
    return replace(
        hit,
        text=text,
        start=start,
        end=end,
        explanation=why,
        covers=(block.first, block.last),
        whole=hit.whole or text == block.text,
    )


def _read(connection: sqlite3.Connection, scope: Scope, hit: Hit, now: datetime) -> tuple[str, _Spans] | None:
    known = find_document(connection, hit.agent_id, hit.doc_id, now) if scope.admits(hit.agent_id) else None
    if known is None:
        return None
    return document_text(connection, known.key)[0], chunk_spans(connection, known.key)


def _unchanged(hit: Hit, text: str, spans: _Spans) -> bool:
    return (
        hit.chunk_id < len(spans)
        and spans[hit.chunk_id][:2] == (hit.start, hit.end)
        and text[hit.start : hit.end] == hit.text
    )
