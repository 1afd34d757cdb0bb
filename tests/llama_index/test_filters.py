"""LlamaIndex's filters: parsed into our language, with the meaning LlamaIndex gives them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from langchain_agentrag import DualIndexer, HashingEmbeddings
from langchain_agentrag.errors import FilterError
from langchain_agentrag.filters import match
from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore, parse_filters

KEYS = ("age", "名", "tags")
WORDS = st.sampled_from(["", "a", "A", "ab", "甲", "甲乙", "3", "ß"])
NUMBERS = st.one_of(st.integers(-2, 4), st.sampled_from([0.5, 3.0]))
VALUES = st.one_of(st.none(), WORDS, NUMBERS, st.lists(WORDS, max_size=3), st.lists(st.integers(0, 3), max_size=3))
METADATA = st.dictionaries(st.sampled_from(KEYS), VALUES)
LISTS = st.one_of(st.lists(WORDS, max_size=3), st.lists(st.integers(0, 3), max_size=3))
OPERAND = {
    **dict.fromkeys(FilterOperator, st.one_of(WORDS, NUMBERS)),
    **dict.fromkeys((FilterOperator.EQ, FilterOperator.NE), st.one_of(st.none(), WORDS, NUMBERS, LISTS)),
    **dict.fromkeys((FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL), LISTS),
    **dict.fromkeys((FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE), WORDS),
    FilterOperator.IS_EMPTY: st.none(),
}


@st.composite
def leaves(draw: st.DrawFn) -> MetadataFilter:
    operator = draw(st.sampled_from(list(FilterOperator)))
    return MetadataFilter(key=draw(st.sampled_from(KEYS)), value=draw(OPERAND[operator]), operator=operator)


GROUPS = st.recursive(
    leaves(),
    lambda parts: st.builds(
        MetadataFilters,
        filters=st.lists(parts, min_size=1, max_size=3),
        condition=st.sampled_from(list(FilterCondition)),
    ),
    max_leaves=6,
)


def upstream_matches(leaf: MetadataFilter, metadata: dict) -> bool:
    """What LlamaIndex's own function says; where it raises, the leaf does not hold."""
    try:
        return build_metadata_filter_fn(lambda _: metadata, MetadataFilters(filters=[leaf]))("n")
    except TypeError:
        return False


def holds(group: MetadataFilters | MetadataFilter, metadata: dict) -> bool:
    """Nested filters, as LlamaIndex would have them if it had them."""
    if isinstance(group, MetadataFilter):
        return upstream_matches(group, metadata)
    parts = [holds(part, metadata) for part in group.filters]
    if group.condition == FilterCondition.NOT:
        return not any(parts)
    return any(parts) if group.condition == FilterCondition.OR else all(parts)


@given(leaf=leaves(), metadata=METADATA)
@settings(max_examples=400)
def test_each_leaf_matches_as_in_llama_index(leaf, metadata):
    assert match(parse_filters(leaf), metadata) is upstream_matches(leaf, metadata)


@given(group=GROUPS, metadata=METADATA)
@settings(max_examples=200)
def test_groups_nest(group, metadata):
    assert match(parse_filters(group), metadata) is holds(group, metadata)


def test_a_bound_is_not_lost_and_a_negation_not_erased():
    """mem0ai/mem0#6451, run-llama/llama_index#20424."""
    both = MetadataFilters(
        filters=[
            MetadataFilter(key="age", value=18, operator=FilterOperator.GTE),
            MetadataFilter(key="age", value=65, operator=FilterOperator.LTE),
            MetadataFilters(
                filters=[MetadataFilter(key="tags", value="禁", operator=FilterOperator.CONTAINS)],
                condition=FilterCondition.NOT,
            ),
        ]
    )
    people = [{"age": 17}, {"age": 18}, {"age": 66}, {"age": "30"}, {}]
    people += [{"age": 65, "tags": ["禁"]}, {"age": 65, "tags": ["许"]}]
    matching = [metadata for metadata in people if match(parse_filters(both), metadata)]
    assert matching == [{"age": 18}, {"age": 65, "tags": ["许"]}]


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (FilterOperator.GT, None),
        (FilterOperator.LTE, ["a"]),
        (FilterOperator.IN, "abc"),
        (FilterOperator.NIN, 3),
        (FilterOperator.ANY, "abc"),
        (FilterOperator.ALL, None),
        (FilterOperator.TEXT_MATCH, 3),
        (FilterOperator.TEXT_MATCH_INSENSITIVE, None),
    ],
)
def test_a_value_the_operator_cannot_use_is_an_error(operator, value):
    with pytest.raises(FilterError):
        parse_filters(MetadataFilter(key="k", value=value, operator=operator))


