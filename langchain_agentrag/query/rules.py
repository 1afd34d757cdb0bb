"""Route a question by rules in Chinese and English: search type, document types, sources, time range, weights. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from errno import errorcode
from typing import Any, Literal, get_args

from langchain_agentrag.query.time_expressions import MAX_QUESTION, TimeRange, blank_titles, time_range, with_short_gaps
from langchain_agentrag.text.tokenizer import to_simplified

RouteType = Literal["hybrid", "vector", "keyword", "memory", "tool_history"]
"""Search in both indexes or one of them, or in an agent's dialogues ("memory") or tool calls ("tool_history")."""

ROUTE_TYPES: tuple[RouteType, ...] = get_args(RouteType)

DIALOGUE, TOOL_CALL, ROW, SCHEMA = "dialogue", "tool_call", "row", "schema"
DOCUMENT_TYPES = (DIALOGUE, TOOL_CALL, ROW, SCHEMA, "file", "item")
"""Values of the metadata key `type` that this package writes."""

EXACT_TERM_WEIGHTS = (0.5, 0.5)
"""Share of (vector, keyword) for a question with a code or a quotation; a larger keyword share does worse on long
questions (`python -m benchmarks.router.weights`)."""


@dataclass(frozen=True, slots=True)
class Route:
    """Search options for a question, with the reasons.

    Attributes:
        question: The question as the user wrote it.
        query: Text to search for: completed from the conversation, without the words that name a time.
        search_type: See `RouteType`.
        types: Only documents of these types; empty for all.
        sources: Only documents of these sources; empty for all.
        after, before: Only documents from this time range, with time zones; None for no bound.
        weights: Share of (vector, keyword); None lets the fusion rule choose.
        newest_first: Whether of hits of about the same score the newer come first.
        reasons: One sentence per decision.
        by: "rules", or "model" if a model's answer was used.
        fallback: Why a model's answer was not used, or not all of it; "" otherwise.
        query_without_history: The query without the words completed from the conversation, for a search that is given the
            conversation itself and weighs its words less.
        time_is_optional: Whether a search may drop the time range, because a document may name that date itself.
    """

    question: str
    query: str
    search_type: RouteType = "hybrid"
    types: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    after: datetime | None = None
    before: datetime | None = None
    weights: tuple[float, float] | None = None
    newest_first: bool = False
    reasons: tuple[str, ...] = ()
    by: Literal["rules", "model"] = "rules"
    fallback: str = ""
    query_without_history: str = field(default="", repr=False)
    time_is_optional: bool = field(default=False, repr=False)

    @property
    def filter(self) -> dict[str, Any]:
        """Metadata filter of the types and sources; empty for all."""
        return {
            key: values[0] if len(values) == 1 else {"$in": list(values)}
            for key, values in (("type", self.types), ("source", self.sources))
            if values
        }

    @property
    def mode(self) -> Literal["hybrid", "vector", "keyword"]:
        """Indexes to search in."""
        return self.search_type if self.search_type in {"vector", "keyword"} else "hybrid"


@dataclass(frozen=True, slots=True)
class RouteTargets:
    """Document types and sources that a question may be narrowed to.

    Attributes:
        types: Each type with the words that name it.
        sources: Each source with the words that name it.
    """

    types: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, tuple[str, ...]]


