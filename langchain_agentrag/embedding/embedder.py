"""What each family of embedding models wants in front of queries and of passages.

Models trained with instructions lose much without them, above all across languages. The family is told from
the model's name, so it works for hub names, local folders and tags such as "nomic-embed-text:latest" alike.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from langchain_agentrag.errors import AgentRagError, EmbeddingError, InvalidDocumentError, InvalidQueryError
from langchain_agentrag.metadata import short_repr


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
_CACHED = re.compile(r"models--(?:[^/\\]+--)?([^/\\]+)[/\\]snapshots[/\\]")


def prefixes_for(model: str) -> Prefixes:
    """Prefixes of a model's family; empty ones where none are wanted (bge-m3, gte, MiniLM) or known.

    Args:
        model: Hub name, folder or tag.
    """
    cached = _CACHED.search(model)  # a folder of the hub's cache ends in a commit, not in the model's name
    name = cached[1] if cached else re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    for pattern, prefixes in _FAMILIES:
        if pattern.search(name.lower()):
            return prefixes
    return Prefixes()


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


_PROBE = "dimension"


class Backend(Protocol):
    """One kind of embedding model. It may raise anything and return anything array-like; `Embedder` checks.

    Attributes:
        name: For people: "local:multilingual-e5-small".
        identity: All that changes vectors except the prefixes, the same in every process, without secrets.
        prefixes: What the model wants in front of queries and passages.
        batch_size: Most texts in one call.
    """

    name: str
    identity: str
    prefixes: Prefixes
    batch_size: int

    def documents(self, texts: list[str], prefix: str) -> object:
        """One vector per text, each text with the prefix in front."""

    def query(self, text: str, prefix: str) -> object:
        """Vector of a query with the prefix in front."""

    async def aquery(self, text: str, prefix: str) -> object:
        """The same without blocking the event loop."""

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """How many of the texts are longer than the model reads; 0 when that is unknown."""


class Embedder:
    """An embedding model with its prefixes, checked on both sides. Thread-safe when its backend is.

    Texts must be strings; those of white space only never reach the model and get zero vectors. NUL
    characters and lone surrogates, which break tokenizers and JSON, are replaced in what the model sees.
    Vectors are returned as the model gives them, not scaled to length 1.

    Attributes:
        name: For people and messages.
        fingerprint: Name, options and prefixes: two embedders with equal ones give the same vectors.
        prefixes: What is put in front of queries and passages.
    """

    def __init__(self, backend: Backend, prefixes: Prefixes | None = None) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._dimension: int | None = None
        self.name = backend.name
        self.prefixes = backend.prefixes if prefixes is None else prefixes
        self.fingerprint = (
            f"{backend.identity} query={self.prefixes.query!r} passage={self.prefixes.passage!r}"
        )

    def __repr__(self) -> str:
        return f"Embedder({self.fingerprint})"

    @property
    def backend(self) -> Backend:
        """The model behind it."""
        return self._backend

    @property
    def dimension(self) -> int:
        """Length of the vectors; asks the model once when nothing was embedded yet."""
        if self._dimension is None:
            self.embed_query(_PROBE)
        return self._dimension or 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One float32 row per text, all finite; (0, d) without a call of the model for no texts.

        Raises:
            InvalidDocumentError: an item is not a string; the model saw none of them.
            EmbeddingError: the model failed, or gave the wrong number, length or kind of vectors.
        """
        clean = [clean_text(text) for text in _checked(texts)]
        filled = [index for index, text in enumerate(clean) if text.strip()]
        size = max(1, self._backend.batch_size)
        blocks = [self._block(clean, filled[at : at + size]) for at in range(0, len(filled), size)]
        if len(filled) == len(clean) and blocks:
            return np.concatenate(blocks)
        rows = np.zeros((len(clean), self.dimension if clean else self._dimension or 0), dtype=np.float32)
        if blocks:
            rows[filled] = np.concatenate(blocks)
        return rows

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Vector of a query, float32, finite; the zero vector for white space.

        Raises:
            InvalidQueryError: the query is not a string.
            EmbeddingError: the model failed or gave no usable vector.
        """
        query = self._query(text)
        if query is None:
            return np.zeros(self.dimension, dtype=np.float32)
        with self._failures("a query"):
            raw = self._backend.query(query, self.prefixes.query)
        return self._vector(raw)

    async def aembed_query(self, text: str) -> NDArray[np.float32]:
        """`embed_query` without blocking: the model's own async method, else a worker thread."""
        query = self._query(text)
        zero = query is None
        if zero and self._dimension is not None:
            return np.zeros(self._dimension, dtype=np.float32)
        with self._failures("a query"):
            raw = await self._backend.aquery(_PROBE if query is None else query, self.prefixes.query)
        vector = self._vector(raw)
        return np.zeros_like(vector) if zero else vector

    def count_truncated(self, texts: Sequence[str]) -> int:
        """How many texts, with prefix, are longer than the model reads; 0 when that is unknown."""
        clean = [clean_text(text) for text in _checked(texts)]
        with self._failures("a count of tokens"):
            return self._backend.count_truncated(
                [text for text in clean if text.strip()], self.prefixes.passage
            )

    def _query(self, text: object) -> str | None:
        if not isinstance(text, str):
            msg = f"A query must be a string, got {type(text).__name__} {short_repr(text)}: pass the text."
            raise InvalidQueryError(msg)
        clean = clean_text(text)
        return clean if clean.strip() else None

    def _block(self, texts: list[str], indices: list[int]) -> NDArray[np.float32]:
        with self._failures(f"texts {indices[0]} to {indices[-1]}"):
            raw = self._backend.documents([texts[index] for index in indices], self.prefixes.passage)
        return self._matrix(raw, [f"text {index}" for index in indices])

    def _vector(self, raw: object) -> NDArray[np.float32]:
        with self._failures("a query"):
            row = raw if isinstance(raw, list | tuple | np.ndarray) else np.asarray(raw)
            single = np.ndim(row) > 1 and len(row) == 1  # some answer one row per query
        vector: NDArray[np.float32] = self._matrix(row if single else [row], ["the query"])[0]
        return vector

    def _matrix(self, raw: object, places: list[str]) -> NDArray[np.float32]:
        """What the model answered, as float32 rows; refused when it is not one finite vector per place."""
        with self._failures("its answer"):
            rows = list(raw)  # type: ignore[call-overload]
            if len(rows) != len(places):
                msg = f"Expected {len(places)} vectors from {self.name}, got {len(rows)}."
                raise EmbeddingError(msg)
            vectors = [_numbers(row, place, self.name) for row, place in zip(rows, places, strict=True)]
        with self._lock:
            expected = self._dimension or len(vectors[0])
            for vector, place in zip(vectors, places, strict=True):
                if len(vector) != expected or not len(vector):
                    msg = (
                        f"Expected vectors of length {expected or 'at least 1'} from {self.name}, got "
                        f"{len(vector)} for {place}: a model must keep one length."
                    )
                    raise EmbeddingError(msg)
            self._dimension = expected
        with np.errstate(over="ignore"):
            matrix = np.asarray(vectors, dtype=np.float32)
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if bad.size:
            msg = (
                f"Expected finite float32 numbers from {self.name}, got NaN, infinity or overflow for "
                f"{places[int(bad[0])]}: check the model on that text."
            )
            raise EmbeddingError(msg)
        return matrix

    @contextmanager
    def _failures(self, task: str) -> Iterator[None]:
        """Errors of the model as our own, with the cause kept."""
        try:
            yield
        except AgentRagError:
            raise
        except Exception as error:
            msg = (
                f"The embedding model {self.name} failed on {task}: "
                f"{short_error(error)}. Try the model alone on the same text; nothing was stored."
            )
            raise EmbeddingError(msg) from error


