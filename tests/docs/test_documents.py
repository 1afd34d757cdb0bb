"""The documents tell the truth: their code runs, their links lead somewhere, both languages show the same."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh.md")
DOCUMENTS = sorted(path.name for path in ROOT.glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|#|mailto:)([^)#\s]+)")
SAMPLES = ROOT / "langchain_agentrag" / "demo" / "files"


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [code for name, code in BLOCK.findall(text) if name == language]


def offline(code: str) -> str:
    """The same code with embeddings that are there on every machine."""
    return code.replace('"local"', '"hash"').replace("--embeddings local", "--embeddings hash")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder such as the README supposes: with `docs/` in it."""
    shutil.copytree(SAMPLES, tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTRAG_EMBEDDINGS", "hash")
    return tmp_path


@pytest.mark.parametrize("document", READMES[:1])
@pytest.mark.parametrize("as_it_is", [False, pytest.param(True, marks=pytest.mark.model)])
def test_python_of_the_readme_runs_from_top_to_bottom(document: str, as_it_is: bool, workplace: Path):
    code = blocks(document, "python")
    assert code, f"{document} shows no Python"
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(code, start=1):
        written = block if as_it_is else offline(block)
        exec(compile(written, f"{document}, block {number}", "exec"), names)


@pytest.mark.parametrize("document", READMES[:1])
def test_commands_of_the_readme_run(document: str, workplace: Path):
    lines = [line for block in blocks(document, "console") for line in block.splitlines()]
    commands = [shlex.split(offline(line), comments=True) for line in lines if line.startswith("agentrag ")]
    assert commands, f"{document} shows no command"
    for words in commands:
        done = subprocess.run(
            [Path(sys.executable).with_name("agentrag"), *words[1:]],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_both_readmes_show_the_same_code():
    """So it is enough to run that of one."""
    for language in ("python", "console"):
        english, chinese = ([without_comments(code) for code in blocks(name, language)] for name in READMES)
        assert english == chinese, f"the {language} blocks of the two READMEs differ"


def without_comments(code: str) -> list[str]:
    lines = (re.sub(r"\s+#\s.*$|^#\s.*$", "", line).rstrip() for line in code.splitlines())
    return [line for line in lines if line]


def test_both_readmes_have_the_same_sections():
    outlines = [
        re.findall(r"^(#+) ", re.sub(BLOCK, "", (ROOT / name).read_text(encoding="utf-8")), re.MULTILINE)
        for name in READMES
    ]
    assert outlines[0] == outlines[1]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str):
    targets = LINK.findall((ROOT / document).read_text(encoding="utf-8"))
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing, f"{document} links to {missing}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_merge_was_left_half_done(document: str):
    text = (ROOT / document).read_text(encoding="utf-8")
    assert not re.findall(r"^(?:<<<<<<<|=======|>>>>>>>)(?: |$)", text, re.MULTILINE)


@pytest.mark.parametrize("document", READMES)
def test_every_public_name_is_in_the_documents(document: str):
    import langchain_agentrag

    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in (document, "ARCHITECTURE.md"))
    missing = [name for name in langchain_agentrag.__all__ if name not in text]
    assert not missing, f"neither {document} nor ARCHITECTURE.md names {missing}"


def test_the_changelog_begins_with_the_version_of_the_package():
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    first = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] == version


@pytest.mark.parametrize("document", READMES)
def test_the_file_of_sources_that_is_shown_can_be_read(document: str, tmp_path: Path):
    from langchain_agentrag.sources.config import read_source_file

    [shown] = blocks(document, "toml")
    (tmp_path / "agentrag.toml").write_text(shown, encoding="utf-8")
    environment = {"ORDERS_URL": "sqlite:///orders.db", "CHAT_DB": "sqlite:///chat.db"}
    file = read_source_file(tmp_path / "agentrag.toml", environment)
    assert [source.type for source in file.sources] == ["files", "database", "memory"]