_PAST_ZH = (
    r"(?:上次|上回|上一次|之前|以前|曾经|先前|此前|刚才|刚刚|前几天|过去|最近一次|最后一次|历史上|有没有|那次|那回)"
)
_DO_ZH = (
    r"(?:解决|修复|修好|弄好|修理|处理|排查|搞定|排除|恢复|执行|运行|跑过?|调用|用过?|部署|安装|装|设置|配置|重启|迁移|升级|回滚|导入|导出|查过|查询过|搜索过|"
    r"检索过|发送过?|提交|调试|操作)"
)
_DO_EN = (
    r"(?:fix(?:ed)?|solved?|resolved?|repair(?:ed)?|handled?|ran|run|executed?|call(?:ed)?|used?|deploy(?:ed)?|"
    r"install(?:ed)?|configured?|restart(?:ed)?|debug(?:ged)?|troubleshoot|search(?:ed)?|quer(?:y|ied)|invoked?|sent|"
    r"work(?:ed)? around|diagnosed?|roll(?:ed)? back|reboot(?:ed)?|patch(?:ed)?|sort(?:ed)?\s+out)"
)
_PAST_EN = r"(?:last\s+time|previously|before|earlier|in\s+the\s+past|already|most\s+recent(?:ly)?|last)"
_WHO_EN = r"(?:i|we|you|the\s+agent)"
_TOOL_HISTORY = (
    rf"{_PAST_ZH}[^。？?！!]{{0,24}}?(?:怎么|怎样|如何|咋|用什么|用了什么|用的什么|用哪)[^。？?！!]{{0,8}}?{_DO_ZH}",
    rf"{_PAST_ZH}[^。？?！!]{{0,24}}?{_DO_ZH}(?:了|过|的)?[^。？?！!]{{0,8}}?(?:什么|哪些|哪个|结果|步骤|命令|工具|办法|方法|输出)",
    r"(?:上次|上回|上一次|最近一次|最后一次)[^。？?！!]{0,12}(?:怎么|如何|怎样)做",
    rf"(?:怎么|如何|怎样)(?:把|将|给)?[^。？?！!]{{0,12}}?{_DO_ZH}(?:好)?(?:了)?的(?![话时人])",
    r"(?:调用|使用|用|执行|运行|跑)(?:过|了)(?:什么|哪些|哪个|几次)?[^。？?！!]{0,6}(?:工具|命令|脚本|函数|接口|SQL|API)",
    r"(?:执行|运行|跑|调用|查询|发送|操作)过的",
    rf"(?:之前|以前|曾经)?有没有[^。？?！!人谁]{{0,6}}?{_DO_ZH}过",
    r"[我你][^。？?！!]{0,4}?(?:调用|执行|运行|跑)[^。？?！!]{0,16}?[了过](?:什么|哪些|哪个)",
    r"[做试]过?了?(?:哪些|什么)(?:操作|处理|步骤|尝试|办法)",
    r"(?:刚才|刚刚|上一?[条个次]|最后一?[条个次])[^。？?！!]{0,10}?(?:命令|脚本|工具|调用)[^。？?！!]{0,6}?(?:返回|输出|结果|报|什么)",
    r"(?:工具|命令)(?:的)?(?:调用|执行)?(?:记录|历史|日志|结果)|(?:调用|执行|操作|运行)(?:记录|历史)",
    rf"\bhow(?:\s+did|\s+have|['’]d)\s+{_WHO_EN}\b[^.?!]{{0,30}}?\b{_DO_EN}\b",
    rf"\bhow\s+did\s+{_WHO_EN}\s+(?:get|make|bring)\b",
    rf"(?:^|[,.;!?]\s*)did\s+{_WHO_EN}\s+(?:already\s+|ever\s+)?{_DO_EN}\b",
    rf"\b(?:tools?|commands?|scripts?|functions?|quer(?:y|ies))\s+(?:that\s+)?{_WHO_EN}\s+(?:have\s+)?{_DO_EN}\b",
    rf"\bhow\s+(?:was|were)\b[^.?!]{{0,40}}?\b{_DO_EN}\b",
    r"\b(?:what|which)\b[^.?!]{0,20}?\b(?:tools?|commands?|scripts?|functions?|quer(?:y|ies)|calls?|steps?)\b[^.?!]{0,24}?\b(?:did|have|was|were|ran|used|called|executed|run)\b",
    r"\bwhat\s+did\s+(?:we|you|the\s+agent)\s+(?:do|run|try|execute|call|use|search)\b",
    rf"\b{_WHO_EN}\s+(?:have\s+)?(?:previously\s+)?{_DO_EN}\b[^.?!]{{0,40}}?\b{_PAST_EN}\b",
    rf"\b{_PAST_EN}\b[^.?!]{{0,30}}?\b{_WHO_EN}\s+(?:have\s+)?{_DO_EN}\b",
    r"\b(?:tool|command|function)[\s-]*(?:call|use|usage|execution)?s?\s+(?:history|log|record|results?|output)s?\b",
    rf"\bhave\s+{_WHO_EN}\s+(?:ever\s+|already\s+)?(?:{_DO_EN}|tried\s+\w+ing)\b",
    rf"\b(?:what|which)\s+(?:[^.?!]{{1,24}}?\s)?did\s+{_WHO_EN}\s+{_DO_EN}\b",
    r"\b(?:output|results?|logs?)\s+(?:of|from)\s+(?:the|your|my|our)\s+(?:last|latest|previous)\s+(?:command|tool|script|query|call|run)\b",
)
_SAY_ZH = r"(?:说|聊|谈|讲|提(?!交|供|醒|升|前|高)|讨论|告诉|答应|承诺|约定|商量|问|交代|推荐|建议|决定|同意|mention|promise|discuss|suggest|recommend)"
_MEMORY = (
    rf"(?:我|你|咱|我们|你们|咱们|他|她|用户|客户)[^。？?！!]{{0,14}}?{_SAY_ZH}\s*(?:过|了|到过?|起过|[好定]?的)(?!是)",
    rf"{_PAST_ZH}[^。？?！!]{{0,10}}?{_SAY_ZH}",
    rf"(?:昨天|昨晚|前天|上周|上个?月|去年|那天|那次|当时)[^。？?！!]{{0,8}}?(?:{_SAY_ZH}(?:了|过|我|你|咱)|[我你咱][^。？?！!]{{0,4}}?{_SAY_ZH})",
    rf"{_SAY_ZH}(?:了|过)?(?:我|你|他|她|大家)?(?:了|过)?(?:些)?(?:什么|哪些|啥)",
    r"(?:还记得|记不记得|记得(?:吗|我)|忘了我|我的(?:偏好|喜好|口味|习惯|生日|名字|昵称|忌口|过敏))",
    r"(?:聊天|对话|谈话|会话|沟通)(?:记录|历史|内容)|(?:对话|聊天|谈话)(?:里|中)",
    r"\b(?:what|when|where|which|who|why|how)\s+(?:did|has|have|had)\s+[^.?!]{1,24}?\s(?:say|mention(?:ed)?|promised?|suggest(?:ed)?|recommend(?:ed)?|discuss(?:ed)?|tell)\b",
    r"\b(?:what|when|where|which|who|why|how|did|have|has)\b[^.?!]{0,30}?\b(?:i|we|you|user|customer|he|she)\b[^.?!]{0,16}?\b(?:sa(?:y|id)|tell|told|talk(?:ed)?|discuss(?:ed)?|mention(?:ed)?|promised?|agree[d]?|decided?|suggest(?:ed)?|recommend(?:ed)?|ask(?:ed)?|chat(?:ted)?)\b",
    r"\b(?:i|we|you)\s+(?:once\s+|previously\s+|already\s+)?(?:said|told|talked|discussed|mentioned|promised|agreed|decided|suggested|recommended|chatted)\b",
    r"\b(?:do|can)\s+you\s+(?:still\s+)?(?:remember|recall)\b|\bremind\s+me\b|\bdid\s+i\s+(?:give|tell|show)\s+you\b|\bour\s+(?:last\s+|previous\s+|earlier\s+)?(?:conversation|chat|discussion|talk)\b",
    r"\b(?:chat|conversation|dialogue)\s+(?:history|log|record)s?\b|\bmy\s+(?:preference|favou?rite|birthday|allerg(?:y|ies)|nickname)s?\b",
)
_SCHEMA = (
    r"(?:数据库|库)(?:里|中)?(?:一共|总共|都)?(?:有|包含)?(?:什么|哪些|几张|多少)张?表(?!现|示|达|情|明|格|面)|(?:有|是)?(?:什么|哪些|哪个|几个|多少个?)(?:字段|列|主键|外键|索引)",
    r"(?:表结构|字段(?:类型|含义|名|[^。？?，,]{0,3}什么(?:类型|意思|含义))|表(?:之间)?是?(?:怎么|如何|怎样)(?:关联|连接)|主键|外键|建表|数据字典|ER图|表之间)",
    r"(?:哪张|哪个|哪些|什么)表(?!现|示|达|情|明|格|面)(?:里|中|存|记|有|保存)?",
    r"\b(?:which|what)\s+(?:database\s+)?(?:tables?|columns?|fields)\b|\bhow\s+many\s+(?:tables|columns)\b",
    r"\b(?:primary|foreign)\s+keys?\b|\b(?:table|database|db)\s+(?:schema|structure)\b|\bschema\s+of\b|\bcolumns?\s+(?:of|in)\b|\btables?\s+(?:in|of)\s+(?:the\s+|our\s+)?(?:database|db)\b",
)
_ROWS = (
    r"(?:数据库|数据表)(?:里|中|内)|从[^。？?，,]{0,4}(?:数据库|库)(?:里|中)?(?:查|找|取|统计|搜|列)|(?:查|查询|统计|搜索)(?:一下)?(?:数据库|库里)|(?:用|写|跑)(?:一[条个段])?\s*SQL",
    r"(?<![A-Za-z_])[A-Za-z_]{2,}\s*表(?!现|示|达|情|明|格|面)(?:里|中|内|的|有)?|(?:订单|用户|客户|员工|产品|商品|库存|工单|账单|销售)表(?:里|中|内|的)?",
    r"(?:哪|几|多少)条(?:记录|数据)|(?:记录|数据)有(?:几|多少)条|(?:查|统计)[^。？?]{0,10}(?:条记录|行数据)",
    r"\b(?:in|from|query|search|check)\s+(?:the\s+|our\s+)?(?:\w+\s+)?(?:database|db)\b|\b(?:rows?|records?)\s+(?:in|of|from|where)\b|\b(?:run|write|with|using|by)\s+(?:an?\s+)?sql\b",
    r"\b(?:in|from)\s+(?:the\s+)?[a-z_]+\s+table\b|\b[a-z_]+\s+table\s*(?:里|中|内)",
)
_DEFINITION = re.compile(
    r"^\s*(?:什么是|何谓|何为|what(?:'s|\s+is|\s+are)\s+(?:an?\s+)?"
    r"(?!(?:the|our|my|your|this|that|in|on|an?)\b)[\w-]+(?:\s+[\w-]+){0,2}\s*\??$)",
    re.IGNORECASE,
)
"""Asks what a word means; no other rule applies then."""
_HOW_TO = re.compile(
    r"如何|怎么|怎样|为什么|为何|是否支持|能否|报错|\bhow\s+(?:to|do|does|can|should)\b|\bwhy\b", re.IGNORECASE
)
_QUOTED = re.compile(r"[“\"「『《‘']([^”\"」』》’']{2,80})[”\"」』》’'](?![a-z])")
_ASKS_EXACT = re.compile(
    r"(?:精确|逐字|原文|一字不差|完全匹配|包含.{0,12}字样|关键[词字](?:来)?(?:检索|搜|查|匹配|[:：]))|"
    r"\b(?:exact(?:ly)?(?:\s+(?:match|phrase|words?))|verbatim|literal(?:ly)?|keyword\s+search|containing\s+the\s+(?:words?|phrase|string)|grep)\b",
    re.IGNORECASE,
)
_ASKS_SIMILAR = re.compile(
    r"(?:意思|含义|语义|大意)(?:上)?(?:相近|相似|差不多|类似|接近)|近义|相关概念|"
    r"(?:和|与|跟)这[^。？?]{0,8}(?:意思差不多|差不多|相似|类似|相近)|类似(?:于)?[“\"「]|"
    r"(?:类似|相似|相近)的(?:案例|方案|条款|规定|说法|文档|内容|例子|文章|段落|表述|问题)|"
    r"\b(?:similar\s+(?:to|in\s+meaning)|something\s+like|along\s+the\s+lines\s+of|semantically|related\s+in\s+meaning|conceptually)\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"(?<![\w.])(?:"
    r"[A-Z]{1,8}[-_]?\d{2,}[\w-]*"  # E1102, ORA-00942, WO-318
    r"|\d+(?:\.\d+){2,}"  # 10.20.30.40, 1.2.3
    r"|v\d+(?:\.\d+)+"
    r"|0x[0-9a-fA-F]{2,}"
    r"|_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_*"  # snake_case
    r"|[a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,}(?:Error|Exception)?"  # camelCase
    r"|[A-Za-z_][\w.]*\(\)"
    r"|(?<![+-])[\w.+-]+@[\w-]+\.[\w.]+"
    r"|(?<![/:])/(?:[\w.-]+/)+[\w.-]+|[A-Za-z]:\\[\w.\\-]+"  # /etc/hosts
    r"|\d{3,}-(?!Q[1-4])[A-Z]{1,4}\d*"  # 4711-B
    rf"|{'|'.join(name for name in sorted(errorcode.values()) if len(name) > 4)}"  # noqa: PLR2004  ENOENT
    r"|(?<![/-])(?:[\w-]+/)+[\w.-]+\.\w{1,5}|(?<!-)[\w-]+\.(?:py|js|ts|java|md|txt|csv|json|ya?ml|toml|log|sql|sh|go|rs|cpp|conf|ini|pdf|docx|xlsx)"
    r"|--[a-z][\w-]+"
    r")(?![\w])"
)
_PRODUCT_NAMES = frozenset(
    "OpenAI GitHub LangChain LlamaIndex LangGraph JavaScript TypeScript PostgreSQL iPhone YouTube WeChat".split()  # noqa: SIM905
)
"""Product names that look like identifiers."""

_NEWEST = re.compile(
    r"最新|最近(?!的?(?:[^，。？?\s]{0,4})(?:站|店|医院|银行|机场|酒店|餐厅|超市|路口|出口|网点|厕所|停车场|仓库|机房|分行|学校|充电桩|地铁))|最后一次|上次|上回|"
    r"刚才|刚刚|目前|如今|眼下|现阶段|近来|近期|近日|这阵子|迄今|至今|截[至止](?:今[天日]|现在)|(?<!发)(?<!表)(?<!体)(?<!实)(?<!出)现在(?!分词|完成|进行|时)|"
    r"当前(?!目录|行|页|用户|线程|路径|窗口|文件|分支|节点|进程|会话|时间|工作)|"
    r"(?<![:/@.\w-])(?:latest|newest)(?![\w.-]*[\w-]|\s+tag\b)|\b(?:most\s+)?recent(?:ly)?\b|\blast\s+time\b|\blately\b|\bcurrently\b|\bnowadays\b|"
    r"\bthese\s+days\b|\bat\s+(?:present|the\s+moment)\b|\bas\s+of\s+(?:now|today)\b|\bright\s+now\b|\bup\s+to\s+now\b|"
    r"(?<=[^.!?:;]\s)now\b(?!\s+(?:that|and\s+then|on)\b|\s*[,(=])|"
    r"\bcurrent\s+(?:status|state|version|release|price|policy|plan|rate|situation|owner|budget|address|phase|progress|number)\b",
    re.IGNORECASE,
)
_NEAREST = re.compile(r"[离距][^，。？?]{0,12}最近|附近|\bnearest\b|\bclosest\b", re.IGNORECASE)
"""最近 is then a distance."""
_REQUEST_PHRASE = re.compile(
    r"^(?:请|麻烦|帮我|帮忙|能不能|可以)*(?:帮我)?(?:查一?下|找一?下|搜一?下|搜索一?下|检索一?下|看一?下|告诉我)[，,:：]?\s*|"
    r"^(?:please\s+)?(?:can\s+you\s+|could\s+you\s+)?(?:search\s+for|look\s+up|look\s+for|find\s+me|show\s+me)\s+",
    re.IGNORECASE,
)
_SENTENCE_ENDS = frozenset("。？！?!.…，,")
_TRIMMED = " \t\u3000,，。.、:：;；的"


def route_by_rules(question: str, query: str, targets: RouteTargets, now: datetime) -> Route:
    """Return the route of a question.

    Args:
        question: The question as the user wrote it; everything but the query is decided on its first `MAX_QUESTION`
            characters.
        query: The question, completed from its conversation.
        targets: Types and sources of the store.
        now: The present, in the time zone whose days are meant.
    """
    reasons: list[str] = []
    if len(question) > MAX_QUESTION:
        reasons.append(f"only the first {MAX_QUESTION:,} of the question's {len(question):,} characters were read")
    read, _ = with_short_gaps(question[:MAX_QUESTION])
    simplified = to_simplified(read)  # of the same length; the rules are written in simplified characters
    search_type, types = _match_intent(simplified, targets, reasons)
    named_types, sources = _named_targets(simplified, targets, reasons)
    if search_type not in {"memory", "tool_history"}:
        types = tuple(dict.fromkeys((*named_types, *types)))
    exact_type, weights = _match_exact_terms(simplified, reasons)
    if search_type == "hybrid" and exact_type is not None:
        search_type = exact_type
    time = time_range(simplified, now)
    after, before = (time.after, time.before) if time is not None else (None, None)
    if time is not None:
        reasons.append(f"“{time.words}” is {_format_time(after)} to {_format_time(before)}")
    newest = _asks_for_newest(simplified, reasons)
    return Route(
        question=question,
        query=_search_text(query, read, time),
        query_without_history=_search_text(question, read, time),
        search_type=search_type,
        types=types,
        sources=sources,
        after=after,
        before=before,
        weights=weights if search_type not in {"keyword", "vector"} else None,
        newest_first=newest or search_type == "tool_history",
        reasons=tuple(reasons) or ("nothing names a place, a time or an exact word",),
        time_is_optional=time is not None and not time.relative and search_type not in {"memory", "tool_history"},
    )


def _match_intent(question: str, targets: RouteTargets, reasons: list[str]) -> tuple[RouteType, tuple[str, ...]]:
    """Return the search type and document types of a question about a database or an agent's past."""
    if _DEFINITION.search(question):
        return "hybrid", ()
    intents: tuple[tuple[str, Sequence[str], tuple[str, ...], RouteType, str], ...] = (
        ("schema", _SCHEMA, (SCHEMA,), "hybrid", "asks how the database is built"),
        ("tools", _TOOL_HISTORY, (TOOL_CALL,), "tool_history", "asks what was done before, or how"),
        ("memory", _MEMORY, (DIALOGUE,), "memory", "asks what was said"),
        ("rows", _ROWS, (ROW, SCHEMA), "hybrid", "asks for what the database holds"),
    )
    for name, patterns, types, search_type, reason in intents:
        matches = (re.search(pattern, question, re.IGNORECASE) for pattern in patterns)
        match = next(filter(None, matches), None)
        if match is None or not match[0] or (name == "rows" and _HOW_TO.search(question)):
            continue
        existing = tuple(one for one in types if one in targets.types)
        if existing:
            reasons.append(f"“{match[0]}” {reason}")
            return search_type, existing
        reasons.append(f"“{match[0]}” {reason}, but the store has no such documents ({name})")
    return "hybrid", ()


def _named_targets(question: str, targets: RouteTargets, reasons: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types and sources that the question names as a place to search in."""
    named: dict[str, list[str]] = {"type": [], "source": []}
    for key, names in (("type", targets.types), ("source", targets.sources)):
        for value, words in names.items():
            word = next((word for word in words if _names_place(question, word)), None)
            if word is not None:
                named[key].append(value)
                reasons.append(f"“{word}” names the {key} {value!r}")
    return tuple(named["type"]), tuple(named["source"])


def _names_place(question: str, word: str) -> bool:
    quoted = re.escape(word)
    if word.isascii():
        pattern = (
            rf"\b(?:in|from|according\s+to|check|search|within|per|see|look\s+at)\s+(?:the\s+|our\s+|my\s+|any\s+)?"
            rf"(?:[\w-]+\s+)?{quoted}(?:s|es)?\b|{quoted}\s*(?:里|中|上|里面|当中)"
        )
    else:
        pattern = (
            rf"{quoted}\s*(?:里|中|上|内|里面|当中|记载|规定|怎么写|怎么说)|"
            rf"(?:根据|按照|按|依据|参考|翻|查|查阅|查看|搜索?|在)(?:一下)?(?:[^，。？?]{{0,6}})?{quoted}"
        )
    numbered = rf"{quoted}\s*(?:号|编号|no\.?|number|#)?\s*(?!(?:19|20)\d\d\b)(?:[A-Z]{{1,5}}-?)?\d{{2,}}"
    return re.search(f"{pattern}|{numbered}", question, re.IGNORECASE) is not None


def _match_exact_terms(question: str, reasons: list[str]) -> tuple[RouteType | None, tuple[float, float] | None]:
    """Return the one index that the question asks for, or weights if it has a code or a quotation."""
    # a quoted sentence is somebody's speech, or the whole question
    quoted = [match[1] for match in _QUOTED.finditer(question) if match[1].strip()[-1:] not in _SENTENCE_ENDS]
    codes = [code for code in _IDENTIFIER.findall(question) if code not in _PRODUCT_NAMES]
    match = _ASKS_EXACT.search(question)
    if match is not None:
        reasons.append(f"“{match[0]}” asks for exact words")
        return "keyword", None
    match = _ASKS_SIMILAR.search(question)
    if match is not None and not codes:
        reasons.append(f"“{match[0]}” asks for what means the same")
        return "vector", None
    exact_terms = [*codes, *quoted]
    if not exact_terms:
        return None, None
    named = ", ".join(exact_terms[:3])
    rest = question
    for term in exact_terms:
        rest = rest.replace(term, " ")
    if not any(map(str.isalnum, rest)):
        reasons.append(f"nothing but {named}, which is found by its words")
        return "keyword", None
    reasons.append(f"{named}: words weigh more")
    return None, EXACT_TERM_WEIGHTS


def _asks_for_newest(question: str, reasons: list[str]) -> bool:
    """Return whether a question asks for what is newest or holds now; the words in a title or a quotation do not."""
    match = _NEWEST.search(blank_titles(question))
    if match is None or (match[0].startswith("最近") and _NEAREST.search(question)):
        return False
    reasons.append(f"“{match[0]}” asks for the newest: of hits of about the same score the newer come first")
    return True


def _search_text(query: str, question: str, time: TimeRange | None) -> str:
    """Return the query without phrases like "please search for" and without a time that becomes a filter."""
    text = query
    if time is not None and time.relative:
        text = text.replace(question[slice(*time.span)], " ", 1)
    text = " ".join(_REQUEST_PHRASE.sub("", text.strip()).split()).strip(_TRIMMED)
    return text if any(map(str.isalnum, text)) else query


def _format_time(moment: datetime | None) -> str:
    return "…" if moment is None else moment.isoformat(timespec="minutes")
