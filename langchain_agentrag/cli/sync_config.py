"""The sync file of `agentrag sync`: parsing, environment variables, secrets, validation, connectors of the sources."""

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

from langchain_agentrag.cli.language import _, translate
from langchain_agentrag.connector import BaseConnector
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.times import check_duration

_REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\{(?P<bad>[^}]*)\}?)")
_PASSWORD = re.compile(r"://[^/@\s:]*:(?P<password>[^/@\s]+)@")
_MIN_SECRET = 3  # characters; hiding anything shorter would hide ordinary words


class Secrets:
    """Substitution of `${NAME}` by environment variables, whose values are redacted from messages.

    `$${` stands for `${`. Values from the environment and passwords in URLs become `***` in messages.

    Args:
        environment: Variables; those of the process by default.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._hidden: set[str] = set()

    def fill(self, text: str) -> str:
        """Replace the references in a text.

        Raises:
            KeyError: a variable is not set; the argument is its name.
            ValueError: the text between the braces is no name.
        """
        filled = _REFERENCE.sub(self._replacement, text)
        for url in _PASSWORD.finditer(filled):
            self._hide(url["password"])
            self._hide(unquote(url["password"]))
        return filled

    def redact(self, text: str) -> str:
        """Replace secrets in a text by `***`."""
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _replacement(self, reference: re.Match[str]) -> str:
        if reference["escaped"]:
            return "${"
        if reference["name"] is None:
            raise ValueError(reference["bad"] or "")
        value = self._environment[reference["name"]]
        self._hide(value)
        return value

    def _hide(self, value: str) -> None:
        if len(value) >= _MIN_SECRET:
            self._hidden.add(value)


Settings = Mapping[str, Any]
"""Keys and checked values of one `[[source]]`."""

_TEXT, _FLAG, _COUNT = "a text", "true or false", "a whole number"
_TEXTS, _TABLE = "a text or a list of texts", "a table"
_AGENTS = '"recorded", or a table of session = "agent"'

VALUE_TYPES: Mapping[str, Callable[[object], bool]] = {
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
"""Type of a value, as in error messages → its test."""

COMMON_KEYS: Mapping[str, str] = {"name": _TEXT, "type": _TEXT, "agent": _TEXT}
"""Keys of every source, with the types of their values."""

_FILE_URL = re.compile(r"(?P<scheme>(?:sqlite|duckdb)(?:\+\w+)?):///(?P<path>[^/?:][^?]*)(?P<rest>\?.*)?")


@dataclass(frozen=True, slots=True)
class SourceType:
    """One type of source.

    Attributes:
        keys: Key → type of its value, besides the common ones.
        required: Groups of keys of which exactly one is needed.
        build: Builds the connector from the settings; relative paths are relative to the folder.
        watched: Keys that hold a path to watch for changes.
        check: Raises an error for invalid settings, even where the source does not exist.
        needs_path: Whether the connector can be built only when the watched path exists.
    """

    keys: Mapping[str, str]
    required: tuple[tuple[str, ...], ...]
    build: Callable[[Settings, Path], BaseConnector]
    watched: tuple[str, ...] = ()
    check: Callable[[Settings], object] = lambda _settings: None
    needs_path: bool = False


def _options(settings: Settings, without: tuple[str, ...], **renamed: str) -> dict[str, Any]:
    """Return the keyword arguments of a connector: the settings without some keys, others renamed."""
    names = {"agent": "agent_id", **renamed}
    return {names.get(key, key): value for key, value in settings.items() if key not in {"type", *without}}


def _files_connector(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.files import FileSystemConnector

    options = _options(settings, without=("path",), ignore_files="respect_ignore_files")
    return FileSystemConnector(folder / Path(settings["path"]).expanduser(), **options)


def _database_connector(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.sql.connector import DatabaseConnector

    options = _options(settings, without=("url",))
    if isinstance(options.get("metadata"), str):
        options["metadata"] = [options["metadata"]]
    return DatabaseConnector(_absolute_url(settings["url"], folder), **options)


def _schema_connector(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.sql.schema import DatabaseSchemaConnector

    options = _options(settings, without=("url",))
    for key in {"tables", "schemas"} & options.keys():
        options[key] = [options[key]] if isinstance(options[key], str) else options[key]
    return DatabaseSchemaConnector(_absolute_url(settings["url"], folder), **options)


def _memory_connector(settings: Settings, folder: Path) -> BaseConnector:
    from langchain_agentrag.connectors.memory import AgentMemoryConnector

    options = _options(settings, without=("path", "url", "agent", "agents", "zone"))
    if "zone" in settings:
        options["zone"] = _zone(settings["zone"])
    path = settings.get("path")
    location = _absolute_url(settings["url"], folder) if path is None else folder / Path(path).expanduser()
    return AgentMemoryConnector(location, agent_id=_owner(settings), **options)


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
        raise UsageError(f'zone = "{name}" is no zone this machine knows: write "Asia/Shanghai", say.') from error


def _absolute_url(url: str, folder: Path) -> str:
    """Return a URL with the path of a database file made absolute."""
    parts = _FILE_URL.fullmatch(url)
    if parts is None:
        return url
    path = (folder / Path(parts["path"]).expanduser()).as_posix()
    return f"{parts['scheme']}:///{path}{parts['rest'] or ''}"


SOURCE_TYPES: Mapping[str, SourceType] = {
    "files": SourceType(
        {
            **dict.fromkeys(("glob", "exclude"), _TEXTS),
            **dict.fromkeys(("hidden", "ignore_files", "follow_links"), _FLAG),
            "path": _TEXT,
            "max_bytes": _COUNT,
            "metadata": _TABLE,
        },
        (("path",),),
        _files_connector,
        ("path",),
    ),
    "database": SourceType(
        {
            **dict.fromkeys(("url", "table", "query", "text", "agent_column", "no_agent", "version_column"), _TEXT),
            **dict.fromkeys(("key", "metadata"), _TEXTS),
            "content_addressed": _FLAG,
            "labels": _TABLE,
        },
        (("url",), ("table", "query")),
        _database_connector,
    ),
    "schema": SourceType(
        {**dict.fromkeys(("tables", "schemas"), _TEXTS), "url": _TEXT, "examples": _COUNT},
        (("url",),),
        _schema_connector,
    ),
    "memory": SourceType(
        {
            **dict.fromkeys(("path", "url", "backend", "table", "prefix", "zone"), _TEXT),
            **dict.fromkeys(("shared", "system"), _FLAG),
            "agents": _AGENTS,
            "metadata": _TABLE,
        },
        (("path", "url"),),
        _memory_connector,
        ("path",),
        check=_check_memory,
        needs_path=True,
    ),
}
"""Source types by their name in the file."""


_TOP_KEYS = {"store": "a text", "embeddings": "a text", "interval": "a text", "source": "[[source]] sections"}
_DEFAULT_INTERVAL = timedelta(seconds=60)
_HEADER = re.compile(r"\s*\[\[\s*source\s*\]\]")


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a sync file.

    Attributes:
        name: Its name in the file.
        type: Its type.
        agent: Its agent, or None.
        connector: Its connector; None while the file it reads does not exist, which fails this source alone.
        make: Builds the connector.
        watched: Files and folders to watch for changes; empty for a source that is polled.
    """

    name: str
    type: str
    agent: str | None
    connector: BaseConnector | None
    make: Callable[[], BaseConnector]
    watched: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A valid sync file.

    Attributes:
        path: The file.
        store: Folder of the store.
        embeddings: Model for a new store, or None.
        interval: How often sources that cannot be watched are polled.
        sources: The sources, in their order.
        secrets: Secrets to redact from messages.
    """

    path: Path
    store: Path
    embeddings: str | None
    interval: timedelta
    sources: tuple[Source, ...]
    secrets: Secrets


def read_source_file(
    path: Path, environment: Mapping[str, str] | None = None, *, store: Path | None = None, max_bytes: int | None = None
) -> SourceFile:
    """Read and validate a sync file; no source is opened.

    Args:
        path: A TOML file. Relative paths in it are relative to its folder; `${NAME}` stands for a variable of the
            environment.
        environment: Variables; those of the process by default.
        store: Folder of the store, in place of that of the file.
        max_bytes: Largest file that is read, in place of that of every source of files.

    Raises:
        UsageError: it cannot be read or is invalid; the message lists all problems, with lines.
        MissingExtraError: a type of source needs an extra that is not installed.
    """
    path = path.absolute()
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise UsageError(_("Cannot read {path}: {reason}.", path=path, reason=error.strerror or error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            _("Cannot read {path}: it is not UTF-8 ({reason}); save it as UTF-8.", path=path, reason=error.reason)
        ) from error
    except tomllib.TOMLDecodeError as error:
        hint = _(" A key with other letters than a-z needs quotes.") if "key part" in str(error) else ""
        raise UsageError(_("Cannot read {path} as TOML: {reason}.", path=path, reason=error) + hint) from error
    return _Validator(path, text, Secrets(environment), store, max_bytes).validate(document)


class _Validator:
    """Validation of one sync file: collects all problems, then raises them in one error."""

    def __init__(self, path: Path, text: str, secrets: Secrets, store: Path | None, max_bytes: int | None) -> None:
        self._path, self._lines, self._secrets = path, text.splitlines(), secrets
        self._store, self._max_bytes = store, max_bytes
        self._problems: list[str] = []

    def validate(self, document: dict[str, Any]) -> SourceFile:
        top = self._drop_unknown_keys(document, _TOP_KEYS, None)
        sections = top.pop("source", [])
        if not isinstance(sections, list) or not all(isinstance(section, dict) for section in sections):
            self._problems.append(_("sources are written as [[source]] sections, with two brackets"))
            sections = []
        elif not sections:
            self._problems.append(_("there is no [[source]]"))
        top = self._fill_variables(top, None)
        self._check_types(top, _TOP_KEYS, None)
        interval = self._parse_interval(top.get("interval"))
        if self._store is None and isinstance(named := top.get("store"), str):
            self._store = self._path.parent / Path(named).expanduser()
        if self._store is None:
            self._add_problem(_('store must name a folder, such as "agentrag_store"'), None)
        sources = [self._parse_source(section, number) for number, section in enumerate(sections)]
        self._check_unique_names(sections)
        if self._problems:
            problems = "; ".join(self._problems)
            raise UsageError(_("{file} cannot be used: {problems}.", file=self._path.name, problems=problems))
        assert self._store is not None  # noqa: S101  (None is a problem, raised above)
        return SourceFile(
            path=self._path,
            store=self._store,
            embeddings=top.get("embeddings"),
            interval=interval,
            sources=tuple(source for source in sources if source is not None),
            secrets=self._secrets,
        )

    def _parse_source(self, section: dict[str, Any], number: int) -> Source | None:
        before = len(self._problems)
        source_type = SOURCE_TYPES.get(section["type"]) if isinstance(section.get("type"), str) else None
        if source_type is None:
            self._add_problem(
                _(
                    "type must be one of {types}{guess}",
                    types=", ".join(SOURCE_TYPES),
                    guess=_suggestion(section.get("type"), SOURCE_TYPES),
                ),
                number,
                "type",
            )
            return None
        types = {**COMMON_KEYS, **source_type.keys}
        settings = self._fill_variables(self._drop_unknown_keys(section, types, number), number)
        self._check_types(settings, types, number)
        self._check_required(settings, source_type, number)
        if len(self._problems) > before:
            return None
        folder = self._path.parent
        if section["type"] == "files":
            if self._max_bytes is not None:
                settings["max_bytes"] = self._max_bytes
            settings["exclude"] = self._exclude_own_files(folder / Path(settings["path"]).expanduser(), settings)
        make = partial(source_type.build, settings, folder)
        watched = tuple(folder / Path(settings[key]).expanduser() for key in source_type.watched if key in settings)
        try:
            source_type.check(settings)
            can_build = not source_type.needs_path or all(path.exists() for path in watched)
            connector = make() if can_build else None
        except (UsageError, ScopeError) as error:
            self._add_problem(
                self._secrets.redact(translate(str(error))).removesuffix(".").removesuffix("。"), number, "type"
            )
            return None
        return Source(settings["name"], section["type"], settings.get("agent"), connector, make, watched)

    def _exclude_own_files(self, root: Path, settings: dict[str, Any]) -> list[str]:
        """Return the exclude patterns with the store and this file added, which may hold secrets."""
        exclude = settings.get("exclude", ())
        root = root.resolve()
        own = [path.resolve() for path in (self._store, self._path) if path is not None]
        inside = [
            glob.escape(path.relative_to(root).as_posix()) for path in own if path != root and path.is_relative_to(root)
        ]
        return [*([exclude] if isinstance(exclude, str) else exclude), *inside]

    def _drop_unknown_keys(
        self, settings: dict[str, Any], known: Mapping[str, str], number: int | None
    ) -> dict[str, Any]:
        for key in settings.keys() - known.keys():
            self._add_problem(_("unknown key {key!r}{guess}", key=key, guess=_suggestion(key, known)), number, key)
        return {key: value for key, value in settings.items() if key in known}

    def _check_types(self, settings: dict[str, Any], types: Mapping[str, str], number: int | None) -> None:
        for key, value in settings.items():
            if types[key] in VALUE_TYPES and not VALUE_TYPES[types[key]](value):
                self._add_problem(_("{key} must be {type}", key=key, type=_(types[key])), number, key)

    def _check_required(self, settings: dict[str, Any], source_type: SourceType, number: int) -> None:
        for group in (("name",), *source_type.required):
            if sum(key in settings for key in group) != 1:
                keys = _(" or ").join(group)
                text = (
                    _("it needs {keys}, one of them", keys=keys) if len(group) > 1 else _("it needs {keys}", keys=keys)
                )
                self._add_problem(text, number)

    def _check_unique_names(self, sections: list[dict[str, Any]]) -> None:
        seen: set[str] = set()
        for number, section in enumerate(sections):
            name = section.get("name")
            if isinstance(name, str) and name in seen:
                self._add_problem(
                    _("the name {name!r} is taken: each source needs one of its own", name=name), number, "name"
                )
            seen.add(str(name))

    def _fill_variables(self, value: Any, number: int | None, key: str | None = None) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return {name: self._fill_variables(item, number, key or name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._fill_variables(item, number, key) for item in value]
        if not isinstance(value, str):
            return value
        try:
            return self._secrets.fill(value)
        except KeyError as error:
            self._add_problem(_("the environment variable {name} is not set", name=error.args[0]), number, key)
        except ValueError as error:
            self._add_problem(
                _("'${{{text}}}' names no environment variable; '$${{' stands for '${{'", text=error), number, key
            )
        return value

    def _parse_interval(self, text: object) -> timedelta:
        if not isinstance(text, str):
            return _DEFAULT_INTERVAL
        try:
            return check_duration("interval", text)
        except UsageError:
            self._add_problem(_('interval must be a length of time: "30s", "5min", "2h"'), None, "interval")
            return _DEFAULT_INTERVAL

    def _add_problem(self, problem: str, number: int | None, key: str | None = None) -> None:
        line = self._find_line(number, key)
        where = "" if line is None else _("line {line}: ", line=line)
        section = "" if number is None else _("in [[source]] ")
        self._problems.append(f"{where}{section}{problem}")

    def _find_line(self, number: int | None, key: str | None) -> int | None:
        """Return the line of a key in the section of that number (None: the top), else of the section's header."""
        name = re.escape(key or "")
        pattern = re.compile(rf"""\s*["']?{name}["']?\s*[=.]|\s*\[.*\b{name}\b""") if key else None
        section, header = -1, None
        for line, text in enumerate(self._lines, 1):
            if _HEADER.match(text):
                section += 1
                header = line if section == number else header
            elif pattern is not None and section == (-1 if number is None else number) and pattern.match(text):
                return line
        return header


def _suggestion(name: object, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), known, 1)
    return _(" (did you mean {name!r}?)", name=close[0]) if close else _(" (known: {names})", names=", ".join(known))
