"""What the checks are made of."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

T = TypeVar("T")


def expect(holds: object, message: str) -> None:
    """Fail a check.

    Raises:
        AssertionError: it does not hold.
    """
    if not holds:
        raise AssertionError(message)


async def watched(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What a coroutine returns, and how often another one had its turn meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async def timed() -> tuple[T, int]:
        result = await work()
        return result, ticks

    running = asyncio.ensure_future(
        timed()
    )  # first in line: whoever never yields is done before the first tick
    ticker = asyncio.ensure_future(tick())
    try:
        return await running
    finally:
        ticker.cancel()


OK = "yes"


def outcomes(suite: Any) -> dict[str, str]:
    """Check → "yes", or why not, in the order of the suite."""
    results = {}
    for name in _checks(suite):
        try:
            getattr(suite, name)()
        except Exception as error:  # noqa: BLE001  whatever a candidate raises is its result
            reason = str(error).splitlines()[0] if str(error) else ""
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            results[name] = f"{kind}{reason}"
        else:
            results[name] = OK
    return results


def conformance_table(candidates: Mapping[str, Any]) -> str:
    """A Markdown table: one row per check, one column per candidate.

    Args:
        candidates: Name → an instance of a conformance class; all of the same kind.
    """
    results = {name: outcomes(suite) for name, suite in candidates.items()}
    checks = list(dict.fromkeys(check for found in results.values() for check in found))
    lines = [f"| check | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for check in checks:
        cells = [_cell(found.get(check, "")) for found in results.values()]
        lines.append(f"| {check.removeprefix('test_').replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _checks(suite: Any) -> list[str]:
    ordered = [name for kind in reversed(type(suite).__mro__) for name in vars(kind)]
    return [name for name in dict.fromkeys(ordered) if name.startswith("test_")]


def _cell(outcome: str, most: int = 70) -> str:
    text = outcome if outcome == OK else f"**no**: {outcome}"
    text = text.replace("|", "\\|")
    return text if len(text) <= most else text[: most - 1] + "…"


_POEM = ("床前明月光", "疑是地上霜", "举头望明月", "低头思故乡")


def owned(agent: str) -> MetadataFilters:
    """Filter for one agent's nodes."""
    return MetadataFilters(filters=[MetadataFilter(key="owner", value=agent)])


