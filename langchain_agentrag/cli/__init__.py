"""The `agentrag` command. This module stays light: the commands and their libraries load when `main` runs."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `agentrag` command."""
    import sys

    from langchain_agentrag.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a locale without the character shows "?", not a traceback
    app.main(args=[_as_text(word) for word in sys.argv[1:]], prog_name="agentrag")


def _as_text(word: str) -> str:
    """The word read as UTF-8 where a locale without it left bytes behind."""
    import os

    try:
        return os.fsencode(word).decode("utf-8") if not word.isascii() else word
    except UnicodeError:
        return word


__all__ = ["main"]
