"""How often a question is routed as expected, by rules alone.

    python -m benchmarks.router [--wrong]

`first.tsv` was there when the rules were written. `second.tsv` was written after them, and by it they were judged
once; the figure of that first look is kept in ARCHITECTURE.md. A question counts when search type, types and sources,
both ends of the stretch of time and the weight of its words are all as expected. It is Wednesday 18 March 2026,
10:00 in Shanghai.
"""

from __future__ import annotations

import argparse
import csv
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from langchain_agentrag import QueryUnderstandingRouter

HERE = Path(__file__).parent
ZONE = ZoneInfo("Asia/Shanghai")
NOW = datetime(2026, 3, 18, 10, 0, tzinfo=ZONE)
HALVES = {"first": "rules written with them", "second": "written after the rules"}


def router() -> QueryUnderstandingRouter:
    types = {
        **dict.fromkeys(("dialogue", "tool_call", "row", "schema", "file"), ()),
        "manual": ("手册", "manual"),
        "ticket": ("工单", "ticket"),
    }
    return QueryUnderstandingRouter(types=types, sources={"crm": ("CRM", "客户库")}, tz=ZONE)


def questions(half: str) -> list[dict[str, str]]:
    with (HERE / f"{half}.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def expected(line: dict[str, str]) -> dict[str, Any]:
    kinds = [] if line["kinds"] == "-" else line["kinds"].split(",")
    moments = {
        name: None if line[name] == "-" else datetime.fromisoformat(line[name]).replace(tzinfo=ZONE)
        for name in ("after", "before")
    }
    return {
        "type": line["type"],
        "types": {kind for kind in kinds if ":" not in kind},
        "sources": {kind.partition(":")[2] for kind in kinds if ":" in kind},
        **moments,
        "words": line["words"] == "w",
    }


def routed(by: QueryUnderstandingRouter, question: str) -> dict[str, Any]:
    route = by.route(question, now=NOW)
    return {
        "type": route.search_type,
        "types": set(route.types),
        "sources": set(route.sources),
        "after": route.after,
        "before": route.before,
        "words": route.weights is not None,
    }


def wrong(half: str) -> list[tuple[str, dict[str, Any]]]:
    """Questions that are routed otherwise, and in what."""
    by, found = router(), []
    for line in questions(half):
        want, got = expected(line), routed(by, line["question"])
        differs = {name: (got[name], want[name]) for name in want if got[name] != want[name]}
        if differs:
            found.append((line["question"], differs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wrong", action="store_true", help="name the questions that are routed otherwise")
    options = parser.parse_args()
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
