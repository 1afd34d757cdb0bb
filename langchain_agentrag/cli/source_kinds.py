"""Kinds of sources: which keys each of them takes in the file, and the connector it makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from langchain_agentrag.connector import BaseConnector
from langchain_agentrag.errors import UsageError
from langchain_agentrag.scope import check_agent_id

Settings = Mapping[str, Any]
"""Keys and checked values of one `[[source]]`."""

_TEXT, _FLAG, _COUNT = "a text", "true or false", "a whole number"
_TEXTS, _TABLE = "a text or a list of texts", "a table"
_AGENTS = '"recorded", or a table of session = "agent"'

FORMS: Mapping[str, Callable[[object], bool]] = {
    _TEXT: lambda value: isinstance(value, str) and bool(value.strip()),
    _FLAG: lambda value: isinstance(value, bool),
    _COUNT: lambda value: isinstance(value, int) and not isinstance(value, bool),
    _TEXTS: lambda value: (
        isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))
    ),
    _TABLE: lambda value: isinstance(value, dict),
    _AGENTS: lambda value: (
        value == "recorded"
        or (isinstance(value, dict) and bool(value) and all(isinstance(name, str) for name in value.values()))
    ),
}
"""What a value may be, and the test for it."""

COMMON: Mapping[str, str] = {"name": _TEXT, "type": _TEXT, "agent": _TEXT}
"""Keys of every source."""

_FILE_URL = re.compile(r"(?P<scheme>(?:sqlite|duckdb)(?:\+\w+)?):///(?P<path>[^/?:][^?]*)(?P<rest>\?.*)?")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of source.

    Attributes:
        keys: Key → form of its value, besides the common ones.
        required: Groups of keys of which exactly one is needed.
        build: Makes the connector of the settings; relative paths are relative to the folder.
        watched: Keys that hold a path whose changes can be followed.
        check: Raises what is wrong with the settings whether or not the source is there.
        looks: Whether making the connector looks at that path.
    """

    keys: Mapping[str, str]
    required: tuple[tuple[str, ...], ...]
    build: Callable[[Settings, Path], BaseConnector]
    watched: tuple[str, ...] = ()
    check: Callable[[Settings], object] = lambda _settings: None
    looks: bool = False


def _files(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.files import FileSystemConnector

    names = {"agent": "agent_id", "ignore_files": "respect_ignore_files"}
    options = {names.get(key, key): value for key, value in settings.items() if key not in {"type", "path"}}
    return FileSystemConnector(folder / Path(settings["path"]).expanduser(), **options)


def _database(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.sql.connector import DatabaseConnector

    names = {"agent": "agent_id"}
    options = {names.get(key, key): value for key, value in settings.items() if key not in {"type", "url"}}
    if isinstance(options.get("metadata"), str):
        options["metadata"] = [options["metadata"]]
    return DatabaseConnector(_url(settings["url"], folder), **options)


def _schema(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.sql.schema import DatabaseSchemaConnector

    options = {key: value for key, value in settings.items() if key not in {"type", "url", "agent"}}
    for key in {"tables", "schemas"} & options.keys():
        options[key] = [options[key]] if isinstance(options[key], str) else options[key]
    return DatabaseSchemaConnector(_url(settings["url"], folder), agent_id=settings.get("agent"), **options)


def _memory(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.memory import AgentMemoryConnector

    taken = {"type", "path", "url", "agent", "agents", "zone"}
    options = {key: value for key, value in settings.items() if key not in taken}
    if "zone" in settings:
        options["zone"] = _zone(settings["zone"])
    path = settings.get("path")
    place = _url(settings["url"], folder) if path is None else folder / Path(path).expanduser()
    return AgentMemoryConnector(place, agent_id=_owner(settings), **options)


def _check_memory(settings: Settings) -> None:
    if "zone" in settings:
        _zone(settings["zone"])
    owner = _owner(settings)
    check_agent_id(None if callable(owner) else owner)
    if settings.get("shared", False) is (owner is not None):
        raise UsageError(
            "a memory needs agent = …, agents = …, or shared = true, one of them: whose it is cannot be guessed."
        )


def _owner(settings: Settings) -> Any:  # noqa: ANN401  (an agent, or a function of a session)
    agents = settings.get("agents")
    if agents is None:
        return settings.get("agent")
    if "agent" in settings:
        raise UsageError("agent = … and agents = … contradict each other: keep one of them.")
    if agents == "recorded":
        return lambda session: session.agent_id
    return lambda session: agents.get(session.id)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(
            f'zone = "{name}" is no zone this machine knows: write "Asia/Shanghai", say.'
        ) from error


def _url(url: str, folder: Path) -> str:
    """The URL, the path of a database file in it made absolute."""
    found = _FILE_URL.fullmatch(url)
    if found is None:
        return url
    path = (folder / Path(found["path"]).expanduser()).as_posix()
    return f"{found['scheme']}:///{path}{found['rest'] or ''}"


KINDS: Mapping[str, Kind] = {
    "files": Kind(
        {
            **dict.fromkeys(("glob", "exclude"), _TEXTS),
            **dict.fromkeys(("hidden", "ignore_files", "follow_links"), _FLAG),
            "path": _TEXT,
            "max_bytes": _COUNT,
            "metadata": _TABLE,
        },
        (("path",),),
        _files,
        ("path",),
    ),
    "database": Kind(
        {
            **dict.fromkeys(
                ("url", "table", "query", "text", "agent_column", "no_agent", "version_column"), _TEXT
            ),
            **dict.fromkeys(("key", "metadata"), _TEXTS),
            "content_addressed": _FLAG,
            "labels": _TABLE,
        },
        (("url",), ("table", "query")),
        _database,
    ),
    "schema": Kind(
        {**dict.fromkeys(("tables", "schemas"), _TEXTS), "url": _TEXT, "examples": _COUNT},
        (("url",),),
        _schema,
    ),
    "memory": Kind(
        {
            **dict.fromkeys(("path", "url", "backend", "table", "prefix", "zone"), _TEXT),
            **dict.fromkeys(("shared", "system"), _FLAG),
            "agents": _AGENTS,
            "metadata": _TABLE,
        },
        (("path", "url"),),
        _memory,
        ("path",),
        check=_check_memory,
        looks=True,
    ),
}
"""Kinds by the name that `type` gives."""
