"""Bytes to text: which encoding makes sense of them, not merely which one decodes them.

A byte order mark decides, then valid UTF-8. Everything else is a contest: each candidate decodes a sample,
and the result is scored by how common its characters are in the language the encoding is for. GB18030
decodes nearly any bytes, but Big5 text read as GB18030 is made of characters nobody writes; below a
threshold no reading is accepted.

A few damaged bytes do not cost a whole file: up to 1 % of the non-ASCII characters may be undecodable and
become U+FFFD, provided that the rest is beyond doubt. A file with more damage is reported as unreadable,
never stored.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from langchain_agentrag.connector import NotIndexableError
from langchain_agentrag.connectors.files.frequent import HANGUL, HANS, HANT
from langchain_agentrag.errors import UnreadableSourceError

_SAMPLE: Final = 65_536
"""Bytes that are decoded by every candidate; 20,000 characters tell languages apart beyond doubt."""
_DAMAGE: Final = 0.01
"""Largest share of the non-ASCII characters that may be undecodable."""
_ACCEPT: Final = 0.5
"""Lowest score of a reading: real texts reach 0.75 to 0.95, another encoding's text 0.1 to 0.4."""
_CERTAIN: Final = 0.65
"""Score needed to accept a reading with damage."""
_BENEFIT: Final = 0.15
"""How much lower GB18030 may score when nothing else is plausible: rare names and characters need it."""
_SPARSE: Final = 20
"""With fewer non-ASCII characters than one in so many, a lone one at a letter is an accent, not a word."""
_CHAOS, _COHERENCE = 0.05, 0.3
"""What charset-normalizer must say of its guess: hardly any mess, letters as frequent as in a language."""
_DECLARED: Final = 0.2
"""What a file's own declaration of an encoding adds to its score."""

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARATION = re.compile(
    rb"(?:charset|encoding|coding)\s*[:=]\s*[\"']?\s*([A-Za-z][\w.:-]{1,30})", re.IGNORECASE
)
_NAMES: Final = {
    "gb2312": "gb18030", "gbk": "gb18030", "gb_2312-80": "gb18030", "cp936": "gb18030",
    "big5": "big5hkscs", "big5-hkscs": "big5hkscs", "cp950": "big5hkscs",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "windows-31j": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "uhc": "cp949",
    "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
}  # fmt: skip
_MULTIBYTE: Final = ("gb18030", "big5hkscs", "cp950", "cp932", "euc_jp", "cp949")
_BINARY: Final = "binary file, not text"
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Decoded:
    r"""Text and how it was read.

    Attributes:
        text: The text, line ends as "\n", without byte order mark.
        encoding: Python's name of the encoding.
        damaged: Undecodable places, each one U+FFFD in the text.
    """

    text: str
    encoding: str
    damaged: int = 0


def decode(data: bytes) -> Decoded:
    """The text of a file.

    Raises:
        NotIndexableError: the bytes are no text.
        UnreadableSourceError: they look like text, but no encoding makes sense of them.
    """
    found = _by_mark(data) or _with_nulls(data) or _utf8(data) or _contest(data)
    if found is None:
        if len(_CONTROLS.findall(data[:_SAMPLE].decode("latin-1"))) * 20 > len(data[:_SAMPLE]):
            raise NotIndexableError(_BINARY)
        msg = (
            "its encoding cannot be told: no reading of the bytes as UTF-8, UTF-16, GB18030, Big5, "
            "Shift_JIS, EUC-JP, EUC-KR or a Western code page gives sensible text. Save it as UTF-8."
        )
        raise UnreadableSourceError(msg)
    text = found.text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    if len(_CONTROLS.findall(text[:_SAMPLE])) * 50 > len(text[:_SAMPLE]):
        raise NotIndexableError(_BINARY)
    return Decoded(text.replace("\x00", ""), found.encoding, found.damaged)


def _by_mark(data: bytes) -> Decoded | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _tolerant(data, encoding)
    return None


