"""Follow-up questions: detect them and complete them from the conversation, by rules or with a language model.

A question is a follow-up if a pronoun or demonstrative in it has no antecedent within the question, if it is elliptical
("what about 2023?", "第二个呢"), or if none of its words names a topic ("how much?"). The rules cover Chinese and
English. `resolve_followup` is the entry point.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.llm import LanguageModel, LLMError, ask_llm
from langchain_agentrag.text.tokenizer import STOP_WORDS, get_segmenter, pos_tags, segment, to_simplified, word_list

logger = logging.getLogger(__name__)

_TOKEN = re.compile(r"[A-Za-z0-9][\w.+#'’/-]*|[\u3400-\u9fff]+", re.ASCII)
_HAN = re.compile(r"[\u3400-\u9fff]")
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")
_LATIN = re.compile(r"[A-Za-z0-9][\w.+#'/-]*", re.ASCII)
_OBJECTS = "假款班职费税婚学钱票房车账货证卡网机岗薪险餐户单金约档刀油电话会销"
"""Last characters of verb-object compounds, which name a topic: 请假, 退款, 换刀."""

_NON_SPACE = re.compile(r"\S")
_CODE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])\S+")
_NUMBER = re.compile(r"\d")

ASKED = word_list("asked_properties")
"""Words for what a question asks (price, date, 多少钱), which name no topic."""

GENERIC = ASKED | word_list("generic_verbs")
"""`ASKED` and transitive verbs: a question made only of these names no topic."""

_FILLER_EN = re.compile(
    r"(?:ok(?:ay)?|thanks?(?: you)?|great|well|right|i see|hi|hello|sure|got it|hm+|yes|no)\b[\s,.!:;-]*", re.I
)
_LEAD_EN = re.compile(r"(?:and|but|so|or|also|then)\b[\s,]*", re.I)
_ALWAYS_EN = re.compile(
    r"^(?:what about|how about|what if|same for|which ones?\b|why(?: not)?\W*$|how so|how come\W*$|when\W*$|"
    r"where\W*$|who\W*$)|\b(?:what|anything|who|where|something|someone) else\b|^(?:tell me )?more\b|"
    r"\bthe (?:former|latter)\b|"
    r"\bthe same(?: (?:for|with|one))?\b|\b(?:over|from|in) there\b|\bthere\W*$|"
    r"\b(?:the|that|this|another|other|which|first|second|third|fourth|last|next|\w+er)\s+ones?\b|"
    r"\bthe (?:first|second|third|fourth|fifth|last)(?: (?:option|item|point|step))?(?=\W*$|\s+(?:is|was|do|does|"
    r"did|cost|work|mean|have|has|take)s?\b)",
    re.I,
)
_EXISTS = re.compile(r"\b(?:is|are|was|were|be|been)\s+there\W*$", re.I)
_EXPLETIVE = re.compile(
    r"\b(?:is|was|be|would|will)? ?it(?:'s| is| was| be)? (?:possible|safe|allowed|necessary|true|ok|okay|legal|worth|"
    r"better|best|normal|enough|important|required|dangerous|easy|hard|like)\s+(?:to|that|for|if|when)\b|"
    r"\bwhat time is it\b|\bit (?:take|rain|snow)s?\b|\bit(?:'s| is| was| (?:will|may|might|should) be)? "
    r"(?:rain|snow|hail|freez)(?:ing|ed|y)\b|\b(?:does|did|will|would) it take (?:to|for|from)\b|"
    r"\bhow is it (?:possible )?that\b",
    re.I,
)
_PRONOUN_EN = re.compile(r"\b(?:it|they|them|theirs|he|him|she|hers|itself|themselves|himself|herself)\b", re.I)
_POSSESSIVE_EN = re.compile(r"\b(?:its|their|his|her)\b", re.I)
_POINTER_EN = re.compile(
    r"\b(this|that|these|those)\b(?:\s+(?:(?:coming|past|last|very|current|fiscal|financial|calendar|academic|school)\s+)?"
    r"([\w-]+))?",
    re.I,
)
_DEPARTMENT = re.compile(r"\bIT\b")  # in capitals no pronoun
_CHOICE_EN = re.compile(r"^which ones?\b(?=.*?(?:\bof\s+(?!them|these|those|it\b)|[,:]\s*\w.*\bor\b))", re.I)
_QUOTED = re.compile(r"(?<=[\"“「『《`])[^\"“”「」『』《》`]+(?=[\"”」』》`])")
_DEICTIC = frozenset(
    "year month week day days morning afternoon evening night time moment century quarter season weekend summer winter "  # noqa: SIM905
    "spring autumn fall semester term".split()
)
_AFTER_CONJUNCTION = frozenset(
    "the a an i we you they he she it my our your there each every all any no some".split()  # noqa: SIM905
)
_CLAUSE_EN = re.compile(
    r"[,;:—]|\b(?:if|when|whenever|while|because|since|after|before|but|although|though|unless|until|once|and|or|so)\b",
    re.I,
)
_ASKS_EN = re.compile(
    r"^(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|can|could|will|would|should|may|must|"
    r"has|have|had|am|tell|show|explain|find|list|give|compare|describe|summari[sz]e|search|look|write|translate|help)\b",
    re.I,
)
_MAX_FRAGMENT = 5  # words; a longer phrase without a question word is a keyword query

_FILLER_ZH = re.compile(
    r"(?:好的?|嗯+|哦+|噢|谢谢(?:你|您)?|多谢|明白了?|知道了|了解了?|请问(?:一下)?|你好|您好|行|是的|对了|ok)"
    r"[，,。.！!、\s]*",
    re.I,
)
_LEAD_ZH = re.compile(
    r"(?:那么|那(?=[^个些款种台本部篇首条位家次件项份张座套里边儿样时天年是有会能要需])|还有|另外|而|但是?|可是|不过|然后)[，,、\s]*"
)
_ASKS_ZH = re.compile(
    r"什么|怎么|怎样|怎麼|如何|为何|为啥|哪|谁|吗|嗎|多少|多久|多大|多长|多高|多远|多重|几[个天年月点次岁种位家]|"
    r"是否|能否|可否|有没有|是不是|能不能|可不可以|会不会|要不要|咋|啥"
)
_POINTER_ZH = re.compile(
    r"它们?|(?<![其吉利排无])他们?(?![人乡国方])|她们?|前者|后者|上述|上面(?=[的那这说提])|刚才|其中|"
    r"(?<![尤极与莫如])其(?![实次间中他它余])|"
    r"[这那](?:个|些|款|种|台|本|部|篇|首|条|位|家|件|项|份|张|座|套|道|辆|只|间|段|节|类|几|两|样|里|儿|边|时|家伙)|"
    r"[这那](?=[是怎有会能要需跟和与在的，,？?]|$)|"
    r"该(?:产品|公司|项目|文件|型号|设备|功能|方法|报警|书|店|系统|接口|参数|政策|规定)"
)
_TIME_ZH = re.compile(
    r"这个?世(?:界|上)|[这那](?:个|一)?(?:周|月|年|星期|季度|学期|天|几天|两天|段时间|阵子|次|段日子)"
)
_BOUND_ZH = re.compile(
    r"[，,；;。？?！!：:]|[和与跟同及](?=它|他|她|其)|(?:时|时候|后|之后|以后|的话)(?=它|他|她|这|那)"
)
_ORDINAL_ZH = re.compile(r"第[一二三四五六七八九十两\d]+(?:个|种|条|项|步|款|点|家|位|名|本|部|篇)")
_INSIDE_ZH = re.compile(r"^(?:包括|包含|含|在哪|在什么|去哪|从哪|还|也)")
_OTHERS_ZH = re.compile(r"^(?:其他|其它|其余|别的|同样)")


def words_of(text: str) -> list[str]:
    """Split a text into words, in order: at spaces, and Chinese with jieba."""
    words: list[str] = []
    for token in _TOKEN.findall(text):
        words += _joined(segment(get_segmenter(), token)) if _HAN.match(token) else [token.strip(".'’-/")]
    return [word for word in words if word]


def _joined(words: Sequence[str]) -> list[str]:
    """Join runs of single characters, since jieba splits unknown words into them."""
    joined: list[str] = []
    open_word = False
    for word in words:
        single = len(word) == 1 and word not in STOP_WORDS
        if single and open_word:
            joined[-1] += word
        else:
            joined.append(word)
        open_word = single
    return joined


def content_words(text: str) -> list[str]:
    """Words of a text except stop words."""
    return [word for word in words_of(text) if word.casefold() not in STOP_WORDS]


def topic_words(text: str) -> list[str]:
    """Content words that name a topic."""
    return [word for word in content_words(text) if not _is_generic(word)]


def subject_words(text: str) -> list[str]:
    """Content words of an earlier question without those for what it asked, as price or 多少钱."""
    return [word for word in content_words(text) if word.casefold() not in ASKED and not _counts(word)]


def names_something(text: str) -> bool:
    """Whether a text names a topic: a noun, a name, a code, or a verb-object compound."""
    plain = to_simplified(text)
    if any(not _is_generic(token) for token in content_words(" ".join(_LATIN.findall(plain)))):
        return True
    return any(_is_named(word, tag) for run in _HAN_RUN.findall(plain) for word, tag in _known(pos_tags(run)))


def _is_named(word: str, tag: str) -> bool:
    if tag[0] == "v" and len(word) > 1 and word[-1] in _OBJECTS and word not in GENERIC:
        return True
    if len(word) == 1 or _is_generic(word) or word in STOP_WORDS or _ASKS_ZH.search(word):
        return False
    return tag[0] in "njil" or tag == "vn"


def _known(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The words with tags; what follows 的, or was joined from single characters, counts as a noun."""
    tags = dict(pairs) | {word: "n" for (before, _), (word, _) in pairwise(pairs) if before == "的" and len(word) > 1}
    return [(word, tags.get(word, "n")) for word in _joined([word for word, _ in pairs])]


