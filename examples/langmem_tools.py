"""langmem's memory tools over `HybridStore`: its memories are searched by meaning and by exact words.

Needs: pip install "langchain-agentrag[langchain,langgraph]" langmem
"""

from __future__ import annotations

import tempfile

from langchain.agents import create_agent
from langmem import create_manage_memory_tool, create_search_memory_tool
from scripted import ScriptedModel, answer_from_tool, call, show

from langchain_agentrag import DualIndexer, HybridStore

NAMESPACE = ("memories", "{user_id}")  # langmem fills in the user of the run


def run(store: HybridStore, user: str, question: str, *steps: object) -> str:
    """Run a new agent for a user and return its answer."""
    tools = [create_manage_memory_tool(NAMESPACE), create_search_memory_tool(NAMESPACE)]
    agent = create_agent(ScriptedModel(steps=list(steps)), tools, store=store)
    messages = agent.invoke({"messages": [("user", question)]}, {"configurable": {"user_id": user}})["messages"]
    show(f"user {user}", messages)
    return str(messages[-1].text)


def main() -> None:
    """Store two memories with langmem's tool, find them in another run, and not as another user."""
    with tempfile.TemporaryDirectory() as folder, DualIndexer(folder, "hash") as indexer:
        store = HybridStore(indexer, agent_id_key="user_id")
        for text in ("李娜的护照在 2027 年到期。", "Invoices go to box B-1729."):
            run(store, "lina", text, call("manage_memory", content=text, action="create"), answer_from_tool)

        passport, invoices = call("search_memory", query="护照什么时候到期"), call("search_memory", query="B-1729")
        assert "2027" in run(store, "lina", "我的护照什么时候到期？", passport, answer_from_tool)
        assert "B-1729" in run(store, "lina", "Where do invoices go?", invoices, answer_from_tool)
        assert "Invoices" not in run(store, "otto", "Where do invoices go?", invoices, answer_from_tool)
        assert "Invoices" in indexer.search("B-1729", 1, agent_id="lina")[0].text  # the indexer finds them too
        assert not indexer.search("B-1729", 1, agent_id="otto")
    print("\nlangmem's memories are private documents of their user. langmem 的记忆只属于各自的用户。")


if __name__ == "__main__":
    main()
