"""Every public function that takes text from outside is linear in it, n log n at worst, or cuts it with a note.

Here a part of the table, at small lengths; all of it by `python -m tests.growth`.
"""

from __future__ import annotations

import fnmatch
import logging
import warnings

import pytest

import langchain_agentrag
from langchain_agentrag.query.time_expressions import MAX_QUESTION
from langchain_agentrag.search.options import MAX_QUERY
from tests.growth.discovery import text_functions
from tests.growth.functions import CALLS, EXEMPT, TEXT_PACKAGES, _indexer
from tests.growth.measure import growth_of, refused_or_done
from tests.growth.patterns import DAILY, PATTERNS

DAILY_LENGTH = 6_000
SLOW = ("indexer.*", "query.router.*", "query.rules.*", "search.followup.c*", "agent.tool_replies.*", "agent.citation*", "cli.*",
        "agent.prompt_injection.PassageSafety.name", "text.chunking.*", "agent.sufficiency.*")  # fmt: skip
"""Functions of which the daily tests try every fourth pattern only."""


def test_every_public_function_with_a_text_is_measured_or_exempt_with_a_reason():
    unknown = {
        name
        for name in text_functions() - CALLS.keys()
        if not any(
            pattern == name or (fnmatch.fnmatchcase(name, pattern) and not name.startswith(TEXT_PACKAGES))
            for pattern in EXEMPT
        )
    }
    assert not unknown, f"add to tests/growth/functions.py: {sorted(unknown)}"
    assert all(EXEMPT.values())


def test_every_measured_or_exempt_function_exists():
    for name in CALLS:
        value: object = langchain_agentrag
        for part in name.split("."):
            value = getattr(value, part)  # functions.py has imported every module
        assert callable(value)
    names = text_functions()
    unused = [pattern for pattern in EXEMPT if not fnmatch.filter(names, pattern)]
    assert not unused


@pytest.mark.parametrize("name", CALLS)
def test_time_grows_with_the_length_of_the_text(name):
    slow = any(fnmatch.fnmatchcase(name, pattern) for pattern in SLOW)
    faults = _faults(name, DAILY[::4] if slow else DAILY, DAILY_LENGTH)
    assert not faults, "\n".join(faults)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CALLS)
def test_time_grows_with_the_length_of_any_text(name):
    faults = _faults(name, PATTERNS, 16_000)
    assert not faults, "\n".join(faults)


def _faults(name, patterns, length):
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            growths = {
                (way, pattern): growth_of(refused_or_done(call), PATTERNS[pattern], length)
                for way, call in CALLS[name].items()
                for pattern in patterns
            }
    finally:
        logging.disable(logging.NOTSET)
    return [
        f"{name} ({way}) on {pattern}: {growth.fault}" for (way, pattern), growth in growths.items() if growth.fault
    ]


# -- queries are cut, and the result says so --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
@pytest.mark.parametrize(
    "query",
    [
        " ".join(f"pump{number}" for number in range(100_000)),
        "".join(chr(0x4E00 + number % 20_000) for number in range(400_000)),
        "泵" * 400_000,
    ],
    ids=["distinct terms", "Han characters", "one character"],
)
async def test_a_long_query_is_cut_and_the_result_says_so(query, mode):
    hits = _indexer().search(query, 2, mode=mode)
    note = f"query: only the first {MAX_QUERY:,} of its {len(query):,} characters were searched"
    assert note in hits.degraded
    assert len(hits.query) == MAX_QUERY
    cut = _indexer().search(query[:MAX_QUERY], 2, mode=mode)
    assert [(hit.doc_id, hit.score) for hit in hits] == [(hit.doc_id, hit.score) for hit in cut]
    assert not cut.degraded
    assert (await _indexer().asearch(query, 2, mode=mode)).degraded == hits.degraded


def test_white_space_around_a_query_does_not_count():
    padded = " " * 500_000 + "pump" + "\n" * 500_000
    hits, plain = _indexer().search(padded, 2), _indexer().search("pump", 2)
    assert not hits.degraded
    assert [(hit.doc_id, hit.score) for hit in hits] == [(hit.doc_id, hit.score) for hit in plain]


def test_a_long_question_is_routed_by_its_beginning_and_the_reasons_say_so():
    from tests.growth.functions import _NOW, _ROUTER

    route = _ROUTER.route("pump last week " + "x " * 100_000, now=_NOW)
    assert route.after is not None
    assert any(f"only the first {MAX_QUESTION:,}" in reason for reason in route.reasons)
    assert len(route.query) > MAX_QUESTION
    assert not any("only the first" in reason for reason in _ROUTER.route("pump last week", now=_NOW).reasons)
