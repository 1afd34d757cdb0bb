"""What tests say about fenced text: the same but for its random token, or what stands inside."""

from __future__ import annotations

import re

_FENCE = re.compile(r"⟦[^⟧]*? ([0-9a-f]{12})[^⟧]*⟧\s(.*?)\s⟦[^⟧]*\1⟧", re.S)


def without_token(text: str) -> str:
    """The text with every token replaced by the same one."""
    return re.sub(r"(?<=[ ])[0-9a-f]{12}(?=[:：⟧])", "0" * 12, text)


def unfenced(text: str) -> str:
    """The text without the marks around its passages."""
    return _FENCE.sub(lambda match: match[2], text)
