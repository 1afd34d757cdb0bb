"""What a LlamaIndex retriever has to do, as a test class to inherit from."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from langchain_agentrag.testing.llama_index.checks import expect, watched

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
