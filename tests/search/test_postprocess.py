"""What happens between the fused ranking and the answer, on a real store in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.langchain.retriever import HybridRetriever
from langchain_agentrag.langchain.tools import SearchTool
from langchain_agentrag.llama_index import HybridRetriever as LlamaRetriever
from langchain_agentrag.text.chunking import Chunking
from langchain_agentrag.types import Hit, Hits

PARTS = [f"第{name}段讲{topic}，part {n} tells of {topic} 的保养。" for n, (name, topic) in enumerate(
    zip("甲乙丙丁戊己庚辛", ["油泵", "轴承", "电机", "阀门", "齿轮", "滤芯", "主轴", "导轨"], strict=True)
)]  # fmt: skip
MANUAL = "\n\n".join(PARTS)


@pytest.fixture
def indexer(tmp_path: Path):
    chunking = Chunking(size=40, overlap=0) if "size" in Chunking.__dataclass_fields__ else Chunking(max_chars=40)
    with DualIndexer(tmp_path / "store", "hash", chunking=chunking) as store:
        store.index_documents(
            [
                SourceDocument("manual", MANUAL),
                SourceDocument("copy-1", "刀库卡住时按急停。Press stop when the arm is stuck.", {"lang": "zh"}),
                SourceDocument("copy-2", "刀库卡住时，按急停！ Press STOP when the arm is stuck", {"lang": "zh"}),
                SourceDocument("other", "刀库卡住时拨打电话 110。Call when the arm is stuck."),
            ]
        )
        store.index_documents(
            [SourceDocument("copy-3", "刀库卡住时按急停。 Press stop when the arm is stuck!")], "lina"
        )
        yield store


def exact(indexer: DualIndexer, hit: Hit, agent: str | None = None) -> bool:
    (document,) = indexer.get([hit.doc_id], agent_id=agent)
    return document.text[hit.start : hit.end] == hit.text


def chunks(indexer: DualIndexer) -> int:
    return indexer.read("manual", 0).total_chunks


# ----- neighbours


@pytest.mark.parametrize("reach", [1, 2, 50])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_neighbours_are_exact_and_come_once(reach: int, k: int, indexer: DualIndexer):
    hits = indexer.search("齿轮 保养", k, neighbours=reach)
    covered: list[tuple[str, int]] = []
    for hit in hits:
        assert exact(indexer, hit)
        first, last = hit.covers or (hit.chunk_id, hit.chunk_id)
        assert first <= hit.chunk_id <= last
        covered += [(hit.doc_id, chunk) for chunk in range(first, last + 1)]
    assert len(covered) == len(set(covered)), "no chunk comes twice"


def test_a_hit_grows_on_both_sides_and_keeps_its_address(indexer: DualIndexer):
    plain = indexer.search("齿轮", 1)[0]
    grown = indexer.search("齿轮", 1, neighbours=1)[0]
    assert (grown.doc_id, grown.chunk_id, grown.score) == (plain.doc_id, plain.chunk_id, plain.score)
    assert grown.covers == (plain.chunk_id - 1, plain.chunk_id + 1)
    assert plain.text in grown.text
    read = indexer.read("manual", plain.chunk_id, before=1, after=1)
    assert grown.text == read.text
    assert all(grown.text[a:b] in grown.explanation.matched for a, b in grown.explanation.highlights)
    assert "齿轮" in grown.explanation.matched
    assert "read with it" in grown.explanation.steps[0]


def test_everything_of_a_document_is_the_document(indexer: DualIndexer):
    hit = indexer.search("齿轮", 1, neighbours=50)[0]
    assert hit.text == MANUAL
    assert hit.whole
    assert hit.covers == (0, chunks(indexer) - 1)


def test_merging_leaves_no_place_empty(indexer: DualIndexer):
    for k in (1, 2, 3):
        assert len(indexer.search("保养 齿轮 刀库", k, neighbours=1)) == k


def test_a_document_changed_meanwhile_stays_as_it_was_found(indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch):
    from langchain_agentrag.search import postprocess

    grow = postprocess.expand_neighbours

    def changed_first(*args, **options):
        indexer.index_documents([SourceDocument("manual", "Something else entirely, 别的内容。")])
        return grow(*args, **options)

    monkeypatch.setattr(postprocess, "expand_neighbours", changed_first)
    hits = indexer.search("齿轮", 1, neighbours=1)
    assert hits[0].covers is None
    assert "齿轮" in hits[0].text


@pytest.mark.parametrize("wrong", [-1, 51, 1.5, True, "1"])
def test_impossible_reaches_are_refused(wrong: object, indexer: DualIndexer):
    with pytest.raises(InvalidQueryError, match="neighbours"):
        indexer.search("x", neighbours=wrong)


# ----- duplicates


def test_near_duplicates_become_one_that_names_the_others(indexer: DualIndexer):
    plain = indexer.search("刀库卡住 按急停", 3)
    assert {"copy-1", "copy-2"} <= {hit.doc_id for hit in plain}
    hits = indexer.search("刀库卡住 按急停", 3, collapse=True)
    first = hits[0]
    assert {first.doc_id, *(source.doc_id for source in first.also_in)} == {"copy-1", "copy-2"}
    assert len(hits) == 3, "others move up"
    assert "other" in {hit.doc_id for hit in hits}, "another number is another statement"
    assert first.also_in[0].metadata == {"lang": "zh"}


def test_a_private_copy_is_named_to_its_owner_alone(indexer: DualIndexer):
    def places(agent: str | None) -> set[str]:
        hits = indexer.search("刀库卡住 按急停", 5, agent_id=agent, collapse=True, explain=True)
        dropped = {one.doc_id for one in hits.trace.dropped}
        return dropped | {name for hit in hits for name in (hit.doc_id, *(one.doc_id for one in hit.also_in))}

    assert "copy-3" in places("lina")
    assert "copy-3" not in places(None) | places("otto")


def test_the_overlap_threshold_is_an_option(indexer: DualIndexer):
    assert not indexer.search("刀库", 5, collapse=False)[0].also_in
    loose = indexer.search("齿轮 保养", 8, collapse=0.05)
    assert len(loose) <= len(indexer.search("齿轮 保养", 8))
    for wrong in (0, -0.1, 1.1, "much"):
        with pytest.raises(InvalidQueryError, match="collapse"):
            indexer.search("x", collapse=wrong)


# ----- together, and explained


def backwards(query: str, texts: list[str]) -> list[float]:
    return [place / len(texts) for place in range(len(texts))]


def test_all_stages_combine_and_each_is_in_the_trace(indexer: DualIndexer):
    hits = indexer.search(
        "刀库卡住 保养",
        3,
        collapse=True,
        reranker=backwards,
        diversity=0.5,
        neighbours=1,
        max_per_document=3,
        explain=True,
    )
    assert len(hits) == 3
    assert all(exact(indexer, hit) for hit in hits)
    steps = " ".join(step for hit in hits for step in hit.explanation.steps)
    assert "reranked from" in steps
    assert "stands for 1 more" in steps or any("near-duplicate" in one.reason for one in hits.trace.dropped)
    names = {(hit.doc_id, hit.chunk_id) for hit in hits}
    assert not names & {(one.doc_id, one.chunk_id) for one in hits.trace.dropped}


def test_the_trace_has_the_reason_for_each_dropped_candidate(indexer: DualIndexer):
    def reasons(**options) -> dict[str, set[str]]:
        hits = indexer.search("保养 刀库卡住", explain=True, **options)
        traces: dict[str, set[str]] = {}
        for one in hits.trace.dropped:
            traces.setdefault(one.reason, set()).add(one.doc_id)
        return traces

    assert reasons(k=1).keys() == {"behind the first 1"}
    assert "more than 1 of the same document" in reasons(k=20, max_per_document=1)
    assert "below the threshold of 0.5" in reasons(k=20, score_threshold=0.5)
    assert reasons(k=20, filter={"lang": "zh"})["excluded by the filter"] >= {"manual", "other"}
    assert "near-duplicate of copy-1" in reasons(k=20, collapse=True) or "near-duplicate of copy-2" in reasons(
        k=20, collapse=True
    )
    assert "left out by the reranker" in reasons(k=20, reranker=_FirstOnly())


class _FirstOnly:
    def compress_documents(self, documents, query, callbacks=None):
        return list(documents)[:1]


def test_there_is_no_trace_without_explain(indexer: DualIndexer):
    assert indexer.search("刀库").trace is None
    trace = indexer.search("刀库", explain=True, filter={"lang": "zh"}, after="2020-01-01").trace
    assert "lang" in trace.filter
    assert "2020-01-01" in trace.filter
    assert trace.searched == "刀库"


@pytest.mark.parametrize("query", ["刀库卡住 arm stuck", "part 3 阀门的保养", "E1102 press STOP", "保养 保养 保养"])
@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_points_of_the_words_add_up_to_the_score(query: str, mode: str, indexer: DualIndexer):
    for hit in indexer.search(query, 5, mode=mode):
        why = hit.explanation
        if why.keyword is None:
            assert why.terms == ()
            continue
        assert sum(points for _, points in why.terms) == pytest.approx(why.keyword.raw)
        assert [points for _, points in why.terms] == sorted((points for _, points in why.terms), reverse=True)
        assert all(points > 0 for _, points in why.terms)


def test_lazy_explanations_are_equal_for_equal_searches(indexer: DualIndexer):
    import pickle

    first, second = (indexer.search("刀库卡住", 2, neighbours=1)[0] for _ in range(2))
    assert first.explanation.terms == second.explanation.terms
    assert first.explanation.highlights == second.explanation.highlights
    assert first == second
    assert pickle.loads(pickle.dumps(first)) == second
    assert first.explanation.as_dict() == second.explanation.as_dict()


def test_the_drawing_escapes_and_shows_it_all(indexer: DualIndexer):
    hits = indexer.search("<b>刀库</b> 卡住", 2, collapse=True, explain=True, filter={"lang": {"$ne": "<i>"}})
    page = hits._repr_html_()
    assert "<b>刀库" not in page
    assert "&lt;i&gt;" in page
    for part in ('class="term"', "stands for 1 more", "also in", "not in the answer", "<mark>"):
        assert part in page
    assert "not in the answer" not in Hits(hits, query="x")._repr_html_()


# ----- every face


def test_langchain(indexer: DualIndexer):
    retriever = HybridRetriever(indexer=indexer, k=3, collapse=True, neighbours=1, explain=True)
    documents = retriever.invoke("刀库卡住 按急停")
    assert documents[0].metadata["also_in"][0].startswith("copy-")
    assert documents[0].metadata["explanation"]["terms"]
    assert "also_in" not in retriever.invoke("刀库卡住 按急停", collapse=False)[0].metadata
    grown = retriever.invoke("齿轮", k=1, neighbours=2)[0]
    assert MANUAL.count(grown.page_content) == 1
    assert len(grown.page_content) > len(indexer.search("齿轮", 1)[0].text)


def test_llama_index(indexer: DualIndexer):
    nodes = LlamaRetriever(indexer, 3, collapse=True, neighbours=1).retrieve("刀库卡住 按急停")
    assert nodes[0].node.metadata["agentrag"]["steps"]
    assert nodes[0].node.metadata["agentrag"]["terms"]


def test_tool(indexer: DualIndexer):
    tool = SearchTool(indexer=indexer, options={"collapse": True, "neighbours": 1})
    message = tool.invoke({"type": "tool_call", "id": "1", "name": "search", "args": {"query": "刀库卡住 按急停"}})
    assert "also_in=" in message.content
    assert message.artifact[0]["also_in"]
