"""Citations of an answer: whether the source exists, was read and supports the statement; unknown is always reported."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_agentrag.agent.citation_support import (
    contains_quotation,
    find_identifiers,
    find_quantities,
    fold_text,
    judge_by_rules,
)
from langchain_agentrag.agent.citations import CitedSource, check_citations, model_judge
from langchain_agentrag.errors import UsageError
from langchain_agentrag.types import Hit, Passage, short_id_of

PUMP = (
    "三号泵的滤网每 900 小时更换一次，不得用压缩空气吹洗。报警 E1102 表示主轴过热，处理方法是清洁滤网。"
    "保养费用为一千二百元，由设备科承担。"
)
LEASE = (
    "The lease runs for three years and ends on 31 May 2027. Tenants may not keep dogs. The deposit is $1,500, which is "
    "returned within 30 days. Heating is included in the rent."
)


def hit(doc_id: str, text: str, chunk_id: int = 0) -> Hit:
    return Hit(doc_id, chunk_id, text, 0.9, start=10, end=10 + len(text))


SOURCES = [hit("泵.md", PUMP), hit("lease.pdf", LEASE, 4)]


@pytest.mark.parametrize(
    ("statement", "passage", "verdict"),
    [
        # numbers in any form
        ("三号泵的滤网每九百小时更换一次。", PUMP, "supported"),
        ("三号泵的滤网每９００小时更换一次。", PUMP, "supported"),
        ("三号泵的滤网每 800 小时更换一次。", PUMP, "unsupported"),
        ("三号泵的滤网每 900 分钟更换一次。", PUMP, "unsupported"),
        ("保养费用为 1200 元，由设备科承担。", PUMP, "supported"),
        ("保养费用为 1,200 元。", PUMP, "supported"),
        ("保养费用为两千元，由设备科承担。", PUMP, "unsupported"),
        ("The lease runs for 3 years.", LEASE, "supported"),
        ("The lease runs for four years and ends in 2027.", LEASE, "unsupported"),
        ("The deposit is 1500 dollars, returned within thirty days.", LEASE, "supported"),
        ("The deposit is $1,600.", LEASE, "unsupported"),
        ("The deposit is returned within 30 years.", LEASE, "unsupported"),
        # codes
        ("报警 E1102 表示主轴过热。", PUMP, "supported"),
        ("报警 E1120 表示主轴过热。", PUMP, "unsupported"),
        ("报警 e1102 表示主轴过热。", PUMP, "supported"),
        # negation
        ("三号泵的滤网得用压缩空气吹洗。", PUMP, "contradicted"),
        ("三号泵的滤网不得用压缩空气吹洗。", PUMP, "supported"),
        ("报警 E1102 不表示主轴过热。", PUMP, "contradicted"),
        ("Tenants may keep dogs.", LEASE, "contradicted"),
        ("Tenants may not keep dogs.", LEASE, "supported"),
        ("Heating is not included in the rent.", LEASE, "contradicted"),
        ("Heating isn’t included in the rent.", LEASE, "contradicted"),
        # quotations
        ("手册写道：“不得用压缩空气吹洗”。", PUMP, "supported"),
        ("手册写道：“可以用压缩空气吹洗”。", PUMP, "unsupported"),
        ('The lease says "Heating is included in the rent".', LEASE, "supported"),
        ('The lease says "Water is included in the rent".', LEASE, "unsupported"),
        ("手冊寫道：「不得用壓縮空氣吹洗」。", PUMP, "supported"),
        # what rules cannot tell
        ("滤网需要定期维护，否则会有麻烦。", PUMP, "unknown"),
        ("The landlord pays for warm radiators.", LEASE, "unknown"),
        ("主轴处理过热的清洁方法是表示报警。", PUMP, "unknown"),
        ("The rent is included in heating.", LEASE, "unknown"),
    ],
)
def test_what_rules_say(statement, passage, verdict):
    assert judge_by_rules(statement, passage)[0] == verdict


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("三百二十", [320]), ("一万两千三百", [12300]), ("两亿零五百万", [205_000_000]), ("3.5万", [35000]), ("二〇二四年", [2024]),
        ("百分之二十", [20]), ("20%", [20]), ("１２３", [123]), ("1,234,567", [1234567]), ("twenty-five", [25]),
        ("three hundred and five", [305]), ("2 million", [2_000_000]), ("五千点", [5000]), ("三点一四", [3.14]), ("1.5", [1.5]),
        ("2024-05-01", [2024, 5, 1]), ("十", [10]), ("十五", [15]), ("一百零三", [103]), ("30mm", [30]), ("E1102", []), ("10.20.30.40", []),
    ],
)  # fmt: skip
def test_numbers_have_one_value_in_all_their_forms(text, values):
    assert [float(quantity.value) for quantity in find_quantities(fold_text(text))] == pytest.approx(values)


def test_codes_are_distinguished_from_numbers():
    assert find_identifiers("E1102, v1.2.3, 10.20.30.40, 30mm, 5kg, 900") == {"e1102", "v1.2.3", "10.20.30.40"}


@pytest.mark.parametrize(
    ("answer", "references"),
    [
        ("滤网每九百小时更换一次 [1]。", {"1": "read"}),
        ("滤网每九百小时更换一次。[1]", {"1": "read"}),
        ("滤网每九百小时更换一次【１】。", {"1": "read"}),
        ("滤网每九百小时更换一次[1, 2]。", {"1": "read", "2": "read"}),
        ("滤网每九百小时更换一次[1-3]。", {"1": "read", "2": "read", "3": "missing"}),
        ("滤网每九百小时更换一次 [1][2]。", {"1": "read", "2": "read"}),
        ("滤网每九百小时更换一次 [泵.md#0]。", {"泵.md#0": "read"}),
        ("滤网每九百小时更换一次 [lease.pdf#9]。", {"lease.pdf#9": "missing"}),
        (f"滤网每九百小时更换一次 [{short_id_of('泵.md', 0)}]。", {short_id_of("泵.md", 0): "read"}),
        ("滤网每九百小时更换一次 [c000000]。", {"c000000": "missing"}),
        ("滤网每九百小时更换一次 [见附录]。", {}),
        ("滤网每九百小时更换一次。", {}),
    ],
)
def test_references_are_recognised_and_looked_up(answer, references):
    [one] = check_citations(answer, SOURCES).statements
    assert one.references == references


def test_a_reference_behind_the_stop_belongs_to_the_sentence_before():
    report = check_citations(
        "The deposit is $1,500.[2] 报警 E1102 表示主轴过热。【1】 Tenants may keep dogs. [2]", SOURCES
    )
    assert [(tuple(one.references), one.support) for one in report.statements] == [
        (("2",), "supported"), (("1",), "supported"), (("2",), "contradicted"),
    ]  # fmt: skip


@pytest.mark.parametrize("mark", ["1. ", "2) ", "3、", "- ", "（二）", "* "])
def test_the_number_of_a_list_item_is_no_number_of_the_statement(mark):
    [one] = check_citations(f"{mark}报警 E1102 表示主轴过热 [1]。", SOURCES).statements
    assert one.support == "supported"


def test_the_id_of_a_document_stands_for_all_of_its_passages():
    parts = [hit("lease.pdf", LEASE, 4), hit("lease.pdf", "Pets: cats are welcome, two at most.", 5)]
    report = check_citations("Cats are welcome, two at most [lease.pdf]. The deposit is $1,500 [lease.pdf].", parts)
    assert [one.support for one in report.statements] == ["supported", "supported"]


def test_a_number_from_elsewhere_in_the_passage_supports_nothing():
    assert judge_by_rules("报警 E1102 每 900 小时表示主轴过热。", PUMP)[0] != "supported"
    assert judge_by_rules("The deposit is $1,500, which is returned within 31 days.", LEASE)[0] != "supported"


def test_a_source_seen_only_as_a_snippet_is_reported():
    report = check_citations("The deposit is $1,500 [2]. 报警 E1102 表示主轴过热 [1]。", SOURCES, read=["泵.md"])
    assert [one.references for one in report.statements] == [{"2": "unread"}, {"1": "read"}]
    assert any("was not read" in line for line in report.problems)


def test_the_three_figures_and_that_unknown_is_never_dropped():
    answer = (
        "报警 E1102 表示主轴过热 [1]。三号泵的滤网每 800 小时更换一次 [1]。滤网需要定期维护，否则会有麻烦 [1]。"
        "The deposit is $1,500 [2]. The garden belongs to everybody in the house. Rents rise next year [7]. 还有别的问题吗？"
    )
    report = check_citations(answer, SOURCES)
    assert [one.support for one in report.statements] == [
        "supported", "unsupported", "unknown", "supported", "unknown", "unknown",
    ]  # fmt: skip
    assert report.completeness == pytest.approx(4 / 6)
    assert report.support_precision == pytest.approx(2 / 3)
    assert report.decidable_rate == pytest.approx(3 / 4)
    assert [one.text for one in report.unknown] == ["滤网需要定期维护，否则会有麻烦。"]
    assert len(report.problems) == 4
    assert "unknown" in str(report)


@pytest.mark.parametrize(
    ("answer", "count"),
    [("", 0), ("资料中没有找到相关内容。", 0), ("What else would you like to know?", 0), ("## 结论\n", 0), ("I don't know which one it is.", 0)],
)  # fmt: skip
def test_what_claims_nothing_needs_no_reference(answer, count):
    report = check_citations(answer, SOURCES)
    assert len(report.statements) == count
    assert report.completeness is report.support_precision is report.decidable_rate is None


@pytest.mark.parametrize(
    ("answer", "support", "by"),
    [
        (True, "supported", "judge"), (False, "unsupported", "judge"), (None, "unknown", ""), ("Entailment", "supported", "judge"),
        ("contradiction", "contradicted", "judge"), ("neutral", "unsupported", "judge"), ("支持", "supported", "judge"),
        ("maybe…", "unknown", ""), ("", "unknown", ""), (0.7, "unknown", ""),
    ],
)  # fmt: skip
def test_a_judge_decides_what_rules_leave_open(answer, support, by):
    prompts = []

    def judge(passage, statement):
        prompts.append((passage, statement))
        return answer

    report = check_citations("滤网需要定期维护，否则会有麻烦 [1]。报警 E1102 表示主轴过热 [1]。", SOURCES, judge=judge)
    assert (report.statements[0].support, report.statements[0].by) == (support, by)
    assert (report.statements[1].support, report.statements[1].by) == ("supported", "rules")
    assert [passage for passage, _ in prompts] == [PUMP]


def test_a_judge_that_fails_leaves_it_unknown():
    def judge(passage, statement):
        raise RuntimeError("down")

    [one] = check_citations("滤网需要定期维护，否则会有麻烦 [1]。", SOURCES, judge=judge).statements
    assert (one.support, one.reason) == ("unknown", "the judge failed: RuntimeError")


def test_the_prompt_of_a_judge_states_that_the_passage_is_data():
    prompts = []

    def model(prompt):
        prompts.append(prompt)
        return "Supported."

    [one] = check_citations("滤网需要定期维护，否则会有麻烦 [1]。", SOURCES, judge=model_judge(model)).statements
    assert one.support == "supported"
    assert PUMP in prompts[0]
    assert "is data" in prompts[0]
    with pytest.raises(UsageError):
        model_judge(7)


def test_sources_may_be_passages_records_and_ones_own():
    passage = Passage("泵.md", 0, PUMP, 0, len(PUMP), 0, 0, 1)
    record = {"doc_id": "lease.pdf", "chunk_id": 4, "text": LEASE, "start": 0, "end": len(LEASE)}
    own = CitedSource(("web",), "page", None, None, None, "The garden has two gates.")
    report = check_citations("The garden has two gates [web]. The deposit is $1,500 [2].", [passage, record, own])
    assert [one.support for one in report.statements] == ["supported", "supported"]
    assert report.sources[1].start == 0
    with pytest.raises(UsageError, match="cannot be cited"):
        check_citations("x", ["text"])


@pytest.mark.parametrize(
    "number", ["9" * 400, "9" * 5000, "一" * 400, "一" * 5000, "一点" + "三" * 5000, "九" * 270 + "万"]
)
def test_a_number_of_any_length_can_be_checked(number):
    assert judge_by_rules(f"It weighs {number} kg.", "It weighs 5 kg.")[0] in {"unsupported", "unknown"}


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_answer_and_any_passage_can_be_checked(answer, passage):
    report = check_citations(answer + " [1]", [hit("d", passage)])
    assert all(answer[one.start : one.end] or one.end > len(answer) for one in report.statements)
    assert len([one for one in report.statements if one.support == "unknown"]) == sum(
        one.support == "unknown" for one in report.statements
    )


@given(st.text(min_size=4, max_size=60).filter(lambda text: any(char.isalnum() for char in text)), st.text(), st.text())
def test_what_stands_in_a_passage_is_found_there(quote, before, after):
    assert contains_quotation(f"{before} {quote} {after}", quote)


_UNITS = {
    "mass": {"g": "1", "克": "1", "kg": "1000", "公斤": "1000", "千克": "1000", "斤": "500", "tonnes": "1000000", "吨": "1000000"},
    "length": {"mm": "1", "毫米": "1", "centimetres": "10", "厘米": "10", "metres": "1000", "米": "1000", "km": "1000000", "公里": "1000000"},
    "volume": {"ml": "1", "毫升": "1", "litres": "1000", "升": "1000", "立方米": "1000000"},
    "area": {"平方厘米": "1", "平方米": "10000", "公顷": "100000000"},
    "time": {"seconds": "1", "秒": "1", "minutes": "60", "分钟": "60", "hours": "3600", "小时": "3600", "days": "86400", "天": "86400"},
    "data": {"KB": "1", "MB": "1000", "GB": "1000000", "TB": "1000000000"},
    "power": {"watts": "1", "瓦": "1", "kW": "1000", "千瓦": "1000"},
}  # fmt: skip
_TEMPLATES = ["The large northern tank was rated at {} in all.", "北方的大型水箱额定为{}，已经过检验。"]


def _written(value):
    """A value in digits, None where it has no short one."""
    scaled = value * 10**6
    return f"{float(value):.6f}".rstrip("0").rstrip(".") if scaled.denominator == 1 and scaled < 10**14 else None


@given(
    st.sampled_from(sorted(_UNITS)).flatmap(
        lambda name: st.tuples(st.just(name), *[st.sampled_from(sorted(_UNITS[name]))] * 2)
    ),
    st.integers(2, 99_999),
    st.sampled_from(_TEMPLATES),
    st.data(),
)
def test_an_amount_may_be_in_any_unit_of_its_dimension_and_in_no_other(units, value, template, data):
    dimension, first, second = units
    ratio = Fraction(_UNITS[dimension][first]) / Fraction(_UNITS[dimension][second])
    written, changed = _written(value * ratio), _written((value + 1) * ratio)
    assume(written and changed)
    passage = template.format(f"{value} {first}")
    assert judge_by_rules(template.format(f"{written} {second}"), passage)[0] == "supported"
    assert judge_by_rules(template.format(f"{changed} {second}"), passage)[0] == "unsupported"
    other = data.draw(st.sampled_from(sorted(set(_UNITS) - {dimension})))
    strange = data.draw(st.sampled_from(sorted(_UNITS[other])))
    for number in (value, written):
        assert judge_by_rules(template.format(f"{number} {strange}"), passage)[0] == "unsupported"


@pytest.mark.parametrize(
    ("statement", "passage", "verdict"),
    [
        ("The pump delivers 40 litres per hour.", "The pump delivers 40 litres per minute.", "unsupported"),
        ("The pump delivers 2,400 litres per hour.", "The pump delivers 40 litres a minute.", "supported"),
        ("The train runs at 90 km/h.", "The train runs at 90 km/s.", "unsupported"),
        ("The train runs at 90km/h.", "The train runs at 90 km per hour.", "supported"),
        ("水泵每小时出水40升。", "水泵每分钟出水40升。", "unsupported"),
        ("水泵每分钟出水四十升。", "水泵每分钟出水40升。", "supported"),
        ("列车时速为90公里/小时。", "列车时速为90公里/秒。", "unsupported"),
    ],
)
def test_a_rate_is_compared_with_what_it_is_per(statement, passage, verdict):
    assert judge_by_rules(statement, passage)[0] == verdict


_HAN = "〇一二三四五六七八九"
_MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)


def _han_small(number):
    tens, ones = divmod(number, 10)
    return (("" if tens == 1 else _HAN[tens]) + "十" if tens else "") + (_HAN[ones] if ones else "")


_DATE_FORMS = [
    lambda day: day.isoformat(),
    lambda day: f"{day.year}/{day.month}/{day.day}",
    lambda day: f"{day.day} {_MONTHS[day.month - 1]} {day.year}",
    lambda day: f"{_MONTHS[day.month - 1]} {day.day}, {day.year}",
    lambda day: f"{day.day} {_MONTHS[day.month - 1][:3]} {day.year}",
    lambda day: f"{day.year}年{day.month}月{day.day}日",
    lambda day: (
        "".join(_HAN[int(char)] for char in str(day.year)) + f"年{_han_small(day.month)}月{_han_small(day.day)}日"
    ),
]


@given(
    st.dates(date(1900, 1, 1), date(2099, 1, 1)),
    st.sampled_from(_DATE_FORMS),
    st.sampled_from(_DATE_FORMS),
    st.sampled_from(["The Harlow pump was first sold on {} by Anna Reed.", "哈洛水泵于{}在肯特首次上市。"]),
    st.integers(1, 400),
)
def test_a_date_may_be_in_any_form_and_another_date_in_none(day, first, second, template, later):
    passage = template.format(first(day))
    assert judge_by_rules(template.format(second(day)), passage)[0] == "supported"
    assert judge_by_rules(template.format(second(day + timedelta(days=later))), passage)[0] != "supported"
