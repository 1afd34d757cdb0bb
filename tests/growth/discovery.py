"""Public functions of the package that take text: found in its source, so that none is forgotten."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import langchain_agentrag

_TEXT = re.compile(r"\bstr\b")


def text_functions() -> set[str]:
    """Return the names, as "module.function" and "module.Class.method", of public functions with a `str` parameter."""
    root = Path(langchain_agentrag.__file__).parent
    names: set[str] = set()
    for path in root.rglob("*.py"):
        relative = path.relative_to(root).with_suffix("")
        module = ".".join(part for part in relative.parts if part != "__init__")
        names |= {
            f"{module}.{name}".lstrip(".") for name in _functions(ast.parse(path.read_text(encoding="utf-8")).body)
        }
    return names


def _functions(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            arguments = node.args
            parameters = [
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            ]
            annotations = (parameter.annotation for parameter in parameters if parameter is not None)
            if any(annotation is not None and _TEXT.search(ast.unparse(annotation)) for annotation in annotations):
                yield prefix + node.name
