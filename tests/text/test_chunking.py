"""Chunks are exact slices, cut where a reader would cut, in time linear in the text."""

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text.chunking import Chunking, _Chunker, chunk_document
from langchain_agentrag.text.sentences import sentence_ends, splits_grapheme
from langchain_agentrag.types import Section, SourceDocument

KINDS = ("plain", "markdown", "code")
WEATHER = "今天下雨了，我没出门。明天放晴。后天再说吧！"


def cost(text):
    return sum(3 if char >= "\u2e80" else 1 for char in text)


def chunks_of(text, kind="plain", sections=(), **settings):
    document = SourceDocument("doc", text, kind=kind, sections=tuple(sections))
    return chunk_document(document, Chunking(**settings))


def texts_of(text, kind="plain", **settings):
    return [chunk.text for chunk in chunks_of(text, kind, **settings)]


def check_contract(text, chunks, size):
    covered = set()
    for number, chunk in enumerate(chunks):
        assert chunk.chunk_id == number
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip() == chunk.text != ""
        assert cost(chunk.text) <= 3 * size
        covered.update(range(chunk.start, chunk.end))
    starts = [chunk.start for chunk in chunks]
    assert starts == sorted(set(starts))
    assert all(char.isspace() or place in covered for place, char in enumerate(text))


