"""Walking folders: every file once, nothing that was not asked for, and a reason for everything left out."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from langchain_agentrag.connector import Gap, NotIndexableError, SourceItem
from langchain_agentrag.connectors.files import FileSystemConnector
from langchain_agentrag.errors import ConnectorError, ScopeError, UnreadableSourceError, UsageError


def write(root, files):
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())


def listed(connector):
    return [item.key for item in connector.items() if isinstance(item, SourceItem)]


def gaps(connector):
    return {gap.key: gap for gap in connector.items() if isinstance(gap, Gap)}


def load(connector, key):
    (item,) = [item for item in connector.items() if item.key == key]
    return list(item.load())


@pytest.fixture
def docs(tmp_path):
    root = tmp_path / "docs"
    write(root, {"guide.md": "# 指南\n\n内容", "a/b/deep.txt": "deep", "a/code.py": "x = 1\n", "z.md": "z"})
    return root


def test_files_are_listed_once_in_order_with_readable_ids(docs):
    connector = FileSystemConnector(docs)
    assert listed(connector) == ["a/b/deep.txt", "a/code.py", "guide.md", "z.md"]
    (document,) = load(connector, "a/code.py")
    assert document.doc_id == "docs/a/code.py"
    assert document.kind == "code"
    assert document.agent_id is None


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("**/*", ["a/b/deep.txt", "a/code.py", "guide.md", "z.md"]),
        ("*.md", ["guide.md", "z.md"]),
        ("**/*.md", ["guide.md", "z.md"]),
        ("**/*.{md,py}", ["a/code.py", "guide.md", "z.md"]),
        ("a/**", ["a/b/deep.txt", "a/code.py"]),
        ("a/*", ["a/code.py"]),
        ("[!g]*.md", ["z.md"]),
        ("?.md", ["z.md"]),
        (["*.md", "**/deep.*"], ["a/b/deep.txt", "guide.md", "z.md"]),
    ],
)
def test_globs_choose_files(docs, glob, expected):
    assert listed(FileSystemConnector(docs, glob=glob)) == expected


def test_exclude_prunes_files_and_folders(docs):
    connector = FileSystemConnector(docs, exclude=["a/b", "z.*"])
    assert listed(connector) == ["a/code.py", "guide.md"]
    assert set(gaps(connector)) == {"a/b", "z.md"}


@pytest.mark.parametrize("glob", ["", "/etc/*", "../*", "a/../../*", "[z-a]", []])
def test_impossible_globs_are_rejected_with_the_remedy(docs, glob):
    with pytest.raises(UsageError, match="glob"):
        FileSystemConnector(docs, glob=glob)


@pytest.mark.parametrize(
    "settings", [{"max_bytes": 0}, {"max_bytes": "1"}, {"name": ""}, {"name": "/x"}, {"metadata": {"agent_id": "a"}}]
)
def test_impossible_settings_are_rejected(docs, settings):
    with pytest.raises(UsageError):
        FileSystemConnector(docs, **settings)
    with pytest.raises(ScopeError):
        FileSystemConnector(docs, agent_id="")


def test_links_loops_specials_and_hidden_names_are_survived_and_reported(tmp_path):
    write(
        tmp_path,
        {"a.md": "a", "z.md": "z", ".git/config": "[core]", "noise.txt": os.urandom(300_000), "sub/inner.md": "i"},
    )
    (tmp_path / "broken.md").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "self.md").symlink_to("self.md")
    (tmp_path / ".#lock.md").symlink_to("user@host.1")
    (tmp_path / "twin.md").symlink_to("a.md")
    os.mkfifo(tmp_path / "pipe.md")
    started = time.monotonic()
    for follow in (False, True):
        connector = FileSystemConnector(tmp_path, follow_links=follow)
        assert listed(connector) == ["a.md", "noise.txt", "sub/inner.md", "z.md"]
        left_out = gaps(connector)
        assert {"broken.md", "loop", "self.md", ".#lock.md", "twin.md", "pipe.md", ".git", "sub/up"} <= set(left_out)
        assert all(gap.reason for gap in left_out.values())
    assert time.monotonic() - started < 10
    with pytest.raises(UnreadableSourceError):
        load(connector, "noise.txt")


def test_followed_links_lead_outside_once(tmp_path):
    write(tmp_path, {"in/a.md": "a", "out/b.md": "b", "out/deep/c.md": "c"})
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "out")
    (tmp_path / "out" / "back").symlink_to(tmp_path / "in")
    connector = FileSystemConnector(tmp_path / "in", follow_links=True)
    assert listed(connector) == ["a.md", "again/b.md", "again/deep/c.md"]
    assert listed(FileSystemConnector(tmp_path / "in")) == ["a.md"]


def test_hidden_files_are_taken_on_demand(tmp_path):
    write(tmp_path, {".notes/x.md": "x", ".profile": "y"})
    assert listed(FileSystemConnector(tmp_path)) == []
    assert listed(FileSystemConnector(tmp_path, hidden=True)) == [".notes/x.md", ".profile"]


def test_ignore_files_are_respected_where_they_stand(tmp_path):
    write(tmp_path, {
        ".gitignore": "*.log\nbuild/\n/top.md\nsecret.*\n", "a.log": "x", "build/x.md": "x", "top.md": "x", "keep.md": "x",
        "sub/.gitignore": "!debug.log\n", "sub/debug.log": "x", "sub/top.md": "x", "sub/other.log": "x",
        "sub/.agentragignore": "private.md\n", "sub/private.md": "x", "private.md": "x", ".ignore": "!secret.md", "secret.md": "x",
    })  # fmt: skip
    connector = FileSystemConnector(tmp_path)
    assert listed(connector) == ["keep.md", "private.md", "secret.md", "sub/debug.log", "sub/top.md"]
    assert {"a.log", "build", "top.md", "sub/other.log", "sub/private.md"} <= set(gaps(connector))
    everything = listed(FileSystemConnector(tmp_path, respect_ignore_files=False))
    assert {"a.log", "build/x.md", "sub/private.md"} <= set(everything)


def test_ignore_files_of_the_repository_around_the_folder_count(tmp_path):
    write(
        tmp_path,
        {
            ".git/HEAD": "x",
            ".gitignore": "docs/draft.md\n*.tmp\n",
            "docs/draft.md": "x",
            "docs/a.tmp": "x",
            "docs/b.md": "x",
        },
    )
    assert listed(FileSystemConnector(tmp_path / "docs")) == ["b.md"]


def test_a_folder_whose_ignore_file_cannot_be_read_is_not_indexed_as_if_it_ignored_nothing(tmp_path, monkeypatch):
    write(tmp_path, {"sub/.agentragignore": "secret.md", "sub/secret.md": "x", "a.md": "a"})
    read_bytes = Path.read_bytes

    def refuse(path):
        if path.name == ".agentragignore":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    connector = FileSystemConnector(tmp_path)
    assert listed(connector) == ["a.md"]
    assert gaps(connector)["sub/"].skipped is False


def test_a_folder_that_cannot_be_listed_shields_what_lies_below(tmp_path, monkeypatch):
    write(tmp_path, {"sub/x.md": "x", "a.md": "a"})
    scandir = os.scandir
    monkeypatch.setattr(
        os,
        "scandir",
        lambda path: (
            (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
            if Path(path).name == "sub"
            else scandir(path)
        ),
    )
    connector = FileSystemConnector(tmp_path)
    assert listed(connector) == ["a.md"]
    gap = gaps(connector)["sub/"]
    assert "Permission denied" in gap.reason
    assert not gap.skipped


def test_a_missing_root_is_an_error_and_not_an_empty_folder(tmp_path):
    with pytest.raises(ConnectorError, match="Nothing was deleted"):
        list(FileSystemConnector(tmp_path / "gone").items())


def test_a_single_file_is_a_source(docs):
    connector = FileSystemConnector(docs / "guide.md")
    assert listed(connector) == ["guide.md"]
    (document,) = load(connector, "guide.md")
    assert document.doc_id == "guide.md"
    assert document.metadata["source"] == (docs / "guide.md").as_posix()


def test_versions_change_with_content_time_and_constants_and_with_nothing_else(docs):
    def version(**settings):
        return next(item.version for item in FileSystemConnector(docs, **settings).items() if item.key == "z.md")

    before = version()
    assert before == version() == version(glob="*.md")
    assert before != version(metadata={"team": "a"})
    os.utime(docs / "z.md", ns=(1, 1))
    touched = version()
    assert touched != before
    (docs / "z.md").write_text("longer")
    os.utime(docs / "z.md", ns=(1, 1))
    assert version() != touched


def test_listing_reads_no_file(docs, monkeypatch):
    def forbidden(path):
        raise AssertionError(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    assert len(listed(FileSystemConnector(docs))) == 4


def test_a_source_is_known_by_its_place_owner_and_name(docs, tmp_path, monkeypatch):
    other = tmp_path / "elsewhere" / "docs"
    write(other, {"guide.md": "x"})
    identity = FileSystemConnector(docs).connector_id
    assert identity == FileSystemConnector(docs, glob="*.md").connector_id
    assert identity != FileSystemConnector(other).connector_id
    assert identity != FileSystemConnector(docs, agent_id="a").connector_id
    assert FileSystemConnector(docs, name="n").connector_id == FileSystemConnector(other, name="n").connector_id
    monkeypatch.chdir(tmp_path)
    assert identity == FileSystemConnector("docs").connector_id
    assert str(tmp_path) not in identity


def test_ids_are_the_same_in_every_process(docs):
    code = (
        "import sys\nfrom langchain_agentrag.connectors.files import FileSystemConnector as F\n"
        "c = F(sys.argv[1])\nprint(c.connector_id, [(i.key, i.version, [d.doc_id for d in i.load()]) for i in c.items()])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(docs)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(outputs) == 1


def test_metadata_has_the_source_of_a_document(docs):
    (document,) = load(FileSystemConnector(docs, agent_id="agent", metadata={"team": "甲"}), "guide.md")
    assert document.agent_id == "agent"
    metadata = document.metadata
    assert metadata["source"] == (docs / "guide.md").as_posix()
    assert {key: metadata[key] for key in ("file_name", "type", "format", "team", "size")} == {
        "file_name": "guide.md", "type": "file", "format": "markdown", "team": "甲", "size": len("# 指南\n\n内容".encode())}  # fmt: skip
    assert isinstance(metadata["mtime"], datetime)
    assert metadata["mtime"].tzinfo == UTC


def test_a_file_cannot_claim_an_owner_or_a_place_for_itself(tmp_path):
    write(tmp_path, {"x.md": "---\ntitle: T\nagent_id: boss\nsource: elsewhere\ntags: [a, 'b']\n---\ntext"})
    (document,) = load(FileSystemConnector(tmp_path), "x.md")
    assert "agent_id" not in document.metadata
    assert document.metadata["source"].endswith("/x.md")
    assert document.metadata["title"] == "T"
    assert document.metadata["tags"] == ["a", "b"]


def test_large_and_binary_files_are_left_out_by_name_and_size(tmp_path):
    write(
        tmp_path,
        {
            "big.txt": "x" * 101,
            "pic.png": b"\x89PNG",
            "x.zip": b"PK",
            "old.doc": b"\xd0\xcf",
            "a.tar.gz": b"x",
            "data": b"\x00\x01\x02",
        },
    )
    connector = FileSystemConnector(tmp_path, max_bytes=100)
    left_out = gaps(connector)
    assert set(left_out) == {"big.txt", "pic.png", "x.zip", "old.doc", "a.tar.gz"}
    assert "max_bytes" in left_out["big.txt"].reason
    with pytest.raises(NotIndexableError):
        load(connector, "data")


@pytest.mark.parametrize("data", [b"", b" \n\t", "\ufeff".encode()])
def test_an_empty_file_gives_no_document(tmp_path, data):
    write(tmp_path, {"x.md": data})
    assert load(FileSystemConnector(tmp_path), "x.md") == []


def test_a_file_that_vanishes_is_reported_by_its_load(docs):
    items = list(FileSystemConnector(docs).items())
    (docs / "z.md").unlink()
    with pytest.raises(UnreadableSourceError, match="No such file"):
        items[-1].load()


def test_names_that_are_no_text_and_deep_folders_are_survived(tmp_path):
    write(tmp_path, {"/".join(["d"] * 300) + "/x.md": "deep"})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md")).write_text("x")
    keys = listed(FileSystemConnector(tmp_path))
    assert len(keys) == 2
    assert all(key.encode() for key in keys)
    assert "caf\\xe9.md" in keys


def test_connectors_are_loaders(docs, caplog):
    write(docs, {"bad.pdf": b"%PDF-1.4 broken"})
    connector = FileSystemConnector(docs, agent_id="a")
    with caplog.at_level(logging.WARNING, "langchain_agentrag"):
        documents = connector.load()
    assert [document.id for document in documents] == [
        "docs/a/b/deep.txt",
        "docs/a/code.py",
        "docs/guide.md",
        "docs/z.md",
    ]
    assert documents[2].metadata["agent_id"] == "a"
    assert "bad.pdf" in caplog.text
    assert asyncio.run(connector.aload()) == documents

    async def collect():
        return [document async for document in connector.alazy_load()]

    assert asyncio.run(collect()) == documents
