"""Small sound files of every format that is read, and ways to damage them."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from hypothesis import strategies as st

_TEXT = "数据库 alpha：连接超时。"


def _docx() -> bytes:
    import docx

    document = docx.Document()
    document.add_heading("数据", 1)
    document.add_paragraph(_TEXT)
    document.add_table(2, 2).cell(0, 0).text = "格"
    return _saved(document)


def _pptx() -> bytes:
    import pptx

    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "数据"
    slide.placeholders[1].text = _TEXT
    return _saved(show)


def _xlsx() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["数据", "value"])
    book.active.append([_TEXT, 1.5])
    return _saved(book)


def _saved(file: Any) -> bytes:
    buffer = io.BytesIO()
    file.save(buffer)
    return buffer.getvalue()


def _notebook() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# 数据\n", _TEXT], "metadata": {}},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [{"output_type": "stream", "text": ["1\n"]}],
            "metadata": {},
        },
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _pdf() -> bytes:
    """One page that says "alpha", written by hand: objects, table of places, trailer."""
    stream = b"BT /F1 24 Tf 72 700 Td (alpha page) Tj ET"
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(content)
    return content + b"xref\n0 6\n0000000000 65535 f \n" + table + end


WRITTEN: dict[str, bytes] = {
    "markdown": f"# 数据\n\n{_TEXT}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n```\n".encode(),
    "text": f"{_TEXT}\n第二行\n".encode("gb18030"),
    "html": f"<html><head><title>t</title></head><body><h1>数据</h1><p>{_TEXT}</p><table><tr><td>1</table></body>".encode(),
    "csv": f'名,值\n数据,1\n"{_TEXT}",2\n'.encode(),
    "json": json.dumps({"数据": [_TEXT, {"a": None, "b": 1.5}]}, ensure_ascii=False).encode(),
    "jsonl": f'{{"text": "{_TEXT}"}}\n{{"text": "2"}}\n'.encode(),
    "notebook": _notebook(),
    "docx": _docx(),
    "pptx": _pptx(),
    "xlsx": _xlsx(),
    "pdf": _pdf(),
}


def mutated(data: bytes, draw: st.DataObject) -> bytes:
    """The file cut, with bytes exchanged, doubled or torn out; inside a zip, the same done to a member."""
    if data[:2] == b"PK" and draw.draw(st.booleans(), label="damage a member"):
        return _remade(data, draw)
    return _damaged(data, draw)


def _damaged(data: bytes, draw: st.DataObject) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, max(0, len(changed) - 1)))
        how = draw.draw(st.sampled_from(["flip", "insert", "tear", "double", "cut"]))
        if how == "flip" and changed:
            changed[at] = draw.draw(st.integers(0, 255))
        elif how == "insert":
            changed[at:at] = draw.draw(st.binary(min_size=1, max_size=8))
        elif how == "tear":
            del changed[at : at + draw.draw(st.integers(1, 40))]
        elif how == "double":
            changed[at:at] = changed[at : at + draw.draw(st.integers(1, 200))]
        else:
            del changed[at:]
    return bytes(changed)


def _remade(data: bytes, draw: st.DataObject) -> bytes:
    """A sound archive around one damaged or missing member."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        victim = draw.draw(st.sampled_from(sorted(source.namelist())))
        gone = draw.draw(st.booleans(), label="gone")
        return remade(data, victim, None if gone else _damaged(source.read(victim), draw))


def remade(data: bytes, victim: str, content: bytes | None) -> bytes:
    """The archive with another content of one member, or without it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(buffer, "w") as target:
        for name in source.namelist():
            if name != victim:
                target.writestr(name, source.read(name))
            elif content is not None:
                target.writestr(name, content)
    return buffer.getvalue()
