"""Whether a text only repeats passages that were shown before, and the text without them. Pure.

An agent that stores what it has just recalled finds it twice the next time, and again and again. Texts are compared by
their letters and digits alone, so that a passage is known again inside JSON, quotes or another layout.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_agentrag.agent.quarantine import Rule, quarantined
from langchain_agentrag.connectors.memory.table import MemoryTable
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn, readable
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.times import check_time
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)

_RUN = 24  # letters and digits in a row that are no coincidence
_LEAST = 6  # of a passage that is shorter than that: below, every other text would hold it
_WHOLE = 8  # letters of a passage that is recognised as a whole
_MOSTLY = 0.8  # of a line that is left out

LEFT_OUT = "[… passage left out / 检索内容略去 …]"


def share_repeated(text: str, passages: Iterable[str]) -> float:
    """Share of a text's letters and digits that repeat one of the passages, in [0, 1]; 0 for a text without any."""
    letters, _ = _letters(text)
    return sum(_repeated(letters, passages)) / len(letters) if letters else 0.0


def holds_whole(text: str, passages: Iterable[str]) -> bool:
    """Whether one of the passages is in the text from its first letter to its last; very short ones do not count."""
    letters, _ = _letters(text)
    return any(len(said) >= _WHOLE and said in letters for said, _ in map(_letters, passages))


def without_repeated(text: str, passages: Sequence[str]) -> str:
    """The text, lines that repeat a passage replaced by one note."""
    letters, places = _letters(text)
    repeated = {place for place, found in zip(places, _repeated(letters, passages), strict=True) if found}
    if not repeated:
        return text
    known, start, kept = set(places), 0, list[str]()
    for line in text.splitlines(keepends=True):
        own = known.intersection(range(start, start + len(line)))
        start += len(line)
        if len(own & repeated) < _MOSTLY * max(len(own), 1):
            kept.append(line)
        elif not kept or kept[-1] != f"{LEFT_OUT}\n":
            kept.append(f"{LEFT_OUT}\n")
    return "".join(kept).rstrip("\n")


def _letters(text: str) -> tuple[str, list[int]]:
    """Letters and digits of a text, folded, and where each of them stands."""
    found = [(char.lower()[0], place) for place, char in enumerate(text) if char.isalnum()]
    return "".join(char for char, _ in found), [place for _, place in found]


def _repeated(letters: str, passages: Iterable[str]) -> list[bool]:
    marks = [False] * len(letters)
    runs: dict[str, list[int]] = {}
    for place in range(len(letters) - _RUN + 1):
        runs.setdefault(letters[place : place + _RUN], []).append(place)
    for passage in passages:
        said, _ = _letters(passage)
        if _LEAST <= len(said) < _RUN:
            place = letters.find(said)
            while place >= 0:
                marks[place : place + len(said)] = [True] * len(said)
                place = letters.find(said, place + len(said))
        for start in range(len(said) - _RUN + 1):
            for place in runs.get(said[start : start + _RUN], ()):
                marks[place : place + _RUN] = [True] * _RUN
    return marks


Redact = Callable[[str], str | None]
"""Makes a text safe to keep; None leaves the whole entry out."""

KINDS = ("dialogue", "tool_call")
"""Types of the documents that are made of entries."""

_REMEMBERED = 20_000  # turns known to be recorded, so that the table need not be asked
_PROBLEMS = 20
_ECHO = 0.3  # share of a result that may repeat what was shown; above, the tool has recalled, and the rest is labels
_LEFT_OUT = "\n[… {:,} of {:,} characters left out / 中间略去 …]\n"


class _LeftOutError(Exception):
    """The caller's function says that an entry is not to be kept."""


