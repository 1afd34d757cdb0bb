"""Tools of an MCP server beside ours in one agent: search the manuals, then ask the warehouse.

Needs: pip install "langchain-agentrag[langchain]" langchain-mcp-adapters
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_mcp_adapters.client import MultiServerMCPClient
from scripted import ScriptedModel, answer_from_tool, call, show

from langchain_agentrag import AgentRAGToolkit, DualIndexer, create_memory_tools

MANUALS = [
    Document("报警 E1102：主轴过热，请更换滤网后重启。", id="alarms.md"),
    Document("Alarm E1200: the spindle is worn, replace it.", id="alarms-en.md"),
]


async def main() -> None:
    """Answer one question in Chinese and one in English with tools of both kinds."""
    warehouse = {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("mcp_server.py"))],
    }
    with tempfile.TemporaryDirectory() as folder, DualIndexer(folder, "hash") as indexer:
        indexer.index_documents(MANUALS)
        remote = await MultiServerMCPClient({"warehouse": warehouse}).get_tools()  # type: ignore[dict-item]
        ours = AgentRAGToolkit(indexer=indexer, agent_id="lina").get_tools()
        tools = [*ours, *create_memory_tools(indexer, "lina"), *remote]
        print("tools:", ", ".join(tool.name for tool in tools))

        for question, code, part, expected in (
            ("E1102 怎么处理，零件有货吗？", "E1102", "滤网", "滤网: 12"),
            ("What does E1200 mean, and do we have the part?", "E1200", "spindle", "spindle: 0"),
        ):
            model = ScriptedModel(steps=[call("search", query=code), call("stock", part=part), answer_from_tool])
            messages = (await create_agent(model, tools).ainvoke({"messages": [("user", question)]}))["messages"]
            show(question, messages)
            assert code in messages[2].text and expected in messages[-1].text
    print("\nBoth kinds of tools answered in one conversation. 两类工具在同一次对话中都可用。")


if __name__ == "__main__":
    asyncio.run(main())
