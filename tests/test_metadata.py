"""The metadata codec: what goes in comes out, and what cannot is refused by name."""

from __future__ import annotations

import json
import math
import warnings
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.errors import InvalidDocumentError, StoreError
from langchain_agentrag.metadata import MAX_DEPTH, decode, encode, fingerprint, normalise
from tests.fakes import stable_id


def without_unit(kind: type, value: object):
    """A NumPy time without a unit, which NumPy 2.5 warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return kind(value)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    A = "a"


SHANGHAI = ZoneInfo("Asia/Shanghai")

KEPT = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**200),
    10**5000,
    0.1,
    -0.0,
    1e308,
    5e-324,
    "",
    "中文",
    "\x00nul\x00",
    "\ud800",
    "\ud83d\ude00",
    "😀",
    "\u2028",
    [],
    {},
    [[], [{}], None],
    {"$t": "datetime", "v": "2024-01-01"},
    {"$t": 1},
    {"\ud800": 1, "b": 2},
    {"": {"": {}}},
    datetime(2024, 5, 1),
    datetime(2024, 5, 1, 8, 30, 0, 7, UTC),
    datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2024, 5, 1, tzinfo=SHANGHAI),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
    datetime.min,
    datetime.max,
    date(1, 1, 1),
    time(23, 59, 59, 999999),
    time(1, tzinfo=SHANGHAI),
    time(1, tzinfo=UTC),
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    Decimal("1.10"),
    Decimal("-Infinity"),
    b"",
    b"\x00\xff",
    UUID(int=7),
]


@pytest.mark.parametrize("value", KEPT, ids=lambda value: repr(value)[:40] if not isinstance(value, int) else "int")
def test_value_comes_back_equal_and_of_its_own_type(value):
    for metadata in ({"k": value}, {"list": [value], "dict": {"deep": {"k": value}}}):
        back = decode(encode(metadata))
        assert back == metadata
        assert type(back.get("k", back.get("list"))) is type(metadata.get("k", metadata.get("list")))


def test_booleans_integers_and_floats_stay_apart():
    back = normalise({"a": True, "b": 1, "c": 1.0, "d": -0.0})
    assert [type(value) for value in back.values()] == [bool, int, float, float]
    assert math.copysign(1, back["d"]) == -1


def test_floats_outside_json_survive_and_the_text_is_strict_json():
    text = encode({"nan": math.nan, "up": math.inf, "down": [-math.inf]})
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = decode(text)
    assert math.isnan(back["nan"])
    assert (back["up"], back["down"]) == (math.inf, [-math.inf])


def test_flat_metadata_takes_no_shortcut_past_the_rules():
    for metadata in ({"$t": "date", "v": "2024-01-01"}, {"n": 10**5000}, {"s": "\ud83d\ude00"}, {"x": math.inf}):
        assert decode(encode(metadata)) == metadata
    json.loads(encode({"nan": math.nan}), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_decimal_keeps_its_digits_and_nan_kind():
    assert str(normalise({"p": Decimal("1.10")})["p"]) == "1.10"
    assert normalise({"p": Decimal("sNaN123")})["p"].is_snan()


def test_text_can_be_written_as_utf8_whatever_the_metadata():
    for metadata in ({"a": "\ud800"}, {"\udfff": 1}, {"a": "\ud800", "\udfff": ["\ud83d"]}):
        encode(metadata).encode("utf-8")


def test_zone_name_and_fold_are_kept():
    back = normalise({"t": datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris"))})["t"]
    assert (back.fold, back.tzinfo, back.utcoffset()) == (1, ZoneInfo("Europe/Paris"), timedelta(hours=1))


def test_unknown_zone_keeps_the_instant():
    text = encode({"t": datetime(2024, 5, 1, 8, tzinfo=SHANGHAI)}).replace("Asia/Shanghai", "Mars/Olympus")
    assert decode(text)["t"] == datetime(2024, 5, 1, 0, tzinfo=UTC)


def test_zone_whose_rules_changed_keeps_the_instant():
    text = encode({"t": datetime(2024, 5, 1, 8, tzinfo=SHANGHAI)}).replace("Asia/Shanghai", "Asia/Tokyo")
    assert decode(text)["t"] == datetime(2024, 5, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2, "x")), [1, [2, "x"]]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        ({10, 9, 8.5}, [8.5, 9, 10]),
        (frozenset({1, "a", None}), ["a", 1, None]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Name.A, "a"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("词"), "词"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(5), 5),
        (np.datetime64("2024-05-01T08:00:00.123456789"), datetime(2024, 5, 1, 8, 0, 0, 123456)),
        (np.datetime64("2024-05-01"), date(2024, 5, 1)),
        (np.timedelta64(1500, "ms"), timedelta(seconds=1.5)),
        (np.array(["2024-05-01"], dtype="datetime64[ns]"), [datetime(2024, 5, 1)]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
    ],
    ids=stable_id,
)
def test_conversion_is_as_documented(value, expected):
    back = normalise({"k": value})["k"]
    assert back == expected
    assert type(back) is type(expected)


def test_keys_that_are_string_enums_become_their_value():
    assert list(normalise({Name.A: [1]})) == ["a"]
    assert type(next(iter(normalise({Name.A: 1})))) is str


def test_order_of_keys_is_kept():
    assert list(normalise({"z": 1, "a": [1], "m": {"y": 1, "b": 2}})) == ["z", "a", "m"]
    assert list(normalise({"k": {"z": 1, "$t": 2, "a": 3}})["k"]) == ["z", "$t", "a"]


def test_encoding_leaves_the_argument_alone():
    metadata = {"tags": ["a", {"b": (1,)}]}
    encode(metadata)
    assert metadata == {"tags": ["a", {"b": (1,)}]}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"source": Path("a.md")}, ["'source'", "PosixPath", "str(value)"]),
        ({"a": {"b": [0, object()]}}, ["'a'['b'][1]", "object"]),
        ({1: "x"}, ["1", "not a string", "str(key)"]),
        ({"a": {None: 1}}, ["'a'[None]", "not a string"]),
        ({"c": 1j}, ["complex"]),
        ({"f": len}, ["builtin_function"]),
        ({"t": np.datetime64("NaT", "s")}, ["'t'"]),
        ({"t": np.datetime64("NaT", "D")}, ["'t'"]),
        ({"t": np.timedelta64("NaT", "ms")}, ["'t'"]),
        ({"t": without_unit(np.datetime64, "NaT")}, ["'t'"]),
        ({"t": without_unit(np.timedelta64, "NaT")}, ["'t'"]),
        ({"t": without_unit(np.timedelta64, 5)}, ["'t'"]),
        ({"t": np.array(["2024-05-01", "NaT"], dtype="datetime64[s]")}, ["'t'[1]"]),
        ({"t": np.timedelta64(1, "M")}, ["'t'"]),
        ({"t": np.datetime64("99999-01-01")}, ["'t'"]),
        ([("a", 1)], ["mapping", "list"]),
        (None, ["mapping", "NoneType"]),
    ],
    ids=stable_id,
)
def test_what_cannot_be_kept_is_refused_by_place_and_type(metadata, words):
    with pytest.raises(InvalidDocumentError) as caught:
        encode(metadata)
    assert all(word in str(caught.value) for word in words), caught.value


def test_value_whose_repr_fails_is_still_refused_clearly():
    class Bad:
        def __repr__(self):
            raise RuntimeError

    with pytest.raises(InvalidDocumentError, match="unprintable"):
        encode({"a": Bad()})


def test_cycles_are_refused():
    ring: list = []
    ring.append({"again": ring})
    with pytest.raises(InvalidDocumentError, match="contains itself"):
        encode({"a": ring})


def test_the_same_list_twice_is_no_cycle():
    shared = [1]
    assert normalise({"a": shared, "b": [shared, shared]}) == {"a": [1], "b": [[1], [1]]}


def nested(depth):
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_nesting_up_to_the_limit_comes_back_and_beyond_is_refused():
    assert normalise({"a": nested(MAX_DEPTH)})["a"] == nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(InvalidDocumentError, match="deeper"):
            encode({"a": nested(depth)})


def test_escaped_dicts_at_full_depth_come_back():
    value: dict = {}
    for _ in range(MAX_DEPTH):
        value = {"$t": value}
    assert normalise(value) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '{"a":{"$t":"what"}}',
        '{"a":{"$t":[]}}',
        '{"a":{"$t":"date","v":"x"}}',
        '{"a":{"$t":"bytes","v":"*"}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_damaged_text_is_a_store_error(text):
    with pytest.raises(StoreError):
        decode(text)


def test_fingerprint_ignores_order_of_keys_at_every_level():
    first = {"a": {"x": 1, "$t": 2}, "b": [{"p": 1, "q": 2}], "c": date(2024, 1, 1)}
    second = {"c": date(2024, 1, 1), "b": [{"q": 2, "p": 1}], "a": {"$t": 2, "x": 1}}
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


def test_fingerprint_distinguishes_types_and_values():
    values = [
        1,
        1.0,
        True,
        "1",
        None,
        [1],
        {"a": 1},
        Decimal(1),
        b"1",
        date(2024, 1, 1),
        datetime(2024, 1, 1),
        math.nan,
    ]
    assert len({fingerprint({"k": value}) for value in values}) == len(values)
    assert fingerprint({"k": [1, 2]}) != fingerprint({"k": [2, 1]})
    assert fingerprint({}) != fingerprint({"k": None})


def test_fingerprint_is_the_same_in_every_process():
    assert fingerprint({"a": 1, "b": ["x", None]}) == "baa786bb086b4cf2444b630f5d70e472"


texts = st.text(st.characters(), max_size=6)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=6)
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
keys = texts | st.sampled_from(["$t", "v", "zone", "a.b"])
metadatas = st.dictionaries(
    keys,
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@given(metadatas)
def test_round_trip_is_exact_for_any_metadata(metadata):
    text = encode(metadata)
    back = decode(text)
    assert back == metadata
    assert encode(back) == text
    text.encode("utf-8")


@given(metadatas)
def test_fingerprint_survives_the_round_trip(metadata):
    assert fingerprint(decode(encode(metadata))) == fingerprint(metadata)
    assert fingerprint(dict(reversed(metadata.items()))) == fingerprint(metadata)