def ordinal(text: str) -> str:
    """The phrase that refers to an item of a list ("the second one", "第二个"), or ""."""
    chinese = _ORDINAL_ZH.search(text)
    english = re.search(r"\b(?:the )?(first|second|third|fourth|fifth|last)\b", text, re.I)
    return chinese[0] if chinese else english[1].lower() if english else ""


def is_elliptical(text: str) -> bool:
    """Whether a question only replaces a part of the previous one: "what about 2023?"."""
    text = _stripped(text)[0]
    bare = re.sub(r"^(?:what about|how about|same for|换成|改成|如果是|要是)\s*", "", text, flags=re.I)
    return not any(_is_generic(word) for word in content_words(bare)) and not (
        _ASKS_EN.match(bare) or _ASKS_ZH.search(bare)
    )


def is_followup(text: str) -> bool:
    """Whether a question of at most 2,000 characters cannot be understood without the conversation before it."""
    if len(text) > _MAX_TURN:
        return False
    plain, led = _stripped(_QUOTED.sub("quotation", to_simplified(text)))  # a quotation names its topic
    if not plain:
        return True
    chinese = bool(_HAN.search(plain))
    if _refers_back_zh(plain, led=led) if chinese else _refers_back_en(plain, led=led):
        return True
    known = names_something(plain) if chinese else bool(topic_words(plain))
    return not known and not _EXPLETIVE.search(plain) and not _NUMBER.search(plain)


