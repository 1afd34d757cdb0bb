"""Lazy imports: a package's public names, with a clear error where an extra is missing; defaults of the core."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_agentrag.errors import MissingExtraError

_PROVIDED: dict[str, tuple[str, str]] = {}


def provide(role: str, module: str, name: str) -> None:
    """Name the object that a lower layer gets for a role; it is imported on first use.

    So the core can use a default from a layer above it that it does not know.
    """
    _PROVIDED[role] = (module, name)


def provided(role: str) -> Any:  # noqa: ANN401  (any object)
    """Return the object of a role, see `provide`."""
    module, name = _PROVIDED[role]
    return getattr(importlib.import_module(module), name)


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
