"""`AgentQueryEngine`: query engine with citations; `citations` and `check_response` resolve and check them."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Self

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.chat_engine.types import ChatMode
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.llms.utils import LLMType, resolve_llm
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer, ResponseMode, get_response_synthesizer
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import DEFAULT_TEXT_NODE_TMPL, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.settings import Settings
from llama_index.core.types import RESPONSE_TEXT_TYPE
from pydantic import ConfigDict, Field

from langchain_agentrag.agent.citations import CitationReport, CitedSource, Judge, check_citations
from langchain_agentrag.agent.prompt_injection import Fence, PassageSafety
from langchain_agentrag.agent.tool_arguments import detect_language
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.llama_index.nodes import EXPLANATION_KEY
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.search.options import check_option_names
from langchain_agentrag.types import CONVINCING

_RESPONSE_ARGUMENTS = ("query_str", "text_chunks")
_REFERENCE = re.compile(r"[\[［【]\s*((?:\d{1,3}\s*[,，、;；]\s*)*\d{1,3})\s*[\]］】]")


@dataclass(frozen=True, slots=True)
class Citation:
    """Passage cited by an answer.

    Attributes:
        number: Number in the answer, from 1.
        node_id: Id of the node.
        doc_id: Source document; `DualIndexer.read(doc_id, chunk_id)` gives the passage.
        chunk_id: Ordinal of the chunk, or None for a node of another retriever.
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
    """Return the passages that an answer cites as [1], [2, 3], 【4】, by number; all passages if it cites none.

    Numbers without a passage are ignored.

    Args:
        response: Response of a query engine.
        answer: Text of the answer, for a streaming response that has been consumed.
    """
    sources = response.source_nodes
    references = _REFERENCE.findall(_answer_text(response, answer))
    cited = {int(number) for reference in references for number in re.findall(r"\d+", reference)}
    numbers = sorted(number for number in cited if 1 <= number <= len(sources))
    return [_citation(number, sources[number - 1]) for number in numbers or range(1, len(sources) + 1)]


def check_response(response: RESPONSE_TYPE, answer: str | None = None, *, judge: Judge | None = None) -> CitationReport:
    """Check whether the passages cited as [1], [2, 3] … support the answer; see `langchain_agentrag.check_citations`.

    Args:
        response: Response of a query engine.
        answer: Text of the answer, for a streaming response that has been consumed.
        judge: Function passage, statement → verdict for cases that rules do not decide, such as `model_judge(llm)`.
    """
    cited = (_citation(number, node) for number, node in enumerate(response.source_nodes, start=1))
    sources = [CitedSource((str(c.number), c.node_id), c.doc_id, c.chunk_id, c.start, c.end, c.text) for c in cited]
    return check_citations(_answer_text(response, answer), sources, judge=judge)


def _answer_text(response: RESPONSE_TYPE, answer: str | None) -> str:
    return answer if answer is not None else str(getattr(response, "response", None) or "")


def number_nodes(
    nodes: Sequence[NodeWithScore], *, with_source: bool = False, safety: PassageSafety | None = None
) -> list[NodeWithScore]:
    """Return copies of nodes for a prompt, each text fenced and preceded by its number as [1].

    Args:
        nodes: The nodes; they are not modified.
        with_source: Whether to add source and score after the number.
        safety: Protection against prompt injection; None is the default one.
    """
    safety = safety or PassageSafety()
    copies, fence = [], _fence_of(nodes, safety)
    for number, node in enumerate(nodes, start=1):
        text = f"[{number}] {_fenced_node(node, fence, safety, with_source=with_source)}"
        copies.append(NodeWithScore(node=TextNode(id_=node.node_id, text=text), score=node.score))
    return copies


def fence_nodes(nodes: Sequence[NodeWithScore], safety: PassageSafety | None = None) -> list[NodeWithScore]:
    """Return copies of nodes whose text for a model is fenced, metadata included; images stay images.

    The copies keep ids, scores and metadata; the metadata is excluded from the text around the fence.
    """
    safety = safety or PassageSafety()
    copies, fence = [], _fence_of(nodes, safety)
    for scored in nodes:
        node = scored.node.model_copy(deep=True)
        node.set_content(_fenced_node(scored, fence, safety))
        node.excluded_llm_metadata_keys = list(node.metadata)
        if isinstance(node, TextNode):
            node.text_template = DEFAULT_TEXT_NODE_TMPL
        copies.append(NodeWithScore(node=node, score=scored.score))
    return copies


