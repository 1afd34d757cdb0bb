"""Detection of the encoding of a text: Unicode, the legacy encodings of Chinese, Japanese and Korean, Western.

A text without a byte order mark that is not UTF-8 is decoded in every multi-byte encoding. The encoding whose text
has most frequent characters of its language wins.
"""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from langchain_agentrag.connector import NotIndexableError
from langchain_agentrag.errors import UnreadableSourceError

_SAMPLE: Final = 65_536  # bytes decoded in every encoding; 20,000 characters identify a language reliably
_MAX_DAMAGE: Final = 0.01  # largest share of the non-ASCII characters that may be undecodable
_MIN_SCORE: Final = 0.5
"""Lowest score of a detected encoding: correctly decoded texts reach 0.75 to 0.95, others 0.1 to 0.4."""
_MIN_SCORE_DAMAGED: Final = 0.65  # lowest score with undecodable places
_GB18030_BONUS: Final = 0.15
"""How much lower GB18030 may score when no other encoding is plausible, for texts with rare characters and names."""
_SPARSE: Final = 20
"""If fewer than one in so many characters is non-ASCII, one next to a letter is an accent, not a word."""
_MAX_CHAOS, _MIN_COHERENCE = 0.05, 0.3
"""Limits for a guess of charset-normalizer: hardly any disorder, letters as frequent as in a language."""
_DECLARED_BONUS: Final = 0.2  # added to the score of an encoding that the file declares

# Roughly the 300 most frequent characters of Chinese, by general knowledge of the language; they cover more than half
# of ordinary text. Korean: frequent syllables of particles, endings and common words.
_SIMPLIFIED = (
    "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对小多然于心学么"
    "之都好看起发当没成只如事把还用第样道想作种开美总从无情己面最女但现前些所同日手又行意动方期它头经长儿回位分爱老因很给"
    "名法间斯知世什两次使身者被高已亲其进此话常与活正感见明问力理尔点文几定本公特做外孩相西果走将月十实向声车全信重三机工"
    "物气每并别真打太新比才便夫再书部水像眼等体却加电主界门利海受听表德少克代员许先口由死安写性马光白或住难望教命花结乐色"
    "更拉东神记处让母父应直字场平报友关放至张认接告入笑内英军候民岁往何度山觉路带万男边风解叫任金快原吃妈变通师立象数四失"
    "满战远格士音轻目条呢病始达深完今提求清王化空业思切怎非找片罗钱吗语元喜曾离飞科言干流欢约各即指合反题必该论交终林请医"
    "晚制球决传画保读运及则房早院量苦火布品近坐产答星精视五连司巴奇管类未朋且婚台夜青北队久乎越观落尽形影红百令周吧识步希"
    "系统件设置文件数据输入程编码按键择页据测试版资源错误单户务式示录选需查网址络软硬盘存储器"
)
_TRADITIONAL = (
    "的一是了我不人在他有這個上們來到時大地為子中你說生國年著就那和要她出也得裡後自以會家可下而過天去能對小多然於心學麼"
    "之都好看起發當沒成只如事把還用第樣道想作種開美總從無情己面最女但現前些所同日手又行意動方期它頭經長兒回位分愛老因很給"
    "名法間斯知世什兩次使身者被高已親其進此話常與活正感見明問力理爾點文幾定本公特做外孩相西果走將月十實向聲車全信重三機工"
    "物氣每並別真打太新比才便夫再書部水像眼等體卻加電主界門利海受聽表德少克代員許先口由死安寫性馬光白或住難望教命花結樂色"
    "更拉東神記處讓母父應直字場平報友關放至張認接告入笑內英軍候民歲往何度山覺路帶萬男邊風解叫任金快原吃媽變通師立象數四失"
    "滿戰遠格士音輕目條呢病始達深完今提求清王化空業思切怎非找片羅錢嗎語元喜曾離飛科言乾流歡約各即指合反題必該論交終林請醫"
    "晚制球決傳畫保讀運及則房早院量苦火布品近坐產答星精視五連司巴奇管類未朋且婚臺台夜青北隊久乎越觀落盡形影紅百令周吧識步希"
    "系統件設置檔案資料輸入程式編碼按鍵擇頁據測試版源錯誤單戶務示錄選需查網址絡軟硬盤碟存儲器游標刪除鈕課佢哋喺嘅嘢咗唔冇啲度做"
)
_HANGUL = (
    "이다는의에가을를고하지한은로도서사기자아어나시인리대들그것있해수으일보과제라만정부스게장면여러전상했주니던까습와안원성"
    "동구공마교적조용내개모소방비치학년세물문관신경국우발생분연입무오음식요회업려간금진중점당실영계화번지행선재드미않없때말"
    "생각많같또저더무엇안녕감사합니다세요되된될명위불심설미술력민터약차처최함현형통"
)

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARATION = re.compile(rb"(?:charset|encoding|coding)\s*[:=]\s*[\"']?\s*([A-Za-z][\w.:-]{1,30})", re.IGNORECASE)
_ENCODING_BY_LABEL: Final = {
    "gb2312": "gb18030", "gbk": "gb18030", "gb_2312-80": "gb18030", "cp936": "gb18030",
    "big5": "big5hkscs", "big5-hkscs": "big5hkscs", "cp950": "big5hkscs",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "windows-31j": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "uhc": "cp949",
    "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
}  # fmt: skip
_MULTIBYTE: Final = ("gb18030", "big5hkscs", "cp950", "cp932", "euc_jp", "cp949")
_BINARY_REASON: Final = "binary file, not text"
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Decoded:
    r"""A decoded text and its encoding.

    Attributes:
        text: The text, with line ends "\n" and without byte order mark.
        encoding: Python's name of the encoding.
        damaged: Undecodable places, each one U+FFFD in the text.
    """

    text: str
    encoding: str
    damaged: int = 0


