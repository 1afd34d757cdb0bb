"""Accuracy of completing follow-up questions by rules: python benchmarks/conversation.py [--failures]

`dialogues/dialogues.jsonl` holds dialogues in Chinese and English written for this purpose. The rules
of `search/followup.py` were only changed after failures in part "dev"; part "held" is held out.
An independent question must stay unchanged; a follow-up question must be completed with the words in `must` and without
those in `without`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from langchain_agentrag.search.followup import complete_question, is_followup, read_history

DIALOGUES = Path(__file__).with_name("dialogues") / "dialogues.jsonl"


def dialogues() -> list[dict]:
    return [json.loads(line) for line in DIALOGUES.read_text(encoding="utf-8").splitlines()]


def understood(dialogue: dict) -> tuple[bool, str]:
    """Whether the question came out as it should, and how it came out."""
    question = dialogue["question"]
    completed = complete_question(question, read_history(dialogue["history"]))
    if not dialogue["leans"]:
        return completed.query == question, completed.query
    added = completed.added
    wanted = all(word in added for word in dialogue["must"])
    return wanted and not any(word in added for word in dialogue.get("without", ())), completed.query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failures", action="store_true", help="print what went wrong")
    options = parser.parse_args()
    right, decided, total = Counter(), Counter(), Counter()
    for dialogue in dialogues():  # dictionaries load at the first question
        understood(dialogue)
    started = time.perf_counter()
    for dialogue in dialogues():
        kind = dialogue["part"], dialogue["lang"], "leans" if dialogue["leans"] else "stands alone"
        good, query = understood(dialogue)
        total[kind] += 1
        right[kind] += good
        decided[kind] += is_followup(dialogue["question"]) == dialogue["leans"]
        if options.failures and not good:
            print(f"{dialogue['id']} {kind}: {dialogue['question']} -> {query}")
    spent = 1000 * (time.perf_counter() - started) / total.total()
    print("| part | language | question | told apart | completed as wanted |\n|---|---|---|---|---|")
    for kind in sorted(total):
        print(f"| {' | '.join(kind)} | {decided[kind]} of {total[kind]} | {right[kind]} of {total[kind]} |")
    for part in ("dev", "held"):
        of, good = (sum(count[kind] for kind in total if kind[0] == part) for count in (total, right))
        print(f"{part}: {good} of {of} ({good / of:.0%})")
    print(f"{spent:.2f} ms per question")


if __name__ == "__main__":
    main()
