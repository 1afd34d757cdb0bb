"""LlamaIndex ingestion: embedding model of a store, connectors as readers, sentence splitter for Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pydantic import PrivateAttr

from langchain_agentrag.connector import BaseConnector, check_connector
from langchain_agentrag.errors import UsageError
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.llama_index.nodes import HIDDEN_METADATA_KEYS
from langchain_agentrag.search.options import check_option_names
from langchain_agentrag.text.sentences import line_ends, sentence_ends


class StoreEmbedding(BaseEmbedding):
    """Embedding model of a store for LlamaIndex, so that embeddings of both can be compared.

    Args:
        indexer: The store.
    """

    _indexer: DualIndexer = PrivateAttr()

    def __init__(self, indexer: DualIndexer, **fields: Any) -> None:
        check_indexer(indexer, "StoreEmbedding")
        check_option_names(fields, type(self).model_fields, "StoreEmbedding()")
        super().__init__(**{"model_name": indexer.model_name or "agentrag", "embed_batch_size": 256, **fields})
        self._indexer = indexer

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "A StoreEmbedding holds an open store and cannot be pickled: pass the store's path and open it there."
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name in LlamaIndex's serialised form."""
        return "AgentRAGStoreEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = self._indexer.embedder.embed_query(query).tolist()
        return row

    async def _aget_query_embedding(self, query: str) -> list[float]:
        row: list[float] = (await self._indexer.embedder.aembed_query(query)).tolist()
        return row

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._indexer.embedder.embed_documents(texts).tolist()
        return rows


_INDEXED_KEYS = frozenset({"title", "file_name"})  # other metadata of connectors would be noise in an index


class ConnectorReader(BaseReader):
    """LlamaIndex reader over a connector: files, SQL rows, dialogues, tool calls.

    Document ids are those of the engine, equal in every run. Title and file name are indexed with a document, other
    metadata is not; a model is not shown what concerns the file rather than its content. The metadata of a private
    document names its agent, so a store that is not bound to that agent rejects it. To synchronise a store with a
    source use `DualIndexer.sync`.

    Args:
        connector: The source.
    """

    def __init__(self, connector: BaseConnector) -> None:
        self._connector = check_connector(connector)

    def __repr__(self) -> str:
        return f"ConnectorReader({self._connector.connector_id!r})"

    def lazy_load_data(self, *args: Any, **load_kwargs: Any) -> Iterator[Document]:
        """Yield documents one by one; unreadable ones are logged and skipped.

        Raises:
            UsageError: an argument was passed; the source is that of the connector.
        """
        if args or load_kwargs:
            unknown = ", ".join([*map(repr, args), *load_kwargs])
            raise UsageError(f"lazy_load_data() takes no arguments, got {unknown}: set up the connector instead.")
        return self._documents()

    def _documents(self) -> Iterator[Document]:
        for document in self._connector.lazy_load():
            keys = document.metadata
            yield Document(
                id_=str(document.id),
                text=document.page_content,
                metadata=document.metadata,
                excluded_embed_metadata_keys=[key for key in keys if key not in _INDEXED_KEYS],
                excluded_llm_metadata_keys=[key for key in keys if key in HIDDEN_METADATA_KEYS],
            )


_NON_WHITESPACE = re.compile(r"\S")


def chinese_sentence_splitter(text: str) -> list[str]:
    """Split a text into sentences whose concatenation is exactly the text.

    For `SentenceSplitter(chunking_tokenizer_fn=…)`, `SentenceWindowNodeParser.from_defaults(sentence_splitter=…)` and
    `SemanticSplitterNodeParser.from_defaults(sentence_splitter=…)`. Whitespace belongs to the preceding sentence.
    """
    ends = {*sentence_ends(text, 0, len(text)), *line_ends(text, 0, len(text), soft=False)}
    cuts = [0]
    for end in sorted(ends):
        if end > cuts[-1]:  # else the end lies in the whitespace before the last cut
            following = _NON_WHITESPACE.search(text, end)
            cuts.append(following.start() if following else len(text))
    pieces = [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    return [piece for piece in pieces if piece]
