"""The table of search options is the single source of the checks, the integrations and the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError

from langchain_agentrag.agent.tool_arguments import search_arguments
from langchain_agentrag.errors import FilterError, InvalidQueryError
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.langchain.retriever import HybridRetriever
from langchain_agentrag.langchain.search_options import CALL_OPTIONS, ENGINE_OPTIONS
from langchain_agentrag.llama_index.retriever import RETRIEVER_OPTIONS
from langchain_agentrag.search.options import OPTIONS, SearchOptions, SearchRequest, check_request, reference

ROOT = Path(__file__).parents[2]
START, END = "<!-- search options -->\n", "<!-- end of search options -->"


def documented_table(name: str) -> str:
    """Return the table of search options in a document."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text[text.index(START) + len(START) : text.index(END)].strip()


def option_names(table: str) -> list[str]:
    return [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", SearchOptions.__annotations__)
def test_every_option_has_a_description_a_range_and_a_default_in_the_reference(name: str):
    option = OPTIONS[name]
    assert option.description.endswith(".")
    assert option.description[0].isupper()
    assert option.values
    assert option.default
    row = f"| `{name}` | {option.values} | {option.default} | {option.description} |"
    assert row in documented_table("GUIDE.md").splitlines()


def test_the_reference_in_the_guide_is_the_printed_one():
    assert documented_table("GUIDE.md") == reference()


def test_the_chinese_reference_lists_the_same_options():
    assert option_names(documented_table("GUIDE.zh.md")) == list(OPTIONS)


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"explain", "quarantined"}))
def test_a_value_of_the_wrong_type_is_refused_by_every_option(name: str):
    with pytest.raises((InvalidQueryError, FilterError)):
        check_request("word", 3, agent_id=None, options={name: object()})


def test_every_option_but_the_filters_is_an_attribute_of_the_request():
    attributes = {field.name for field in fields(SearchRequest)}
    assert OPTIONS.keys() - attributes == {"filter", "after", "before"}


def test_langchain_takes_every_option_by_name_or_by_its_own_word_for_it():
    own_words = {"mode": "search_type", "diversity": "lambda_mult"}
    assert {own_words.get(name, name) for name in OPTIONS} - set(CALL_OPTIONS) == {"explain", "vector", "now"}
    assert set(ENGINE_OPTIONS) - HybridRetriever.model_fields.keys() == {"history"}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path_factory.mktemp("options"), "hash") as indexer:
        yield indexer


@pytest.mark.parametrize("name", sorted(set(ENGINE_OPTIONS) - {"history"}))
def test_langchain_fields_are_described_and_checked_by_the_table(store, name: str):
    assert OPTIONS[name].description in (HybridRetriever.model_fields[name].description or "")
    if name != "quarantined":
        with pytest.raises(ValidationError, match=name):
            HybridRetriever(indexer=store, **{name: object()})


def test_llama_index_takes_every_option_but_those_with_a_word_of_its_own():
    assert OPTIONS.keys() - set(RETRIEVER_OPTIONS) == {"filter", "vector"}


def test_options_that_a_model_may_set_are_options_of_the_engine():
    arguments = search_arguments("en", 5).model_fields.keys()
    assert arguments - {"query", "k"} <= OPTIONS.keys()
