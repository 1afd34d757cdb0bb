"""Accuracy of routing by rules: the share of questions whose route is as expected.

    python -m benchmarks.router [--wrong] [--false DATA…]

`first.tsv` was there when the rules were written. `second.tsv` was written after them and used once to measure them;
`third.tsv` was written by somebody who had not read the rules. DECISIONS.md has the results of those first runs.
A question counts if search type, types and sources, both ends of the time range and the weights are all as expected.
The present is Wednesday 18 March 2026, 10:00 in Shanghai, unless a line has its own time zone and time. A line may also
have the message before the question, and the words that the query must take over from it. `--false` counts in how many
ordinary questions (queries.jsonl of the folders) the rules find something that they do not ask for.
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
SETS = {"first": "rules written with them", "second": "written after the rules", "third": "written by a stranger"}


def router(zone: ZoneInfo = ZONE) -> QueryUnderstandingRouter:
    types = {
        **dict.fromkeys(("dialogue", "tool_call", "row", "schema", "file"), ()),
        "manual": ("手册", "manual"),
        "ticket": ("工单", "ticket"),
    }
    return QueryUnderstandingRouter(types=types, sources={"crm": ("CRM", "客户库")}, tz=zone)


def questions(name: str) -> list[dict[str, str]]:
    """The lines of a set; a value that is absent or "-" is left out."""
    with (HERE / f"{name}.tsv").open(encoding="utf-8") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [{key: value for key, value in line.items() if value != "-"} for line in lines]


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
    rules = router(ZoneInfo(line["zone"])) if "zone" in line else router()
    now = datetime.fromisoformat(line["now"]) if "now" in line else NOW
    history = [{"role": "user", "content": line["said"]}] if "said" in line else None
    route = rules.route(line["question"], history=history, now=now)
    return {
        "type": route.search_type,
        "types": set(route.types),
        "sources": set(route.sources),
        "after": route.after,
        "before": route.before,
        "words": route.weights is not None,
        "takes over": line.get("holds", "") in route.query,
    }


def wrong(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Questions of a set with an unexpected route, and the values (actual, expected) that differ."""
    errors = []
    for line in questions(name):
        want, actual = expected(line), routed(line)
        differences = {key: (actual[key], want[key]) for key in want if actual[key] != want[key]}
        if differences:
            errors.append((line["question"], differences))
    return errors


def false_positives(folder: Path) -> Counter[str]:
    """Counts over the questions of a collection, none of which is about an agent's past, a database or a time."""
    rules, counts = QueryUnderstandingRouter(), Counter[str]()
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        route = rules.route(json.loads(line)["text"], now=NOW)
        counts["questions"] += 1
        counts["past or database"] += bool(route.types)
        counts["one index only"] += route.search_type in {"keyword", "vector"}
        dated = bool(route.after or route.before)
        counts["a time relative to now"] += dated and not route.time_is_optional
        counts["a date on trial"] += dated and route.time_is_optional
        counts["more weight of words"] += route.weights is not None
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", action="store_true", help="print the questions with an unexpected route")
    parser.add_argument("--false", nargs="+", type=Path, default=(), help="folders of ordinary questions")
    options = parser.parse_args()
    for folder in options.false:
        print(folder.name, ", ".join(f"{name} {count}" for name, count in false_positives(folder).items()))
    for name, description in SETS.items():
        lines, missed = questions(name), wrong(name)
        chinese = [line for line in lines if not line["question"].isascii()]
        missed_zh = sum(not question.isascii() for question, _ in missed)
        right_zh, right_en = len(chinese) - missed_zh, len(lines) - len(chinese) - (len(missed) - missed_zh)
        print(
            f"{description}: {len(lines) - len(missed)} of {len(lines)} "
            f"(zh {right_zh} of {len(chinese)}, en {right_en} of {len(lines) - len(chinese)})"
        )
        for question, differences in missed if options.wrong else ():
            print(f"    {question}")
            for key, (actual, want) in differences.items():
                print(f"        {key}: {actual}, expected {want}")


if __name__ == "__main__":
    main()
