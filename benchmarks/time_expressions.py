"""Time expressions of questions, read by our rules and by the libraries that are installed: right, wrong, missed, ms.

python -m benchmarks.time_expressions                        # our rules
python -m benchmarks.time_expressions --kinds                # by kind of expression
python -m benchmarks.time_expressions --failures --part visible  # each failure of the part that is not held out

The table is `tests/query/time_expressions.jsonl`; a third of it is held out by a random split. A library is compared
if it is installed: dateparser, parsedatetime, recognizers-text-suite (with emoji<2), jionlp, timefhuman, ctparse,
datefinder, python-dateutil. A reader gets the whole question and the present in its zone. What it finds first becomes a
range: a point is the day, week, month or year that the library says it has the accuracy of, a duration is nothing.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import io
import json
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

TABLE = Path(__file__).parents[1] / "tests" / "query" / "time_expressions.jsonl"

Bounds = tuple[datetime | None, datetime | None]
Reader = Callable[[str, datetime, str], Bounds | None]
"""Question, the present, "en" or "zh": the range in local time, or None."""


@dataclass(frozen=True, slots=True)
class Row:
    """A question of the table.

    Attributes:
        question: The question.
        language: "en" or "zh".
        kind: What kind of expression it has; "negative" for none.
        now: The present.
        accepted: Each range that is a legitimate reading, in local time; empty if the question names no time.
        tolerance: By how much a bound may differ, where the language is not exact.
        held_out: Whether the row is in the third that rules are not fitted to.
    """

    question: str
    language: str
    kind: str
    now: datetime
    accepted: tuple[Bounds, ...]
    tolerance: timedelta
    held_out: bool

    def judge(self, found: Bounds | None) -> str:
        """Return "right", "wrong" or "missed"; no end and an end at the present are the same."""
        if found is None:
            return "missed" if self.accepted else "right"
        for after, before in self.accepted:
            if self._is_same(found[0], after) and self._is_same(self._end(found[1]), self._end(before)):
                return "right"
        return "wrong"

    def _end(self, bound: datetime | None) -> datetime:
        return self.now.replace(tzinfo=None) if bound is None else bound.replace(tzinfo=None)

    def _is_same(self, bound: datetime | None, wanted: datetime | None) -> bool:
        if bound is None or wanted is None:
            return bound is wanted
        return abs(bound.replace(tzinfo=None) - wanted) <= max(self.tolerance, timedelta(minutes=1))


def read_table(path: Path = TABLE) -> list[Row]:
    """Return the rows of the table."""

    def moment(text: str | None) -> datetime | None:
        return None if text is None else datetime.fromisoformat(text)

    return [
        Row(
            question=row["question"],
            language=row["language"],
            kind=row["kind"],
            now=datetime.fromisoformat(row["now"]).replace(tzinfo=ZoneInfo(row["zone"])),
            accepted=tuple((moment(after), moment(before)) for after, before in row["accepted"]),
            tolerance=timedelta(hours=row.get("tolerance_hours", 0)),
            held_out=row["held_out"],
        )
        for row in map(json.loads, path.read_text("utf-8").splitlines())
    ]


# -- readers ----------------------------------------------------------------------------------------------------------


def _our_rules() -> Reader:
    from langchain_agentrag.query.time_expressions import time_range

    def read(question: str, now: datetime, _: str) -> Bounds | None:
        found = time_range(question, now)
        return None if found is None else (found.after, found.before)

    return read


def _period(point: datetime, unit: str) -> Bounds:
    """Return the calendar day, week, month or year of a point; of any other unit the hour."""
    day = point.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "day":
        return day, day + timedelta(days=1)
    if unit == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=7)
    if unit == "month":
        first = day.replace(day=1)
        return first, first + timedelta(days=calendar.monthrange(first.year, first.month)[1])
    if unit == "year":
        return day.replace(month=1, day=1), day.replace(year=day.year + 1, month=1, day=1)
    hour = point.replace(minute=0, second=0, microsecond=0)
    return hour, hour + timedelta(hours=1)


def _dateparser() -> Reader:
    from dateparser.date import DateDataParser
    from dateparser.search import search_dates

    def read(question: str, now: datetime, language: str) -> Bounds | None:
        settings = {
            "RELATIVE_BASE": now.replace(tzinfo=None),
            "PREFER_DATES_FROM": "past",
            "RETURN_TIME_AS_PERIOD": True,
        }
        found = search_dates(question, languages=[language], settings=settings)
        if not found:
            return None
        words, point = found[0]
        parsed = DateDataParser(languages=[language], settings=settings).get_date_data(words)
        return _period(parsed.date_obj or point, parsed.period if parsed.date_obj else "day")

    return read


def _parsedatetime() -> Reader:
    import parsedatetime

    reader = parsedatetime.Calendar(version=parsedatetime.VERSION_CONTEXT_STYLE)
    units = (
        ("ACU_HOUR", "hour"),
        ("ACU_DAY", "day"),
        ("ACU_WEEK", "week"),
        ("ACU_MONTH", "month"),
        ("ACU_YEAR", "year"),
    )

    def read(question: str, now: datetime, language: str) -> Bounds | None:
        local = now.replace(tzinfo=None)
        found = reader.nlp(question, local) if language == "en" else None
        if not found:
            return None
        point, context = reader.parseDT(found[0][4], local)
        unit = next(
            (unit for flag, unit in units if context.accuracy & getattr(parsedatetime.pdtContext, flag)), "hour"
        )
        return _period(point, unit)

    return read


def _recognizers() -> Reader:
    from recognizers_date_time import Culture, DateTimeRecognizer

    models = {
        "en": DateTimeRecognizer(Culture.English).get_datetime_model(),
        "zh": DateTimeRecognizer(Culture.Chinese).get_datetime_model(),
    }

    def bounds(value: dict[str, str]) -> Bounds | None:
        kind = value["type"]
        if kind in {"date", "datetime"} and "value" in value:
            return _period(datetime.fromisoformat(value["value"]), "day" if kind == "date" else "hour")
        if kind in {"daterange", "datetimerange"} and ("start" in value or "end" in value):
            start, end = (datetime.fromisoformat(value[key]) if key in value else None for key in ("start", "end"))
            return start, end
        return None

    def read(question: str, now: datetime, language: str) -> Bounds | None:
        local = now.replace(tzinfo=None)
        for result in models[language].parse(question, local):
            ranges = [found for value in (result.resolution or {}).get("values", ()) if (found := bounds(value))]
            begun = [one for one in ranges if (one[0] or one[1] or local) <= local]
            if ranges:  # the latest that has begun
                return begun[-1] if begun else ranges[0]
        return None

    return read


def _jionlp() -> Reader:
    with contextlib.redirect_stdout(io.StringIO()):
        import jionlp

    def moment(text: str) -> datetime | None:
        return None if text in {"inf", "-inf"} else datetime.fromisoformat(text)

    def read(question: str, now: datetime, language: str) -> Bounds | None:
        if language != "zh":
            return None
        base = {name: getattr(now, name) for name in ("year", "month", "day", "hour", "minute", "second")}
        for found in jionlp.ner.extract_time(question, time_base=base):
            if found["type"] in {"time_point", "time_span"}:
                start, end = map(moment, found["detail"]["time"])
                return start, end + timedelta(seconds=1) if end is not None else None
        return None

    return read


def _timefhuman() -> Reader:
    from timefhuman import Direction, tfhConfig, timefhuman

    def read(question: str, now: datetime, language: str) -> Bounds | None:
        if language != "en":
            return None
        config = tfhConfig(now=now.replace(tzinfo=None), direction=Direction.previous)
        found = timefhuman(question, config)
        first = found[0] if isinstance(found, list) and found else found
        if isinstance(first, tuple) and all(isinstance(one, datetime) for one in first):
            return first[0], _point(first[1])[1]
        return _point(first) if isinstance(first, datetime) else None

    def _point(point: datetime) -> Bounds:
        return _period(point, "hour" if point.hour or point.minute else "day")

    return read


def _ctparse() -> Reader:
    from ctparse import ctparse
    from ctparse.types import Interval, Time

    def bounds(found: Time) -> Bounds | None:
        if found.year is None or found.month is None or found.day is None:
            return None
        return found.start.dt, found.end.dt + timedelta(minutes=1)

    def read(question: str, now: datetime, language: str) -> Bounds | None:
        found = ctparse(question, ts=now.replace(tzinfo=None), timeout=5) if language == "en" else None
        value = found.resolution if found else None
        if isinstance(value, Time):
            return bounds(value)
        if isinstance(value, Interval):
            first, last = (bounds(end) if end is not None else None for end in (value.t_from, value.t_to))
            return (first and first[0], last and last[1]) if first or last else None
        return None

    return read


def _datefinder() -> Reader:
    import datefinder

    def read(question: str, now: datetime, _: str) -> Bounds | None:
        base = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        point = next(iter(datefinder.find_dates(question, base_date=base)), None)
        return None if point is None else _period(point.replace(tzinfo=None), "day")

    return read


def _dateutil() -> Reader:
    from dateutil.parser import parse

    def read(question: str, now: datetime, _: str) -> Bounds | None:
        default = now.replace(hour=0, minute=0, second=0, tzinfo=None)
        return _period(parse(question, fuzzy=True, default=default).replace(tzinfo=None), "day")

    return read


READERS: dict[str, Callable[[], Reader]] = {
    "langchain-agentrag": _our_rules,
    "dateparser": _dateparser,
    "parsedatetime": _parsedatetime,
    "recognizers-text-suite": _recognizers,
    "jionlp": _jionlp,
    "timefhuman": _timefhuman,
    "ctparse": _ctparse,
    "datefinder": _datefinder,
    "python-dateutil": _dateutil,
}


# -- report -----------------------------------------------------------------------------------------------------------


def _attempt(reader: Reader, row: Row) -> Bounds | None:
    """Return what a reader finds; an exception is a miss."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return reader(row.question, row.now, row.language)
        except Exception:  # noqa: BLE001  (libraries raise anything on what they do not expect)
            return None


