"""Click's classes as `agentrag` uses them: help in the user's language, errors as text or JSON, exit codes."""

from __future__ import annotations

import enum
import functools
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.cells import cell_len

from langchain_agentrag.cli.language import LANGUAGES, _, choose_language, translate, use_language
from langchain_agentrag.cli.terminal_text import line_breaks, printable
from langchain_agentrag.errors import AgentRagError, UsageError


class ExitCode(enum.IntEnum):
    """Exit codes of every command; `EXIT_CODES` says when each is used."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODES: Mapping[ExitCode, str] = {
    ExitCode.DONE: "done; a search or a list that finds nothing is done too",
    ExitCode.FAILED: "nothing could be done, what is named is not there, or a check found problems",
    ExitCode.USAGE: "wrong usage: unknown option, invalid value, empty query, path that does not exist",
    ExitCode.INCOMPLETE: "a part was done, a part not: a file, source or document is named with the reason",
    ExitCode.INTERRUPTED: "Ctrl-C; the store is consistent",
    ExitCode.BROKEN_PIPE: "the reader of the output went away",
}
"""Exit code → when a command ends with it, as the help says it."""


class CommandError(click.ClickException):
    """A command fails with a message and an exit code.

    Args:
        message: The message, in the language in use.
        code: The exit code.
        kind: Name of the kind of error in JSON.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED, kind: str = "CommandError") -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


def fail(message: str, code: ExitCode = ExitCode.FAILED, kind: str = "CommandError") -> NoReturn:
    """End the command with a message and an exit code."""
    raise CommandError(message, code, kind)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation before a deletion; without a terminal, --yes is required.

    Raises:
        CommandError: the answer is no.
        click.BadParameter: there is no terminal and no --yes.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.BadParameter(_("there is no terminal to confirm on: add --yes."), param_hint="--yes")
    if not click.confirm(question, err=True):
        raise CommandError(_("not confirmed; nothing was deleted."), kind="NotConfirmed")


def fail_interrupted() -> NoReturn:
    """End the command after Ctrl-C during a write."""
    message = _("stopped. What was finished is in the store, which is consistent; run the same command to go on.")
    fail(message, ExitCode.INTERRUPTED, "Interrupted")


# -- help -----------------------------------------------------------------------------------------------------------


