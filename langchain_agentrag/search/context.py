"""Questions that lean on the conversation before them."""

from __future__ import annotations

from collections.abc import Mapping

_LESS = 0.5  # weight of a word of the conversation beside one of the question


def with_supplement(
    asked: Mapping[str, Mapping[str, float]], added: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Weighted terms of a question with those of the conversation at less weight."""
    merged = {field: dict(terms) for field, terms in asked.items()}
    for field, terms in added.items():
        known = merged.setdefault(field, {})
        for term, weight in terms.items():
            known[term] = max(known.get(term, 0.0), _LESS * weight)
    return merged
