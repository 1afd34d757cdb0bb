"""Who said it: a question that names a speaker is answered by that speaker's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from langchain_agentrag.text.stopwords import ENGLISH_STOP_WORDS
from langchain_agentrag.text.fold import fold
from langchain_agentrag.text.user_words import LONGEST_USER_WORD, UserWords, comparable

OTHERS_SHARE = 0.7
"""What is left of the score of somebody else's words. `benchmarks/quality.py`: locomo gains .03, and of the answers
that came first from another speaker than the one asked for, 1 in 20 was right."""

_ROLES = frozenset(
    "user assistant system tool human ai bot model agent function developer chatbot customer client caller operator "  # noqa: SIM905
    "support speaker interviewer interviewee host guest narrator moderator participant admin unknown anonymous doctor "
    "patient teacher student mr mrs ms miss dr prof "
    "用户 助手 助理 系统 工具 模型 机器人 客服 客户 顾客 智能体 人工智能 智能客服 智能助手 管理员 开发者 说话人 发言人 "
    "主持人 嘉宾 旁白 记者 采访者 受访者 医生 患者 病人 老师 学生 对方 未知 匿名".split()
)
_SHORTEST = 2  # characters of a name; one letter or character stands in every other question
_HOMOGRAPHS = ENGLISH_STOP_WORDS | {"may"}  # function words that people are called by: Will, May
_SENTENCE_START = re.compile(r"(?:^|[.!?。！？])[^\w]*$")


def named(query: str, speakers: Iterable[str]) -> set[str]:
    """Those of the speakers whom the query names, by the whole name or one word of it.

    A role ("user", "客服", "Dr.") is no name, nor is a single character or a number. A name written with a capital is
    none where the query writes the word without, unless it has no capitals at all; one that is a function word as well
    ("Will") must stand with a capital inside a sentence. Where two names overlap, the longer one is meant.
    """
    text = fold(query)
    found = [(start, end, speaker) for speaker in speakers for start, end in _mentions(text, speaker)]
    return {
        speaker
        for start, end, speaker in found
        if not any(first <= start and end <= last and last - first > end - start for first, last, _ in found)
    }


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


def _mentions(text: str, speaker: str) -> Iterator[tuple[int, int]]:
    """Where a folded query names the speaker."""
    name = fold(speaker).strip()
    words = [name, *(part for part in name.split() if name.islower() or not part.islower())]
    known = {comparable(word): word for word in words if _tells(word)}
    if not known:
        return
    cased = not (text.islower() or text.isupper())
    for term, start, end in UserWords(known).find(text):
        written = known.get(comparable(text[start:end])) or known.get(term, "")
        capital = text[start:end] != text[start:end].lower()
        if cased and not capital and written != written.lower():
            continue
        if comparable(written) in _HOMOGRAPHS and not (
            cased and capital and not _SENTENCE_START.search(text[:start])
        ):
            continue
        yield start, end


def _tells(word: str) -> bool:
    """Whether a name, or a word of one, tells somebody from everybody else."""
    parts = [part.strip(".,:") for part in comparable(word).split()]
    return (
        _SHORTEST <= len(word) <= LONGEST_USER_WORD
        and any(map(str.isalpha, word))
        and not all(part in _ROLES for part in parts)
    )
