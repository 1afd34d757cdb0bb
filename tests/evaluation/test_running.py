"""A whole evaluation on a small store in both languages: figures, failures, baselines, sweeps, the report."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.errors import MissingExtraError, UsageError
from langchain_agentrag.evaluation import (
    Expected,
    Question,
    changes,
    evaluate,
    failures,
    html_report,
    load_run,
    run_document,
    standard_settings,
    sweep,
)
from langchain_agentrag.evaluation.runner import parse_measures
from langchain_agentrag.evaluation.tuning import DEFAULTS, halves
from tests.fakes import RecordingEmbeddings

TOPICS = ["水泵", "轴承", "电机", "阀门", "齿轮", "filter", "spindle", "coolant", "fuse", "sensor"]


def documents() -> list[SourceDocument]:
    return [
        SourceDocument(f"d{number}", f"{topic} 的编号是 N{number:03d}。{topic} needs care.", {}, None)
        for number, topic in enumerate(TOPICS)
    ] + [SourceDocument("private", "Lina keeps the spare fuse in drawer 7741.", {}, "lina")]


def ask(number: int, text: str, source: str, agent: str | None = None) -> Question:
    return Question(f"q{number}", text, (Expected(source, "doc_id"),), agent)


QUESTIONS = [ask(number, f"{topic} 编号", f"d{number}") for number, topic in enumerate(TOPICS)]


@pytest.fixture(scope="module")
def indexer(tmp_path_factory: pytest.TempPathFactory):
    with DualIndexer(tmp_path_factory.mktemp("lab") / "store", RecordingEmbeddings()) as store:
        store.index_documents(documents())
        yield store


def test_every_setting_is_measured_on_every_question(indexer: DualIndexer):
    evaluation = evaluate(indexer, QUESTIONS)
    assert list(evaluation.runs) == ["vector", "keyword", "hybrid"]
    assert evaluation.main == "hybrid"
    keyword = evaluation.runs["keyword"]
    assert keyword.interval("nDCG@10").mean == 1.0
    assert set(keyword.ranks.values()) == {1}
    for run in evaluation.runs.values():
        assert run.values.keys() == set(evaluation.measures)
        assert all(values.keys() == {q.id for q in QUESTIONS} for values in run.values.values())
        assert 0 < run.latency(0.5) <= run.latency(0.95)


def test_a_question_is_embedded_once_for_all_settings(indexer: DualIndexer):
    model: RecordingEmbeddings = indexer.embedder.backend._model
    model.queries.clear()
    evaluate(indexer, QUESTIONS[:3])
    assert model.queries == [question.text for question in QUESTIONS[:3]]


def test_each_question_is_searched_as_its_own_agent(indexer: DualIndexer):
    questions = [ask(n, "spare fuse drawer 7741", "private", agent) for n, agent in enumerate([None, "otto", "lina"])]
    evaluation = evaluate(indexer, questions)
    assert evaluation.runs["hybrid"].ranks == {"q0": None, "q1": None, "q2": 1}
    assert [judged.question.id for judged in evaluation.unanswerable] == ["q0", "q1"]


def test_failures_say_what_became_of_the_source(indexer: DualIndexer):
    questions = [
        ask(0, "水泵 编号", "d3"),  # another document answers it better
        ask(1, "spare fuse", "private"),  # not visible
        ask(2, "轴承", "d1"),  # answered
    ]
    evaluation = evaluate(indexer, questions)
    missed = {failure.question: failure for failure in failures(indexer, evaluation, k=1)}
    assert missed.keys() == {"q0", "q1"}
    assert missed["q1"].cause == "missing"
    assert missed["q1"].expected is None
    outranked = missed["q0"]
    assert outranked.cause == "outranked"
    assert outranked.expected.doc_id == "d3"
    assert "编号" in outranked.expected.matched
    assert outranked.instead.doc_id == "d0"
    assert outranked.instead.keyword == 1


def test_a_failure_never_shows_what_the_agent_may_not_see(indexer: DualIndexer):
    questions = [ask(0, "drawer 7741 spare fuse", "d0", agent) for agent in (None,)] + [
        ask(1, "drawer 7741 spare fuse", "d0", "otto")
    ]
    evaluation = evaluate(indexer, questions)
    missed = failures(indexer, evaluation, k=1)
    assert len(missed) == 2
    assert "7741." not in json.dumps([str(one.instead) + str(one.expected) for one in missed])


def test_a_run_is_kept_and_compared(indexer: DualIndexer, tmp_path: Path):
    evaluation = evaluate(indexer, QUESTIONS)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run_document(evaluation)), encoding="utf-8")
    old = load_run(path)
    same = changes(evaluation, old)
    assert {change.setting for change in same} == set(evaluation.runs)
    assert all(change.difference.mean == 0 and not change.difference.significant for change in same)
    worse = {
        name: replace(run, values={m: dict.fromkeys(values, 0.0) for m, values in run.values.items()})
        for name, run in evaluation.runs.items()
    }
    fallen = [c for c in changes(replace(evaluation, runs=worse), old) if c.setting == "keyword"]
    assert all(change.difference.significant and change.difference.mean == -1 for change in fallen)


def test_runs_on_other_questions_are_not_compared(indexer: DualIndexer, tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run_document(evaluate(indexer, QUESTIONS[:2]))), encoding="utf-8")
    other = [replace(question, text=question.text + "?") for question in QUESTIONS]
    with pytest.raises(UsageError, match="other questions"):
        changes(evaluate(indexer, other), load_run(path))
    some = changes(evaluate(indexer, QUESTIONS), load_run(path))
    assert {change.difference.questions for change in some} == {2}
    for broken in ("", "[]", "{}", '{"format": 99}', '{"format": 1, "settings": []}'):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(UsageError, match="baseline"):
            load_run(path)


def many() -> list[Question]:
    return [ask(n, f"{TOPICS[n % 10]} 编号 {n}", f"d{n % 10}") for n in range(60)]


def test_halves_share_no_source_and_stay_the_same():
    first, second = halves(many())
    assert sorted(first + second) == sorted(question.id for question in many())
    assert abs(len(first) - len(second)) <= 6
    sources = [{question.expected[0].value for question in many() if question.id in half} for half in (first, second)]
    assert not sources[0] & sources[1]
    assert halves(list(reversed(many())))[0]
    assert set(halves(many())[0]) == set(first)


def test_a_sweep_finds_what_helps_and_reports_when_nothing_does(indexer: DualIndexer):
    # The hashed vectors know less than the words here: taking the words alone cannot be much worse.
    good = sweep(indexer, many(), {"vector": {"mode": "vector"}})
    assert good.best == DEFAULTS
    assert not good.worthwhile
    assert {name for name, _, _ in good.table} == {DEFAULTS, "vector"}
    assert good.chosen + good.difference.questions == 60


def test_a_better_setting_must_be_better_on_the_held_out_half(indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch):
    questions = many()
    first, _ = halves(questions)

    def lucky(*_args, **_options):
        evaluation = evaluate(indexer, questions, {DEFAULTS: {}, "lucky": {"mode": "keyword"}}, main=DEFAULTS)
        low = {m: dict.fromkeys(values, 0.4) for m, values in evaluation.runs[DEFAULTS].values.items()}
        high = {
            m: {key: 0.9 if key in first else 0.4 for key in values}
            for m, values in evaluation.runs["lucky"].values.items()
        }
        runs = {
            DEFAULTS: replace(evaluation.runs[DEFAULTS], values=low),
            "lucky": replace(evaluation.runs["lucky"], values=high),
        }
        return replace(evaluation, runs=runs)

    monkeypatch.setattr("langchain_agentrag.evaluation.tuning.evaluate", lucky)
    advice = sweep(indexer, questions)
    assert advice.best == "lucky", "it won the half it was chosen on"
    assert not advice.worthwhile, "and nothing on the other half"


def test_a_sweep_on_a_handful_of_questions_is_refused(indexer: DualIndexer):
    with pytest.raises(UsageError, match="at least 20"):
        sweep(indexer, QUESTIONS)


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        ([QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]], {}, "more than once"),
        (QUESTIONS, {"measures": []}, "Cannot measure"),
        (QUESTIONS, {"measures": "nDCG@10"}, "Cannot measure"),
        (QUESTIONS, {"settings": {}}, "at least one question and one setting"),
        ([], {}, "at least one question and one setting"),
    ],
)
def test_what_cannot_be_measured_is_refused(questions, options, message, indexer: DualIndexer):
    with pytest.raises(UsageError, match=message):
        evaluate(indexer, questions, **options)


def test_the_report_names_the_defaults_when_they_were_the_best(indexer: DualIndexer):
    advice = sweep(indexer, many(), {"vector": {"mode": "vector"}})
    assert advice.keeps_defaults
    evaluation = evaluate(indexer, QUESTIONS)
    for language, expected in (("en", "none of the others was better"), ("zh", "没有别的设置更好")):
        assert expected in html_report(evaluation, [], advice=advice, language=language)


def test_a_reranker_makes_a_setting_of_its_own(indexer: DualIndexer):
    batches: list[int] = []

    def backwards(query: str, texts: list[str]) -> list[float]:
        batches.append(len(texts))
        return [float(number) for number in range(len(texts))]

    evaluation = evaluate(indexer, QUESTIONS[:2], standard_settings(backwards))
    assert list(evaluation.runs)[-1] == evaluation.main == "hybrid + reranker"
    assert len(batches) == 2
    assert evaluation.runs[evaluation.main].options == {"reranker": "backwards"}


def test_nothing_to_ask_and_unknown_measures_are_refused(indexer: DualIndexer):
    with pytest.raises(UsageError, match="0 questions"):
        evaluate(indexer, [])
    for name in (
        "nDCGG@10",
        "P@",
        "P(2)@5",
        "P@x",
        "P@0",
        "P@-1",
        "P@'5'",
        "P+2",
        "RR@10@3",
        "P(grade=1)@2",
        "P@1;P@2",
        "",
    ):
        with pytest.raises(UsageError, match=re.escape(repr(name))):
            evaluate(indexer, QUESTIONS, measures=[name])
    assert list(map(str, parse_measures(["AP", "P(rel=2)@5", " RR@10"]))) == ["AP", "P(rel=2)@5", "RR@10"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_is_one_page_that_runs_nothing(language: str, indexer: DualIndexer):
    evil = ask(77, "<script>alert(1)</script> 水泵 & 编号", "d3")
    evaluation = evaluate(indexer, [*QUESTIONS, evil])
    page = html_report(evaluation, failures(indexer, evaluation, k=1), language=language, k=1)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.findall(r"(?:src|href)=|url\(", page), "nothing is loaded from elsewhere"
    assert page.count("<svg") == len(evaluation.measures) + 2
    assert load_messages("evaluation", "report", language)["measures"] in page
    assert "prefers-color-scheme:dark" in page


def test_both_languages_say_the_same_things():
    english, chinese = (load_messages("evaluation", "report", language) for language in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        holes = re.compile(r"{(\w+)}")
        assert set(holes.findall(text)) == set(holes.findall(chinese[name])), name


def test_charts_take_any_name_of_a_setting(indexer: DualIndexer):
    names = ["混合检索", "<script>x</script>", "$x$", "_under"]
    result = evaluate(indexer, QUESTIONS[:2], {name: {"mode": "keyword"} for name in names}, depth=1)
    page = html_report(result)
    assert "<script" not in page
    for name in ("混合检索", "&lt;script&gt;x&lt;/script&gt;", "$x$", "_under"):
        assert page.count(name) >= len(result.measures) + 2, name


@pytest.mark.parametrize("library", ["jinja2", "matplotlib", "scipy", "ir_measures"])
def test_a_missing_library_names_its_extra(library: str, indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[eval\]"):
        html_report(evaluate(indexer, QUESTIONS[:2]))
