"""Call a language model of any framework with a prompt and a timeout."""

from __future__ import annotations

from collections.abc import Callable
from traceback import format_exception_only
from typing import Any, TypeAlias

from langchain_agentrag.errors import EnvironmentFailure, UsageError
from langchain_agentrag.timeouts import run_with_timeout

LanguageModel: TypeAlias = Callable[[str], Any] | Any
"""A function prompt -> text, a LangChain chat model or LLM (anything with `invoke`), or a LlamaIndex LLM."""


class LLMError(EnvironmentFailure):
    """The language model raised an error, timed out, or returned no text."""


def check_llm(model: object) -> LanguageModel | None:
    """Return the model unchanged; raise UsageError if it is none of `LanguageModel`."""
    supported = hasattr(model, "invoke") or hasattr(model, "complete") or callable(model)
    if model is None or (supported and not isinstance(model, type)):
        return model
    raise UsageError(
        f"Cannot use {model!r} as a language model: pass a function prompt -> text, or a chat model of LangChain or "
        "LlamaIndex (an instance, not the class)."
    )


def ask_llm(model: LanguageModel, prompt: str, timeout: float) -> str:
    """Return a model's answer to a prompt, stripped and not empty.

    Raises:
        LLMError: the model raised an error, took longer than `timeout` seconds, or returned no text.
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
        raise LLMError(f"The language model returned {text!r:.80}, which is not text.")
    return text.strip()


def call_llm(model: LanguageModel, prompt: str) -> Any:  # noqa: ANN401  the type is the model's
    """Return a model's answer as it is, without timeout or check."""
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
