"""The public names of the package. Adding one is a decision; taking one away breaks somebody."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import langchain_agentrag

PUBLIC_NAMES = [
    "AgentMemoryConnector",
    "AgentRAGToolkit",
    "AgentView",
    "Analyzer",
    "BaseConnector",
    "Chunking",
    "CitedSource",
    "DatabaseConnector",
    "DatabaseSchemaConnector",
    "DualIndexer",
    "FileSystemConnector",
    "GuardedTool",
    "HashingEmbeddings",
    "Hit",
    "Hits",
    "HybridRecordManager",
    "HybridRetriever",
    "HybridStore",
    "HybridTranslator",
    "HybridVectorStore",
    "MemoryRecorderMiddleware",
    "NothingDone",
    "Operations",
    "PassageSafety",
    "QueryUnderstandingRouter",
    "ReadOnlyDatabase",
    "ReadTool",
    "RetrievalBudget",
    "RetrievalBudgetMiddleware",
    "SQLTool",
    "SearchTool",
    "SourceDocument",
    "ToolGuardMiddleware",
    "ToolRule",
    "check_citations",
    "model_judge",
    "quarantined",
    "run_agent",
]


def test_public_names_are_pinned():
    assert langchain_agentrag.__all__ == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_loads_and_is_documented(name: str):
    thing = getattr(langchain_agentrag, name)
    assert thing.__doc__
    assert name in dir(langchain_agentrag)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = langchain_agentrag.Nonsense


def test_version_is_the_packages():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert langchain_agentrag.__version__ == project["version"]


def test_types_are_shipped():
    assert Path(langchain_agentrag.__file__).with_name("py.typed").exists()