def _stripped(text: str) -> tuple[str, bool]:
    """The question without opening phrases ("ok", "好的"), and whether a conjunction ("and", "那么") was among them."""
    plain, start, led = text.strip(), 0, False
    while True:
        shorter = _skip(plain, start, _FILLER_EN, _FILLER_ZH)
        opened = _skip(plain, shorter, _LEAD_EN, _LEAD_ZH)
        led = led or opened != shorter
        word = _NON_SPACE.search(plain, opened)
        if opened == start or word is None:
            return plain[start:], led
        start = word.start()


def _skip(text: str, start: int, *openings: re.Pattern[str]) -> int:
    for opening in openings:
        match = opening.match(text, start)
        start = match.end() if match else start
    return start


# -- English --------------------------------------------------------------------------------------------------------


def _refers_back_en(text: str, *, led: bool) -> bool:
    text = _CHOICE_EN.sub("which", text if text.isupper() else _DEPARTMENT.sub("informatics", text))
    if _ALWAYS_EN.search(text) and not _EXISTS.search(text):
        return True
    spared = _EXPLETIVE.sub(" ", text)
    if any(not _has_antecedent(spared[: match.start()]) for match in _PRONOUN_EN.finditer(spared)):
        return True
    if any(not topic_words(spared[: match.start()]) for match in _POSSESSIVE_EN.finditer(spared)):
        return True
    if any(_points_back(spared, match) for match in _POINTER_EN.finditer(spared)):
        return True
    asks = bool(_ASKS_EN.match(text))
    short = len(text.split()) <= _MAX_FRAGMENT
    return not asks and short and (led or text.endswith("?")) and not _CODE.search(text)