def _fence_of(nodes: Sequence[NodeWithScore], safety: PassageSafety) -> Fence:
    """Return a fence in the language of the passages, which is shorter than one in both."""
    return safety.fence(detect_language("\n".join(scored.node.get_content() for scored in nodes)))


def _fenced_node(node: NodeWithScore, fence: Fence, safety: PassageSafety, *, with_source: bool = False) -> str:
    line, names = "", ""
    if with_source:
        source = _link_or_document(node)
        shown, score = safety.name(source), f"(score {node.get_score():.2f})\n"
        is_open = safety.may_stand_open(source)
        line, names = (f"source: {shown} {score}", "") if is_open else (score, f"source: {shown}")
    text = node.get_content(metadata_mode=MetadataMode.LLM)
    return line + fence.wrap(text, node.metadata, block=True, names=names)


class FencePassages(BaseNodePostprocessor):
    """Node postprocessor that fences passages, for LlamaIndex's own engines and `RetrieverTool`.

    It returns copies, so the sources of a response are fenced too; `AgentQueryEngine` fences without it.

    Attributes:
        safety: Protection against prompt injection; `PassageSafety.off()` turns it off.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    safety: PassageSafety = Field(default=PassageSafety(), exclude=True, repr=False)

    @classmethod
    def class_name(cls) -> str:
        """Return the name in LlamaIndex's serialised form."""
        return "AgentRAGFencePassages"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return fence_nodes(nodes, self.safety)


class FencedIndex(VectorStoreIndex):
    """`VectorStoreIndex` whose query and chat engines show fenced passages to the model; see `as_index`."""

    safety: PassageSafety = PassageSafety()

    def as_query_engine(self, llm: LLMType | None = None, **kwargs: Any) -> BaseQueryEngine:
        """Return an `AgentQueryEngine` without numbers; its source nodes are unchanged.

        Args:
            llm: The model; by default the one of `Settings`.
            kwargs: Arguments of the retriever and of `AgentQueryEngine.from_args`.
        """
        model = resolve_llm(llm, callback_manager=self._callback_manager) if llm else Settings.llm
        known = {**signature(RetrieverQueryEngine.from_args).parameters, "cite": None, "safety": None}
        arguments = {name: value for name, value in kwargs.items() if name in known}
        return AgentQueryEngine.from_args(
            self.as_retriever(**kwargs), model, **{"cite": False, "safety": self.safety, **arguments}
        )

    def as_chat_engine(self, chat_mode: ChatMode = ChatMode.BEST, llm: LLMType | None = None, **kwargs: Any) -> Any:
        """Return LlamaIndex's chat engine; passages are fenced by a node postprocessor."""
        if chat_mode in {ChatMode.CONTEXT, ChatMode.CONDENSE_PLUS_CONTEXT, ChatMode.BEST}:
            fencing = FencePassages(safety=self.safety)
            kwargs["node_postprocessors"] = [*(kwargs.get("node_postprocessors") or ()), fencing]
        return super().as_chat_engine(chat_mode, llm, **kwargs)


def _link_or_document(node: NodeWithScore) -> str:
    """Return the link of a passage, else the id of its document."""
    links = (node.metadata.get(key) for key in ("url", "source"))
    link = next((value for value in links if isinstance(value, str) and "://" in value), None)
    return link or node.node.ref_doc_id or node.node_id


def _citation(number: int, scored: NodeWithScore) -> Citation:
    explanation: Any = scored.metadata.get(EXPLANATION_KEY)
    address = explanation if isinstance(explanation, dict) else {}
    node = scored.node
    return Citation(
        number,
        node.node_id,
        str(address.get("doc_id", node.ref_doc_id or node.node_id)),
        address.get("chunk_id"),
        address.get("start", getattr(node, "start_char_idx", None)),
        address.get("end", getattr(node, "end_char_idx", None)),
        node.get_content(metadata_mode=MetadataMode.NONE),
        scored.get_score(),
    )


