"""References to environment variables in a file of sources, and what must never be printed."""

from __future__ import annotations

import difflib
import glob
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from langchain_agentrag.connector import BaseConnector
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.times import EPOCH, check_duration, check_time

_REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\{(?P<bad>[^}]*)\}?)")
_PASSWORD = re.compile(r"://[^/@\s:]*:(?P<password>[^/@\s]+)@")
_SHORTEST = 3  # characters; hiding anything shorter would blot out ordinary words


class Secrets:
    """Fills in `${NAME}` from the environment and remembers what came from there.

    `$${` stands for `${`. What came from the environment and passwords in URLs are replaced by `***` in messages.

    Args:
        environment: Names and values.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._hidden: set[str] = set()

    def fill(self, text: str) -> str:
        """The text with its references replaced.

        Raises:
            KeyError: a variable is not set; the argument is its name.
            ValueError: what stands between the braces is no name.
        """
        filled = _REFERENCE.sub(self._value, text)
        for found in _PASSWORD.finditer(filled):
            self._hide(found["password"])
            self._hide(unquote(found["password"]))
        return filled

    def redact(self, text: str) -> str:
        """The text without anything that must not be printed."""
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _value(self, found: re.Match[str]) -> str:
        if found["escaped"]:
            return "${"
        if found["name"] is None:
            raise ValueError(found["bad"] or "")
        value = self._environment[found["name"]]
        self._hide(value)
        return value

    def _hide(self, value: str) -> None:
        if len(value) >= _SHORTEST:
            self._hidden.add(value)


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


_TOP = {"store": "a text", "embeddings": "a text", "interval": "a text", "source": "[[source]] sections"}
_INTERVAL = timedelta(seconds=60)
_HEADER = re.compile(r"\s*\[\[\s*source\s*\]\]")


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a file.

    Attributes:
        name: Its name there.
        type: Its kind.
        agent: Its agent, or None.
        connector: What reads it; None while the file it reads is not there, which is its failure and nobody else's.
        make: Makes the connector.
        watched: Files and folders whose changes can be followed; empty for what has to be looked at.
    """

    name: str
    type: str
    agent: str | None
    connector: BaseConnector | None
    make: Callable[[], BaseConnector]
    watched: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of sources that has been checked.

    Attributes:
        path: The file.
        store: Folder of the store.
        embeddings: Model for a new store, or None.
        interval: How often sources that cannot be followed are looked at.
        sources: The sources, in their order.
        secrets: What must not be printed.
    """

    path: Path
    store: Path
    embeddings: str | None
    interval: timedelta
    sources: tuple[Source, ...]
    secrets: Secrets


def read_source_file(
    path: Path, environment: Mapping[str, str] | None = None, *, store: Path | None = None
) -> SourceFile:
    """The file, read and checked; no source is opened.

    Args:
        path: A TOML file. Relative paths in it are relative to its folder; `${NAME}` stands for a variable of the
            environment.
        environment: Names and values; those of the process by default.
        store: Folder of the store, in place of the one the file names.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; the message lists all of it, with lines.
        MissingExtraError: a kind of source needs an extra that is not installed.
    """
    path = path.absolute()
    try:
        text = path.read_text(encoding="utf-8-sig")
        given = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"Cannot read {path}: it is not UTF-8 ({error.reason}); save it as UTF-8."
        ) from error
    except tomllib.TOMLDecodeError as error:
        hint = " A key with other letters than a-z needs quotes." if "key part" in str(error) else ""
        raise UsageError(f"Cannot read {path} as TOML: {error}.{hint}") from error
    return _Checker(path, text, Secrets(environment), store).checked(given)


class _Checker:
    """One reading of a file, which notes every problem before it complains."""

    def __init__(self, path: Path, text: str, secrets: Secrets, store: Path | None) -> None:
        self._path, self._lines, self._secrets, self._store = path, text.splitlines(), secrets, store
        self._problems: list[str] = []

    def checked(self, given: dict[str, Any]) -> SourceFile:
        top = self._known(given, _TOP, None)
        sections = top.pop("source", [])
        if not isinstance(sections, list) or not all(isinstance(one, dict) for one in sections):
            self._problems.append("sources are written as [[source]] sections, with two brackets")
            sections = []
        elif not sections:
            self._problems.append("there is no [[source]]")
        top = self._filled(top, None)
        self._forms(top, _TOP, None)
        interval = self._interval(top.get("interval"))
        if self._store is None and isinstance(named := top.get("store"), str):
            self._store = self._path.parent / Path(named).expanduser()
        if self._store is None:
            self._note('store must name a folder, such as "agentrag_store"', None)
        sources = [self._source(section, number) for number, section in enumerate(sections)]
        self._twins(sections)
        if self._problems:
            raise UsageError(f"{self._path.name} cannot be used: {'; '.join(self._problems)}.")
        assert self._store is not None  # noqa: S101  (it would be a problem)
        return SourceFile(
            path=self._path,
            store=self._store,
            embeddings=top.get("embeddings"),
            interval=interval,
            sources=tuple(source for source in sources if source is not None),
            secrets=self._secrets,
        )

    def _source(self, section: dict[str, Any], number: int) -> Source | None:
        before = len(self._problems)
        kind = KINDS.get(section["type"]) if isinstance(section.get("type"), str) else None
        if kind is None:
            self._note(
                f"type must be one of {', '.join(KINDS)}{_meant(section.get('type'), KINDS)}", number, "type"
            )
            return None
        forms = {**COMMON, **kind.keys}
        settings = self._filled(self._known(section, forms, number), number)
        self._forms(settings, forms, number)
        self._complete(settings, kind, number)
        if len(self._problems) > before:
            return None
        folder = self._path.parent
        if section["type"] == "files":
            settings["exclude"] = self._left_out(folder / Path(settings["path"]).expanduser(), settings)
        make = partial(kind.build, settings, folder)
        watched = tuple(folder / Path(settings[key]).expanduser() for key in kind.watched if key in settings)
        try:
            kind.check(settings)
            there = not kind.looks or all(path.exists() for path in watched)
            connector = make() if there else None
        except (UsageError, ScopeError) as error:
            self._note(self._secrets.redact(str(error)).removesuffix("."), number, "type")
            return None
        return Source(settings["name"], section["type"], settings.get("agent"), connector, make, watched)

    def _left_out(self, root: Path, settings: dict[str, Any]) -> list[str]:
        """What a folder is read without: the store, and this file, which may hold what nobody is to find."""
        given = settings.get("exclude", ())
        own = (place for place in (self._store, self._path) if place is not None)
        inside = [
            glob.escape(place.resolve().relative_to(root.resolve()).as_posix())
            for place in own
            if place.resolve().is_relative_to(root.resolve()) and place.resolve() != root.resolve()
        ]
        return [*([given] if isinstance(given, str) else given), *inside]

    def _known(self, given: dict[str, Any], known: Mapping[str, str], number: int | None) -> dict[str, Any]:
        for key in given.keys() - known.keys():
            self._note(f"unknown key {key!r}{_meant(key, known)}", number, key)
        return {key: value for key, value in given.items() if key in known}

    def _forms(self, settings: dict[str, Any], forms: Mapping[str, str], number: int | None) -> None:
        for key, value in settings.items():
            if forms[key] in FORMS and not FORMS[forms[key]](value):
                self._note(f"{key} must be {forms[key]}", number, key)

    def _complete(self, settings: dict[str, Any], kind: Kind, number: int) -> None:
        for group in (("name",), *kind.required):
            if sum(key in settings for key in group) != 1:
                self._note(
                    f"it needs {' or '.join(group)}{', one of them' if len(group) > 1 else ''}", number
                )

    def _twins(self, sections: list[dict[str, Any]]) -> None:
        seen: set[str] = set()
        for number, section in enumerate(sections):
            name = section.get("name")
            if isinstance(name, str) and name in seen:
                self._note(f"the name {name!r} is taken: each source needs one of its own", number, "name")
            seen.add(str(name))

    def _filled(self, value: Any, number: int | None, key: str | None = None) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return {name: self._filled(item, number, key or name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, number, key) for item in value]
        if not isinstance(value, str):
            return value
        try:
            return self._secrets.fill(value)
        except KeyError as error:
            self._note(f"the environment variable {error.args[0]} is not set", number, key)
        except ValueError as error:
            self._note(f"'${{{error}}}' names no environment variable; '$${{' stands for '${{'", number, key)
        return value

    def _interval(self, given: object) -> timedelta:
        if not isinstance(given, str):
            return _INTERVAL
        try:
            seconds = re.fullmatch(r"(\d{1,6})\s*s", given)
            return check_duration(
                "interval", int(seconds[1]) if seconds else EPOCH - check_time("", given, EPOCH)
            )
        except UsageError:
            self._note('interval must be a length of time: "30s", "5min", "2h"', None, "interval")
            return _INTERVAL

    def _note(self, problem: str, number: int | None, key: str | None = None) -> None:
        line = self._line(number, key)
        where = "" if line is None else f"line {line}: "
        section = "" if number is None else "in [[source]] "
        self._problems.append(f"{where}{section}{problem}")

    def _line(self, number: int | None, key: str | None) -> int | None:
        """Line of a key in the section of that number (None: before all sections), else of the section's head."""
        name = re.escape(key or "")
        wanted = re.compile(rf"""\s*["']?{name}["']?\s*[=.]|\s*\[.*\b{name}\b""") if key else None
        place, head = -1, None
        for line, written in enumerate(self._lines, 1):
            if _HEADER.match(written):
                place += 1
                head = line if place == number else head
            elif wanted is not None and place == (-1 if number is None else number) and wanted.match(written):
                return line
        return head


def _meant(given: object, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(given), known, 1)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"
