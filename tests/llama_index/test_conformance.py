"""The conformance suite: ours passes, and what LlamaIndex offers today does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore
from langchain_agentrag.testing.llama_index import RetrieverConformance, conformance_table, outcomes
from tests.llama_index.compare import OurRetriever, OurStore, Stores, UpstreamBM25, UpstreamFusion, UpstreamSimple

pytestmark = pytest.mark.filterwarnings(
    # upstream's own, told to whoever passes more nodes than there are
    "ignore:As bm25s k value:UserWarning",
    "ignore:Could not import:UserWarning",
)


class Folders(Stores):
    """The stores of a test, in its own folder."""

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path):
        Stores.__init__(self, tmp_path)
        yield
        self.close()


class TestHybridRetriever(Folders, OurRetriever):
    __init__ = object.__init__


class TestHybridRetrieverOfAnAgent(Folders, RetrieverConformance):
    __init__ = object.__init__

    def make_retriever(self, nodes, k, filters=None):
        indexer = self.new_indexer()
        HybridVectorStore(indexer).for_agent("别人").add(nodes)
        HybridVectorStore(indexer).for_agent("客服").add(nodes)
        return HybridRetriever(indexer, k, filters=filters).for_agent("客服")


class TestHybridVectorStore(Folders, OurStore):
    __init__ = object.__init__


class TestHybridVectorStoreOfAnAgent(TestHybridVectorStore):
    def make_store(self):
        return HybridVectorStore(self.new_indexer()).for_agent("客服-1")


def failed(suite) -> set[str]:
    return {name.removeprefix("test_") for name, outcome in outcomes(suite).items() if outcome != "yes"}


# What the checks say of LlamaIndex today. One that begins to pass is good news: take it off the list.
UPSTREAM = {
    UpstreamBM25: {
        "a_chinese_word_finds_its_line",
        "codes_and_versions_are_words",
        "the_filter_holds_when_fewer_match_than_are_wanted",
        "the_filter_holds_when_no_word_matches",
        "the_filter_holds_for_an_empty_query",
        "what_nothing_speaks_for_is_not_returned",
        "an_empty_corpus_answers_nothing",
        "async_finds_the_same_and_blocks_nobody",
    },
    UpstreamFusion: {
        "a_chinese_word_finds_its_line",
        "codes_and_versions_are_words",
        "the_filter_holds_when_fewer_match_than_are_wanted",
        "the_filter_holds_when_no_word_matches",
        "the_filter_holds_for_an_empty_query",
        "what_nothing_speaks_for_is_not_returned",
        "an_empty_corpus_answers_nothing",
        "scores_are_numbers_from_0_to_1_best_first",
        "nodes_come_back_under_their_ids_once",
    },
    UpstreamSimple: {
        "adding_an_id_again_replaces_it",
        "nodes_come_back_equal",
        "word_modes_go_by_words",
        "hybrid_mode_obeys_alpha",
        "ids_constrain_and_no_ids_do_not",
        "filters_may_be_nested",
        "nodes_are_fetched_by_id_and_by_filter",
        "aquery_blocks_nobody",
    },
}


@pytest.mark.parametrize("suite", UPSTREAM, ids=lambda suite: suite.__name__)
def test_what_llama_index_offers_fails_these_checks(suite):
    assert failed(suite()) == UPSTREAM[suite]


def test_the_table_shows_each_check_with_its_reason():
    class Half(RetrieverConformance):
        def make_retriever(self, nodes, k, filters=None):
            raise RuntimeError("no | today")

    table = conformance_table({"bm25": UpstreamBM25(), "half": Half()}).splitlines()
    assert table[0] == "| check | bm25 | half |"
    assert len(table) == 2 + len(outcomes(UpstreamBM25()))
    line = next(line for line in table if "asking again" in line)
    assert line == r"| asking again gives the same | yes | **no**: RuntimeError: no \| today |"
