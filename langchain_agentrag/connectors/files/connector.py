"""FileSystemConnector: a file, or the files below a folder, as a source."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.files.formats import read, skip_reason
from langchain_agentrag.connectors.files.walk import ListedFile, WalkOptions, check_globs, walk
from langchain_agentrag.errors import ConnectorError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FORMAT_VERSION: Final = "1"
"""Part of every version; increase it when files are read differently, so that everything is indexed again."""
DEFAULT_MAX_BYTES: Final = 50 * 2**20


class FileSystemConnector(BaseConnector):
    """Files as documents, read again only when their size or modification time changes.

    Formats: Markdown, plain text in many encodings, HTML, PDF, Word, PowerPoint, Excel, CSV, JSON, JSON Lines,
    notebooks, source code, and any of the text formats packed with gzip. The document id is `name/relative/path`.

    One folder is one source: files its connector no longer yields are deleted at the next sync. A second connector over
    the same folder, or over another folder of the same name, needs a different `name`.
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
        """Configure the source; nothing is read yet.

        Args:
            path: A folder, or a single file, to which the other filters do not apply.
            glob: Which files, relative to the folder: `*.md` at its top, `**/*.md` anywhere, `**/*.{md,txt}`.
            exclude: Globs of files or folders to skip.
            agent_id: Owner of the documents, or None for shared.
            hidden: Include files and folders whose names begin with a dot.
            respect_ignore_files: Skip what .gitignore, .ignore and .agentragignore name.
            follow_links: Follow symbolic links; loops are detected.
            max_bytes: Larger files are skipped; also the largest unpacked size of a .gz file.
            metadata: Added to every document.
            name: First part of every document id and identity of the source; by default the folder's name. A source
                with a name can be moved to another path and keeps its documents.

        Raises:
            UsageError: a setting is invalid.
        """
        self.path = Path(path)
        self.agent_id = check_agent_id(agent_id)
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
            raise UsageError(f"FileSystemConnector(max_bytes={max_bytes!r}): it must be a positive number of bytes.")
        self.max_bytes = max_bytes
        self.metadata = dict(metadata or {})
        if "agent_id" in self.metadata:
            raise UsageError(
                "FileSystemConnector(metadata=...) must not contain 'agent_id': pass agent_id=... instead."
            )
        self.rules = WalkOptions(
            globs=check_globs("glob", glob),
            exclude=check_globs("exclude", exclude),
            hidden=hidden,
            ignore_files=respect_ignore_files,
            follow_links=follow_links,
        )
        if not self.rules.globs:
            raise UsageError(
                "FileSystemConnector(glob=()): without a pattern no file matches; omit glob to include every file."
            )
        if name is not None and (not name or name != name.strip("/")):
            raise UsageError(f"FileSystemConnector(name={name!r}): a name must not be empty, or begin or end with '/'.")
        self._explicit_name = name
        self.name = name or _storable_name(self.path.absolute().name or self.path.resolve().name or "root")

    @property
    def connector_id(self) -> str:
        """Name of the source, and digest of its owner and, unless a name was passed, of its path."""
        place = "" if self._explicit_name else os.fsencode(self.path.resolve()).hex()
        owner = json.dumps(self.agent_id)
        digest = hashlib.sha256(f"{place}\n{owner}".encode()).hexdigest()[:12]
        return f"files:{self.name}:{digest}"

    def __repr__(self) -> str:
        return f"FileSystemConnector({str(self.path)!r}, glob={list(self.rules.globs)!r})"

    def items(self) -> Iterator[SourceItem | Gap]:
        """List every file below the folder, in order of the names.

        Raises:
            ConnectorError: the folder does not exist or cannot be listed.
        """
        try:
            if self.path.is_file():
                yield self._item(ListedFile(self.path.name, self.path, self.path.stat()))
                return
            for listed in walk(self.path, self.rules):
                if isinstance(listed, ListedFile):
                    yield self._item(listed)
                else:
                    yield replace(listed, key=_storable_name(listed.key))
        except OSError as error:
            where = "" if self.path.is_absolute() else f"; it is relative to {str(Path.cwd())!r}"
            raise ConnectorError(
                f"Cannot list {str(self.path)!r}: {error.strerror or error}. Nothing was deleted. "
                f"Check the path and its permissions{where}."
            ) from error

    def _item(self, file: ListedFile) -> SourceItem | Gap:
        key, size = _storable_name(file.key), file.status.st_size
        if reason := skip_reason(key):
            return Gap(key, reason, skipped=True)
        if size > self.max_bytes:
            reason = f"{size:,} bytes, more than max_bytes={self.max_bytes:,}: raise max_bytes to index it"
            return Gap(key, reason, skipped=True)
        metadata = hashlib.sha256(repr(sorted(self.metadata.items())).encode()).hexdigest()[:8]
        version = f"{size}-{file.status.st_mtime_ns}-{_FORMAT_VERSION}-{metadata}"
        return SourceItem(key, version, partial(self._load, key, file))

    def _load(self, key: str, file: ListedFile) -> list[SourceDocument]:
        """Return the document of one file, or an empty list when it holds no text."""
        try:
            data = file.path.read_bytes()
        except OSError as error:
            raise UnreadableSourceError(f"cannot be read: {error.strerror or error}") from error
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
            "mtime": dt.datetime.fromtimestamp(file.status.st_mtime, dt.UTC),
        }
        doc_id = self.name if self.path.is_file() and not self._explicit_name else f"{self.name}/{key}"
        return [SourceDocument(doc_id, content.text, metadata, self.agent_id, content.kind, content.sections)]


def _storable_name(name: str) -> str:
    """Return a file name as valid Unicode; bytes that are not UTF-8 are written in hexadecimal."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
