"""Who is named in a question, in both scripts."""

from __future__ import annotations

import pytest

from langchain_agentrag.search.speakers import named, said_by_others

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
    assert named(query, PEOPLE) == who


def test_only_what_somebody_else_says_is_another_ones_words():
    speakers = {1: "林娜", 2: "奥托", 3: "Mel"}
    assert said_by_others("林娜和 Mel 聊了什么", speakers) == {2: "Mel, 林娜"}
    assert said_by_others("聊了什么", speakers) == {}
    assert said_by_others("Otto?", speakers) == {}
