"""Who is named in a question, in both scripts."""

from __future__ import annotations

import pytest

from langchain_agentrag.search.ranking import named_speakers, other_speakers

PEOPLE = {"Caroline Smith", "Mel", "林娜", "歐陽鋒", "user", "assistant"}


@pytest.mark.parametrize(
    ("query", "who"),
    [
        ("What did Caroline do?", {"Caroline Smith"}),
        ("what did CAROLINE SMITH's mother say", {"Caroline Smith"}),
        ("a melody for Smithson", set()),
        ("Mel and Caroline", {"Mel", "Caroline Smith"}),
        ("林娜上周去了哪里", {"林娜"}),
        ("欧阳锋说了什么", {"歐陽鋒"}),
        ("how does a user reset a password", set()),
        ("", set()),
    ],
)
def test_a_speaker_is_named_by_the_whole_name_or_a_word_of_it(query, who):
    assert named_speakers(query, PEOPLE) == who


@pytest.mark.parametrize(
    ("query", "speakers"),
    [
        ("What is a good price? I think B is.", ["A", "B", "I"]),  # one letter
        ("国王是谁", ["王", "李"]),  # one character
        ("客服電話是多少", ["客服", "用户", "助手"]),
        ("我是新用戶，怎么注册", ["用户"]),
        ("the doctor's customer support number", ["Customer Support", "Doctor", "Dr."]),
        ("within 12 months", ["12", "Agent 12"]),
        ("bread and butter in a van", ["Mary and John", "Vincent van Gogh"]),
        ("Which bill was paid, and who will mark it?", ["Bill", "Mark", "Will"]),
        ("Will it rain? May I stay?", ["Will", "May"]),
        ("will it rain, may i stay", ["Will", "May"]),
        ("WILL IT RAIN", ["Will"]),
    ],
)
def test_a_word_that_is_no_name_in_the_question_names_nobody(query, speakers):
    assert named_speakers(query, speakers) == set()


@pytest.mark.parametrize(
    ("query", "speakers", "who"),
    [
        ("What did Will tell May?", ["Will", "May", "Ann"], {"Will", "May"}),
        ("what did bill say", ["Bill", "Ann"], {"Bill"}),
        ("What did mel say?", ["mel", "Ann"], {"mel"}),
        ("What did Ann Lee say?", ["Ann", "Ann Lee", "Bo Lee"], {"Ann Lee"}),
        ("What does Dr. Smith advise?", ["Dr. Smith", "Dr. Jones"], {"Dr. Smith"}),
        ("What did Speaker 1 say?", ["Speaker 1", "Speaker 2"], {"Speaker 1"}),
        ("张三丰说了什么", ["张三", "张三丰"], {"张三丰"}),
        ("張三和李四谁先到", ["张三", "李四", "王五"], {"张三", "李四"}),
        ("What did José say to ann?", ["José", "Ann"], {"José"}),
    ],
)
def test_the_longer_name_is_meant_and_capitals_tell_names_from_words(query, speakers, who):
    assert named_speakers(query, speakers) == who


def test_only_turns_of_other_speakers_count_as_another_speaker():
    speakers = {1: "林娜", 2: "奥托", 3: "Mel"}
    assert other_speakers("林娜和 Mel 聊了什么", speakers) == {2: "Mel, 林娜"}
    assert other_speakers("聊了什么", speakers) == {}
    assert other_speakers("Otto?", speakers) == {}
