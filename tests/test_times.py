"""One rule for every time: what has no zone is UTC, on every machine."""

from __future__ import annotations

import datetime as dt
import os
import time
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError
from langchain_agentrag.filters import match
from langchain_agentrag.times import check_duration, check_time, document_expiry, document_time, parse_time

UTC = dt.UTC
MAY_DAY = dt.datetime(2024, 5, 1, tzinfo=UTC)
SECONDS = int(MAY_DAY.timestamp())


@pytest.mark.parametrize(
    "written",
    [
        MAY_DAY,
        dt.datetime(2024, 5, 1),
        dt.datetime(2024, 5, 1, 8, tzinfo=ZoneInfo("Asia/Shanghai")),
        dt.date(2024, 5, 1),
        "2024-05-01",
        "20240501",
        "2024-05-01T00:00:00Z",
        "2024-05-01 08:00:00+08:00",
        "2024-05-01 08:00:00+08",
        "2024-05-01 00:00:00 UTC",
        "Wed, 01 May 2024 00:00:00 GMT",
        "Wed, 1 May 2024 08:00:00 +0800",
        f"{SECONDS}.000000",
        "2024-05",
        "2024/5/1",
        "2024/05/01 00:00",
        "2024年5月1日",
        "2024年5月1日 0点00分",
        "2024年5月",
        SECONDS,
        float(SECONDS),
        Decimal(SECONDS),
        SECONDS * 1_000,
        SECONDS * 1_000_000,
        SECONDS * 1_000_000_000,
        str(SECONDS),
        str(SECONDS * 1_000),
    ],
)
def test_one_moment_however_it_is_written(written: object) -> None:
    assert parse_time(written) == MAY_DAY
    assert parse_time(written).tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2024,
        -5,
        "3",
        "2024",
        "soon",
        "",
        "2024-13-01",
        "2024年13月",
        "Wed, 41 May 2024 00:00:00 GMT",
        "notes of 1 May 2024 08:00",
        "10.20.30.40",
        "123456789.5",
        [1],
        {},
        b"2024-05-01",
        object(),
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        10**400,
        dt.time(8),
        dt.timedelta(days=1),
    ],
)
def test_what_is_no_time_is_none(value: object) -> None:
    assert parse_time(value) is None


@given(
    st.one_of(
        st.datetimes(timezones=st.none() | st.timezones()), st.dates(), st.text(max_size=30), st.floats(), st.integers()
    )
)
def test_a_moment_is_in_utc_or_none_and_nothing_raises(value: object) -> None:
    parsed = parse_time(value)
    assert parsed is None or (isinstance(parsed, dt.datetime) and parsed.tzinfo is UTC)


@given(st.datetimes(timezones=st.none() | st.timezones()), st.datetimes(timezones=st.none() | st.timezones()))
def test_moments_are_ordered_as_filters_order_them(one: dt.datetime, other: dt.datetime) -> None:
    near_the_end = {one.year, other.year} & {dt.MINYEAR, dt.MAXYEAR}
    if not near_the_end:  # within a day of the calendar's ends a moment is the end itself
        assert match({"t": {"$lt": other}}, {"t": one}) == (parse_time(one) < parse_time(other))


def test_the_repeated_hour_of_a_clock_change_is_distinguished() -> None:
    zone = ZoneInfo("America/New_York")
    first, second = (dt.datetime(2024, 11, 3, 1, 30, tzinfo=zone, fold=fold) for fold in (0, 1))
    assert parse_time(second) - parse_time(first) == dt.timedelta(hours=1)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_the_machine_s_zone_changes_nothing(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert parse_time(dt.datetime(2024, 5, 1)) == parse_time("2024-05-01") == parse_time(SECONDS) == MAY_DAY
        assert check_time("after", "36h", MAY_DAY) == dt.datetime(2024, 4, 29, 12, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        assert os.environ.get("TZ") != "America/New_York"
        time.tzset()


def test_the_first_key_that_holds_a_time_is_the_document_s_time() -> None:
    day = dt.timedelta(days=1)
    assert document_time({"mtime": MAY_DAY, "created_at": MAY_DAY - day}) == MAY_DAY - day
    assert document_time({"time": "soon", "timestamp": None, "mtime": MAY_DAY}) == MAY_DAY
    assert document_time({"time": 90, "when": MAY_DAY}) is None  # a duration, and another key


def test_an_expiry_that_is_no_time_is_refused() -> None:
    assert document_expiry({}) is document_expiry({"expires_at": None}) is None
    assert document_expiry({"expires_at": "2024-05-01"}) == MAY_DAY
    with pytest.raises(InvalidDocumentError, match=r"expires_at.*'never'"):
        document_expiry({"expires_at": "never"})


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90min", 1.5),
        ("36h", 36),
        ("7d", 168),
        ("2w", 336),
        ("7天", 168),
        ("3 小时", 3),
        ("1800s", 0.5),
        ("36 Hours", 36),
        ("2 weeks", 336),
        ("90分钟", 1.5),
        ("3600秒", 1),
        ("2个星期", 336),
    ],
)
def test_how_long_ago(text: str, ago: float) -> None:
    assert check_time("after", text, MAY_DAY) == MAY_DAY - dt.timedelta(hours=ago)
    with pytest.raises(InvalidQueryError, match=r"after=.*is not a time"):
        check_time("after", text)


def test_a_span_is_positive() -> None:
    assert check_duration("ttl", 60) == dt.timedelta(minutes=1)
    assert check_duration("ttl", "7d") == check_duration("ttl", "7天") == dt.timedelta(days=7)
    for bad in (0, -1, dt.timedelta(0), "7", "0d", "-7d", True, None, float("nan"), float("inf")):
        with pytest.raises(InvalidQueryError, match="ttl"):
            check_duration("ttl", bad)
