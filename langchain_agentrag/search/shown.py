"""Passages that were lately shown on behalf of each agent, so that a recorder knows them when they come back."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable

_PASSAGES = 64  # remembered per caller
_CALLERS = 256


class Shown:
    """Texts of the last hits and passages per caller, in memory only. Thread-safe; one caller never sees another's.

    Attributes:
        count: How many were shown so far; a mark for `to`.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[str | None, deque[tuple[int, str]]] = OrderedDict()
        self._guard = threading.Lock()
        self.count = 0

    def note(self, agent_id: str | None, texts: Iterable[str]) -> None:
        """Remember that an agent, or a caller without identity, was shown texts."""
        with self._guard:
            held = self._texts.setdefault(agent_id, deque(maxlen=_PASSAGES))
            for text in texts:
                self.count += 1
                held.append((self.count, text))
            self._texts.move_to_end(agent_id)
            while len(self._texts) > _CALLERS:
                self._texts.popitem(last=False)

    def to(self, agent_id: str | None, since: int = 0) -> list[str]:
        """What an agent was shown since a mark, and callers without identity: its retriever may be bound to nobody."""
        with self._guard:
            held = [self._texts.get(caller, ()) for caller in dict.fromkeys((agent_id, None))]
            return [text for texts in held for number, text in texts if number > since]

    def forget(self, agent_id: str) -> None:
        """Forget what an agent was shown."""
        with self._guard:
            self._texts.pop(agent_id, None)