def _tolerant(data: bytes, encoding: str) -> Decoded | None:
    """The text if at most a tiny share of it is damaged."""
    try:
        return Decoded(data.decode(encoding), encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, errors="replace")
    damaged = text.count("\ufffd")
    foreign = sum(char > "\x7f" for char in text)
    return Decoded(text, encoding, damaged) if damaged <= foreign * _DAMAGE else None


def _with_nulls(data: bytes) -> Decoded | None:
    """UTF-16 without a mark, or a binary file: text in no other encoding holds NUL bytes."""
    if b"\x00" not in data[:_SAMPLE]:
        return None
    found = _utf16(data)
    if found is None:
        raise NotIndexableError(_BINARY)
    return found


def _utf16(data: bytes) -> Decoded | None:
    """The better reading as UTF-16 without a mark, if it is written language."""
    if len(data) % 2:
        return None
    best: tuple[float, Decoded] | None = None
    for encoding in ("utf-16-le", "utf-16-be"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        sample = text[:_SAMPLE]
        score = sum(_utf16_worth(char) for char in sample) / max(len(sample), 1)
        if score >= _ACCEPT and (best is None or score > best[0]):
            best = score, Decoded(text, encoding)
    return best[1] if best else None


def _utf16_worth(char: str) -> float:
    if char < "\x80":
        return 1.0 if char.isprintable() or char in "\t\r\n" else -1.0
    at_home = "\xa0" <= char <= "\xff" or "\u0400" <= char <= "\u045f"
    return 0.8 if at_home else _worth(char, *_profile("utf-16"))


def _utf8(data: bytes) -> Decoded | None:
    if data.isascii():
        found = _utf16(data) if _CONTROLS.search(data[:_SAMPLE].decode("ascii")) else None
        return found or _escaped(data) or Decoded(data.decode("ascii"), "utf-8")
    return _tolerant(data, "utf-8")


def _escaped(data: bytes) -> Decoded | None:
    """ISO-2022-JP: ASCII bytes and escape sequences."""
    if b"\x1b$" not in data and b"\x1b(" not in data:
        return None
    try:
        return Decoded(data.decode("iso2022_jp"), "iso2022_jp")
    except UnicodeDecodeError:
        return None


def _contest(data: bytes) -> Decoded | None:
    """The most plausible reading in a legacy encoding."""
    match = _DECLARATION.search(data[:2048])
    declared = match[1].decode("ascii").lower() if match else ""
    declared = _NAMES.get(declared, declared)
    sample = _sample(data)
    scores: dict[str, float] = {}
    for encoding in _MULTIBYTE:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
        scores[encoding] = _score(text, encoding) + _DECLARED * (encoding == declared)
    unsure = True
    for encoding in sorted(scores, key=lambda name: -scores[name]):
        needed = _ACCEPT - _BENEFIT * (encoding == "gb18030" and unsure)
        if scores[encoding] < needed:
            continue
        unsure = False
        found = _tolerant(data, encoding)
        if found and (not found.damaged or scores[encoding] >= _CERTAIN):
            return found
    return _utf16(data) or _western(data, declared)


def _sample(data: bytes) -> bytes:
    """A stretch that starts a little before the first non-ASCII byte."""
    match = re.search(rb"[\x80-\xff]", data)
    start = max(0, match.start() - 20) if match else 0
    return data[start : start + _SAMPLE]


_JIS_COMMON = range(0xB0, 0xD0)


@cache
def _plane(codec: str, rows: range) -> frozenset[str]:
    """Characters of some rows of a 94x94 character set: the standards put the common ones first."""
    codes = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
    return frozenset("".join(code.decode(codec, "ignore") for code in codes))


@cache
def _big5_common() -> frozenset[str]:
    """The 5,401 frequent characters of Big5 (A440 to C67E)."""
    cells = (*range(0x40, 0x7F), *range(0xA1, 0xFF))
    codes = (bytes((row, cell)) for row in range(0xA4, 0xC7) for cell in cells if (row, cell) <= (0xC6, 0x7E))
    return frozenset("".join(code.decode("big5", "ignore") for code in codes))


@cache
def _profile(encoding: str) -> tuple[frozenset[str], frozenset[str]]:
    """Very frequent and common characters of the language an encoding is for."""
    kana = frozenset(map(chr, range(0x3041, 0x30FF)))
    if encoding == "gb18030":
        return frozenset(HANS) | frozenset(HANT), _plane("gb2312", range(0xB0, 0xD8))
    if encoding in ("big5hkscs", "cp950"):
        return frozenset(HANT), _big5_common()
    if encoding in ("cp932", "euc_jp"):
        return kana, _plane("euc_jp", _JIS_COMMON)
    if encoding == "cp949":
        return frozenset(HANGUL), _plane("euc_kr", range(0xB0, 0xC9))
    every = frozenset(HANS) | frozenset(HANT) | frozenset(HANGUL) | kana
    return every, _plane("gb2312", range(0xB0, 0xD8)) | _big5_common()


_PUNCTUATION = frozenset("。，、！？；：「」『』（）《》〈〉【】“”‘’…—·～　￥％＋－／＝＊")


def _score(text: str, encoding: str) -> float:
    """How much a reading is like language: the mean worth of its non-ASCII characters, at most about 1."""
    frequent, common = _profile(encoding)
    strict = encoding == "cp932" or sum(char > "\x7f" for char in text) * _SPARSE <= len(text)
    total, count = 0.0, 0
    for before, char, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if char > "\x7f":
            count += 1
            if _stands_alone(before, after, strict=strict):
                total -= 1.0  # "it’s" in Windows-1252 reads as one Han character among letters
            elif encoding == "gb18030" and _has_four_bytes(char):
                total += 1.2  # no other encoding has such sequences, so a rare character is good evidence
            else:
                total += _worth(char, frequent, common)
    return total / count if count else 1.0


def _stands_alone(before: str, after: str, *, strict: bool) -> bool:
    """Whether a character is glued to ASCII letters only: on both sides, or strictly on one of them."""
    if not before.isascii() or not after.isascii():
        return False
    return before.isalpha() + after.isalpha() >= (1 if strict else 2)


def _has_four_bytes(char: str) -> bool:
    rare = "\u3400" <= char <= "\u4dbf" or "\U0001f300" <= char <= "\U000323af"
    return rare and len(char.encode("gb18030")) == 4  # noqa: PLR2004


def _worth(char: str, frequent: frozenset[str], common: frozenset[str]) -> float:
    if char in frequent:
        return 1.0
    if char in _PUNCTUATION:
        return 0.8
    if char in common:
        return 0.6
    if "\uff01" <= char <= "\uff5e" or "\u2500" <= char <= "\u27bf" or "\xa0" <= char <= "\u04ff":
        return 0.3  # full-width ASCII, boxes, symbols, accented letters: at home in every encoding
    if "\u3400" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3":
        return 0.0
    return -1.0  # private use, half-width katakana, C1 controls, U+FFFD


def _western(data: bytes, declared: str) -> Decoded | None:
    """A single-byte code page: declared, or Windows-1252 if it reads like words, or a guess."""
    for encoding in (declared, "cp1252"):
        try:
            text = data.decode(encoding)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
        if _reads_like_words(text):
            return Decoded(text, encoding)
    return _guessed(data)


def _reads_like_words(text: str) -> bool:
    """Whether accented letters stand alone among ASCII letters, as in every Western language."""
    foreign = [char for char in text if char > "\x7f"]
    letters = sum(char.isalpha() for char in foreign)
    usual = sum(char in "“”‘’–—…•€£§°«»©®™·¿¡\xa0" for char in foreign)
    ascii_letters = sum(char.isascii() and char.isalpha() for char in text)
    runs = re.findall(r"[^\x00-\x7f]{3,}", text)
    plain = letters + usual >= 0.95 * len(foreign) and len(runs) * 20 <= len(foreign)
    return plain and ascii_letters >= 2 * len(foreign)


def _guessed(data: bytes) -> Decoded | None:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return None
    best = from_bytes(data[:_SAMPLE]).best()
    sure = best is not None and best.chaos < _CHAOS and best.coherence > _COHERENCE
    if best is None or not sure or best.encoding in _MULTIBYTE:
        return None
    try:
        return Decoded(data.decode(best.encoding), best.encoding)
    except UnicodeDecodeError:
        return None
