"""What a LlamaIndex vector store that stores text has to do, as a test class to inherit from."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
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

from langchain_agentrag.testing.llama_index.checks import expect, watched

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
