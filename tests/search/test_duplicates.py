"""Near-duplicates: what counts as the same in both languages, and what never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.postprocess import NEAR_DUPLICATE, group_near_duplicates, jaccard

LONG_ZH = "液压站压力不足时，应当依次检查油位、滤芯、油温和溢流阀，确认无误后再重新启动油泵并记录压力值。"
LONG_EN = "When the hydraulic pressure is low, check the oil level, the filter, the temperature and the relief valve."

SAME = [
    ("报警表示刀库卡住。", "报警表示刀库卡住！"),
    ("Alarm: the tool arm is stuck.", "ALARM — the tool arm  is\nstuck"),
    ("ＡＢＣ 全角文字与空格", "abc全角文字与空格"),
    (LONG_ZH, LONG_ZH.replace("应当", "应该")),
    (LONG_EN, LONG_EN.replace("hydraulic", "hydraulics")),
    (LONG_ZH + LONG_EN, LONG_ZH + " " + LONG_EN),
]
DIFFERENT = [
    ("报警 E1102 表示刀库卡住。", "报警 E1103 表示刀库卡住。"),
    (LONG_ZH + "限值为 30 MPa。", LONG_ZH + "限值为 35 MPa。"),
    (LONG_EN + " It is allowed.", LONG_EN + " It is not allowed."),
    (
        "本规定适用于全体外包人员和正式员工，自发布之日起执行。",
        "本规定不适用于全体外包人员和正式员工，自发布之日起执行。",
    ),
    (
        "You can open the guard while the spindle turns slowly.",
        "You can't open the guard while the spindle turns slowly.",
    ),
    (LONG_ZH, LONG_EN),
    ("退款", "退货"),
    ("", "文字"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_these_are_the_same(one: str, other: str):
    assert group_near_duplicates([one, other]) == [[0, 1]]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_these_are_not(one: str, other: str):
    assert group_near_duplicates([one, other]) == [[0], [1]]
    assert group_near_duplicates([other, one]) == [[0], [1]]


texts = st.lists(st.text(st.sampled_from("ab 不1。x油泵"), max_size=12), max_size=8)


@given(texts, st.floats(0.1, 1))
def test_every_text_is_in_one_group_that_begins_with_its_first(passages: list[str], least: float):
    groups = group_near_duplicates(passages, least)
    assert sorted(place for group in groups for place in group) == list(range(len(passages)))
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    assert all(group == sorted(group) for group in groups)


@given(texts)
def test_equal_texts_are_always_together_and_stricter_never_joins_more(passages: list[str]):
    strict, loose = group_near_duplicates(passages, 1.0), group_near_duplicates(passages, 0.3)
    group_of = {place: number for number, group in enumerate(strict) for place in group}
    for one, text in enumerate(passages):
        for other in range(one):
            if passages[other] == text:
                assert group_of[one] == group_of[other]
    assert len(loose) <= len(strict)


def test_a_chain_of_small_changes_leads_nowhere():
    words = [f"wort{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    chain = [" ".join([*words[step:], *words[:step][::-1]]) for step in range(0, 26, 2)]
    for group in group_near_duplicates(chain, NEAR_DUPLICATE):
        for place in group:
            assert group_near_duplicates([chain[group[0]], chain[place]], NEAR_DUPLICATE) == [[0, 1]]


def test_resemblance_is_jaccard():
    assert jaccard(frozenset("abc"), frozenset("bcd")) == 0.5
    assert jaccard(frozenset(), frozenset()) == 1.0
