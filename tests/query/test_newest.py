"""Questions for the newest (latest, now, 最近一次, 目前): the newest of similar documents first, and the route says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from langchain_agentrag import DualIndexer, HashingEmbeddings, QueryUnderstandingRouter, SourceDocument

NOW = datetime(2026, 3, 18, 2, 0, tzinfo=UTC)
DAY = timedelta(days=1)
ASKS = [
    "What is the latest budget of project Delta?",
    "what's the newest budget for project Delta",
    "most recent budget of project Delta",
    "What is the budget of project Delta now?",
    "what is the budget of project Delta right now",
    "any recent budget of project Delta?",
    "the budget of project Delta as of today",
    "What is project Delta's budget currently?",
    "what is the current budget of project Delta",
    "Delta 项目最新的预算是多少",
    "Delta 项目目前的预算是多少",
    "Delta 项目现在的预算",
    "最近一次 Delta 项目的预算",
    "Delta 项目当前预算多少",
    "截至目前 Delta 项目的预算",
    "近期 Delta 项目的预算",
]
DOES_NOT_ASK = [
    "what is the budget of project Delta",
    "pull the image postgres:latest",
    "the latest tag of the image",
    "open latest.log",
    "now that the budget is fixed, who signs?",
    "Now, who signs the budget?",
    "select now() from dual",
    "every now and then the pump stops",
    "what does “latest” mean",
    "who knows the budget",
    "electric current of the pump",
    "the recency option",
    "最近的地铁站在哪里",
    "离公司最近的医院",
    "距离仓库最近的出口",
    "现在完成时怎么用",
    "当前目录下的文件",
    "《最新消息》是谁唱的",
    "什么时候能发现在途异常",
    "Delta 项目的预算",
]


@pytest.fixture(scope="module", params=["newest first", "newest last"])
def indexer(request, tmp_path_factory):
    notes = [
        ("week", "Note: the budget of project Delta (Delta 项目的预算) is 70,000.", 7),
        ("today", "Note: the budget of project Delta (Delta 项目的预算) is 90,000 after the review of the board.", 0),
        ("month", "Note: the budget of project Delta (Delta 项目的预算) is 60,000.", 40),
        ("other", "The canteen (食堂) serves soup today.", 0),
    ]
    if request.param == "newest first":
        notes.reverse()
    with DualIndexer(tmp_path_factory.mktemp("newest"), HashingEmbeddings(64), clock=lambda: NOW) as indexer:
        indexer.index_documents(
            [SourceDocument(name, text, metadata={"time": NOW - days * DAY}) for name, text, days in notes]
        )
        indexer.index_documents(
            [SourceDocument("undated", "The budget of project Delta (Delta 项目的预算) is a plan.")]
        )
        yield indexer


@pytest.mark.parametrize("question", ASKS)
def test_of_three_dated_notes_the_newest_comes_first_and_the_route_says_so(indexer, question):
    router = QueryUnderstandingRouter(clock=lambda: NOW)
    hits = router.search(indexer, question, 5)
    dated = [hit.doc_id for hit in hits if hit.doc_id in {"today", "week", "month"}]
    assert dated == ["today", "week", "month"]
    assert hits.route.newest_first
    assert any("asks for the newest" in reason for reason in hits.route.reasons)
    first = router.search(indexer, question, 1, filter={"time": {"$exists": True}})
    assert [hit.doc_id for hit in first] == ["today"]


@pytest.mark.parametrize("question", DOES_NOT_ASK)
def test_other_uses_of_the_words_do_not_ask_for_the_newest(question):
    route = QueryUnderstandingRouter(clock=lambda: NOW).route(question)
    assert not route.newest_first
    assert not any("newest" in reason for reason in route.reasons)


def test_what_is_new_but_about_something_else_does_not_come_before_what_answers(indexer):
    hits = QueryUnderstandingRouter(clock=lambda: NOW).search(indexer, "the latest budget of project Delta", 5)
    assert [hit.doc_id for hit in hits].index("other") == 4


def test_a_document_without_a_time_keeps_its_place(indexer):
    question = "the latest budget of project Delta"
    routed = QueryUnderstandingRouter(clock=lambda: NOW).search(indexer, question, 5)
    plain = indexer.search(question, 5, recency=timedelta(days=30))
    assert [hit.doc_id for hit in routed].index("undated") == [hit.doc_id for hit in plain].index("undated")


def test_a_recency_of_the_caller_comes_first(indexer):
    router = QueryUnderstandingRouter(clock=lambda: NOW)
    hits = router.search(indexer, "the latest budget of project Delta", 5, recency=timedelta(hours=1))
    assert [hit.doc_id for hit in hits if hit.doc_id in {"today", "week", "month"}] == ["today", "week", "month"]
