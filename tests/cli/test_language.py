"""Every message of the command line is in one language, English or Chinese, by --lang, AGENTRAG_LANG or the locale."""

from __future__ import annotations

import ast
import errno
import os
import re
import string
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.cli import commands, language
from langchain_agentrag.cli.app import app
from langchain_agentrag.cli.language import choose_language, sentence, translate, use_language

CLI = Path(commands.__file__).parent
MESSAGES = tomllib.loads((CLI / "chinese.toml").read_text(encoding="utf-8"))
CATALOG = {english: chinese for table in MESSAGES.values() for english, chinese in table.items()}
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture
def chinese():
    use_language("zh")
    yield
    use_language("en")


def texts_in_the_code() -> set[str]:
    """English texts that the modules pass to `_`, `plural` and `sentence`."""
    texts = set()
    for path in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                arguments = {"_": node.args[:1], "sentence": node.args[:1], "plural": node.args[1:2]}
                for argument in arguments.get(node.func.id, []):
                    if isinstance(argument, ast.Constant):
                        texts.add(argument.value)
    return texts


def help_texts(command: click.Command = app) -> set[str]:
    """Paragraphs of the help of every command and option."""
    texts = {" ".join(paragraph.split()) for paragraph in (command.english_help or "").split("\n\n")}
    texts |= {" ".join(parameter.english_help.split()) for parameter in command.params}
    for one in getattr(command, "commands", {}).values():
        texts |= help_texts(one)
    return texts


def test_every_text_has_a_chinese_one():
    texts = texts_in_the_code() | help_texts() | set(commands.EXIT_CODES.values())
    assert len(texts) > 200
    assert sorted(texts - CATALOG.keys() - {"{fusion}"}) == []


def test_every_chinese_text_fills_in_only_names_of_the_english_one():
    formatter = string.Formatter()
    for english, chinese in CATALOG.items():
        names = [{name for _, name, _, _ in formatter.parse(text) if name is not None} for text in (english, chinese)]
        assert names[1] <= names[0], english


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ([], {}, "en"),
        ([], {"LANG": "C"}, "en"),
        ([], {"LANG": "zh_CN.UTF-8"}, "zh"),
        ([], {"LANG": "zh_TW.UTF-8"}, "zh"),
        ([], {"LANG": "de_DE.UTF-8"}, "en"),
        ([], {"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ([], {"LANG": "C", "LC_MESSAGES": "zh_CN"}, "zh"),
        ([], {"LANG": "zh_CN.UTF-8", "AGENTRAG_LANG": "en"}, "en"),
        (["search", "--lang", "zh"], {"LANG": "C"}, "zh"),
        (["search", "--lang=en"], {"AGENTRAG_LANG": "zh"}, "en"),
        (["search", "--", "--lang", "zh"], {}, "en"),
    ],
)
def test_the_language_is_that_of_the_option_else_of_the_environment(words, environment, expected):
    assert choose_language(words, environment) == expected


def test_an_unknown_language_is_wrong_usage():
    assert CliRunner().invoke(app, ["stats", "--lang", "fr"]).exit_code == 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language") / "store"
    with DualIndexer(folder, "hash") as indexer:
        indexer.index_documents([SourceDocument("1.md", "# 7\n\n1102 2203", {"source": "1.md"})])
        indexer.index_documents([SourceDocument("2.md", "9999")], "7")
    return folder


