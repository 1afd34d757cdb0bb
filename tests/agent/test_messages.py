"""The files `messages.toml`: every message in every language, with the same placeholders."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from string import Formatter

import pytest

import langchain_agentrag
from langchain_agentrag.agent.messages import load_messages

PACKAGE = Path(langchain_agentrag.__file__).parent
FILES = {
    path.parent.relative_to(PACKAGE).as_posix(): tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("messages.toml"))
}
SUBJECTS = [(package, subject) for package, subjects in FILES.items() for subject in subjects]


@pytest.mark.parametrize(("package", "subject"), SUBJECTS)
def test_every_message_has_every_language_and_the_same_placeholders(package: str, subject: str):
    messages = FILES[package][subject]
    languages = {language for texts in messages.values() for language in texts}
    assert languages >= {"en", "zh"}
    for key, texts in messages.items():
        assert texts.keys() == languages, key
        assert all(isinstance(text, str) and text for text in texts.values()), key
        fields = {frozenset(field for _, field, *_ in Formatter().parse(text) if field) for text in texts.values()}
        assert len(fields) == 1, (key, fields)


def test_the_code_loads_exactly_these_subjects():
    call = re.compile(r'load_messages\("(\w+)", "(\w+)"')
    loaded = {match for path in PACKAGE.rglob("*.py") for match in call.findall(path.read_text(encoding="utf-8"))}
    assert loaded == set(SUBJECTS)


def test_messages_are_read_in_one_language():
    assert load_messages("guard", "type_names", "en")["integer"] == "a whole number"
    assert load_messages("guard", "type_names", "zh")["integer"] == "整数"
    assert load_messages("agent", "fence", "both")["close"] == "⟦end {token}⟧"


@pytest.mark.parametrize(
    ("package", "subject", "language", "name"),
    [("agent", "budget", "fr", "budget.repeated.fr"), ("agent", "no_such_subject", "en", "no_such_subject")],
)
def test_a_missing_subject_or_language_is_named(package: str, subject: str, language: str, name: str):
    with pytest.raises(KeyError, match=name):
        load_messages(package, subject, language)
