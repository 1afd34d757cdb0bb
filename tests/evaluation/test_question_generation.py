"""Drafted questions: from FAQs, headings and a model, in both languages, and from nobody else's documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.errors import UsageError
from langchain_agentrag.evaluation import draft_questions, evaluate, read_collection, write_questions
from langchain_agentrag.evaluation.relevance import judge_questions

GUIDE = """# 差旅手册

## 1. 概述

这里没有值得提问的内容，只是一个开头而已，读者可以跳过这一节。

## 2. 报销

员工应在返回后十四天内提交车票和住宿发票，逾期不予报销。

```bash
# 这不是标题，而是代码里的注释，后面也没有可以提问的内容
```

## 如何申请借款

填写借款单，由部门主管签字，然后交到财务处的三号窗口办理。

## 费用标准

| 城市 | 上限 | 补助 |
| --- | --- | --- |
| 北京 | 500 | 100 |
"""
FAQ = """Q: How do I reset the alarm?
A: Hold the yellow key for three seconds. Then restart.

**问：忘记密码怎么办？**

**答：** 请联系值班工程师，他会在十分钟内重置密码。

Question 3: What is never answered here?
"""


@pytest.fixture
def indexer(tmp_path: Path):
    with DualIndexer(tmp_path / "store", "hash") as store:
        store.index_documents(
            [
                SourceDocument("guide", GUIDE, kind="markdown"),
                SourceDocument("faq", FAQ),
                SourceDocument(
                    "own", "# Lina's vault\n\nThe code of the vault in the cellar is 7741, says Lina.", {}, "lina"
                ),
                SourceDocument(
                    "other", "# Otto's plan\n\nOtto wants to leave the town on the ninth of May.", {}, "otto"
                ),
            ]
        )
        yield store


def test_faqs_and_headings_become_questions(indexer: DualIndexer):
    by_text = {question.text: question for question in draft_questions(indexer)}
    assert by_text.keys() == {
        "How do I reset the alarm?",
        "忘记密码怎么办？",
        "差旅手册的报销是怎样的？",
        "如何申请借款？",
    }
    assert by_text["How do I reset the alarm?"].made_from == "faq"
    assert by_text["如何申请借款？"].made_from == "heading"
    assert by_text["忘记密码怎么办？"].expected[0].value == "请联系值班工程师，他会在十分钟内重置密码。"


def test_every_drafted_question_can_be_answered_and_comes_back_from_its_file(indexer: DualIndexer, tmp_path: Path):
    drafted = draft_questions(indexer, "lina")
    write_questions(tmp_path / "q.jsonl", drafted)
    collection = read_collection(tmp_path / "q.jsonl")
    assert list(collection.questions) == drafted
    assert not any(one.missing for one in judge_questions(indexer, drafted))
    assert set(evaluate(indexer, collection).runs["keyword"].ranks.values()) == {1}


@pytest.mark.parametrize(
    ("agent", "visible", "unseen"),
    [
        (None, [], ["Lina", "Otto"]),
        ("lina", ["Lina"], ["Otto"]),
        ("LINA", [], ["Lina", "Otto"]),
        ("*", [], ["Lina", "Otto"]),
    ],
)
def test_only_documents_visible_to_the_agent_reach_the_model(
    agent: str | None, visible: list[str], unseen: list[str], indexer: DualIndexer
):
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return f"Which question is number {len(prompts)}?"

    drafted = draft_questions(indexer, agent, model=model, most=100)
    text = "\n".join([*prompts, *(question.text + str(question.expected) for question in drafted)])
    assert prompts
    assert all(question.agent_id == agent for question in drafted)
    assert all(name in text for name in visible)
    assert not any(name in text for name in unseen)


def test_the_prompt_is_in_the_language_of_the_passage(indexer: DualIndexer):
    prompts: list[str] = []

    class Chat(FakeListChatModel):
        def _call(self, messages, *args, **kwargs):
            prompts.append(messages[0].content)
            return super()._call(messages, *args, **kwargs)

    answers = [
        "问题：出差回来后多少天之内要交发票？",
        "Question: Who can clear a fault signal?",
        '"忘了口令找谁？"',
        "Is it?",
    ]
    questions = draft_questions(indexer, model=Chat(responses=answers), most=8)
    texts = {question.text for question in questions if question.made_from == "model"}
    assert texts
    assert all("：" not in text and '"' not in text for text in texts)
    assert any(prompt.startswith("下面是") for prompt in prompts)
    assert any(prompt.startswith("Below is") for prompt in prompts)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "ok",
        "I cannot help.",
        "What does the passage say about it?",
        "上文提到了哪些票据？",
        "逾期不予报销。员工应在返回后十四天内提交车票和住宿发票？" * 20,
    ],
)
def test_useless_answers_are_left_out(answer: str, indexer: DualIndexer):
    questions = draft_questions(indexer, model=lambda _prompt: answer)
    assert not [question for question in questions if question.made_from == "model"]
    assert questions, "what headings and FAQs give stays"


def test_a_quotation_is_no_question(indexer: DualIndexer):
    quote = "员工应在返回后十四天内提交车票和住宿发票，逾期不予报销"
    questions = draft_questions(indexer, model=lambda prompt: f"{quote}？" if quote in prompt else "no")
    assert not [question for question in questions if question.made_from == "model"]


def test_a_failing_model_is_no_longer_called(indexer: DualIndexer, caplog: pytest.LogCaptureFixture):
    calls: list[str] = []

    def broken(prompt: str) -> str:
        calls.append(prompt)
        raise ConnectionError("gone")

    assert draft_questions(indexer, model=broken)
    assert 1 <= len(calls) <= 3
    assert "gone" in caplog.text
    with pytest.raises(UsageError, match="chat model"):
        draft_questions(indexer, model=42)


def test_ambiguous_headings_and_too_many_are_left_out(tmp_path: Path):
    pages = [
        SourceDocument(
            f"page{n}", f"# Unit {n}\n\n## Cleaning the oil filter\n\nUnit {n} is cleaned on day {n} of the month."
        )
        for n in range(3)
    ]
    with DualIndexer(tmp_path / "pages", "hash") as indexer:
        indexer.index_documents(
            [*pages, SourceDocument("one", "# Oiling the chain\n\nUse two drops of thin oil per link, weekly.")]
        )
        questions = draft_questions(indexer)
        assert [question.text for question in questions] == ["What is there to know about Oiling the chain?"], (
            "three documents would answer the other one"
        )
        assert draft_questions(indexer, most=0) == []
        assert draft_questions(indexer, seed=1) == draft_questions(indexer, seed=1)