class RetrieverConformance(ABC):
    """Checks of a retriever."""

    @abstractmethod
    def make_retriever(
        self, nodes: Sequence[TextNode], k: int, filters: MetadataFilters | None = None
    ) -> BaseRetriever:
        """A retriever over these nodes that returns up to k of those that the filters keep."""

    def test_a_chinese_word_finds_its_line(self) -> None:
        """The case of run-llama/llama_index#13866."""
        retriever = self.make_retriever(_nodes(_POEM), 1)
        for line, word in zip(_POEM, ("床前", "地上霜", "举头", "故乡"), strict=True):
            expect(_texts(retriever.retrieve(word)) == [line], f"{word} does not find {line}")

    def test_codes_and_versions_are_words(self) -> None:
        """Codes in mixed text are found exactly."""
        texts = ("错误 E-502：泵停机", "错误 E-503：阀泄漏", "组件 v1.2.3 发布", "component v1.2.4 released")
        retriever = self.make_retriever(_nodes(texts), 1)
        for code, place in (("E-502", 0), ("E-503", 1), ("v1.2.3", 2), ("v1.2.4", 3)):
            expect(_texts(retriever.retrieve(code)) == [texts[place]], f"{code} does not find its passage")

    def test_the_filter_holds_when_fewer_match_than_are_wanted(self) -> None:
        """Nothing from outside fills the list up."""
        self._only_a("密钥 secret", 4)

    def test_the_filter_holds_when_no_word_matches(self) -> None:
        """A query that finds nothing does not find what is forbidden."""
        self._only_a("zzz 不存在", 2)

    def test_the_filter_holds_for_an_empty_query(self) -> None:
        """Neither does a query that says nothing."""
        for query in ("", " ", "？！", "the"):
            self._only_a(query, 2)

    def test_what_nothing_speaks_for_is_not_returned(self) -> None:
        """A passage with neither a word nor a meaning in common with the query is no result."""
        retriever = self.make_retriever(_nodes(("红苹果 apple", "蓝天空 sky", "绿草地 grass")), 3)
        found = _texts(retriever.retrieve("红苹果 apple"))
        expect(found[:1] == ["红苹果 apple"], "the passage itself is not first")
        expect(len(found) == 1, f"junk beside the answer: {found[1:]}")

    def test_wanting_more_than_there_is_changes_nothing(self) -> None:
        """It neither fails nor lowers the number for good."""
        retriever = self.make_retriever(_nodes(_POEM), 9)
        found = retriever.retrieve("明月")
        expect(len(found) <= len(_POEM), "more nodes than there are")
        expect({"床前明月光", "举头望明月"} <= set(_texts(found)), "a line with the word is missing")

    def test_an_empty_corpus_answers_nothing(self) -> None:
        """No documents are no error."""
        expect(self.make_retriever([], 3).retrieve("明月") == [], "something was found in nothing")

    def test_scores_are_numbers_from_0_to_1_best_first(self) -> None:
        """So that a cutoff, and whoever compares, can use them."""
        found = self.make_retriever(_nodes(_POEM), 4).retrieve("举头望明月")
        given = [one.score for one in found]
        scores = [score for score in given if type(score) is float and 0 <= score <= 1]
        expect(scores, "nothing was found")
        expect(scores == given, f"scores are {given}")
        expect(scores == sorted(scores, reverse=True), f"scores are not in order: {scores}")
        expect(scores[0] > 0.3, f"an exact match scores {scores[0]}: a cutoff would remove it")  # noqa: PLR2004

    def test_asking_again_gives_the_same(self) -> None:
        """Nothing is changed by asking."""
        retriever = self.make_retriever(_nodes(_POEM), 3)
        first, second = (
            [(found.node_id, found.score) for found in retriever.retrieve("明月")] for _ in range(2)
        )
        expect(first == second, f"{first} then {second}")

    def test_nodes_come_back_under_their_ids_once(self) -> None:
        """Equal texts stay two nodes; ids are the caller's."""
        nodes = _nodes(("重复的段落 twin", "重复的段落 twin", "另一个 other"))
        found = self.make_retriever(nodes, 3).retrieve("重复的段落 twin")
        ids = [one.node_id for one in found]
        expect(len(ids) == len(set(ids)), f"repeated: {ids}")
        expect({"n0", "n1"} <= set(ids), f"one of the twins is lost: {ids}")

    def test_the_same_node_found_twice_has_the_same_hash(self) -> None:
        """Fusion tells nodes apart by hash; what a query adds must not enter it."""
        retriever = self.make_retriever(_nodes(_POEM), 4)
        hashes = [
            {found.node_id: found.node.hash for found in retriever.retrieve(query)}
            for query in ("明月", "举头望明月")
        ]
        shared = hashes[0].keys() & hashes[1].keys()
        expect(shared, "the two queries share no node")
        expect(all(hashes[0][name] == hashes[1][name] for name in shared), "a hash depends on the query")

    def test_bookkeeping_stays_out_of_prompts(self) -> None:
        """What an LLM reads of a node is its text and the caller's metadata."""
        node = TextNode(id_="n", text="举头望明月", metadata={"poet": "李白"})
        for found in self.make_retriever([node], 1).retrieve("明月"):
            shown = found.node.get_content(MetadataMode.LLM)
            expect(shown == "poet: 李白\n\n举头望明月", f"an LLM reads {shown!r}")

    def test_a_query_bundle_may_bring_strings_to_embed(self) -> None:
        """As HyDE does."""
        bundle = QueryBundle("明月", custom_embedding_strs=["举头望明月", "床前明月光"])
        expect(self.make_retriever(_nodes(_POEM), 2).retrieve(bundle), "nothing was found")

    def test_async_finds_the_same_and_blocks_nobody(self) -> None:
        """`aretrieve` gives what `retrieve` gives, while other coroutines go on."""
        retriever = self.make_retriever(_nodes([f"第{n}段 passage {n} 明月" for n in range(300)]), 5)
        plain = [(found.node_id, found.score) for found in retriever.retrieve("明月 passage")]
        found, ticks = asyncio.run(watched(lambda: retriever.aretrieve("明月 passage")))
        expect(plain == [(one.node_id, one.score) for one in found], "async finds something else")
        expect(ticks, "the loop stood still meanwhile")

    def test_retrieve_works_inside_a_running_loop(self) -> None:
        """As in a notebook, without nest_asyncio."""
        retriever = self.make_retriever(_nodes(_POEM), 1)

        async def cell() -> list[NodeWithScore]:
            return retriever.retrieve("故乡")

        expect(_texts(asyncio.run(cell())) == ["低头思故乡"], "the line is not found")

    def _only_a(self, query: str, k: int) -> None:
        texts = ("公开 open", "备忘 memo", "密钥 secret 一", "密钥 secret 二")
        nodes = [
            TextNode(id_=f"n{place}", text=text, metadata={"owner": "a" if place < 2 else "b"})  # noqa: PLR2004
            for place, text in enumerate(texts)
        ]
        found = self.make_retriever(nodes, k, owned("a")).retrieve(query)
        foreign = [one.text for one in found if one.node.metadata["owner"] != "a"]
        expect(not foreign, f"{query!r} returned {foreign}")


