"""Conformance tests of LlamaIndex retrievers and vector stores, to inherit from or to run as a table."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from langchain_agentrag.testing.conformance import conformance_table, expect, outcomes

__all__ = [
    "RetrieverConformance",
    "VectorStoreConformance",
    "conformance_table",
    "expect",
    "outcomes",
    "owner_filter",
    "run_counting_ticks",
]

T = TypeVar("T")


async def run_counting_ticks(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """Return the result of a coroutine, and how often the event loop ran another one meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async def timed() -> tuple[T, int]:
        return await work(), ticks

    # scheduled first: a coroutine that never yields is done before the first tick
    running = asyncio.ensure_future(timed())
    ticker = asyncio.ensure_future(tick())
    try:
        return await running
    finally:
        ticker.cancel()


_POEM = ("床前明月光", "疑是地上霜", "举头望明月", "低头思故乡")


def owner_filter(agent: str) -> MetadataFilters:
    """Return the filter of one agent's nodes."""
    return MetadataFilters(filters=[MetadataFilter(key="owner", value=agent)])


class RetrieverConformance(ABC):
    """Conformance tests of a retriever."""

    @abstractmethod
    def make_retriever(
        self, nodes: Sequence[TextNode], k: int, filters: MetadataFilters | None = None
    ) -> BaseRetriever:
        """Create a retriever that returns up to k of those nodes that match the filters."""

    def test_a_chinese_word_finds_its_line(self) -> None:
        """See run-llama/llama_index#13866."""
        retriever = self.make_retriever(_text_nodes(_POEM), 1)
        for line, word in zip(_POEM, ("床前", "地上霜", "举头", "故乡"), strict=True):
            expect(_texts(retriever.retrieve(word)) == [line], f"{word} does not find {line}")

    def test_codes_and_versions_are_words(self) -> None:
        """Codes in mixed text match exactly."""
        texts = ("错误 E-502：泵停机", "错误 E-503：阀泄漏", "组件 v1.2.3 发布", "component v1.2.4 released")
        retriever = self.make_retriever(_text_nodes(texts), 1)
        for code, place in (("E-502", 0), ("E-503", 1), ("v1.2.3", 2), ("v1.2.4", 3)):
            expect(_texts(retriever.retrieve(code)) == [texts[place]], f"{code} does not find its passage")

    def test_the_filter_holds_when_fewer_match_than_are_wanted(self) -> None:
        """Results are not filled up with nodes that the filter excludes."""
        self._expect_only_owner_a("密钥 secret", 4)

    def test_the_filter_holds_when_no_word_matches(self) -> None:
        """A query without a match returns no node that the filter excludes."""
        self._expect_only_owner_a("zzz 不存在", 2)

    def test_the_filter_holds_for_an_empty_query(self) -> None:
        """Nor does a query without content."""
        for query in ("", " ", "？！", "the"):
            self._expect_only_owner_a(query, 2)

    def test_what_nothing_speaks_for_is_not_returned(self) -> None:
        """A passage unrelated to the query in words and meaning is not returned."""
        retriever = self.make_retriever(_text_nodes(("红苹果 apple", "蓝天空 sky", "绿草地 grass")), 3)
        texts = _texts(retriever.retrieve("红苹果 apple"))
        expect(texts[:1] == ["红苹果 apple"], "the passage itself is not first")
        expect(len(texts) == 1, f"junk beside the answer: {texts[1:]}")

    def test_wanting_more_than_there_is_changes_nothing(self) -> None:
        """A larger k than the corpus neither fails nor changes the retriever."""
        retriever = self.make_retriever(_text_nodes(_POEM), 9)
        nodes = retriever.retrieve("明月")
        expect(len(nodes) <= len(_POEM), "more nodes than there are")
        expect({"床前明月光", "举头望明月"} <= set(_texts(nodes)), "a line with the word is missing")

    def test_an_empty_corpus_answers_nothing(self) -> None:
        """An empty corpus is not an error."""
        expect(self.make_retriever([], 3).retrieve("明月") == [], "something was found in nothing")

    def test_scores_are_numbers_from_0_to_1_best_first(self) -> None:
        """Scores can be compared and cut off."""
        nodes = self.make_retriever(_text_nodes(_POEM), 4).retrieve("举头望明月")
        raw = [node.score for node in nodes]
        scores = [score for score in raw if type(score) is float and 0 <= score <= 1]
        expect(scores, "nothing was found")
        expect(scores == raw, f"scores are {raw}")
        expect(scores == sorted(scores, reverse=True), f"scores are not in order: {scores}")
        expect(scores[0] > 0.3, f"an exact match scores {scores[0]}: a cutoff would remove it")  # noqa: PLR2004

    def test_asking_again_gives_the_same(self) -> None:
        """Retrieval has no side effects."""
        retriever = self.make_retriever(_text_nodes(_POEM), 3)
        first, second = ([(node.node_id, node.score) for node in retriever.retrieve("明月")] for _ in range(2))
        expect(first == second, f"{first} then {second}")

    def test_nodes_come_back_under_their_ids_once(self) -> None:
        """Nodes of equal text stay separate; ids are unchanged."""
        nodes = _text_nodes(("重复的段落 twin", "重复的段落 twin", "另一个 other"))
        retrieved = self.make_retriever(nodes, 3).retrieve("重复的段落 twin")
        ids = [node.node_id for node in retrieved]
        expect(len(ids) == len(set(ids)), f"repeated: {ids}")
        expect({"n0", "n1"} <= set(ids), f"one of the twins is lost: {ids}")

    def test_the_same_node_found_twice_has_the_same_hash(self) -> None:
        """Fusion identifies nodes by hash, so the hash must not depend on the query."""
        retriever = self.make_retriever(_text_nodes(_POEM), 4)
        hashes = [
            {node.node_id: node.node.hash for node in retriever.retrieve(query)} for query in ("明月", "举头望明月")
        ]
        shared = hashes[0].keys() & hashes[1].keys()
        expect(shared, "the two queries share no node")
        expect(all(hashes[0][name] == hashes[1][name] for name in shared), "a hash depends on the query")

    def test_bookkeeping_stays_out_of_prompts(self) -> None:
        """An LLM sees the node's text and its original metadata only."""
        node = TextNode(id_="n", text="举头望明月", metadata={"poet": "李白"})
        for retrieved in self.make_retriever([node], 1).retrieve("明月"):
            content = retrieved.node.get_content(MetadataMode.LLM)
            expect(content == "poet: 李白\n\n举头望明月", f"an LLM sees {content!r}")

    def test_a_query_bundle_may_bring_strings_to_embed(self) -> None:
        """HyDE queries do."""
        bundle = QueryBundle("明月", custom_embedding_strs=["举头望明月", "床前明月光"])
        expect(self.make_retriever(_text_nodes(_POEM), 2).retrieve(bundle), "nothing was found")

    def test_async_finds_the_same_and_blocks_nobody(self) -> None:
        """`aretrieve` returns what `retrieve` returns and does not block other coroutines."""
        retriever = self.make_retriever(_text_nodes([f"第{n}段 passage {n} 明月" for n in range(300)]), 5)
        plain = [(node.node_id, node.score) for node in retriever.retrieve("明月 passage")]
        nodes, ticks = asyncio.run(run_counting_ticks(lambda: retriever.aretrieve("明月 passage")))
        expect(plain == [(node.node_id, node.score) for node in nodes], "async finds something else")
        expect(ticks, "the event loop was blocked")

    def test_retrieve_works_inside_a_running_loop(self) -> None:
        """Needed in notebooks, without nest_asyncio."""
        retriever = self.make_retriever(_text_nodes(_POEM), 1)

        async def cell() -> list[NodeWithScore]:
            return retriever.retrieve("故乡")

        expect(_texts(asyncio.run(cell())) == ["低头思故乡"], "the line is not found")

    def _expect_only_owner_a(self, query: str, k: int) -> None:
        texts = ("公开 open", "备忘 memo", "密钥 secret 一", "密钥 secret 二")
        nodes = [
            TextNode(id_=f"n{place}", text=text, metadata={"owner": "a" if place < 2 else "b"})  # noqa: PLR2004
            for place, text in enumerate(texts)
        ]
        retrieved = self.make_retriever(nodes, k, owner_filter("a")).retrieve(query)
        foreign = [node.text for node in retrieved if node.node.metadata["owner"] != "a"]
        expect(not foreign, f"{query!r} returned {foreign}")