def decode(data: bytes) -> Decoded:
    """Detect the encoding of a file and decode it.

    Raises:
        NotIndexableError: the bytes are not text.
        UnreadableSourceError: they look like text, but its encoding is unknown.
    """
    decoded = _by_bom(data) or _with_nulls(data) or _utf8(data) or _legacy(data)
    if decoded is None:
        if len(_CONTROLS.findall(data[:_SAMPLE].decode("latin-1"))) * 20 > len(data[:_SAMPLE]):
            raise NotIndexableError(_BINARY_REASON)
        raise UnreadableSourceError(
            "its encoding is unknown: decoded as UTF-8, UTF-16, GB18030, Big5, Shift_JIS, EUC-JP, EUC-KR "
            "or a Western code page it is not a sensible text. Save it as UTF-8."
        )
    text = decoded.text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    if len(_CONTROLS.findall(text[:_SAMPLE])) * 50 > len(text[:_SAMPLE]):
        raise NotIndexableError(_BINARY_REASON)
    return Decoded(text.replace("\x00", ""), decoded.encoding, decoded.damaged)


def _by_bom(data: bytes) -> Decoded | None:
    encoding = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), None)
    return None if encoding is None else _decode_tolerant(data, encoding)


def _decode_tolerant(data: bytes, encoding: str) -> Decoded | None:
    """Decode the data; None when more than a tiny share is undecodable."""
    try:
        return Decoded(data.decode(encoding), encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, errors="replace")
    damaged = text.count("\ufffd")
    non_ascii = sum(char > "\x7f" for char in text)
    return Decoded(text, encoding, damaged) if damaged <= non_ascii * _MAX_DAMAGE else None


def _with_nulls(data: bytes) -> Decoded | None:
    """Decode UTF-16 without a byte order mark, or raise for a binary file; other encodings have no NUL bytes."""
    if b"\x00" not in data[:_SAMPLE]:
        return None
    decoded = _utf16(data)
    if decoded is None:
        raise NotIndexableError(_BINARY_REASON)
    return decoded


