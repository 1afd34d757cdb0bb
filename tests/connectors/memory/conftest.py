"""What the tests of agent memory share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_agentrag import AgentMemoryConnector, DualIndexer, HashingEmbeddings
from langchain_agentrag.connector import Gap


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64)) as opened:
        yield opened


def read(source: Any, **options: Any) -> list[Any]:
    """Documents of a source, for the agent "planner" by default; fails when something cannot be read."""
    if "agent_id" not in options and "shared" not in options:
        options["agent_id"] = "planner"
    connector = AgentMemoryConnector(source, **options)
    items = [item for item in connector.items() if not (isinstance(item, Gap) and item.skipped)]
    return [document for item in items for document in item.load()]


def texts_by_role(documents: list[Any]) -> list[tuple[Any, ...]]:
    """Role or tool, and text."""
    return [(document.metadata.get("tool") or document.metadata["role"], document.text) for document in documents]
