"""LlamaIndex without a network, without an LLM, and without its bridge to LangChain."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("llama_index.core", reason='needs LlamaIndex: pip install "langchain-agentrag[llama-index]"')

from llama_index.core.settings import Settings
from llama_index.core.storage.chat_store import sql

from langchain_agentrag import DualIndexer


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bridge to import, no default model to fall back to: whoever needs one of them fails here."""
    monkeypatch.setitem(sys.modules, "llama_index.core.bridge.langchain", None)
    monkeypatch.delenv("IS_TESTING", raising=False)
    for name in ("_llm", "_embed_model"):
        monkeypatch.setattr(Settings, name, None)


@pytest.fixture(autouse=True)
def closed_chat_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """LlamaIndex's `Memory` has no way to close its database, which then complains when it is collected."""
    engines = []
    create = sql.create_async_engine

    def recorded(*args, **options):
        engines.append(create(*args, **options))
        return engines[-1]

    monkeypatch.setattr(sql, "create_async_engine", recorded)
    yield
    for engine in engines:
        asyncio.run(engine.dispose())


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        yield indexer
