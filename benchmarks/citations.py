"""Accuracy of the rules of the citation checker on passages of collections.

    python benchmarks/citations.py [DATA]

First, sentences of an independent author with their verdicts (citations_sentences.jsonl): counts of verdicts per
language and true verdict. Then, with DATA, sentences of a passage are checked against it: unchanged (expected:
supported), with a number changed (unsupported), with an inserted negation (contradicted), and against another passage
(not supported).
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from langchain_agentrag.agent.citation_support import judge_by_rules
from langchain_agentrag.text.sentences import sentence_ends

SENTENCES = Path(__file__).with_name("citations_sentences.jsonl")
VERDICTS = ("supported", "unsupported", "contradicted", "unknown")
PASSAGES = 300
LEAST, MOST = 12, 200


def sentences(text: str) -> list[str]:
    ends = [0, *sentence_ends(text, 0, len(text))]
    pieces = [text[a:b].strip() for a, b in pairwise(ends)]
    return [piece for piece in pieces if LEAST <= len(piece) <= MOST and "\n" not in piece]


def other_number(sentence: str) -> str | None:
    match = re.search(r"(?<![\w.,])[1-9]\d*(?![\w.,])", sentence, re.A)
    return None if match is None else f"{sentence[: match.start()]}{int(match[0]) + 7}{sentence[match.end() :]}"


def negated(sentence: str) -> str | None:
    verb = r"(?<=[\u4e00-\u9fff])(?=是由|是在|属于|位于)|\b(?:is|was|are|were)\b(?! not)"
    changed, count = re.subn(verb, lambda match: f"{match[0]} not" if match[0] else "不", sentence, count=1)
    return changed if count and not re.search(r"[不没未无非]|\b(?:not|no|never)\b|n't", sentence) else None


def print_sentences() -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    with SENTENCES.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            counts[row["lang"], row["gold"], judge_by_rules(row["sentence"], row["passage"])[0]] += 1
    print(f"{'language':10}{'true verdict':14}{'n':>4}" + "".join(f"{name:>14}" for name in VERDICTS))
    for lang, gold in dict.fromkeys((lang, gold) for lang, gold, _ in counts):
        verdicts = [counts[lang, gold, verdict] for verdict in VERDICTS]
        print(f"{lang:10}{gold:14}{sum(verdicts):>4}" + "".join(f"{count:>14}" for count in verdicts))


def main() -> None:
    print_sentences()
    if len(sys.argv) > 1:
        print_collections(Path(sys.argv[1]))


def print_collections(data: Path) -> None:
    changes: dict[str, Callable[[str], str | None]] = {
        "as it is": lambda sentence: sentence, "other number": other_number, "negated": negated,
    }  # fmt: skip
    print(f"{'collection':24}{'kind':14}{'n':>6}{'supported':>11}{'unsupported':>13}{'contradicted':>14}{'unknown':>9}")
    for corpus in sorted(data.glob("*/corpus.jsonl")):
        with corpus.open(encoding="utf-8") as lines:
            texts = [json.loads(line).get("text") or "" for line in lines]
        chosen = random.Random(7).sample(texts, min(PASSAGES, len(texts)))
        for kind in (*changes, "other passage"):
            counts: Counter[str] = Counter()
            for place, text in enumerate(chosen):
                for sentence in sentences(text)[:3]:
                    changed = changes.get(kind, changes["as it is"])(sentence)
                    passage = chosen[place - 1] if kind == "other passage" else text
                    if changed is not None and (kind != "other passage" or sentence not in passage):
                        counts[judge_by_rules(changed, passage)[0]] += 1
            total = sum(counts.values())
            if total:
                rates = [f"{counts[name] / total:.3f}" for name in VERDICTS]
                print(
                    f"{corpus.parent.name:24}{kind:14}{total:>6}{rates[0]:>11}{rates[1]:>13}{rates[2]:>14}{rates[3]:>9}"
                )


if __name__ == "__main__":
    main()
