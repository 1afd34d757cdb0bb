"""Language of the command line: English in the code, Chinese from `chinese.toml`, for our texts and for Click's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

import click

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

_LOCALE_VARIABLES = ("AGENTRAG_LANG", "LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LONGEST_TRANSLATED = 1_000  # characters of a finished message that is compared with the templates

_current: Language = "en"


def choose_language(words: Sequence[str], environment: Mapping[str, str]) -> Language:
    """Return the language of --lang, else of AGENTRAG_LANG, else of the locale: Chinese for zh, English for others."""
    named = None
    for position, word in enumerate(words):
        if word == "--":
            break
        if word.startswith("--lang="):
            named = word.removeprefix("--lang=")
        elif word == "--lang" and position + 1 < len(words):
            named = words[position + 1]
    wanted = named or next((value for name in _LOCALE_VARIABLES if (value := environment.get(name))), "")
    return "zh" if wanted.lower().startswith("zh") else "en"


def use_language(language: Language) -> None:
    """Print everything that follows in this language."""
    global _current  # noqa: PLW0603  (one process speaks one language)
    _current = language


def current_language() -> Language:
    """Return the language in use."""
    return _current


def _(text: str, /, **values: object) -> str:
    """Return a text of the command line in the current language, with the values filled in."""
    template = text if _current == "en" else _catalog().get(text, text)
    return template.format(**values) if values else template


def plural(one: str, many: str, count: int) -> str:
    """Return `one` or `many` in the current language; `{n}` becomes the count."""
    return _(one if count == 1 and _current == "en" else many, n=f"{count:,}")


def translate(message: str) -> str:
    """Return a finished English message of the engine in the current language; an unknown one stays as it is.

    So does one that ends in a reason without a translation: a message is in one language throughout.
    """
    if _current == "en" or len(message) > _LONGEST_TRANSLATED:
        return message
    engine, patterns = _engine_messages()
    if message in engine:
        return engine[message]
    for pattern, template in patterns:
        if match := pattern.fullmatch(message):
            values = match.groupdict()
            for name in values.keys() & {"reason", "feature"}:
                translated = translate(values[name])
                if translated == values[name] and _has_words(translated):
                    return message
                values[name] = translated
            return template.format(**values)
    return message


def sentence(template: str, /, *, reason: str, **values: str) -> str:
    """Return a text that ends in a message of the engine, wholly in English where that message has no translation."""
    translated = translate(reason)
    if translated == reason and _has_words(reason):
        return template.format(reason=reason, **values)
    return _(template, reason=translated, **{name: _(value) for name, value in values.items()})


def _has_words(text: str) -> bool:
    """Return whether a text looks English."""
    return any(char.isascii() and char.isalpha() for char in text)


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads((files("langchain_agentrag.cli") / "chinese.toml").read_text(encoding="utf-8"))


@cache
def _catalog() -> Mapping[str, str]:
    """Return English text → Chinese text, of all tables of the file."""
    return {english: chinese for table in _tables().values() for english, chinese in table.items()}


@cache
def _engine_messages() -> tuple[Mapping[str, str], list[tuple[re.Pattern[str], str]]]:
    """Return the messages of the engine, and those with placeholders as patterns; the longest text first."""
    messages = _tables()["engine"]
    templates = [(english, chinese) for english, chinese in messages.items() if _PLACEHOLDER.search(english)]
    templates.sort(key=lambda pair: -len(_PLACEHOLDER.sub("", pair[0])))
    return messages, [(_as_pattern(english), chinese) for english, chinese in templates]


def _as_pattern(template: str) -> re.Pattern[str]:
    pieces, seen = [], set()
    for index, piece in enumerate(_PLACEHOLDER.split(template)):
        if index % 2 == 0:
            pieces.append(re.escape(piece))
        elif piece in seen:
            pieces.append(f"(?P={piece})")
        else:
            seen.add(piece)
            pieces.append(f"(?P<{piece}>.+?)")
    return re.compile("".join(pieces), re.DOTALL)


def _ngettext(one: str, many: str, count: int) -> str:
    return _(one if count == 1 else many)


# Click asks gettext for its texts; its modules hold the functions under these names.
for _module in (
    click.core,
    click.decorators,
    click.exceptions,
    click.formatting,
    click.parser,
    click.termui,
    click.types,
):
    for _name, _function in (("_", _), ("ngettext", _ngettext)):
        if hasattr(_module, _name):
            setattr(_module, _name, _function)
