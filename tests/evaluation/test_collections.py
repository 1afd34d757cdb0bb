"""Reading test sets, and which hits count as expected, for the agent that asks and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag import DualIndexer, Hit, SourceDocument
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.evaluation import Expected, Question, read_collection, write_questions
from langchain_agentrag.evaluation.relevance import judge_questions


def beir(folder: Path, *, header: str = "query-id\tcorpus-id\tscore\n") -> Path:
    folder.mkdir()
    corpus = [
        {"_id": "d1", "title": "保养", "text": "油泵每月检查一次。"},
        {"_id": "d2", "text": "The pump is checked monthly.", "metadata": {"agent_id": "lina", "n": 1}},
    ]
    queries = [
        {"_id": "q1", "text": "多久检查油泵？"},
        {"_id": "q2", "text": "How often is the pump checked?", "metadata": {"agent_id": "lina"}},
        {"_id": "q3", "text": "not judged"},
    ]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "qrels.tsv").write_text(f"{header}q1\td1\t2\nq2\td2\t1\nq2\td1\t0\n", encoding="utf-8")
    (folder / "qrels.cross.tsv").write_text(f"{header}q1\td2\t1\n", encoding="utf-8")
    return folder


def test_a_beir_folder(tmp_path: Path):
    collection = read_collection(beir(tmp_path / "pumps"))
    assert [(q.id, q.agent_id, q.expected) for q in collection.questions] == [
        ("q1", None, (Expected("d1", "doc_id", 2),)),
        ("q2", "lina", (Expected("d2", "doc_id", 1),)),
    ], "a judgement of 0 is none, a query without judgement is not asked"
    documents = list(collection.documents())
    assert [(d.doc_id, d.text, d.agent_id) for d in documents] == [
        ("d1", "保养\n油泵每月检查一次。", None),
        ("d2", "The pump is checked monthly.", "lina"),
    ]


def test_other_judgements_of_the_same_folder(tmp_path: Path):
    collection = read_collection(beir(tmp_path / "pumps"), qrels="cross")
    assert [q.expected[0].value for q in collection.questions] == ["d2"]
    assert collection.name == "pumps.cross"
    with pytest.raises(UsageError, match=r"qrels\.cross\.tsv"):
        read_collection(tmp_path / "pumps", qrels="nonsense")


def test_judgements_without_a_header_and_in_the_form_of_trec(tmp_path: Path):
    folder = beir(tmp_path / "plain", header="")
    (folder / "qrels.trec.tsv").write_text("q1 0 d1 1\nq2 0 d2 1\n", encoding="utf-8")
    assert len(read_collection(folder).questions) == 2
    assert len(read_collection(folder, qrels="trec").questions) == 2


LINES = [
    {"question": "a?", "expected": "docs/a.md"},
    {"id": "x", "query": "b?", "expected": ["a", {"phrase": "第一句", "grade": 3}], "agent_id": "智能体"},
    {"question": "c?", "expected": {"doc_id": "d", "phrase": "words"}},
]


def test_json_lines(tmp_path: Path):
    path = tmp_path / "q.jsonl"
    path.write_text("\ufeff" + "\n\n".join(json.dumps(line, ensure_ascii=False) for line in LINES), encoding="utf-8")
    assert read_collection(path).questions == (
        Question("q1", "a?", (Expected("docs/a.md"),)),
        Question("x", "b?", (Expected("a"), Expected("第一句", "phrase", 3)), "智能体"),
        Question("q3", "c?", (Expected("words", "phrase", document="d"),)),
    )
    assert len(read_collection(path, first=2).questions) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "no JSON"),
        ("[1]", "JSON object"),
        ('{"expected": "a"}', "no question"),
        ('{"question": "a", "expected": []}', "no source"),
        ('{"question": "a"}', "cannot read the expected source"),
        ('{"question": "a", "expected": {"doc_id": "a", "path": "b"}}', "cannot read the expected source"),
        ('{"question": "a", "expected": {"doc_id": 3}}', "cannot read the expected source"),
        ('{"question": "a", "expected": {"doc_id": "a", "grade": 0}}', "cannot read the expected source"),
        ('{"question": "a", "expected": {"doc_id": "a", "typo": 1}}', "cannot read the expected source"),
        ('{"question": "a", "expects": "a"}', "unknown key 'expects'"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "fine", "expected": "a"}\n' + line, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read_collection(path)
    assert "line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus.jsonl", b'{"_id": "d1", "text": "again"}', "line 3: the id 'd1'"),
        ("queries.jsonl", b'{"_id": "q1", "text": "again"}', "line 3: the id 'q1'"),
        ("corpus.jsonl", b'{"_id": "d9", "text": "x", "metadata": {"agent_id": 5}}', "line 3: agent_id"),
        ("queries.jsonl", b'{"_id": "q2", "text": "x", "metadata": {"agent_id": ""}}', "line 3: agent_id"),
        ("qrels.tsv", b"q1\td1\thigh", "line 3: expected query-id"),
        ("corpus.jsonl", "冷却液".encode("gbk"), "UTF-8"),
        ("queries.jsonl", b"\xff\xfe\x00", "UTF-8"),
        ("qrels.tsv", b"\x80\x81", "UTF-8"),
        ("queries.jsonl", b"[" * 100_000, "line 3: this is no JSON"),
    ],
)
def test_a_broken_folder_names_file_and_line(file: str, content: bytes, message: str, tmp_path: Path):
    good = {
        "corpus.jsonl": b'{"_id": "d1", "text": "coolant"}\n\n',
        "queries.jsonl": b'{"_id": "q1", "text": "coolant?"}\n\n',
        "qrels.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    }
    for name, text in good.items():
        (tmp_path / name).write_bytes(text + (content if name == file else b""))
    with pytest.raises(UsageError) as caught:
        list(read_collection(tmp_path).documents())
    assert message in str(caught.value)
    assert file in str(caught.value)


def test_a_folder_without_a_collection_is_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no such"):
        read_collection(tmp_path / "absent")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no question"):
        read_collection(tmp_path / "empty.jsonl")
    with pytest.raises(UsageError, match="qrels"):
        read_collection(tmp_path)
    twice = '{"id": "a", "question": "x", "expected": "y"}\n' * 2
    (tmp_path / "twice.jsonl").write_text(twice, encoding="utf-8")
    with pytest.raises(UsageError, match="id 'a'"):
        read_collection(tmp_path / "twice.jsonl")
    (tmp_path / "agent.jsonl").write_text('{"question": "x", "expected": "y", "agent_id": ""}', encoding="utf-8")
    with pytest.raises(ScopeError):
        read_collection(tmp_path / "agent.jsonl")


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda text: text.strip())
sources = st.builds(
    Expected, texts, st.sampled_from(["any", "doc_id", "path", "phrase"]), st.integers(1, 5)
) | st.builds(Expected, texts, st.just("phrase"), st.integers(1, 5), texts)
questions = st.builds(
    Question, st.just("q"), texts, st.lists(sources, min_size=1, max_size=3).map(tuple), st.none() | texts
)


@given(question=questions)
def test_questions_come_back_as_they_were_written(question: Question, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("q") / "q.jsonl"
    write_questions(path, [question])
    assert read_collection(path).questions == (question,)


@pytest.fixture
def indexer(tmp_path: Path):
    with DualIndexer(tmp_path / "store", "hash") as store:
        store.index_documents(
            [
                SourceDocument("kb/a.md", "First   line\nof A. 第一段。", {"source": "/srv/docs/a.md"}),
                SourceDocument("kb/data.md", "About data.", {"source": "/srv/docs/data.md"}),
                SourceDocument("secret", "Lina's code is 7741.", {}, "lina"),
            ]
        )
        yield store


def hit(doc_id: str, text: str, **metadata: str) -> Hit:
    return Hit(doc_id, 0, text, 1.0, metadata)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("kb/a.md", "doc_id"),
        ("docs/a.md", "path"),
        ("a.md", "path"),
        ("docs\\a.md", "path"),
        ("first line of a.", "phrase"),
        ("第一段", "phrase"),
    ],
)
def test_a_source_may_be_named_in_any_way(source: str, kind: str, indexer: DualIndexer):
    (judged,) = judge_questions(indexer, [Question("q", "?", (Expected(source),))])
    assert judged.sources[0].kind == kind
    assert not judged.missing
    assert judged.is_expected(hit("kb/a.md", "First line of A. 第一段。", source="/srv/docs/a.md"))
    assert not judged.is_expected(hit("kb/data.md", "About data.", source="/srv/docs/data.md"))


@pytest.mark.parametrize(("agent", "missing"), [(None, True), ("otto", True), ("Lina", True), ("lina", False)])
def test_what_an_agent_cannot_see_is_missing_for_it(agent: str | None, missing: bool, indexer: DualIndexer):
    for source in ("secret", "code is 7741"):
        (judged,) = judge_questions(indexer, [Question("q", "?", (Expected(source),), agent)])
        assert bool(judged.missing) == missing


def test_several_chunks_of_one_source_count_once(indexer: DualIndexer):
    (judged,) = judge_questions(indexer, [Question("q", "?", (Expected("kb/a.md"),))])
    hits = [hit("kb/data.md", "x"), hit("kb/a.md", "one"), hit("kb/a.md", "two"), hit("kb/data.md", "y")]
    assert judged.units(hits) == ["document:kb/data.md", "doc_id::kb/a.md"]


def test_a_phrase_may_be_bound_to_one_document(indexer: DualIndexer):
    (judged,) = judge_questions(indexer, [Question("q", "?", (Expected("line", "phrase", document="kb/a.md"),))])
    assert judged.is_expected(hit("kb/a.md", "a line"))
    assert not judged.is_expected(hit("kb/data.md", "a line"))
