"""Generation of test questions from documents: from FAQs and headings, and optionally by a language model."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.evaluation.collection import Expected, Question
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.llm import LanguageModel, LLMError, ask_llm, check_llm
from langchain_agentrag.text.sentences import sentence_ends
from langchain_agentrag.text.tokenizer import has_content
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)

_HEADING = re.compile(r"^(#{1,6})[ \t]++(.+)$", re.MULTILINE)
_FAQ_QUESTION = re.compile(
    r"^[ \t>*_-]*(?:Q|Question|FAQ|问题?|提问|問題?)[ \t]*+\d*+[*_]*+[ \t]*+[:：.、][*_ \t]*"
    r"(?P<question>\S.{3,200}?)[*_ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_FAQ_ANSWER = re.compile(
    r"\s*^[ \t>*_-]*(?:A|Answer|答案?|回答|答覆|答复)[ \t]*+\d*+[*_]*+[ \t]*+[:：.、][*_ \t]*(?P<answer>\S.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r"^(```|~~~)(.*)$", re.MULTILINE)
_NUMBERING = re.compile(r"^(?:\d+(?:\.\d+)*[.)、]?|第?[一二三四五六七八九十百]+[章节條条款、.)]|[（(]\d+[)）])[ \t]*")
_MARKDOWN = re.compile(r"[*_`~]|!?\[([^\[\]]*+)\]\([^()]*+\)")
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+>]|\d+[.)])[ \t]*", re.MULTILINE)
_HAN = re.compile(r"[\u3400-\u9fff]")
_INTERROGATIVE = re.compile(
    r"^(?:how|what|why|when|where|which|who|whose|can|could|do|does|did|is|are|should|will)\b|"
    r"^(?:如何|怎么|怎样|怎麼|为什么|為什麼|为何|什么|哪|谁|是否|能否|可否|何时|几|多少)|[吗呢嗎]$",
    re.IGNORECASE,
)
_MENTIONS_PASSAGE = re.compile(
    r"\b(?:the|this|above|following) (?:passage|text|excerpt|document|paragraph)\b|"
    r"上述|上文|本文|这段|該段|该段|以上内容",
    re.IGNORECASE,
)
_GENERIC = frozenset({
    "introduction", "overview", "summary", "contents", "table", "of", "background", "conclusion", "references",
    "appendix", "notes", "note", "example", "examples", "license", "changelog", "faq", "about", "general", "misc",
    "other", "usage", "details", "description",
    "概述", "简介", "介绍", "前言", "目录", "总结", "小结", "结论", "附录", "参考", "参考文献", "说明", "备注", "示例",
    "例子", "其他", "背景", "常见问题", "更新日志", "正文",
})  # fmt: skip
_MIN_BODY = 30  # characters under a heading, a Chinese one counts twice; shorter sections answer nothing
_PHRASE = 60  # characters: enough to identify a passage, and hardly ever split between two chunks
_MIN_PHRASE = 6
_SHORT_HEADING = 3  # words, or Han characters, up to which a heading needs its parent to mean something
_PASSAGE = 1_200  # characters of a passage in the prompt
_QUESTION_LENGTH = (8, 300)
_COPIED = 0.8  # share of a question's characters in one run of the passage: the question is a quotation
_MAX_FAILURES = 3  # of the model in a row
_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class _Draft:
    """A question, the phrase of the passage that answers it, and its origin."""

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
    """Draft test questions from the documents that one agent may see, for a person to review.

    Questions of FAQs are taken unchanged. A heading becomes a question on its section; it shares words with the
    passage, so such questions are easy, above all for the keyword index. A model writes questions in other words, which
    are harder and better.

    Args:
        indexer: The store.
        agent_id: Agent whose view is taken: shared documents and its own; None takes shared ones only. Nothing of
            other agents is read or sent to the model.
        most: Most questions.
        model: Writes questions from passages, at least half of all: a function prompt -> text, or a chat model.
        seed: Selects documents and passages where there are more than needed.
    """
    check_indexer(indexer, "draft_questions()")
    check_llm(model)
    documents = indexer.get(agent_id=agent_id)
    random.Random(seed).shuffle(documents)  # noqa: S311  (no secret)
    drafts = [draft for document in documents for draft in (*_faq_questions(document), *_heading_questions(document))]
    drafts = _take_in_turn(_unique(drafts), most if model is None else most // 2)
    if model is not None:
        drafts += _model_questions(model, documents, most - len(drafts), random.Random(seed))  # noqa: S311
    return [
        Question(
            id=f"q{number}",
            text=draft.text,
            expected=(Expected(draft.phrase, "phrase", document=draft.document.doc_id),),
            agent_id=agent_id,
            made_from=draft.made_from,
        )
        for number, draft in enumerate(_unique(drafts), 1)
    ]


# -- questions written in the documents -----------------------------------------------------------------------------


def _faq_questions(document: SourceDocument) -> Iterator[_Draft]:
    """Yield the questions of lines such as "Q: …" and "问：…" that an answer line follows."""
    for question in _FAQ_QUESTION.finditer(document.text):
        answer = _FAQ_ANSWER.match(document.text, question.end())
        phrase = "" if answer is None else _first_sentence(answer["answer"])
        if phrase:
            yield _Draft(_strip_markdown(question["question"]), phrase, document, "faq")


def _heading_questions(document: SourceDocument) -> Iterator[_Draft]:
    text = _without_fences(document.text)  # "# …" in code is a comment
    headings = list(_HEADING.finditer(text))
    path: list[tuple[int, str]] = []  # (level, title) of the heading and those above it
    for number, heading in enumerate(headings):
        level, title = len(heading[1]), _NUMBERING.sub("", _strip_markdown(heading[2].rstrip(" \t#"))).strip(" ：:")
        path = [*(above for above in path if above[0] < level), (level, title)]
        end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
        body = text[heading.end() : end]
        phrase = _first_sentence(body)
        if len(body.strip()) + len(_HAN.findall(body)) < _MIN_BODY or not phrase:
            continue
        question = _heading_to_question([name for _, name in path])
        if question:
            is_faq = title.endswith(("?", "？"))
            yield _Draft(question, phrase, document, "faq" if is_faq else "heading")


def _without_fences(text: str) -> str:
    """Return the text with its fenced blocks as spaces; a fence that is not closed is text."""
    marks = list(_FENCE.finditer(text))
    last = {mark[1]: place for place, mark in enumerate(marks) if not mark[2].strip(" \t")}  # that closes a block
    pieces: list[str] = []
    position, opening = 0, None
    for place, mark in enumerate(marks):
        if opening is None:
            opening = mark if last.get(mark[1], 0) > place else None
        elif mark[1] == opening[1] and not mark[2].strip(" \t"):
            pieces += [text[position : opening.start()], " " * (mark.end() - opening.start())]
            position, opening = mark.end(), None
    return "".join([*pieces, text[position:]])


def _heading_to_question(path: Sequence[str]) -> str:
    """Turn a heading into a question; "" when it is too general even with the heading above it."""
    title = path[-1]
    if not has_content(title) or title.casefold() in _GENERIC:
        return ""
    chinese = bool(_HAN.search(title))
    if title.endswith(("?", "？")):
        return title
    if _INTERROGATIVE.search(title):
        return f"{title}{'？' if chinese else '?'}"
    size = len(title) if chinese else len(title.split())
    parent = path[-2] if len(path) > 1 and size <= _SHORT_HEADING else ""
    if parent and parent.casefold() not in _GENERIC:
        return f"{parent}的{title}是怎样的？" if chinese else f"What does {parent} say about {title}?"
    return f"{title}是怎样的？" if chinese else f"What is there to know about {title}?"


def _first_sentence(body: str) -> str:
    """Return the first sentence of a passage, or its beginning, unchanged; "" when there is none."""
    for line in body.splitlines():
        text = line[(item.end() if (item := _LIST_ITEM.match(line)) else 0) :].strip()
        structural = text.startswith(("|", "```", "~~~", "!", "<")) or text.count(" | ") > 1
        if structural or not has_content(text) or _HEADING.match(line):
            continue
        end = next(sentence_ends(text, 0, len(text)), len(text))
        sentence = text[:end]
        if len(sentence) > _PHRASE:
            cut = sentence.rfind(" ", _MIN_PHRASE, _PHRASE)
            sentence = sentence[: cut if cut > 0 else _PHRASE]
        if len(sentence.strip()) >= _MIN_PHRASE:
            return sentence.strip()
    return ""


def _strip_markdown(text: str) -> str:
    """Return a heading or question without Markdown marks."""
    return " ".join(_MARKDOWN.sub(lambda mark: mark[1] or "", text).split())


def _unique(drafts: Sequence[_Draft]) -> list[_Draft]:
    """Drop questions that occur more than once: several passages answer them."""
    counts = Counter(draft.text.casefold() for draft in drafts)
    return [draft for draft in drafts if counts[draft.text.casefold()] == 1]


def _take_in_turn(drafts: Sequence[_Draft], most: int) -> list[_Draft]:
    """Take drafts from the documents in turn, FAQs before headings."""
    by_document: dict[str, list[_Draft]] = {}
    for draft in sorted(drafts, key=lambda draft: draft.made_from != "faq"):
        by_document.setdefault(draft.document.doc_id, []).append(draft)
    rounds = zip_longest(*by_document.values())
    return [draft for one_of_each in rounds for draft in one_of_each if draft is not None][:most]


# -- questions of a model -------------------------------------------------------------------------------------------


def _model_questions(
    model: LanguageModel, documents: Sequence[SourceDocument], most: int, rng: random.Random
) -> list[_Draft]:
    passages = [(document, passage) for document in documents for passage in _passages(document.text)]
    rng.shuffle(passages)
    drafts: list[_Draft] = []
    failures = 0  # in a row
    for document, passage in passages:
        if len(drafts) >= most or failures >= _MAX_FAILURES:
            break
        language = "zh" if len(_HAN.findall(passage)) * 4 > len(passage) else "en"
        title = document.metadata.get("title") or document.metadata.get("source")
        template = load_messages("evaluation", "question_generation", language)["prompt"]
        prompt = template.format(context=f"[{title}]\n" if title else "", passage=passage)
        try:
            question = _parse_answer(ask_llm(model, prompt, _TIMEOUT), passage)
        except LLMError as error:
            failures += 1
            logger.warning("the model wrote no question for a passage of %r: %s", document.doc_id, error)
            continue
        failures = 0
        if question:
            drafts.append(_Draft(question, _first_sentence(passage), document, "model"))
    return drafts


def _passages(text: str) -> Iterator[str]:
    """Yield passages of whole paragraphs, joined up to the length of a passage."""
    passage = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if passage and len(passage) + len(paragraph) > _PASSAGE:
            yield passage
            passage = ""
        passage = f"{passage}\n\n{paragraph}" if passage else paragraph[:_PASSAGE]
    if passage:
        yield passage


def _parse_answer(answer: str, passage: str) -> str:
    """Return the question in a model's answer; "" when it is none, mentions the passage, or quotes it."""
    lines = [line.strip(' "“”*-') for line in answer.splitlines() if line.strip()]
    question = re.sub(r"^(?:question|问题|q)\s*[:：]\s*", "", lines[-1] if lines else "", flags=re.IGNORECASE)
    right_length = _QUESTION_LENGTH[0] <= len(question) <= _QUESTION_LENGTH[1] or (
        _HAN.search(question) and len(question) >= _MIN_PHRASE
    )
    is_question = question.endswith(("?", "？")) or _INTERROGATIVE.search(question)
    if not right_length or not is_question or _MENTIONS_PASSAGE.search(question):
        return ""
    size = max(1, int(len(question) * _COPIED))
    copied = any(question[start : start + size] in passage for start in range(len(question) - size + 1))
    return "" if copied or not _first_sentence(passage) else question
