"""A file of sources is checked as a whole, says where it is wrong, and gives no secret away."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from langchain_agentrag.cli.sync_config import Secrets, SourceFile, read_source_file
from langchain_agentrag.errors import UsageError

GOOD = """
store = "memory/store"
embeddings = "hash"
interval = "5min"

[[source]]
name = "manuals"
type = "files"
path = "docs"
glob = ["**/*.md", "**/*.txt"]
exclude = "drafts"
metadata = { "部门" = "机加工" }

[[source]]
name = "笔记"
type = "files"
path = "notes"
agent = "lina"

[[source]]
name = "chat"
type = "memory"
path = "chat.jsonl"
agent = "otto"
zone = "Asia/Shanghai"
"""


def read(folder: Path, text: str, **environment: str) -> SourceFile:
    path = folder / "agentrag.toml"
    path.write_text(text, encoding="utf-8")
    return read_source_file(path, environment)


def problem(folder: Path, text: str, **environment: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text, **environment)
    return str(caught.value)


def test_a_file_configures_sources_stores_and_agents(tmp_path: Path) -> None:
    file = read(tmp_path, GOOD)
    assert (file.store, file.embeddings, file.interval) == (tmp_path / "memory/store", "hash", timedelta(minutes=5))
    assert [(s.name, s.type, s.agent) for s in file.sources] == [
        ("manuals", "files", None), ("笔记", "files", "lina"), ("chat", "memory", "otto"),
    ]  # fmt: skip
    assert file.sources[0].watched == (tmp_path / "docs",)
    assert file.sources[0].connector.path == tmp_path / "docs"
    assert file.sources[2].connector is None  # its file is not there yet
    (tmp_path / "chat.jsonl").write_text("", encoding="utf-8")
    ids = {source.connector.connector_id for source in read(tmp_path, GOOD).sources}
    assert len(ids) == 3
    assert not (tmp_path / "memory").exists()  # nothing is opened


def test_a_source_keeps_its_identity_when_it_moves(tmp_path: Path) -> None:
    first, there = (
        read(tmp_path, GOOD.replace('"docs"', f'"{place}"')).sources[0].connector for place in ("docs", "elsewhere")
    )
    assert first.connector_id == there.connector_id


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (('exclude = "drafts"', 'exlude = "drafts"'), ["line 11", "'exlude'", "did you mean 'exclude'"]),
        (('type = "files"\npath = "docs"', 'type = "file"\npath = "docs"'), ["line 8", "did you mean 'files'"]),
        (('interval = "5min"', 'intervall = "5min"'), ["line 4", "'intervall'", "'interval'"]),
        (('interval = "5min"', 'interval = "often"'), ["line 4", "interval", "30s"]),
        (('glob = ["**/*.md", "**/*.txt"]', "glob = 5"), ["line 10", "glob must be a text or a list"]),
        (('path = "notes"\n', ""), ["line 14", "needs path"]),
        (('name = "笔记"', 'name = "manuals"'), ["line 15", "'manuals' is taken"]),
        (('name = "chat"\n', ""), ["line 20", "needs name"]),
        (('agent = "otto"\n', ""), ["a memory needs agent"]),
        (('agent = "otto"', 'agent = ""'), ["line 24", "agent must be a text"]),
        (('agent = "otto"', "agents = { s1 = 5 }"), ["line 24", "agents must be"]),
        (('zone = "Asia/Shanghai"', 'zone = "Asia/Shangai"'), ["Asia/Shangai"]),
        (("[[source]]", "[source]"), ["TOML"]),
        (('store = "memory/store"\n', ""), ["store must name a folder"]),
        (('path = "docs"', 'path = "${WHERE}"'), ["line 9", "WHERE is not set"]),
        (('path = "docs"', 'path = "${not a name}"'), ["line 9", "names no environment variable"]),
        (('glob = ["**/*.md", "**/*.txt"]', 'glob = "../*"'), ["line 8", "glob="]),
    ],
)  # fmt: skip
def test_each_mistake_is_named_with_its_place(change: tuple[str, str], phrase: list[str], tmp_path: Path) -> None:
    assert change[0] in GOOD
    message = problem(tmp_path, GOOD.replace(*change))
    for part in phrase:
        assert part in message, message


DATABASE = """
store = "s"
[[source]]
name = "orders"
type = "database"
url = "${ORDERS}"
table = "orders"
"""


def test_a_database_is_checked_and_its_password_is_not_printed(tmp_path: Path) -> None:
    url = "postgresql+psycopg://lina:tr0ub4dor@localhost/shop"
    assert read(tmp_path, DATABASE.replace("${ORDERS}", "sqlite:///shop.db")).sources[
        0
    ].connector.engine.url.database == str(tmp_path / "shop.db")
    both = problem(tmp_path, DATABASE + 'query = "SELECT 1"', ORDERS=url)
    assert "table or query" in both
    message = problem(tmp_path, DATABASE + 'no_agent = "tr0ub4dor"', ORDERS=url)
    assert "no_agent" in message
    assert "tr0ub4dor" not in message


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    message = problem(
        tmp_path, GOOD.replace("exclude =", "exlude =").replace('"notes"', "7").replace("zone =", "zoen =")
    )
    assert all(part in message for part in ("'exlude'", "path must be", "'zoen'"))


@pytest.mark.parametrize("text", ["", 'store = "s"', 'store = "s"\nsource = 5', 'store = "s"\n[source]\nname = "x"'])
def test_a_file_without_sources_is_refused(text: str, tmp_path: Path) -> None:
    assert "[[source]]" in problem(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gbk.toml").write_bytes("name = '中文'".encode("gb18030"))
    for name in ("absent.toml", "gbk.toml"):
        with pytest.raises(UsageError, match=name):
            read_source_file(tmp_path / name)


def test_environment_variables_are_filled_in_and_never_printed() -> None:
    secrets = Secrets({"PASSWORD": "tr0ub4dor", "USER": "lina", "EMPTY": ""})
    url = secrets.fill("postgresql://${USER}:${PASSWORD}@db/x?y=$${z}${EMPTY}")
    assert url == "postgresql://lina:tr0ub4dor@db/x?y=${z}"
    assert secrets.redact(f"cannot open {url}") == "cannot open postgresql://***:***@db/x?y=${z}"
    assert Secrets({}).fill("100 $ and $HOME") == "100 $ and $HOME"
    plain = Secrets({})
    plain.fill("mysql://root:p%40ssword@localhost/db")
    assert "ssword" not in plain.redact("mysql://root:p%40ssword@localhost failed: p@ssword")


def test_an_error_of_a_connector_with_a_secret_is_not_printed(tmp_path: Path) -> None:
    text = 'store = "s"\n[[source]]\nname = "chat"\ntype = "memory"\nagent = "a"\nbackend = "${SECRET}"\npath = "."'
    message = problem(tmp_path, text, SECRET="tr0ub4dor-backend")
    assert "***" in message
    assert "tr0ub4dor" not in message


def test_the_store_and_the_file_are_not_read_as_sources(tmp_path: Path) -> None:
    text = 'store = "store"\n[[source]]\nname = "all"\ntype = "files"\npath = "."\nexclude = "x"'
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "inside.md").write_text("inside", encoding="utf-8")
    (tmp_path / "a.md").write_text("# a", encoding="utf-8")
    keys = {item.key for item in read(tmp_path, text).sources[0].connector.items() if hasattr(item, "load")}
    assert keys == {"a.md"}


def test_another_store_replaces_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "agentrag.toml"
    path.write_text(GOOD.replace('store = "memory/store"\n', ""), encoding="utf-8")
    assert read_source_file(path, store=tmp_path / "other").store == tmp_path / "other"