def _has_antecedent(before: str) -> bool:
    """Whether an earlier clause of the question names a topic that a pronoun can refer to."""
    borders = list(_CLAUSE_EN.finditer(before))
    return bool(borders) and bool(topic_words(before[: borders[-1].start()]))


def _points_back(text: str, match: re.Match[str]) -> bool:
    pointer, following = match[1].lower(), (match[2] or "").lower()
    before = text[: match.start()].split()
    previous = re.sub(r"\W", "", before[-1]).lower() if before else ""
    if following in _DEICTIC or _has_antecedent(text[: match.start()]):
        return False
    if pointer == "that":  # behind a noun it opens a clause, before a determiner it joins one
        after_noun = bool(previous) and previous not in STOP_WORDS and previous not in GENERIC
        return not after_noun and following not in _AFTER_CONJUNCTION
    return True


# -- Chinese --------------------------------------------------------------------------------------------------------


def _refers_back_zh(text: str, *, led: bool) -> bool:
    bare = text.rstrip("？?。.！! ")
    asks = bool(_ASKS_ZH.search(bare))
    if not asks and (bare.endswith("呢") or led or re.match(r"换成|改成", bare)):
        return True
    if bare.startswith("其中") or (_OTHERS_ZH.match(bare) and not topic_words(bare)):
        return True
    spared = _TIME_ZH.sub("", bare)
    if any(not _has_antecedent_zh(spared, match) for match in _POINTER_ZH.finditer(spared)):
        return True
    if (pointer := _ORDINAL_ZH.search(bare)) is not None:
        behind = bare[pointer.end() :]
        return behind.startswith("的") or "的" not in behind or not names_something(behind)
    return bool(_INSIDE_ZH.match(bare))


def _has_antecedent_zh(text: str, match: re.Match[str]) -> bool:
    """Whether the question itself contains the antecedent of a demonstrative."""
    before = text[: match.start()]
    if match[0].startswith("其"):
        return bool(topic_words(before))
    if before and (before[-1] in "》”」』）)" or re.search(r"[A-Za-z0-9]\s*$", before)):
        return match[0][0] in "这那"  # "E1102 这个报警": named right before
    borders = list(_BOUND_ZH.finditer(before + match[0][0]))
    return bool(borders) and bool(topic_words(before[: borders[-1].start()]))


def _counts(word: str) -> bool:
    """Whether a word is a Chinese question word or ordinal: 几天, 哪个, 第二."""
    return word[0] in "几哪" or (word[0] == "第" and len(word) <= len("第二个"))


def _is_generic(word: str) -> bool:
    folded = word.casefold()
    if folded in GENERIC or _counts(folded):
        return True
    return bool(_HAN.match(folded)) and (len(folded) == 1 or all(char in GENERIC for char in folded))


def shares_word(text: str, words: Sequence[str]) -> bool:
    """Whether a text contains one of the words."""
    folded = text.casefold()
    return any(word.casefold() in folded for word in words)


RECENT = 6
"""Number of last turns of a conversation that are used."""

_CONTEXT_WEIGHT = 0.5  # of a term from the conversation, relative to one of the question
_MAX_ADDED = 12  # words added to a question
_MAX_FROM_ANSWER = 6  # of them from an answer
_SHORT_ANSWER = 12  # content words up to which all words of an answer are used
_MAX_REWRITTEN = 400  # characters of a rewritten question
_QUOTES = ' "“”「」'
_MIN_KNOWN = 0.6  # share of a rewritten question's words that must occur in the conversation
_MAX_TURN = 2_000  # characters read of a turn