NOTHING_FOUND = "No passage matches the question. 没有找到相关内容。"

NOTHING_CONVINCING = (
    "Nothing convincing was found; the passages below are only the nearest there are. "
    "没有找到可信的内容，以下只是最接近的段落。"
)
"""Precedes passages of which none is likely to hold the answer (confidence below `types.CONVINCING`)."""

CITING_PROMPT = PromptTemplate(
    "Numbered passages are below.\n---------------------\n{context_str}\n---------------------\n"
    "Answer the question from these passages alone, in the language of the question, and put the number of each "
    "passage you use behind the statement it supports, like [1]. Say so when they do not hold the answer.\n"
    "Question: {query_str}\nAnswer: "
)
"""Default question-answering prompt of an engine with citations."""


class AgentQueryEngine(RetrieverQueryEngine):
    """`RetrieverQueryEngine` with citations, with or without an LLM.

    Without an LLM the answer consists of the numbered passages, with source and score. With one, passages are numbered
    in the prompt so that the answer can cite them. `citations(response)` resolves the numbers to exact spans;
    `source_nodes` are the retrieved nodes, unchanged.

    Args:
        retriever: Retriever of the passages; bind the agent there.
        response_synthesizer: Synthesizer of the answer; the numbered passages by default.
        node_postprocessors: As of any query engine.
        callback_manager: As of any query engine.
        cite: Whether passages are numbered.
        safety: Protection against prompt injection in passages of a prompt, and in an answer that consists of passages;
            `PassageSafety.off()` turns it off.
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
        if not isinstance(retriever, BaseRetriever):
            raise UsageError(
                f"AgentQueryEngine needs a retriever, got {short_repr(retriever)}: "
                "pass HybridRetriever(DualIndexer(path))."
            )
        synthesizer = response_synthesizer or CitedPassages()
        super().__init__(retriever, synthesizer, node_postprocessors, callback_manager)
        self._cite, self._safety = cite, safety or PassageSafety()

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
        """Create an engine from the arguments of `RetrieverQueryEngine.from_args`.

        Further arguments are those of the class and of LlamaIndex's `get_response_synthesizer`: streaming, output_cls …
        Without `llm` the one in `Settings` is used, if any. `response_mode` None means "compact" with an LLM and
        "context_only" without one. The default of `text_qa_template` asks for citations.

        Raises:
            UsageError: the mode needs an LLM and there is none, or there is no such argument.
        """
        check_option_names(synthesis, signature(get_response_synthesizer).parameters, "from_args()")
        if response_synthesizer is None:
            if cite:
                text_qa_template = text_qa_template or CITING_PROMPT
            response_synthesizer = _make_synthesizer(
                llm, response_mode, {**synthesis, "text_qa_template": text_qa_template}
            )
        return cls(retriever, response_synthesizer, node_postprocessors, callback_manager, cite=cite, safety=safety)

    def with_retriever(self, retriever: BaseRetriever) -> Self:
        """Return a copy with another retriever."""
        return type(self)(
            retriever,
            self._response_synthesizer,
            self._node_postprocessors,
            self.callback_manager,
            cite=self._cite,
            safety=self._safety,
        )

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy bound to one agent; cheap enough to create per request.

        Raises:
            ScopeError: the retriever cannot be bound to an agent, because it is not a `HybridRetriever`.
        """
        bind = getattr(self._retriever, "for_agent", None)
        if bind is None:
            raise ScopeError(
                f"A {type(self._retriever).__name__} cannot be bound to an agent: use a HybridRetriever of "
                "langchain_agentrag.llama_index."
            )
        return self.with_retriever(bind(agent_id))

    def with_history(self, history: Sequence[Any]) -> Self:
        """Return a copy that completes follow-up questions from the messages of a conversation.

        Raises:
            UsageError: the retriever takes no history, because it is not a `HybridRetriever`.
        """
        with_options = getattr(self._retriever, "with_options", None)
        if with_options is None:
            raise UsageError(
                f"A {type(self._retriever).__name__} takes no history: use a HybridRetriever of "
                "langchain_agentrag.llama_index."
            )
        return self.with_retriever(with_options(history=list(history)))

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
        """Synthesize the answer from nodes."""
        response = super().synthesize(query_bundle, self._shown_nodes(nodes), additional_source_nodes)
        return _restore_sources(response, [*nodes, *(additional_source_nodes or ())])

    async def asynthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> RESPONSE_TYPE:
        """`synthesize`, asynchronously."""
        shown = self._shown_nodes(nodes)
        response = await super().asynthesize(query_bundle, shown, additional_source_nodes)
        return _restore_sources(response, [*nodes, *(additional_source_nodes or ())])

    def _shown_nodes(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        """Return copies of nodes as the synthesizer shows them: fenced, and numbered for citations."""
        # numbering would lose the images of a multimodal synthesizer
        if not self._cite or getattr(self._response_synthesizer, "_multimodal", False):
            return fence_nodes(nodes, self._safety)
        passages_only = isinstance(self._response_synthesizer, CitedPassages)
        numbered = number_nodes(nodes, with_source=passages_only, safety=self._safety)
        if not nodes or any(_confidence(node) >= CONVINCING for node in nodes):
            return numbered
        return [NodeWithScore(node=TextNode(text=NOTHING_CONVINCING), score=numbered[0].score), *numbered]


class CitedPassages(BaseSynthesizer):
    """Response synthesizer that returns the passages as the answer, without an LLM.

    Args:
        streaming: Whether to stream the answer, passage by passage.
        callback_manager: As of any synthesizer.
    """

    def __init__(self, *, streaming: bool = False, callback_manager: CallbackManager | None = None) -> None:
        # without an LLM the base class would load the default one, which is a paid service
        super().__init__(MockLLM(), callback_manager, streaming=streaming, empty_response=NOTHING_FOUND)

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> RESPONSE_TEXT_TYPE:
        """Return the passages separated by blank lines."""
        check_option_names(response_kwargs, _RESPONSE_ARGUMENTS, "get_response()")
        pieces = _separated(text_chunks)
        return _stream(pieces) if self._streaming else "".join(pieces)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """`get_response`, asynchronously."""
        check_option_names(response_kwargs, _RESPONSE_ARGUMENTS, "aget_response()")
        pieces = _separated(text_chunks)
        return _astream(pieces) if self._streaming else "".join(pieces)


def _confidence(node: NodeWithScore) -> float:
    """Return the confidence of a hit; 1 for a node without explanation, as of another retriever."""
    explanation = node.metadata.get(EXPLANATION_KEY)
    confidence = explanation.get("confidence") if isinstance(explanation, Mapping) else None
    return float(confidence) if isinstance(confidence, int | float) else 1.0


def _separated(passages: Sequence[str]) -> list[str]:
    return [text if index == 0 else f"\n\n{text}" for index, text in enumerate(passages)]


def _stream(pieces: list[str]) -> Generator[str, None, None]:
    yield from pieces


async def _astream(pieces: list[str]) -> AsyncGenerator[str, None]:
    for piece in pieces:
        yield piece


def _make_synthesizer(llm: LLM | None, mode: ResponseMode | str | None, settings: dict[str, Any]) -> BaseSynthesizer:
    response_mode = None if mode is None else ResponseMode(mode)
    streaming = bool(settings.get("streaming", False))
    if response_mode == ResponseMode.NO_TEXT:
        return NoText(MockLLM(), streaming=False, empty_response="")
    if response_mode == ResponseMode.CONTEXT_ONLY:
        return CitedPassages(streaming=streaming)
    model = llm or Settings._llm  # noqa: SLF001  the public property would load a paid service
    if model is None and response_mode is None:
        return CitedPassages(streaming=streaming)
    if model is None:
        raise UsageError(
            f"response_mode={response_mode!s} needs an LLM: pass llm=…, set Settings.llm, or leave the mode out to "
            "get the passages themselves."
        )
    return get_response_synthesizer(model, response_mode=response_mode or ResponseMode.COMPACT, **settings)


def _restore_sources(response: RESPONSE_TYPE, sources: list[NodeWithScore]) -> RESPONSE_TYPE:
    """Put the retrieved nodes back into a response, in place of their numbered copies."""
    response.source_nodes = sources
    response.metadata = {node.node_id: node.metadata for node in sources}
    return response
