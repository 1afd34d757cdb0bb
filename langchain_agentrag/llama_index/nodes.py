"""Lossless conversion of LlamaIndex nodes to documents of the engine, and of hits to nodes.

A node is stored unsplit under its own id: text, metadata, and its other fields (type, relationships, excluded keys,
offsets) as one nested value under `NODE_KEY`. A chunk of any other document becomes a `TextNode` with the chunk's exact
offsets and its document as source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from langchain_agentrag.errors import InvalidDocumentError
from langchain_agentrag.filters import Condition, Filter, Or
from langchain_agentrag.ingest.documents import require_doc_ids
from langchain_agentrag.types import Hit, Passage, SourceDocument, hit_explanation

EXPLANATION_KEY = "agentrag"
"""Metadata key of the explanation of a retrieved node; excluded from prompts, embeddings and the hash."""

NODE_KEY = "_llama_index"
"""Metadata key under which the engine stores the fields of a node other than text and metadata."""

HIDDEN_METADATA_KEYS = frozenset(
    {"agent_id", "doc_id", "chunk_id", "source", "source_id", "type", "format", "encoding", "size", "mtime", "line"}
)
"""Metadata keys of connectors that are excluded from prompts and embeddings by default."""

_STORED_FIELDS = {"id_", "embedding", "metadata", "text"}


class _StableHash:
    """Mixin that excludes the explanation from the hash: the same node has the same hash for every query."""

    @property
    def hash(self) -> str:
        node: Any = self
        metadata = {key: value for key, value in node.metadata.items() if key != EXPLANATION_KEY}
        digest: str = super(_StableHash, node.model_copy(update={"metadata": metadata})).hash  # type: ignore[misc]
        return digest


class ExplainedTextNode(_StableHash, TextNode):
    """A `TextNode` with an explanation."""


class ExplainedIndexNode(_StableHash, IndexNode):
    """An `IndexNode` with an explanation."""


class ExplainedNode(_StableHash, Node):
    """A `Node` with an explanation."""


class ExplainedDocument(_StableHash, Document):
    """A `Document` with an explanation."""


_NODE_TYPES: Mapping[str, tuple[type[BaseNode], type[BaseNode]]] = {
    TextNode.class_name(): (TextNode, ExplainedTextNode),
    ImageNode.class_name(): (ImageNode, ImageNode),  # its hash ignores the metadata
    IndexNode.class_name(): (IndexNode, ExplainedIndexNode),
    Node.class_name(): (Node, ExplainedNode),
    Document.class_name(): (Document, ExplainedDocument),
}


def to_document(node: BaseNode) -> SourceDocument:
    """Convert a node to a document of the engine with the same id.

    Raises:
        InvalidDocumentError: the object is no node, or refers to an object that cannot be stored.
    """
    if not isinstance(node, BaseNode):
        raise InvalidDocumentError(f"Cannot store a {type(node).__name__}: pass LlamaIndex nodes.")
    explained = _is_explanation(node.metadata.get(EXPLANATION_KEY))
    added_keys = {NODE_KEY, EXPLANATION_KEY} if explained else {NODE_KEY}
    metadata = {key: value for key, value in node.metadata.items() if key not in added_keys}
    try:
        node_fields = node.model_dump(mode="json", exclude=_STORED_FIELDS, exclude_defaults=True)
    except ValueError as error:
        raise InvalidDocumentError(f"Node {node.node_id!r} cannot be stored: {error}") from error
    for name in _STORED_FIELDS:
        node_fields.pop(name, None)
    for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys"):
        excluded = [key for key in getattr(node, name) if not explained or key != EXPLANATION_KEY]
        node_fields.pop(name, None)
        if excluded:
            node_fields[name] = excluded
    if isinstance(node_fields.get("text_resource"), dict):
        node_fields["text_resource"].pop("text", None)
    if node.ref_doc_id is not None:
        node_fields["ref_doc_id"] = node.ref_doc_id
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    return SourceDocument(node.node_id, text, {**metadata, NODE_KEY: node_fields}, context=_embedded_metadata(node))


def _embedded_metadata(node: BaseNode) -> str:
    """Return what `MetadataMode.EMBED` adds to the text of a node: metadata in the node's templates; "" for none."""
    metadata = node.get_metadata_str(MetadataMode.EMBED).strip()
    template = getattr(node, "text_template", "{metadata_str}")
    return template.format(content="", metadata_str=metadata).strip() if metadata else ""