def test_an_operator_or_a_condition_that_does_not_exist_is_an_error():
    leaf = MetadataFilter.model_construct(key="k", value=1, operator="near")
    with pytest.raises(FilterError, match="Unknown operator"):
        parse_filters(leaf)
    group = MetadataFilters.model_construct(filters=[MetadataFilter(key="k", value=1)], condition="xor")
    with pytest.raises(FilterError, match="Unknown condition"):
        parse_filters(group)


def test_filters_nested_without_end_are_an_error():
    group = MetadataFilters(filters=[MetadataFilter(key="k", value=1)])
    for _ in range(300):
        group = MetadataFilters.model_construct(filters=[group], condition=FilterCondition.AND)
    with pytest.raises(FilterError, match="nested deeper"):
        parse_filters(group)


@pytest.mark.parametrize("filters", [None, {}, MetadataFilters(filters=[])])
def test_no_filter_keeps_everything(filters):
    assert match(parse_filters(filters), {"a": 1})


def test_dates_compare_with_the_texts_that_llama_index_can_write():
    since = MetadataFilter(key="day", value="2026-03-01", operator=FilterOperator.GTE)
    assert match(parse_filters(since), {"day": dt.date(2026, 3, 2)})
    assert not match(parse_filters(since), {"day": dt.datetime(2026, 2, 28, 23, 59)})


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with every shape of metadata, and the metadata."""
    metadatas = [
        {}, {"age": None}, {"age": 3}, {"age": 3.0, "名": "甲"}, {"age": "3", "名": "AB"}, {"tags": []},
        {"tags": ["a", "甲"], "名": ""}, {"tags": [1, 3], "age": -2}, {"tags": "ab", "名": "甲乙"},
    ]  # fmt: skip
    with DualIndexer(tmp_path_factory.mktemp("filters") / "s", HashingEmbeddings(32)) as indexer:
        nodes = [
            TextNode(id_=str(n), text=f"段落 passage {n}", metadata=metadata) for n, metadata in enumerate(metadatas)
        ]
        HybridVectorStore(indexer).add(nodes)
        yield indexer, metadatas


@given(group=GROUPS)
@settings(max_examples=40)
@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_every_index_returns_what_the_filter_keeps_and_nothing_else(filled, mode, group):
    indexer, metadatas = filled
    wanted = {str(n) for n, metadata in enumerate(metadatas) if holds(group, metadata)}
    filters = group if isinstance(group, MetadataFilters) else MetadataFilters(filters=[group])
    retriever = HybridRetriever(indexer, 99, filters=filters, mode=mode, score_threshold=0)
    assert {one.node_id for one in retriever.retrieve("段落 passage")} == wanted


@given(group=GROUPS)
@settings(max_examples=20)
def test_the_vector_store_answers_and_fetches_the_same(filled, group):
    indexer, metadatas = filled
    wanted = {str(n) for n, metadata in enumerate(metadatas) if holds(group, metadata)}
    filters = group if isinstance(group, MetadataFilters) else MetadataFilters(filters=[group])
    store = HybridVectorStore(indexer)
    query = VectorStoreQuery(query_str="段落", similarity_top_k=99, mode=VectorStoreQueryMode.HYBRID, filters=filters)
    assert set(store.query(query).ids) == wanted
    assert {node.node_id for node in store.get_nodes(filters=filters)} == wanted
