"""Who said it: a question that names a speaker is answered by that speaker's words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from langchain_agentrag.analysis.fold import fold
from langchain_agentrag.analysis.user_words import LONGEST_USER_WORD, UserWords, comparable

OTHERS_SHARE = 0.7
"""What is left of the score of somebody else's words. `benchmarks/quality.py`: locomo gains .03, and of the answers
that came first from another speaker than the one asked for, 1 in 20 was right."""

_ROLES = frozenset(
    ["user", "assistant", "system", "tool", "human", "ai", "bot", "model", "agent", "function"]
)
_SHORTEST = 2  # characters of a part of a name that may stand for it


def named(query: str, speakers: Iterable[str]) -> set[str]:
    """Those of the speakers whom the query names, by the whole name or one word of it; a role is no name."""
    text, found = fold(query), set()
    for speaker in speakers:
        known = _known_by(speaker)
        if known and UserWords(known).find(text):
            found.add(speaker)
    return found


def said_by_others(query: str, speakers: Mapping[int, str]) -> dict[int, str]:
    """Row → who was asked for, of every row that is somebody else's words; empty when the query names nobody.

    Args:
        query: The question.
        speakers: Row → who speaks; a row that nobody says is no other's.
    """
    asked = named(query, set(speakers.values()))
    if not asked:
        return {}
    names = ", ".join(sorted(asked))
    return {row: names for row, speaker in speakers.items() if speaker not in asked}


def _known_by(speaker: str) -> list[str]:
    name = comparable(fold(speaker)).strip()
    parts = [part for part in name.split() if len(part) >= _SHORTEST]
    return [
        word
        for word in {name, *parts}
        if word not in _ROLES and len(word) <= LONGEST_USER_WORD and any(map(str.isalnum, word))
    ]
