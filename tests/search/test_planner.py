"""Plans of a search: exact where it is cheap, approximate where it is not, always enough candidates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.engine import SELECTED_LIMIT, candidates_wanted, keyword_fetch, plan_vectors

COUNTS = st.integers(1, 10**7)


@given(st.integers(1, 10**9), COUNTS)
def test_candidates_are_enough_for_k_and_no_more_than_there_are(k: int, available: int):
    wanted = candidates_wanted(k, available)
    assert min(k, available) <= wanted <= available


@given(COUNTS, st.booleans(), st.integers(0, 10**5), st.none() | st.integers(0, 10**7), st.integers(1, 10**4))
def test_a_plan_fits_the_partition(chunks: int, in_chroma: bool, exact_limit: int, matching: int | None, wanted: int):
    matching = None if matching is None else min(matching, chunks)
    plan = plan_vectors(chunks=chunks, in_chroma=in_chroma, exact_limit=exact_limit, matching=matching, wanted=wanted)
    if not in_chroma or chunks <= exact_limit:
        assert plan.how == "exact"
    elif plan.how == "approximate":
        assert plan.fetch >= wanted
        assert matching is None or matching > SELECTED_LIMIT
    else:
        assert plan.how == "selected"
        assert matching is not None


@given(COUNTS, COUNTS, st.integers(1, 10**4))
def test_keywords_are_filtered_by_the_index_when_few_rows_are_kept(chunks: int, matching: int, wanted: int):
    matching = min(matching, chunks)
    fetch = keyword_fetch(chunks=chunks, matching=matching, wanted=wanted)
    if fetch is None:
        assert matching * 5 < chunks
    else:
        assert wanted <= fetch <= wanted * 7


def test_a_filter_that_keeps_nothing_asks_no_approximate_index():
    assert plan_vectors(chunks=10**6, in_chroma=True, exact_limit=0, matching=0, wanted=50).how == "selected"
    assert keyword_fetch(chunks=10**6, matching=0, wanted=50) is None