pieces = st.sampled_from(
    ["今天", "下雨。", "好！", "”", "，", "word ", "end. ", "\n", "\n\n", "\r\n", "# 标题\n", "## b\n", "```\n", "| a | b |\n", "|---|---|\n",
     "- item\n", "  - sub\n", "    x = 1\n", "def f():\n", "---\n", "title: t\n", "👩‍👩‍👧", "e\u0301", "🇨🇳", "\u3000", "a" * 40, "\x00", "\ud800"]
)  # fmt: skip
texts = st.lists(pieces, max_size=60).map("".join)
settings = st.integers(1, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, max(0, size // 2 - 1))))


@given(texts, settings, st.sampled_from(KINDS))
@example("。" * 50, (2, 0), "plain")
@example("段落 段落 段落 段落", (4, 1), "plain")
@example("a" + " " * 200 + "b" + " " * 200 + "c", (10, 4), "plain")
def test_chunks_are_exact_slices_within_the_budget_that_cover_the_text(text, setting, kind):
    size, overlap = setting
    check_contract(text, chunks_of(text, kind, size=size, overlap=overlap), size)


@given(texts, st.integers(3, 30), st.sampled_from(KINDS), st.data())
def test_a_section_that_stands_alone_shares_no_chunk(text, size, kind, data):
    marks = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    alone = data.draw(st.lists(st.booleans(), min_size=6, max_size=6))
    sections = [
        Section(start, end, {"row": row}, joinable=not alone[row]) for row, (start, end) in enumerate(pairwise(marks))
    ]
    chunks = chunks_of(text, kind, sections, size=size)
    check_contract(text, chunks, size)
    for section in sections:
        if not section.joinable:
            for chunk in chunks:
                inside = section.start <= chunk.start and chunk.end <= section.end
                outside = chunk.end <= section.start or section.end <= chunk.start
                assert inside or outside


@given(texts, st.integers(1, 40), st.sampled_from(KINDS))
def test_without_overlap_nothing_is_repeated(text, size, kind):
    chunks = chunks_of(text, kind, size=size)
    assert all(before.end <= after.start for before, after in pairwise(chunks))


@given(texts)
def test_a_short_plain_text_is_the_one_chunk_the_long_way_would_find(text):
    if text.strip():
        document = SourceDocument("d", text)
        assert chunk_document(document, Chunking()) == _Chunker(document, Chunking()).run()


@given(
    st.lists(
        st.sampled_from(["今天", "下雨了，", "没出门。", "“好！”", "她说：", "word ", "第3章；", "（见图）"]),
        max_size=80,
    )
)
def test_no_chunk_starts_with_closing_punctuation(parts):
    chunks = texts_of("".join(parts), size=12)
    assert not [chunk for chunk in chunks if chunk[0] in "。！？；，」』）”"]


@given(
    st.lists(
        st.sampled_from(["👩‍👩‍👧", "e\u0301\u0323", "🇨🇳", "👍🏽", "字", "\r\n", "👨‍👩‍👧‍👦"]), min_size=1, max_size=60
    )
)
def test_what_reads_as_one_character_is_not_torn_apart(parts):
    text = "".join(parts)
    for chunk in chunks_of(text, size=12):
        assert not splits_grapheme(text, chunk.start)
        assert not splits_grapheme(text, chunk.end)
        assert not unicodedata.combining(chunk.text[0])


@pytest.mark.parametrize("size", [4, 8, 12, 16])
def test_chinese_sentence_ends_stay_with_their_sentence(size):
    chunks = texts_of(WEATHER, size=size)
    assert "".join(chunks) == WEATHER
    assert not any(chunk[0] in "。！？；，" for chunk in chunks)
    assert size < 5 or all(chunk[-1] in "。！？；，" for chunk in chunks)


def test_closing_quotes_stay_with_the_quoted_sentence():
    assert texts_of("他说：“今天下雨了。”然后就走了没有回头。", size=14) == [
        "他说：“今天下雨了。”",
        "然后就走了没有回头。",
    ]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Dr. Smith paid 3.14 dollars. He left.", ["Dr. Smith paid 3.14 dollars.", " He left."]),
        ("See e.g. Fig. 3 for U.S. data! Really?", ["See e.g. Fig. 3 for U.S. data!", " Really?"]),
        ('"Stop." She ran.', ['"Stop."', " She ran."]),
        ("版本 v1.2.3 已发布。请升级！好吗？", ["版本 v1.2.3 已发布。", "请升级！", "好吗？"]),
        ("等等……然后呢？！”他问。", ["等等……", "然后呢？！”", "他问。"]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text, ends):
    places = [0, *sentence_ends(text, 0, len(text))]
    assert [text[start:end] for start, end in pairwise(places)] == ends


def test_repeated_text_has_its_own_places():
    chunks = chunks_of("段落 段落 段落 段落", size=4)
    assert [chunk.start for chunk in chunks] == [0, 3, 6, 9] or len(chunks) == 2
    page = "页眉\n\n" + "内容。" * 30 + "\n\n"
    check_contract(page * 3, chunks_of(page * 3, size=20, overlap=9), 20)


def test_overlap_repeats_whole_sentences():
    text = "".join(f"这是第{number}句话。" for number in range(40))
    chunks = chunks_of(text, size=50, overlap=20)
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        assert before.start < after.start < before.end
        assert after.text.startswith("这是第")


@pytest.mark.parametrize(
    "wrong",
    [{"size": 0}, {"size": -3}, {"size": 10, "overlap": 10}, {"size": 10, "overlap": 9}, {"size": 10, "overlap": 5},
     {"size": 10, "overlap": -1}, {"size": 2.5}, {"size": True}, {"size": "500"}, {"overlap": None}],
)  # fmt: skip
def test_settings_that_cannot_work_are_rejected_with_value_rule_and_remedy(wrong):
    with pytest.raises(UsageError) as caught:
        Chunking(**wrong)
    assert str(next(reversed(wrong.values()))) in str(caught.value)
    assert "must be" in str(caught.value)


def test_the_fingerprint_distinguishes_settings():
    assert Chunking(100).fingerprint == Chunking(size=100, overlap=0).fingerprint
    assert len({Chunking(100).fingerprint, Chunking(101).fingerprint, Chunking(100, 1).fingerprint}) == 3


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000\r\n", "\x1c\x85"])
def test_blank_text_gives_no_chunk(text):
    assert chunks_of(text) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a1," * 350_000, "plain"),
        ("x" * 10 + " " + "a" * 5000, "plain"),
        ("ab\n" * 100_000, "plain"),
        ("- ab\n" * 100_000, "markdown"),
        ("".join(" " * min(i, 200) + "- x\n" for i in range(5000)), "markdown"),
        ("```\n" + "code\n" * 200_000, "markdown"),
        (" " * 1_000_000 + "x", "markdown"),
        ("。" * 300_000, "plain"),
        ("|a|b|\n|-|-|\n" * 50_000, "markdown"),
        ("| " * 500_000, "markdown"),
        ("# a\n" * 100_000, "markdown"),
        ("".join(" " * i + "def f():\n" for i in range(1500)), "code"),
    ],
    ids=["one line", "long run", "tiny lines", "list", "nested list", "open fence", "spaces", "stops", "tables", "pipes",
         "headings", "nested code"],
)  # fmt: skip
def test_time_is_linear_in_the_text(text, kind):
    started = time.process_time()
    chunks = chunks_of(text, kind, size=200, overlap=90)
    assert time.process_time() - started < 5  # a tenth of that is usual
    assert len(chunks) <= len(text)


MANUAL = """---
title: 手册
---
# 安装

先装好 Python。

## 配置

### 端口

端口默认为 8080。

| 名称 | 默认值 |
|------|--------|
| port | 8080 |
| host | 0.0.0.0 |

## 升级

```bash
pip install -U pkg

pkg migrate
```
"""


def test_the_heading_path_goes_along_without_entering_the_text():
    chunks = chunks_of(MANUAL, "markdown", size=30)
    table = next(chunk for chunk in chunks if "0.0.0.0" in chunk.text)
    assert table.context == "手册 > 安装 > 配置 > 端口"
    assert table.locator["heading"] == "手册 > 安装 > 配置 > 端口"
    assert table.locator["line"] == MANUAL[: table.start].count("\n") + 1
    assert "手册" not in table.text