# Words that are names in both languages: options, values, formats, units.
NAMES = re.compile(
    r"--?[\w-]+|agentrag[ \w]*|BM25|HashingEmbeddings\(dim=\d+\)|UTC|\bkB\b|\bbytes\b|1\.md|nope\.md|7741|telepathy|zzqx|"
    r"'[^']*'|“[^”]*”|`[^`]*`|read|score|QUERY|CONFIG|PATH|DOC_ID|AGENTRAG_\w+|absent\S*|JSON|TOML|adaptive|integer|after=|nonsense|eval|true|\$\w+|⟦.*⟧"
)
RUNS = [
    "stats",
    "stats --agent 7",
    "stats --agent 8",
    "search 1102 --no-fence --explain",
    "search zzqx --mode keyword --no-fence",
    "search 1102 --mode telepathy",
    "search 1102 -k 0",
    "search 1102 -k x",
    "search 1102 --nope",
    "search 1102 --agent 8 --no-fence",
    "search 1102 --after 7x",
    "search 1102 --filter [1]",
    "search 1102 --filter {",
    'search 1102 --filter {"a":{"$near":1}}',
    "search",
    "read 1.md --no-fence",
    "read nope.md",
    "read 1.md 99",
    "documents",
    "documents --agent 7",
    "documents --offset 9",
    "documents -n 0",
    "delete nope.md --yes",
    "delete",
    "delete 1.md",
    "forget 8",
    "forget 7",
    "expire",
    "memory",
    "memory --agent 7",
    "verify",
    "verify --deep",
    "repair",
    "index absent",
    "sync absent.toml",
    "eval absent.jsonl",
    "nonsense",
    "search 1102 --explain true",
]


@pytest.mark.parametrize("run", RUNS)
def test_a_message_is_in_one_language(run: str, store: Path):
    """No English words in a Chinese message, no Chinese in an English one."""
    for chosen in ("zh", "en"):
        words = [*run.split(), "--lang", chosen]
        result = CliRunner().invoke(app, words, env={"AGENTRAG_STORE": str(store), "COLUMNS": "80"})
        text = NAMES.sub(" ", result.output)
        if chosen == "en":
            assert not HAN.search(text), text
        else:
            assert not re.search(r"[A-Za-z]{3,}", text), text
            assert HAN.search(text), text


def test_a_chinese_message_does_not_end_in_english(chinese: None):
    reason = "damaged docx file: BadZipFile: File is not a zip file"
    assert (
        sentence("{verb}: {name}: {reason}", verb="failed", name="a.docx", reason=reason)
        == "失败：a.docx：docx 文件已损坏"
    )
    unknown = "the moon is in the wrong phase"
    assert (
        sentence("{verb}: {name}: {reason}", verb="failed", name="月.docx", reason=unknown)
        == f"failed: 月.docx: {unknown}"
    )
    assert translate(unknown) == unknown
    assert translate(f"cannot be read: {unknown}") == f"cannot be read: {unknown}"
    assert translate("cannot be read: Permission denied") == "无法读取：没有权限"


def test_the_texts_of_the_engine_are_those_it_has():
    """A message that the engine rewords would silently be English again."""
    package = CLI.parent
    pieces = [
        node.value
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    source = " ".join(re.findall(r"[\w'=.-]+", " ".join(pieces)))
    by_the_system = {os.strerror(number) for number in (errno.EACCES, errno.ENOENT)}
    for english in MESSAGES["engine"].keys() - by_the_system:
        # long texts are written in several literals: at least half of their word triples are in one of them
        words = [re.findall(r"[\w'=.-]+", piece) for piece in re.split(r"\{\w+\}", english)]
        triples = [" ".join(run[at : at + 3]) for run in words for at in range(max(len(run) - 2, 1)) if run]
        found = sum(triple in source for triple in triples)
        assert found >= 0.5 * len(triples), (english, triples)


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("name", ["", *app.commands])
@pytest.mark.parametrize("chosen", ["en", "zh"])
def test_help_fits_the_terminal(name: str, columns: int, chosen: str):
    words = [*filter(None, [name]), "--help", "--lang", chosen]
    text = CliRunner().invoke(app, words, terminal_width=columns).stdout
    assert max(map(cell_len, text.splitlines())) <= columns
    assert bool(HAN.search(text)) is (chosen == "zh")


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize(
    "run", ["stats", "search 1102 --no-fence --explain", "documents --agent 7", "verify", "read 1.md"]
)
def test_results_fit_the_terminal(run: str, columns: int, store: Path):
    environment = {"AGENTRAG_STORE": str(store), "COLUMNS": str(columns)}
    text = CliRunner().invoke(app, [*run.split(), "--lang", "zh"], env=environment).stdout
    assert max(map(cell_len, re.sub("⟦.*⟧", "", text).splitlines())) <= columns


def test_a_text_of_any_length_is_compared_quickly(chinese: None):
    assert translate("x" * 10**6) == "x" * 10**6
    assert language.translate(": " * 450) == ": " * 450
