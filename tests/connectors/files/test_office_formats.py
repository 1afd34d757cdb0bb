"""PDF and Office files give their words in order, with places, and a broken file gives a reason."""

import datetime as dt
import gzip
import io
import zipfile

import pytest

from langchain_agentrag.connectors.files.formats import read
from langchain_agentrag.connectors.files.pdf import join_wrapped_lines
from langchain_agentrag.errors import UnreadableSourceError
from tests.connectors.files.extraction import MEGABYTE, chunks_of, content, parts

# --- PDF, written by hand -------------------------------------------------------------------------------------------


def pdf(*pages, image_only=False):
    """A small PDF with one line of Latin text per page, or pages without text."""
    count = len(pages)
    objects = [b"<</Type/Catalog/Pages 2 0 R>>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(count))
    objects.append(f"<</Type/Pages/Kids[{kids}]/Count {count}>>".encode())
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for number, page in enumerate(pages):
        lines = "".join(f"({line}) Tj 0 -14 Td " for line in page.split("\n"))
        stream = b"q Q" if image_only else f"BT /F1 12 Tf 72 720 Td {lines} ET".encode()
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {5 + 2 * number} 0 R/Resources<</Font<</F1 3 0 R>>>>>>".encode()
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    out, offsets = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % offset for offset in offsets))
    out.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start))
    return out.getvalue()


def test_pdf_pages_are_sections():
    extracted = content("x.pdf", pdf("First page text", "Second page text"))
    assert parts(extracted) == [("First page text", {"page": 1}), ("Second page text", {"page": 2})]
    assert extracted.metadata["pages"] == 2


def test_a_scan_is_reported_as_such():
    with pytest.raises(UnreadableSourceError, match="no text layer"):
        content("x.pdf", pdf("a", "b", image_only=True))


def test_an_encrypted_pdf_is_reported_as_such():
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("secret"))))
    writer.encrypt("password", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    with pytest.raises(UnreadableSourceError, match="encrypted"):
        content("x.pdf", out.getvalue())


@pytest.mark.parametrize("data", [b"%PDF-1.4 nothing", b"", b"no pdf at all", pdf("text")[:200]])
def test_a_damaged_pdf_is_reported_as_such(data):
    with pytest.raises(UnreadableSourceError):
        content("x.pdf", data or b" ")


def test_wrapped_chinese_lines_of_a_pdf_are_joined_and_headings_are_not():
    page = (
        "第一节 概述\n"
        + "这是一段很长的中文说明文字需要换行才能放下所以会自\n动选择换行的地方。\n短行\n下一段从这里开始。"
    )
    assert "会自动选择" in join_wrapped_lines(page)
    assert "概述\n" in join_wrapped_lines(page)
    assert "短行\n下一段" in join_wrapped_lines(page)
    assert join_wrapped_lines("an exam-\nple of state-of-\nthe-art") == "an example of state-of-\nthe-art"


# --- Word -----------------------------------------------------------------------------------------------------------


def word():
    import docx

    document = docx.Document()
    document.core_properties.title = "年度报告"
    document.sections[0].header.paragraphs[0].text = "页眉文字"
    document.sections[0].footer.paragraphs[0].text = "页脚文字"
    document.add_heading("报告", 0)
    document.add_heading("数据", 2)
    document.add_paragraph("表格之前")
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ["甲", "100", "乙", "200"], strict=True):
        cell.text = text
    document.add_paragraph("表格之后")
    merged = document.add_table(3, 3)
    for number, cell in enumerate(merged._cells):
        cell.text = f"格{number}"
    merged.cell(0, 0).merge(merged.cell(0, 1)).text = "横并"
    merged.cell(1, 2).merge(merged.cell(2, 2)).text = "竖并"
    outer = document.add_table(1, 2)
    outer.cell(0, 0).text = "外层"
    inner = outer.cell(0, 1).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "内甲", "内乙"
    document.add_paragraph("第一项", style="List Bullet")
    document.add_paragraph("第二项", style="List Bullet")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def test_word_keeps_the_order_of_the_document_and_rows_together():
    extracted = content("x.docx", word())
    order = [
        "页眉文字",
        "# 报告",
        "## 数据",
        "表格之前",
        "| 甲 | 100 |",
        "| 乙 | 200 |",
        "表格之后",
        "横并",
        "外层",
        "内甲 | 内乙",
        "- 第一项\n- 第二项",
        "页脚文字",
    ]
    places = [extracted.text.index(part) for part in order]
    assert places == sorted(places)
    assert extracted.text.count("横并") == extracted.text.count("竖并") == 1
    assert extracted.metadata["title"] == "年度报告"
    (hit,) = [chunk for chunk in chunks_of(extracted) if "乙 | 200" in chunk.text]
    assert "数据" in hit.text + hit.context


