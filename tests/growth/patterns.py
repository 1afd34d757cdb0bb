"""Texts of any length that are known to make careless text functions slow: name → function from length to text."""

from __future__ import annotations

from collections.abc import Callable

Pattern = Callable[[int], str]

_REPEATED = {
    "letter": "a", "capital": "A", "digit": "7", "space": " ", "tab": "\t", "newline": "\n", "cr": "\r", "crlf": "\r\n",
    "blank lines": "\n \n", "-": "-", "_": "_", ".": ".", "/": "/", "backslash": "\\", "comma": ",", "colon": ":",
    "semicolon": ";", "!": "!", "?": "?", "=": "=", "~": "~", "+": "+", "%": "%", "$": "$", "^": "^", "&": "&",
    "a.": "a.", "a-": "a-", "a_": "a_", "a/": "a/", "a,": "a,", "a, ": "a, ", "fence + word": "```a\n", "Q + spaces": "Q\n", "a:": "a:", "a ": "a ", "a1": "a1", "a-1-": "a-1-", "1a": "1a",
    "1.": "1.", "1,": "1,", "1,234,": "1,234,", "1e": "1e", "1-": "1-", "1/": "1/", "1 ": "1 ", "-1": "-1", "0x": "0x", "%20": "%20",
    "\\u0000": "\\u0000", "http://": "http://", "http:": "http:", "https://a.b/?q=": "https://a.b/?q=x ", "www.": "www.",
    "://a:": "://a:", "@": "@", "a@": "a@", "a@b.": "a@b.",
    "(": "(", ")": ")", "()": "()", "[": "[", "]": "]", "[]": "[]", "{": "{", "}": "}", "<": "<", ">": ">",
    "【": "【", "（": "（", "《": "《", "“": "“", "「": "「", "⟦": "⟦", "⟦quoted ": "⟦quoted ",
    "[1]": "[1]", "[1, ": "[1, ", "[ ": "[ ", "[a](": "[a](", "![](": "![](", "![": "![",
    '"': '"', "'": "'", "`": "`", "```": "```\n", "~~~": "~~~\n", "quoted": '"a" ', "'a": "'a ",
    "#": "#", "# ": "# ", "# a": "# a\n", "h1-6": "# a\n## b\n### c\n", "|": "|", "| ": "| ", "|-|": "|-|", "|a|\n": "|a|\n|-|\n", "*": "*", "**": "**a",
    "- a": "- a\n", "1. a": "1. a\n", "> ": "> ", "---\n": "---\n", "===\n": "a\n===\n", "a:\n": "a:\n",
    "<a ": "<a ", "<a>": "<a>", "<div>": "<div>", "<a x='": "<a x='", '<x y="': "<x y=\"'", "<!--": "<!--", "<![CDATA[": "<![CDATA[", "<?xml": "<?xml ",
    "<think>": "<think>", "<system ": "<system ", "<|": "<|", "<<SYS": "<< SYS ", "&amp;": "&amp;", "&#": "&#", "<table>": "<table><tr><td>",
    "combining": "e\u0301", "marks": "\u0301", "mixed marks": "\u0301\u0323", "zwj": "\u200d", "zwj emoji": "👩\u200d", "rtl": "\u202e", "soft hyphen": "\u00ad",
    "tag characters": "\U000e0061", "variation": "\ufe0f", "emoji": "😀", "flags": "🇩", "cyrillic": "aа", "greek": "αa", "ligature": "ﷺ",
    "中": "中", "distinct han": "的一是在不了有和人这中大为上个国我以要他", "traditional": "漢", "一": "一", "一二三": "一二三", "十": "十", "万": "万", "百分之": "百分之",
    "第一": "第一", "年月日": "年月日", "一月": "一月", "2024年": "2024年", "。": "。", "，": "，", "、": "、", "a、": "甲、", "甲和": "甲和",
    "中 ": "中 ", "中\n": "中\n", "中a": "中a", "中1": "中1", "中。": "中。", "full-width": "Ａ", "full-width digits": "１", "kana": "カ", "hangul": "한",
    "jamo": "\u1100\u1161", "thai": "ก",
    "base64": "QUJD+/9z", "hex": "deadbeef", "identifier": "long_identifier_", "camel": "CamelCase", "E1102": "E1102 ", "v1.2.": "v1.2.",
    '{"a":': '{"a":', '{"': '{"', '{"a":1,': '{"a":1,', "[[": "[[", "[{": "[{", "[1,": "[1,", '"\\': '"\\"', "｛“a”：": "｛“a”：", "“a": "“a，", "{a: ": "{a: ",
    "yaml": "a: b\n", "yaml list": "- - ", "csv quote": '"a,', 'csv ""': '"",', "a,b": "a,b\n", "k=v": "k=v;",
    "SELECT (": "SELECT (", "((": "((1)+", "--": "-- a\n", "/*": "/*", "NOT": "NOT ", "a AND": "a AND ", "CASE": "CASE WHEN 1 THEN ",
    "'a' ||": "'a'||", "SELECT": "SELECT 1 UNION ",
    "2024-01-": "2024-01-", "2024-01-01": "2024-01-01 ", "May 3, ": "May 3, ", "on Monday": "on Monday ", "last": "last ", "from a to": "from May to ",
    "three": "three ", "hundred": "hundred ", "three-": "three-and-", "and": "and ", "5 kg": "5 kg ", "5 kg per": "5 kg per ", "5万": "5万",
    "words": "the quick brown fox ", "sentences": "It is so. ", "it": "it ", "that": "that ", "what is": "what is ", "tell me": "ok and ",
    "其": "其", "这个": "这个", "它": "它的", "嗯": "嗯", "好的": "好的，", "那么": "那么", "的": "的",
    "not": "not ", "不": "不", "no": "no no-", "and then": " and then ", "Mr.": "Mr. ", "A B": "Ab Cd ",
    "ignore": "ignore ", "ignore all": "ignore all previous ", "ignore the": "ignore any your ", "忽略": "忽略", "忽略以上": "忽略以上", "system": "system ",
    "do not tell": "do not tell ", "send": "send ", "send the": "send password ", "把": "把", "?a=": "?a=", "remember": "remember ",
    "from now on": "from now on ", "从现在": "从现在起", "call": "call ", "you are": "you are ", "act as": "act as ", "please search": "please search for ",
    "i g n": "i g n o r e ", "h.o.w": "h.o.w.", "以后": "以后", "记住": "记住", "to ai": "note to ai ", "致": "致所有", "if you": "if you are an ", "解码": "解码",
    "reveal": "reveal ", "输出": "输出", "decode": "decode and ", "passage": "passage ", "[/": "[/inst ", "action": "action: a ", "行动": "行动:a ",
    "please": "please you must call ", "立即": "立即调用", "your": "your limits ", "给你": "给你定的", "将": "将之前", "取消": "取消你", "{name": '{"name":"a",',
    "class": "class a\n", "public": "public static ", "indented": "  def a():\n    b\n\n", "}\n": "}\n", "title:": "title: a\n",
    "Q:": "Q: is it so?\nA: it is\n", "问": "问：是吗\n答：是\n", "${A}": "${A}", "${": "${", "$$": "$${", "C++": "C++#", "a'": "a's ",
}  # fmt: skip


