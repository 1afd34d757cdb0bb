"""LangGraph: a checkpointer keeps each thread, `HybridStore` keeps what a user said across threads.

Needs: pip install "langchain-agentrag[langgraph]"
"""

from __future__ import annotations

import tempfile
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from scripted import show

from langchain_agentrag import DualIndexer, HybridStore
from langchain_agentrag.langgraph import memory_text

FACTS = ("facts",)


def remember(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
    """Store the user's last message if it states something."""
    text = str(state["messages"][-1].text)
    if runtime.store is not None and not text.endswith(("?", "？")):
        runtime.store.put(FACTS, str(uuid4()), {"text": text})
    return {}


def answer(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
    """Answer a question with the best memory, fenced as a model should see it."""
    text = str(state["messages"][-1].text)
    if not text.endswith(("?", "？")):
        return {"messages": [("ai", "Noted. 记下了。")]}
    items = runtime.store.search(FACTS, query=text, limit=1) if runtime.store is not None else []
    return {"messages": [("ai", memory_text(items) if items else "I know nothing about that. 没有这方面的记录。")]}


def main() -> None:
    """Two threads of one user share memories and no messages; another user has neither."""
    with tempfile.TemporaryDirectory() as folder, DualIndexer(folder, "hash") as indexer:
        builder = StateGraph(MessagesState)
        builder.add_node("remember", remember)
        builder.add_node("answer", answer)
        builder.add_edge(START, "remember")
        builder.add_edge("remember", "answer")
        builder.add_edge("answer", END)
        store = HybridStore(indexer, agent_id_key="user_id")  # each run names its user; no namespace can reach another
        graph = builder.compile(checkpointer=InMemorySaver(), store=store)

        def ask(user: str, thread: str, text: str) -> str:
            config: RunnableConfig = {"configurable": {"user_id": user, "thread_id": thread}}
            messages = graph.invoke({"messages": [("user", text)]}, config)["messages"]
            show(f"user {user}, thread {thread}", messages[-2:])
            return str(messages[-1].text)

        ask("lina", "1", "我对花生过敏，订餐时请注意。")
        ask("lina", "1", "My desk is in room 4711.")
        assert "花生" in ask("lina", "2", "我对什么过敏？")
        assert "4711" in ask("lina", "2", "In which room is my desk?")
        assert "4711" not in ask("otto", "3", "In which room is my desk?")

        first, second = (
            graph.get_state({"configurable": {"thread_id": thread}}).values["messages"] for thread in ("1", "2")
        )
        assert [len(first), len(second)] == [2 * 2, 2 * 2]
        assert not {message.id for message in first} & {message.id for message in second}
    print("\nThreads share memories, not messages; users share neither. 线程共享记忆，用户之间互不可见。")


if __name__ == "__main__":
    main()
