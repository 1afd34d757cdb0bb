"""The names the package promises. Adding one is a decision; taking one away breaks somebody."""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path

import pytest

import langchain_agentrag

PROMISED = [
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
    assert langchain_agentrag.__all__ == PROMISED


@pytest.mark.parametrize("name", PROMISED)
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


@pytest.mark.parametrize("package", ["", "langchain/middleware", "langgraph", "llama_index"])
def test_lazy_names_are_those_type_checkers_see(package: str):
    path = Path(langchain_agentrag.__file__).parent / package / "__init__.py"
    module = ".".join(["langchain_agentrag", *filter(None, package.split("/"))])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    call = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_getattr"
    )
    lazy = {
        (f"{module}.{home}", name) for home, names in ast.literal_eval(call.args[1]).items() for name in names
    }
    checked = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        for alias in node.names
    }
    assert lazy == checked
    assert sorted(name for _, name in lazy) == importlib.import_module(module).__all__