_USERS = frozenset({"user", "human", "customer", "用户", "客户", "问", "我"})
_ASSISTANTS = frozenset({"ai", "assistant", "bot", "chatbot", "model", "助手", "助理", "客服", "机器人", "答"})
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
_SERIES_EN = re.compile(r"((?:[\w' -]++,\s*+)+(?:and|or)\s+[\w' -]+)", re.IGNORECASE)
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
class HistoryTurn:
    """One turn of a conversation.

    Attributes:
        role: "user", "assistant", or "" if unknown.
        text: The message.
    """

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class CompletedQuestion:
    """A question completed from the conversation.

    Attributes:
        query: Text to search for; the question itself if it is not a follow-up.
        added: Words taken from the conversation, which get less weight; "" for none.
        warning: Why the language model's answer was not used, or "".
    """

    query: str
    added: str = ""
    warning: str = ""


def read_history(history: object) -> tuple[HistoryTurn, ...]:
    """Parse a conversation: its last turns, oldest first.

    Args:
        history: Turns in order: strings, (role, text) pairs, {"role": …, "content": …}, or messages of LangChain or
            LlamaIndex. Turns without text and turns of tools and of the system are skipped.

    Raises:
        InvalidQueryError: not a list, or an item of another type.
    """
    if history is None:
        return ()
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Iterable):
        raise InvalidQueryError(
            f"history must be a list of turns, got {type(history).__name__}: pass strings, (role, text) pairs or "
            "messages."
        )
    turns = [_turn(place, item) for place, item in enumerate(history)]
    messages = [turn for turn in turns if turn.text.strip() and turn.role not in _SILENT_ROLES]
    return tuple(messages[-RECENT:])


def _turn(place: int, item: object) -> HistoryTurn:
    role: object = ""
    content: object = item
    if isinstance(item, Mapping):
        role = item.get("role", item.get("type"))
        # "data" is where LangChain's messages_to_dict puts the message
        message = data if isinstance(data := item.get("data"), Mapping) else item
        content = next((message[key] for key in _CONTENTS if message.get(key)), None)
        if role is None and not any(key in message for key in _CONTENTS):
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
    return HistoryTurn("user" if name in _USERS else "assistant" if name in _ASSISTANTS else name, _text(content))


def _text(content: object) -> str:
    """Text of a message content; parts that are not text are skipped."""
    if isinstance(content, str):
        return content[:_MAX_TURN]
    if isinstance(content, Sequence):
        parts = (
            part if isinstance(part, str) else part.get("text", "")
            for part in content
            if isinstance(part, str | Mapping)
        )
        return " ".join(part for part in parts if isinstance(part, str))[:_MAX_TURN]
    return ""


def complete_question(query: str, turns: Sequence[HistoryTurn]) -> CompletedQuestion:
    """Complete a follow-up question by rules, with words of the conversation.

    The topic is taken from the last standalone question and those after it, names from the last answer, and a list item
    ("the second one", "第二个") from the last list. An elliptical question ("what about 2023?") also takes over what
    was asked; a question that asks something new takes over only the topic.
    """
    if not turns or not is_followup(query):
        return CompletedQuestion(query)
    questions, answer = _context(turns)
    words = _item(query, turns) or []
    rest = is_elliptical(query)
    take = content_words if rest else subject_words
    numbered = bool(re.search(r"\d", query))
    for text in map(to_simplified, questions):
        words += [word for word in take(text) if not (numbered and word[:1].isdigit())]
    if not rest:
        words += _names(to_simplified(answer))[:_MAX_FROM_ANSWER]
    known = {word.casefold() for word in content_words(query)}
    new_words = [word for word in dict.fromkeys(words) if word.casefold() not in known]
    added = " ".join(new_words[:_MAX_ADDED])
    return CompletedQuestion(f"{added} {query}", added) if added else CompletedQuestion(query)


