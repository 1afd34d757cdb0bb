"""Text formats give their words in order, with places, and a broken file gives a reason."""

import csv
import gzip
import io
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest

from langchain_agentrag.connector import NotIndexableError, SourceItem
from langchain_agentrag.connectors.files import FileSystemConnector
from langchain_agentrag.connectors.files.formats import format_of, read, skip_reason
from langchain_agentrag.errors import MissingExtraError, UnreadableSourceError
from langchain_agentrag.text.chunking import Chunking, chunk_document
from tests.connectors.files.extraction import MEGABYTE, chunks_of, content, parts

# --- CSV ------------------------------------------------------------------------------------------------------------


def test_a_byte_order_mark_does_not_stick_to_the_first_column():
    extracted = content("x.csv", "country,city\n中国,上海\n".encode("utf-8-sig"))
    assert extracted.metadata["columns"] == ["country", "city"]
    assert parts(extracted) == [("country: 中国\ncity: 上海", {"row": 2})]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found_and_uneven_rows_are_kept(delimiter):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerows([["name", "note"], ["甲", "一行\n两行"], ["乙"], ["丙", "x", "多出来"], ["丁", "1,5; 2|3\t4"]])
    extracted = content("x.csv", out.getvalue())
    assert [place["row"] for _, place in parts(extracted)] == [2, 3, 4, 5]
    assert parts(extracted)[0][0] == "name: 甲\nnote: 一行\n两行"
    assert parts(extracted)[2][0] == "name: 丙\nnote: x\n多出来"


def test_numbers_in_the_first_row_make_no_header():
    assert parts(content("x.csv", "甲,1\n乙,2\n")) == [("甲 | 1", {"row": 1}), ("乙 | 2", {"row": 2})]
    assert parts(content("x.csv", "地区,2021,2022\n华东,5,6\n"))[0][0] == "地区: 华东\n2021: 5\n2022: 6"


def test_a_stray_quote_does_not_swallow_the_file():
    lines = ["a,b"] + [f"{n},v{n}" for n in range(500)]
    lines[3] = '2,"v2'
    assert len(parts(content("x.csv", "\n".join(lines)))) == 500


def test_a_long_row_takes_its_name_along():
    extracted = content("x.csv", f"标题,正文\n如何退款,{'第一步提交申请。' * 100}\n")
    assert {chunk.context for chunk in chunks_of(extracted, size=200)} == {"如何退款"}


# --- JSON, notebooks ------------------------------------------------------------------------------------------------


def test_json_is_searchable_in_its_own_script():
    extracted = content(
        "x.json", json.dumps({"标题": "退款流程", "步骤": ["提交", "审核"], "嵌套": {"键": "\U0001f600"}})
    )
    assert "\\u" not in extracted.text
    assert extracted.text == "标题: 退款流程\n步骤:\n  - 提交\n  - 审核\n嵌套:\n  键: \U0001f600"


def test_a_large_json_on_one_line_is_cut_by_paths():
    days = {
        f"2024-01-{day:02}": [{"query": f"问题{day}" * 20, "response": f"回答{day}" * 20}] * 3 for day in range(1, 10)
    }
    extracted = content("x.json", json.dumps({"张三": {"history": days}}, ensure_ascii=False))
    chunks = chunks_of(extracted)
    assert all("\n" in chunk.text for chunk in chunks)
    (hit,) = [chunk for chunk in chunks if "2024-01-07" in chunk.text]
    assert hit.context.startswith("张三 > history")
    assert hit.locator["path"].startswith("张三.history")


def test_json_lines_are_read_under_either_name_and_keep_to_themselves():
    lines = "\n".join(json.dumps({"id": n, "inner": json.dumps({"话": f"第{n}句"})}) for n in range(3))
    for name in ("x.jsonl", "x.json", "x.ndjson"):
        extracted = content(name, lines)
        assert parts(extracted)[1] == ("id: 1\ninner:\n  话: 第1句", {"line": 2})
        assert len(chunks_of(extracted)) == 3


@pytest.mark.parametrize("text", ['{"a": "\\u9000\\u6b3e", // comment\n}', "[" * 100_000, '{"a": 1', "nonsense"])
def test_broken_json_is_kept_as_text(text):
    extracted = content("x.json", text)
    assert extracted.text
    assert "\\u" not in extracted.text


def test_odd_json_values_are_survived():
    deep = {"k": "v"}
    for _ in range(400):
        deep = {"k": deep}
    for value in (deep, [], {}, None, "x", [[[]]], {"": ""}, [1, "a", None], {"a": "\ud83d"}, {"n": float("nan")}):
        extracted = content("x.json", json.dumps(value))
        extracted.text.encode()


def test_notebooks_give_text_code_and_short_outputs():
    notebook = {
        "metadata": {"kernelspec": {"language": "python"}},
        "cells": [
            {"cell_type": "markdown", "source": ["# 标题\n", "说明"]},
            {"cell_type": "code", "source": "print('好')", "outputs": [{"output_type": "stream", "text": ["好\n"]}]},
            {"cell_type": "code", "source": "1/0", "outputs": [{"output_type": "error", "ename": "ZeroDivisionError", "evalue": "x"}]},
            {"cell_type": "code", "source": "f()", "outputs": [{"output_type": "execute_result", "data": {"text/plain": "y" * 9000, "image/png": "AAAA"}}]},
            {"cell_type": "code", "source": "", "outputs": []},
        ],
    }  # fmt: skip
    extracted = content("x.ipynb", json.dumps(notebook))
    assert [place["cell"] for _, place in parts(extracted)] == [1, 2, 3, 4]
    assert parts(extracted)[1][0] == "```python\nprint('好')\n```\n\n```\n好\n```"
    assert "ZeroDivisionError: x" in extracted.text
    assert "AAAA" not in extracted.text
    assert len(extracted.text) < 3000
    assert chunks_of(extracted)[0].context == "标题"


