"""A first test set from one's own documents: questions out of FAQs and headings, and by a model where one is given."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_agentrag.evaluation.collection import Expected, Question
from langchain_agentrag.llm import LanguageModel, LLMError, ask_llm, check_llm
from langchain_agentrag.text.sentences import has_content, sentence_ends
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

logger = logging.getLogger(__name__)

_HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_ASKED = re.compile(
    r"^[ \t>*_-]*(?:Q|Question|FAQ|问题?|提问|問題?)[ \t]*\d*[*_]*[ \t]*[:：.、][*_ \t]*"
    r"(?P<question>\S.{3,200}?)[*_ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_ANSWERED = re.compile(
    r"\A\s*^[ \t>*_-]*(?:A|Answer|答案?|回答|答覆|答复)[ \t]*\d*[*_]*[ \t]*[:：.、][*_ \t]*(?P<answer>\S.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_NUMBERING = re.compile(
    r"^(?:\d+(?:\.\d+)*[.)、]?|第?[一二三四五六七八九十百]+[章节條条款、.)]|[（(]\d+[)）])[ \t]*"
)
_MARKS = re.compile(r"[*_`~]|!?\[([^\]]*)\]\([^)]*\)")
_LIST = re.compile(r"^[ \t]*(?:[-*+>]|\d+[.)])[ \t]*", re.MULTILINE)
_HAN = re.compile(r"[\u3400-\u9fff]")
_INTERROGATIVE = re.compile(
    r"^(?:how|what|why|when|where|which|who|whose|can|could|do|does|did|is|are|should|will)\b|"
    r"^(?:如何|怎么|怎样|怎麼|为什么|為什麼|为何|什么|哪|谁|是否|能否|可否|何时|几|多少)|[吗呢嗎]$",
    re.IGNORECASE,
)
_POINTS_AT_ITSELF = re.compile(
    r"\b(?:the|this|above|following) (?:passage|text|excerpt|document|paragraph)\b|"
    r"上述|上文|本文|这段|該段|该段|以上内容",
    re.IGNORECASE,
)
_GENERIC = frozenset(
    [
        "introduction",
        "overview",
        "summary",
        "contents",
        "table",
        "of",
        "contents",
        "background",
        "conclusion",
        "references",
        "appendix",
        "notes",
        "note",
        "example",
        "examples",
        "license",
        "changelog",
        "faq",
        "about",
        "general",
        "misc",
        "other",
        "usage",
        "details",
        "description",
        "概述",
        "简介",
        "介绍",
        "前言",
        "目录",
        "总结",
        "小结",
        "结论",
        "附录",
        "参考",
        "参考文献",
        "说明",
        "备注",
        "示例",
        "例子",
        "其他",
        "背景",
        "常见问题",
        "更新日志",
        "正文",
    ]
)
_LEAST_BODY = 30  # characters under a heading, a Chinese one for two, or there is nothing to find
_PHRASE = 60  # characters that tell a passage from others and hardly ever lie across two chunks
_LEAST_PHRASE = 6
_SHORT = 3  # words, or Han characters, up to which a heading needs its parent to mean something
_PASSAGE = 1_200  # characters shown to a model
_QUESTION = (8, 300)
_COPIED = 0.8  # share of a question's characters in one run of the passage: that is a quotation
_GIVE_UP = 3  # failures of a model in a row
_TIMEOUT = 60.0

_PROMPT = {
    "en": "Below is a passage from somebody's documents. Write one question that it answers, as a user would ask it "
    "who has never seen the passage: in your own words, specific enough to have one answer, without mentioning any "
    "passage or text. Answer with the question alone.\n\n{context}{passage}",
    "zh": "下面是某份资料中的一段。请写出一个能由它回答的问题，就像从未见过这段文字的用户会问的那样："
    "用自己的话，具体到只有一个答案，"
    "不要提到“上文”“这段文字”之类。只输出问题本身。\n\n{context}{passage}",
}


@dataclass(frozen=True, slots=True)
class _Draft:
    """A question, the phrase of the passage that answers it, and how it came about."""

    text: str
    phrase: str
    document: SourceDocument
    made_from: str


def draft_questions(
    indexer: DualIndexer,
    agent_id: str | None = None,
    *,
    most: int = 50,
    model: LanguageModel | None = None,
    seed: int = 0,
) -> list[Question]:
    """Questions on what one agent may see, to be looked through by a person before they count.

    Questions of FAQs are taken as they stand. A heading becomes a question on what stands below it; it shares its words
    with its passage, so such questions are easy, above all for the keyword leg. With a model, passages it has not seen
    a question for become questions in other words, which are the harder and better ones.

    Args:
        indexer: The store.
        agent_id: Whose view: shared documents and the agent's own; None takes shared ones only. Nothing of other agents
            is read, nor shown to the model.
        most: Most questions.
        model: Makes questions out of passages, half of all at least: a function prompt -> text, or a chat model.
        seed: Which documents and passages are chosen where there are more than are wanted.
    """
    check_llm(model)
    documents = indexer.get(agent_id=agent_id)
    random.Random(seed).shuffle(documents)  # noqa: S311  a choice, not a secret
    found = [draft for document in documents for draft in (*_faqs(document), *_headings(document))]
    found = _unambiguous(found)
    kept = _spread(found, most if model is None else most // 2)
    if model is not None:
        kept += _by_model(model, documents, most - len(kept), random.Random(seed))  # noqa: S311
    return [
        Question(
            id=f"q{number}",
            text=draft.text,
            expected=(Expected(draft.phrase, "phrase", document=draft.document.doc_id),),
            agent_id=agent_id,
            made_from=draft.made_from,
        )
        for number, draft in enumerate(_unambiguous(kept), 1)
    ]


# -- what stands in the documents -----------------------------------------------------------------------------------


def _faqs(document: SourceDocument) -> Iterator[_Draft]:
    """Questions and answers marked as such in lines of their own, in either language."""
    for asked in _ASKED.finditer(document.text):
        answered = _ANSWERED.match(document.text[asked.end() :])
        phrase = "" if answered is None else _phrase(answered["answer"])
        if phrase:
            yield _Draft(_plain(asked["question"]), phrase, document, "faq")


def _headings(document: SourceDocument) -> Iterator[_Draft]:
    text = _FENCE.sub(lambda fence: " " * len(fence[0]), document.text)  # "# …" in code is a comment
    places = list(_HEADING.finditer(text))
    path: list[tuple[int, str]] = []
    for number, heading in enumerate(places):
        level, title = len(heading[1]), _NUMBERING.sub("", _plain(heading[2])).strip(" ：:")
        path = [*(step for step in path if step[0] < level), (level, title)]
        stop = places[number + 1].start() if number + 1 < len(places) else len(text)
        body = text[heading.end() : stop]
        phrase = _phrase(body)
        if len(body.strip()) + len(_HAN.findall(body)) < _LEAST_BODY or not phrase:
            continue
        question = _as_question([name for _, name in path])
        if question:
            is_faq = title.endswith(("?", "？"))
            yield _Draft(question, phrase, document, "faq" if is_faq else "heading")


def _as_question(path: Sequence[str]) -> str:
    """A heading as a question, "" when it says nothing even with the heading above it."""
    title = path[-1]
    if not has_content(title) or title.casefold() in _GENERIC:
        return ""
    chinese = bool(_HAN.search(title))
    if title.endswith(("?", "？")):
        return title
    if _INTERROGATIVE.search(title):
        return f"{title}{'？' if chinese else '?'}"
    size = len(title) if chinese else len(title.split())
    parent = path[-2] if len(path) > 1 and size <= _SHORT else ""
    if parent and parent.casefold() not in _GENERIC:
        return f"{parent}的{title}是怎样的？" if chinese else f"What does {parent} say about {title}?"
    return f"{title}是怎样的？" if chinese else f"What is there to know about {title}?"


def _phrase(body: str) -> str:
    """The first sentence of a passage, or its beginning, as it stands there; "" when there is none."""
    for line in body.splitlines():
        text = line[(mark.end() if (mark := _LIST.match(line)) else 0) :].strip()
        structural = text.startswith(("|", "```", "~~~", "!", "<")) or text.count(" | ") > 1
        if structural or not has_content(text) or _HEADING.match(line):
            continue
        end = next(sentence_ends(text, 0, len(text)), len(text))
        sentence = text[:end]
        if len(sentence) > _PHRASE:
            cut = sentence.rfind(" ", _LEAST_PHRASE, _PHRASE)
            sentence = sentence[: cut if cut > 0 else _PHRASE]
        if len(sentence.strip()) >= _LEAST_PHRASE:
            return sentence.strip()
    return ""


def _plain(text: str) -> str:
    """A heading or question without Markdown marks."""
    return " ".join(_MARKS.sub(lambda mark: mark[1] or "", text).split())


def _unambiguous(drafts: Sequence[_Draft]) -> list[_Draft]:
    """Without questions that several passages would answer."""
    counts = Counter(draft.text.casefold() for draft in drafts)
    return [draft for draft in drafts if counts[draft.text.casefold()] == 1]


def _spread(drafts: Sequence[_Draft], most: int) -> list[_Draft]:
    """So many of them, taken from the documents in turn, FAQs before headings."""
    turns: dict[str, list[_Draft]] = {}
    for draft in sorted(drafts, key=lambda draft: draft.made_from != "faq"):
        turns.setdefault(draft.document.doc_id, []).append(draft)
    chosen: list[_Draft] = []
    while turns and len(chosen) < most:
        for name in list(turns):
            chosen.append(turns[name].pop(0))
            if not turns[name]:
                del turns[name]
    return chosen[:most]


# -- by a model -----------------------------------------------------------------------------------------------------


def _by_model(
    model: LanguageModel, documents: Sequence[SourceDocument], wanted: int, chance: random.Random
) -> list[_Draft]:
    passages = [(document, passage) for document in documents for passage in _passages(document.text)]
    chance.shuffle(passages)
    drafts: list[_Draft] = []
    failed = 0
    for document, passage in passages:
        if len(drafts) >= wanted or failed >= _GIVE_UP:
            break
        language = "zh" if len(_HAN.findall(passage)) * 4 > len(passage) else "en"
        title = document.metadata.get("title") or document.metadata.get("source")
        prompt = _PROMPT[language].format(context=f"[{title}]\n" if title else "", passage=passage)
        try:
            question = _usable(ask_llm(model, prompt, _TIMEOUT), passage)
        except LLMError as error:
            failed += 1
            logger.warning("no question for a passage of %r: %s", document.doc_id, error)
            continue
        failed = 0
        if question:
            drafts.append(_Draft(question, _phrase(passage), document, "model"))
    return drafts


def _passages(text: str) -> Iterator[str]:
    """Paragraphs joined up to a length, those that hold enough to ask for."""
    held = ""
    for block in re.split(r"\n\s*\n", text):
        if held and len(held) + len(block) > _PASSAGE:
            yield held
            held = ""
        held = f"{held}\n\n{block}" if held else block[:_PASSAGE]
    if held:
        yield held


def _usable(answer: str, passage: str) -> str:
    """The question in a model's answer; "" when it is none, points at the passage, or quotes it."""
    lines = [line.strip(' "“”*-') for line in answer.splitlines() if line.strip()]
    question = re.sub(r"^(?:question|问题|q)\s*[:：]\s*", "", lines[-1] if lines else "", flags=re.IGNORECASE)
    fits = _QUESTION[0] <= len(question) <= _QUESTION[1] or (
        _HAN.search(question) and len(question) >= _LEAST_PHRASE
    )
    asks = question.endswith(("?", "？")) or _INTERROGATIVE.search(question)
    if not fits or not asks or _POINTS_AT_ITSELF.search(question):
        return ""
    size = max(1, int(len(question) * _COPIED))
    copied = any(question[start : start + size] in passage for start in range(len(question) - size + 1))
    return "" if copied or not _phrase(passage) else question
