"""FileSystemConnector: a file, or the files of a folder, as a source."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.files.formats import read, reason_to_leave_out
from langchain_agentrag.connectors.files.walk import FoundFile, Rules, check_globs, walk
from langchain_agentrag.errors import ConnectorError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_READING: Final = "1"
"""Raised when files are read differently, so that stored versions no longer count as equal."""
DEFAULT_MAX_BYTES: Final = 50 * 2**20


class FileSystemConnector(BaseConnector):
    """Files as documents, read again only when their size or time of change differs.

    Formats: Markdown, plain text in many encodings, HTML, PDF, Word, PowerPoint, Excel, CSV, JSON, JSON Lines,
    notebooks, source code, and any of the text formats packed with gzip. A document's id is `name/relative/path`.

    One folder is one source: what its connector no longer yields is deleted at the next sync. A second connector
    over the same folder, or over another folder of the same name, needs a `name` of its own.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        glob: str | Sequence[str] = "**/*",
        exclude: str | Sequence[str] = (),
        agent_id: str | None = None,
        hidden: bool = False,
        respect_ignore_files: bool = True,
        follow_links: bool = False,
        max_bytes: int = DEFAULT_MAX_BYTES,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Describe the source; nothing is read yet.

        Args:
            path: A folder, or a single file, which is then taken whatever the other settings say.
            glob: Which files, relative to the folder: `*.md` at its top, `**/*.md` anywhere, `**/*.{md,txt}`.
            exclude: Globs of files or folders to leave out.
            agent_id: Owner of the documents, or None for shared.
            hidden: Take files and folders whose names begin with a dot.
            respect_ignore_files: Leave out what .gitignore, .ignore and .agentragignore name.
            follow_links: Follow symbolic links; loops are survived.
            max_bytes: Larger files are skipped; also the most a .gz file may unpack to.
            metadata: Added to every document.
            name: First part of every document id and identity of the source; by default the folder's name. With
                a name of its own a source may move to another path and keep its documents.

        Raises:
            UsageError: a setting is impossible.
        """
        self.path = Path(path)
        self.agent_id = check_agent_id(agent_id)
        self.max_bytes = _checked_size(max_bytes)
        self.metadata = dict(metadata or {})
        if "agent_id" in self.metadata:
            msg = "FileSystemConnector(metadata=...) must not hold 'agent_id': pass agent_id=... instead."
            raise UsageError(msg)
        self.rules = Rules(
            globs=_checked_globs("glob", glob),
            exclude=_checked_globs("exclude", exclude),
            hidden=hidden,
            ignore_files=respect_ignore_files,
            follow_links=follow_links,
        )
        if name is not None and (not name or name != name.strip("/")):
            msg = f"FileSystemConnector(name={name!r}): a name must not be empty, or begin or end with '/'."
            raise UsageError(msg)
        self._given_name = name
        self.name = name or _storable_name(self.path.absolute().name or self.path.resolve().name or "root")

    @property
    def connector_id(self) -> str:
        """The name when one was given, else the folder's place, so that two folders are two sources."""
        place = "" if self._given_name else os.fsencode(self.path.resolve()).hex()
        owner = json.dumps(self.agent_id)
        digest = hashlib.sha256(f"{place}\n{owner}".encode()).hexdigest()[:12]
        return f"files:{self.name}:{digest}"

    def __repr__(self) -> str:
        return f"FileSystemConnector({str(self.path)!r}, glob={list(self.rules.globs)!r})"

    def items(self) -> Iterator[SourceItem | Gap]:
        """Every file below the folder, in order of the names.

        Raises:
            ConnectorError: the folder does not exist or cannot be listed.
        """
        try:
            if self.path.is_file():
                yield self._item(FoundFile(self.path.name, self.path, self.path.stat()))
                return
            for found in walk(self.path, self.rules):
                yield self._item(found) if isinstance(found, FoundFile) else _storable_gap(found)
        except OSError as error:
            where = "" if self.path.is_absolute() else f"; it is relative to {str(Path.cwd())!r}"
            msg = (
                f"Cannot list {str(self.path)!r}: {error.strerror or error}. Nothing was deleted on its account. "
                f"Check the path and its permissions{where}."
            )
            raise ConnectorError(msg) from error

    def _item(self, found: FoundFile) -> SourceItem | Gap:
        key, size = _storable_name(found.key), found.status.st_size
        if reason := reason_to_leave_out(key):
            return Gap(key, reason, skipped=True)
        if size > self.max_bytes:
            reason = f"{size:,} bytes, more than max_bytes={self.max_bytes:,}: raise max_bytes to index it"
            return Gap(key, reason, skipped=True)
        constants = hashlib.sha256(repr(sorted(self.metadata.items())).encode()).hexdigest()[:8]
        version = f"{size}-{found.status.st_mtime_ns}-{_READING}-{constants}"
        return SourceItem(key, version, partial(self._load, key, found))

    def _load(self, key: str, found: FoundFile) -> list[SourceDocument]:
        """The document of one file, or none when it holds no text."""
        try:
            data = found.path.read_bytes()
        except OSError as error:
            msg = f"cannot be read: {error.strerror or error}"
            raise UnreadableSourceError(msg) from error
        if not data:
            return []
        file_format, content = read(key, data, self.max_bytes)
        if not content.text.strip():
            return []
        source = self.path if self.path.is_file() else self.path / key
        metadata = {
            **content.metadata,
            **self.metadata,
            "source": source.as_posix(),
            "file_name": key.rpartition("/")[2],
            "type": "file",
            "format": file_format,
            "size": len(data),
            "mtime": dt.datetime.fromtimestamp(found.status.st_mtime, dt.UTC),
        }
        doc_id = self.name if self.path.is_file() and not self._given_name else f"{self.name}/{key}"
        return [SourceDocument(doc_id, content.text, metadata, self.agent_id, content.kind, content.sections)]


def _storable_name(name: str) -> str:
    """A file name as text; bytes that are not UTF-8 are spelled out in hexadecimal."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _storable_gap(gap: Gap) -> Gap:
    return Gap(_storable_name(gap.key), gap.reason, gap.skipped)


def _checked_globs(setting: str, patterns: str | Sequence[str]) -> tuple[str, ...]:
    try:
        found = check_globs(patterns)
    except ValueError as error:
        msg = (
            f"FileSystemConnector({setting}={error}): a pattern is relative to the folder, with '/' between names, "
            "like 'docs/*.md' or '**/*.{md,txt}'; it has no leading '/', no '..', and closes its brackets."
        )
        raise UsageError(msg) from error
    if setting == "glob" and not found:
        msg = "FileSystemConnector(glob=()): no pattern matches no file; leave glob out to take every file."
        raise UsageError(msg)
    return found


def _checked_size(max_bytes: int) -> int:
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        msg = f"FileSystemConnector(max_bytes={max_bytes!r}): it must be a positive number of bytes."
        raise UsageError(msg)
    return max_bytes