# --- HTML and text --------------------------------------------------------------------------------------------------

PAGE = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html><html><head><title>退款 &amp; 换货</title>
<style>p{color:red}</style><script>var hidden = 1;</script></head><body>
<nav><a href="/">首页</a></nav><div class="navheader"><a href="x">上一页</a></div>
<h1>退款<br>说明</h1><p>我们支持
七天无理由退款，适用于 Debian
项目。</p><!-- comment --><h2 id="x">步骤</h2><ul><li>提交<ul><li>材料</li></ul></li><li><p>审核</p></li></ul>
<table><tr><th>名</th><th>值</th></tr><tr><td>乙</td><td>200</td></tr></table>
<pre>code  here
  kept</pre><div style="display: none">秘密</div><p hidden>隐藏</p><noscript>无脚本</noscript><a href="y">链接<b>文字</b></a>
</body></html>"""


def test_html_gives_the_words_a_reader_sees():
    extracted = content("x.html", PAGE)
    assert extracted.kind == "markdown"
    assert extracted.metadata["title"] == "退款 & 换货"
    for part in (
        "退款 说明",
        "我们支持七天无理由退款，适用于 Debian 项目。",
        "## 步骤",
        "- 提交",
        "- 材料",
        "- 审核",
        "| 乙 | 200 |",
        "```\ncode  here\n  kept\n```",
        "链接文字",
    ):
        assert part in extracted.text
    for part in ("hidden", "color", "首页", "上一页", "comment", "秘密", "隐藏", "无脚本", "<"):
        assert part not in extracted.text
    assert chunks_of(extracted, size=12)[-1].context.endswith("步骤")


def test_the_main_part_of_a_page_is_preferred():
    page = f"<html><body><div>{'广告 ' * 20}</div><main><h1>正文</h1><p>{'内容 ' * 50}</p></main><footer>版权</footer></body></html>"
    text = content("x.html", page).text
    assert text.startswith("# 正文")
    assert "广告" not in text


@pytest.mark.parametrize(
    "page",
    [
        "",
        "plain words",
        "<p>unclosed <b>x",
        "<div>" * 3000 + "深处" + "</div>" * 3000,
        "<table>" * 200 + "格",
        "<html></html>",
    ],
)
def test_odd_html_is_survived(page):
    extracted = content("x.html", page or " ")
    assert "深处" not in page or "深处" in extracted.text


def test_text_packed_with_gzip_is_read_by_its_inner_name():
    kind, extracted = read("notes.md.gz", gzip.compress("# 标题\n\n正文".encode()), MEGABYTE)
    assert (kind, extracted.kind) == ("markdown", "markdown")
    with pytest.raises(NotIndexableError):
        read("x.png.gz", gzip.compress(b"x"), MEGABYTE)
    with pytest.raises(UnreadableSourceError, match="damaged"):
        read("x.txt.gz", b"\x1f\x8b broken", MEGABYTE)


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [("README", b"", "text"), ("run", b"#!/bin/sh\n", "code"), ("Dockerfile", b"", "code"), ("paper", b"%PDF-1.5", "pdf"),
     ("page", b"\n<!DOCTYPE HTML>", "html"), ("a.PY", b"", "code"), ("b.Md", b"", "markdown"), ("c.yaml", b"", "config")],
)  # fmt: skip
def test_formats_are_detected_by_name_then_by_first_bytes(name, head, expected):
    assert format_of(name, head) == expected


def test_every_reason_to_skip_a_file_names_its_cause():
    assert "image" in skip_reason("a/B.PNG")
    assert "archive" in skip_reason("x.tar.gz")
    assert skip_reason("x.gz.md") is None
    assert skip_reason("Makefile") is None


@pytest.mark.parametrize(
    ("name", "library"),
    [("x.pdf", "pypdf"), ("x.html", "bs4"), ("x.docx", "docx"), ("x.pptx", "pptx"), ("x.xlsx", "openpyxl")],
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(name, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", "x")
    with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[files\]"):
        content(name, out.getvalue() if name[-1] == "x" else b"%PDF-1.4")


# --- the shared folder of real files --------------------------------------------------------------------------------


def squeezed(text):
    return re.sub(r"\s+", "", text)


def test_every_real_file_gives_its_known_phrase():
    data = os.environ.get("AGENTRAG_DATA")
    if not data or not (folder := Path(data) / "messy_files").is_dir():
        pytest.skip("AGENTRAG_DATA does not name a folder that holds messy_files")
    with (folder / "MANIFEST.tsv").open(encoding="utf-8") as manifest:
        phrases = {row["file"]: row["phrase"] for row in csv.DictReader(manifest, delimiter="\t")}
    files = set()
    for item in FileSystemConnector(folder).items():
        assert isinstance(item, SourceItem)
        if item.key == "MANIFEST.tsv":
            continue
        files.add(item.key)
        if item.key == "scan_without_text.pdf":
            with pytest.raises(UnreadableSourceError, match="no text layer"):
                item.load()
            continue
        (document,) = item.load()
        assert phrases[item.key] in document.text, item.key
        chunks = chunk_document(document, Chunking())
        assert any(squeezed(phrases[item.key]) in squeezed(chunk.text) for chunk in chunks), item.key
    assert files == set(phrases)
