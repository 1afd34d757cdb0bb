"""Texts that a model or a user reads, in several languages: the files `messages.toml` of the subpackages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache


@cache
def load_messages(package: str, subject: str, language: str) -> Mapping[str, str]:
    """Return the messages about a subject in a language, by key.

    Args:
        package: Subpackage whose folder contains the file: "agent".
        subject: Table of the file; its entries are `key.language = "text"`.
        language: "en" or "zh", or another language that all messages about the subject have.

    Raises:
        KeyError: there is no such subject, or a message is missing in the language.
    """
    messages = _load_file(package)[subject]
    missing = [key for key, texts in messages.items() if language not in texts]
    if missing:
        raise KeyError(f"{package}/messages.toml has no text {subject}.{missing[0]}.{language}: add it")
    return {key: texts[language] for key, texts in messages.items()}


@cache
def _load_file(package: str) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    import tomllib
    from importlib.resources import files

    path = files("langchain_agentrag") / package / "messages.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
