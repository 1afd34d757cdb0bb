"""Questions in a conversation: those that lean on what was said before are completed from it, others stay as is."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.llm import LanguageModel, ModelFailure, ask
from langchain_agentrag.search.leaning import (
    content_words,
    is_rest,
    leans,
    ordinal,
    shares_word,
    subject_words,
    topic_words,
)
from langchain_agentrag.text.fold import simplify

if TYPE_CHECKING:
    from langchain_agentrag.search.options import SearchRequest

logger = logging.getLogger(__name__)

RECENT = 6
"""Turns of a conversation that a question may lean on, the last ones."""

_LESS = 0.5  # weight of a word of the conversation beside one of the question
_MOST_ADDED = 12  # words; more would outvote the question
_FROM_ANSWER = 6  # of them from an answer, which is long and says much besides
_SHORT_ANSWER = 12  # content words up to which an answer is all about the matter
_LONGEST = 400  # characters of a rewritten question
_QUOTES = ' "“”「」'
_KNOWN = 0.6  # share of a rewritten question's words that must come from the conversation
_READ = 2_000  # characters of a turn that are looked at

_USERS = frozenset({"user", "human", "customer", "用户", "客户", "问", "我"})
_ASSISTANTS = frozenset(
    {"ai", "assistant", "bot", "chatbot", "model", "助手", "助理", "客服", "机器人", "答"}
)
_CONTENTS = ("content", "text", "parts", "blocks")  # of OpenAI and LangChain, of Gemini, of LlamaIndex
_SILENT_ROLES = frozenset({"system", "tool", "function", "developer"})
_NAMES = re.compile(
    r"《([^》]{1,40})》|[“「『]([^”」』]{1,30})[”」』]|"
    r"(?<![.!?。！？]\s)(?<!^)\b([A-Z][\w-]*(?:\s+[A-Z][\w-]*){0,3})|"
    r"\b([A-Za-z]*\d[\w.-]*[A-Za-z][\w-]*|[A-Za-z]+-?\d[\w.-]*)\b"
)
_MARK = (
    r"(?:[（(][一二三四五六七八九十\d]{1,2}[)）]|"
    r"(?:^|(?<=[\s；;。：:,，]))(?:\d{1,2}[.)、）](?!\d)|[一二三四五六七八九十]、))\s*"
)
_NUMBERED = re.compile(rf"{_MARK}(.+?)(?={_MARK}|[；;\n]|$)", re.MULTILINE)
_BULLET = re.compile(r"^\s*[-*•]\s+(.+)$", re.MULTILINE)
_SERIES_ZH = re.compile(
    r"([^，。：:；;！？\s]{1,20}(?:、[^，。：:；;！？、]{1,20})+(?:[和与及以及]+[^，。：:；;！？、]{1,20})?)"
)
_SERIES_EN = re.compile(r"((?:[\w' -]+,\s*)+(?:and|or)\s+[\w' -]+)", re.IGNORECASE)
_PLACE = {name: place for place, names in enumerate(
    ("first 一 1", "second 二 两 2", "third 三 3", "fourth 四 4", "fifth 五 5", "六 6", "七 7", "八 8", "九 9", "十 10")
) for name in names.split()}  # fmt: skip

_PROMPT = (
    "Rewrite the last question of this conversation so that it can be understood without the conversation, in the same "
    "language. Replace pronouns by what they stand for and add what was left out; add nothing else and do not answer. "
    "Reply with the question alone.\n把对话中最后一个问题改写成脱离对话也能看懂的问题，语言不变；"
    "只输出问题。\n\n{turns}\n"
    "Last question / 最后一个问题: {query}"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation.

    Attributes:
        role: "user", "assistant", or "" where nobody said.
        text: What was said.
    """

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Completed:
    """A question with what the conversation adds to it.

    Attributes:
        query: What to search for; the question itself where it stands alone.
        added: Words of the conversation in it, to be weighed less than those of the question; "" for none.
        trouble: Why a model was not followed, or "".
    """

    query: str
    added: str = ""
    trouble: str = ""