def _utf16(data: bytes) -> Decoded | None:
    """Decode UTF-16 without a byte order mark in the better byte order; None when it is not natural language."""
    if len(data) % 2:
        return None
    best: tuple[float, Decoded] | None = None
    for encoding in ("utf-16-le", "utf-16-be"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        sample = text[:_SAMPLE]
        score = math.fsum(map(_utf16_char_score, sample)) / max(len(sample), 1)
        if score >= _MIN_SCORE and (best is None or score > best[0]):
            best = score, Decoded(text, encoding)
    return best[1] if best else None


def _utf16_char_score(char: str) -> float:
    if char < "\x80":
        return 1.0 if char.isprintable() or char in "\t\r\n" else -1.0
    is_european = "\xa0" <= char <= "\xff" or "\u0400" <= char <= "\u045f"
    return 0.8 if is_european else _char_score(char, *_profile("utf-16"))


def _utf8(data: bytes) -> Decoded | None:
    if data.isascii():
        utf16 = _utf16(data) if _CONTROLS.search(data[:_SAMPLE].decode("ascii")) else None
        return utf16 or _iso2022_jp(data) or Decoded(data.decode("ascii"), "utf-8")
    return _decode_tolerant(data, "utf-8")


def _iso2022_jp(data: bytes) -> Decoded | None:
    """Decode ISO-2022-JP, which consists of ASCII bytes and escape sequences."""
    if b"\x1b$" not in data and b"\x1b(" not in data:
        return None
    try:
        return Decoded(data.decode("iso2022_jp"), "iso2022_jp")
    except UnicodeDecodeError:
        return None


def _legacy(data: bytes) -> Decoded | None:
    """Decode the data in the most plausible legacy encoding."""
    match = _DECLARATION.search(data[:2048])
    declared = match[1].decode("ascii").lower() if match else ""
    declared = _ENCODING_BY_LABEL.get(declared, declared)
    sample = _sample(data)
    scores: dict[str, float] = {}
    for encoding in _MULTIBYTE:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
        scores[encoding] = _score(text, encoding) + _DECLARED_BONUS * (encoding == declared)
    none_plausible = True
    for encoding in sorted(scores, key=lambda name: -scores[name]):
        needed = _MIN_SCORE - _GB18030_BONUS * (encoding == "gb18030" and none_plausible)
        if scores[encoding] < needed:
            continue
        none_plausible = False
        decoded = _decode_tolerant(data, encoding)
        if decoded and (not decoded.damaged or scores[encoding] >= _MIN_SCORE_DAMAGED):
            return decoded
    return _utf16(data) or _western(data, declared)


def _sample(data: bytes) -> bytes:
    """Return a part that starts a little before the first non-ASCII byte."""
    match = re.search(rb"[\x80-\xff]", data)
    start = max(0, match.start() - 20) if match else 0
    return data[start : start + _SAMPLE]


@cache
def _rows(codec: str, rows: range) -> frozenset[str]:
    """Return the characters of some rows of a 94x94 character set; the common ones are in the first rows."""
    codes = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
    return frozenset("".join(code.decode(codec, "ignore") for code in codes))


@cache
def _big5_common() -> frozenset[str]:
    """Return the 5,401 frequent characters of Big5 (A440 to C67E)."""
    cells = (*range(0x40, 0x7F), *range(0xA1, 0xFF))
    codes = (bytes((row, cell)) for row in range(0xA4, 0xC7) for cell in cells if (row, cell) <= (0xC6, 0x7E))
    return frozenset("".join(code.decode("big5", "ignore") for code in codes))


@cache
def _profile(encoding: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the very frequent and the common characters of an encoding's language."""
    kana = frozenset(map(chr, range(0x3041, 0x30FF)))
    if encoding == "gb18030":
        return frozenset(_SIMPLIFIED) | frozenset(_TRADITIONAL), _rows("gb2312", range(0xB0, 0xD8))
    if encoding in ("big5hkscs", "cp950"):
        return frozenset(_TRADITIONAL), _big5_common()
    if encoding in ("cp932", "euc_jp"):
        return kana, _rows("euc_jp", range(0xB0, 0xD0))
    if encoding == "cp949":
        return frozenset(_HANGUL), _rows("euc_kr", range(0xB0, 0xC9))
    frequent = frozenset(_SIMPLIFIED) | frozenset(_TRADITIONAL) | frozenset(_HANGUL) | kana
    return frequent, _rows("gb2312", range(0xB0, 0xD8)) | _big5_common()


_PUNCTUATION = frozenset("。，、！？；：「」『』（）《》〈〉【】“”‘’…—·～　￥％＋－／＝＊")


def _score(text: str, encoding: str) -> float:
    """Return how much a text resembles language: the mean score of its non-ASCII characters, at most about 1."""
    frequent, common = _profile(encoding)
    strict = encoding == "cp932" or sum(char > "\x7f" for char in text) * _SPARSE <= len(text)
    total, count = 0.0, 0
    for before, char, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if char > "\x7f":
            count += 1
            if _is_isolated(before, after, strict=strict):
                total -= 1.0  # "it’s" in Windows-1252 decodes to one Han character among letters
            elif encoding == "gb18030" and _has_four_bytes(char):
                total += 1.2  # only GB18030 has such sequences, so a rare character is good evidence
            else:
                total += _char_score(char, frequent, common)
    return total / count if count else 1.0


def _is_isolated(before: str, after: str, *, strict: bool) -> bool:
    """Return whether a character is between ASCII characters with letters on both sides (strict: on one side)."""
    if not before.isascii() or not after.isascii():
        return False
    return before.isalpha() + after.isalpha() >= (1 if strict else 2)


def _has_four_bytes(char: str) -> bool:
    rare = "\u3400" <= char <= "\u4dbf" or "\U0001f300" <= char <= "\U000323af"
    return rare and len(char.encode("gb18030")) == 4  # noqa: PLR2004


def _char_score(char: str, frequent: frozenset[str], common: frozenset[str]) -> float:
    if char in frequent:
        return 1.0
    if char in _PUNCTUATION:
        return 0.8
    if char in common:
        return 0.6
    if "\uff01" <= char <= "\uff5e" or "\u2500" <= char <= "\u27bf" or "\xa0" <= char <= "\u04ff":
        return 0.3  # full-width ASCII, boxes, symbols, accented letters: in every encoding
    if "\u3400" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3":
        return 0.0
    return -1.0  # private use, half-width katakana, C1 controls, U+FFFD


def _western(data: bytes, declared: str) -> Decoded | None:
    """Decode a single-byte code page: the declared one or Windows-1252 if its text is plausible, or a guess."""
    for encoding in (declared, "cp1252"):
        try:
            text = data.decode(encoding)
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
        if _is_western_text(text):
            return Decoded(text, encoding)
    return _charset_normalizer(data)


def _is_western_text(text: str) -> bool:
    """Return whether accented letters are isolated among ASCII letters, as in every Western language."""
    non_ascii = [char for char in text if char > "\x7f"]
    letters = sum(char.isalpha() for char in non_ascii)
    punctuation = sum(char in "“”‘’–—…•€£§°«»©®™·¿¡\xa0" for char in non_ascii)
    ascii_letters = sum(char.isascii() and char.isalpha() for char in text)
    runs = re.findall(r"[^\x00-\x7f]{3,}", text)
    is_plausible = letters + punctuation >= 0.95 * len(non_ascii) and len(runs) * 20 <= len(non_ascii)
    return is_plausible and ascii_letters >= 2 * len(non_ascii)


def _charset_normalizer(data: bytes) -> Decoded | None:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return None
    best = from_bytes(data[:_SAMPLE]).best()
    if best is None or best.chaos >= _MAX_CHAOS or best.coherence <= _MIN_COHERENCE:
        return None
    if best.encoding in _MULTIBYTE:
        return None
    try:
        return Decoded(data.decode(best.encoding), best.encoding)
    except UnicodeDecodeError:
        return None