class _HelpFormatter(click.HelpFormatter):
    """Formatter that knows that a Chinese character takes two cells and breaks without a space."""

    def write_text(self, text: str) -> None:
        self.write("".join(f"{line}\n" for line in self._lines(text, self.width, self.current_indent)))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        text = f"{_('Usage: ') if prefix is None else prefix}{prog} {args}"
        self.write("".join(f"{line}\n" for line in self._lines(text, self.width, 0)))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        widest = max(cell_len(term) for term, _text in rows)
        column = min(widest, col_max, self.width // 2) + 2
        for term, text in rows:
            margin = " " * self.current_indent
            lines = self._lines(text, self.width, self.current_indent + column)
            if cell_len(term) + 2 <= column and lines:
                lines[0] = margin + term + " " * (column - cell_len(term)) + lines[0].lstrip()
            else:
                lines.insert(0, margin + term)
            self.write("".join(f"{line}\n" for line in lines))

    @staticmethod
    def _lines(text: str, width: int, indent: int) -> list[str]:
        lines: list[str] = []
        for number, paragraph in enumerate(text.split("\n\n")):
            lines += [""] if number else []
            line = " ".join(paragraph.split())
            cuts = [0, *line_breaks(line, max(width - indent, 10)), len(line)]
            lines += [" " * indent + line[start:stop].strip() for start, stop in pairwise(cuts)]
        return lines


class _Context(click.Context):
    formatter_class = _HelpFormatter


def _paragraphs(item: click.Command | Option | Argument) -> list[str]:
    """Return the paragraphs of a help text in the current language."""
    text: str = item.english_help or ""  # type: ignore[union-attr]
    return [_(" ".join(paragraph.split())) for paragraph in text.split("\n\n")]


class Option(click.Option):
    """Option whose help is in the user's language."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.english_help = self.help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help."""
        self.help = " ".join(_paragraphs(self))
        return super().get_help_record(ctx)


class Argument(click.Argument):
    """Argument with a help of its own."""

    def __init__(self, *args: Any, help: str, **kwargs: Any) -> None:  # noqa: A002, ANN401
        super().__init__(*args, **kwargs)
        self.english_help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the argument and its help."""
        return self.make_metavar(ctx), " ".join(_paragraphs(self))


option = functools.partial(click.option, cls=Option)
argument = functools.partial(click.argument, cls=Argument)

_LANGUAGE_OPTION = Option(
    ["--lang"],
    type=click.Choice(LANGUAGES),
    envvar="AGENTRAG_LANG",
    show_envvar=True,
    expose_value=False,
    help="Language of the messages; default: that of the locale.",
)


class Command(click.Command):
    """Command with help in the user's language, the option --lang, and flags that take no value."""

    context_class = _Context

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.english_help = self.help

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, --lang among them."""
        *params, help_option = super().get_params(ctx)
        return [*params, _LANGUAGE_OPTION, help_option]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option --help."""
        help_option = super().get_help_option(ctx)
        if help_option is not None:
            help_option.help = _("Show this message and exit.")
        return help_option

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first paragraph: the list of the commands wraps."""
        return _paragraphs(self)[0]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of the command."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(_paragraphs(self)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options."""
        arguments = [param.get_help_record(ctx) for param in self.get_params(ctx) if isinstance(param, Argument)]
        if arguments:
            with formatter.section(_("Arguments")):
                formatter.write_dl(arguments)
        super().format_options(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; a flag followed by true or false is refused, which would else be searched for."""
        params = self.get_params(ctx)
        flags = {name for param in params if getattr(param, "is_flag", False) for name in _names(param)}
        for word, following in pairwise(args):
            if word == "--":
                break
            if word in flags and following.lower() in {"true", "false"}:
                message = _(
                    "{flag} is a flag and takes no value: leave out “{value}”, or put -- before it if it is meant "
                    "as text.",
                    flag=word,
                    value=following,
                )
                raise click.UsageError(message, ctx)
        return super().parse_args(ctx, args)


def _names(param: click.Parameter) -> list[str]:
    return [*param.opts, *param.secondary_opts]


# -- running --------------------------------------------------------------------------------------------------------


class CommandGroup(Command, click.Group):
    """The `agentrag` command: sets the language, runs a command, and turns errors into messages and exit codes."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they are needed."""
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section(_("Exit codes")):
            formatter.write_dl([(str(int(code)), _(EXIT_CODES[code])) for code in ExitCode])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        click.Command.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002  (Click's signature)
        **extra: Any,  # noqa: ANN401
    ) -> NoReturn:
        """Run a command and exit with its code."""
        words = list(sys.argv[1:] if args is None else args)
        use_language(choose_language(words, os.environ))
        try:
            code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.Exit as error:  # pragma: no cover  (Click returns its code)
            code = error.exit_code
        except click.Abort:
            code = _report(CommandError(_("stopped."), ExitCode.INTERRUPTED, "Interrupted"), words)
        except click.ClickException as error:
            code = _report(error, words)
        sys.exit(int(code) if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run the command of the context."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            raise click.exceptions.Exit(ExitCode.BROKEN_PIPE) from None
        except AgentRagError as error:
            code = ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED
            fail(translate(str(error)), code, type(error).__name__)
        return result


def _report(error: click.ClickException, words: Sequence[str]) -> int:
    """Print an error on standard error, as one line of JSON if the words ask for JSON; return the exit code."""
    from langchain_agentrag.cli.output import stderr_console

    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    message = printable(" ".join(error.format_message().split()))
    if isinstance(error, CommandError):
        code, kind = error.code, error.kind
    else:
        code, kind = ExitCode(error.exit_code), "UsageError"
    if _asks_for_json(words):
        document = {"error": {"type": kind, "message": message, "exit_code": int(code)}}
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
        return code
    console = stderr_console()
    console.print(f"agentrag: {message}", style="red", markup=False, soft_wrap=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = _("Help: {command}", command=f"{error.ctx.command_path} --help")
        console.print(hint, style="dim", markup=False, soft_wrap=True)
    return code


def _asks_for_json(words: Sequence[str]) -> bool:
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _discard_output() -> None:
    """Redirect standard output to the null device, so that flushing at exit does not fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (lives until exit)


def existing_path(value: str | Path, name: str) -> Path:
    """Return a path that exists.

    Raises:
        click.BadParameter: it does not.
    """
    path = Path(value)
    if not path.exists():
        raise click.BadParameter(_("{path} does not exist.", path=path), param_hint=name)
    return path
