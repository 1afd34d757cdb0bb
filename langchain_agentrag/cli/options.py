"""Options that several commands share, and what their values stand for: stores, filters, durations, Python objects."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_agentrag.errors import NotAStoreError, UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from langchain_agentrag.indexer import DualIndexer

DEFAULT_STORE = Path("agentrag_store")

StoreOption = Annotated[Path, typer.Option("--store", envvar="AGENTRAG_STORE", help="Folder of the store.")]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", envvar="AGENTRAG_AGENT", help="Agent on whose behalf; without it, shared documents only."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
FenceOption = Annotated[
    bool | None,
    typer.Option(
        "--fence/--no-fence",
        help="Put passages between marks for a model that reads them. By default unless the output is a terminal.",
    ),
]
AfterOption = Annotated[
    str | None,
    typer.Option("--after", help="Only what is from then on: 2024-05-01, a time with its zone, or 7d for days ago."),
]
BeforeOption = Annotated[str | None, typer.Option("--before", help="Only what is earlier; written in the same way.")]
FilterOption = Annotated[str | None, typer.Option("--filter", help="Condition on the metadata, as JSON.")]
RerankerOption = Annotated[
    str | None, typer.Option("--reranker", help="Cross-encoder name or folder, or module:attribute.")
]


def open_store(store: Path) -> DualIndexer:
    """Open the store in a folder.

    Raises:
        NotAStoreError: there is none; a query must not create an empty one.
    """
    from langchain_agentrag.indexer import DualIndexer

    # in a folder that holds anything else, the engine says what is wrong
    if not (store.is_file() or (store.is_dir() and any(store.iterdir()))):
        msg = f"There is no store at {store}: make one with `agentrag index PATH`, or name it with --store."
        raise NotAStoreError(msg)
    return DualIndexer(store)


def parse_duration(text: str | None, option: str) -> timedelta | None:
    """Parse a length of time such as 90s, 36h, 7d or 2w.

    Raises:
        typer.BadParameter: it is something else.
    """
    from langchain_agentrag.times import check_duration

    if text is None:
        return None
    try:
        return check_duration(option, text)
    except UsageError as error:
        raise typer.BadParameter(f"{text!r} is no length of time: write 36h, 7d, 2w.", param_hint=option) from error


def parse_filter(text: str | None) -> dict[str, Any] | None:
    """Parse the value of --filter.

    Raises:
        typer.BadParameter: it is not a JSON object.
    """
    if text is None:
        return None
    example = 'Write it as in \'{"type": "manual"}\'.'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, nested too deep, or a number of too many digits
        msg = f"{text[:200]!r} is not JSON ({getattr(error, 'msg', error)}). {example}"
        raise typer.BadParameter(msg, param_hint="--filter") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{text!r} is not a JSON object. {example}", param_hint="--filter")
    return value


def load_object(name: str, option: str) -> Any:  # noqa: ANN401  (any object of the user's)
    """Import module:attribute; modules in the working directory are found too.

    Raises:
        typer.BadParameter: it cannot be imported.
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


def load_reranker(name: str | None) -> Any:  # noqa: ANN401  (any kind of reranker)
    """Return the reranker of module:attribute, else the cross-encoder of that name or folder; None for None."""
    if name is None:
        return None
    if ":" in name and not Path(name).exists():
        return load_object(name, "--reranker")
    from langchain_agentrag.search.rerank import load_cross_encoder

    return load_cross_encoder(name)
