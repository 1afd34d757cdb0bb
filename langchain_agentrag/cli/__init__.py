"""The `agentrag` command. This module stays light: the commands and their libraries load when `main` runs."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `agentrag` command."""
    from langchain_agentrag.cli.app import app

    app(prog_name="agentrag")


__all__ = ["main"]