def _run(unit: str, prefix: str = "", suffix: str = "") -> Pattern:
    return lambda n: prefix + unit * max(1, (n - len(prefix) - len(suffix)) // len(unit)) + suffix


def _nested(opening: str, closing: str, inside: str = "1") -> Pattern:
    return lambda n: (
        opening * (n // (len(opening) + len(closing))) + inside + closing * (n // (len(opening) + len(closing)))
    )


def _joined(item: Callable[[int], str], separator: str = " ") -> Pattern:
    def text(n: int) -> str:
        items: list[str] = []
        size = number = 0
        while size < n:
            items.append(item(number))
            size, number = size + len(items[-1]) + len(separator), number + 1
        return separator.join(items)

    return text


PATTERNS: dict[str, Pattern] = {
    **{name: _run(unit) for name, unit in _REPEATED.items()},
    "word + spaces": _run(" ", "pump", ""),
    "word + spaces + word": _run(" ", "pump", "x"),
    "word + newlines + word": _run("\n", "pump", "x"),
    "dashes between": _run("-", "x", "!"),
    "dots between": _run(".", "a", "!"),
    "a- then !": _run("a-", "", "!"),
    "letters then !": _run("a", "", "!"),
    "digits then x": _run("7", "x", "x"),
    "E + digits": _run("7", "E"),
    "digits with point": _run("7", "3.", " kg"),
    "[digits]": _run("7", "it is so and so [", "]."),
    "quoted letters": _run("a", '"', '"'),
    "“ quoted": _run("中", "“", "”"),
    "open “": _run("中", "“"),
    "http + letters": _run("a", "http://", "?q=1"),
    "host + labels": _run("a.", "http://", "com/x?y=z"),
    "tag + spaces": _run(" ", "<a", "x"),
    "tag + attributes": _run('a="b" ', "<a ", ">"),
    "comment": _run("-", "<!--", ">"),
    "front matter": _run("a: b\n", "---\n"),
    "fence open": _run("a\n", "```\n"),
    "heading + spaces": _run(" ", "# a", "b"),
    "heading + hashes": _run(" #", "# a", "b"),
    "list + spaces": _run(" ", "- ", "a"),
    "table rule": _run(" -", "|a|\n|", "x"),
    "question": _run("why ", "", "?"),
    "which one + or": _run("a or ", "which one of "),
    "the word": _run("the ", "ignore all previous "),
    "spaces then of": _run(" ", "set aside", "previous instructions"),
    "history series": _run("a, ", "", "and b"),
    "json number": _run("7", '{"a":', "}"),
    "json string": _run("a", '{"a":"', '"}'),
    "json exponent": _run("9", '{"a":1e', "}"),
    "json strings": _run('"a",', "[", '"b"]'),
    "json escapes": _run("\\n", '{"a":"', '"}'),
    "json objects": _run('{"a":1} '),
    "python dict": _run("'a': 'b', ", "{", "'c': 1}"),
    "date + digits": _run("7", "2024-01-01"),
    "url password": _run("a", "postgresql://u:", "@h/d"),
    "url + @": _run("@", "postgresql://u:p", "/d"),
    "select list": _run("a,", "SELECT ", "a FROM t"),
    "select string": _run("a", "SELECT '", "'"),
    "select and": _run("a=1 AND ", "SELECT 1 WHERE ", "1"),
    "select plus": _run("1+", "SELECT ", "1"),
    "nested (": _nested("(", ")"),
    "nested [": _nested("[", "]"),
    "nested {": _nested('{"a":', "}"),
    "nested div": _nested("<div>", "</div>"),
    "nested quotes": _nested("“", "”"),
    "nested select": _nested("SELECT (", ")"),
    "nested list": _joined(lambda n: " " * (n % 300) + "- a", "\n"),
    "distinct words": _joined(lambda n: f"w{n}"),
    "distinct letters": _joined(lambda n: "".join(chr(97 + (n // 26**place) % 26) for place in range(5))),
    "distinct codes": _joined(lambda n: f"E{n:04}"),
    "distinct numbers": _joined(str),
    "distinct quantities": _joined(lambda n: f"{n} kg,"),
    "distinct sentences": _joined(lambda n: f"The pump {n} needs {n + 1} litres of oil.", " "),
    "distinct quotations": _joined(lambda n: f'"quotation {n}"'),
    "distinct clauses": _joined(lambda n: f"clause {n} is so", ", "),
    "distinct 句": _joined(lambda n: f"第{n}台泵需要{n + 1}升油。", ""),
    "distinct lines": _joined(lambda n: f"line {n}", "\n"),
    "distinct references": _joined(lambda n: f"It is so and so [{n % 999}].", " "),
    "distinct headings": _joined(lambda n: f"{'#' * (n % 6 + 1)} Heading {n}\n\ntext {n}", "\n\n"),
    "distinct keys": _joined(lambda n: f"k{n}: v{n}", "\n"),
    "distinct rows": _joined(lambda n: f"{n},a{n},b", "\n"),
    "distinct links": _joined(lambda n: f"[a{n}](https://e{n}.org/?q={n})"),
    "distinct tags": _joined(lambda n: f"<p class='nav'>a{n} <a href='x'>b</a></p>"),
    "distinct json lines": _joined(lambda n: f'{{"a{n}": {n}}}', "\n"),
    "long lines": _joined(lambda n: "word " * 300 + str(n), "\n"),
    "rare han": _joined(lambda n: chr(0x3400 + n % 6000), ""),
    "all han": _joined(lambda n: chr(0x4E00 + n % 20000), ""),
    "ordinary": _run(
        "The pump of hall 3 was serviced on 3 May 2024 by Ms Lin; error E1102 is solved. 三号泵已于五月三日检修。\n"
    ),
}
"""Name → function that returns a text of about n characters."""

DAILY: tuple[str, ...] = (
    "letter", "digit", "space", "newline", "blank lines", "-", "_", ".", "/", "backslash", "comma", "a.", "a-", "a, ", "a ",
    "a-1-", "1.", "1,", "1e", "\\u0000", "http://", "www.", "a@", "(", "[", "{", "<", "[ ", "[a](", "![](", '"', "'", "`",
    "```", "fence + word", "# a", "|a|\n", "*", "- a", "<a ", "<a x='", "<div>", "<!--", "<<SYS", "&", "combining", "mixed marks", "zwj emoji",
    "rtl", "emoji", "ligature", "中", "traditional", "一二三", "年月日", "、", "中\n", "中a", "full-width", "kana", "identifier", "E1102",
    '{"a":', "[[", "csv quote", "SELECT (", "2024-01-", "on Monday", "hundred", "5 kg", "words", "sentences", "it", "这个", "好的",
    "ignore all", "忽略", "send the", "please", "Q + spaces", "word + spaces", "word + newlines + word", "dashes between", "E + digits",
    "heading + spaces", "json exponent", "json number", "nested (", "nested {", "distinct words", "distinct quantities", "distinct sentences",
    "all han",
)  # fmt: skip
"""Names of the patterns that the daily tests use."""