def _nodes(texts: Sequence[str]) -> list[TextNode]:
    return [TextNode(id_=f"n{place}", text=text) for place, text in enumerate(texts)]


def _texts(found: Sequence[NodeWithScore]) -> list[str]:
    return [one.node.get_content(MetadataMode.NONE) for one in found]


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
    """Checks of a vector store that stores text."""

    @abstractmethod
    def make_store(self) -> BasePydanticVectorStore:
        """An empty vector store."""

    @abstractmethod
    def embed(self, text: str) -> list[float]:
        """Embedding of a text."""

    def test_adding_an_id_again_replaces_it(self) -> None:
        """Both the text and what finds it."""
        store = self._filled("旧的 old")
        store.add(self._embedded([TextNode(id_="n0", text="新的 new")]))
        expect(_result_texts(self._ask(store, "新的 new", 5)) == ["新的 new"], "the old text is still there")

    def test_nodes_come_back_equal(self) -> None:
        """Hash, metadata of any kind, relationships and offsets."""
        node = TextNode(
            id_="n0",
            text="原样 verbatim",
            metadata={
                "none": None,
                "list": ["甲", "乙"],
                "deep": {"是": True},
                "doc_id": "own",
                "flag": False,
            },
            excluded_llm_metadata_keys=["none"],
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="source")},
            start_char_idx=3,
            end_char_idx=12,
        )
        store = self.make_store()
        store.add(self._embedded([node]))
        back = next(iter(self._ask(store, "原样 verbatim", 1).nodes or ()), None)
        expect(isinstance(back, TextNode), "no text node came back")
        if back is not None:
            expect(_bare(back) == _bare(node), f"{back!r} is not {node!r}")
            expect(back.hash == node.hash, "the hash is another one")

    def test_word_modes_go_by_words(self) -> None:
        """Sparse and text search find a code although the embedding points elsewhere."""
        store = self._filled("错误 E-502", "错误 E-503", "别的 other")
        for mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH):
            query = VectorStoreQuery(
                query_str="E-503", query_embedding=self.embed("错误 E-502"), similarity_top_k=1, mode=mode
            )
            expect(_result_texts(store.query(query)) == ["错误 E-503"], f"{mode.value} goes by the embedding")

    def test_hybrid_mode_obeys_alpha(self) -> None:
        """From words alone to vectors alone."""
        store = self._filled("错误 E-502", "错误 E-503", "别的 other")
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
        """Rather than another mode's answer."""
        query = VectorStoreQuery(self.embed("x"), query_str="x", mode=VectorStoreQueryMode.SVM)
        try:
            result = self._filled("x").query(query)
        except (ValueError, NotImplementedError, ImportError):
            return
        expect(False, f"svm was answered with {result.ids}")  # noqa: FBT003

    def test_ids_constrain_and_no_ids_do_not(self) -> None:
        """`[]` is what `VectorStoreIndex.as_retriever` passes for "any"."""
        store = self._filled("甲 one", "乙 two", "丙 three")
        expect(len(self._ask(store, "甲 one", 3, node_ids=[], doc_ids=[]).ids or []) == 3, "[] finds nothing")  # noqa: PLR2004
        expect(self._ask(store, "甲 one", 3, node_ids=["n1"]).ids == ["n1"], "node_ids are ignored")
        expect(self._ask(store, "甲 one", 3, doc_ids=["d2"]).ids == ["n2"], "doc_ids are ignored")

    def test_every_operator_means_what_llama_index_says(self) -> None:
        """Each of the 14 against `build_metadata_filter_fn`."""
        store = self.make_store()
        metadatas = [{"t": "Ab甲", "n": 1, "l": ["x", "y"]}, {"t": "", "n": 2, "l": []}, {}]
        nodes = [TextNode(id_=f"n{n}", text=f"段 {n}", metadata=found) for n, found in enumerate(metadatas)]
        store.add(self._embedded(nodes))
        for leaf in _LEAVES:
            filters = MetadataFilters(filters=[leaf])
            keep = build_metadata_filter_fn(lambda name: metadatas[int(name[1:])], filters)
            wanted = {f"n{n}" for n in range(len(metadatas)) if keep(f"n{n}")}
            found = set(self._ask(store, "段", 3, filters=filters).ids or [])
            expect(found == wanted, f"{leaf.operator.value} {leaf.value!r}: {found} instead of {wanted}")

    def test_filters_may_be_nested(self) -> None:
        """And, or, not within one another."""
        store = self.make_store()
        store.add(
            self._embedded([TextNode(id_=f"n{n}", text=f"段 {n}", metadata={"n": n}) for n in range(4)])
        )
        either = MetadataFilters(
            filters=[MetadataFilter(key="n", value=n) for n in (1, 2)], condition=FilterCondition.OR
        )
        neither = MetadataFilters(filters=[either], condition=FilterCondition.NOT)
        more = MetadataFilters(
            filters=[neither, MetadataFilter(key="n", value=3, operator=FilterOperator.LT)]
        )
        expect(self._ask(store, "段", 4, filters=more).ids == ["n0"], "a nested filter keeps something else")

    def test_deleting_takes_what_was_meant(self) -> None:
        """By source document, by filter, by id; what is not there is no error."""
        store = self._filled("甲 one", "乙 two", "丙 three", "丁 four")
        store.delete("None")
        store.delete("absent")
        store.delete("d0")
        store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="place", value=1)]))
        store.delete_nodes(["n2", "absent"])
        expect(self._ask(store, "丁 four", 4).ids == ["n3"], "too much or too little is gone")
        store.clear()
        store.clear()
        expect(not self._ask(store, "丁 four", 4).ids, "something is left")

    def test_nodes_are_fetched_by_id_and_by_filter(self) -> None:
        """Filters alone are enough."""
        store = self._filled("甲 one", "乙 two")
        expect([node.node_id for node in store.get_nodes(["n1"])] == ["n1"], "not by id")
        filters = MetadataFilters(filters=[MetadataFilter(key="place", value=0)])
        expect([node.node_id for node in store.get_nodes(filters=filters)] == ["n0"], "not by filter")

    def test_many_nodes_are_added_at_once(self) -> None:
        """More than a backend's largest batch."""
        store, vector = self.make_store(), self.embed("x")
        nodes = [TextNode(id_=f"n{n}", text=f"{n}", embedding=vector) for n in range(5_600)]
        expect(len(store.add(nodes)) == len(nodes), "ids are missing")

    def test_aquery_blocks_nobody(self) -> None:
        """Other coroutines go on."""
        store = self._filled(*(f"第{n}段 passage" for n in range(300)))
        query = VectorStoreQuery(self.embed("passage"), query_str="passage", similarity_top_k=3)
        plain = store.query(query).ids
        found, ticks = asyncio.run(watched(lambda: store.aquery(query)))
        expect(found.ids == plain, "async finds something else")
        expect(ticks, "the loop stood still meanwhile")

    def _filled(self, *texts: str) -> BasePydanticVectorStore:
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
        store.add(self._embedded(nodes))
        return store

    def _embedded(self, nodes: list[TextNode]) -> list[BaseNode]:
        return [node.model_copy(update={"embedding": self.embed(node.text)}) for node in nodes]

    def _ask(
        self, store: BasePydanticVectorStore, text: str, k: int, **constraints: Any
    ) -> VectorStoreQueryResult:
        return store.query(VectorStoreQuery(self.embed(text), k, query_str=text, **constraints))


def _result_texts(result: VectorStoreQueryResult) -> list[str]:
    return [node.get_content(MetadataMode.NONE) for node in result.nodes or ()]


def _bare(node: BaseNode) -> dict[str, Any]:
    return node.model_dump(exclude={"embedding"})


__all__ = ["RetrieverConformance", "VectorStoreConformance", "conformance_table", "outcomes"]
