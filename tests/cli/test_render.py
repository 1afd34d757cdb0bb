"""The drawing and encoding behind the command: pure functions, no store."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from langchain_agentrag.cli.output import hits_document, to_json
from langchain_agentrag.cli.render import bar, hits_table, locator_parts, passage_view, sync_report_view
from langchain_agentrag.cli.terminal_text import NEAR, WINDOW, line_breaks, printable, snippet
from langchain_agentrag.types import Explanation, Failure, Hit, Hits, IndexEvidence, Passage, QueryMatches, SyncReport


def drawn(view: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(view)
    return console.file.getvalue()


def make_hit(text: str = "错误码 E1102 表示刀库卡住。", **fields) -> Hit:
    start = text.find("E1102")
    explanation = Explanation(
        vector=IndexEvidence(3, 0.871, 0.61),
        keyword=IndexEvidence(1, 7.31, 0.92),
        matches=QueryMatches(text, lambda: ((start, start + 5),)),
    )
    defaults = {"metadata": {"source": "手册/故障.md"}, "locator": {"page": 3}, "explanation": explanation}
    return Hit("files:故障.md", 2, text, 0.86, **(defaults | fields))


# ----- bars


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.0, " " * 10), (1.0, "█" * 10), (0.5, "█" * 5 + " " * 5), (0.0001, "▏" + " " * 9), (7.0, "█" * 10)],
)
def test_bar(score: float, expected: str):
    assert bar(score) == expected


@given(st.floats(min_value=-1, max_value=2))
def test_bar_always_fills_its_cells(score: float):
    assert cell_len(bar(score)) == 10


# ----- a terminal of any width


@pytest.mark.parametrize("width", [24, 40, 59, 60, 100])
@pytest.mark.parametrize(
    "text", ["错误码 E1102 表示刀库卡住，须手动复位。" * 3, "Alarm E1102 means the arm is stuck. " * 3]
)
def test_a_narrow_terminal_leaves_the_passage_most_of_its_width(text: str, width: int):
    lines = drawn(hits_table(Hits([make_hit(text), make_hit(text, confidence=0.5)], query="E1102")), width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert {"0.860", "conf", "0.50"} <= set(" ".join(lines).split())
    assert "E1102" in "".join(lines)
    passage = [line.strip() for line in lines if "vector" not in line and "─" not in line]
    assert max(map(cell_len, passage)) > 0.6 * width


# ----- snippets


def test_short_passage_is_shown_whole_on_one_line():
    assert snippet("first\n\n second\tthird ", [(0, 5)]).text == "first second third"


def test_snippet_is_cut_around_the_words_that_matched():
    text = "无关的前文。" * 60 + "设备报 E1102 时请先检查刀库传感器。" + "无关的后文。" * 60
    start = text.index("E1102")
    excerpt = snippet(text, [(start, start + 5)])
    ((left, right),) = excerpt.highlights
    assert excerpt.text[left:right] == "E1102"
    assert excerpt.text.startswith("… ")
    assert excerpt.text.endswith(" …")
    assert "。设备报" in "。" + excerpt.text.removeprefix("… ").replace("无关的前文。", "")


def test_snippet_prefers_the_place_where_most_words_meet():
    text = "alpha only here. " + "filler words go on. " * 30 + "alpha beta gamma together. " + "more filler. " * 30
    spans = [(i, i + len(w)) for w in ("alpha", "beta", "gamma") for i in range(len(text)) if text.startswith(w, i)]
    assert "alpha beta gamma together." in snippet(text, spans).text


@given(
    st.text(alphabet=st.sampled_from("ab。. \n中文字é\u0301！👍\x1b")),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 8)), max_size=6),
    st.integers(20, WINDOW),
)
def test_snippet_never_loses_its_words_nor_its_width(base: str, marks: list[tuple[int, int]], width: int):
    text = base * 12
    spans = [(start, start + length) for start, length in marks if start + length <= len(text)]
    excerpt = snippet(text, spans, width=width)
    assert "\n" not in excerpt.text
    assert "\x1b" not in excerpt.text
    assert cell_len(excerpt.text) <= width + NEAR + 4
    for left, right in excerpt.highlights:
        assert 0 <= left < right <= len(excerpt.text)


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x9b31m", "\u202egnp.exe", "\r", "\x00", "\ud800"])
def test_stored_text_cannot_steer_the_terminal(evil: str):
    safe = printable(f"a{evil}b")
    assert len(safe) == len(evil) + 2
    assert evil[0] not in safe


# ----- tables


def test_hits_show_source_score_words_and_both_indexes():
    text = drawn(hits_table(Hits([make_hit()], query="E1102")))
    for part in ("files:故障.md · page 3", "0.860", "#3", "cosine 0.871", "#1", "BM25 7.31", "matched E1102", "read"):
        assert part in text


def test_columns_stay_aligned_with_chinese_text():
    hits = Hits([make_hit("中文内容，宽度是两格。" * 20), make_hit("plain text " * 30)], query="q")
    assert max(cell_len(line) for line in drawn(hits_table(hits), width=80).splitlines()) <= 80


def test_an_index_without_evidence_is_a_dash():
    hit = make_hit(explanation=Explanation(vector=IndexEvidence(1, 0.8, 0.4)))
    assert "keyword –" in drawn(hits_table(Hits([hit], query="q")))


def test_markup_in_stored_text_is_only_text():
    hit = make_hit("[bold]not bold[/bold] E1102", metadata={"source": "[red]x[/red].md"})
    text = drawn(hits_table(Hits([hit], query="q")))
    assert "[bold]not bold[/bold]" in text
    assert "[red]x[/red].md" in text


def test_no_hits_is_a_sentence():
    assert "Nothing found for “量子”" in drawn(hits_table(Hits(query="量子")))


def test_a_missing_index_is_reported():
    assert "vector: model gone" in drawn(hits_table(Hits([make_hit()], query="q", degraded=("vector: model gone",))))


@pytest.mark.parametrize(
    ("locator", "expected"),
    [
        ({"page": 3}, ["page 3"]),
        ({"line": 4, "end_line": 9}, ["lines 4-9"]),
        ({"line": 4, "end_line": 4}, ["line 4"]),
        ({"row": 12, "sheet": "Q1"}, ["sheet Q1", "row 12"]),
        ({"strange": 1}, ["strange 1"]),
        ({}, []),
    ],
)
def test_place_in_words(locator: dict, expected: list[str]):
    assert locator_parts(locator) == expected


def test_report_names_every_reason():
    report = SyncReport(added=2, failed=(Failure("scan.pdf", "no text layer"),), skipped=(Failure("x.bin", "binary"),))
    text = drawn(sync_report_view(report))
    assert "2 added" in text
    assert "failed: scan.pdf: no text layer" in text
    assert "skipped: x.bin: binary" in text


def test_many_failures_are_counted_not_poured_out():
    text = drawn(sync_report_view(SyncReport(failed=tuple(Failure(f"f{i}", "bad") for i in range(50)))))
    assert text.count("failed: f") == 20
    assert "30 more" in text


def test_passage_names_the_chunks_it_covers():
    passage = Passage("d", 2, "text", 0, 4, first_chunk=1, last_chunk=3, total_chunks=9)
    assert "chunks 1-3, last is 8" in drawn(passage_view(passage))


# ----- JSON


def test_json_keeps_characters_and_speaks_iso_dates():
    values = {
        "when": dt.datetime(2026, 3, 1, 8, 30, tzinfo=dt.UTC),
        "day": dt.date(2026, 3, 1),
        "price": decimal.Decimal("1.10"),
        "id": uuid.UUID(int=7),
        "raw": b"\x00\xff",
        "odd": float("nan"),
        "tags": {"b", "a"},
        1: "数字键",
    }
    text = to_json(values)
    assert "数字键" in text
    loaded = json.loads(text)
    assert loaded["when"] == "2026-03-01T08:30:00+00:00"
    assert loaded["day"] == "2026-03-01"
    assert loaded["price"] == "1.10"
    assert loaded["raw"] == "AP8="
    assert loaded["odd"] is None
    assert loaded["tags"] == ["a", "b"]
    assert loaded["1"] == "数字键"


def test_json_of_hits_holds_everything_a_hit_knows():
    document = json.loads(to_json(hits_document(Hits([make_hit()], query="E1102"), agent_id="planner")))
    (hit,) = document["hits"]
    assert (document["query"], document["mode"], document["agent_id"]) == ("E1102", "hybrid", "planner")
    assert hit["rank"] == 1
    assert hit["explanation"]["keyword"] == {"rank": 1, "raw": 7.31, "score": 0.92}
    assert hit.keys() >= {"doc_id", "chunk_id", "text", "score", "metadata", "agent_id", "start", "end", "locator"}


# ----- lines


@given(st.text(alphabet=st.sampled_from("ab ，。中文(）👍"), max_size=120), st.integers(2, 40))
def test_lines_fit_and_nothing_is_lost(line: str, width: int):
    cuts = line_breaks(line, width)
    pieces = [line[left:right] for left, right in zip([0, *cuts], [*cuts, len(line)], strict=True)]
    assert "".join(pieces) == line
    assert all(cell_len(piece.rstrip()) <= width for piece in pieces)
    assert all(cuts[i] < cuts[i + 1] for i in range(len(cuts) - 1))


def test_chinese_after_a_space_stays_on_its_line():
    line = "面板提示 E1102，手册里查不到，重启以后仍然反复出现，最后发现是气管接头漏气"
    first = line[: line_breaks(line, 40)[0]]
    assert cell_len(first) >= 36
    assert not line[len(first)].startswith("，")


def test_words_are_not_torn_where_there_is_a_space():
    assert line_breaks("alpha beta gamma", 9) == [6, 11]
