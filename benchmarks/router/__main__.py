"""How often a question is routed as expected, by rules alone.

    python -m benchmarks.router [--wrong] [--false DATA…]

`first.tsv` was there when the rules were written. `second.tsv` was written after them, and by it they were judged
once; `third.tsv` by somebody who had not read the rules. The figures of those first looks are kept in DECISIONS.md.
A question counts when search type, types and sources, both ends of the stretch of time and the weight of its words
are all as expected. It is Wednesday 18 March 2026, 10:00 in Shanghai, unless a line names a zone and a moment; it may
also name what was said before, and what the query must take over from it. `--false` counts into how many ordinary
questions (queries.jsonl of the folders) something is read that they do not ask for.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from langchain_agentrag import QueryUnderstandingRouter

HERE = Path(__file__).parent
ZONE = ZoneInfo("Asia/Shanghai")
NOW = datetime(2026, 3, 18, 10, 0, tzinfo=ZONE)
HALVES = {
    "first": "rules written with them",
    "second": "written after the rules",
    "third": "written by a stranger",
}


def router(zone: ZoneInfo = ZONE) -> QueryUnderstandingRouter:
    types = {
        **dict.fromkeys(("dialogue", "tool_call", "row", "schema", "file"), ()),
        "manual": ("手册", "manual"),
        "ticket": ("工单", "ticket"),
    }
    return QueryUnderstandingRouter(types=types, sources={"crm": ("CRM", "客户库")}, tz=zone)


def questions(half: str) -> list[dict[str, str]]:
    """The lines of a set; a value that is absent or "-" is left out."""
    with (HERE / f"{half}.tsv").open(encoding="utf-8") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [{name: value for name, value in line.items() if value != "-"} for line in lines]


def expected(line: dict[str, str]) -> dict[str, Any]:
    kinds = line["kinds"].split(",") if "kinds" in line else []
    zone = ZoneInfo(line["zone"]) if "zone" in line else ZONE
    moments = {
        name: datetime.fromisoformat(line[name]).replace(tzinfo=zone) if name in line else None
        for name in ("after", "before")
    }
    return {
        "type": line["type"],
        "types": {kind for kind in kinds if ":" not in kind},
        "sources": {kind.partition(":")[2] for kind in kinds if ":" in kind},
        **moments,
        "words": "words" in line,
        "takes over": True,
    }


def routed(line: dict[str, str]) -> dict[str, Any]:
    by = router(ZoneInfo(line["zone"])) if "zone" in line else router()
    now = datetime.fromisoformat(line["now"]) if "now" in line else NOW
    history = [{"role": "user", "content": line["said"]}] if "said" in line else None
    route = by.route(line["question"], history=history, now=now)
    return {
        "type": route.search_type,
        "types": set(route.types),
        "sources": set(route.sources),
        "after": route.after,
        "before": route.before,
        "words": route.weights is not None,
        "takes over": line.get("holds", "") in route.query,
    }


def wrong(half: str) -> list[tuple[str, dict[str, Any]]]:
    """Questions that are routed otherwise, and in what."""
    found = []
    for line in questions(half):
        want, got = expected(line), routed(line)
        differs = {name: (got[name], want[name]) for name in want if got[name] != want[name]}
        if differs:
            found.append((line["question"], differs))
    return found


def read_into(folder: Path) -> Counter[str]:
    """What is read into the questions of a collection, none of which is about an agent's past, a database or a time."""
    by, counts = QueryUnderstandingRouter(), Counter[str]()
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        route = by.route(json.loads(line)["text"], now=NOW)
        counts["questions"] += 1
        counts["past or database"] += bool(route.types)
        counts["one index only"] += route.search_type in {"keyword", "vector"}
        dated = bool(route.after or route.before)
        counts["a time relative to now"] += dated and not route.soft
        counts["a date on trial"] += dated and route.soft
        counts["more weight of words"] += route.weights is not None
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wrong", action="store_true", help="name the questions that are routed otherwise")
    parser.add_argument("--false", nargs="+", type=Path, default=(), help="folders of ordinary questions")
    options = parser.parse_args()
    for folder in options.false:
        print(folder.name, ", ".join(f"{name} {count}" for name, count in read_into(folder).items()))
    for half, told in HALVES.items():
        lines, missed = questions(half), wrong(half)
        chinese = [line for line in lines if not line["question"].isascii()]
        missed_zh = sum(not question.isascii() for question, _ in missed)
        right_zh, right_en = len(chinese) - missed_zh, len(lines) - len(chinese) - (len(missed) - missed_zh)
        print(
            f"{told}: {len(lines) - len(missed)} of {len(lines)} "
            f"(zh {right_zh} of {len(chinese)}, en {right_en} of {len(lines) - len(chinese)})"
        )
        for question, differs in missed if options.wrong else ():
            print(f"    {question}")
            for name, (got, want) in differs.items():
                print(f"        {name}: {got}, expected {want}")


if __name__ == "__main__":
    main()
