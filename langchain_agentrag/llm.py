"""Asking somebody's language model for a line of text, within a time."""

from __future__ import annotations

from collections.abc import Callable
from traceback import format_exception_only
from typing import Any, TypeAlias

from langchain_agentrag.errors import EnvironmentFailure, UsageError
from langchain_agentrag.timeouts import run_with_timeout

LanguageModel: TypeAlias = Callable[[str], Any] | Any
"""A function prompt -> text, a LangChain chat model or LLM (anything with `invoke`), or a LlamaIndex LLM."""


class LLMError(EnvironmentFailure):
    """The language model raised, took too long, or answered nothing."""


def check_llm(model: object) -> LanguageModel | None:
    """The model unchanged.

    Raises:
        UsageError: it is of no known kind.
    """
    known = hasattr(model, "invoke") or hasattr(model, "complete") or callable(model)
    if model is None or (known and not isinstance(model, type)):
        return model
    raise UsageError(
        f"Cannot ask {model!r}: pass a function prompt -> text, or a chat model of LangChain or LlamaIndex "
        "(an instance, not the class)."
    )


def ask_llm(model: LanguageModel, prompt: str, timeout: float) -> str:
    """What the model answers, stripped; never empty.

    Args:
        model: The model.
        prompt: What to say to it.
        timeout: Seconds to wait. A model that answers later is not waited for.

    Raises:
        ModelFailure: it raised, took longer, or answered nothing.
    """
    try:
        text = run_with_timeout(timeout, lambda: call_llm(model, prompt), "agentrag-ask")
    except TimeoutError as error:
        raise LLMError(f"The language model did not answer within {timeout:g} s.") from error
    except Exception as error:
        raise LLMError(
            f"The language model failed: {' '.join(''.join(format_exception_only(error)).split())[:300]}"
        ) from error
    if not isinstance(text, str) or not text.strip():
        raise LLMError(f"The language model answered no text but {text!r:.80}.")
    return text.strip()


def call_llm(model: LanguageModel, prompt: str) -> Any:  # noqa: ANN401  somebody else's answer
    """What a model answers, without any limit or check."""
    if hasattr(model, "invoke"):
        answer = model.invoke(prompt)
    elif hasattr(model, "complete"):
        answer = model.complete(prompt)
    else:
        answer = model(prompt)
    if isinstance(answer, str):
        return answer
    text = getattr(answer, "text", None)
    if callable(text) and not isinstance(text, str):  # a method in older releases of langchain-core
        text = text()
    if isinstance(text, str):
        return str(text)
    return getattr(answer, "content", None)
