"""`memory_text`: items of a LangGraph store as fenced text for a model."""

from __future__ import annotations

import json
from collections.abc import Iterable

from langgraph.store.base import Item

from langchain_agentrag.agent.prompt_injection import FenceLanguage, PassageSafety
from langchain_agentrag.agent.tool_replies import json_safe


def memory_text(items: Iterable[Item], *, safety: PassageSafety | None = None, language: FenceLanguage = "both") -> str:
    """Return items of a store as text for a model, one fenced line per item with namespace, key and value.

    Args:
        items: Results of `search` or `get` of any LangGraph store.
        safety: Protection against prompt injection; `PassageSafety.off()` turns it off.
        language: Language of the marks.
    """
    safety = safety or PassageSafety()
    fence = safety.fence(language)
    return "\n".join(
        fence.wrap(
            json.dumps(json_safe(item.value), ensure_ascii=False),
            item.value,
            names=f"namespace={safety.identifier(list(item.namespace))} key={safety.identifier(item.key)}",
        )
        for item in items
    )
