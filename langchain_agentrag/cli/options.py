"""Options that several commands share, and what their values stand for: stores, filters, durations, Python objects."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from langchain_agentrag.cli.commands import option
from langchain_agentrag.cli.language import _, translate
from langchain_agentrag.errors import NotAStoreError, UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from langchain_agentrag.indexer import DualIndexer

_FILTER = """'{"type": "manual"}'"""  # an example
DEFAULT_STORE = Path("agentrag_store")
PATH = click.Path(path_type=Path)

_KILO = 1024
_SIZE = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


class ByteSize(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes: 500000, 500k, 50M, 1G, where k is 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the number of bytes."""
        match = _SIZE.fullmatch(str(value).strip())
        if match is None or not int(match[1]):
            self.fail(_("{value!r} is no size: write 500000, 500k, 50M or 1G.", value=str(value)[:100]), param, ctx)
        factor: int = _KILO ** " kmgt".index(match[2].lower() or " ")
        return int(match[1]) * factor


store_option = option(
    "--store", type=PATH, envvar="AGENTRAG_STORE", show_envvar=True, default=DEFAULT_STORE, help="Folder of the store."
)
agent_option = option(
    "--agent",
    envvar="AGENTRAG_AGENT",
    show_envvar=True,
    help="Agent on whose behalf; without it, shared documents only.",
)
json_option = option("--json", "as_json", is_flag=True, help="Print one JSON document, errors too.")
fence_option = option(
    "--fence/--no-fence",
    default=None,
    help="Put passages between marks for a model that reads them. By default unless the output is a terminal.",
)
after_option = option(
    "--after", metavar="TIME", help="Only what is from then on: 2024-05-01, a time with its zone, or 7d for days ago."
)
before_option = option("--before", metavar="TIME", help="Only what is earlier; written in the same way.")
filter_option = option("--filter", "where", metavar="JSON", help="Condition on the metadata, as JSON.")
reranker_option = option("--reranker", metavar="MODEL", help="Cross-encoder name or folder, or module:attribute.")
yes_option = option("--yes", "-y", is_flag=True, help="Do not ask.")
max_bytes_option = option(
    "--max-bytes", type=ByteSize(), metavar="SIZE", help="Skip larger files; 500k, 50M, 1G. By default above 50M."
)


def open_store(store: Path) -> DualIndexer:
    """Open the store in a folder.

    Raises:
        NotAStoreError: there is none; a query must not create an empty one.
    """
    from langchain_agentrag.indexer import DualIndexer

    # in a folder that holds anything else, the engine says what is wrong
    if not (store.is_file() or (store.is_dir() and any(store.iterdir()))):
        message = _(
            "There is no store at {store}: make one with `agentrag index PATH`, or name it with --store.", store=store
        )
        raise NotAStoreError(message)
    return DualIndexer(store)


def parse_duration(text: str | None, option_name: str) -> timedelta | None:
    """Parse a length of time such as 90s, 36h, 7d or 2w.

    Raises:
        click.BadParameter: it is something else.
    """
    from langchain_agentrag.times import check_duration

    if text is None:
        return None
    try:
        return check_duration(option_name, text)
    except UsageError as error:
        message = _("{text!r} is no length of time: write 36h, 7d, 2w.", text=text)
        raise click.BadParameter(message, param_hint=option_name) from error


def parse_filter(text: str | None) -> dict[str, Any] | None:
    """Parse the value of --filter.

    Raises:
        click.BadParameter: it is not a JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, nested too deep, or a number of too many digits
        reason = translate(str(getattr(error, "msg", error)))
        message = _(
            "{text!r} is not JSON ({reason}). Write it as in {example}.",
            text=text[:200],
            reason=reason,
            example=_FILTER,
        )
        raise click.BadParameter(message, param_hint="--filter") from error
    if not isinstance(value, dict):
        message = _("{text!r} is not a JSON object. Write it as in {example}.", text=text[:200], example=_FILTER)
        raise click.BadParameter(message, param_hint="--filter")
    return value


def load_object(name: str, option_name: str) -> Any:  # noqa: ANN401  (any object of the user's)
    """Import module:attribute; modules in the working directory are found too.

    Raises:
        click.BadParameter: it cannot be imported.
    """
    module, _colon, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # at the end: a file of the user's shadows no installed module
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        message = _(
            "cannot load {name!r} ({error}). Write module:attribute, as in mymodels:chat.", name=name, error=error
        )
        raise click.BadParameter(message, param_hint=option_name) from error
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
