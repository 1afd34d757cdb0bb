"""Who speaks helps to find a turn, in both indexes and languages, and leaves its text as it was."""

from __future__ import annotations

import pytest

from langchain_agentrag import DualIndexer, SourceDocument
from tests.fakes import RecordingEmbeddings

TURNS = {
    "1": ("林娜", "我上周领养了一只狗。"),
    "2": ("奥托", "我上周领养了一只狗。"),
    "3": ("Caroline", "I adopted a dog last week."),
    "4": ("Melanie", "I adopted a dog last week."),
}


def turns(**more) -> list[SourceDocument]:
    return [
        SourceDocument(name, text, {"speaker": speaker, "session": "s", **more}, "a")
        for name, (speaker, text) in TURNS.items()
    ]


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("mode", ["keyword", "vector", "hybrid"])
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("林娜领养了什么", "1"),
        ("奥托领养了什么", "2"),
        ("What did Melanie adopt?", "4"),
        ("Caroline 的狗 dog adopted", "3"),
    ],
)
def test_of_two_equal_turns_the_named_speaker_comes_first(tmp_path, split, mode, query, first):
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        indexer.index_documents(turns(), split=split)
        hit = indexer.search(query, 1, mode=mode, agent_id="a")[0]
    assert (hit.doc_id, hit.text) == (first, TURNS[first][1])
    assert hit.context == TURNS[first][0], "what was added is shown, and the text is as it was"


@pytest.mark.parametrize("name", [None, 7, ["林娜"], "", "  \n", "x" * 81])
def test_what_is_no_name_adds_nothing(tmp_path, name):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents([SourceDocument("1", "hello there", {"speaker": name}, "a")])
        assert indexer.search("hello", 1, agent_id="a")[0].context == ""
    assert "hello there" in model.texts


def test_another_speaker_is_a_change_and_the_same_one_is_none(tmp_path):
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        indexer.index_documents([SourceDocument("1", "ja", {"speaker": "Otto"}, "a")])
        assert indexer.index_documents([SourceDocument("1", "ja", {"speaker": "Otto"}, "a")]).unchanged == 1
        assert indexer.index_documents([SourceDocument("1", "ja", {"speaker": "Lina"}, "a")]).updated == 1
        assert [hit.doc_id for hit in indexer.search("Lina", mode="keyword", agent_id="a")] == ["1"]
        assert indexer.search("Otto", mode="keyword", agent_id="a") == []