def read_history(history: object) -> tuple[Turn, ...]:
    """The last turns of a conversation, oldest first.

    Args:
        history: Turns in order: strings, (role, text) pairs, {"role": …, "content": …}, or messages of LangChain or
            LlamaIndex. Turns without text, and those of tools and of the system, are passed over.

    Raises:
        InvalidQueryError: it is no list, or holds something else.
    """
    if history is None:
        return ()
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Iterable):
        raise InvalidQueryError(
            f"history must be a list of turns, got {type(history).__name__}: pass strings, (role, text) pairs or "
            "messages."
        )
    turns = [_turn(place, item) for place, item in enumerate(history)]
    said = [turn for turn in turns if turn.text.strip() and turn.role not in _SILENT_ROLES]
    return tuple(said[-RECENT:])


def _turn(place: int, item: object) -> Turn:
    role: object = ""
    content: object = item
    if isinstance(item, Mapping):
        role = item.get("role", item.get("type"))
        held = data if isinstance(data := item.get("data"), Mapping) else item  # LangChain's messages_to_dict
        content = next((held[key] for key in _CONTENTS if held.get(key)), None)
        if role is None and not any(key in held for key in _CONTENTS):
            raise InvalidQueryError(
                f"history[{place}] has neither role nor content, but the keys {', '.join(map(repr, item)) or 'none'}: "
                'pass {"role": …, "content": …}.'
            )
    elif isinstance(item, tuple | list) and len(item) == 2:  # noqa: PLR2004  role and text
        role, content = item
    elif not isinstance(item, str):
        role, content = getattr(item, "role", getattr(item, "type", None)), getattr(item, "content", None)
        if role is None:
            raise InvalidQueryError(
                f"history[{place}] is a {type(item).__name__}: pass a string, a (role, text) pair, or a message of "
                "LangChain or LlamaIndex."
            )
    name = str(getattr(role, "value", role) or "").casefold().removesuffix("messagechunk").strip()
    return Turn("user" if name in _USERS else "assistant" if name in _ASSISTANTS else name, _text(content))


def _text(content: object) -> str:
    """The words of a message; what is no text in it, a picture say, counts for nothing."""
    if isinstance(content, str):
        return content[:_READ]
    if isinstance(content, Sequence):
        parts = (
            part if isinstance(part, str) else part.get("text", "")
            for part in content
            if isinstance(part, str | Mapping)
        )
        return " ".join(part for part in parts if isinstance(part, str))[:_READ]
    return ""


def complete(query: str, turns: Sequence[Turn]) -> Completed:
    """The question, completed from the turns where it leans on them.

    What it is about comes from the last question that stands alone and those after it; an item of a list from the last
    answer ("the second one", "第二个"); names from the last answer. A question that only exchanges something ("what
    about 2023?") takes over what was asked, one that asks something new takes over only what it was asked about.
    """
    if not turns or not leans(query):
        return Completed(query)
    asked, answer = _before(turns)
    words = _item(query, turns) or []
    rest = is_rest(query)
    take = content_words if rest else subject_words
    numbered = bool(re.search(r"\d", query))
    for text in map(simplify, asked):
        words += [word for word in take(text) if not (numbered and word[:1].isdigit())]
    if not rest:
        words += _names(simplify(answer))[:_FROM_ANSWER]
    known = {word.casefold() for word in content_words(query)}
    kept = [word for word in dict.fromkeys(words) if word.casefold() not in known]
    added = " ".join(kept[:_MOST_ADDED])
    return Completed(f"{added} {query}", added) if added else Completed(query)


