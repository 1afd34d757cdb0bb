"""Embedding models behind one interface: prefixes, batches, checks, truncation, fingerprint.

::

    embedder = resolve_embedder("BAAI/bge-small-zh-v1.5")     # or an embeddings object, "local", "hash"
    vectors = embedder.embed_documents(["第一段", "second"])   # float32, one row per text
    vector = embedder.embed_query("怎么退款")

Modules: `embedder` (`Embedder`, prefixes, background similarity), `backends` (one adapter per kind of model,
`HashingEmbeddings`).
"""

from langchain_agentrag.embedding.backends import EmbedderSpec, HashingEmbeddings, check_embedder_spec, resolve_embedder
from langchain_agentrag.embedding.embedder import (
    Backend,
    Background,
    Embedder,
    Prefixes,
    background_cosine,
    prefixes_for,
)

__all__ = [
    "Backend",
    "Background",
    "Embedder",
    "EmbedderSpec",
    "HashingEmbeddings",
    "Prefixes",
    "background_cosine",
    "check_embedder_spec",
    "prefixes_for",
    "resolve_embedder",
]
