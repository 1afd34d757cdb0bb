"""Which passages an answer cites, with the exact span of each in its document, and whether they say so."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer, ResponseMode, get_response_synthesizer
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.settings import Settings
from llama_index.core.types import RESPONSE_TEXT_TYPE

from langchain_agentrag.agent.citations import CitationReport, CitedSource, Judge, check_citations
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.llama_index.nodes import EXPLANATION
from langchain_agentrag.types import CONVINCING

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
        passage = fence.wrap(found.get_content(metadata_mode=MetadataMode.LLM), found.metadata, block=True)
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


NOTHING_FOUND = "No passage matches the question. 没有找到相关内容。"

NOTHING_CONVINCING = (
    "Nothing convincing was found; the passages below are only the nearest there are. "
    "没有找到可信的内容，以下只是最接近的段落。"
)
"""Stands before passages of which none is likely to hold the answer (confidence below `records.CONVINCING`)."""

CITING_PROMPT = PromptTemplate(
    "Numbered passages are below.\n---------------------\n{context_str}\n---------------------\n"
    "Answer the question from these passages alone, in the language of the question, and put the number of each "
    "passage you use behind the statement it supports, like [1]. Say so when they do not hold the answer.\n"
    "Question: {query_str}\nAnswer: "
)
"""Question-answering prompt of an engine that cites, unless another one is given."""


class AgentQueryEngine(RetrieverQueryEngine):
    """A `RetrieverQueryEngine` that cites, and that needs an LLM only for what an LLM is needed for.

    Without an LLM the answer is the numbered passages themselves, with source and score. With one, passages are
    numbered in the prompt so that the answer can name them. `citations(response)` resolves the numbers to exact spans;
    `source_nodes` are the nodes as they were retrieved.

    Args:
        retriever: Where passages come from; bind the agent there.
        response_synthesizer: Makes the answer; the numbered passages by default.
        node_postprocessors: As of any query engine.
        callback_manager: As of any query engine.
        cite: Whether passages are numbered.
        safety: How passages are shown to an LLM, where they are numbered; an answer made of passages has them as they
            are, and `as_query_engine_tool` sees to it that a model is shown them safely.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        response_synthesizer: BaseSynthesizer | None = None,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        callback_manager: CallbackManager | None = None,
        *,
        cite: bool = True,
        safety: PassageSafety | None = None,
    ) -> None:
        synthesizer = response_synthesizer or CitedPassages()
        super().__init__(retriever, synthesizer, node_postprocessors, callback_manager)
        self._cite, self._safety, self._for_model = cite, safety or PassageSafety(), False

    @classmethod
    def from_args(  # type: ignore[override]  # response_mode may be None, and more by keyword
        cls,
        retriever: BaseRetriever,
        llm: LLM | None = None,
        response_synthesizer: BaseSynthesizer | None = None,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        callback_manager: CallbackManager | None = None,
        response_mode: ResponseMode | str | None = None,
        *,
        text_qa_template: BasePromptTemplate | None = None,
        cite: bool = True,
        safety: PassageSafety | None = None,
        **synthesis: Any,
    ) -> Self:
        """An engine from the arguments of `RetrieverQueryEngine.from_args`.

        Args:
            retriever: Where passages come from.
            llm: The LLM; None takes the one set in `Settings`, if any.
            response_synthesizer: Makes the answer, instead of a mode.
            node_postprocessors: As of any query engine.
            callback_manager: As of any query engine.
            response_mode: "compact" with an LLM, "context_only" without one, when None.
            text_qa_template: Prompt; by default one that asks for citations.
            cite: Whether passages are numbered.
            safety: How passages are shown to an LLM.
            synthesis: Further arguments of LlamaIndex's `get_response_synthesizer`: streaming, output_cls, use_async …

        Raises:
            UsageError: the mode needs an LLM and there is none.
        """
        if response_synthesizer is None:
            if cite:
                text_qa_template = text_qa_template or CITING_PROMPT
            response_synthesizer = _synthesizer(
                llm, response_mode, {**synthesis, "text_qa_template": text_qa_template}
            )
        return cls(
            retriever, response_synthesizer, node_postprocessors, callback_manager, cite=cite, safety=safety
        )

    def for_model(self) -> Self:
        """The same engine for answers that a model will read: passages are shown safely in them too."""
        clone = self.with_retriever(self._retriever)
        clone._for_model = True  # noqa: SLF001  (its own)
        return clone

    def with_retriever(self, retriever: BaseRetriever) -> Self:
        """The same engine over another retriever."""
        return type(self)(
            retriever,
            self._response_synthesizer,
            self._node_postprocessors,
            self.callback_manager,
            cite=self._cite,
            safety=self._safety,
        )

    def for_agent(self, agent_id: str) -> Self:
        """The same engine on behalf of one agent; cheap, make one per request.

        Raises:
            ScopeError: the retriever is not one of ours, so it cannot be bound to an agent.
        """
        bind = getattr(self._retriever, "for_agent", None)
        if bind is None:
            raise ScopeError(
                f"A {type(self._retriever).__name__} cannot be bound to an agent: use a HybridRetriever of "
                "langchain_agentrag.llama_index."
            )
        return self.with_retriever(bind(agent_id))

    def with_history(self, history: Sequence[Any]) -> Self:
        """The same engine within a conversation: a question that leans on these messages is completed from them.

        Raises:
            UsageError: the retriever is not one of ours, which alone knows what to do with them.
        """
        settings = getattr(self._retriever, "with_options", None)
        if settings is None:
            raise UsageError(
                f"A {type(self._retriever).__name__} takes no history: use a HybridRetriever of "
                "langchain_agentrag.llama_index."
            )
        return self.with_retriever(settings(history=list(history)))

    # -- answering ------------------------------------------------------------------------------------------------

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        payload: dict[str, Any] = {EventPayload.QUERY_STR: query_bundle.query_str}
        with self.callback_manager.event(CBEventType.QUERY, payload=payload) as event:
            response = self.synthesize(query_bundle, self.retrieve(query_bundle))
            event.on_end(payload={EventPayload.RESPONSE: response})
        return response

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        payload: dict[str, Any] = {EventPayload.QUERY_STR: query_bundle.query_str}
        with self.callback_manager.event(CBEventType.QUERY, payload=payload) as event:
            response = await self.asynthesize(query_bundle, await self.aretrieve(query_bundle))
            event.on_end(payload={EventPayload.RESPONSE: response})
        return response

    def synthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> RESPONSE_TYPE:
        """The answer from these nodes."""
        shown = self._shown(nodes)
        response = super().synthesize(query_bundle, shown, additional_source_nodes)
        return _with_sources(response, [*nodes, *(additional_source_nodes or ())])

    async def asynthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> RESPONSE_TYPE:
        """`synthesize`, asynchronously."""
        shown = self._shown(nodes)
        response = await super().asynthesize(query_bundle, shown, additional_source_nodes)
        return _with_sources(response, [*nodes, *(additional_source_nodes or ())])

    def _shown(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        # pictures of a multimodal synthesizer would not survive the numbering
        plain = getattr(self._response_synthesizer, "_multimodal", False)
        if plain or not self._cite:
            return nodes
        bare = isinstance(self._response_synthesizer, CitedPassages)
        shown = numbered(
            nodes, with_source=bare, safety=None if bare and not self._for_model else self._safety
        )
        if not nodes or any(_confidence(found) >= CONVINCING for found in nodes):
            return shown
        return [NodeWithScore(node=TextNode(text=NOTHING_CONVINCING), score=shown[0].score), *shown]


class CitedPassages(BaseSynthesizer):
    """The passages themselves as the answer; asks no LLM.

    Args:
        streaming: Whether the answer is streamed, passage by passage.
        callback_manager: As of any synthesizer.
    """

    def __init__(self, *, streaming: bool = False, callback_manager: CallbackManager | None = None) -> None:
        # the base class wants some LLM; without one it would look for the default one, which is a paid service
        super().__init__(MockLLM(), callback_manager, streaming=streaming, empty_response=NOTHING_FOUND)

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **_response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """The passages, blank lines between them."""
        pieces = [text if place == 0 else f"\n\n{text}" for place, text in enumerate(text_chunks)]
        return _stream(pieces) if self._streaming else "".join(pieces)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **_response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """`get_response`, asynchronously."""
        pieces = [text if place == 0 else f"\n\n{text}" for place, text in enumerate(text_chunks)]
        return _astream(pieces) if self._streaming else "".join(pieces)


def _confidence(found: NodeWithScore) -> float:
    """That of the hit; a node of another retriever, or one without its explanation, is taken at its word."""
    told = found.metadata.get(EXPLANATION)
    likely = told.get("confidence") if isinstance(told, Mapping) else None
    return float(likely) if isinstance(likely, int | float) else 1.0


def _stream(pieces: list[str]) -> Generator[str, None, None]:
    yield from pieces


async def _astream(pieces: list[str]) -> AsyncGenerator[str, None]:
    for piece in pieces:
        yield piece


def _synthesizer(
    llm: LLM | None, mode: ResponseMode | str | None, settings: dict[str, Any]
) -> BaseSynthesizer:
    wanted = None if mode is None else ResponseMode(mode)
    streaming = bool(settings.get("streaming", False))
    if wanted == ResponseMode.NO_TEXT:
        return NoText(MockLLM(), streaming=False, empty_response="")
    if wanted == ResponseMode.CONTEXT_ONLY:
        return CitedPassages(streaming=streaming)
    model = llm or Settings._llm  # noqa: SLF001  the public name would go and look for a paid service
    if model is None and wanted is None:
        return CitedPassages(streaming=streaming)
    if model is None:
        raise UsageError(
            f"response_mode={wanted!s} needs an LLM: pass llm=…, set Settings.llm, or leave the mode out to get the "
            "passages themselves."
        )
    return get_response_synthesizer(model, response_mode=wanted or ResponseMode.COMPACT, **settings)


def _with_sources(response: RESPONSE_TYPE, sources: list[NodeWithScore]) -> RESPONSE_TYPE:
    """The response with the nodes as they were retrieved, instead of their numbered copies."""
    response.source_nodes = sources
    response.metadata = {found.node_id: found.metadata for found in sources}
    return response
