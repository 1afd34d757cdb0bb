"""The report of an evaluation as one HTML file: no script, nothing loaded from elsewhere, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from langchain_agentrag.evaluation.baseline import Change, against_legs
from langchain_agentrag.evaluation.charts import bars, curves, spans
from langchain_agentrag.evaluation.misses import Failure, Found
from langchain_agentrag.evaluation.runner import Evaluation, Run
from langchain_agentrag.evaluation.sweep import Advice
from langchain_agentrag.evaluation.wording import WORDS, Language

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
