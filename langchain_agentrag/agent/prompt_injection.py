"""Retrieved text as a model may see it: fenced and neutralised (`PassageSafety`), and checked for instructions.

First the safety options and the fence around passages, then the neutralising of text, then the detection of
instructions in English and Chinese by patterns over the normalised text. Detection warns and should stay quiet on
ordinary passages; `python -m tests.redteam DATA` prints both rates.
"""

from __future__ import annotations

import html
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Literal, Self

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.normalization import normalize
from langchain_agentrag.text.tokenizer import to_simplified

# -- safety options and fences ----------------------------------------------------------------------------------------

Trust = Literal["low", "normal", "high"]
"""How far a source is trusted: "low" is text that anybody may have written, "high" what the operator wrote."""

FenceLanguage = Literal["en", "zh", "both"]

_LOW_TRUST_TYPES = frozenset({"tool_call", "web", "html", "email", "issue", "comment"})
_WITHHELD = "(name withheld: it reads like instructions 名称像指令，已略去)"
_MAX_NAME = 300  # characters of a source, title or place
_MAX_MESSAGE = 1_000  # characters of an error message
_OPEN_NAME = re.compile(r"[\w.,:;/\\#@+=~%&?-]{1,120}")  # has no space, no bracket, and nothing that a renderer acts on
_MAX_OPEN_WORDS = 7  # alphabetic words of a name outside of a fence; an order in a name has more
_MAX_OPEN_HAN = 8  # Chinese characters of such a name
_NAME_WORD, _NAME_HAN = re.compile(r"[a-zA-Z]{2,}"), re.compile(r"[\u3400-\u9fff]")
_FENCE_MARK = re.compile(  # matches the messages `fence.open` and `fence.close`
    r"⟦(?:(?P<end>end|引文完)|quoted(?: 引文)?|(?P<zh>引文)) (?P<token>[0-9a-f]{12})[^⟦⟧]*+⟧"
)


def trust_of(metadata: Mapping[str, Any]) -> Trust:
    """Return the trust in the source of a document: "low" for tool output, web text and quarantine, else "normal".

    Decided by `role`, `type` and `quarantined`, and by web addresses under `url`, `source` or `link`. A document cannot
    raise its own trust.
    """
    if metadata.get("quarantined") is True or "tool" in _strings(metadata, "role"):
        return "low"
    sources = _strings(metadata, "url", "source", "link")
    web = any(source.lower().startswith(("http://", "https://")) for source in sources)
    return "low" if web or not _LOW_TRUST_TYPES.isdisjoint(_strings(metadata, "type")) else "normal"


def _strings(metadata: Mapping[str, Any], *keys: str) -> list[str]:
    """Return the strings under the keys, alone or in lists; metadata may have any type there."""
    values = (metadata.get(key) for key in keys)
    items = chain.from_iterable(value if isinstance(value, (list, tuple)) else [value] for value in values)
    return [item for item in items if isinstance(item, str)]


