"""The tool suites of langchain-tests."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from langchain_agentrag import AgentRAGToolkit, DualIndexer, ReadTool, SearchTool, create_memory_tools
from tests.standard.test_standard_retriever import CORPUS


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as opened:
        opened.index_documents(CORPUS)
        yield opened


class SearchSetting:
    @pytest.fixture(autouse=True)
    def _store(self, indexer):
        self.indexer = indexer

    @property
    def tool_constructor(self) -> type[SearchTool]:
        return SearchTool

    @property
    def tool_constructor_params(self) -> dict[str, Any]:
        return {"indexer": self.indexer}

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "主轴过热怎么办", "k": 2, "filter": {}}


class ReadSetting(SearchSetting):
    @property
    def tool_constructor(self) -> type[ReadTool]:
        return ReadTool

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"doc_id": self.indexer.search("E1102", 1)[0].doc_id, "chunk_id": 0, "before": 1, "after": 1}


class ToolkitSetting(SearchSetting):
    @property
    def tool_constructor(self):
        return AgentRAGToolkit(indexer=self.indexer, prefix="docs", about="设备手册", language="zh").get_tools()[0]

    @property
    def tool_constructor_params(self) -> dict[str, Any]:
        return {}


class RecallSetting(ToolkitSetting):
    @property
    def tool_constructor(self):
        return create_memory_tools(self.indexer, "lina")[1]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "主轴过热怎么办", "k": 2}


class TestSearchUnit(SearchSetting, ToolsUnitTests):
    pass


class TestSearchIntegration(SearchSetting, ToolsIntegrationTests):
    pass


class TestReadUnit(ReadSetting, ToolsUnitTests):
    pass


class TestReadIntegration(ReadSetting, ToolsIntegrationTests):
    pass


class TestToolkitUnit(ToolkitSetting, ToolsUnitTests):
    pass


class TestToolkitIntegration(ToolkitSetting, ToolsIntegrationTests):
    pass


class TestRecallUnit(RecallSetting, ToolsUnitTests):
    pass


class TestRecallIntegration(RecallSetting, ToolsIntegrationTests):
    pass
