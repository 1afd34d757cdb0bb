"""Fakes of what surrounds the engine: embedding models that record, fail or lie, and a source held in memory."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from langchain_core.embeddings import Embeddings

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.embedding import HashingEmbeddings
from langchain_agentrag.types import SourceDocument


def stable_id(value: object) -> str:
    """Test id that is the same in every process: a repr without memory addresses and with sets in order."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class FixedClock:
    """A clock that stands still until `now` is set or `pass_minutes` is called."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def pass_minutes(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)


class RecordingEmbeddings(Embeddings):
    """`HashingEmbeddings` that notes every text and query it sees; `model` names the family that is played."""

    def __init__(self, model: str = "recording", dim: int = 64) -> None:
        self.model, self.dim = model, dim
        self.texts: list[str] = []
        self.queries: list[str] = []
        self.threads: set[int] = set()
        self._inner = HashingEmbeddings(dim)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        self.threads.add(threading.get_ident())
        return self._inner.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return self._inner.embed_query(text)


class FailingEmbeddings(RecordingEmbeddings):
    """Works by default; fails on texts that hold a marker, after a number of texts, or on every query."""

    def __init__(
        self, *, on: str | None = None, after: int | None = None, queries: bool = False, dim: int = 64
    ) -> None:
        super().__init__("failing", dim)
        self.on, self.after, self.queries_fail = on, after, queries

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.on is not None and any(self.on in text for text in texts):
            raise RuntimeError("the model refuses this text")
        if self.after is not None and len(self.texts) + len(texts) > self.after:
            raise ConnectionError("the model is gone")
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        if self.queries_fail:
            raise ConnectionError("the model is gone")
        return super().embed_query(text)


class SlowEmbeddings(RecordingEmbeddings):
    """Sleeps before it answers a query, for as long as `seconds` says at that moment."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__("slow")
        self.seconds = seconds

    def embed_query(self, text: str) -> list[float]:
        time.sleep(self.seconds)
        return super().embed_query(text)


class LyingEmbeddings(Embeddings):
    """Answers what a function makes of the right vectors: too few, too short, not numbers."""

    def __init__(self, change: Callable[[list[list[float]]], object], dim: int = 64) -> None:
        self.model = "lying"
        self._inner, self._change = HashingEmbeddings(dim), change

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._change(self._inner.embed_documents(texts))  # type: ignore[return-value]

    def embed_query(self, text: str) -> list[float]:
        return self._inner.embed_query(text)


class GivenVectors(Embeddings):
    """Vectors given by hand; other texts get the default vector, or are refused when there is none."""

    def __init__(self, vectors: Mapping[str, Sequence[float]], default: Sequence[float] | None = None) -> None:
        self.model = "given"
        self._vectors, self._default = vectors, default

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = self._vectors.get(text, self._default)
        if vector is None:
            raise KeyError(f"no vector was given for {text!r}")
        return list(map(float, vector))


class MemoryConnector(BaseConnector):
    """A source held in a dict: key → (version, texts); every text is a document `name:key:number`.

    Attributes:
        contents: What the source holds. A value may be an exception, raised when the item is read.
        gaps: Gaps listed after the items.
        breaks: Raised in the middle of listing when set.
        loaded: Keys that were read, in order.
    """

    def __init__(
        self,
        contents: Mapping[str, tuple[str | None, Iterable[str | SourceDocument] | Exception]],
        *,
        name: str = "memory",
        agent_id: str | None = None,
    ) -> None:
        self.contents = dict(contents)
        self.name, self.agent_id = name, agent_id
        self.gaps: list[Gap] = []
        self.breaks: Exception | None = None
        self.loaded: list[str] = []

    @property
    def connector_id(self) -> str:
        return f"memory:{self.name}"

    def items(self) -> Iterator[SourceItem | Gap]:
        for number, (key, (version, _)) in enumerate(self.contents.items()):
            if self.breaks is not None and number == len(self.contents) // 2:
                raise self.breaks
            yield SourceItem(key, version, lambda key=key: self._load(key))  # type: ignore[misc]
        yield from self.gaps

    def _load(self, key: str) -> Iterator[SourceDocument]:
        self.loaded.append(key)
        _, texts = self.contents[key]
        if isinstance(texts, Exception):
            raise texts
        for number, text in enumerate(texts):
            if isinstance(text, SourceDocument):
                yield text
            else:
                yield SourceDocument(f"{self.name}:{key}:{number}", text, {"key": key})