class MemoryRecorder:
    """Writes entries to a memory table, then to the store, for one agent at a time.

    Recording never raises: what goes wrong is logged, and told by `problems`. What was written to the table and could
    not be indexed is indexed with the next entries, and by an `AgentMemoryConnector` on the same table.

    Args:
        indexer: The store.
        table: A `MemoryTable`, or the URL or SQLAlchemy engine of the database it is in.
        redact: Called with every text before anything is kept: what was said, results, arguments. When it fails, the
            entry is not kept.
        max_chars: Longest text; of a longer one beginning and end are kept.
        retrieval_tools: Names of further tools whose results are recalled, not new: they are not kept.
        searches: Keep that a search was made, with its arguments and without what was found.
        quarantine: Tells which documents no search finds unless it asks for them (`ingest.quarantine.foreign`: tool
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
        if isinstance(retrieval_tools, str):
            raise UsageError(f"retrieval_tools={retrieval_tools!r} must be a list of names, even of one.")
        if max_chars < 100:  # noqa: PLR2004  below, the note would be longer than what is kept
            raise UsageError(f"max_chars={max_chars!r} must be at least 100.")
        self.table = table if isinstance(table, MemoryTable) else MemoryTable(table)
        self._indexer, self._redact, self._max_chars = indexer, redact, max_chars
        self._retrieval_tools, self._searches = frozenset(retrieval_tools), searches
        self._quarantine = quarantine
        self._guard = threading.RLock()
        self._seen: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._owed: dict[str, list[SourceDocument]] = defaultdict(list)
        self._asked: dict[str, list[SourceDocument]] = defaultdict(list)
        self._problems: deque[str] = deque(maxlen=_PROBLEMS)

    def __repr__(self) -> str:
        return f"MemoryRecorder({self._indexer!r}, {self.table!r})"

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong lately, oldest first; empty when all is well."""
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
        """Keep entries of an agent; how many are new or have changed. A turn that is known already is left as it is.

        Args:
            agent_id: Whose they are.
            entries: Turns and tool calls; those without a position follow in this order.
            recalled: Whether the tool calls are of a retrieval tool.
            asks: Whether this is what the agent is about to answer. It is in the table at once, and can be found after
                `answered`: a search for the answer would find nothing as near as the question itself.
            since: `mark` when the calls began: a result that holds a passage which was shown meanwhile was recalled.
        """
        try:
            agent = _one_agent(agent_id)
            with self._guard:
                self._release(agent, asks=asks)
                return self._record(agent, list(entries), recalled=recalled, asks=asks, since=since)
        except Exception as error:  # noqa: BLE001  whatever it is, the agent goes on
            self._fail(error)
            return 0

    @property
    def mark(self) -> int:
        """How much was shown until now; see `record`."""
        return self._indexer.recent_passages.count

    def answered(self, agent_id: str | None) -> None:
        """The agent has answered: what it was asked can be found from now on."""
        try:
            with self._guard:
                self._release(_one_agent(agent_id), asks=True)
        except Exception as error:  # noqa: BLE001  whatever it is, the agent goes on
            self._fail(error)

    def note(self, error: Exception) -> None:
        """Note that something could not be recorded, for a reason that lies with the caller."""
        self._fail(error)

    def forget(self, agent_id: str, *, session: str | None = None, before: datetime | None = None) -> int:
        """Delete what was recorded of an agent from the table and the store; how many entries.

        Args:
            agent_id: Whose.
            session: Only this session.
            before: Only what happened before this time; as everywhere, without a zone it is UTC.

        Raises:
            ScopeError: no valid agent is named.
            InvalidQueryError: `before` is no time.
        """
        agent = _one_agent(agent_id)
        before = None if before is None else check_time("before", before)
        with self._guard:
            deleted = self.table.delete(agent, session=session, before=before)
            where = {"type": {"$in": list(KINDS)}}
            self._indexer.delete(filter=where, session=session, before=before, agent_id=agent)
            self._seen.clear()
            self._owed.pop(agent, None)
            self._asked.pop(agent, None)
        return deleted

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(
        self, agent: str, entries: Sequence[Entry], *, recalled: bool, asks: bool, since: int | None
    ) -> int:
        fresh = self._fresh(agent, entries)
        shown = self._indexer.recent_passages.to(agent)
        meanwhile = [] if since is None else self._indexer.recent_passages.to(agent, since)
        kept = [
            made for entry in fresh if (made := self._prepared(entry, shown, meanwhile, recalled=recalled))
        ]
        written = self.table.append(agent, kept)
        documents = [self.table.document(agent, entry) for entry in written]
        (self._asked if asks else self._owed)[agent] += [found for found in documents if found is not None]
        for entry in fresh:
            if isinstance(entry, Turn):
                self._seen[agent, entry.session, entry.entry_id] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        self._index(agent)
        return len(written)

    def _release(self, agent: str, *, asks: bool) -> None:
        """Index what was asked before, when something else is asked or it has been answered."""
        if asks and self._asked.get(agent):
            self._owed[agent] += self._asked.pop(agent)
            self._index(agent)

    def _index(self, agent: str) -> None:
        if self._owed[agent]:
            owed = self._owed[agent]
            held = owed if self._quarantine is None else quarantined(owed, self._quarantine)
            self._indexer.index_documents(held, agent)
        del self._owed[agent]

    def _fresh(self, agent: str, entries: Sequence[Entry]) -> list[Entry]:
        """Entries but for turns that were recorded before, by this process or another."""
        asked: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            if isinstance(entry, Turn) and (agent, entry.session, entry.entry_id) not in self._seen:
                asked[entry.session].append(entry.entry_id)
        known = {
            (session, found)
            for session, ids in asked.items()
            for found in self.table.known(agent, session, ids)
        }
        return [
            entry
            for entry in entries
            if not isinstance(entry, Turn)
            or (entry.entry_id in asked[entry.session] and (entry.session, entry.entry_id) not in known)
        ]

    def _prepared(
        self, entry: Entry, shown: Sequence[str], meanwhile: Sequence[str], *, recalled: bool
    ) -> Entry | None:
        """The entry as it may be kept: nothing recalled, redacted, then cut. None when it is not to be kept."""
        try:
            if isinstance(entry, Turn):
                text = without_repeated(entry.text, shown) if entry.role == "user" else entry.text
                return replace(entry, text=self._clean(text))
            named = recalled or entry.tool in self._retrieval_tools
            return self._prepared_call(entry, shown, recalled=named or _repeats(entry, shown, meanwhile))
        except _LeftOutError:
            return None
        except Exception as error:  # noqa: BLE001  of the caller's function, whose message may quote the text
            self._fail(UsageError(f"redact() failed with {type(error).__name__}: the entry was not kept."))
            return None

    def _prepared_call(self, call: ToolCall, shown: Sequence[str], *, recalled: bool) -> ToolCall | None:
        result = readable(call.result or "")  # as it will be read, so that redact() sees no escapes
        if recalled:
            if not self._searches:
                return None
            call = replace(call, result=None, parts=(), extra={**call.extra, "recalled": True})
        clean = None if call.result is None else self._clean(without_repeated(result, shown))
        return replace(call, result=clean, arguments=self._clean_value(call.arguments))

    def _clean(self, text: str) -> str:
        redacted = text if self._redact is None or not text else self._redact(text)
        if redacted is None:
            raise _LeftOutError
        return shortened(redacted, self._max_chars)

    def _clean_value(self, value: Any) -> Any:  # noqa: ANN401  (what a model wrote as JSON)
        if isinstance(value, str):
            return self._clean(readable(value))
        if isinstance(value, Mapping):
            return {str(key): self._clean_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean_value(item) for item in value]
        return value

    def _fail(self, error: Exception) -> None:
        self._problems.append(f"{type(error).__name__}: {error}")
        logger.warning("a memory was not recorded, or not indexed: %s", error, exc_info=error)


def _repeats(call: ToolCall, shown: Sequence[str], meanwhile: Sequence[str]) -> bool:
    """Whether a call has brought back what the store had shown rather than anything new."""
    result = readable(call.result or "")
    return holds_whole(result, meanwhile) or share_repeated(result, shown) >= _ECHO


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and end with a note of how much lies between, at most `most` characters."""
    if len(text) <= most:
        return text
    longest = _LEFT_OUT.format(len(text), len(text))
    room = most - len(longest)
    head = room * 2 // 3
    return text[:head] + _LEFT_OUT.format(len(text) - room, len(text)) + text[len(text) - (room - head) :]


def _one_agent(agent_id: str | None) -> str:
    agent = check_agent_id(agent_id)
    if agent is None:
        raise ScopeError(
            "Memories are recorded for one agent: name it, since every agent would see shared ones."
        )
    return agent
