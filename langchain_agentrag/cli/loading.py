"""Objects that a command names: a function or model of the user's own, a cross-encoder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer


def imported(name: str, option: str) -> Any:  # noqa: ANN401  whatever stands there
    """What module:attribute stands for; modules of the working directory are found too.

    Raises:
        typer.BadParameter: there is no such thing.
    """
    module, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # at the end: a file of the user's shadows no installed module
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"Cannot load {name!r}: {error}. Write module:attribute, as in mymodels:chat."
        raise typer.BadParameter(msg, param_hint=option) from error
    finally:
        sys.path.pop()


def named_reranker(name: str | None) -> Any:  # noqa: ANN401  any kind of reranker
    """The reranker of module:attribute, else the cross-encoder of that name or folder; None for None."""
    from langchain_agentrag.search.rerank import load_cross_encoder

    if name is None:
        return None
    return (
        imported(name, "--reranker") if ":" in name and not Path(name).exists() else load_cross_encoder(name)
    )
