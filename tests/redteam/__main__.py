"""The table of what gets through: `python -m tests.redteam [DATA]`; DATA adds the rate of false alarms on its corpora.

Every passage is indexed, found with the tool `search`, opened with the tool `read`, and the reply is given to the
scripted model of `obedient.py`. Half of the passages was kept aside until the rules were written.
"""

# ruff: noqa: T201  (a script: printing is its job)
from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from langchain_agentrag import AgentRAGToolkit, DualIndexer, SourceDocument
from langchain_agentrag.agent.prompt_injection import PassageSafety, instruction_kinds
from tests.redteam.obedient import (
    TEMPERS,
    Attack,
    attacks,
    naive_fence,
    obeys,
    ordinary,
    parses_as_call,
    screen_fetches,
    strangers,
)

HALVES = ("written with", "kept aside")
HEAD = "Workshop papers 车间资料"
OFF = {"fences": False, "cleaning": False, "flags": False, "defanging": False}
SETTINGS: dict[str, PassageSafety] = {
    "nothing": PassageSafety(**OFF),
    "fences only": PassageSafety(**{**OFF, "fences": True}),
    "fences and cleaning": PassageSafety(**{**OFF, "fences": True, "cleaning": True}),
    "fences and flags": PassageSafety(**{**OFF, "fences": True, "flags": True}),
    "defanging only": PassageSafety(**{**OFF, "defanging": True}),
    "everything": PassageSafety(),
}


def replies(indexer: DualIndexer, safety: PassageSafety, language: str) -> dict[str, str]:
    """Passage → what the tools say when it is searched for and then read."""
    search, read = AgentRAGToolkit(indexer=indexer, safety=safety, language=language).get_tools()
    texts = {}
    for attack in attacks():
        message = search.invoke({"query": HEAD, "k": 1, "filter": {"doc_id": attack.id}})
        texts[attack.id] = f"{message}\n{read.invoke({'doc_id': attack.id})}"
    return texts


def gather(folder: Path, language: str = "en") -> dict[str, dict[str, str]]:
    """Setting → passage → reply; "fixed fences" is what many prompts do, for comparison."""
    with DualIndexer(folder, "hash") as indexer:
        indexer.index_documents([SourceDocument(a.id, f"{HEAD}\n{a.text}", a.metadata) for a in attacks()])
        replies_by_setting = {name: replies(indexer, safety, language) for name, safety in SETTINGS.items()}
    replies_by_setting["fixed fences"] = {attack.id: naive_fence(attack.text) for attack in attacks()}
    return replies_by_setting


def followed(texts: dict[str, str], chosen: Iterable[Attack], temper: str) -> int:
    return sum(obeys(temper, texts[attack.id], attack.wants) for attack in chosen)  # type: ignore[arg-type]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        replies_by_setting = gather(Path(folder) / "store")
    everything = attacks()
    order = ["nothing", "fixed fences", *[name for name in SETTINGS if name != "nothing"]]
    for half in HALVES:
        chosen = [attack for attack in everything if attack.half == half]
        print(f"\n{half}: {len(chosen)} passages; followed by a model that …")
        print(
            f"{'':22}" + "".join(f"{temper:>22}" for temper in TEMPERS) + f"{'screen fetches':>18}{'loop parses':>14}"
        )
        for name in order:
            texts = replies_by_setting[name]
            counts = "".join(f"{followed(texts, chosen, temper):>22}" for temper in TEMPERS)
            fetched = sum(screen_fetches(texts[a.id], a.wants) for a in chosen)
            parsed = sum(parses_as_call(texts[a.id]) for a in chosen if a.kind == "tool call")
            print(f"{name:22}{counts}{fetched:>18}{parsed:>14}")
    _by_kind(everything)
    wrong = [text for text in ordinary() if instruction_kinds(text)]
    print(f"\nflagged although ordinary: {len(wrong)} of {len(ordinary())} sentences with the same words")
    _strangers()
    for folder_name in sys.argv[1:]:
        _false_alarms(Path(folder_name))


def _strangers() -> None:
    print("\nflagged, of what a stranger wrote: wave 1 before reading the rules, wave 2 after changing them for wave 1")
    for wave in (1, 2):
        for lang in ("en", "zh"):
            of = [one for one in strangers() if (one["wave"], one["lang"]) == (wave, lang)]
            cells = []
            for name, attack in (("attacks", True), ("ordinary", False)):
                texts = [one["text"] for one in of if one["attack"] is attack]
                cells.append(f"{name} {sum(bool(instruction_kinds(text)) for text in texts)}/{len(texts)}")
            print(f"wave {wave} {lang}   {'   '.join(cells)}")


def _by_kind(everything: list[Attack]) -> None:
    print("\nflagged, by kind and language")
    for kind in dict.fromkeys(attack.kind for attack in everything):
        cells = []
        for half in HALVES:
            for lang in ("en", "zh"):
                of = [a for a in everything if (a.kind, a.half, a.lang) == (kind, half, lang)]
                cells.append(f"{half} {lang} {sum(bool(instruction_kinds(a.text)) for a in of)}/{len(of)}")
        print(f"{kind:18}" + "   ".join(cells))


def _false_alarms(folder: Path, kinds: Callable[[str], tuple[str, ...]] = instruction_kinds) -> None:
    total = wrong = 0
    for corpus in sorted(folder.glob("*/corpus.jsonl")):
        with corpus.open(encoding="utf-8") as lines:
            texts = [json.loads(line).get("text") or "" for line in lines]
        flagged = sum(bool(kinds(text)) for text in texts)
        total, wrong = total + len(texts), wrong + flagged
        print(f"{corpus.parent.name:24}{flagged:>5} of {len(texts)} passages flagged")
    print(f"{'all':24}{wrong:>5} of {total} ({wrong / max(total, 1):.3%})")


if __name__ == "__main__":
    main()
