"""deepagents with a memory folder: files under /memories/ live in `HybridStore` and are searched like other documents.

Needs: pip install "langchain-agentrag[langchain,langgraph]" deepagents
"""

from __future__ import annotations

import tempfile

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from scripted import ScriptedModel, answer_from_tool, call, show

from langchain_agentrag import DualIndexer, HybridStore

NOTES = "# Notes 笔记\n部署窗口是周四 22:00。\nThe rollback command is `heron rollback`.\n"


def run(indexer: DualIndexer, agent_id: str, question: str, *steps: object) -> str:
    """Run a new deep agent on one question and return its answer; only the store is kept between runs."""
    folder = StoreBackend(namespace=lambda _runtime: ("memories",))
    agent = create_deep_agent(
        ScriptedModel(steps=list(steps)),
        backend=CompositeBackend(default=StateBackend(), routes={"/memories/": folder}),
        store=HybridStore(indexer, agent_id=agent_id),
    )
    messages = agent.invoke({"messages": [("user", question)]})["messages"]
    show(f"agent {agent_id}", messages)
    return str(messages[-1].text)


def main() -> None:
    """Write a note, read it in another run, fail to as another agent, and search it."""
    with tempfile.TemporaryDirectory() as folder, DualIndexer(folder, "hash") as indexer:
        write = call("write_file", file_path="/memories/notes.md", content=NOTES)
        read = call("read_file", file_path="/memories/notes.md")
        run(indexer, "lina", "记下部署窗口和回滚命令。", write, answer_from_tool)
        answer = run(indexer, "lina", "When do we deploy?", read, answer_from_tool)
        assert "周四 22:00" in answer and "heron rollback" in answer
        assert "heron rollback" not in run(indexer, "otto", "When do we deploy?", read, answer_from_tool)
        for question in ("部署窗口", "rollback command"):
            assert "heron rollback" in indexer.search(question, 1, agent_id="lina")[0].text
        assert not indexer.search("heron rollback", 1, agent_id="otto")
    print("\nThe memory folder belongs to its agent and can be searched. 记忆文件夹只属于该智能体，且可检索。")


if __name__ == "__main__":
    main()
