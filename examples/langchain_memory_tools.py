"""LangChain `create_agent` with memory tools: a later run recalls what an earlier one stored; another agent does not.

Needs: pip install "langchain-agentrag[langchain]"
"""

from __future__ import annotations

import tempfile

from langchain.agents import create_agent
from scripted import ScriptedModel, answer_from_tool, call, show

from langchain_agentrag import DualIndexer, create_memory_tools


def run(indexer: DualIndexer, agent_id: str, question: str, *steps: object) -> str:
    """Run a new agent on one question and return its answer; only the store is kept between runs."""
    agent = create_agent(ScriptedModel(steps=list(steps)), create_memory_tools(indexer, agent_id))
    messages = agent.invoke({"messages": [("user", question)]})["messages"]
    show(f"agent {agent_id}", messages)
    return str(messages[-1].text)


def main() -> None:
    """Store two facts, recall them in another run, ask as another agent, and forget one."""
    with tempfile.TemporaryDirectory() as folder, DualIndexer(folder, "hash") as indexer:  # "local" also knows synonyms
        tea = call("remember", text="王工喝乌龙茶，不加糖。")
        server = call("remember", text="The staging server is heron-7.")
        run(indexer, "lina", "请记住：王工喝乌龙茶，不加糖。", tea, answer_from_tool)
        run(indexer, "lina", "Our staging server is heron-7, keep that.", server, answer_from_tool)

        recall_tea, recall_server = call("recall", query="王工喝什么茶"), call("recall", query="staging server")
        assert "乌龙茶" in run(indexer, "lina", "王工喝什么茶？", recall_tea, answer_from_tool)
        assert "heron-7" in run(indexer, "lina", "Where do we stage?", recall_server, answer_from_tool)
        assert "heron-7" not in run(indexer, "otto", "Where do we stage?", recall_server, answer_from_tool)

        doc_id = indexer.search("staging server", 1, agent_id="lina")[0].doc_id
        run(indexer, "lina", "Forget the staging server.", call("forget", doc_id=doc_id), answer_from_tool)
        assert "heron-7" not in run(indexer, "lina", "Where do we stage?", recall_server, answer_from_tool)
    print("\nlina recalled both facts, otto none; what was forgotten is gone. 已忘记的内容不再出现。")


if __name__ == "__main__":
    main()