def _before(turns: Sequence[Turn]) -> tuple[list[str], str]:
    """Questions that a question may lean on, from the last one back to one that stands alone; and the last answer."""
    roles = {turn.role for turn in turns}
    users = (
        [turn.text for turn in turns if turn.role == "user"]
        if "user" in roles
        else [turn.text for turn in turns]
    )
    asked: list[str] = []
    for text in reversed(users):
        asked.append(text)
        # where nobody says who spoke, the last turn is an answer as likely as not
        if not leans(text) and ("user" in roles or len(asked) > 1):
            break
    answers = [turn.text for turn in turns if turn.role == "assistant"]
    return asked, answers[-1] if answers else ""


def _names(answer: str) -> list[str]:
    """What an answer is about: all of a short one, else titles, quotations, names and codes."""
    content = [word for word in topic_words(answer) if not word[:1].isdigit()]
    if len(content) <= _SHORT_ANSWER:
        return content
    named = [next(filter(None, found.groups())) for found in _NAMES.finditer(answer)]
    return [name for name in dict.fromkeys(named) if topic_words(name)]


def _item(query: str, turns: Sequence[Turn]) -> list[str]:
    """Words of the item of the last list that the question points at."""
    pointer = ordinal(query)
    if not pointer:
        return []
    for turn in reversed(turns):
        items = _items(turn.text)
        if len(items) > 1:
            last = pointer == "last" or "最后" in pointer
            mark = re.sub(r"[第个种条项步款点家位名本部篇]", "", pointer)
            place = len(items) - 1 if last else _PLACE.get(mark, len(items))
            return content_words(items[place])[:_FROM_ANSWER] if place < len(items) else []
    return []


def _items(text: str) -> list[str]:
    """Items of the list in a text: numbered, with bullets, or in a row."""
    numbered = _NUMBERED.findall(text)
    if len(numbered) > 1:
        return numbered
    bullets = _BULLET.findall(text)
    if len(bullets) > 1:
        return bullets
    row = _SERIES_ZH.search(text)
    if row:
        return [part for part in re.split(r"、|以及|[和与及]", row[1]) if part]
    row = _SERIES_EN.search(text)
    return (
        [part for part in re.split(r",\s*(?:and|or)?\s*|\s+(?:and|or)\s+", row[1]) if part.strip()]
        if row
        else []
    )


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


def understand(request: SearchRequest) -> SearchRequest:
    """The request with its question completed, by the rewriter where there is one and its answer can be trusted."""
    if not request.history or not leans(request.query):
        return request
    found = complete(request.query, request.history)
    if request.rewriter is not None:
        found = _rewritten(request.rewriter, request.query, request.history, request.rewrite_timeout, found)
    troubles = (*request.troubles, f"rewriter: {found.trouble}") if found.trouble else request.troubles
    completed = "" if found.query == request.query else found.query
    return replace(request, completed=completed, supplement=found.added, troubles=troubles)


def _rewritten(
    model: LanguageModel, query: str, turns: Sequence[Turn], timeout: float, otherwise: Completed
) -> Completed:
    said = "\n".join(f"{turn.role or '-'}: {turn.text}" for turn in turns)
    try:
        answer = ask(model, _PROMPT.format(turns=said, query=query), timeout)
    except ModelFailure as error:
        logger.warning("the question is completed without the model: %s", error)
        return replace(otherwise, trouble=str(error))
    lines = [line.strip(_QUOTES) for line in answer.splitlines() if line.strip()]
    question = re.sub(
        r"^(?:question|问题|改写|rewritten)[^:：]{0,20}[:：]\s*", "", lines[-1] if lines else "", flags=re.I
    )
    question = question.strip(_QUOTES)
    words = content_words(question)
    source = " ".join([query, *(turn.text for turn in turns)])
    known = sum(shares_word(source, [word]) for word in words)
    if not words or len(question) > _LONGEST or known < _KNOWN * len(words):
        trouble = f"the model answered {answer[:80]!r}, which is no question of this conversation"
        logger.warning("the question is completed without the model: %s", trouble)
        return replace(otherwise, trouble=trouble)
    return Completed(question)
