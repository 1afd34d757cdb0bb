"""LlamaIndex is an extra: loaded when used, missed with one clear error, never through its bridge to LangChain."""

from __future__ import annotations

import pytest

from langchain_agentrag import llama_index
from tests.fresh_interpreter import run

NAMES = [
    "AgentQueryEngine",
    "Citation",
    "ConnectorReader",
    "FencePassages",
    "HybridDocumentStore",
    "HybridMemoryBlock",
    "HybridRetriever",
    "HybridVectorStore",
    "RecordingMemory",
    "StoreEmbedding",
    "as_query_engine_tool",
    "budgeted_tools",
    "check_response",
    "chinese_sentence_splitter",
    "citations",
    "guarded_tool",
    "parse_filters",
]


def test_public_names_are_pinned():
    assert llama_index.__all__ == dir(llama_index) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_name_loads_and_is_documented(name):
    assert getattr(llama_index, name).__doc__
    assert callable(getattr(llama_index, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = llama_index.Nonsense


def test_importing_the_package_loads_no_llama_index():
    assert run("import sys, langchain_agentrag.llama_index; print('llama_index' in sys.modules)") == "False"


def test_without_llama_index_each_name_names_the_extra_to_install():
    code = f"""
import sys
sys.modules["llama_index"] = None
import langchain_agentrag.llama_index as faces
from langchain_agentrag.errors import MissingExtraError
for name in {NAMES!r}:
    try:
        getattr(faces, name)
    except MissingExtraError as error:
        assert error.extra == "llama-index" and 'langchain-agentrag[llama-index]' in str(error), error
    else:
        raise SystemExit(name)
"""
    run(code)


def test_an_index_is_made_where_langchain_community_is_absent():
    """LlamaIndex itself tries its bridge to LangChain and goes on without it; nothing of ours needs it."""
    code = """
import sys, tempfile
sys.modules["langchain_community"] = None
sys.modules["langchain"] = None
from langchain_agentrag import DualIndexer
from langchain_agentrag.llama_index import *
from llama_index.core.schema import TextNode
with DualIndexer(tempfile.mkdtemp() + "/s", "hash") as indexer:
    store = HybridVectorStore(indexer)
    index = store.as_index()
    index.insert_nodes([TextNode(text="主轴过热 E1102")])
    assert AgentQueryEngine(HybridRetriever(indexer)).query("E1102").source_nodes
    assert as_query_engine_tool(HybridRetriever(indexer)).call("E1102").raw_output
print("openai" in sys.modules, "llama_index.core.bridge.langchain" in sys.modules)
"""
    assert run(code) == "False False"


def test_no_source_mentions_the_bridge():
    from pathlib import Path

    folder = Path(llama_index.__file__).parent
    assert not [path for path in folder.rglob("*.py") if "bridge.langchain" in path.read_text(encoding="utf-8")]
