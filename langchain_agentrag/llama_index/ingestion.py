"""LlamaIndex ingestion: our embedding models, connectors as readers, a sentence splitter for Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from pydantic import PrivateAttr

from langchain_agentrag.connector import BaseConnector
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.text.sentences import line_ends, sentence_ends


class StoreEmbedding(BaseEmbedding):
    """Embeds with the model of a store, so that what LlamaIndex embeds and what the engine embeds can be compared.

    Args:
        indexer: The store.
    """

    _indexer: DualIndexer = PrivateAttr()

    def __init__(self, indexer: DualIndexer, **fields: Any) -> None:
        super().__init__(
            **{"model_name": indexer.model_name or "agentrag", "embed_batch_size": 256, **fields}
        )
        self._indexer = indexer

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "A StoreEmbedding holds an open store and cannot be pickled: pass the store's path and open it there."
        )

    @classmethod
    def class_name(cls) -> str:
        """Name in LlamaIndex's serialised form."""
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


class ConnectorReader(BaseReader):
    """Reads whatever a connector reads: files, SQL rows, dialogues, tool calls.

    Document ids are those of the engine, equal in every run. A document of an agent says so in its metadata, so a
    store that is not bound to that agent refuses it. To keep a store in step with a source use `DualIndexer.sync`.

    Args:
        connector: The source.
    """

    def __init__(self, connector: BaseConnector) -> None:
        self._connector = connector

    def __repr__(self) -> str:
        return f"ConnectorReader({self._connector.connector_id!r})"

    def lazy_load_data(self, *_args: Any, **_options: Any) -> Iterator[Document]:
        """Documents one by one; what cannot be read is logged and passed over."""
        for found in self._connector.lazy_load():
            bookkeeping = [key for key in ("doc_id", "agent_id") if key in found.metadata]
            yield Document(
                id_=str(found.id),
                text=found.page_content,
                metadata=found.metadata,
                excluded_embed_metadata_keys=bookkeeping,
                excluded_llm_metadata_keys=bookkeeping,
            )


_VISIBLE = re.compile(r"\S")


def chinese_sentence_splitter(text: str) -> list[str]:
    """Sentences in order; joined they are the text again, character by character.

    For `SentenceSplitter(chunking_tokenizer_fn=…)`, `SentenceWindowNodeParser.from_defaults(sentence_splitter=…)` and
    `SemanticSplitterNodeParser.from_defaults(sentence_splitter=…)`. White space stays with the sentence before it.
    """
    ends = {*sentence_ends(text, 0, len(text)), *line_ends(text, 0, len(text), soft=False)}
    cuts = sorted({_behind_space(text, end) for end in ends} - {len(text)})
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [piece for piece in pieces if piece]


def _behind_space(text: str, position: int) -> int:
    found = _VISIBLE.search(text, position)
    return found.start() if found else len(text)