def _context(turns: Sequence[HistoryTurn]) -> tuple[list[str], str]:
    """Earlier questions, from the last one back to a standalone one, and the last answer."""
    roles = {turn.role for turn in turns}
    users = [turn.text for turn in turns if turn.role == "user"] if "user" in roles else [turn.text for turn in turns]
    questions: list[str] = []
    for text in reversed(users):
        questions.append(text)
        # without roles the last turn may be an answer
        if not is_followup(text) and ("user" in roles or len(questions) > 1):
            break
    answers = [turn.text for turn in turns if turn.role == "assistant"]
    return questions, answers[-1] if answers else ""


def _names(answer: str) -> list[str]:
    """Topic words of an answer: all of a short one, otherwise titles, quotations, names and codes."""
    content = [word for word in topic_words(answer) if not word[:1].isdigit()]
    if len(content) <= _SHORT_ANSWER:
        return content
    names = [next(filter(None, match.groups())) for match in _NAMES.finditer(answer)]
    return [name for name in dict.fromkeys(names) if topic_words(name)]


def _item(query: str, turns: Sequence[HistoryTurn]) -> list[str]:
    """Words of the list item that the question refers to, from the last list of the conversation."""
    pointer = ordinal(query)
    if not pointer:
        return []
    for turn in reversed(turns):
        items = _items(turn.text)
        if len(items) > 1:
            last = pointer == "last" or "最后" in pointer
            mark = re.sub(r"[第个种条项步款点家位名本部篇]", "", pointer)
            place = len(items) - 1 if last else _PLACE.get(mark, len(items))
            return content_words(items[place])[:_MAX_FROM_ANSWER] if place < len(items) else []
    return []


def _items(text: str) -> list[str]:
    """Items of the list in a text: numbered, bulleted, or enumerated in a sentence."""
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
    return [part for part in re.split(r",\s*(?:and|or)?\s*|\s+(?:and|or)\s+", row[1]) if part.strip()] if row else []


def add_context_terms(
    terms: Mapping[str, Mapping[str, float]], added: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Merge the terms of a question with those added from the conversation, which get half the weight."""
    merged = {field: dict(weights) for field, weights in terms.items()}
    for field, weights in added.items():
        known = merged.setdefault(field, {})
        for term, weight in weights.items():
            known[term] = max(known.get(term, 0.0), _CONTEXT_WEIGHT * weight)
    return merged


def resolve_followup(
    query: str, turns: Sequence[HistoryTurn], rewriter: LanguageModel | None, timeout: float
) -> CompletedQuestion:
    """Complete a follow-up question from the conversation; other questions are returned as they are.

    Args:
        query: The question.
        turns: Turns before it, oldest first.
        rewriter: Language model that rewrites the question; its answer is used if it passes the checks. None for rules.
        timeout: Seconds for the model call.
    """
    if not is_followup(query):
        return CompletedQuestion(query)
    completed = complete_question(query, turns)
    return completed if rewriter is None else _rewrite(rewriter, query, turns, timeout, completed)


def _rewrite(
    model: LanguageModel, query: str, turns: Sequence[HistoryTurn], timeout: float, fallback: CompletedQuestion
) -> CompletedQuestion:
    conversation = "\n".join(f"{turn.role or '-'}: {turn.text}" for turn in turns)
    try:
        answer = ask_llm(model, _PROMPT.format(turns=conversation, query=query), timeout)
    except LLMError as error:
        logger.warning("completing the question by rules instead of the model: %s", error)
        return replace(fallback, warning=str(error))
    lines = [line.strip(_QUOTES) for line in answer.splitlines() if line.strip()]
    question = re.sub(
        r"^(?:question|问题|改写|rewritten)[^:：]{0,20}[:：]\s*", "", lines[-1] if lines else "", flags=re.I
    )
    question = question.strip(_QUOTES)
    words = content_words(question[: _MAX_REWRITTEN + 1])
    source = " ".join([query, *(turn.text for turn in turns)])
    known = sum(shares_word(source, [word]) for word in words)
    if not words or len(question) > _MAX_REWRITTEN or known < _MIN_KNOWN * len(words):
        warning = f"the model answered {answer[:80]!r}, which is not a question of this conversation"
        logger.warning("completing the question by rules instead of the model: %s", warning)
        return replace(fallback, warning=warning)
    return CompletedQuestion(question)
