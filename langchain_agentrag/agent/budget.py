"""How much an agent may retrieve, and when it should stop: `RetrievalBudget`. Pure: what happened goes in as records.

A call that was made is accounted with what it found. Before the next ones are made, `RetrievalBudget.plan` says of each
whether it is made, repeats an earlier one, or is one too many. Calls of one step are planned in their order and each
counts those before it, so that running them in parallel gives no more than running them in turn.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.text import Analyzer
from langchain_agentrag.text.tokenizer import STOP_WORDS, fold, fold_case

Kind = Literal["search", "read"]
Limit = Literal["searches", "reads", "characters", "seconds", "idle"]

_HEAD = 80  # characters of a passage that a list of what was found shows
_QUERIES = frozenset({"query", "q", "question", "search_query", "text", "input", "tool_input", "keywords"})
_MARKS = r",;:!?\"'()\[\]{}`、。「」『』《》〈〉【】“”‘’…—·"
_BETWEEN = re.compile(rf"\s+|(?<![a-zA-Z0-9])[{_MARKS}.]+|[{_MARKS}.]+(?![a-zA-Z0-9])")
_SIGN = re.compile(r"[<>=≤≥≠±$€£¥%]|(?<!\w)[-\u2212](?=\d)")
_RELATING = STOP_WORDS | {
    *("without", "since"),
    *("前", "后", "之前", "之后", "以前", "以后", "大于", "小于", "高于", "低于"),
}
_COUNTED: Mapping[Kind, Limit] = {"search": "searches", "read": "reads"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Most of each kind; None for no limit.

    Attributes:
        searches: Searches that are made.
        reads: Passages that are opened.
        characters: Of everything that searching and reading answered.
        seconds: That the model and the retrieval tools took; a run that waits for a person takes none.
    """

    searches: int | None = None
    reads: int | None = None
    characters: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("searches", "reads", "characters"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise UsageError(f"{name}={value!r} must be a whole number, 0 or more, or None for no limit.")
        _check_number("seconds", self.seconds, 0, math.inf)


@dataclass(frozen=True, slots=True)
class RetrievalBudget:
    """What one run may retrieve, and one conversation.

    Attributes:
        searches, reads, characters, seconds: Of one run; see `Limits`.
        conversation: Of all runs of a conversation together.
        overlap: Share of common hits (Jaccard: those in both of those in either) from which on two searches in a row
            are told to have found the same.
        patience: How many calls in a row may bring nothing new before retrieval ends.
    """

    searches: int | None = 12
    reads: int | None = 24
    characters: int | None = 100_000
    seconds: float | None = None
    conversation: Limits = field(default_factory=Limits)
    overlap: float = 0.8
    patience: int = 4

    def __post_init__(self) -> None:
        _ = self.run
        if not isinstance(self.conversation, Limits):
            raise UsageError(f"conversation={self.conversation!r} must be Limits(…); Limits() for no limit.")
        if self.overlap is None:
            raise UsageError(
                "overlap=None must be a number from 0 to 1; 1 for searches that find just the same."
            )
        _check_number("overlap", self.overlap, 0, 1)
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 1:
            raise UsageError(f"patience={self.patience!r} must be a whole number, 1 or more.")

    @property
    def run(self) -> Limits:
        """The limits of a run."""
        return Limits(self.searches, self.reads, self.characters, self.seconds)

    @property
    def timed(self) -> bool:
        """Whether time is limited."""
        return self.seconds is not None or self.conversation.seconds is not None

    def closed(self, ledger: Ledger) -> dict[Kind, Limit]:
        """The kinds of calls that are over, and the limit that ended each."""
        over = set()
        for limits, used in ((self.run, ledger.run), (self.conversation, ledger.conversation)):
            for name in ("searches", "reads", "characters", "seconds"):
                most = getattr(limits, name)
                if most is not None and getattr(used, name) >= most:
                    over.add(name)
        if ledger.idle >= self.patience:
            over.add("idle")
        found: dict[Kind, Limit] = {}
        for kind, counted in _COUNTED.items():
            limit = next((name for name in (counted, "characters", "seconds", "idle") if name in over), None)
            if limit is not None:
                found[kind] = limit
        return found

    def left(self, ledger: Ledger) -> dict[str, int]:
        """Searches, reads and characters that are left, of those that are limited."""
        found: dict[str, int] = {}
        for limits, used in ((self.run, ledger.run), (self.conversation, ledger.conversation)):
            for name in ("searches", "reads", "characters"):
                most = getattr(limits, name)
                if most is not None:
                    found[name] = max(0, min(found.get(name, most), most - getattr(used, name)))
        return found

    def plan(self, ledger: Ledger, calls: Sequence[Asked]) -> list[Verdict]:
        """What is to be done with each call of a step, in their order."""
        made: list[Asked] = []
        verdicts = []
        for call in calls:
            closed, before = self.closed(ledger), ledger.made_before(call)
            if call.kind in closed:
                verdicts.append(Verdict("over", limit=closed[call.kind]))
            elif before is not None:
                verdicts.append(Verdict("repeat", of=before))
                ledger = replace(ledger, idle=ledger.idle + 1)
            elif any((other.kind, other.key) == (call.kind, call.key) for other in made):
                verdicts.append(Verdict("twin"))
            else:
                verdicts.append(Verdict("make"))
                made.append(call)
                ledger = replace(
                    ledger, run=ledger.run.plus(call.kind), conversation=ledger.conversation.plus(call.kind)
                )
        return verdicts

    def same_as(self, ledger: Ledger, refs: Sequence[str]) -> Call | None:
        """The search before, when one that found these passages found the same; None for one that found nothing."""
        last = next((call for call in reversed(ledger.calls) if call.kind == "search"), None)
        if last is None or not refs:
            return None
        common, either = set(refs) & set(last.refs), set(refs) | set(last.refs)
        return last if len(common) >= self.overlap * len(either) else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A call before it is made.

    Attributes:
        kind: Whether it searches or reads.
        key: The same for near-identical calls; see `key_of`.
    """

    kind: Kind
    key: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with a call: made; answered from an earlier one, or by its twin of the same step; or refused.

    Attributes:
        what: "make", "repeat", "twin" or "over".
        of: The earlier call, of a repeat.
        limit: What is used up.
    """

    what: Literal["make", "repeat", "twin", "over"]
    of: Call | None = None
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was made.

    Attributes:
        number: From 1, within the run.
        kind, key: See `Asked`.
        asked: What was asked, for people.
        refs: Passages that it found or read, "doc_id#chunk_id", best first.
        heads: The beginning of each passage.
        call_id: Where its full answer stands.
    """

    number: int
    kind: Kind
    key: str
    asked: str
    refs: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    call_id: str = ""

    def as_json(self) -> dict[str, Any]:
        """The call in what JSON has."""
        return {
            "number": self.number,
            "kind": self.kind,
            "key": self.key,
            "asked": self.asked,
            "refs": list(self.refs),
            "heads": list(self.heads),
            "call_id": self.call_id,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Call:
        """The call that was stored."""
        return cls(**{**stored, "refs": tuple(stored["refs"]), "heads": tuple(stored["heads"])})


@dataclass(frozen=True, slots=True)
class Used:
    """What was used so far."""

    searches: int = 0
    reads: int = 0
    characters: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The use in what JSON has."""
        return {
            "searches": self.searches,
            "reads": self.reads,
            "characters": self.characters,
            "seconds": self.seconds,
        }

    def plus(self, kind: Kind | None, characters: int = 0, seconds: float = 0.0) -> Used:
        """The sum with one more call."""
        return Used(
            self.searches + (kind == "search"),
            self.reads + (kind == "read"),
            self.characters + characters,
            self.seconds + seconds,
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run has retrieved, and what its conversation has used.

    Attributes:
        question: What the run is about.
        run, conversation: What was used.
        calls: That were made in this run.
        idle: Calls in a row that brought nothing new.
        refused: Calls that were made after the end of the budget.
        told: How much of each part of the question the passages hold; see `sufficiency`.
        settled: Id of the last message whose calls were accounted.
    """

    question: str = ""
    run: Used = field(default_factory=Used)
    conversation: Used = field(default_factory=Used)
    calls: tuple[Call, ...] = ()
    idle: int = 0
    refused: int = 0
    told: tuple[float, ...] = ()
    settled: str = ""

    def begun(self, question: str) -> Ledger:
        """The ledger of a new run in the same conversation."""
        return Ledger(question, conversation=self.conversation, settled=self.settled)

    def made_before(self, asked: Asked) -> Call | None:
        """An equal call of this run."""
        return next((call for call in self.calls if (call.kind, call.key) == (asked.kind, asked.key)), None)

    def brings_new(self, kind: Kind, refs: Iterable[str]) -> bool:
        """Whether one of the passages was not found, or read, before in this run."""
        return not set(refs) <= {ref for call in self.calls if call.kind == kind for ref in call.refs}

    def with_call(self, call: Call, characters: int, seconds: float, *, same: bool = False) -> Ledger:
        """The ledger after a call; `same` for one that was told to have found the same as the one before."""
        new = self.brings_new(call.kind, call.refs) and not same
        return replace(
            self,
            run=self.run.plus(call.kind, characters, seconds),
            conversation=self.conversation.plus(call.kind, characters, seconds),
            calls=(*self.calls, replace(call, number=len(self.calls) + 1)),
            idle=0 if new else self.idle + 1,
        )

    def with_use(self, characters: int = 0, seconds: float = 0.0) -> Ledger:
        """The ledger after what was no call."""
        return replace(
            self,
            run=self.run.plus(None, characters, seconds),
            conversation=self.conversation.plus(None, characters, seconds),
        )

    def as_json(self) -> dict[str, Any]:
        """The ledger in what JSON has."""
        return {
            "question": self.question,
            "run": self.run.as_json(),
            "conversation": self.conversation.as_json(),
            "calls": [call.as_json() for call in self.calls],
            "idle": self.idle,
            "refused": self.refused,
            "told": list(self.told),
            "settled": self.settled,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Ledger:
        """The ledger that was stored; an empty one for None."""
        if not stored:
            return cls()
        return cls(
            question=stored["question"],
            run=Used(**stored["run"]),
            conversation=Used(**stored["conversation"]),
            calls=tuple(map(Call.from_json, stored["calls"])),
            idle=stored["idle"],
            refused=stored["refused"],
            told=tuple(stored["told"]),
            settled=stored["settled"],
        )


def head_of(text: str) -> str:
    """The beginning of a passage on one line."""
    line = " ".join(text[: 4 * _HEAD].split())
    return line if len(line) <= _HEAD else f"{line[: _HEAD - 1]}…"


def key_of(kind: Kind, arguments: Mapping[str, Any]) -> str:
    """The same text for near-identical calls.

    The query of a search counts by its words, whatever their punctuation, width, case, simplified or traditional; every
    word counts, "without" and 不 too, and so do the signs of a comparison, a currency or a negative number.
    Keywords may stand in any order. Where order says something it counts: within Chinese written without a space
    (重启前备份 is not 备份前重启), and beside words such as "from" or 到. Anything else, such as SQL, a filter or the
    address of a reading, counts by its value; what is empty counts like what was left out.
    """
    given = {name: value for name, value in arguments.items() if value not in (None, "", {}, [])}
    if kind == "search":
        given = {
            name: _words_of(value) if name in _QUERIES and isinstance(value, str) else value
            for name, value in given.items()
        }
    try:
        return canonical(given)
    except UsageError:
        return short_repr(given)


def _words_of(text: str) -> list[list[str]]:
    """The words of each stretch between spaces and punctuation; in any order where none of them relates the others."""
    folded = fold(text)
    stretches = [words for words in map(_stretch, _BETWEEN.split(folded)) if words]
    if not any(all(word in _relating() or _SIGN.fullmatch(word) for word in words) for words in stretches):
        stretches.sort()
    return stretches or [[fold_case(folded)]]


def _stretch(text: str) -> list[str]:
    return [*_every_word().analyze(text).words, *_SIGN.findall(text)]


@cache
def _relating() -> frozenset[str]:
    return _RELATING | {stem for word in _RELATING for stem in _every_word().analyze(word).words}


@cache
def _every_word() -> Analyzer:
    return Analyzer(stop_words=())


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(
            f"{name}={value!r} must be a number from {low:g}"
            + ("." if high == math.inf else f" to {high:g}.")
        )


_ASKED = 80
_NAMES = ("query", "q", "question", "search_query", "text", "input", "sql", "url")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passages of an answer.

    Attributes:
        refs: What tells each from every other, "doc_id#chunk_id" where it has such an address.
        texts: Their texts.
    """

    refs: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def evidence_of(content: str, artifact: object) -> Evidence:
    """The passages of an answer.

    Args:
        content: What the model is told.
        artifact: Records as of our tools, Documents or nodes, one or a list; without any, the content counts as one
            passage.
    """
    found = artifact if isinstance(artifact, list | tuple) else [artifact]
    if artifact is None:
        return Evidence((_digest(content),), (content,)) if content.strip() else Evidence()
    passages = dict(_passage(item) for item in found)
    return Evidence(tuple(passages), tuple(passages.values()))


def call_of(
    kind: Kind, arguments: Mapping[str, Any], name: str, evidence: Evidence, call_id: str = ""
) -> Call:
    """The record of a call; its number is given when it is accounted.

    Args:
        kind: Whether it searched or read.
        arguments: As the model gave them.
        name: The tool: an equal query to another one is another call.
        evidence: What it brought.
        call_id: Where its answer stands.
    """
    heads = tuple(head_of(text) for text in evidence.texts)
    return Call(0, kind, full_key(kind, name, arguments), asked_of(arguments), evidence.refs, heads, call_id)


def full_key(kind: Kind, name: str, arguments: Mapping[str, Any]) -> str:
    """`key_of` with the name of the tool."""
    return f"{name} {key_of(kind, arguments)}"


def asked_of(arguments: Mapping[str, Any]) -> str:
    """What a call asked for, in a few words for people."""
    given = next(
        (arguments[name] for name in _NAMES if isinstance(arguments.get(name), str) and arguments[name]), None
    )
    if given is None and isinstance(arguments.get("doc_id"), str):
        given = f"{arguments['doc_id']}#{arguments.get('chunk_id') or 0}"
    line = " ".join(str(dict(arguments) if given is None else given).split())
    return line if len(line) <= _ASKED else f"{line[: _ASKED - 1]}…"


def _passage(item: Any) -> tuple[str, str]:  # noqa: ANN401  somebody's artifact
    """Address and text of a record, Document or node."""
    if isinstance(item, Mapping):
        text = item.get("text") or item.get("page_content") or item.get("content")
        text = text if isinstance(text, str) else json.dumps(item, ensure_ascii=False, default=str)
        doc_id = item.get("doc_id") or item.get("id")
        chunk = item.get("chunk_id")
    else:
        node = getattr(item, "node", item)
        text = getattr(node, "page_content", None) or getattr(node, "text", None)
        text = text if isinstance(text, str) and text else str(node)
        metadata = getattr(node, "metadata", None)
        metadata = metadata if isinstance(metadata, Mapping) else {}
        doc_id = metadata.get("doc_id") or getattr(node, "node_id", None) or getattr(node, "id", None)
        chunk = metadata.get("chunk_id")
    if not isinstance(doc_id, str) or not doc_id:
        return _digest(text), text
    return doc_id if chunk is None else f"{doc_id}#{chunk}", text


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
