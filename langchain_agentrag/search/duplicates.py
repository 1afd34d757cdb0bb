"""Passages that say the same: found among a few candidates by their shingles, exactly. Pure logic."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

ALIKE = 0.8
"""Share of shingles two passages have in common from which on they count as the same, unless another is given."""

_SHINGLE = 4  # characters; words of Chinese have two, so a changed word changes few of them
_PIECES = re.compile(r"\w", re.UNICODE)
_NUMBERS = re.compile(r"\d+")
_DENIALS = re.compile(
    r"\b(?:no|not|never|none|neither|nor|without|cannot|except|unless)\b|n['’]t\b|[不没沒未无無非否勿莫禁]",
    re.IGNORECASE,
)


def same_groups(texts: Sequence[str], least: float = ALIKE) -> list[list[int]]:
    """Positions of texts in groups of near-duplicates; each group begins with its first, and so do the groups.

    Two texts are alike when the Jaccard resemblance of their sets of character shingles is at least `least`: Broder,
    "On the Resemblance and Containment of Documents", 1997. White space, punctuation, case and width do not count.
    Texts with different numbers, or one with a denial more than the other, say different things however alike they
    look.
    A text joins the group whose first member it resembles, so that no chain of small changes leads far away.

    Args:
        texts: Passages, best first.
        least: In (0, 1]; 1 takes only those that differ in nothing that counts.
    """
    groups: list[list[int]] = []
    firsts: list[tuple[frozenset[str], object]] = []
    for place, text in enumerate(texts):
        folded = unicodedata.normalize("NFKC", text).casefold()
        shingles, facts = _shingles(folded), _facts(folded)
        for group, (known, known_facts) in zip(groups, firsts, strict=True):
            if facts == known_facts and resemblance(shingles, known) >= least:
                group.append(place)
                break
        else:
            groups.append([place])
            firsts.append((shingles, facts))
    return groups


def resemblance(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard resemblance of two sets, in [0, 1]; two empty ones are the same."""
    if not one and not other:
        return 1.0
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def _shingles(text: str) -> frozenset[str]:
    letters = "".join(_PIECES.findall(text))
    return frozenset(
        letters[start : start + _SHINGLE] for start in range(max(1, len(letters) - _SHINGLE + 1))
    )


def _facts(text: str) -> object:
    """What must be equal: the numbers, and how often something is denied."""
    return Counter(_NUMBERS.findall(text)), len(_DENIALS.findall(text))
