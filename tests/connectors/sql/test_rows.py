"""Rows as documents: keys that never meet, texts without inventions, values with their types."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from decimal import Decimal
from ipaddress import ip_address
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_agentrag import metadata as codec
from langchain_agentrag.connector import Gap, SourceItem
from langchain_agentrag.connectors.sql.rows import (
    RowOptions,
    RowReader,
    converter,
    key_text,
    to_metadata,
    unique_names,
    value_text,
)
from langchain_agentrag.errors import UsageError

TEXTS = st.text(alphabet=st.sampled_from("|\\'0123456789.-+aixnf用 户:\n"), max_size=6) | st.text(max_size=6)
SQLITE = TEXTS | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.binary(max_size=4)
ONE_TYPE = [
    TEXTS,
    st.integers(),
    st.binary(max_size=6),
    st.dates(),
    st.datetimes(),
    st.uuids(),
    st.booleans(),
    st.decimals(allow_nan=False, places=3),
    st.times(),
    st.lists(TEXTS, max_size=3),
]


def same(one: object, two: object) -> bool:
    """As a database compares the values of a key: 1 and "1" are two, 1.10 and 1.1 are one."""
    return isinstance(one, str | bytes) == isinstance(two, str | bytes) and one == two


@given(st.integers(1, 3).flatmap(lambda size: st.tuples(*[st.tuples(*[SQLITE] * size)] * 2)))
def test_different_keys_of_any_types_have_different_texts(keys):
    one, two = keys
    assume(not all(map(same, one, two)))
    assert key_text(one) != key_text(two)


@given(
    st.lists(st.sampled_from(ONE_TYPE), min_size=1, max_size=3).flatmap(
        lambda kinds: st.tuples(*[st.tuples(*kinds)] * 2)
    )
)
def test_different_keys_in_typed_columns_have_different_texts(keys):
    one, two = keys
    assume(one != two)
    typed = (True,) * len(one)
    assert key_text(one, single_typed=typed) != key_text(two, single_typed=typed)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a", "b|c"), ("a|b", "c")),
        (("a\\", "b"), ("a", "\\b")),
        ((1,), ("1",)),
        ((1.5,), ("1.5",)),
        ((b"a",), ("a",)),
        ((b"a",), ("\\x61",)),
        (("'1",), ("1",)),
        (("", "a"), ("a", "")),
    ],
)
def test_keys_that_look_alike_are_distinguished(one, two):
    assert key_text(one) != key_text(two)


def test_keys_read_as_one_would_write_them():
    assert key_text((7,)) == "7"
    assert key_text(("用户甲",)) == "用户甲"
    assert key_text(("#W2611340", 0)) == "#W2611340|0"
    assert key_text(("165",), single_typed=(True,)) == "165"
    assert key_text((Decimal("1.10"),)) == key_text((Decimal("1.1"),)) == "1.1"
    zoned = dt.datetime(2026, 3, 1, 8, tzinfo=dt.timezone(dt.timedelta(hours=8)))
    assert key_text((zoned,)) == key_text((zoned.astimezone(dt.UTC),))


def test_columns_of_one_name_are_distinguished():
    assert unique_names(["id", "id", "name", "id", "name"]) == ("id", "id_2", "name", "id_3", "name_2")
    assert unique_names(["id", "id", "id_2"]) == ("id", "id_3", "id_2")


@given(st.lists(st.sampled_from(["id", "id_2", "id_3", "名", ""]), max_size=8))
def test_told_apart_names_are_distinct_and_keep_the_first(names):
    unique = unique_names(names)
    assert len(set(unique)) == len(names)
    assert all(unique[names.index(name)] == name for name in names)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (Decimal("1.10"), "1.10"),
        (Decimal("1E+5"), "100000"),
        (dt.datetime(2026, 3, 1, 8, 30, tzinfo=dt.UTC), "2026-03-01 08:30:00+00:00"),
        (dt.date(2026, 3, 1), "2026-03-01"),
        (dt.time(8, 30), "08:30:00"),
        (b"\x00\xff", ""),
        (memoryview(b"\x00"), ""),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ([1, "二", None], "1, 二"),
        ({"颜色": "红", "n": Decimal("1.5")}, '{"颜色": "红", "n": "1.5"}'),
        ([{"a": 1}], '[{"a": 1}]'),
        ({1: {2: dt.date(2026, 1, 1)}}, '{"1": {"2": "2026-01-01"}}'),
    ],
)
def test_values_have_a_plain_text(value, text):
    assert value_text(to_metadata(value)) == text


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5) | st.decimals() | st.datetimes()
    | st.uuids() | st.timedeltas() | st.just(ip_address("10.0.0.1")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    | st.sets(st.integers() | st.text(max_size=2), max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(ANY)
def test_every_value_can_be_metadata_and_text(value):
    codec.encode({"value": to_metadata(value)})
    assert "None" not in value_text(to_metadata(value)) or "None" in repr(value)


@pytest.mark.parametrize(
    ("declared", "dialect", "stored", "value"),
    [
        ("DECIMAL(10, 2)", "sqlite", 1.1, Decimal("1.10")),
        ("NUMERIC(10, 2)", "sqlite", 3, Decimal("3.00")),
        ("NUMERIC(10, 2)", "sqlite", 1.125, Decimal("1.125")),
        ("NUMERIC(10, 2)", "sqlite", "n/a", "n/a"),
        ("DATE", "sqlite", "2026-03-01", dt.date(2026, 3, 1)),
        ("DATETIME", "sqlite", "2026-03-01 08:00:00", dt.datetime(2026, 3, 1, 8)),
        ("DATE", "sqlite", "soon", "soon"),
        ("BOOLEAN", "sqlite", 1, True),
        ("BOOLEAN", "sqlite", 7, 7),
        ("JSON", "sqlite", '{"a": 1}', {"a": 1}),
        ("JSON", "mysql", '{"a": 1}', {"a": 1}),
        ("TINYINT(1)", "mysql", 0, False),
    ],
)
def test_declared_types_that_a_driver_leaves_out_are_applied(declared, dialect, stored, value):
    converted = converter(declared, dialect)(stored)
    assert (type(converted), converted) == (type(value), value)


# -- readers ----------------------------------------------------------------------------------------------------------


def reader(*columns: str, **settings) -> RowReader:
    settings = {"name": "users", "label": "users", "key": (columns[0],)} | settings
    return RowReader(RowOptions(**settings), columns, [True] * len(columns), [None] * len(columns))


def only(rows: RowReader, *values: object):
    item = rows.item(values, 1)
    assert isinstance(item, SourceItem), item
    (document,) = item.load()
    return document


def test_the_default_text_names_the_row_and_its_columns():
    assert only(reader("id", "name", "note"), 7, "Ada", None).text == "users 7\nname: Ada"
    chinese = reader("编号", "姓名", "城市", name="用户", label="用户")
    assert only(chinese, 7, "张三", "北京").text == "用户 7\n姓名：张三\n城市：北京"
    assert only(reader("id", "name", labels={"name": "姓名"}), 7, "张三").text == "users 7\n姓名：张三"


def test_a_template_fills_in_columns_and_leaves_nothing_for_null():
    rows = reader("id", "first name", "price", "note", text="{first name} 付 {price:.1f} {{元}}{note}{id!r}")
    assert only(rows, "a", "Ada", Decimal("2.50"), None).text == "Ada 付 2.5 {元}'a'"


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_a_value_holds_is_never_a_template(one, two):
    assert only(reader("id", "a", "b", text="{a}|{b}"), 1, one, two).text == f"{one}|{two}"


@pytest.mark.parametrize("text", ["{nobody}", "{id.real}", "{id[0]}", "{}", "{0}"])
def test_a_template_reaches_columns_and_nothing_else(text):
    with pytest.raises(UsageError, match=r"names the column .* its columns are 'id', 'name'"):
        reader("id", "name", text=text)


@pytest.mark.parametrize("role", ["key", "metadata", "agent_column", "version_column"])
def test_a_column_that_is_not_there_is_named(role):
    value = "nobody" if role.endswith("column") else ("nobody",)
    with pytest.raises(UsageError, match=f"{role}.*'nobody'"):
        reader("id", "name", **{role: value})


def test_a_null_in_the_key_is_refused_and_a_million_of_them_are_counted():
    rows = reader("id", "line", key=("id", "line"))
    gaps = [gap for number in range(1_000) if (gap := rows.item(("a", None), number)) is not None]
    assert all(isinstance(gap, Gap) and not gap.skipped and "line is NULL" in gap.reason for gap in gaps)
    assert len(gaps) == 100
    assert [gap.key for gap in rows.gap_summaries()] == ["users: 900 more rows"]


def test_metadata_holds_all_columns_but_long_texts_unless_they_are_named():
    long = "长" * 2_000
    metadata = only(reader("id", "body", "n"), 1, long, 2).metadata
    assert metadata == {"type": "row", "table": "users", "id": 1, "n": 2}
    assert only(reader("id", "body", "n", metadata=("body",)), 1, long, 2).metadata["body"] == long


def test_a_column_called_type_is_the_row_s_own():
    assert only(reader("id", "type"), 1, "bug").metadata["type"] == "bug"


def test_a_column_called_agent_id_is_never_taken_for_granted():
    with pytest.raises(UsageError, match="agent_column='agent_id'"):
        reader("id", "agent_id")
    document = only(reader("id", "agent_id", agent_column="agent_id"), 1, "lina")
    assert (document.agent_id, "agent_id" in document.metadata) == ("lina", False)
    assert only(reader("id", "agent_id", metadata=("id",)), 1, "lina").agent_id is None


@pytest.mark.parametrize(("value", "owner"), [("Lina ", "Lina "), (7, "7"), (UUID(int=1), str(UUID(int=1)))])
def test_an_agent_is_taken_exactly(value, owner):
    assert only(reader("id", "who", agent_column="who"), 1, value).agent_id == owner


@pytest.mark.parametrize("value", ["", 1.5, True, b"lina", dt.date(2026, 1, 1)])
def test_what_is_no_agent_is_refused(value):
    gap = reader("id", "who", agent_column="who", no_agent="shared").item((1, value), 1)
    assert isinstance(gap, Gap)
    assert not gap.skipped


def test_rows_without_an_agent_are_shared_only_with_the_option():
    refused = reader("id", "who", agent_column="who").item((1, None), 1)
    assert isinstance(refused, Gap)
    assert (refused.key, refused.skipped) == ("users:1", False)
    left_out = reader("id", "who", agent_column="who", no_agent="skip").item((1, None), 1)
    assert isinstance(left_out, Gap)
    assert left_out.skipped
    assert only(reader("id", "who", agent_column="who", no_agent="shared"), 1, None).agent_id is None


def test_a_version_column_speaks_for_the_row_except_for_its_owner():
    rows = reader("id", "name", "v", "who", version_column="v", agent_column="who")
    versions = [
        rows.item(row, 1).version for row in [(1, "a", 1, "x"), (1, "b", 1, "x"), (1, "b", 2, "x"), (1, "b", 1, "y")]
    ]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_another_template_or_column_makes_another_version():
    row = (1, "a")
    versions = {
        reader("id", "name", **settings).item(row, 1).version
        for settings in ({}, {"text": "{name}"}, {"text": "{id}"}, {"metadata": ("id",)}, {"labels": {"name": "N"}})
    }
    assert len(versions) == 5
    assert None not in versions
    assert reader("id", "name", text=lambda _: "x").item(row, 1).version is None


def test_sqlite_keeps_what_the_tests_of_keys_assume():
    """1 and "1" are two rows where a column has no declared type, and one where it has."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE a (k PRIMARY KEY)")
        connection.executemany("INSERT INTO a VALUES (?)", [(1,), ("1",)])
        connection.execute("CREATE TABLE b (k TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO b VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("INSERT INTO b VALUES ('1')")
    connection.close()


def test_metadata_of_a_row_is_json_after_the_codec():
    document = only(reader("id", "d", "b"), 1, Decimal("1.10"), b"\x00\xff")
    assert json.loads(codec.encode(document.metadata))["d"] == {"$t": "decimal", "v": "1.10"}
