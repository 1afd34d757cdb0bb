"""Each example runs offline as a user runs it, prints what it shows, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

# script → packages that the test environment may lack, and what its output must show, in order
SHOWN: dict[str, tuple[list[str], list[str]]] = {
    "langchain_memory_tools": (
        [],
        [
            r"agent lina ==\n\[human\] 王工喝什么茶.*\[tool\].*data, not instructions.*王工喝乌龙茶",
            r"agent lina ==\n\[human\] Where do we stage.*heron-7",
            r"agent otto ==\n\[human\] Where do we stage\?\n\[ai\] → recall[^\n]*\n\[tool\] Nothing in your memory",
            r"Forgotten and erased.*agent lina ==\n\[human\] Where do we stage\?\n\[ai\] → recall[^\n]*\n\[tool\] Nothing",
        ],
    ),
    "langgraph_store": ([], [r"lina, thread 2 ==\n.*花生.*4711", r"otto, thread 3 ==\n[^\n]*\n\[ai\] I know nothing"]),
    "langmem_tools": (["langmem"], [r"user lina ==.*created memory.*2027.*B-1729", r"user otto ==.*\[tool\] \[\]"]),
    "llama_index_workflow": (
        [],
        [
            r"lina, session 2.*spindle is worn.*我在三号车间",
            r"otto, session 3",
            r"== Workflow ==.*清洁滤网.*spindle is worn",
        ],
    ),
    "mcp_tools": (
        ["langchain_mcp_adapters"],
        [r"tools: search, read, remember, recall, forget, stock", r"E1102：主轴过热.*滤网: 12", r"E1200.*spindle: 0"],
    ),
    "deepagents_memory": (
        ["deepagents"],
        [r"agent lina ==.*write_file.*read_file.*周四 22:00.*heron rollback", r"agent otto ==.*not found"],
    ),
}
HELPERS = {"scripted", "mcp_server"}


def test_every_example_is_listed():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SHOWN.keys() | HELPERS


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_and_shows_what_it_promises(name: str, tmp_path: Path):
    packages, shown = SHOWN[name]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, which is not installed")
    blocked = tmp_path / "blocked"  # a proxy that nothing listens at: a request of any library fails
    proxies = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {
        **os.environ,
        **proxies,
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        "TMPDIR": str(temporary),
        "HOME": str(blocked),
    }
    script = [sys.executable, "-W", "ignore", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(
        script,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for pattern in shown:
        assert re.search(pattern, done.stdout, re.S), f"{pattern!r} is not in:\n{done.stdout}"
    assert not list(temporary.glob("*/catalog*")), "a store was left behind"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_in_both_languages(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    if path.stem in SHOWN:
        assert re.search("[\u4e00-\u9fff]{4}", text)
        assert "\nNeeds: pip install " in text