def test_tables_and_fences_stay_whole_where_they_fit():
    chunks = texts_of(MANUAL, "markdown", size=30)
    assert any("| 名称" in chunk and "host" in chunk for chunk in chunks)
    assert any(chunk.count("```") == 2 and "migrate" in chunk for chunk in chunks)


def test_a_heading_stays_with_its_text_and_a_filled_chunk_ends_before_one():
    text = "\n\n".join(f"## 第{n}节\n\n" + "这里是一些说明文字。" * 4 for n in range(6))
    chunks = texts_of(text, "markdown", size=60)
    assert len(chunks) == 6
    assert all(chunk.startswith("## 第") and chunk.endswith("。") for chunk in chunks)


def test_rows_of_a_long_table_carry_its_header_as_context():
    rows = "".join(f"| 项目{n} | 数值{n} |\n" for n in range(60))
    chunks = chunks_of(f"# 表\n\n| 名称 | 值 |\n|---|---|\n{rows}", "markdown", size=60)
    assert len(chunks) > 3
    for chunk in chunks[1:]:
        assert chunk.context == "表\n| 名称 | 值 |"
        assert all(line.startswith("| 项目") and line.endswith(" |") for line in chunk.text.split("\n"))


def test_a_long_fence_is_split_by_lines():
    code = "".join(f"call_number_{n}(argument)\n" for n in range(80))
    chunks = texts_of(f"```python\n{code}```\n", "markdown", size=80)
    assert all(line.endswith((")", "```", "python")) for chunk in chunks for line in chunk.split("\n"))


def test_a_hash_inside_a_fence_is_no_heading():
    chunks = chunks_of("# A\n\n```sh\n# not a heading\nls\n```\n\ntext", "markdown")
    assert [chunk.locator["heading"] for chunk in chunks] == ["A"]


def test_underlined_headings_and_marked_up_headings_are_read():
    chunks = chunks_of("Title\n=====\n\n## The `run` [guide](x.md) ##\n\n" + "word " * 400, "markdown", size=100)
    assert chunks[-1].locator["heading"] == "Title > The run guide"


def test_code_is_cut_between_definitions_and_names_what_encloses_a_chunk():
    methods = "\n\n".join(f"    def method_{n}(self):\n        return {n} * 'some longer text'" for n in range(12))
    text = f"import os\n\n\nclass Thing:\n{methods}\n\n\ndef main():\n    Thing()\n"
    chunks = chunks_of(text, "code", size=60)
    assert all(chunk.text.startswith(("import", "class", "def")) for chunk in chunks)
    inner = next(chunk for chunk in chunks if "method_7" in chunk.text)
    assert inner.context.startswith("class Thing")
    assert "main" not in next(chunk for chunk in chunks if "method_0" in chunk.text).text


def test_wrapped_lines_are_cut_at_sentences_and_complete_lines_at_their_ends():
    prose = (
        "The quick brown fox jumps over the lazy dog and runs far\naway from the other dogs. It never comes back to this\n"
        * 9
    )
    assert all(chunk.endswith(("dogs.", "this")) for chunk in texts_of(prose, size=60)[:-1])
    log = "".join(f"2024-01-{n:02} 10:00:00 INFO request number {n} was served\n" for n in range(1, 30))
    assert all(chunk.startswith("2024") and chunk.endswith("served") for chunk in texts_of(log, size=60))


def test_sections_locate_chunks_and_rows_keep_to_themselves():
    text = "a: 1\n\na: 2\n\na: 3"
    sections = [Section(0, 4, {"row": 2}, "表", joinable=False), Section(6, 10, {"row": 3}, "表", joinable=False),
                Section(12, 16, {"row": 4}, "表", joinable=False)]  # fmt: skip
    chunks = chunks_of(text, sections=sections)
    assert [(chunk.text, chunk.locator, chunk.context) for chunk in chunks] == [
        ("a: 1", {"row": 2}, "表"), ("a: 2", {"row": 3}, "表"), ("a: 3", {"row": 4}, "表")]  # fmt: skip


def test_pages_are_joined_up_to_the_budget_and_located_by_where_a_chunk_starts():
    pages = ["第一页的内容。", "第二页的内容。", "第三页。" * 30]
    text, sections, at = "\n\n".join(pages), [], 0
    for number, page in enumerate(pages, 1):
        sections.append(Section(at, at + len(page), {"page": number}))
        at += len(page) + 2
    chunks = chunks_of(text, sections=sections, size=50)
    assert chunks[0].text.startswith("第一页的内容。\n\n第二页")
    assert chunks[0].locator == {"page": 1}
    assert chunks[-1].locator == {"page": 3}


def test_context_is_bounded():
    deep = "".join(f"{'#' * level} {'很长的标题' * 20}{level}\n\n" for level in range(1, 7)) + "正文。" * 100
    for chunk in chunks_of(deep, "markdown", size=100):
        assert cost(chunk.context) <= 240