def _text_nodes(texts: Sequence[str]) -> list[TextNode]:
    return [TextNode(id_=f"n{place}", text=text) for place, text in enumerate(texts)]


def _texts(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [node.node.get_content(MetadataMode.NONE) for node in nodes]


_LEAVES = tuple(
    MetadataFilter(key=key, value=value, operator=operator)
    for key, value, operator in (
        ("n", 1, FilterOperator.EQ),
        ("n", 1, FilterOperator.NE),
        ("n", 1, FilterOperator.GT),
        ("n", 1, FilterOperator.GTE),
        ("n", 2, FilterOperator.LT),
        ("n", 1, FilterOperator.LTE),
        ("n", [1, 5], FilterOperator.IN),
        ("n", [1, 5], FilterOperator.NIN),
        ("l", ["y", "z"], FilterOperator.ANY),
        ("l", ["x", "y"], FilterOperator.ALL),
        ("t", "b甲", FilterOperator.TEXT_MATCH),
        ("t", "aB", FilterOperator.TEXT_MATCH_INSENSITIVE),
        ("l", "x", FilterOperator.CONTAINS),
        ("l", None, FilterOperator.IS_EMPTY),
    )
)


class VectorStoreConformance(ABC):
    """Conformance tests of a vector store that stores text."""

    @abstractmethod
    def make_store(self) -> BasePydanticVectorStore:
        """Create an empty vector store."""

    @abstractmethod
    def embed(self, text: str) -> list[float]:
        """Return the embedding of a text."""

    def test_adding_an_id_again_replaces_it(self) -> None:
        """Text and index entries of the old node are gone."""
        store = self._store_with("旧的 old")
        store.add(self._with_embeddings([TextNode(id_="n0", text="新的 new")]))
        expect(_result_texts(self._query(store, "新的 new", 5)) == ["新的 new"], "the old text is still there")

    def test_nodes_come_back_equal(self) -> None:
        """Hash, metadata of any type, relationships and offsets are unchanged."""
        node = TextNode(
            id_="n0",
            text="原样 verbatim",
            metadata={"none": None, "list": ["甲", "乙"], "deep": {"是": True}, "doc_id": "own", "flag": False},
            excluded_llm_metadata_keys=["none"],
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="source")},
            start_char_idx=3,
            end_char_idx=12,
        )
        store = self.make_store()
        store.add(self._with_embeddings([node]))
        back = next(iter(self._query(store, "原样 verbatim", 1).nodes or ()), None)
        expect(isinstance(back, TextNode), "no text node came back")
        if back is not None:
            expect(_without_embedding(back) == _without_embedding(node), f"{back!r} is not {node!r}")
            expect(back.hash == node.hash, "the hash differs")

    def test_word_modes_go_by_words(self) -> None:
        """Sparse and text search match words, whatever the embedding."""
        store = self._store_with("错误 E-502", "错误 E-503", "别的 other")
        for mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH):
            query = VectorStoreQuery(
                query_str="E-503", query_embedding=self.embed("错误 E-502"), similarity_top_k=1, mode=mode
            )
            expect(_result_texts(store.query(query)) == ["错误 E-503"], f"{mode.value} uses the embedding")

    def test_hybrid_mode_obeys_alpha(self) -> None:
        """alpha=0 uses words only, alpha=1 vectors only."""
        store = self._store_with("错误 E-502", "错误 E-503", "别的 other")
        for alpha, text in ((0.0, "错误 E-503"), (1.0, "错误 E-502")):
            query = VectorStoreQuery(
                query_str="E-503",
                query_embedding=self.embed("错误 E-502"),
                similarity_top_k=1,
                mode=VectorStoreQueryMode.HYBRID,
                alpha=alpha,
            )
            expect(_result_texts(store.query(query)) == [text], f"alpha={alpha} is ignored")

    def test_a_mode_it_cannot_answer_is_an_error(self) -> None:
        """An unsupported mode is not silently replaced."""
        query = VectorStoreQuery(self.embed("x"), query_str="x", mode=VectorStoreQueryMode.SVM)
        try:
            result = self._store_with("x").query(query)
        except (ValueError, NotImplementedError, ImportError):
            return
        expect(False, f"svm was answered with {result.ids}")  # noqa: FBT003

    def test_ids_constrain_and_no_ids_do_not(self) -> None:
        """`VectorStoreIndex.as_retriever` passes `[]` for "no constraint"."""
        store = self._store_with("甲 one", "乙 two", "丙 three")
        unconstrained = self._query(store, "甲 one", 3, node_ids=[])
        expect(len(unconstrained.ids or []) == 3, "[] finds nothing")  # noqa: PLR2004
        expect(self._query(store, "甲 one", 3, node_ids=["n1"]).ids == ["n1"], "node_ids are ignored")
        expect(self._query(store, "甲 one", 3, doc_ids=["d2"]).ids == ["n2"], "doc_ids are ignored")

    def test_every_operator_means_what_llama_index_says(self) -> None:
        """All 14 operators agree with `build_metadata_filter_fn`."""
        store = self.make_store()
        metadatas = [{"t": "Ab甲", "n": 1, "l": ["x", "y"]}, {"t": "", "n": 2, "l": []}, {}]
        nodes = [TextNode(id_=f"n{n}", text=f"段 {n}", metadata=metadata) for n, metadata in enumerate(metadatas)]
        store.add(self._with_embeddings(nodes))
        for leaf in _LEAVES:
            filters = MetadataFilters(filters=[leaf])
            keep = build_metadata_filter_fn(lambda name: metadatas[int(name[1:])], filters)
            expected = {f"n{n}" for n in range(len(metadatas)) if keep(f"n{n}")}
            ids = set(self._query(store, "段", 3, filters=filters).ids or [])
            expect(ids == expected, f"{leaf.operator.value} {leaf.value!r}: {ids} instead of {expected}")

    def test_filters_may_be_nested(self) -> None:
        """And, or, not combine at any depth."""
        store = self.make_store()
        store.add(self._with_embeddings([TextNode(id_=f"n{n}", text=f"段 {n}", metadata={"n": n}) for n in range(4)]))
        either = MetadataFilters(
            filters=[MetadataFilter(key="n", value=n) for n in (1, 2)], condition=FilterCondition.OR
        )
        neither = MetadataFilters(filters=[either], condition=FilterCondition.NOT)
        more = MetadataFilters(filters=[neither, MetadataFilter(key="n", value=3, operator=FilterOperator.LT)])
        expect(self._query(store, "段", 4, filters=more).ids == ["n0"], "a nested filter keeps something else")

    def test_deleting_takes_what_was_meant(self) -> None:
        """Delete by source document, by filter, by id; absent ones are no error."""
        store = self._store_with("甲 one", "乙 two", "丙 three", "丁 four")
        store.delete("None")
        store.delete("absent")
        store.delete("d0")
        store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="place", value=1)]))
        store.delete_nodes(["n2", "absent"])
        expect(self._query(store, "丁 four", 4).ids == ["n3"], "the wrong nodes were deleted")
        store.clear()
        store.clear()
        expect(not self._query(store, "丁 four", 4).ids, "clear() left nodes")

    def test_nodes_are_fetched_by_id_and_by_filter(self) -> None:
        """Ids or filters suffice."""
        store = self._store_with("甲 one", "乙 two")
        expect([node.node_id for node in store.get_nodes(["n1"])] == ["n1"], "not by id")
        filters = MetadataFilters(filters=[MetadataFilter(key="place", value=0)])
        expect([node.node_id for node in store.get_nodes(filters=filters)] == ["n0"], "not by filter")

    def test_many_nodes_are_added_at_once(self) -> None:
        """More nodes than the backend's maximum batch size."""
        store, vector = self.make_store(), self.embed("x")
        nodes = [TextNode(id_=f"n{n}", text=f"{n}", embedding=vector) for n in range(5_600)]
        expect(len(store.add(nodes)) == len(nodes), "ids are missing")

    def test_aquery_blocks_nobody(self) -> None:
        """Other coroutines run meanwhile."""
        store = self._store_with(*(f"第{n}段 passage" for n in range(300)))
        query = VectorStoreQuery(self.embed("passage"), query_str="passage", similarity_top_k=3)
        plain = store.query(query).ids
        result, ticks = asyncio.run(run_counting_ticks(lambda: store.aquery(query)))
        expect(result.ids == plain, "async finds something else")
        expect(ticks, "the event loop was blocked")

    def _store_with(self, *texts: str) -> BasePydanticVectorStore:
        store = self.make_store()
        nodes = [
            TextNode(
                id_=f"n{place}",
                text=text,
                metadata={"place": place},
                relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"d{place}")},
            )
            for place, text in enumerate(texts)
        ]
        store.add(self._with_embeddings(nodes))
        return store

    def _with_embeddings(self, nodes: list[TextNode]) -> list[BaseNode]:
        return [node.model_copy(update={"embedding": self.embed(node.text)}) for node in nodes]

    def _query(self, store: BasePydanticVectorStore, text: str, k: int, **constraints: Any) -> VectorStoreQueryResult:
        return store.query(VectorStoreQuery(self.embed(text), k, query_str=text, **constraints))


def _result_texts(result: VectorStoreQueryResult) -> list[str]:
    return [node.get_content(MetadataMode.NONE) for node in result.nodes or ()]


def _without_embedding(node: BaseNode) -> dict[str, Any]:
    return node.model_dump(exclude={"embedding"})


__all__ = ["RetrieverConformance", "VectorStoreConformance", "conformance_table", "outcomes"]