def ref_doc_condition(ref_doc_ids: Iterable[str]) -> Filter:
    """Return the filter of source documents and all nodes that refer to them.

    Raises:
        UsageError: an id is no string; None would match every node that refers to no document.
    """
    ids = require_doc_ids(ref_doc_ids)
    return Or(tuple(Condition(key, "$in", ids) for key in (f"{NODE_KEY}.ref_doc_id", "ref_doc_id", "doc_id")))


def from_document(document: SourceDocument) -> BaseNode:
    """Convert a stored document back to its node."""
    metadata = dict(document.metadata)
    node_fields = metadata.pop(NODE_KEY, None)
    if not isinstance(node_fields, Mapping):
        node_fields = {}
    return _restore_node(document.doc_id, document.text, metadata, node_fields, 0)


def from_passage(passage: Passage) -> BaseNode:
    """Convert a chunk that was read by doc_id and chunk_id to a node."""
    node_id = f"{passage.doc_id}#{passage.chunk_id}"
    return _chunk_node(TextNode, node_id, passage, passage.metadata, HIDDEN_METADATA_KEYS)


def from_hit(
    hit: Hit, *, explain: bool, degraded: Sequence[str] = (), hidden: Collection[str] = HIDDEN_METADATA_KEYS
) -> NodeWithScore:
    """Convert a hit to a scored node.

    Args:
        hit: The hit.
        explain: Whether to add the explanation under `EXPLANATION_KEY`.
        degraded: Errors of parts of the search that failed, for the explanation.
        hidden: Metadata keys of chunks to exclude from prompts and embeddings; stored nodes have their own lists.
    """
    metadata = dict(hit.metadata)
    node_fields = metadata.pop(NODE_KEY, None)
    if hit.whole and isinstance(node_fields, Mapping):
        node = _restore_node(hit.doc_id, hit.text, metadata, node_fields, 1 if explain else 0)
    else:
        kind = ExplainedTextNode if explain else TextNode
        node = _chunk_node(kind, hit.reference, hit, metadata, hidden)
    if explain:
        node.metadata[EXPLANATION_KEY] = _explanation_metadata(hit, degraded)
        node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, EXPLANATION_KEY]
        node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, EXPLANATION_KEY]
    return NodeWithScore(node=node, score=float(hit.score))


def _explanation_metadata(hit: Hit, degraded: Sequence[str]) -> dict[str, Any]:
    """Return address and explanation of a hit as JSON-safe values."""
    address = {"doc_id": hit.doc_id, "chunk_id": hit.chunk_id, "start": hit.start, "end": hit.end}
    metadata = {**address, "agent_id": hit.agent_id, **hit_explanation(hit)}
    return {**metadata, "degraded": list(degraded)} if degraded else metadata


def _is_explanation(value: object) -> bool:
    """Whether a value was written by `_explanation_metadata`, not by the user under the same key."""
    return isinstance(value, dict) and {"doc_id", "chunk_id", "fusion"} <= value.keys()


def _restore_node(
    node_id: str, text: str, metadata: dict[str, Any], node_fields: Mapping[str, Any], variant: int
) -> BaseNode:
    kind = _NODE_TYPES.get(str(node_fields.get("class_name", "")), _NODE_TYPES[TextNode.class_name()])[variant]
    fields = {key: value for key, value in node_fields.items() if key not in {"class_name", "ref_doc_id"}}
    fields |= {"id_": node_id, "metadata": metadata}
    if not issubclass(kind, Node):
        fields["text"] = text
    elif "text_resource" in fields or text:
        fields["text_resource"] = {**fields.get("text_resource", {}), "text": text}
    return kind.from_dict(fields)


def _chunk_node(
    kind: type[TextNode], node_id: str, chunk: Hit | Passage, metadata: Mapping[str, Any], hidden: Collection[str]
) -> TextNode:
    fields = {**chunk.locator, **metadata}
    excluded = [key for key in fields if key in hidden]
    return kind(
        id_=node_id,
        text=chunk.text,
        metadata=fields,
        start_char_idx=chunk.start,
        end_char_idx=chunk.end,
        excluded_llm_metadata_keys=excluded,
        excluded_embed_metadata_keys=list(dict.fromkeys([*excluded, *chunk.locator])),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=chunk.doc_id)},
    )
