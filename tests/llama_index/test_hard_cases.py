"""Cases from other projects' trackers that concern every face: running loops, copies, wrong arguments."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.llama_index import (
    AgentQueryEngine,
    HybridMemoryBlock,
    HybridRetriever,
    HybridVectorStore,
    StoreEmbedding,
    as_query_engine_tool,
)
from langchain_agentrag.testing.llama_index import run_counting_ticks

SECRET = "口令是芝麻 sk-12345"
HYBRID = VectorStoreQueryMode.HYBRID


@pytest.fixture
def filled(indexer):
    indexer.index_documents([SourceDocument("d", SECRET)])
    return indexer


def faces(indexer) -> dict[str, object]:
    retriever = HybridRetriever(indexer, 1)
    return {
        "retriever": retriever,
        "store": HybridVectorStore(indexer),
        "engine": AgentQueryEngine(retriever),
        "tool": as_query_engine_tool(retriever),
        "memory": HybridMemoryBlock(indexer=indexer, agent_id="a"),
        "embedding": StoreEmbedding(indexer),
    }


def sync_calls(indexer) -> dict:
    built = faces(indexer)
    query = VectorStoreQuery(query_str="口令", similarity_top_k=1, mode=HYBRID)
    return {
        "retriever": lambda: built["retriever"].retrieve("口令")[0].text,
        "store": lambda: built["store"].query(query).nodes[0].text,
        "engine": lambda: built["engine"].query("口令").source_nodes[0].text,
        "tool": lambda: built["tool"].call(query="口令").raw_output[0].text,
        "index": lambda: (
            built["store"].as_index().as_retriever(vector_store_query_mode="hybrid").retrieve("口令")[0].text
        ),
    }


def async_calls(indexer) -> dict:
    built = faces(indexer)
    query = VectorStoreQuery(query_str="口令", similarity_top_k=1, mode=HYBRID)
    return {
        "retriever": lambda: built["retriever"].aretrieve("口令"),
        "store": lambda: built["store"].aquery(query),
        "engine": lambda: built["engine"].aquery("口令"),
        "tool": lambda: built["tool"].acall(query="口令"),
        "memory": lambda: built["memory"].aget([ChatMessage(role="user", content="口令")]),
        "embedding": lambda: built["embedding"].aget_query_embedding("口令"),
    }


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_sync_calls_work_in_a_running_loop_and_async_ones_block_nobody(filled, loop):
    """run-llama/llama_index#8204, #10719; pydantic-ai#3014."""
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None

    async def cell():
        assert {name: work() for name, work in sync_calls(filled).items()} == dict.fromkeys(sync_calls(filled), SECRET)
        return {name: (await run_counting_ticks(work))[1] > 0 for name, work in async_calls(filled).items()}

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(cell()) == dict.fromkeys(async_calls(filled), True)


@pytest.mark.parametrize("name", ["retriever", "store", "engine", "tool", "memory", "embedding"])
def test_copies_work_pickles_say_what_to_do_and_nothing_shows_texts(filled, name):
    """crewAIInc/crewAI#2120, HKUDS/LightRAG#21."""
    face = faces(filled)[name]
    copied = copy.deepcopy(face)
    assert type(copied) is type(face)
    with pytest.raises(TypeError, match="path"):
        pickle.dumps(face)
    dumped = face.model_dump() if hasattr(face, "model_dump") else ""
    text = repr(face) + str(face) + str(dumped)
    assert "sk-" not in text
    assert "芝麻" not in text


def test_copies_search_the_same_store(filled):
    for name in ("retriever", "engine", "tool"):
        copied = copy.deepcopy(faces(filled)[name])
        search = {"retriever": "retrieve", "engine": "query", "tool": "call"}[name]
        assert "芝麻" in str(getattr(copied, search)("口令"))


@pytest.mark.parametrize("kind", [HybridRetriever, HybridVectorStore, HybridMemoryBlock])
@pytest.mark.parametrize("wrong", [{"agent_id": 7}, {"agent_id": ""}, {"kk": 3}, {"similarity_topk": 3}])
def test_wrong_arguments_are_clear_errors(indexer, kind, wrong):
    """langchain-ai/langchain#14659."""
    options = {"agent_id": "a", **wrong} if kind is HybridMemoryBlock else wrong
    with pytest.raises((AgentRagError, ValueError)):
        kind(indexer=indexer, **options)


@pytest.mark.parametrize(
    "query", ["", " ", "\x00", "？", "𠮷", "a" * 20_000, "口令" * 5_000, "\u202e口令", "SELECT * -- '"]
)
def test_odd_queries_are_answered(filled, query):
    assert HybridRetriever(filled).retrieve(query) == asyncio.run(HybridRetriever(filled).aretrieve(QueryBundle(query)))
    assert as_query_engine_tool(HybridRetriever(filled)).call(query).content
    for mode in VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE:
        HybridVectorStore(filled).query(VectorStoreQuery(query_str=query, mode=mode))


def test_a_closed_store_is_an_error(tmp_path):
    indexer = DualIndexer(tmp_path / "s", "hash")
    HybridVectorStore(indexer).add([TextNode(text="x")])
    built = faces(indexer)
    indexer.close()
    for attempt in (
        lambda: built["retriever"].retrieve("x"),
        lambda: built["store"].query(VectorStoreQuery(query_str="x")),
        built["store"].get_nodes,
        lambda: built["engine"].query("x"),
        lambda: built["tool"].call("x"),
    ):
        with pytest.raises(AgentRagError, match="closed"):
            attempt()
