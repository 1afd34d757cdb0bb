"""Walking a folder: every regular file once, ignore files respected, links and special files reported."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from langchain_agentrag.connector import Gap
from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pathspec import GitIgnoreSpec

IGNORE_FILES: Final = (".gitignore", ".ignore", ".agentragignore")
"""Files with patterns of what to leave out, the last one with the last word."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file: its path relative to the root, with "/", and what the system says of it."""

    key: str
    path: Path
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class Rules:
    """What to take and what to leave out.

    Attributes:
        globs: A file must match one of them.
        exclude: A file or folder that matches one of them is left out.
        hidden: Take names that begin with a dot.
        ignore_files: Respect `IGNORE_FILES`.
        follow_links: Go through links, each folder at most once.
    """

    globs: tuple[str, ...]
    exclude: tuple[str, ...]
    hidden: bool
    ignore_files: bool
    follow_links: bool


def walk(root: Path, rules: Rules) -> Iterator[FoundFile | Gap]:
    """All files below a folder, in order of their names; what is left out or unreadable as gaps.

    Raises:
        OSError: the root itself cannot be listed.
    """
    return _Walker(root, rules).run()


_Seen = FoundFile | Gap | Literal["folder"] | None
"""A file, a gap, a folder to go into, or nothing that was asked for."""


