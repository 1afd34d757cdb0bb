"""Embedder: an embedding model with its query and passage prefixes, whose input and output are checked.

`prefixes_for` knows what families of models want in front of texts; `background_cosine` measures how similar
unrelated texts are under a model.
"""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from langchain_agentrag.errors import AgentRagError, EmbeddingError, InvalidDocumentError, InvalidQueryError
from langchain_agentrag.metadata import is_storable, short_repr

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Prefixes ----


class Prefixes(NamedTuple):
    """Text put in front of queries and of passages."""

    query: str = ""
    passage: str = ""


_RETRIEVE = "Given a web search query, retrieve relevant passages that answer the query"
_REPRESENT = "Represent this sentence for searching relevant passages: "

# First match wins, on the lower-case last part of the name. Sources: the models' own cards.
_FAMILIES: tuple[tuple[re.Pattern[str], Prefixes], ...] = tuple(
    (re.compile(pattern), prefixes)
    for pattern, prefixes in (
        (r"multilingual-e5-\w+-instruct|e5-mistral", Prefixes(f"Instruct: {_RETRIEVE}\nQuery: ")),
        (r"^(multilingual-)?e5-(small|base|large)", Prefixes("query: ", "passage: ")),
        (r"^bge-(small|base|large)-zh(?!-noinstruct)", Prefixes("为这个句子生成表示以用于检索相关文章：")),
        (r"^bge-(small|base|large)-en(?!-noinstruct)", Prefixes(_REPRESENT)),
        (r"^gte-qwen\d*(\.\d+)?-.*instruct", Prefixes(f"Instruct: {_RETRIEVE}\nQuery: ")),
        (r"^qwen3-embedding", Prefixes(f"Instruct: {_RETRIEVE}\nQuery:")),
        (r"^nomic-embed-text", Prefixes("search_query: ", "search_document: ")),
        (r"^mxbai-embed-(large|2d|xsmall)|^uae-large", Prefixes(_REPRESENT)),
        (r"^snowflake-arctic-embed2|^snowflake-arctic-embed-.*v2", Prefixes("query: ")),
        (r"^snowflake-arctic-embed", Prefixes(_REPRESENT)),
        (r"^embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
    )
)
_CACHE_FOLDER = re.compile(r"models--(?:[^/\\]+--)?([^/\\]+)[/\\]snapshots[/\\]")


def prefixes_for(model: str) -> Prefixes:
    """Return the prefixes of a model's family; empty ones where none are wanted (bge-m3, gte, MiniLM) or known.

    Models trained with instructions lose much quality without them, most of all across languages. The family is
    recognized by name, so hub names, local folders and tags such as "nomic-embed-text:latest" all work.

    Args:
        model: Hub name, folder or tag.
    """
    cached = _CACHE_FOLDER.search(model)  # a folder of the hub's cache ends in a commit, not in a name
    name = cached[1] if cached else re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    return next((prefixes for pattern, prefixes in _FAMILIES if pattern.search(name.lower())), Prefixes())


# ---- Embedder ----

_PROBE = "dimension"


class Backend(Protocol):
    """One kind of embedding model. It may raise anything and return anything array-like; `Embedder` checks.

    Attributes:
        name: For people: "local:multilingual-e5-small".
        identity: Everything that changes vectors except the prefixes; equal in every process, without secrets.
        prefixes: What the model wants in front of queries and passages.
        batch_size: Most texts in one call.
    """

    name: str
    identity: str
    prefixes: Prefixes
    batch_size: int

    def documents(self, texts: list[str], prefix: str) -> object:
        """Return one vector per text, each text with the prefix in front."""

    def query(self, text: str, prefix: str) -> object:
        """Return the vector of a query with the prefix in front."""

    async def aquery(self, text: str, prefix: str) -> object:
        """Return the vector of a query without blocking the event loop."""

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Return how many texts are longer than the model reads; 0 when that is unknown."""


class Embedder:
    """An embedding model with its prefixes; input and output are checked. Thread-safe when its backend is.

    Texts must be strings; those of white space only are not sent to the model and get zero vectors. NUL characters
    and lone surrogates, which break tokenizers and JSON, are replaced in what the model reads. Vectors are returned
    as the model gives them, not scaled to length 1.

    Attributes:
        backend: The model.
        name: For people and messages.
        fingerprint: Name, options and prefixes: two embedders with equal ones give the same vectors.
        prefixes: What is put in front of queries and passages.
    """

    def __init__(self, backend: Backend, prefixes: Prefixes | None = None) -> None:
        self.backend = backend
        self._lock = threading.Lock()
        self._dimension: int | None = None
        self.name = backend.name
        self.prefixes = backend.prefixes if prefixes is None else prefixes
        self.fingerprint = f"{backend.identity} query={self.prefixes.query!r} passage={self.prefixes.passage!r}"

    def __repr__(self) -> str:
        return f"Embedder({self.fingerprint})"

    @property
    def dimension(self) -> int:
        """Length of the vectors; embeds one query when nothing was embedded yet."""
        if self._dimension is None:
            self.embed_query(_PROBE)
        return self._dimension or 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one float32 row per text, all finite; for no texts (0, d) without a call of the model.

        Raises:
            InvalidDocumentError: an item is not a string; no text was embedded.
            EmbeddingError: the model failed, or returned the wrong number, length or kind of vectors.
        """
        clean = _clean_texts(texts)
        nonblank = [index for index, text in enumerate(clean) if text.strip()]
        size = max(1, self.backend.batch_size)
        batches = [self._embed_batch(clean, nonblank[at : at + size]) for at in range(0, len(nonblank), size)]
        if len(nonblank) == len(clean) and batches:
            return np.concatenate(batches)
        rows = np.zeros((len(clean), self.dimension if clean else self._dimension or 0), dtype=np.float32)
        if batches:
            rows[nonblank] = np.concatenate(batches)
        return rows

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a query, float32, finite; the zero vector for white space.

        Raises:
            InvalidQueryError: the query is not a string.
            EmbeddingError: the model failed or returned no usable vector.
        """
        query = _clean_query(text)
        if query is None:
            return np.zeros(self.dimension, dtype=np.float32)
        with self._embedding_errors("a query"):
            result = self.backend.query(query, self.prefixes.query)
        return self._check_query_vector(result)

    async def aembed_query(self, text: str) -> NDArray[np.float32]:
        """Do the same as `embed_query` without blocking: the model's async method, else a worker thread."""
        query = _clean_query(text)
        if query is None and self._dimension is not None:
            return np.zeros(self._dimension, dtype=np.float32)
        with self._embedding_errors("a query"):
            result = await self.backend.aquery(_PROBE if query is None else query, self.prefixes.query)
        vector = self._check_query_vector(result)
        return np.zeros_like(vector) if query is None else vector

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Return how many texts, with prefix, are longer than the model reads; 0 when that is unknown."""
        nonblank = [text for text in _clean_texts(texts) if text.strip()]
        with self._embedding_errors("a count of tokens"):
            return self.backend.count_truncated(nonblank, self.prefixes.passage)

    def _embed_batch(self, texts: list[str], indices: list[int]) -> NDArray[np.float32]:
        with self._embedding_errors(f"texts {indices[0]} to {indices[-1]}"):
            result = self.backend.documents([texts[index] for index in indices], self.prefixes.passage)
        return self._check_vectors(result, [f"text {index}" for index in indices])

    def _check_query_vector(self, result: object) -> NDArray[np.float32]:
        with self._embedding_errors("a query"):
            row = result if isinstance(result, list | tuple | np.ndarray) else np.asarray(result)
            nested = np.ndim(row) > 1 and len(row) == 1  # some models return one row per query
        vector: NDArray[np.float32] = self._check_vectors(row if nested else [row], ["the query"])[0]
        return vector

    def _check_vectors(self, result: object, labels: list[str]) -> NDArray[np.float32]:
        """Return the model's result as float32 rows; refuse anything but one finite vector per label."""
        with self._embedding_errors("its result"):
            rows = list(result)  # type: ignore[call-overload]
            if len(rows) != len(labels):
                raise EmbeddingError(f"Expected {len(labels)} vectors from {self.name}, got {len(rows)}.")
            vectors = [_to_vector(row, label, self.name) for row, label in zip(rows, labels, strict=True)]
        with self._lock:
            expected = self._dimension or len(vectors[0])
            for vector, label in zip(vectors, labels, strict=True):
                if len(vector) != expected or not len(vector):
                    raise EmbeddingError(
                        f"Expected vectors of length {expected or 'at least 1'} from {self.name}, got "
                        f"{len(vector)} for {label}: all vectors of a model must have the same length."
                    )
            self._dimension = expected
        with np.errstate(over="ignore"):
            matrix = np.asarray(vectors, dtype=np.float32)
        invalid = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if invalid.size:
            raise EmbeddingError(
                f"Expected finite float32 numbers from {self.name}, got NaN, infinity or overflow for "
                f"{labels[int(invalid[0])]}: check the model on that text."
            )
        return matrix

    @contextmanager
    def _embedding_errors(self, task: str) -> Iterator[None]:
        """Raise errors of the model as `EmbeddingError`, with the cause."""
        try:
            yield
        except AgentRagError:
            raise
        except Exception as error:
            raise EmbeddingError(
                f"The embedding model {self.name} failed on {task}: {short_error(error)}. "
                "Try the model alone on the same text; nothing was stored."
            ) from error


def short_error(error: Exception) -> str:
    """Return the type and message of a third-party error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _clean_text(text: str) -> str:
    """Replace NUL, where some models stop reading, and lone surrogates."""
    if "\x00" in text:
        text = text.replace("\x00", " ")
    if is_storable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _clean_query(text: object) -> str | None:
    """Return a query as the model reads it, or None for white space."""
    if not isinstance(text, str):
        raise InvalidQueryError(
            f"A query must be a string, got {type(text).__name__} {short_repr(text)}: pass the text."
        )
    clean = _clean_text(text)
    return clean if clean.strip() else None


def _clean_texts(texts: object) -> list[str]:
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        raise InvalidDocumentError(
            f"Texts must be a list of strings, got {type(texts).__name__} {short_repr(texts)}: pass [text]."
        )
    items = list(texts)
    for index, text in enumerate(items):
        if not isinstance(text, str):
            raise InvalidDocumentError(
                f"The text at index {index} is a {type(text).__name__} ({short_repr(text)}), not a string: "
                "convert or drop it; nothing was embedded."
            )
    return [_clean_text(text) for text in items]


def _to_vector(row: object, label: str, model: str) -> NDArray[np.float64]:
    try:
        vector = np.asarray(row)
    except ValueError:  # ragged
        vector = np.empty(0, dtype=object)
    # Strings of digits, booleans and complex numbers would be converted silently.
    if vector.dtype.kind not in "fiu" or vector.ndim != 1:
        raise EmbeddingError(
            f"Expected a list of numbers from {model}, got {type(row).__name__} {short_repr(row)} for {label}."
        )
    return vector.astype(np.float64, copy=False)


# ---- Background similarity ----


class Background(NamedTuple):
    """Cosines of unrelated queries and passages under one model.

    Attributes:
        mean: Over pairs in the same language, since those are what a search confuses.
        deviation: Standard deviation of the same.
        lowest: Mean over the two languages that are farthest apart, at least 0. A passage in the other language may
            be relevant and yet score below `mean`.
    """

    mean: float = 0.0
    deviation: float = 0.0
    lowest: float = 0.0


def background_cosine(embedder: Embedder) -> Background:
    """Return the background similarity of a model. Embeds twelve queries and two batches of six passages."""
    file = files("langchain_agentrag.embedding") / "background_texts.toml"
    texts = tomllib.loads(file.read_text(encoding="utf-8"))
    query_groups = [
        _unit(np.stack([embedder.embed_query(query) for query in queries])) for queries in texts["queries"].values()
    ]
    passage_groups = [_unit(embedder.embed_documents(passages)) for passages in texts["passages"].values()]
    same_language = np.concatenate(
        [(rows @ columns.T).ravel() for rows, columns in zip(query_groups, passage_groups, strict=True)]
    )
    lowest = min(float((rows @ columns.T).mean()) for rows in query_groups for columns in passage_groups)
    return Background(float(same_language.mean()), float(same_language.std()), max(0.0, lowest))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Scale rows to length 1."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
