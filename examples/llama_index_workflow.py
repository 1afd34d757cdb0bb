"""LlamaIndex: an `AgentWorkflow` with our query engine and memory block, and a plain `Workflow` with our retriever.

Needs: pip install "langchain-agentrag[llama-index]"
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.documents import Document
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step

from langchain_agentrag import DualIndexer
from langchain_agentrag.llama_index import AgentQueryEngine, HybridMemoryBlock, HybridRetriever, as_query_engine_tool

MANUALS = [
    Document("报警 E1102：主轴过热，清洁滤网后重启。", id="alarms.md"),
    Document("Alarm E1200: the spindle is worn, replace it.", id="alarms-en.md"),
]


def scripted(reply: Callable[[Sequence[ChatMessage]], ChatMessage]) -> MockFunctionCallingLLM:
    """Return an LLM that replies with a function of the conversation instead of a network."""
    return MockFunctionCallingLLM(response_generator=lambda messages, **_options: reply(messages), is_chat_model=True)


def search_then_answer(messages: Sequence[ChatMessage]) -> ChatMessage:
    """Call `search` with the user's question, then repeat what it found and what memory recalled."""
    if messages[-1].role == MessageRole.TOOL:
        recalled = [message.content or "" for message in messages if message.role == MessageRole.SYSTEM]
        return ChatMessage(f"Answer 回答: {messages[-1].content}\nMemory 记忆: {''.join(recalled)}", role="assistant")
    query = ToolCallBlock(tool_call_id="1", tool_name="search", tool_kwargs={"query": messages[-1].content})
    return ChatMessage(role="assistant", blocks=[query])


class Found(Event):
    """Passages that the retriever found."""

    texts: list[str]


class Lookup(Workflow):
    """Retrieve, then answer: two steps without an agent."""

    def __init__(self, retriever: HybridRetriever, **options: Any) -> None:
        super().__init__(**options)
        self.retriever = retriever

    @step
    async def retrieve(self, event: StartEvent) -> Found:
        """Retrieve the passages of a question."""
        return Found(texts=[node.text for node in await self.retriever.aretrieve(event.question)])

    @step
    async def answer(self, event: Found) -> StopEvent:
        """Answer with the best passage."""
        return StopEvent(result=event.texts[0] if event.texts else "Nothing found. 没有找到。")


async def main() -> None:
    """Ask the agent in two sessions, of which the second recalls the first; then run the workflow."""
    with tempfile.TemporaryDirectory() as folder, DualIndexer(folder, "hash") as indexer:
        indexer.index_documents(MANUALS)
        retriever = HybridRetriever(indexer, 1)  # without an agent: the shared documents, no memories
        tool = as_query_engine_tool(AgentQueryEngine(retriever), name="search")
        agent = FunctionAgent(name="helper", description="Answers.", tools=[tool], llm=scripted(search_then_answer))

        async def ask(agent_id: str, session: str, question: str) -> str:
            block = HybridMemoryBlock(indexer=indexer, agent_id=agent_id, across_sessions=True)
            memory = Memory.from_defaults(session_id=session, memory_blocks=[block])
            answer = str(await AgentWorkflow([agent], root_agent="helper").run(question, memory=memory))
            await block.aput(await memory.aget_all(), session_id=session)  # at the end of a session, however short
            print(f"\n== {agent_id}, session {session} ==\n[user] {question}\n[agent] {answer}")
            return answer

        assert "清洁滤网" in await ask("lina", "1", "E1102 怎么处理？我在三号车间。")
        again = await ask("lina", "2", "E1200 in 三号车间, what now?")
        assert "spindle is worn" in again and "我在三号车间" in again
        assert "我在三号车间" not in await ask("otto", "3", "E1200 in 三号车间, what now?")

        for question, expected in (("E1102 怎么处理？", "清洁滤网"), ("What does E1200 mean?", "spindle is worn")):
            result = await Lookup(retriever, timeout=60).run(question=question)
            print(f"\n== Workflow ==\n[user] {question}\n[workflow] {result}")
            assert expected in result
    print("\nThe second session recalled the first, another agent did not. 第二次会话记得第一次，其他智能体看不到。")


if __name__ == "__main__":
    asyncio.run(main())
