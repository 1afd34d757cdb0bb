"""A small store for the rows of the databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer, HashingEmbeddings


@pytest.fixture
def indexer(tmp_path: Path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(8)) as opened:
        yield opened
