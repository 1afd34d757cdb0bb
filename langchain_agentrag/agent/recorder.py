"""Recording of an agent's turns and tool calls to a memory table and the store: `MemoryRecorder`.

An agent that stores what it has just retrieved finds it twice the next time, and again and again. Texts that repeat
recently shown passages are therefore left out. They are compared by letters and digits alone, so that a passage is
recognised inside JSON, quotes or another layout.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_agentrag.agent.quarantine import Rule, quarantined
from langchain_agentrag.connectors.memory.table import MemoryTable
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn, readable
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.times import check_time
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)

Redact = Callable[[str], str | None]
"""Makes a text safe to store; None leaves the whole entry out."""

KINDS = ("dialogue", "tool_call")
"""Types of the documents that are made from entries."""

_MAX_SEEN = 20_000  # turns known to be recorded, which the table need not be asked for
_MAX_PROBLEMS = 20
_RECALLED = 0.3  # share of a result that may repeat shown passages; above it, the tool has recalled them


class _LeftOutError(Exception):
    """`redact` returned None: the entry is not recorded."""


class MemoryRecorder:
    """Writes entries to a memory table, then to the store, for one agent at a time.

    Recording never raises: errors are logged and listed in `problems`. Entries that were written to the table and could
    not be indexed are indexed with the next ones, and by an `AgentMemoryConnector` on the same table.

    Args:
        indexer: The store.
        table: A `MemoryTable`, or the URL or SQLAlchemy engine of its database.
        redact: Called with every text before it is stored: turns, results, arguments. If it fails, the entry is not
            recorded.
        max_chars: Longest text; of a longer one beginning and end are stored.
        retrieval_tools: Names of further tools whose results are recalled, not new: they are not recorded.
        searches: Record that a search was made, with its arguments and without its results.
        quarantine: Selects documents that searches return only on request (`agent.quarantine.is_low_trust`: tool
            output); None for none.
    """

    def __init__(
        self,
        indexer: DualIndexer,
        table: Any,  # noqa: ANN401  (see Args)
        *,
        redact: Redact | None = None,
        max_chars: int = 8_000,
        retrieval_tools: Collection[str] = (),
        searches: bool = False,
        quarantine: Rule | None = None,
    ) -> None:
        self._indexer = check_indexer(indexer, "MemoryRecorder")
        if isinstance(retrieval_tools, str):
            raise UsageError(f"retrieval_tools={retrieval_tools!r} must be a list of names, even for one.")
        if max_chars < 100:  # noqa: PLR2004  a shorter text would have no room beside the note
            raise UsageError(f"max_chars={max_chars!r} must be at least 100.")
        self.table = table if isinstance(table, MemoryTable) else MemoryTable(table)
        self._redact, self._max_chars = redact, max_chars
        self._retrieval_tools, self._searches = frozenset(retrieval_tools), searches
        self._quarantine = quarantine
        self._lock = threading.RLock()
        self._seen: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._unindexed: dict[str, list[SourceDocument]] = defaultdict(list)
        self._unanswered: dict[str, list[SourceDocument]] = defaultdict(list)
        self._problems: deque[str] = deque(maxlen=_MAX_PROBLEMS)

    def __repr__(self) -> str:
        return f"MemoryRecorder({self._indexer!r}, {self.table!r})"

    @property
    def problems(self) -> tuple[str, ...]:
        """Recent errors, oldest first."""
        return tuple(self._problems)

    def record(
        self,
        agent_id: str | None,
        entries: Iterable[Entry],
        *,
        recalled: bool = False,
        asks: bool = False,
        since: int | None = None,
    ) -> int:
        """Record entries of an agent and return how many are new or changed. Turns that were recorded before stay.

        Args:
            agent_id: The agent.
            entries: Turns and tool calls; those without a position follow in this order.
            recalled: Whether the tool calls are of a retrieval tool.
            asks: Whether the entries are the question that the agent is about to answer. They are written to the table
                at once and indexed by `answered`: a search for the answer would find the question itself first.
            since: `mark` from before the calls: a result that contains a passage shown since then was recalled.
        """
        try:
            agent = _check_agent(agent_id)
            with self._lock:
                if asks:
                    self._index_question(agent)
                return self._record(agent, list(entries), recalled=recalled, asks=asks, since=since)
        except Exception as error:  # noqa: BLE001  recording must not stop the agent
            self.note(error)
            return 0

    @property
    def mark(self) -> int:
        """Number of passages shown so far; see `record`."""
        return self._indexer.recent_passages.count

    def answered(self, agent_id: str | None) -> None:
        """Index the question that the agent has now answered."""
        try:
            with self._lock:
                self._index_question(_check_agent(agent_id))
        except Exception as error:  # noqa: BLE001  recording must not stop the agent
            self.note(error)

    def note(self, error: Exception) -> None:
        """Log an error and add it to `problems`."""
        self._problems.append(f"{type(error).__name__}: {error}")
        logger.warning("a memory was not recorded, or not indexed: %s", error, exc_info=error)

    def forget(
        self, agent_id: str, *, session: str | None = None, before: datetime | timedelta | str | None = None
    ) -> int:
        """Erase recorded entries of an agent from the table and the store, and return how many.

        Args:
            agent_id: The agent.
            session: Only of this session.
            before: Only from before this time, as for `DualIndexer.delete`; "30d" keeps those of the last 30 days.

        Raises:
            ScopeError: the agent is not valid.
            InvalidQueryError: `before` is not a time.
            StoreError: nothing finds them any more, but some could not be erased from the store's files yet.
        """
        agent = _check_agent(agent_id)
        before = None if before is None else check_time("before", before, datetime.now(UTC))
        with self._lock:
            self._seen.clear()
            self._unindexed.pop(agent, None)
            self._unanswered.pop(agent, None)
            deleted = self.table.delete(agent, session=session, before=before)
            where = {"type": {"$in": list(KINDS)}}
            self._indexer.erase(filter=where, session=session, before=before, agent_id=agent)
        return deleted

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self, agent: str, entries: Sequence[Entry], *, recalled: bool, asks: bool, since: int | None) -> int:
        new = self._new_entries(agent, entries)
        shown = self._indexer.recent_passages.to(agent)
        shown_since = [] if since is None else self._indexer.recent_passages.to(agent, since)
        prepared = (self._prepare(entry, shown, shown_since, recalled=recalled) for entry in new)
        written = self.table.append(agent, [entry for entry in prepared if entry])
        documents = [self.table.document(agent, entry) for entry in written]
        pending = self._unanswered if asks else self._unindexed
        pending[agent] += [document for document in documents if document is not None]
        for entry in new:
            if isinstance(entry, Turn):
                self._seen[agent, entry.session, entry.entry_id] = None
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
        self._index(agent)
        return len(written)

    def _index_question(self, agent: str) -> None:
        """Index the last question, when it has been answered or the next one is asked."""
        if self._unanswered.get(agent):
            self._unindexed[agent] += self._unanswered.pop(agent)
            self._index(agent)

    def _index(self, agent: str) -> None:
        documents = self._unindexed[agent]
        if documents:
            marked = documents if self._quarantine is None else quarantined(documents, self._quarantine)
            self._indexer.index_documents(marked, agent)
        del self._unindexed[agent]

    def _new_entries(self, agent: str, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries without turns that were recorded before, by this process or another."""
        unseen: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            if isinstance(entry, Turn) and (agent, entry.session, entry.entry_id) not in self._seen:
                unseen[entry.session].append(entry.entry_id)
        new = {
            (session, entry_id)
            for session, ids in unseen.items()
            for entry_id in set(ids) - set(self.table.known(agent, session, ids))
        }
        return [e for e in entries if not isinstance(e, Turn) or (e.session, e.entry_id) in new]

    def _prepare(
        self, entry: Entry, shown: Sequence[str], shown_since: Sequence[str], *, recalled: bool
    ) -> Entry | None:
        """Return the entry without recalled text, redacted, then cut; None if it is not to be recorded."""
        try:
            if isinstance(entry, Turn):
                text = remove_repeated(entry.text, shown) if entry.role == "user" else entry.text
                return replace(entry, text=self._clean(text))
            return self._prepare_call(entry, shown, shown_since, recalled=recalled)
        except _LeftOutError:
            return None
        except Exception as error:  # noqa: BLE001  from `redact`; its message may quote the text
            self.note(UsageError(f"redact() failed with {type(error).__name__}: the entry was not recorded."))
            return None

    def _prepare_call(
        self, call: ToolCall, shown: Sequence[str], shown_since: Sequence[str], *, recalled: bool
    ) -> ToolCall | None:
        result = readable(call.result or "")  # without escapes, which `redact` would not recognise
        if (
            recalled
            or call.tool in self._retrieval_tools
            or contains_passage(result, shown_since)
            or repeated_share(result, shown) >= _RECALLED
        ):
            if not self._searches:
                return None
            call = replace(call, result=None, parts=(), extra={**call.extra, "recalled": True})
        clean = None if call.result is None else self._clean(remove_repeated(result, shown))
        return replace(call, result=clean, arguments=self._clean_value(call.arguments))

    def _clean(self, text: str) -> str:
        redacted = text if self._redact is None or not text else self._redact(text)
        if redacted is None:
            raise _LeftOutError
        return shorten(redacted, self._max_chars)

    def _clean_value(self, value: Any) -> Any:  # noqa: ANN401  (JSON that a model wrote)
        if isinstance(value, str):
            return self._clean(readable(value))
        if isinstance(value, Mapping):
            return {str(key): self._clean_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean_value(item) for item in value]
        return value