def _size(name: str, seen: set[str] | None = None) -> float:
    """Return the megabytes of a distribution and of what it requires."""
    seen = set() if seen is None else seen
    if name.lower() in seen:
        return 0.0
    seen.add(name.lower())
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return 0.0
    files = [Path(str(file.locate())) for file in installed.files or ()]
    own = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    required = [text.split(";")[0] for text in installed.requires or () if "extra ==" not in text]
    names = ["".join(char if char.isalnum() or char in "-_." else " " for char in text).split()[0] for text in required]
    return own + sum(_size(one, seen) for one in names)


def _print_kinds(rows: list[Row], verdicts: dict[str, list[str]]) -> None:
    print("\n| kind | rows | " + " | ".join(verdicts) + " |\n|---|---|" + "---|" * len(verdicts))
    for key in sorted({(row.language, row.kind) for row in rows}):
        places = [place for place, row in enumerate(rows) if (row.language, row.kind) == key]
        right = [sum(found[place] == "right" for place in places) for found in verdicts.values()]
        print(f"| {' '.join(key)} | {len(places)} | " + " | ".join(map(str, right)) + " |")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["all", "visible", "held-out"], default="all")
    parser.add_argument("--readers", nargs="*", choices=list(READERS), default=list(READERS))
    parser.add_argument("--kinds", action="store_true", help="right answers by kind of expression")
    parser.add_argument("--failures", action="store_true", help="each row that a reader has not right")
    arguments = parser.parse_args()
    rows = [row for row in read_table() if arguments.part in {"all", "held-out" if row.held_out else "visible"}]
    verdicts: dict[str, list[str]] = {}
    counts_of = "right | wrong | missed | none right"
    print(f"{len(rows)} questions\n\n| reader | en {counts_of} | zh {counts_of} | ms p50 | ms max | MB |")
    print("|---" * 12 + "|")
    for name in arguments.readers:
        try:
            reader = READERS[name]()
        except ImportError:
            continue
        _attempt(reader, rows[0])  # loads its tables
        taken: list[float] = []
        found: list[Any] = []
        for row in rows:
            started = time.perf_counter()
            found.append(_attempt(reader, row))
            taken.append(1_000 * (time.perf_counter() - started))
        verdicts[name] = [row.judge(one) for row, one in zip(rows, found, strict=True)]
        cells = []
        for language in ("en", "zh"):
            counts = Counter(
                (verdict, bool(row.accepted))
                for row, verdict in zip(rows, verdicts[name], strict=True)
                if row.language == language
            )
            cells += [counts[verdict, True] for verdict in ("right", "wrong", "missed")] + [counts["right", False]]
        size = 0.0 if name == "langchain-agentrag" else _size(name)
        print(f"| {name} | " + " | ".join(map(str, cells))
              + f" | {statistics.median(taken):.1f} | {max(taken):.0f} | {size:.0f} |", flush=True)  # fmt: skip
        if arguments.failures:
            for row, one, verdict in zip(rows, found, verdicts[name], strict=True):
                if verdict != "right":
                    print(f"    {verdict} {row.kind} {row.question!r} at {row.now:%F %a %H:%M}: {_show(one)} "
                          f"not {' or '.join(map(_show, row.accepted)) or None}")  # fmt: skip
    if arguments.kinds:
        _print_kinds(rows, verdicts)


def _show(bounds: Bounds | None) -> str:
    if bounds is None:
        return "None"
    return "..".join("" if bound is None else f"{bound:%FT%H:%M}".removesuffix("T00:00") for bound in bounds)


if __name__ == "__main__":
    main()
