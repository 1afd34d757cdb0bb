"""What a command says to a machine: one JSON document per command, in UTF-8, dates in ISO form."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping, Set
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_agentrag.types import Hit, Hits


def to_json(value: object) -> str:
    """One JSON document; characters are not escaped, NaN and infinities become null."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False)


def plain(value: object) -> Any:  # noqa: ANN401  (whatever json.dumps takes)
    """The value in JSON's own types: records become objects, sets and tuples lists, bytes base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: object) -> object:
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def hits_document(hits: Hits, *, agent_id: str | None) -> dict[str, object]:
    """The answer of a search."""
    return {
        "query": hits.query,
        **({} if hits.searched == hits.query else {"searched": hits.searched}),
        "mode": hits.mode,
        "agent_id": agent_id,
        "degraded": list(hits.degraded),
        "confidence": hits.confidence,
        "convincing": hits.convincing,
        **({} if hits.trail is None else {"trail": plain(hits.trail)}),
        "hits": [hit_document(rank, hit) for rank, hit in enumerate(hits, start=1)],
    }


def hit_document(rank: int, hit: Hit) -> dict[str, object]:
    """One hit with its rank, from 1."""
    return {"rank": rank, **plain(hit)}