def _check_agent(agent_id: str | None) -> str:
    agent = check_agent_id(agent_id)
    if agent is None:
        raise ScopeError("Memories are recorded for one agent: name it, since shared ones are open to every agent.")
    return agent


_OMITTED = "\n[… {:,} of {:,} characters left out / 中间略去 …]\n"


def shorten(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters: beginning, a note of how much was left out, end."""
    if len(text) <= limit:
        return text
    room = limit - len(_OMITTED.format(len(text), len(text)))
    head = room * 2 // 3
    return text[:head] + _OMITTED.format(len(text) - room, len(text)) + text[len(text) - (room - head) :]


# -- repeated passages ------------------------------------------------------------------------------------------------

REPEATED_NOTE = "[… passage left out / 检索内容略去 …]"
"""Stands in a text for lines that repeat passages."""

# in letters and digits
_RUN = 24  # a common run of this length is no coincidence
_MIN_PASSAGE = 6  # a shorter passage is ignored: it would be in any text
_MIN_WHOLE_PASSAGE = 8  # likewise, for `contains_passage`
_REPEATED_LINE = 0.8  # share of a line that repeats passages, above which it is removed


def repeated_share(text: str, passages: Iterable[str]) -> float:
    """Return the share of a text's letters and digits that repeat a passage, in [0, 1]; 0 for a text without any."""
    letters, _ = _letters(text)
    return sum(_repeated(letters, passages)) / len(letters) if letters else 0.0


def contains_passage(text: str, passages: Iterable[str]) -> bool:
    """Return whether the text contains a whole passage; very short passages are ignored."""
    letters, _ = _letters(text)
    return any(len(whole) >= _MIN_WHOLE_PASSAGE and whole in letters for whole, _ in map(_letters, passages))


def remove_repeated(text: str, passages: Sequence[str]) -> str:
    """Return the text with each group of lines that repeat a passage replaced by `REPEATED_NOTE`."""
    letters, offsets = _letters(text)
    repeated = {offset for offset, flag in zip(offsets, _repeated(letters, passages), strict=True) if flag}
    if not repeated:
        return text
    letter_offsets, start, lines = set(offsets), 0, list[str]()
    for line in text.splitlines(keepends=True):
        in_line = letter_offsets.intersection(range(start, start + len(line)))
        start += len(line)
        if len(in_line & repeated) < _REPEATED_LINE * max(len(in_line), 1):
            lines.append(line)
        elif not lines or lines[-1] != f"{REPEATED_NOTE}\n":
            lines.append(f"{REPEATED_NOTE}\n")
    return "".join(lines).rstrip("\n")


def _letters(text: str) -> tuple[str, list[int]]:
    """Return the letters and digits of a text in lower case, and the offset of each."""
    letters = [(char.lower()[0], offset) for offset, char in enumerate(text) if char.isalnum()]
    return "".join(char for char, _ in letters), [offset for _, offset in letters]


def _repeated(letters: str, passages: Iterable[str]) -> list[bool]:
    """Return for each letter whether it is part of a run that a passage has too."""
    flags = [False] * len(letters)
    starts: dict[str, list[int]] = {}
    for start in range(len(letters) - _RUN + 1):
        starts.setdefault(letters[start : start + _RUN], []).append(start)
    for passage in passages:
        other, _ = _letters(passage)
        if _MIN_PASSAGE <= len(other) < _RUN:
            start = letters.find(other)
            while start >= 0:
                flags[start : start + len(other)] = [True] * len(other)
                start = letters.find(other, start + len(other))
        for other_start in range(len(other) - _RUN + 1):
            for start in starts.pop(other[other_start : other_start + _RUN], ()):  # each run is flagged once
                flags[start : start + _RUN] = [True] * _RUN
    return flags
