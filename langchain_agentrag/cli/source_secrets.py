"""References to environment variables in a file of sources, and what must never be printed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

_REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\{(?P<bad>[^}]*)\}?)")
_PASSWORD = re.compile(r"://[^/@\s:]*:(?P<password>[^/@\s]+)@")
_SHORTEST = 3  # characters; hiding anything shorter would blot out ordinary words


class Secrets:
    """Fills in `${NAME}` from the environment and remembers what came from there.

    `$${` stands for `${`. What came from the environment and passwords in URLs are replaced by `***` in messages.

    Args:
        environment: Names and values.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._hidden: set[str] = set()

    def fill(self, text: str) -> str:
        """The text with its references replaced.

        Raises:
            KeyError: a variable is not set; the argument is its name.
            ValueError: what stands between the braces is no name.
        """
        filled = _REFERENCE.sub(self._value, text)
        for found in _PASSWORD.finditer(filled):
            self._hide(found["password"])
            self._hide(unquote(found["password"]))
        return filled

    def redact(self, text: str) -> str:
        """The text without anything that must not be printed."""
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _value(self, found: re.Match[str]) -> str:
        if found["escaped"]:
            return "${"
        if found["name"] is None:
            raise ValueError(found["bad"] or "")
        value = self._environment[found["name"]]
        self._hide(value)
        return value

    def _hide(self, value: str) -> None:
        if len(value) >= _SHORTEST:
            self._hidden.add(value)
