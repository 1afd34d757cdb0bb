"""What a retriever and a vector store of LlamaIndex have to do, as test classes to inherit from.

LlamaIndex has no such suite. Give the method that makes the thing under test; pytest finds the rest::

    class TestMine(RetrieverConformance):
        def make_retriever(self, nodes, k, filters=None):
            return MyRetriever(nodes, k, filters)

Each check stands alone and needs no network, no LLM and no fixture. `conformance_table` runs them without pytest.
"""

from langchain_agentrag.testing.llama_index.report import conformance_table, outcomes
from langchain_agentrag.testing.llama_index.retrievers import RetrieverConformance
from langchain_agentrag.testing.llama_index.stores import VectorStoreConformance

__all__ = ["RetrieverConformance", "VectorStoreConformance", "conformance_table", "outcomes"]
