"""`create_retriever_tool`: LangChain's retriever tool with fenced passages."""

from __future__ import annotations

from typing import Any

from langchain_core.prompts import BasePromptTemplate, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import create_retriever_tool as _create_retriever_tool
from langchain_core.tools.structured import StructuredTool
from pydantic import ConfigDict, Field

from langchain_agentrag.agent.prompt_injection import FenceLanguage, PassageSafety


class FencedDocumentPrompt(PromptTemplate):
    """Document prompt that fences what it formats; for LangChain's `document_prompt` arguments.

    Attributes:
        safety: Protection against prompt injection; `PassageSafety.off()` turns it off.
        language: Language of the marks.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    template: str = "{page_content}"
    input_variables: list[str] = Field(default_factory=lambda: ["page_content"])
    safety: PassageSafety = Field(default=PassageSafety(), exclude=True, repr=False)
    language: FenceLanguage = "both"

    def format(self, **kwargs: Any) -> str:
        """Return the formatted document between marks."""
        return self.safety.fence(self.language).wrap(super().format(**kwargs), kwargs, block=True)


def create_retriever_tool(
    retriever: BaseRetriever,
    name: str,
    description: str,
    *,
    safety: PassageSafety | None = None,
    document_prompt: BasePromptTemplate[str] | None = None,
    **options: Any,
) -> StructuredTool:
    """Create LangChain's retriever tool with fenced passages; the documents of the artifact are unchanged.

    Args:
        retriever: The retriever.
        name: Name of the tool.
        description: Description of the tool.
        safety: Protection against prompt injection; `PassageSafety.off()` turns it off.
        document_prompt: Another prompt of each document; what it returns is not fenced.
        options: `document_separator` and `response_format`, as of LangChain's function.
    """
    prompt = document_prompt or FencedDocumentPrompt(safety=safety or PassageSafety())
    return _create_retriever_tool(retriever, name, description, document_prompt=prompt, **options)
