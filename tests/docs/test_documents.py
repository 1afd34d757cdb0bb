"""The documents tell the truth: their code runs, their links lead somewhere, both languages show the same."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAIRS = (("README.md", "README.zh.md"), ("GUIDE.md", "GUIDE.zh.md"))
LANGUAGES = tuple(zip(*PAIRS, strict=True))  # the documents of one language, in the order in which they are read
DOCUMENTS = sorted(path.name for path in ROOT.glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r"\]\(([^)#\s]+\.md)#([^)\s]+)\)")
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|#|mailto:)([^)#\s]+)")
SAMPLES = ROOT / "langchain_agentrag" / "cli" / "demo_files"


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [code for name, code in BLOCK.findall(text) if name == language]


def offline(code: str) -> str:
    """The same code with embeddings that are there on every machine."""
    return code.replace('"local"', '"hash"').replace("--embeddings local", "--embeddings hash")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder such as the README supposes: a clone, with `docs/` in it."""
    for folder in ("docs", SAMPLES.relative_to(ROOT)):
        shutil.copytree(SAMPLES, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTRAG_EMBEDDINGS", "hash")
    return tmp_path


@pytest.mark.parametrize("as_it_is", [False, pytest.param(True, marks=pytest.mark.model)])
def test_python_runs_from_top_to_bottom(as_it_is: bool, workplace: Path):
    """The README's, then the GUIDE's on the store that the README made; neither sees the other's names."""
    for document in LANGUAGES[0]:
        code = blocks(document, "python")
        assert code, f"{document} shows no Python"
        names: dict[str, object] = {"__name__": "__main__"}
        for number, block in enumerate(code, start=1):
            written = block if as_it_is else offline(block)
            exec(compile(written, f"{document}, block {number}", "exec"), names)


@pytest.mark.parametrize("document", [name for pair in PAIRS for name in pair])
def test_fragments_import_what_they_use(document: str):
    """Code that cannot run here, for want of a model or a server, still says where each name comes from."""
    import langchain_agentrag
    from langchain_agentrag import llama_index
    from langchain_agentrag.langchain import middleware

    ours = {*langchain_agentrag.__all__, *llama_index.__all__, *middleware.__all__, "Limits", "RetrievalMeter"}
    imported: set[str] = set()  # by the code before, which runs
    for language, code in BLOCK.findall((ROOT / document).read_text(encoding="utf-8")):
        if language not in {"python", "py"}:
            continue
        tree = ast.parse(code)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        known = imported | {alias.name for node in imports for alias in node.names}
        if language == "python":
            imported = known
            continue
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        foreign = {name for name in used if name[0].isupper() or name == "create_agent"}
        assert not (used & ours | foreign) - known, code
        for node in imports:
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_commands_run(workplace: Path):
    lines = [line for name in LANGUAGES[0] for block in blocks(name, "console") for line in block.splitlines()]
    commands = [shlex.split(offline(line), comments=True) for line in lines if line.startswith("agentrag ")]
    assert commands, "no command is shown"
    for words in commands:
        done = subprocess.run(
            [Path(sys.executable).with_name("agentrag"), *words[1:]],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_show_the_same_code(pair: tuple[str, str]):
    """So it is enough to run that of one. Fragments may ask for replies in the reader's language."""
    for language in ("python", "console", "py", "toml"):
        same = meaning if language == "py" else without_comments
        english, chinese = ([same(code) for code in blocks(name, language)] for name in pair)
        assert english == chinese, f"the {language} blocks of {pair} differ"


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_name_the_same_things(pair: tuple[str, str]):
    english, chinese = (identifiers(name) for name in pair)
    assert english == chinese, (english - chinese, chinese - english)


def identifiers(document: str) -> set[str]:
    """Each identifier in a code span of the prose."""
    text = re.sub(BLOCK, "", (ROOT / document).read_text(encoding="utf-8"))
    spans = (re.sub(r'"[^"]*"', "", span) for span in re.findall(r"`([^`]+)`", text))
    return {word for span in spans for word in re.findall(r"[A-Za-z_]\w+", span)}


def meaning(code: str) -> str:
    return ast.dump(ast.parse(re.sub(r',? ?language="(en|zh)"', "", code)))


def without_comments(code: str) -> list[str]:
    lines = (re.sub(r"\s+#\s.*$|^#\s.*$", "", line).rstrip() for line in code.splitlines())
    return [line for line in lines if line]


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_have_the_same_sections(pair: tuple[str, str]):
    outlines = [
        re.findall(r"^(#+) ", re.sub(BLOCK, "", (ROOT / name).read_text(encoding="utf-8")), re.MULTILINE)
        for name in pair
    ]
    assert outlines[0] == outlines[1]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str):
    targets = LINK.findall((ROOT / document).read_text(encoding="utf-8"))
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing, f"{document} links to {missing}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_anchors_are_headings(document: str):
    for target, anchor in ANCHOR.findall((ROOT / document).read_text(encoding="utf-8")):
        text = re.sub(BLOCK, "", (ROOT / target).read_text(encoding="utf-8"))
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{document}: {target}#{anchor}"


def test_the_readme_stays_short():
    """The first screens lead to a result; the rest is the GUIDE's."""
    for name in PAIRS[0]:
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 260, name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_merge_was_left_half_done(document: str):
    text = (ROOT / document).read_text(encoding="utf-8")
    assert not re.findall(r"^(?:<<<<<<<|=======|>>>>>>>)(?: |$)", text, re.MULTILINE)


@pytest.mark.parametrize("documents", LANGUAGES)
def test_every_public_name_is_in_the_documents(documents: tuple[str, ...]):
    import langchain_agentrag

    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in (*documents, "ARCHITECTURE.md"))
    missing = [name for name in langchain_agentrag.__all__ if name not in text]
    assert not missing, f"neither {documents} nor ARCHITECTURE.md names {missing}"


def test_the_changelog_begins_with_the_version_of_the_package():
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    first = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] == version


@pytest.mark.parametrize("document", PAIRS[1])
def test_the_sources_file_in_the_documents_can_be_read(document: str, tmp_path: Path):
    from langchain_agentrag.cli.sync_config import read_source_file

    [samples] = blocks(document, "toml")
    (tmp_path / "agentrag.toml").write_text(samples, encoding="utf-8")
    environment = {"ORDERS_URL": "sqlite:///orders.db", "CHAT_DB": "sqlite:///chat.db"}
    file = read_source_file(tmp_path / "agentrag.toml", environment)
    assert [source.type for source in file.sources] == ["files", "database", "memory"]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_document_for_developers_names_exists(document: str):
    text = (ROOT / document).read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|toml|sql|jinja)|(?:\w+/)+)`", text))
    assert len(names) > 10
    folders = (ROOT, ROOT / "langchain_agentrag", ROOT / "langchain_agentrag" / "connectors" / "memory")
    missing = [
        name
        for name in names
        if name not in {"messages.toml", "utils.py"} and not any((f / name).exists() for f in folders)
    ]
    assert not missing, f"{document} names {missing}, which do not exist"
