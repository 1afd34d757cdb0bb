"""Confidence: high where the words are there, low for nonsense in both languages, and the same whatever ranks the hits."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from langchain_agentrag import DualIndexer, SearchTool, SourceDocument
from langchain_agentrag.cli.output import hits_document
from langchain_agentrag.cli.render import hits_table
from langchain_agentrag.llama_index import AgentQueryEngine, HybridRetriever, citations
from langchain_agentrag.llama_index.query_engine import NOTHING_CONVINCING
from langchain_agentrag.types import CONVINCING

TOPICS = {
    "zh": [
        "变频器报警 E1102 表示冷却水流量不足，请检查水泵和过滤网。",
        "员工每年可享受十五天带薪年假，需提前两周申请。",
        "报销差旅费须在返回后三十天内提交发票和行程单。",
        "云帆科技的总部位于杭州滨江区网商路。",
        "服务器每周日凌晨三点自动备份到异地机房。",
        "新员工入职当天领取门禁卡和笔记本电脑。",
    ],
    "en": [
        "Alarm E2207 means that the spindle overheated; stop the machine and let it cool.",
        "Customers may return a keyboard within thirty days for a full refund.",
        "The library opens at nine and closes at six on weekdays.",
        "Our office in Lisbon has a terrace with a view of the river.",
        "Passwords expire after ninety days and must differ from the last five.",
        "The cafeteria serves vegetarian meals on Tuesdays and Thursdays.",
    ],
}
ASKED = [
    "变频器报警 E1102 怎么处理",
    "带薪年假有几天",
    "差旅费报销需要提交什么发票",
    "spindle overheated alarm E2207",
    "When do passwords expire?",
    "return a keyboard for a refund",
]
NONSENSE = [
    "锟斤拷烫屯葛霍逵馥",
    "嘟嘟嘟哒哒哒呜呜",
    "blorple frangible snizzwump",
    "xyzzy plugh quux",
    "qwer 嘎嘣 zxcv",
    "kozumi relbadan vekyod",
]


@pytest.fixture(scope="module")
def indexer(tmp_path_factory):
    with DualIndexer(tmp_path_factory.mktemp("confidence") / "s", "hash") as indexer:
        indexer.index_documents(
            [SourceDocument(f"{lang}{n}", text) for lang, texts in TOPICS.items() for n, text in enumerate(texts)]
        )
        indexer.index_documents([SourceDocument("secret", "紫色大象的密码是 77-alpha。", {}, "lina")])
        yield indexer


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_answered_questions_are_distinguished_from_nonsense(indexer, mode):
    answered = [indexer.search(query, mode=mode) for query in ASKED]
    nonsense = [indexer.search(query, mode=mode) for query in NONSENSE]
    assert all(hits.convincing and hits.confidence == hits[0].confidence for hits in answered)
    assert not any(hits.convincing for hits in nonsense)
    assert max(hits.confidence for hits in nonsense) < min(hits.confidence for hits in answered)


@pytest.mark.parametrize("fusion", ["adaptive", "convex", "rrf", "dbsf", "relative"])
def test_the_rule_that_ranks_does_not_change_how_likely_a_hit_is(indexer, fusion):
    usual = {hit.doc_id: hit.confidence for hit in indexer.search(ASKED[0], 20)}
    other = {hit.doc_id: hit.confidence for hit in indexer.search(ASKED[0], 20, fusion=fusion)}
    assert usual == other


def test_every_confidence_is_a_share_and_nothing_found_is_none(indexer):
    for query in (*ASKED, *NONSENSE):
        assert all(0 <= hit.confidence <= 1 for hit in indexer.search(query, 20))
    assert indexer.search("紫色大象", filter={"no": "such"}).confidence == 0
    assert not indexer.search("…").convincing


def test_what_another_agent_knows_makes_nobody_else_confident(indexer):
    query = "紫色大象的密码"
    assert indexer.search(query, agent_id="lina").confidence > 0.5
    assert not indexer.search(query, agent_id="otto").convincing
    assert indexer.search(query, agent_id="otto").confidence == indexer.search(query).confidence


def test_turns_of_another_speaker_than_the_named_one_have_low_confidence(tmp_path):
    turns = [("Melanie", "I ran a charity race for mental health."), ("Caroline", "I love to paint.")]
    turns += [("Melanie", f"Nothing new this week, number {n}.") for n in range(6)]
    with DualIndexer(tmp_path / "s", "hash") as store:
        store.index_documents(
            [SourceDocument(str(n), text, {"speaker": who}, "a") for n, (who, text) in enumerate(turns)]
        )
        right = store.search("What race did Melanie run for charity?", agent_id="a")
        wrong = store.search("What race did Caroline run for charity?", agent_id="a")
    assert right[0].doc_id == "0"
    by_id = {hit.doc_id: hit for hit in wrong}
    assert by_id["0"].confidence < right[0].confidence / 2
    assert by_id["0"].score < right[0].score
    assert any("Caroline" in step for step in by_id["0"].explanation.steps)
    assert not right[0].explanation.steps


@pytest.mark.parametrize(
    ("language", "query", "message"),
    [("en", "blorple frangible snizzwump", "Nothing convincing"), ("zh", "锟斤拷烫屯葛霍逵馥", "没有找到")],
)
def test_the_tool_reports_low_confidence_and_still_lists_its_hits(indexer, language, query, message):
    tool = SearchTool(indexer=indexer, language=language)
    text = tool.invoke({"query": query})
    assert message in text.split("\n")[0]
    assert "doc_id=" in text
    answered = tool.invoke({"query": ASKED[0]})
    assert message not in answered
    records = tool.invoke({"type": "tool_call", "id": "1", "name": "search", "args": {"query": query}}).artifact
    assert records
    assert all(record["confidence"] < CONVINCING for record in records)


@pytest.mark.parametrize(
    ("query", "sure"), [(NONSENSE[0], False), (NONSENSE[2], False), (ASKED[0], True), (ASKED[4], True)]
)
def test_the_query_engine_reports_low_confidence_and_still_cites_its_passages(indexer, query, sure):
    engine = AgentQueryEngine.from_args(HybridRetriever(indexer))
    response = engine.query(query)
    assert str(response).startswith(NOTHING_CONVINCING) != sure
    assert [one.number for one in citations(response)] == list(range(1, len(response.source_nodes) + 1))
    assert all(one.node.metadata for one in response.source_nodes), "the note is no source"


def test_the_command_line_reports_low_confidence_as_text_and_as_json(indexer):
    nonsense, answered = indexer.search(NONSENSE[2]), indexer.search(ASKED[0])
    for hits, unconvincing in ((nonsense, True), (answered, False)):
        console = Console(width=120, record=True, file=StringIO())
        console.print(hits_table(hits))
        assert ("Nothing convincing" in console.export_text()) == unconvincing
        assert hits_document(hits, agent_id=None)["convincing"] != unconvincing
        assert ("nothing convincing" in hits._repr_html_()) == unconvincing