def test_word_keeps_inserted_text_and_content_controls_and_drops_deleted_text():
    data = word()
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            body = old.read(entry)
            if entry.filename == "word/document.xml":
                extra = (
                    "<w:p><w:ins w:id='1' w:author='a'><w:r><w:t>新增</w:t></w:r></w:ins>"
                    "<w:del w:id='2' w:author='a'><w:r><w:delText>删去</w:delText></w:r></w:del></w:p>"
                    "<w:sdt><w:sdtContent><w:p><w:r><w:t>控件</w:t></w:r></w:p></w:sdtContent></w:sdt><w:sectPr"
                )
                body = body.decode().replace("<w:sectPr", extra, 1).encode()
            new.writestr(entry, body)
    text = content("x.docx", out.getvalue()).text
    assert "新增" in text
    assert "控件" in text
    assert "删去" not in text


# --- PowerPoint, Excel ----------------------------------------------------------------------------------------------


def slides():
    import pptx
    from pptx.util import Inches

    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[5])
    first.shapes.title.text = "季度总结"
    group = first.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "组内文字"
    table = first.shapes.add_table(2, 2, 0, 0, Inches(3), Inches(1)).table
    for number, text in enumerate(["项", "值", "乙", "200"]):
        table.cell(number // 2, number % 2).text = text
    first.notes_slide.notes_text_frame.text = "讲稿备注"
    deck.slides.add_slide(deck.slide_layouts[6])
    third = deck.slides.add_slide(deck.slide_layouts[1])
    third.shapes.title.text, third.placeholders[1].text = "下一步", "第一\n第二"
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def test_slides_give_titles_groups_tables_and_notes():
    extracted = content("x.pptx", slides())
    texts = parts(extracted)
    assert [place for _, place in texts] == [{"slide": 1}, {"slide": 3}]
    assert all(part in texts[0][0] for part in ("## 季度总结", "组内文字", "| 乙 | 200 |", "讲稿备注"))
    assert texts[1][0] == "## 下一步\n\n第一\n第二"


def test_excel_rows_carry_column_names_sheet_and_row():
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "一月销售"
    for row in (
        ["日期", "品名", "数量"],
        [dt.datetime(2024, 1, 5), "茶叶", 3.0],
        [None, None, None],
        [None, "咖啡", 2.5],
    ):
        book.active.append(row)
    book.create_sheet("空表名")
    out = io.BytesIO()
    book.save(out)
    extracted = content("x.xlsx", out.getvalue())
    assert parts(extracted) == [
        ("一月销售\n日期 | 品名 | 数量", {"sheet": "一月销售"}),
        ("日期: 2024-01-05\n品名: 茶叶\n数量: 3", {"sheet": "一月销售", "row": 2}),
        ("品名: 咖啡\n数量: 2.5", {"sheet": "一月销售", "row": 4}),
        ("空表名", {"sheet": "空表名"}),
    ]
    assert chunks_of(extracted)[1].context == "一月销售"


@pytest.mark.parametrize("suffix", ["docx", "pptx", "xlsx"])
@pytest.mark.parametrize("data", [b"not a zip", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), word()[:3000]])
def test_damaged_and_encrypted_office_files_are_reported_as_such(suffix, data):
    with pytest.raises(UnreadableSourceError, match=r"damaged|encrypted"):
        content(f"x.{suffix}", data)


def test_a_zip_that_is_no_office_file_is_reported_as_damaged():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.txt", "x")
    for suffix in ("docx", "pptx", "xlsx"):
        with pytest.raises(UnreadableSourceError, match="damaged"):
            content(f"x.{suffix}", out.getvalue())


def test_bombs_are_not_unpacked(monkeypatch):
    bomb = gzip.compress(bytes(20 * MEGABYTE))
    with pytest.raises(UnreadableSourceError, match="max_bytes"):
        read("x.txt.gz", bomb, MEGABYTE)
    monkeypatch.setattr("langchain_agentrag.connectors.files.content._MAX_UNPACKED", MEGABYTE)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(2 * MEGABYTE))
    with pytest.raises(UnreadableSourceError, match="unpacks to"):
        content("x.docx", out.getvalue())
