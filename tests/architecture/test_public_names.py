"""The public names of the package. Adding one is a decision; taking one away breaks somebody."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import langchain_agentrag
import langchain_agentrag.evaluation
import langchain_agentrag.llama_index

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
    "create_memory_tools",
    "model_judge",
    "quarantined",
    "run_agent",
]


def test_public_names_are_pinned():
    assert langchain_agentrag.__all__ == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_loads_and_is_listed(name: str):
    assert getattr(langchain_agentrag, name) is not None
    assert name in dir(langchain_agentrag)


def documented_objects() -> Iterator[tuple[str, Any]]:
    """Yield the public classes and functions, and the public methods that the package's own classes define."""
    for package in (langchain_agentrag, langchain_agentrag.llama_index, langchain_agentrag.evaluation):
        for name in package.__all__:
            thing = getattr(package, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue  # a constant or a type alias
            label = f"{package.__name__}.{name}"
            yield label, thing
            for attribute, member in vars(thing).items() if inspect.isclass(thing) else ():
                function = getattr(member, "__func__", member)
                if not attribute.startswith("_") and (inspect.isfunction(function) or isinstance(member, property)):
                    yield f"{label}.{attribute}", member


# words of a former private vocabulary, and pronouns instead of a name
RIDDLES = re.compile(
    r"\b(?:legs?|trail|shelf|told|somebody|someone|whoever|whom|what it (?:is|was|has)|what (?:was|is) (?:asked|said|shown))\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    ("name", "thing"), list(documented_objects()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_first_line_of_a_docstring_is_a_plain_sentence(name: str, thing: Any):
    document = inspect.getdoc(thing)
    assert document, f"{name} has no docstring"
    first, *rest = document.split("\n\n")[0].splitlines()
    assert first.endswith((".", ":")) or rest, f"{name}: {first!r} is not a sentence"
    assert not rest, f"{name}: the first sentence is longer than its line: {first!r}"
    assert first[0].isupper() or first[0] in '`"', f"{name}: {first!r} begins with a small letter"
    assert 2 <= len(first.split()) < 25, f"{name}: {first!r} is no sentence, or too long a one"
    assert not RIDDLES.search(first), f"{name}: {first!r} does not say it in the field's words"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = langchain_agentrag.Nonsense


def test_version_is_the_packages():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert langchain_agentrag.__version__ == project["version"]


def test_types_are_shipped():
    assert Path(langchain_agentrag.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("package", ["", "langchain/middleware", "langgraph", "llama_index"])
def test_lazy_names_are_those_type_checkers_see(package: str):
    path = Path(langchain_agentrag.__file__).parent / package / "__init__.py"
    module = ".".join(["langchain_agentrag", *filter(None, package.split("/"))])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_getattr"
    )
    lazy = {(f"{module}.{home}", name) for home, names in ast.literal_eval(call.args[1]).items() for name in names}
    checked = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        for alias in node.names
    }
    assert lazy == checked
    assert sorted(name for _, name in lazy) == importlib.import_module(module).__all__
