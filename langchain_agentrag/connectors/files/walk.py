"""Listing of the files below a folder, with globs, ignore files and symbolic links."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from langchain_agentrag.connector import Gap
from langchain_agentrag.errors import MissingExtraError, UsageError
from langchain_agentrag.metadata import short_repr

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES: Final = (".gitignore", ".ignore", ".agentragignore")
"""Files with patterns to skip; the last one takes precedence."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file: its path relative to the root, with "/", its path and its stat result."""

    key: str
    path: Path
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """Which files to list.

    Attributes:
        globs: A file must match one of them.
        exclude: A file or folder that matches one of them is skipped.
        hidden: Include names that begin with a dot.
        ignore_files: Respect `IGNORE_FILES`.
        follow_links: Follow links, each folder at most once.
    """

    globs: tuple[str, ...]
    exclude: tuple[str, ...]
    hidden: bool
    ignore_files: bool
    follow_links: bool


def walk(root: Path, options: WalkOptions) -> Iterator[ListedFile | Gap]:
    """List all files below a folder, in order of their names; skipped and unreadable ones are gaps.

    Raises:
        OSError: the root itself cannot be listed.
    """
    return _Walker(root, options).run()


_Entry = ListedFile | Gap | Literal["folder"] | None
"""A file, a gap, a folder to enter, or None for a name that matches no glob."""