class _Walker:
    def __init__(self, root: Path, rules: Rules) -> None:
        self.root, self.rules = root, rules
        self.inside = root.resolve()
        self.visited: set[tuple[int, int]] = set()

    def run(self) -> Iterator[FoundFile | Gap]:
        entries = _sorted_entries(self.root)  # raised here, an unlistable root ends the whole run
        specs = _specs_above(self.inside) if self.rules.ignore_files else ()
        self._first_visit(self.root.stat())
        yield from self._folder("", entries, specs)

    def _first_visit(self, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        seen = identity in self.visited
        self.visited.add(identity)
        return not seen

    def _folder(
        self, prefix: str, entries: list[os.DirEntry[str]], specs: tuple[_Spec, ...]
    ) -> Iterator[FoundFile | Gap]:
        """The entries of one folder; folders below are walked with a stack, however deep they lie."""
        stack: list[tuple[Iterator[os.DirEntry[str]], str, tuple[_Spec, ...]]] = []
        self._push(stack, prefix, entries, specs)
        while stack:
            pending, prefix, specs = stack[-1]
            entry = next(pending, None)
            if entry is None:
                stack.pop()
                continue
            key = prefix + entry.name
            found = self._look(entry, key, specs)
            if isinstance(found, FoundFile | Gap):
                yield found
            elif found == "folder":
                try:
                    self._push(stack, f"{key}/", _sorted_entries(Path(entry.path)), specs)
                except (OSError, ValueError) as error:
                    yield Gap(f"{key}/", f"folder cannot be listed: {_reason(error)}", skipped=False)

    def _push(
        self,
        stack: list[tuple[Iterator[os.DirEntry[str]], str, tuple[_Spec, ...]]],
        prefix: str,
        entries: list[os.DirEntry[str]],
        specs: tuple[_Spec, ...],
    ) -> None:
        own = _read_spec(entries) if self.rules.ignore_files else None
        stack.append((iter(entries), prefix, specs if own is None else (_Spec(prefix, own), *specs)))

    def _look(self, entry: os.DirEntry[str], key: str, specs: tuple[_Spec, ...]) -> _Seen:
        """What a name stands for."""
        if not self.rules.hidden and entry.name.startswith("."):
            return Gap(key, "hidden (hidden=True takes it)", skipped=True)
        try:
            status, link = entry.stat(follow_symlinks=self.rules.follow_links), entry.is_symlink()
        except FileNotFoundError:
            return Gap(key, "broken link, or deleted meanwhile", skipped=True)
        except OSError as error:
            return Gap(key, f"cannot be looked at: {_reason(error)}", skipped=False)
        folder = stat.S_ISDIR(status.st_mode)
        if self._left_out(key, specs, folder=folder):
            return Gap(key, "left out by exclude or an ignore file", skipped=True)
        if link and not self.rules.follow_links:
            broken = "" if Path(entry.path).exists() else "broken "
            return Gap(key, f"{broken}link, not followed (follow_links=True follows it)", skipped=True)
        return (
            self._look_into(key, status)
            if folder
            else self._look_at(Path(entry.path), key, status, link=link)
        )

    def _look_into(self, key: str, status: os.stat_result) -> _Seen:
        if self._first_visit(status):
            return "folder"
        return Gap(key, "folder that was visited already by another path", skipped=True)

    def _look_at(self, path: Path, key: str, status: os.stat_result, *, link: bool) -> _Seen:
        if not any(_glob(pattern).fullmatch(key) for pattern in self.rules.globs):
            return None
        if not stat.S_ISREG(status.st_mode):
            return Gap(key, "not a regular file", skipped=True)
        if link and path.resolve().is_relative_to(self.inside):
            return Gap(key, "link to a file of the same folder", skipped=True)
        return FoundFile(key, path, status)

    def _left_out(self, key: str, specs: tuple[_Spec, ...], *, folder: bool) -> bool:
        names = (key, f"{key}/") if folder else (key,)
        if any(_glob(pattern).fullmatch(name) for pattern in self.rules.exclude for name in names):
            return True
        for spec in specs:  # the nearest ignore file that says something decides
            verdict = spec.verdict(names[-1])
            if verdict is not None:
                return verdict
        return False


@dataclass(frozen=True, slots=True)
class _Spec:
    """An ignore file and the folder it stands in, as the beginning of a key; above the root, what to put before."""

    prefix: str
    patterns: GitIgnoreSpec
    above: str = ""

    def verdict(self, key: str) -> bool | None:
        return self.patterns.check_file(self.above + key.removeprefix(self.prefix)).include


def _sorted_entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _read_spec(entries: list[os.DirEntry[str]]) -> GitIgnoreSpec | None:
    """The patterns of a folder's ignore files.

    Raises:
        OSError: one of them cannot be read; the folder must not be indexed as if it ignored nothing.
    """
    found = {entry.name: entry.path for entry in entries if entry.name in IGNORE_FILES}
    return _compile([Path(found[name]) for name in IGNORE_FILES if name in found])


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


def _specs_above(root: Path) -> tuple[_Spec, ...]:
    """The .gitignore files above a root that lies inside a Git repository, the nearest first."""
    found: list[_Spec] = []
    if (root / ".git").exists():
        return ()
    for folder in root.parents:
        patterns = _compile([folder / ".gitignore"])
        if patterns is not None:
            found.append(_Spec("", patterns, root.relative_to(folder).as_posix() + "/"))
        if (folder / ".git").exists():
            return tuple(found)
    return ()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression: `**` crosses folders, `*` and `?` do not, `{a,b}` gives a choice."""
    out, i = "", 0
    while i < len(pattern):
        if pattern.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif pattern.startswith("**", i):
            out, i = out + ".*", i + 2
        elif pattern[i] == "[" and (end := pattern.find("]", i + 2)) > 0:
            body = pattern[i + 1 : end].replace("\\", "\\\\")
            out, i = out + f"[{'^' + body[1:] if body[0] in '!^' else body}]", end + 1
        else:
            simple = {
                "*": "[^/]*",
                "?": "[^/]",
                "{": "(?:",
                "}": ")",
                ",": "|" if "{" in pattern[:i] else ",",
            }
            out, i = out + simple.get(pattern[i], re.escape(pattern[i])), i + 1
    return re.compile(out, re.DOTALL)


def check_globs(patterns: str | Sequence[str]) -> tuple[str, ...]:
    """The patterns as a tuple.

    Raises:
        ValueError: one is empty, absolute, climbs out of the folder, or has unbalanced brackets.
    """
    found = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in found:
        if (
            not isinstance(pattern, str)
            or not pattern
            or pattern.startswith("/")
            or ".." in pattern.split("/")
        ):
            raise ValueError(repr(pattern))
        try:
            _glob(pattern)
        except re.error as error:
            raise ValueError(repr(pattern)) from error
    return found