def clean_text(text: str) -> str:
    """The text as a model may see it: without NUL, where some stop reading, and without surrogates."""
    if "\x00" in text:
        text = text.replace("\x00", " ")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def short_error(error: Exception) -> str:
    """Kind and message of somebody else's error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _checked(texts: object) -> list[str]:
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        msg = f"Texts must be a list of strings, got {type(texts).__name__} {short_repr(texts)}: pass [text]."
        raise InvalidDocumentError(msg)
    items = list(texts)
    for index, text in enumerate(items):
        if not isinstance(text, str):
            msg = (
                f"The text at index {index} is a {type(text).__name__} ({short_repr(text)}), not a string: "
                "convert or drop it; nothing was embedded."
            )
            raise InvalidDocumentError(msg)
    return items


def _numbers(row: object, place: str, name: str) -> NDArray[np.float64]:
    try:
        vector = np.asarray(row)
    except ValueError:  # ragged
        vector = np.empty(0, dtype=object)
    # Text that spells numbers would be converted without a word; booleans and complex numbers too.
    if vector.dtype.kind not in "fiu" or vector.ndim != 1:
        msg = (
            f"Expected a list of numbers from {name}, got {type(row).__name__} {short_repr(row)} for {place}."
        )
        raise EmbeddingError(msg)
    return vector.astype(np.float64, copy=False)


if TYPE_CHECKING:
    from numpy.typing import NDArray


# Every sentence has a topic of its own, within and across the languages.
_QUERIES = {
    "zh": (
        "怎样给多肉植物浇水",
        "退税需要准备哪些材料",
        "这台洗衣机为什么一直漏水",
        "昆曲起源于什么年代",
        "数据库备份失败如何排查",
        "周末从北京去天津坐几点的火车",
    ),
    "en": (
        "how do I sharpen a kitchen knife",
        "which vaccine does a puppy need first",
        "why is my bicycle chain slipping",
        "who painted the ceiling of the chapel",
        "terms for cancelling a gym membership",
        "what causes the northern lights",
    ),
}
_PASSAGES = {
    "zh": (
        "该公司第三季度净利润同比下降了百分之七。",
        "把牛腩焯水后加入番茄，小火炖两个小时。",
        "候鸟每年秋天沿着海岸线向南迁徙。",
        "会议决定由小李负责下个月的客户回访。",
        "他在最后一分钟罚进点球，球队晋级决赛。",
        "这座石拱桥建于宋代，全长六十余米。",
    ),
    "en": (
        "The parser returns an error when a closing bracket is missing.",
        "Tenants must give two months' notice before moving out.",
        "Glaciers in the valley have retreated by nearly a mile.",
        "She practised the violin every evening until the concert.",
        "The warehouse ships orders placed before noon on the same day.",
        "Regular sleep lowers the risk of high blood pressure.",
    ),
}


class Background(NamedTuple):
    """Cosines of unrelated queries and passages under one model.

    Attributes:
        mean: Over pairs of one language, since they are what a search confuses.
        deviation: Standard deviation of the same.
        lowest: Mean over the pair of languages that are farthest apart, at least 0. A passage in the other language may
            be near and yet lie below `mean`.
    """

    mean: float = 0.0
    deviation: float = 0.0
    lowest: float = 0.0


def background_cosine(embedder: Embedder) -> Background:
    """The model's background. Costs twelve queries and two batches of six passages."""
    rows = [
        _unit(np.stack([embedder.embed_query(query) for query in queries])) for queries in _QUERIES.values()
    ]
    columns = [_unit(embedder.embed_documents(passages)) for passages in _PASSAGES.values()]
    every = np.concatenate([(row @ column.T).ravel() for row, column in zip(rows, columns, strict=True)])
    lowest = min(float((row @ column.T).mean()) for row in rows for column in columns)
    return Background(float(every.mean()), float(every.std()), max(0.0, lowest))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