class _Walker:
    def __init__(self, root: Path, options: WalkOptions) -> None:
        self.root, self.options = root, options
        self.resolved_root = root.resolve()
        self.visited: set[tuple[int, int]] = set()

    def run(self) -> Iterator[ListedFile | Gap]:
        entries = _sorted_entries(self.root)  # raises if the root cannot be listed
        specs = _parent_specs(self.resolved_root) if self.options.ignore_files else ()
        self._first_visit(self.root.stat())
        stack = [self._frame("", entries, specs)]  # instead of recursion, to allow any depth
        while stack:
            pending, prefix, specs = stack[-1]
            entry = next(pending, None)
            if entry is None:
                stack.pop()
                continue
            key = prefix + entry.name
            classified = self._classify(entry, key, specs)
            if isinstance(classified, ListedFile | Gap):
                yield classified
            elif classified == "folder":
                try:
                    stack.append(self._frame(f"{key}/", _sorted_entries(Path(entry.path)), specs))
                except (OSError, ValueError) as error:
                    yield Gap(f"{key}/", f"folder cannot be listed: {_reason(error)}", skipped=False)

    def _frame(self, prefix: str, entries: list[os.DirEntry[str]], specs: tuple[_Spec, ...]) -> _Frame:
        own = _read_spec(entries) if self.options.ignore_files else None
        return iter(entries), prefix, specs if own is None else (_Spec(prefix, own), *specs)

    def _first_visit(self, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        is_first = identity not in self.visited
        self.visited.add(identity)
        return is_first

    def _classify(self, entry: os.DirEntry[str], key: str, specs: tuple[_Spec, ...]) -> _Entry:
        if not self.options.hidden and entry.name.startswith("."):
            return Gap(key, "hidden (hidden=True includes it)", skipped=True)
        try:
            status, link = entry.stat(follow_symlinks=self.options.follow_links), entry.is_symlink()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "broken link, or deleted meanwhile" if missing else f"stat failed: {_reason(error)}"
            return Gap(key, reason, skipped=missing)
        is_folder = stat.S_ISDIR(status.st_mode)
        if self._is_excluded(key, specs, is_folder=is_folder):
            return Gap(key, "excluded by a glob or an ignore file", skipped=True)
        if link and not self.options.follow_links:
            broken = "" if Path(entry.path).exists() else "broken "
            return Gap(key, f"{broken}link, not followed (follow_links=True follows it)", skipped=True)
        if not is_folder:
            return self._classify_file(Path(entry.path), key, status, link=link)
        first_visit = self._first_visit(status)
        return "folder" if first_visit else Gap(key, "folder already listed by another path", skipped=True)

    def _classify_file(self, path: Path, key: str, status: os.stat_result, *, link: bool) -> _Entry:
        if not any(_glob(pattern).fullmatch(key) for pattern in self.options.globs):
            return None
        if not stat.S_ISREG(status.st_mode):
            return Gap(key, "not a regular file", skipped=True)
        if link and path.resolve().is_relative_to(self.resolved_root):
            return Gap(key, "link to a file of the same folder", skipped=True)
        return ListedFile(key, path, status)

    def _is_excluded(self, key: str, specs: tuple[_Spec, ...], *, is_folder: bool) -> bool:
        names = (key, f"{key}/") if is_folder else (key,)
        if any(_glob(pattern).fullmatch(name) for pattern in self.options.exclude for name in names):
            return True
        # the nearest ignore file with a match decides
        decisions = (spec.excludes(names[-1]) for spec in specs)
        return next((decision for decision in decisions if decision is not None), False)


@dataclass(frozen=True, slots=True)
class _Spec:
    """Patterns of a folder's ignore files.

    Attributes:
        prefix: Key prefix of the folder.
        patterns: The patterns.
        above: Path from the folder to the root, for a folder above the root.
    """

    prefix: str
    patterns: GitIgnoreSpec
    above: str = ""

    def excludes(self, key: str) -> bool | None:
        return self.patterns.check_file(self.above + key.removeprefix(self.prefix)).include


_MAX_GLOB = 1_000  # characters

_Frame = tuple[Iterator[os.DirEntry[str]], str, tuple[_Spec, ...]]
"""A folder being listed: its remaining entries, its key prefix, and the ignore files that apply."""


def _sorted_entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _read_spec(entries: list[os.DirEntry[str]]) -> GitIgnoreSpec | None:
    """Return the patterns of a folder's ignore files.

    Raises:
        OSError: one of them cannot be read; the folder must not be indexed as if nothing were ignored.
    """
    paths = {entry.name: entry.path for entry in entries if entry.name in IGNORE_FILES}
    return _compile([Path(paths[name]) for name in IGNORE_FILES if name in paths])


def _compile(files: list[Path]) -> GitIgnoreSpec | None:
    files = [file for file in files if file.is_file()]
    if not files:
        return None
    try:
        from pathspec import GitIgnoreSpec
    except ImportError as error:
        raise MissingExtraError("Ignore files", "files") from error
    lines = [line for file in files for line in file.read_bytes().decode("utf-8-sig", "replace").splitlines()]
    return GitIgnoreSpec.from_lines(lines)


def _parent_specs(root: Path) -> tuple[_Spec, ...]:
    """Return the .gitignore files above a root inside a Git repository, the nearest first."""
    specs: list[_Spec] = []
    if (root / ".git").exists():
        return ()
    for folder in root.parents:
        patterns = _compile([folder / ".gitignore"])
        if patterns is not None:
            specs.append(_Spec("", patterns, root.relative_to(folder).as_posix() + "/"))
        if (folder / ".git").exists():
            return tuple(specs)
    return ()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `**` crosses folders, `*` and `?` do not, `{a,b}` are alternatives."""
    out, i, comma = "", 0, ","
    while i < len(pattern):
        if pattern.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif pattern.startswith("**", i):
            out, i = out + ".*", i + 2
        elif pattern[i] == "[" and (end := pattern.find("]", i + 2)) > 0:
            body = pattern[i + 1 : end].replace("\\", "\\\\")
            out, i = out + f"[{'^' + body[1:] if body[0] in '!^' else body}]", end + 1
        else:
            simple = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": comma}
            comma = "|" if pattern[i] == "{" else comma
            out, i = out + simple.get(pattern[i], re.escape(pattern[i])), i + 1
    return re.compile(out, re.DOTALL)


def check_globs(setting: str, patterns: str | Sequence[str]) -> tuple[str, ...]:
    """Return valid patterns as a tuple.

    Raises:
        UsageError: one is empty, longer than 1,000 characters, absolute, leaves the folder, or has unbalanced brackets.
    """
    globs = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in globs:
        if not _is_valid_glob(pattern):
            raise UsageError(
                f"FileSystemConnector({setting}={short_repr(pattern)}): a pattern is relative to the folder, at most "
                f"{_MAX_GLOB:,} characters, with '/' between names, like 'docs/*.md' or '**/*.{{md,txt}}'; it has no "
                "leading '/', no '..', and its brackets are balanced."
            )
    return globs


def _is_valid_glob(pattern: object) -> bool:
    if (
        not isinstance(pattern, str)
        or not 0 < len(pattern) <= _MAX_GLOB
        or pattern.startswith("/")
        or ".." in pattern.split("/")
    ):
        return False
    try:
        _glob(pattern)
    except (re.error, RecursionError):
        return False
    return True
