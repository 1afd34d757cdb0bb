"""Which passages an answer cites, with the exact span of each in its document, and whether they say so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from langchain_agentrag.agent.citations import CitationReport, CitedSource, Judge, check_citations
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.llama_index.nodes import EXPLANATION

_MARK = re.compile(r"[\[［【]\s*((?:\d{1,3}\s*[,，、;；]\s*)*\d{1,3})\s*[\]］】]")


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer rests on.

    Attributes:
        number: Its number in the answer, from 1.
        node_id: The node.
        doc_id: Source document; `DualIndexer.read(doc_id, chunk_id)` gives the passage.
        chunk_id: Ordinal of the chunk, or None for a node that did not come from our retriever.
        start: First character in the document's text, or None.
        end: One past the last character, or None.
        text: The passage: the document's text from start to end.
        score: Score of the retrieval.
    """

    number: int
    node_id: str
    doc_id: str
    chunk_id: int | None
    start: int | None
    end: int | None
    text: str
    score: float


def citations(response: RESPONSE_TYPE, answer: str | None = None) -> list[Citation]:
    """The passages an answer names as [1], [2, 3], 【4】, in the order of their numbers; all of them if it names none.

    A number that no passage has is left out.

    Args:
        response: What a query engine answered.
        answer: The text, where the response was a stream that has been consumed.
    """
    text = answer if answer is not None else str(getattr(response, "response", None) or "")
    sources = response.source_nodes
    named = {int(number) for mark in _MARK.findall(text) for number in re.findall(r"\d+", mark)}
    numbers = sorted(number for number in named if 1 <= number <= len(sources))
    return [_citation(number, sources[number - 1]) for number in numbers or range(1, len(sources) + 1)]


def check_response(
    response: RESPONSE_TYPE, answer: str | None = None, *, judge: Judge | None = None
) -> CitationReport:
    """What the references [1], [2, 3] … of an answer are worth; see `langchain_agentrag.check_citations`.

    Args:
        response: What a query engine answered.
        answer: The text, where the response was a stream that has been consumed.
        judge: Asked about what rules leave open: a function passage, statement → verdict, such as `model_judge(llm)`.
    """
    text = answer if answer is not None else str(getattr(response, "response", None) or "")
    cited = (_citation(number, found) for number, found in enumerate(response.source_nodes, start=1))
    sources = [
        CitedSource((str(one.number), one.node_id), one.doc_id, one.chunk_id, one.start, one.end, one.text)
        for one in cited
    ]
    return check_citations(text, sources, judge=judge)


def numbered(
    nodes: Sequence[NodeWithScore], *, with_source: bool = False, safety: PassageSafety | None = None
) -> list[NodeWithScore]:
    """Copies to be shown, each text with its number before it; the nodes are not changed.

    Args:
        nodes: The nodes.
        with_source: Whether the number is followed by a line with source and score.
        safety: How they are shown to a model; None shows them as they are.
    """
    safety = safety or PassageSafety.off()
    shown, fence = [], safety.fence("both")
    for number, found in enumerate(nodes, start=1):
        line = (
            f"source: {safety.name(_source(found))} (score {found.get_score():.2f})\n" if with_source else ""
        )
        passage = fence.around(found.get_content(metadata_mode=MetadataMode.LLM), found.metadata, block=True)
        text = f"[{number}] {line}{passage}"
        shown.append(NodeWithScore(node=TextNode(id_=found.node_id, text=text), score=found.score))
    return shown


def _source(found: NodeWithScore) -> str:
    """Where a passage stands: its link, else its document."""
    links = (found.metadata.get(key) for key in ("url", "source"))
    link = next((value for value in links if isinstance(value, str) and "://" in value), None)
    return link or found.node.ref_doc_id or found.node_id


def _citation(number: int, found: NodeWithScore) -> Citation:
    told: Any = found.metadata.get(EXPLANATION)
    place = told if isinstance(told, dict) else {}
    node = found.node
    return Citation(
        number,
        node.node_id,
        str(place.get("doc_id", node.ref_doc_id or node.node_id)),
        place.get("chunk_id"),
        place.get("start", getattr(node, "start_char_idx", None)),
        place.get("end", getattr(node, "end_char_idx", None)),
        node.get_content(metadata_mode=MetadataMode.NONE),
        found.get_score(),
    )
