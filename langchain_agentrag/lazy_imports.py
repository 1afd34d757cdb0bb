"""Lazy imports of a package's public names, with a clear error where an extra is not installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_agentrag.errors import MissingExtraError


def lazy_getattr(
    package: str, names: Mapping[str, Sequence[str]], *, requires: str = "", feature: str = "", extra: str = ""
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names on first use.

    The package also lists the names in `__all__` and imports them under `TYPE_CHECKING`: type checkers read only those.

    Args:
        package: `__name__` of the package.
        names: Public names by submodule: {"store": ["HybridStore"]}.
        requires: Third-party module that the names need.
        feature: What needs it, for `MissingExtraError`.
        extra: Extra of this distribution that installs it.
    """
    module_of = {name: module for module, members in names.items() for name in members}

    def __getattr__(name: str) -> Any:  # noqa: ANN401, N807
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if requires:
            try:
                importlib.import_module(requires)
            except ImportError as error:
                if (error.name or "").partition(".")[0] != requires.partition(".")[0]:
                    raise
                raise MissingExtraError(feature, extra) from error
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