@dataclass(frozen=True, slots=True)
class PassageSafety:
    """What is done to retrieved text before a model sees it; the artifact and the store keep the original.

    Attributes:
        fences: Whether each passage is put between marks with a token drawn at random for each reply.
        cleaning: Whether control, bidirectional and invisible characters are removed, and the marks of fences and chat
            templates broken up.
        flags: Whether passages that read like instructions are flagged, and sources of low trust named.
        defanging: Whether links and images are written so that nothing fetches them: "https[:]//".
        trust: Returns the trust in a source from its metadata. Sources of high trust are not flagged.
    """

    fences: bool = True
    cleaning: bool = True
    flags: bool = True
    defanging: bool = True
    trust: Callable[[Mapping[str, Any]], Trust] = trust_of

    @classmethod
    def off(cls) -> Self:
        """Return options that show text as it is stored."""
        return cls(fences=False, cleaning=False, flags=False, defanging=False)

    def text(self, text: str) -> str:
        """Return a neutralised text, without a fence."""
        if self.cleaning:
            text = neutralise_markup(text)
        return neutralise_links(text) if self.defanging else text

    def name(self, text: str) -> str:
        """Return a source, title or place that can be shown outside of a fence: one short line, withheld if flagged."""
        if self.flags and instruction_kinds(text):
            return _WITHHELD
        if not self.cleaning:
            return text
        line = " ".join(neutralise_markup(text).split())
        if self.defanging and not re.fullmatch(r"https?://[^\s<>()\[\]]+", line):
            line = neutralise_links(line)
        return line if len(line) <= _MAX_NAME else f"{line[:_MAX_NAME]}…"

    def may_stand_open(self, name: str) -> bool:
        """Return whether a name may stand outside of a fence: one short word of few parts, such as a path or a key.

        Anything longer can be a sentence to the model, whether or not the rules recognise it as one.
        """
        if not self.fences:
            return True
        words = _NAME_WORD.findall(name)
        few = _OPEN_NAME.fullmatch(name) is not None and len(words) <= _MAX_OPEN_WORDS
        few = few and len(_NAME_HAN.findall(name)) <= _MAX_OPEN_HAN
        return few and not instruction_kinds(name) and not instruction_kinds(" ".join(words))

    def identifier(self, value: object) -> str:
        """Return JSON that decodes to ids unchanged and shows no invisible, active or fence character."""
        text = json.dumps(value, ensure_ascii=False)
        active = self.defanging and neutralise_links(text) != text
        hidden = _ACTIVE_IN_NAMES | FENCE_BRACKETS if active or neutralise_markup(text) != text else FENCE_BRACKETS
        if not self.cleaning:
            return text
        return "".join(
            json.dumps(char)[1:-1] if not char.isprintable() else f"\\u{ord(char):04x}" if char in hidden else char
            for char in text
        )

    def message(self, text: str, language: FenceLanguage = "en") -> str:
        """Return an error message on one line, cut when long; fenced when what it quotes reads like instructions."""
        line = " ".join(self.text(text).split()) if self.cleaning else text
        line = line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}…"
        return self.fence(language).wrap(line, {}) if self.suspicious(text, {}) else line

    def suspicious(self, text: str, metadata: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the kinds of instructions in a passage; none for a source of high trust, or without flags."""
        return instruction_kinds(text) if self.flags and self.trust(metadata) != "high" else ()

    def fence(self, language: FenceLanguage = "en") -> Fence:
        """Return the fence of one reply."""
        return Fence(self, language)


class Fence:
    """Marks around the passages of one reply. No stored text can forge them: their token is newer than it.

    Args:
        safety: The safety options.
        language: Language of the marks.
    """

    def __init__(self, safety: PassageSafety, language: FenceLanguage = "en") -> None:
        self._safety, self.token = safety, secrets.token_hex(6)
        self._texts = load_messages("agent", "fence", language)

    def wrap(
        self,
        text: str,
        metadata: Mapping[str, Any],
        *,
        inspect: str | None = None,
        block: bool = False,
        names: str = "",
    ) -> str:
        """Return the neutralised text between the marks.

        Args:
            text: The text to show.
            metadata: Metadata of its document.
            inspect: Text to check for instructions where it is more than `text`: the whole passage of a snippet.
            block: Whether the marks are on lines of their own.
            names: Neutralised ids and names that stand before the text.
        """
        safety = self._safety
        kinds = safety.suspicious(text if inspect is None else inspect, metadata)
        kinds = (*kinds, *(kind for kind in safety.suspicious(names, metadata) if kind not in kinds))
        flags = self._texts["flags"].format(kinds=", ".join(kinds)) if kinds else ""
        safe_text = safety.text(text)
        if names:
            safe_text = f"{names}{chr(10) if block else ' '}{safe_text}"
        if not safety.fences:
            label = flags.strip("；; ")
            return f"({label}) {safe_text}" if label else safe_text
        low_trust = safety.flags and safety.trust(metadata) == "low"
        trust = self._texts["trust"] if low_trust else ""
        opening = self._texts["open"].format(token=self.token, trust=trust, flags=flags)
        gap = "\n" if block else " "
        return f"{opening}{gap}{safe_text}{gap}{self._texts['close'].format(token=self.token)}"


def close_fence(text: str) -> str:
    """Repair a fenced text that was cut: remove half a mark at its end and close its last fence."""
    if text.rfind("⟦") > text.rfind("⟧"):
        text = text[: text.rfind("⟦")]
    marks = list(_FENCE_MARK.finditer(text))
    if not marks or marks[-1]["end"]:
        return text
    texts = load_messages("agent", "fence", "zh" if marks[-1]["zh"] else "en")
    return f"{text}\n{texts['close'].format(token=marks[-1]['token'])}"


# -- neutralising -----------------------------------------------------------------------------------------------------

FENCE_BRACKETS = frozenset("⟦⟧〚〛⟬⟭⦋⦌")
"""The brackets of a fence and similar ones; no passage is shown with one."""

_ACTIVE_IN_NAMES = frozenset("!<>[]():`＜＞（）：|｜.")

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
    "|[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}"  # one joins or selects; a run of them hides something
)
_LINE_BREAK = re.compile("\r\n?|[\u2028\u2029\u0085]")
_PLAIN_BRACKETS = str.maketrans({mark: "[[" if mark in "⟦〚⟬⦋" else "]]" for mark in FENCE_BRACKETS})
_TEMPLATE_MARK = re.compile(  # marks by which chat templates and agent loops separate speakers
    r"[<＜]([|｜][^<>|｜\n]{1,40}[|｜])[>＞]"
    r"|<(/?\s*(?:antml:)?(?:system|assistant|human|developer|tool_?(?:call|use|response|result|output)s?|invoke"
    r"|function_?(?:call|response|result)s?|parameter|think(?:ing)?|instructions?|passage|quoted|context)"
    r"(?:\s[^<>\n]{0,200})?/?)>"
    r"|<(<\s*+(?:/\s*+)?SYS\s*+>)>"
    r"|\[(/?INST)\]",
    re.I,
)

_IMAGE = re.compile(r"!(?=\[)")
_LINK_TARGET = re.compile(r"\]\s*([(（])(?=\s*\S)")
_LINK_DEFINITION = re.compile(r"^([\s>*+\-]{0,12}\[[^\]\n]{1,100}\]):(?=\s*\S)", re.M)
_FETCHING_TAG = re.compile(
    r"<(?=/?(?:img|a|script|iframe|link|object|embed|svg|video|audio|source|form|base|meta|image|style)\b)"
    # any other tag with an attribute that makes a renderer fetch something
    r"|<(?=[a-z](?:[^<>\"']|\"[^\"]{0,300}\"|'[^']{0,300}'){0,300}?[\s\"'/](?:src|srcset|href|background|style|poster|data"
    r"|action|formaction|manifest|ping|lowsrc|dynsrc|xlink:href)\s*=)",
    re.I,
)
_BEFORE_QUERY = re.compile(r"[^\s?]++(\?(?=\S))?")  # the address before the "?" of a query string, or other text
_HOST_DOT = re.compile(r"(?<=[a-z0-9-])\.(?=[a-z]{2,24}(?::\d+)?/)", re.I)
_ACTIVE_SCHEME = re.compile(r"\b(javascript|vbscript|data|mailto)[:：](?=\S)", re.I)
_SCHEME = re.compile(r"(?<=\w)\s?[:：](?=[/／\\]{2})")
_WWW = re.compile(r"\b(www)\.(?=\w)", re.I)


def neutralise_markup(text: str) -> str:
    """Remove control and invisible characters, and break up the marks of fences and chat templates."""
    text = _INVISIBLE.sub("", _LINE_BREAK.sub("\n", text)).translate(_PLAIN_BRACKETS)
    return _TEMPLATE_MARK.sub(lambda match: f"‹{next(filter(None, match.groups()))}›", text)


def neutralise_links(text: str) -> str:
    """Rewrite links, images and active tags so that no renderer and no tool fetches them; letters and digits stay."""
    text = _IMAGE.sub("! ", _LINK_TARGET.sub(r"] \1", text))
    text = _LINK_DEFINITION.sub(r"\1[:]", _FETCHING_TAG.sub("‹", text))
    text = _BEFORE_QUERY.sub(lambda match: _HOST_DOT.sub("[.]", match[0]) if match[1] else match[0], text)
    text = _ACTIVE_SCHEME.sub(r"\1[:]", text)
    return _WWW.sub(r"\1[.]", _SCHEME.sub("[:]", text))


# -- detection of instructions ----------------------------------------------------------------------------------------

_MAX_CHECKED = 20_000  # characters of a text; of a longer one the beginning and the end are checked, half of this each

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
_LONG_CHARACTER_NUMBER = re.compile(r"&#(?:[0-9]{20,}|x[0-9a-f]{20,});?", re.I)
_TAG_CHARACTERS = re.compile("[\U000e0020-\U000e007e]")
_SPACED_LATIN = re.compile(r"(?<![a-z])(?:[a-z][ .\-_*]){3,}[a-z](?![a-z])")
_SPACED_HAN = re.compile(r"(?<=[\u4e00-\u9fff])[ \t.·*_\-|]++(?=[\u4e00-\u9fff])")
_HAN = re.compile(r"[\u3400-\u9fff]+")

# Letters of other scripts that look like Latin ones; replaced only in a word that has Latin letters too.
_LOOKALIKES = str.maketrans("авеіјорсухѕԁһкмтнαοεικρτυχ", "abeijopcyxsdhkmthaoeikptux")
_MIXED_WORD = re.compile(r"\b(?=\w*[a-z])(?=\w*[\u0370-\u052f])\w+")


def instruction_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of instructions to a model that a text seems to have, in a fixed order; () if none.

    Kinds: override, role, address, secrecy, exfiltration, reveal, tool call, fence, memory. Width, case, traditional
    characters, hidden characters, spaced-out letters and look-alike letters make no difference.
    """
    normalised = _normalise(text)
    if not normalised:
        return ()
    return tuple(
        kind for kind, patterns in _compiled().items() if any(pattern.search(normalised) for pattern in patterns)
    )


@cache
def _compiled() -> dict[str, tuple[re.Pattern[str], ...]]:
    return {kind: tuple(map(re.compile, patterns)) for kind, patterns in _INSTRUCTION_PATTERNS.items()}


def _normalise(text: str) -> str:
    """Return text in lower case, simplified characters and single spaces, without disguises."""
    if len(text) > _MAX_CHECKED:
        text = f"{text[: _MAX_CHECKED // 2]}\n{text[-_MAX_CHECKED // 2 :]}"
    # tag characters are an invisible alphabet that models can read
    text = _TAG_CHARACTERS.sub(lambda match: chr(ord(match[0]) - 0xE0000), text)
    if "&" in text:  # Python refuses to read the number of more than 4,300 digits, which names no character
        text = html.unescape(_LONG_CHARACTER_NUMBER.sub(" ", text))
    text = _IGNORABLE.sub("", normalize("NFKC", text)).lower().replace("’", "'")
    if not text.isascii():
        text = _MIXED_WORD.sub(lambda match: match[0].translate(_LOOKALIKES), text)
    text = _SPACED_LATIN.sub(lambda match: re.sub(r"[ .\-_*]", "", match[0]), text)
    text = re.sub(r" ?\n\s*+", "\n", re.sub(r"[ \t\f\v]++", " ", text))
    text = _SPACED_HAN.sub("", text)
    # a sentence continues after a line break in the middle of it
    text = re.sub(r"(?<=[a-z,])\n(?=[a-z])", " ", text)
    text = re.sub(r"(?<=[\u4e00-\u9fff，、])\n(?=[\u4e00-\u9fff])", "", text)
    return _HAN.sub(lambda match: to_simplified(match[0]), text)


def _one_of(*choices: str) -> str:
    return f"(?:{'|'.join(choices)})"


_UNAMBIGUOUS_AI = _one_of(
    "ais?", "llms?", "(?:large )?language models?", "chat ?bots?", "(?:ai|virtual|automated) (?:assistant|agent)s?",
)  # fmt: skip
_AI = _one_of(_UNAMBIGUOUS_AI, r"assistants?", r"agents?", r"bots?", r"models?")
_AI_ZH = r"(?:ai(?:助手)?|人工智能|大(?:语言)?模型|语言模型|智能(?:助手|体|代理)|助手|机器人|agent|模型)"
_INSTRUCTIONS = _one_of(
    "instructions?", "prompts?", "rules", "guidelines", "directives", "commands", "guardrails", "messages", "policies",
    "training", "orders",
)  # fmt: skip
_INSTRUCTIONS_ZH = r"(?:指令|指示|命令|提示词|提示|规则|规矩|设定|约束|准则|安全(?:限制|策略|规定)|限制|对话|嘱咐)"
_IGNORE = _one_of(
    "ignore", "disregard", "forget", "override", "bypass", "discard", "drop", "abandon", "lift",
    "(?:set|put|cast|lay) aside", "pay no (?:attention|heed) to", "take no notice of", "stop following",
)  # fmt: skip
_LIMITS = _one_of(
    _INSTRUCTIONS, "constraints?", "restrictions?", "limits?", "limitations?", "directions", "safeguards?",
)  # fmt: skip
_ASSISTANT_ZH = (
    r"(?:(?:本|此|当前)[^。！？]{0,4}的?)?"
    r"(?:ai(?:助手|助理)?|大?语言模型|大模型|智能(?:助手|助理|体)|助手|助理|模型)"
)
_PRIOR = _one_of(
    "previous", "prior", "above", "earlier", "preceding", "existing", "original", "system",
    "all (?:of )?(?:the |your |other )?", "your", "any other", "developer",
)  # fmt: skip
_PRIOR_ZH = r"(?:以上|之前|上述|前面|先前|此前|所有|原来|原有|系统|全部|一切|既有|你的|收到的|其他)"
_PRIVATE = _one_of(
    r"conversations?", r"(?:chat|message|dialogue|user) (?:history|log)s?", r"(?:system|hidden) prompts?",
    r"context window", r"api[ _-]?keys?", r"passwords?", r"credentials?", r"secrets?", r"access tokens?",
    r"private (?:notes?|keys?|memor(?:y|ies))", r"(?:previous|earlier|above|prior|all) messages?", r"memory contents?",
    r"(?:user'?s?|their|his|her) (?:private )?(?:question|query|message|data|detail|email|address"
    r"|name|memorie|note)s?",
    r"everything (?:you|the user)",
)  # fmt: skip
_PRIVATE_ZH = (
    r"(?:(?:对话|聊天|会话)(?:内容|记录|历史)?|系统提示词?|上下文|(?:api ?)?密钥|密码|口令|凭证"
    r"|凭据|令牌|(?:私有)?记忆"
    r"|用户[^。，,]{0,8}的(?:所有|全部|一切)?(?:信息|内容|话|数据)|用户(?:的)?(?:问题|提问|数据|信息|资料|隐私|邮箱|姓名|手机号|消息)|个人信息)"
)
_DESTINATION = _one_of(
    r"h(?:tt|xx)ps?\W{0,4}//", r"www\W", r"\b[\w.-]{1,100}@[\w-]{1,63}\.", r"\bwebhook", r"\bquery string", r"[?&]\w+=",
)  # fmt: skip
_SEND = _one_of(
    "send", "post", "upload", "forward", "append", "includ(?:e|ing)", "encod(?:e|ed|ing)", "leak", "transmit",
    "e-?mail", "put", "pass", "attach", "report", "submit", "paste", "insert", "replac(?:e|ing)", "with",
)  # fmt: skip
_FROM_NOW_ON = _one_of(
    "from now on", "in (?:all |every )?future (?:conversation|session|answer|chat)s?", "going forward", "henceforth",
    "whenever (?:anyone|anybody|someone|a user|the user|any user) asks",
)  # fmt: skip
_FROM_NOW_ON_ZH = r"(?:从现在(?:起|开始)|从今(?:往后|以后|起)|今后|以后|此后|往后|自此)"

# Kind → patterns over normalised text. Before the table: the alternatives that its patterns share.
_INSTRUCTION_PATTERNS: dict[str, tuple[str, ...]] = {
    "override": (
        r"\b(?:ignore|disregard|forget|override|bypass|discard|set aside|pay no attention to|stop following"
        rf"|do not follow|don't follow)\b[^.!?\n]{{0,40}}\b{_PRIOR}[^.!?\n]{{0,25}}\b{_INSTRUCTIONS}\b",
        r"\b(?:ignore|disregard|forget|stop following)\b (?:the |any |those "
        rf"|these )?{_INSTRUCTIONS} (?:that )?(?:you (?:were|have|had|got|received)|given to you|above|of (?:the"
        r"|your) (?:operator|developer))",
        rf"\bstop following (?:the )?(?:operator|developer)'s {_INSTRUCTIONS}",
        rf"\b(?:previous|prior|above|earlier|original|former|system) {_INSTRUCTIONS}[^.!?\n]{{0,30}}\b(?:(?:are"
        r"|is) (?:now )?(?:void|obsolete|cancell?ed|revoked|superseded|invalid|no longer)|no longer appl)",
        r"(?:忽略|无视|忘记|忘掉|不要理会|不必理会|抛开|别管|不用管|不要遵守|不再遵守|停止遵守|放弃|推翻|绕过"
        rf"|覆盖)[^。！？]{{0,12}}(?:{_PRIOR_ZH}|(?:系统|开发者"
        rf"|管理员)(?:给你)?的?)[^。！？]{{0,10}}{_INSTRUCTIONS_ZH}",
        r"(?:以上|之前|上述|前面|先前|此前|原来|系统)的?(?:所有|全部"
        rf"|一切)?的?{_INSTRUCTIONS_ZH}[^。！？]{{0,6}}(?:作废|失效|不再有效|不再适用|均可忽略|请忽略|都不算)",
        # the model's instructions under other names
        rf"\b{_IGNORE} (?:all |any |everything |of )*(?:what(?:ever)?|everything|all|anything)(?: that)? you (?:were"
        r"|have been|had been|'ve been) (?:told|taught|given|instructed)",
        rf"\b{_IGNORE}\b[^.!?\n]{{0,20}}\b{_LIMITS}\b[^.!?\n]{{0,15}}\b(?:gave you|given (?:to )?you|set for you"
        r"|imposed on you|(?:in|of) your (?:system )?prompt)",
        rf"\b(?:your (?:(?:earlier|previous|prior|old|original|former|current) )?{_LIMITS}"
        rf"|{_LIMITS} given to you\b[^.!?\n]{{0,30}}?) (?:(?:are|is|have been) (?:now |hereby )?(?:void|obsolete"
        r"|cancell?ed|revoked|lifted|removed|invalid)|no longer (?:appl|hold|count|bind))",
        rf"给你(?:定|设|下|立)?的?[^。！？]{{0,4}}{_INSTRUCTIONS_ZH}[^。！？]{{0,6}}(?:作废|失效|无效|不再有效"
        r"|不再适用)",
        rf"(?:把|将)[^。！？]{{0,6}}{_PRIOR_ZH}[^。！？]{{0,10}}(?:{_INSTRUCTIONS_ZH}|要求)[^。！？]{{0,4}}(?:抛|丢"
        r"|放|忘|搁)(?:在|到|诸|掉|弃|下|一)",
        rf"(?:取消|解除|关闭|丢弃|抛弃|丢掉|放下|摆脱)你[^。！？，,]{{0,10}}{_INSTRUCTIONS_ZH}",
        # encoded instructions
        r"\b(?:decode|decrypt|unscramble|decipher)\b[^.!?\n]{0,60}\b(?:and|then)\b[^.!?\n]{0,12}\b(?:carry out"
        r"|follow|obey|act on|do|execute) (?:it\b|what\b|them\b|(?:the|its|those) (?:order|instruction))",
        r"(?:解码|解密|译码|还原|破译)[^。！？]{0,8}(?:照做|照办|(?:照着?|遵照|按照?其?(?:内容)?"
        r"|依照)(?:去)?(?:执行|做|办))",
    ),
    "role": (
        r"\byou are (?:now|no longer) (?:an? |the |in )?(?:dan\b|(?:developer|debug|maintenance|god|admin) mode"
        r"|unrestricted|unfiltered|jailbroken|(?:system )?administrator|(?:bound|restricted|limited) by)",
        r"\bact as (?:an? )?(?:unrestricted|unfiltered|jailbroken)",
        r"\bnew (?:system )?(?:instructions?|prompts?|directives?) ?(?::|for (?:you\b|(?:the |all "
        rf"|any )?{_AI} ?[:,.]))",
        r"(?:^|\n)\W{0,6}(?:system|assistant|developer) ?(?:prompt|message|instructions?|override)\W{0,3}:",
        r"(?:你现在是|你已经?(?:是|成为|进入)|现在起你是|请?(?:扮演|切换为"
        r"|切换到))[^。！？]{0,10}(?:不受(?:任何)?限制|无限制|没有限制|开发者模式|调试模式|越狱|超级管理员"
        r"|管理员模式|上帝模式|维护模式)",
        rf"\b(?:you are|act as|pretend to be|behave as|become)\b[^.!?\n]{{0,30}}\b{_AI} (?:without|with no|free (?:of"
        rf"|from)) (?:any |all )?(?:{_LIMITS}|filters?|censorship)\b",
        r"(?:你(?:现在|就|将|已)*(?:是|成为|变成)|扮演)[^。！？]{0,8}(?:没有|不受|毫?无)(?:任何|一切)?(?:限制|约束"
        r"|审查|束缚|禁忌)",
        rf"(?:系统|开发者|管理员)(?:消息|讯息|信息|通知|公告)\W{{1,3}}[^。！？]{{0,8}}?{_ASSISTANT_ZH}(?:应当?|必须"
        r"|务必|需|请|不得|要)",
        r"(?:新的?|最新)(?:系统)?(?:指令|提示词|指示)(?:如下|是|为|:)|(?:系统|管理员|开发者)(?:指令|提示词"
        r"|最高指令)\W{0,2}:",
    ),
    "address": (
        r"\b(?:note|message|notice|attention|important|instructions?|reminder|command)s?\W{0,3} ?(?:to"
        rf"|for) (?:the |any |all |every )?(?:{_UNAMBIGUOUS_AI}\b|assistants? ?[:,])",
        rf"(?:^|[.!?\n]) ?to (?:the |any |all |every )?(?:{_UNAMBIGUOUS_AI}|assistants?|agents?) ?[:,]",
        rf"\bif you(?:'re| are) an? (?:{_UNAMBIGUOUS_AI}\b|{_AI} ?(?:[,:]|reading|processing|summari[sz]ing))",
        rf"\b{_UNAMBIGUOUS_AI} (?:that (?:is|are) )?(?:reading|processing|summari[sz]ing|indexing|retrieving) th(?:is"
        r"|ese)\b",
        rf"(?:^|\n)\W{{0,4}}(?:dear|hey|attention),? {_AI} ?[,:!]",
        rf"\b{_AI} (?:who |that |which )?(?:reads?|sees?|processes|retrieves|receives|quotes?) th(?:is|e following"
        r"|ese)\b[^.\n]{0,40}\b(?:must|should|shall|has to|is required)",
        r"(?:致|告知|提醒|通知|敬告|指示|请)(?:各位|所有|正在|任何|阅读|读到|处理|检索|本|此|这|段|文|的|内容|资料"
        rf"|文档){{0,10}}{_AI_ZH}(?:们)?[^。！？\n]{{0,4}}(?:请|必须|务必|应当|立即|:)",
        rf"(?:^|[\n\"'，。:;]) ?(?:各位|所有)?{_ASSISTANT_ZH}(?:们)?请(?:注意|听|照|务必|立即)",
        rf"\b{_UNAMBIGUOUS_AI} ?,? (?:please )?(?:take note|listen|pay attention|be advised) ?[:,]",
        rf"(?:如果|若|当|假如)(?:你|您)(?:是|作为)(?:一个|一名|一款)?(?:正在[^。]{{0,12}})?{_AI_ZH}",
        rf"(?:阅读|读到|看到|处理|检索到)(?:本|此|这|以下)[^。！？\n]{{0,10}}的?{_AI_ZH}[^。！？\n]{{0,6}}(?:请|必须"
        r"|务必|应当)",
    ),
    "secrecy": (
        r"\b(?:do not|don't|never|without) (?:tell|inform|mention|reveal|alert|notify|let|warn|disclos)(?:e"
        r"|t?ing)?\b[^.!?\n]{0,40}\b(?:the user|the human|the person (?:asking|you)|your user)\b",
        r"(?:不要|不得|切勿|不可|别|无需|不必|禁止)(?:向|对|让|把|将|告诉|告知|通知|提醒|透露给|跟"
        r"|和)[^。！？，,]{0,14}(?:用户|使用者|提问者|提问人|操作员|主人)[^。！？]{0,14}(?:这|此|该|本|察觉|知道"
        r"|发现|提及|提起|透露|指令|步骤)",
        r"(?:不要|不得|切勿|别|无需|不必)(?:把|将)(?:这|此|该|本)[^。！？，,]{0,8}(?:告诉|告知|透露给|通知)(?:用户"
        r"|使用者|提问)",
    ),
    "exfiltration": (
        rf"\b{_SEND}\b[^.!?\n]{{0,60}}\b{_PRIVATE}[^!?\n]{{0,60}}{_DESTINATION}",
        r"(?:https?\W{0,4}//|www\W)[^!\n]{0,100}\b(?:followed by|with|plus|containing|including|append(?:ing)?"
        rf"|where|replace|put|add)\b[^.!?\n]{{0,40}}\b{_PRIVATE}",
        rf"[?&]\w+=[\W_]{{0,3}}(?:the |your |all )?(?:{_PRIVATE}|{_PRIVATE_ZH})",
        r"(?:把|将|附上|附带|拼接|带上|填入|填上|编码|连同|包含|携带|发送|上传|提交"
        rf"|转发)[^。！？\n]{{0,20}}{_PRIVATE_ZH}[^。！？\n]{{0,30}}(?:发送|传送|传|上传|提交|转发|发|寄|回传|抄送"
        rf"|拼接?|附加?|填|编码|外传)(?:到|至|给|在|入|进|成)?[^。！？\n]{{0,20}}(?:{_DESTINATION}|链接|图片地址)",
        rf"{_DESTINATION}[^。！？\n]{{0,60}}(?:换成|替换(?:为|成)|填入|后面(?:加上|接上|拼上)|附上|拼上|带上"
        rf"|其中)[^。！？\n]{{0,20}}{_PRIVATE_ZH}",
        rf"{_DESTINATION}[^。！？\n]{{0,60}}其中[^。！？\n]{{0,10}}用户(?:对你)?说过",
    ),
    "reveal": (
        r"\b(?:reveal|print|repeat|output|show|display|recite|dump|disclose|write out|quote"
        r"|tell)\b[^.!?\n]{0,30}\b(?:system (?<!its system )(?<!their system )prompt|(?:initial|hidden|original"
        r"|secret|system|internal) instructions|your instructions|prompt above|developer message)\b",
        r"(?<!求模型)(?<!让模型)(?<!使模型)(?<!导模型)(?<!骗模型)(?:输出|打印|复述|泄露|显示|透露|公开|写出|背出"
        r"|贴出|展示|逐字)[^。！？]{0,12}(?:系统提示词|(?:初始|隐藏|内部)(?:指令|提示词?)|你的(?:全部)?(?:指令"
        r"|提示词|设定)|开发者消息)",
    ),
    "tool call": (
        r"<[|｜]? ?(?:im_start|im_end|start_header_id|eot_id|endoftext|tool_calls?|system"
        r"|assistant)[^|｜<>\n]{0,20}[|｜]>",
        r"</?\s?(?:tool_?(?:calls?|use|response|result|output)s?|function_?(?:calls?|response|result)s?|invoke"
        r"|antml:\w+)\b[^<>]{0,80}>",
        r"\[/?inst\]|<<\s?sys\s?>>|[\"']tool_calls[\"']\s*:|\baction ?: ?\w+\s+action input ?:",
        r"(?:行动|动作|操作|工具) ?: ?\w+\s+(?:行动|动作|操作|工具)(?:输入|参数) ?:|✿(?:function|args|result"
        r"|return)✿",
        r"\bbefore (?:you )?(?:answer|respond|reply)(?:ing)?\b[^.!?\n]{0,20}\b(?:call|invoke|run|execute"
        r"|trigger)\b[^.!?\n]{0,12}(?:\b(?:tool|function|plugin)\b|\w_\w)",
        r"(?:回答|回复|作答)(?:用户|问题)?(?:之前|前|以前)[^。！？\n]{0,8}(?:调用|执行|运行"
        r"|触发)[^。！？\n]{0,8}(?:工具|函数|插件|[a-z0-9]_[a-z0-9])",
        r"[{,]\s*[\"'](?:name|tool|tool_name|function)[\"']\s*:\s*[\"'][\w.-]+[\"']\s*,\s*[\"']"
        r"(?:arguments|args|parameters|tool_input|kwargs)[\"']\s*:",
        r"\b(?:you (?:must|should|have to|need to|are required to)|please|now|immediately|silently) (?:now |also "
        r"|immediately |first |silently )?(?:call|invoke|run|use|execute|trigger) (?:the |your "
        r"|my )?[`'\"]?(?=\w+?_\w)\w++[`'\"]?[ -](?:tool|function|plugin)\b",
        r"(?:立即|立刻|马上|现在就?|必须|务必|请你|你要|直接|悄悄|静默)(?:先|再|直接|立即|去|自行)?(?:调用|使用|执行"
        r"|触发|运行)[^。！？\n]{0,4}[`“「'\"]?\s?[a-z0-9]+_[a-z0-9_]+\s?[`”」'\"]?[^。！？\n]{0,4}(?:工具|函数"
        r"|插件|技能|接口)",
    ),
    "fence": (
        r"</\s?(?:资料|引文|引用|上下文|文档|段落|检索结果)\s?>",
        r"(?:以下|下面|接下来)(?:的?内容)?(?:是|为|来自)(?:用户|管理员|操作员|开发者)(?:本人)?的?(?:话|指令|要求"
        r"|指示|命令)(?:[:。，,\n]|$)",
        r"\b(?:the following|what follows)(?: \w+)? (?:comes?|is|are) (?:directly )?from the (?:user|operator"
        r"|developer)\b",
        r"</\s?(?:passages?|context|quoted?|retrieved[\w-]*|search_results?|untrusted[\w-]*)\s?/?>",
        r"[⟦〚⟬⦋]\s?(?:/|end|quoted|引文|完)",
        r"\b(?:passages?|quotation|quoted text|retrieved (?:content|text)|context|untrusted text) (?:ends? here"
        r"|is over|are over|has ended)",
        rf"\b(?:the )?operator (?:asks|wants|instructs|orders|tells) (?:you|the {_AI})|\bend of (?:the )?(?:retrieved"
        r"|quoted|untrusted) ",
        r"(?:引文|引用|资料|检索内容|检索结果|上下文)(?:部分)?(?:到此为止|已经?结束|结束"
        r"|完毕)[^\n]{0,3}\n?\W{0,2}(?:管理员|用户|系统|操作员|以下)",
        r"(?:管理员|操作员|系统)(?:要你|要求你|命令你|指示你|在对你说)|(?:已在|现在在)(?:引用|引文|资料)之外",
        r"-{8}\s{0,3}(?:please )?answer the (?:question|query)|-{8}\s{0,3}请[^\n]{0,8}回答(?:问题|用户)",
    ),
    "memory": (
        r"\b(?:remember|memori[sz]e|store|save|record|write|commit|add)\b[^.!?\n]{0,40}\b(?:(?:to|in) (?:your "
        r"|the )?(?:long-term |permanent )memory|(?:to|in) your memory|for all future (?:conversation|session|chat"
        r"|user|answer)s?)",
        r"\b(?:remember|memori[sz]e) (?:this )?permanently\b",
        r"\b(?:remember|memori[sz]e|note|keep in mind)\b(?:[^.!?\n]|\.(?=\S)){0,120}\b(?:in|for|across"
        r"|during) (?:all |every |any )?(?:your )?(?:future|later|subsequent|coming) (?:conversation|session|chat"
        r"|answer|repl)",
        r"(?:记住|牢记|记下|谨记)[^。！？]{0,80}(?:以后|今后|将来|后续|日后)的?(?:所有|每次|全部|一切"
        r"|任何)?(?:对话|会话|聊天|回答|回复)",
        rf"\b{_FROM_NOW_ON}\b[^.!?\n]{{0,50}}\b(?:you (?:must|will|should|shall|always|are to)|always (?:recommend"
        r"|answer|reply|say|use|treat|respond|include|trust|approve|tell|send|cite)|never (?:mention|warn|recommend"
        r"|tell|verify|refuse)|(?:treat|trust|recommend|approve|answer|reply|respond)\b)",
        r"(?:记住|牢记|写入|存入|保存到|更新|录入|记进)[^。！？]{0,16}(?:(?:长期|永久)记忆|记忆库|你的记忆)",
        rf"{_FROM_NOW_ON_ZH}[^。！？]{{0,12}}(?:用户|有人|任何人|无论谁|谁问|每次(?:回答|回复|对话|被问)|所有(?:回答"
        r"|对话|会话))[^。！？]{0,24}(?:都(?:要|必须|说|回答|推荐)|一律|必须|务必|只(?:能|准|要)?(?:推荐|回答|说)"
        r"|不得(?:提醒|提及|核实|拒绝))",
        rf"{_FROM_NOW_ON_ZH}一律(?:推荐|回答|回复|批准|同意)",
        r"(?:记住|牢记)[^。！？]{0,30}(?:以后|今后|每次|永远|一律)[^。！？]{0,16}(?:都|必须|一律|不(?:要|得|必"
        r"|用))[^。！？]{0,10}(?:推荐|转账|批准|核实|提醒|信任|发送)",
    ),
}
