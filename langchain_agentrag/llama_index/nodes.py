"""LlamaIndex nodes to documents of the engine, and hits back to nodes. Nothing of a node is lost on the way.

A node is stored whole under its own id: its text, its metadata as they are, and the rest of it (type, relationships,
excluded keys, offsets) as one nested value under `NODE`. A chunk of a document that was indexed by other means comes
back as a `TextNode` with the chunk's exact offsets and its document as source.
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
from langchain_agentrag.langchain.retriever import explanation
from langchain_agentrag.types import Hit, Passage, SourceDocument

EXPLANATION = "agentrag"
"""Metadata key under which a retrieved node tells why it was found; kept out of prompts, embeddings and the hash."""

NODE = "_llama_index"
"""Metadata key under which the engine keeps what a node is besides text and metadata."""

BOOKKEEPING = frozenset(
    {
        "agent_id",
        "doc_id",
        "chunk_id",
        "source",
        "source_id",
        "type",
        "format",
        "encoding",
        "size",
        "mtime",
        "line",
    }
)
"""Metadata of connectors that says nothing to a reader of the passage: it reaches no prompt and no embedding."""

_OWN = {"id_", "embedding", "metadata", "text"}


class _StableHash:
    """Why a node was found is no part of what it is: the same node found twice has the same hash."""

    @property
    def hash(self) -> str:
        told: Any = self
        bare = {key: value for key, value in told.metadata.items() if key != EXPLANATION}
        plain: str = super(_StableHash, told.model_copy(update={"metadata": bare})).hash  # type: ignore[misc]
        return plain


class FoundTextNode(_StableHash, TextNode):
    """A `TextNode` with an explanation."""


class FoundIndexNode(_StableHash, IndexNode):
    """An `IndexNode` with an explanation."""


class FoundNode(_StableHash, Node):
    """A `Node` with an explanation."""


class FoundDocument(_StableHash, Document):
    """A `Document` with an explanation."""


_TYPES: Mapping[str, tuple[type[BaseNode], type[BaseNode]]] = {
    TextNode.class_name(): (TextNode, FoundTextNode),
    ImageNode.class_name(): (ImageNode, ImageNode),  # its hash leaves the metadata out
    IndexNode.class_name(): (IndexNode, FoundIndexNode),
    Node.class_name(): (Node, FoundNode),
    Document.class_name(): (Document, FoundDocument),
}


def to_document(node: BaseNode) -> SourceDocument:
    """A node as a document of the engine, under its own id.

    Raises:
        InvalidDocumentError: it is no node, or it refers to an object that cannot be stored.
    """
    if not isinstance(node, BaseNode):
        raise InvalidDocumentError(f"Cannot store a {type(node).__name__}: pass LlamaIndex nodes.")
    told = _is_told(node.metadata.get(EXPLANATION))
    dropped = {NODE, EXPLANATION} if told else {NODE}
    metadata = {key: value for key, value in node.metadata.items() if key not in dropped}
    try:
        shell = node.model_dump(mode="json", exclude=_OWN, exclude_defaults=True)
    except ValueError as error:
        raise InvalidDocumentError(f"Node {node.node_id!r} cannot be stored: {error}") from error
    for name in _OWN:
        shell.pop(name, None)
    for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys"):
        kept = [key for key in getattr(node, name) if not told or key != EXPLANATION]
        shell.pop(name, None)
        if kept:
            shell[name] = kept
    if isinstance(shell.get("text_resource"), dict):
        shell["text_resource"].pop("text", None)
    if node.ref_doc_id is not None:
        shell["ref_doc_id"] = node.ref_doc_id
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    return SourceDocument(node.node_id, text, {**metadata, NODE: shell})


def ref_doc_condition(ref_doc_ids: Iterable[str]) -> Filter:
    """Filter for what belongs to source documents: their nodes, and themselves."""
    ids = list(ref_doc_ids)
    return Or(tuple(Condition(key, "$in", ids) for key in (f"{NODE}.ref_doc_id", "ref_doc_id", "doc_id")))


def from_document(document: SourceDocument) -> BaseNode:
    """A stored document as the node it was."""
    metadata = dict(document.metadata)
    shell = metadata.pop(NODE, None)
    return _node(document.doc_id, document.text, metadata, shell if isinstance(shell, Mapping) else {}, 0)


def from_passage(passage: Passage) -> BaseNode:
    """A chunk that was read by address, as a node."""
    return _chunk(
        TextNode,
        f"{passage.doc_id}#{passage.chunk_id}",
        passage.doc_id,
        passage.text,
        (passage.start, passage.end),
        {**passage.locator, **passage.metadata},
        passage.locator,
        BOOKKEEPING,
    )


def from_hit(
    hit: Hit, *, explain: bool, degraded: Sequence[str] = (), hidden: Collection[str] = BOOKKEEPING
) -> NodeWithScore:
    """A hit as a scored node, with the reasons for it under `EXPLANATION` where they are wanted.

    Args:
        hit: The hit.
        explain: Whether the reasons are wanted.
        degraded: PartitionIndexes that failed in the search.
        hidden: Metadata keys of chunks that reach no prompt and no embedding; a node has lists of its own.
    """
    metadata = dict(hit.metadata)
    shell = metadata.pop(NODE, None)
    if hit.whole and isinstance(shell, Mapping):
        node = _node(hit.doc_id, hit.text, metadata, shell, 1 if explain else 0)
    else:
        kind = FoundTextNode if explain else TextNode
        span = (hit.start, hit.end)
        both = {**hit.locator, **metadata}
        node = _chunk(kind, hit.reference, hit.doc_id, hit.text, span, both, hit.locator, hidden)
    if explain:
        node.metadata[EXPLANATION] = _told(hit, degraded)
        node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, EXPLANATION]
        node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, EXPLANATION]
    return NodeWithScore(node=node, score=float(hit.score))


def _told(hit: Hit, degraded: Sequence[str]) -> dict[str, Any]:
    """Why a hit is there and where it stands, as JSON-safe values."""
    place = {"doc_id": hit.doc_id, "chunk_id": hit.chunk_id, "start": hit.start, "end": hit.end}
    told = {**place, "agent_id": hit.agent_id, **explanation(hit)}
    return {**told, "degraded": list(degraded)} if degraded else told


def _is_told(value: object) -> bool:
    """Whether a value is an explanation of ours, not a user's own metadata under the same key."""
    return isinstance(value, dict) and {"doc_id", "chunk_id", "fusion"} <= value.keys()


def _node(
    node_id: str, text: str, metadata: dict[str, Any], shell: Mapping[str, Any], variant: int
) -> BaseNode:
    kind = _TYPES.get(str(shell.get("class_name", "")), _TYPES[TextNode.class_name()])[variant]
    fields = {key: value for key, value in shell.items() if key not in {"class_name", "ref_doc_id"}}
    fields |= {"id_": node_id, "metadata": metadata}
    if not issubclass(kind, Node):
        fields["text"] = text
    elif "text_resource" in fields or text:
        fields["text_resource"] = {**fields.get("text_resource", {}), "text": text}
    return kind.from_dict(fields)


def _chunk(
    kind: type[TextNode],
    node_id: str,
    doc_id: str,
    text: str,
    span: tuple[int, int],
    metadata: dict[str, Any],
    places: Collection[str],
    hidden: Collection[str],
) -> TextNode:
    silent = [key for key in metadata if key in hidden]
    return kind(
        id_=node_id,
        text=text,
        metadata=metadata,
        start_char_idx=span[0],
        end_char_idx=span[1],
        excluded_llm_metadata_keys=silent,
        excluded_embed_metadata_keys=list(dict.fromkeys([*silent, *places])),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc_id)},
    )
