"""Synonyms: words of a query that stand for one another. They widen the query, so the index stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text.user_words import UserWords

_FEWEST = 2  # words of a group


class Synonyms:
    """Groups of words, any of which a query may hold for any other: ("k8s", "Kubernetes"), ("退款", "refund").

    Attributes:
        groups: The groups in folded form, sorted.

    Raises:
        UsageError: a group has fewer than two different words, or a word could never be found.
    """

    def __init__(self, groups: Iterable[Iterable[str]]) -> None:
        if isinstance(groups, str) or not isinstance(groups, Iterable):
            raise UsageError(f"synonyms must be groups of words, got {groups!r}: pass a list of lists.")
        self.groups = tuple(sorted({_group(group) for group in groups}))
        self._finder = UserWords(word for group in self.groups for word in group)
        self._others: dict[str, tuple[str, ...]] = {}
        for group in self.groups:
            for word in group:
                rest = (*self._others.get(word, ()), *(other for other in group if other != word))
                self._others[word] = tuple(dict.fromkeys(rest))

    def __bool__(self) -> bool:
        return bool(self.groups)

    def words(self) -> tuple[str, ...]:
        """Every word that has a synonym."""
        return tuple(self._others)

    def others(self, word: str) -> tuple[str, ...]:
        """What else says the same as one of `words`."""
        return self._others[word]

    def found(self, folded: str) -> set[str]:
        """Those of `words` that a folded text holds."""
        spans = self._finder.find(folded)
        held = {term for term, _, _ in spans}
        return {word for word in self._others if word.replace(" ", "_") in held}


def _group(words: Iterable[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError(f"A group of synonyms must be words, got {words!r}: pass a list of words.")
    group = UserWords(words).words
    if len(group) < _FEWEST:
        raise UsageError(f"Synonyms {group!r} are fewer than two different words: name what they stand for.")
    return group
