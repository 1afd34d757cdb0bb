"""What an agent does with the tools: search, read, search with what it learnt, read, answer. A script is the model."""

from __future__ import annotations

import re
from typing import Any

from langchain_agentrag.agent.citations import check_citations
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.langchain.tools import AgentRAGToolkit

QUESTION = "面板报 E1102 停机，上次是怎么修好的？要换的零件放在哪里？"
LEARNT, FOUND = "八毫米的快插接头", "cabinet B2"
ANSWER = "上次是气管接头漏气，换了八毫米快插接头 [{first}]。备件在 cabinet B2，还有 2 个 [{second}]。"

_HIT = re.compile(r'\[1\] doc_id="(?P<doc_id>[^"]+)" chunk_id=(?P<chunk_id>\d+) score=\S+ ref=(?P<ref>\w+)')


def two_hops(indexer: DualIndexer) -> tuple[list[tuple[str, str]], bool]:
    """The steps as (call, what came back), and whether both passages were found, read, cited and say what is claimed.

    The script sees what a model sees, the text, and takes the coordinates of the first hit from there.
    """
    search, read = AgentRAGToolkit(indexer=indexer, language="zh").get_tools()
    steps: list[tuple[str, str]] = []
    opened: list[dict[str, Any]] = []

    def call(tool: Any, **arguments: Any) -> str:  # noqa: ANN401  a LangChain tool
        answer = str(tool.invoke(arguments))
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        steps.append((f"{tool.name}({shown})", answer))
        return answer

    def hop(query: str, wanted: str) -> tuple[str, bool]:
        hit = _HIT.search(call(search, query=query, k=2))
        if hit is None:
            return "", False
        place = {"doc_id": hit["doc_id"], "chunk_id": int(hit["chunk_id"])}
        text = call(read, **place)
        opened.extend(
            read.invoke({"type": "tool_call", "id": "1", "name": read.name, "args": place}).artifact
        )
        return hit["ref"], wanted in text

    first, learnt = hop("E1102 停机 上次怎么修好", LEARNT)
    second, found = hop("快插接头 8 mm 库存 位置", FOUND)
    answer = ANSWER.format(first=first, second=second)
    report = check_citations(answer, opened)
    steps += [("answer", answer), ("citations", str(report))]
    return steps, learnt and found and report.completeness == 1 and not report.refuted
