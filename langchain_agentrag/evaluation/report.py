"""What a report says, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal

import numpy as np

from langchain_agentrag.evaluation.baseline import Change, against_legs
from langchain_agentrag.evaluation.misses import Failure, Found
from langchain_agentrag.evaluation.runner import Evaluation, Run
from langchain_agentrag.evaluation.statistics import Interval
from langchain_agentrag.evaluation.sweep import Advice

Language = Literal["en", "zh"]

WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "title": "Retrieval quality of {name}",
        "facts": "{questions} questions · model {model} · {depth} hits asked for per question",
        "headline": "With “{main}” the expected source comes first for {first} of the questions, and is among the "
        "first ten for {ten}.",
        "measures": "Measures",
        "measures_note": "Mean over the questions. The line over a bar is the 95 % interval (bootstrap over "
        "questions): where two of them overlap widely, the difference may be chance.",
        "found": "How soon the answer is found",
        "found_note": "Share of the questions whose expected source is among the first n results.",
        "latency": "Latency of a search",
        "latency_note": "Milliseconds without embedding the question: median, and the value that 95 % of the searches "
        "stay below. Embedding one question took {embed} (median).",
        "compared": "“{main}” against the other settings of this run",
        "baseline": "Against the baseline “{name}”",
        "setting": "setting",
        "against": "against",
        "measure": "measure",
        "change": "change",
        "interval": "95 % interval",
        "better": "better / worse",
        "verdict": "verdict",
        "significant_better": "better",
        "significant_worse": "worse",
        "noise": "may be chance",
        "same": "no difference",
        "failures": "What was missed",
        "failures_note": "{count} of {questions} questions have no expected source among the first {k} under “{main}”. "
        "{shown} of them in detail:",
        "no_failures": "Every question has an expected source among the first {k} under “{main}”.",
        "missing": "The expected source is not in the store, or not visible to the agent asking.",
        "unseen": "Neither leg has it among its first hundred: the question shares no rare word with it, and its "
        "meaning is far off.",
        "keyword_only": "Only the keyword leg has it; other passages were nearer in meaning.",
        "vector_only": "Only the vector leg has it; it shares too little wording with the question.",
        "outranked": "Both legs have it, yet other passages came first.",
        "expected": "expected",
        "instead": "came first",
        "nowhere": "–",
        "place": "rank",
        "vector": "vector",
        "keyword": "keyword",
        "matched": "matched words",
        "agent": "asked for agent",
        "unanswerable": "{count} questions expect a source that is not in the store or not visible to their agent; no "
        "setting can answer them, and they count as failed.",
        "degraded": "In {count} searches a leg failed; the figures of “{name}” are not those of both legs.",
        "sweep": "Settings for this data",
        "sweep_note": "{tried} settings were tried on one half of the questions ({chosen} of them); the best was then "
        "measured on the other half ({held}), which had no part in choosing it.",
        "sweep_keep": "Keep the defaults: on the held-out half the best setting, {best}, is not significantly better "
        "({change}). The differences are within noise.",
        "sweep_same": "Keep the defaults: no other setting was better on the half used to choose.",
        "sweep_best": "Keep the defaults: none of the others was better on the half used to choose.",
        "sweep_take": "Take {best}: on the held-out half it is better than the defaults by {change}.",
        "chosen_half": "half used to choose",
        "held_half": "held-out half",
    },
    "zh": {
        "title": "“{name}”的检索质量",
        "facts": "{questions} 个问题 · 模型 {model} · 每个问题取 {depth} 条结果",
        "headline": "使用“{main}”时，{first} 的问题首条即为预期来源，{ten} 的问题在前十条之内找到。",
        "measures": "指标",
        "measures_note": "所有问题的平均值。柱上的横线是 95% 置信区间（对问题做自助抽样）："
        "两条区间大幅重叠时，差异可能出于偶然。",
        "found": "多快能找到答案",
        "found_note": "预期来源出现在前 n 条结果中的问题所占比例。",
        "latency": "检索耗时",
        "latency_note": "单位毫秒，不含问题的向量化：中位数，以及 95% 的检索不超过的值。"
        "向量化一个问题用时 {embed}（中位数）。",
        "compared": "“{main}”与本次其他设置的比较",
        "baseline": "与基线“{name}”的比较",
        "setting": "设置",
        "against": "对比",
        "measure": "指标",
        "change": "变化",
        "interval": "95% 区间",
        "better": "更好 / 更差",
        "verdict": "结论",
        "significant_better": "更好",
        "significant_worse": "更差",
        "noise": "可能是偶然",
        "same": "没有差别",
        "failures": "未找到的问题",
        "failures_note": "使用“{main}”时，{questions} 个问题中有 {count} 个在前 {k} 条内没有预期来源。"
        "以下列出其中 {shown} 个：",
        "no_failures": "使用“{main}”时，每个问题在前 {k} 条内都有预期来源。",
        "missing": "预期来源不在库中，或提问的智能体无权看到。",
        "unseen": "两路检索的前一百条里都没有：问题与它没有共同的稀有词，语义也相距较远。",
        "keyword_only": "只有关键词检索找到了它；按语义有别的段落更近。",
        "vector_only": "只有向量检索找到了它；它与问题的共同用词太少。",
        "outranked": "两路检索都找到了它，但别的段落排在前面。",
        "expected": "预期",
        "instead": "实际排第一",
        "nowhere": "–",
        "place": "名次",
        "vector": "向量",
        "keyword": "关键词",
        "matched": "匹配的词",
        "agent": "提问的智能体",
        "unanswerable": "有 {count} 个问题的预期来源不在库中，或提问的智能体看不到；任何设置都无法回答，按失败计。",
        "degraded": "有 {count} 次检索中某一路失败；“{name}”的数字不代表两路检索的结果。",
        "sweep": "适合这批数据的设置",
        "sweep_note": "在一半问题（{chosen} 个）上试了 {tried} 种设置，"
        "再用未参与选择的另一半（{held} 个）检验其中最好的一种。",
        "sweep_keep": "保留默认设置：在留出的一半上，最好的设置 {best} 并没有显著更好（{change}），差异属于噪声。",
        "sweep_same": "保留默认设置：在用于选择的一半上，没有别的设置更好。",
        "sweep_best": "保留默认设置：在用于选择的一半上，没有别的设置更好。",
        "sweep_take": "建议采用 {best}：在留出的一半上比默认设置高 {change}。",
        "chosen_half": "用于选择的一半",
        "held_half": "留出的一半",
    },
}


COLOURS = 8
"""Series that have a colour of their own; later ones take them again."""

_LABEL, _BAR, _ROW, _GAP = 150, 330, 20, 7
_TEXT = 11.5


def bars(rows: Mapping[str, Interval]) -> str:
    """One bar per row for a mean in [0, 1], with its interval as a line."""
    height = len(rows) * (_ROW + _GAP) + 4
    drawn = []
    for place, (name, found) in enumerate(rows.items()):
        top = place * (_ROW + _GAP) + 2
        middle = top + _ROW / 2
        low, high = _LABEL + _BAR * found.low, _LABEL + _BAR * found.high
        drawn.append(
            f"{_name(name, middle)}"
            f"{_bar(top, _BAR, 'track')}"
            f"{_bar(top, _BAR * found.mean, f's{place % COLOURS}')}"
            f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" '
            f'class="whisker"><title>{found.low:.4f} – {found.high:.4f}</title></path>'
            f'<text x="{_LABEL + _BAR + 10}" y="{middle + 4}" class="value">{found.mean:.3f}</text>'
        )
    return _svg(_LABEL + _BAR + 60, height, drawn)


def spans(rows: Mapping[str, tuple[float, float]], unit: str) -> str:
    """One bar per row from 0 to the first value, on to the second one in a lighter shade."""
    most = max((high for _, high in rows.values()), default=0.0) or 1.0
    drawn = []
    for place, (name, (low, high)) in enumerate(rows.items()):
        top = place * (_ROW + _GAP) + 2
        middle, colour = top + _ROW / 2, f"s{place % COLOURS}"
        drawn.append(
            f"{_name(name, middle)}"
            f"{_bar(top, _BAR * high / most, f'{colour} faint')}{_bar(top, _BAR * low / most, colour)}"
            f'<text x="{_LABEL + _BAR * high / most + 8:.1f}" y="{middle + 4}" class="value">'
            f"{low:.1f} · {high:.1f} {escape(unit)}</text>"
        )
    return _svg(_LABEL + _BAR + 130, len(rows) * (_ROW + _GAP) + 4, drawn)


def curves(series: Mapping[str, Sequence[float]]) -> str:
    """One line per series of shares in [0, 1], place 1 at the left."""
    left, top, width, height = 44, 10, 520, 210
    steps = max((len(values) for values in series.values()), default=1)

    def across(place: int) -> float:
        return left + width * place / max(1, steps - 1)

    drawn = [
        f'<path d="M{left} {top + height * (1 - share):.1f}h{width}" class="grid"/>'
        f'<text x="{left - 8}" y="{top + height * (1 - share) + 4:.1f}" class="tick end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    drawn += [
        f'<text x="{across(place - 1):.1f}" y="{top + height + 18}" class="tick mid">{place}</text>'
        for place in _ticks(steps)
    ]
    ends = _apart([top + height * (1 - values[-1]) for values in series.values()])
    for place, ((name, values), end) in enumerate(zip(series.items(), ends, strict=True)):
        points = " ".join(
            f"{across(at):.1f},{top + height * (1 - share):.1f}" for at, share in enumerate(values)
        )
        drawn.append(
            f'<polyline points="{points}" class="line l{place % COLOURS}"/>'
            f'<text x="{left + width + 8}" y="{end + 4:.1f}" class="tick t{place % COLOURS}">'
            f"{escape(_short(name))}</text>"
        )
    return _svg(left + width + 150, top + height + 26, drawn)


def _ticks(steps: int) -> list[int]:
    return [place for place in (1, 2, 3, 5, 10, 15, 20, 25, 30, 50, 100) if place <= steps]


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights of labels moved so that no two stand on each other."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved, last = list(heights), -1e9
    for place in order:
        moved[place] = last = max(heights[place], last + 14)
    return moved


def _bar(top: float, width: float, kind: str) -> str:
    return f'<rect x="{_LABEL}" y="{top}" width="{width:.1f}" height="{_ROW}" rx="4" class="{kind}"/>'


def _name(name: str, middle: float) -> str:
    return (
        f'<text x="{_LABEL - 10}" y="{middle + 4}" class="label"><title>{escape(name)}</title>'
        f"{escape(_short(name))}</text>"
    )


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _svg(width: float, height: float, drawn: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" role="img" '
        f'font-size="{_TEXT}">{"".join(drawn)}</svg>'
    )


_FIRST = 10
_STYLE = """
:root{--bg:#fbfbfd;--card:#fff;--ink:#1c1e26;--dim:#666b7a;--line:#e4e6ee;--track:#eef0f6;--good:#1a7f4b;--bad:#b3261e;
--c0:#2f9e8f;--c1:#d9822b;--c2:#5b6bd6;--c3:#b0529c;--c4:#7a8b2f;--c5:#3f8fc9;--c6:#a8652f;--c7:#6f7480}
@media(prefers-color-scheme:dark){:root{--bg:#14161c;--card:#1c1f28;--ink:#e8eaf1;--dim:#9aa0b2;--line:#2c303d;
--track:#272b37;--good:#5fd39a;--bad:#ff8a80;--c0:#4fc4b4;--c1:#f0a355;--c2:#8d9bff;--c3:#dd86ca;--c4:#b3c65a;--c5:#6fb7ea;
--c6:#d79a63;--c7:#9ba0ae}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.6 system-ui,"Noto Sans SC",
"PingFang SC","Microsoft YaHei",sans-serif}main{max-width:64rem;margin:0 auto;padding:2.2rem 1.4rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .2rem}h2{font-size:1.08rem;margin:0 0 .3rem}
p{margin:.2rem 0 .8rem}.dim{color:var(--dim)}.small{font-size:.87rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1.1rem 1.3rem;margin:1rem 0}
.lead{font-size:1.12rem;margin:1rem 0}.note{border-left:4px solid var(--c1);padding-left:.8rem}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(21rem,1fr));gap:.4rem 2rem}
.grid2 h3{font-size:.92rem;margin:.5rem 0 .2rem;font-weight:600}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font-family:inherit}
.label{text-anchor:end}.value{font-variant-numeric:tabular-nums}.tick{fill:var(--dim)!important}.end{text-anchor:end}
.mid{text-anchor:middle}.track{fill:var(--track)}.grid{stroke:var(--line);fill:none}
.whisker{stroke:var(--ink);stroke-width:1.4;fill:none;opacity:.75}.faint{opacity:.32}.line{fill:none;stroke-width:2.4;
stroke-linejoin:round}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th{font-weight:600;text-align:left;color:var(--dim)}
th,td{padding:.32rem .7rem .32rem 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}.scroll{overflow-x:auto}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
.miss{border-top:1px solid var(--line);padding:.75rem 0}.miss b{overflow-wrap:anywhere}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:.4rem 1.6rem;margin-top:.35rem}
.src{font-size:.82rem;color:var(--dim);overflow-wrap:anywhere}.text{font-size:.9rem;overflow-wrap:anywhere}
.tag{display:inline-block;background:var(--track);border-radius:99px;padding:0 .6em;font-size:.78rem;margin-right:.3em}
""" + "".join(
    f".s{n}{{fill:var(--c{n})}}.l{n}{{stroke:var(--c{n})}}.t{n}{{fill:var(--c{n})!important}}"
    for n in range(8)
)


def html_report(
    evaluation: Evaluation,
    missed: Sequence[Failure] = (),
    changed: Sequence[Change] = (),
    *,
    baseline: str = "",
    advice: Advice | None = None,
    language: Language = "en",
    k: int = _FIRST,
) -> str:
    """The whole page.

    Args:
        evaluation: What was measured.
        missed: Failures to show.
        changed: Differences to a baseline.
        baseline: Name of the baseline.
        advice: What a sweep found.
        language: Language of the page.
        k: Places that count as found.
    """
    page = _Page(evaluation, language, k)
    sections = [
        page.head(),
        page.warnings(),
        page.advice(advice),
        page.measures(),
        page.found(),
        page.latency(),
    ]
    sections += [
        page.changes(page.say("baseline", name=baseline), changed) if changed else "",
        page.changes(page.say("compared", main=evaluation.main), against_legs(evaluation)),
        page.failures(missed),
    ]
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(page.say('title', name=evaluation.name))}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(sections)}</main></body></html>\n"
    )


class _Page:
    """The sections of the page, in one language."""

    def __init__(self, evaluation: Evaluation, language: Language, k: int) -> None:
        self._of, self._words, self._k = evaluation, WORDS[language], k
        self._main = evaluation.runs[evaluation.main]

    def say(self, word: str, **parts: object) -> str:
        return self._words[word].format(**parts)

    def _card(self, title: str, note: str, body: str) -> str:
        told = f'<p class="dim small">{escape(note)}</p>' if note else ""
        return f'<section class="card"><h2>{escape(title)}</h2>{told}{body}</section>'

    def head(self) -> str:
        of = self._of
        facts = self.say("facts", questions=len(of.judged), model=of.model or "–", depth=of.depth)
        share = _within(self._main, _FIRST)
        lead = self.say("headline", main=of.main, first=f"{share[0]:.0%}", ten=f"{share[-1]:.0%}")
        return (
            f'<h1>{escape(self.say("title", name=of.name))}</h1><p class="dim">{escape(facts)}</p>'
            f'<p class="lead">{escape(lead)}</p>'
        )

    def warnings(self) -> str:
        notes = []
        if self._of.unanswerable:
            notes.append(self.say("unanswerable", count=len(self._of.unanswerable)))
        notes += [
            self.say("degraded", count=len(run.degraded), name=name)
            for name, run in self._of.runs.items()
            if run.degraded
        ]
        return "".join(f'<p class="card note">{escape(note)}</p>' for note in notes)

    def measures(self) -> str:
        drawn = "".join(
            f"<div><h3>{escape(name)}</h3>"
            f"{bars({setting: run.interval(name) for setting, run in self._of.runs.items()})}</div>"
            for name in self._of.measures
        )
        return self._card(
            self.say("measures"), self.say("measures_note"), f'<div class="grid2">{drawn}</div>'
        )

    def found(self) -> str:
        series = {name: _within(run, self._of.depth) for name, run in self._of.runs.items()}
        return self._card(self.say("found"), self.say("found_note"), curves(series))

    def latency(self) -> str:
        spent = list(self._of.embedding.values())
        embed = f"{1000 * float(np.median(spent)):.1f} ms" if spent else "–"
        rows = {name: (run.latency(0.5), run.latency(0.95)) for name, run in self._of.runs.items()}
        return self._card(self.say("latency"), self.say("latency_note", embed=embed), spans(rows, "ms"))

    def changes(self, title: str, changed: Sequence[Change]) -> str:
        if not changed:
            return ""
        names = ("setting", "against", "measure", "change", "interval", "p", "better", "verdict")
        head = "".join(f"<th>{escape(self._words.get(name, name))}</th>" for name in names)
        rows = "".join(self._change(change) for change in changed)
        return self._card(title, "", f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>')

    def _change(self, change: Change) -> str:
        found = change.difference
        kind, verdict = ("dim", "noise" if found.better or found.worse else "same")
        if found.significant:
            kind, verdict = ("good", "significant_better") if found.mean > 0 else ("bad", "significant_worse")
        cells = (
            escape(change.setting),
            escape(change.against),
            escape(change.measure),
            f"{found.mean:+.4f}",
            f"{found.low:+.4f} … {found.high:+.4f}",
            f"{found.p:.4f}",
            f"{found.better} / {found.worse}",
            f'<span class="{kind}">{escape(self.say(verdict))}</span>',
        )
        return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"

    def failures(self, missed: Sequence[Failure]) -> str:
        count = sum((rank or self._k + 1) > self._k for rank in self._main.ranks.values())
        told = {"main": self._of.main, "k": self._k, "count": count, "questions": len(self._of.judged)}
        if not count:
            return self._card(self.say("failures"), self.say("no_failures", **told), "")
        note = self.say("failures_note", shown=len(missed), **told)
        return self._card(self.say("failures"), note, "".join(map(self._miss, missed)))

    def _miss(self, failure: Failure) -> str:
        agent = (
            ""
            if failure.agent_id is None
            else f'<span class="tag">{escape(self.say("agent"))} {escape(failure.agent_id)}</span>'
        )
        rank = failure.rank if failure.rank is not None else self.say("nowhere")
        wanted = ", ".join(failure.wanted[:3])
        return (
            f'<div class="miss"><b>{escape(failure.text[:300])}</b><div class="small dim">{agent}'
            f'<span class="tag">{escape(self.say("place"))} {rank}</span>{escape(self.say(failure.cause))}</div>'
            f'<div class="two">{self._passage("expected", failure.expected, wanted)}'
            f"{self._passage('instead', failure.instead, '')}</div></div>"
        )

    def _passage(self, title: str, found: Found | None, otherwise: str) -> str:
        if found is None:
            told = f"{self.say(title)}: {otherwise or self.say('nowhere')}"
            return f'<div><div class="src">{escape(told)}</div></div>'
        legs = " · ".join(
            f"{self.say(leg)} {'#' + str(place) if place is not None else self.say('nowhere')}"
            for leg, place in (("vector", found.vector), ("keyword", found.keyword))
        )
        words = f"{self.say('matched')}: {', '.join(found.matched[:12])}" if found.matched else ""
        told = f"{self.say(title)}: {found.doc_id}#{found.chunk_id} · {legs}"
        return (
            f'<div><div class="src">{escape(told)}</div>'
            f'<div class="text">{escape(found.excerpt)}</div><div class="src">{escape(words)}</div></div>'
        )

    def advice(self, advice: Advice | None) -> str:
        if advice is None:
            return ""
        told = advice.difference
        change = f"{told.mean:+.3f} {advice.measure}, {told.low:+.3f} … {told.high:+.3f}, p {told.p:.3f}"
        said = "sweep_take" if advice.worthwhile else "sweep_best" if advice.keeps_defaults else "sweep_keep"
        verdict = self.say(said, best=advice.best, change=change)
        head = "".join(
            f"<th>{escape(text)}</th>"
            for text in (
                self.say("setting"),
                f"{advice.measure}, {self.say('chosen_half')}",
                f"{advice.measure}, {self.say('held_half')}",
            )
        )
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{chosen:.4f}</td><td>{held:.4f}</td></tr>"
            for name, chosen, held in advice.table
        )
        note = self.say("sweep_note", tried=len(advice.table), chosen=advice.chosen, held=told.questions)
        body = (
            f'<p><b>{escape(verdict)}</b></p><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
        )
        return self._card(self.say("sweep"), note, body)


def _within(run: Run, most: int) -> list[float]:
    """Share of the questions whose expected source is among the first 1, 2, … results."""
    ranks = list(run.ranks.values())
    return [
        sum(rank is not None and rank <= place for rank in ranks) / max(1, len(ranks))
        for place in range(1, most + 1)
    ]
