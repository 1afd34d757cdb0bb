"""Bytes are read in the encoding that makes sense of them, or not at all."""

import codecs
import random

import pytest

from langchain_agentrag.connector import NotIndexableError
from langchain_agentrag.connectors.files.encodings import decode
from langchain_agentrag.errors import UnreadableSourceError

SIMPLIFIED = "切记一点：本教程的设计思路是在使用中进行学习的。每次只需修改一个文件。"
TRADITIONAL = "切記一點：這個課程的設計思路是在使用中進行學習的，畫面會完全充滿螢幕。"
JAPANESE = "これは日本語の文章です。漢字とカタカナも使います。"
KOREAN = "이것은 한국어 문장입니다. 검색이 잘 되는지 확인합니다."
WESTERN = "Die Größe des Schlüssels – “naïve” café, où êtes-vous? It’s 5 €."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (SIMPLIFIED, "utf-8"), (SIMPLIFIED, "utf-8-sig"), (SIMPLIFIED, "gb18030"), (SIMPLIFIED, "gb2312"),
        (SIMPLIFIED, "utf-16"), (SIMPLIFIED, "utf-16-le"), (SIMPLIFIED, "utf-16-be"), (SIMPLIFIED, "utf-32"),
        (TRADITIONAL, "big5"), (TRADITIONAL, "cp950"), (TRADITIONAL, "gbk"), (TRADITIONAL, "utf-16-le"),
        (JAPANESE, "shift_jis"), (JAPANESE, "cp932"), (JAPANESE, "euc_jp"), (JAPANESE, "iso2022_jp"),
        (KOREAN, "euc_kr"), (KOREAN, "cp949"), (KOREAN, "utf-16-be"),
        (WESTERN, "cp1252"), (WESTERN, "utf-8"), ("plain ASCII text\n", "ascii"), ("ASCII as UTF-16", "utf-16-le"),
    ],
)  # fmt: skip
def test_text_is_read_in_its_own_encoding(text, encoding):
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert decoded.damaged == 0


@pytest.mark.parametrize(
    "text",
    [
        "你好吗",
        "中文",
        "工信处女干事",
        "朱镕基",
        "镕㑇𠮷",
        "刘钰 张雯 王珺 李昊",
        "x = 1  # 中文注释",
        "姓名,城市\n张三,北京\n",
    ],
)
def test_short_and_rare_chinese_in_gb18030_is_read(text):
    assert decode(text.encode("gb18030")).text == text


@pytest.mark.parametrize("text", ["你好嗎", "測試", "佢哋喺度做嘢"])
def test_short_traditional_chinese_in_big5_is_read(text):
    assert decode(text.encode("big5hkscs")).text == text


@pytest.mark.parametrize("text", ["안녕하세요", "こんにちは"])
def test_short_korean_and_japanese_are_not_taken_for_chinese(text):
    encoding = "cp949" if text > "\uac00" else "cp932"
    assert decode(text.encode(encoding)).text == text


def test_big5_that_decodes_as_gb18030_is_not_taken_for_simplified_chinese():
    text = "這是繁體中文的說明，按下按鈕之後就會出現選單。\n" * 20
    data = text.encode("big5")
    assert data.decode("gb18030", "ignore") != text
    decoded = decode(data)
    assert decoded.encoding in ("big5hkscs", "cp950")
    assert decoded.text == text


def test_punctuation_of_windows_between_letters_is_not_taken_for_japanese():
    for text in (
        "It’s the word—word that we don’t use, isn’t it?",
        "the Defense Minister’s meeting was held",
        "murals in the Basilica of Kraków.",
    ):
        assert decode(text.encode("cp1252")).text == text


def test_one_broken_sequence_costs_one_mark_and_not_the_file():
    data = bytearray((TRADITIONAL * 30).encode("big5"))
    data[200:200] = b"\xff"
    decoded = decode(bytes(data))
    assert 0 < decoded.damaged <= 40
    assert decoded.text.count("\ufffd") == decoded.damaged
    assert TRADITIONAL in decoded.text


def test_a_cut_off_utf8_file_is_still_utf8():
    decoded = decode((SIMPLIFIED * 10).encode()[:-1])
    assert decoded.encoding == "utf-8"
    assert decoded.damaged == 1


def test_undecodable_text_is_refused_rather_than_stored_as_replacement_characters():
    soup = b"".join(bytes((0x80 + i % 0x80, 0x20)) for i in range(400))
    with pytest.raises(UnreadableSourceError, match="UTF-8"):
        decode(soup)


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_are_no_text(seed):
    rng = random.Random(seed)
    data = rng.randbytes(rng.choice([40, 500, 50_000]))
    with pytest.raises(UnreadableSourceError):
        decode(data)


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"\x7fELF\x02\x01\x01\x00" + bytes(50), b"\x01\x02\x03" * 30]
)
def test_binary_files_are_skipped_rather_than_failed(data):
    with pytest.raises(NotIndexableError):
        decode(data)


def test_line_ends_become_newlines_and_the_mark_disappears():
    assert decode(codecs.BOM_UTF8 + "甲\r\n乙\r丙\n".encode()).text == "甲\n乙\n丙\n"
    assert decode("甲\r\n乙".encode("utf-16")).text == "甲\n乙"


def test_a_declared_encoding_has_a_say():
    page = '<meta charset="shift_jis"><p>東京都</p>'.encode("cp932")
    assert "東京都" in decode(page).text


def test_empty_is_empty():
    assert decode(b"").text == ""


def test_a_large_file_is_decoded_once_and_judged_by_a_sample():
    text = "ascii only line\n" * 50_000 + SIMPLIFIED * 20_000
    assert decode(text.encode("gb18030")).text == text
