"""Arguments that are not understood are refused before anything happens, by every method of every public class.

The methods are found by reflection, so a new one is tested without being named here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chromadb
import pytest
from langchain_core.documents import Document
from langchain_core.indexing import RecordManager
from langchain_core.vectorstores import VectorStore
from langgraph.store.base import BaseStore
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryMode
from pydantic import BaseModel

import langchain_agentrag
from langchain_agentrag import llama_index, testing
from langchain_agentrag.agent.recorder import MemoryRecorder
from langchain_agentrag.connectors.memory import MemoryTable, Turn
from langchain_agentrag.errors import AgentRagError, InvalidQueryError, UsageError
from langchain_agentrag.evaluation import question_generation
from langchain_agentrag.evaluation import runner as evaluation_runner
from langchain_agentrag.evaluation import tuning as evaluation_tuning
from langchain_agentrag.indexer import AgentView, DualIndexer
from langchain_agentrag.langchain.vectorstore import HybridVectorStoreRetriever
from langchain_agentrag.types import SourceDocument, SyncReport

BM25 = namedtuple("BM25", ["docs"])
Ensemble = namedtuple("Ensemble", ["retrievers"])

FACES: dict[str, Callable[[SimpleNamespace], Any]] = {
    "DualIndexer": lambda world: world.indexer,
    "AgentView": lambda world: world.indexer.for_agent("lina"),
    "LangChain HybridVectorStore": lambda world: langchain_agentrag.HybridVectorStore(world.indexer),
    "LangChain VectorStoreRetriever": lambda world: langchain_agentrag.HybridVectorStore(
        world.indexer, agent_id="lina"
    ).as_retriever(),
    "LangChain HybridRetriever": lambda world: langchain_agentrag.HybridRetriever(indexer=world.indexer),
    "HybridRecordManager": lambda world: langchain_agentrag.HybridRecordManager(world.indexer),
    "HybridStore": lambda world: langchain_agentrag.HybridStore(world.indexer, agent_id="lina"),
    "QueryUnderstandingRouter": lambda _world: langchain_agentrag.QueryUnderstandingRouter(),
    "LlamaIndex HybridVectorStore": lambda world: llama_index.HybridVectorStore(world.indexer),
    "LlamaIndex HybridRetriever": lambda world: llama_index.HybridRetriever(world.indexer),
    "AgentQueryEngine": lambda world: llama_index.AgentQueryEngine(llama_index.HybridRetriever(world.indexer)),
    "StoreEmbedding": lambda world: llama_index.StoreEmbedding(world.indexer),
    "HybridMemoryBlock": lambda world: llama_index.HybridMemoryBlock(indexer=world.indexer, agent_id="lina"),
    "ConnectorReader": lambda world: llama_index.ConnectorReader(langchain_agentrag.FileSystemConnector(world.folder)),
    "MemoryTable": lambda world: world.table,
    "MemoryRecorder": lambda world: MemoryRecorder(world.indexer, world.table),
}
CONTRACTS = (VectorStore, RecordManager, BaseStore, BasePydanticVectorStore, BaseReader)
"""Framework classes whose own methods call ours, so that unknown arguments of theirs must arrive and be refused."""

PASSED_ON = {
    "aget": "`Memory` passes the same arguments to all of its blocks",
    "configurable_fields": "LangChain refuses unknown fields with ValueError",
}
"""Methods with **kwargs that may ignore some."""

ERRORS = (AgentRagError, TypeError)
"""What an invalid argument raises: our errors, or Python's own for a name the signature lacks."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    root = tmp_path_factory.mktemp("strict")
    folder = root / "files"
    folder.mkdir()
    (folder / "note.md").write_text("apple note", encoding="utf-8")
    with DualIndexer(root / "store", "hash") as indexer:
        indexer.index_documents(
            [SourceDocument("a", "apple"), SourceDocument("b", "苹果 banana"), SourceDocument("None", "nothing")]
        )
        indexer.index_documents(
            [SourceDocument("mine", "apple"), SourceDocument("talk", "hi", {"type": "dialogue"})], "lina"
        )
        store = llama_index.HybridVectorStore(indexer)
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")}
        store.add(
            [TextNode(id_="n1", text="apple chapter", relationships=source), TextNode(id_="n2", text="no source")]
        )
        langchain_agentrag.HybridRecordManager(indexer).update(["a", "b"], group_ids=["g", None])
        items = langchain_agentrag.HybridStore(indexer, agent_id="lina")
        for namespace, key in ((("u",), "k"), (("u", "v"), "k"), (("u",), "None")):
            items.put(namespace, key, {"text": "apple item"})
        table = MemoryTable(f"sqlite:///{root / 'memory.db'}")
        recorder = MemoryRecorder(indexer, table)
        recorder.record(
            "lina",
            [
                Turn(session="s1", entry_id="t1", role="user", text="apple?"),
                Turn(session="", entry_id="t2", role="user", text="no session"),
            ],
        )
        block = llama_index.HybridMemoryBlock(indexer=indexer, agent_id="lina")
        asyncio.run(block.aput([ChatMessage("an apple memory")], session_id="s1"))
        collection = chromadb.EphemeralClient().create_collection("strict")
        collection.add(ids=["c"], documents=["apple"], embeddings=[[0.1] * 384])
        bm25 = BM25([Document(page_content="new", id="new")])
        sources = {"from_chroma": collection, "from_bm25_retriever": bm25, "from_ensemble": Ensemble([bm25])}
        yield SimpleNamespace(sources=sources, root=root, folder=folder, indexer=indexer, table=table)


def snapshot(world: SimpleNamespace) -> object:
    """Everything that is stored."""
    documents = world.indexer.get(agent_id="lina")
    keys = langchain_agentrag.HybridRecordManager(world.indexer).list_keys()
    return [*documents, sorted(keys), world.table.sessions(), sorted(path.name for path in world.root.iterdir())]


def valid_arguments(world: SimpleNamespace) -> dict[str, Any]:
    """Value of each parameter name for a valid call."""
    vector = world.indexer.embedder.embed_query("apple").tolist()
    return {
        "query": "apple",
        "question": "apple",
        "input": "apple",
        "query_str": "apple",
        "text_chunks": ["apple"],
        "search_type": "hybrid",
        "embedding": vector,
        "documents": [Document(page_content="new", id="new")],
        "texts": ["new"],
        "nodes": [TextNode(text="new")],
        "ids": ["a"],
        "doc_ids": ["a"],
        "doc_id": "a",
        "node_ids": ["n1"],
        "ref_doc_id": "book",
        "keys": ["a"],
        "key": "k",
        "group_ids": None,
        "namespace": ("u",),
        "namespace_prefix": ("u",),
        "value": {"text": "new"},
        "agent_id": "lina",
        "session": "s1",
        "session_id": "s1",
        "connector": langchain_agentrag.FileSystemConnector(world.folder),
        "store": world.indexer,
        "messages": [ChatMessage("apple")],
        "retriever": llama_index.HybridRetriever(world.indexer),
        "query_bundle": QueryBundle("apple"),
    }


def public_types() -> dict[str, type]:
    """Class of each face."""
    return {
        "DualIndexer": DualIndexer,
        "AgentView": AgentView,
        "LangChain HybridVectorStore": langchain_agentrag.HybridVectorStore,
        "LangChain HybridRetriever": langchain_agentrag.HybridRetriever,
        "LangChain VectorStoreRetriever": HybridVectorStoreRetriever,
        "HybridRecordManager": langchain_agentrag.HybridRecordManager,
        "HybridStore": langchain_agentrag.HybridStore,
        "QueryUnderstandingRouter": langchain_agentrag.QueryUnderstandingRouter,
        "LlamaIndex HybridVectorStore": llama_index.HybridVectorStore,
        "LlamaIndex HybridRetriever": llama_index.HybridRetriever,
        "AgentQueryEngine": llama_index.AgentQueryEngine,
        "StoreEmbedding": llama_index.StoreEmbedding,
        "HybridMemoryBlock": llama_index.HybridMemoryBlock,
        "ConnectorReader": llama_index.ConnectorReader,
        "MemoryTable": MemoryTable,
        "MemoryRecorder": MemoryRecorder,
    }


def public_methods() -> list[tuple[str, str]]:
    """(face, method) of every public method that is ours, or a framework's that calls ours."""
    types = public_types()
    assert types.keys() == FACES.keys()
    methods = []
    for face, cls in types.items():
        for name in dir(cls):
            function = inspect.unwrap(getattr(inspect.getattr_static(cls, name), "__func__", getattr(cls, name)))
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            owner = function.__qualname__.partition(".")[0]
            if function.__module__.startswith("langchain_agentrag") or owner in {base.__name__ for base in CONTRACTS}:
                methods.append((face, name))
    return methods


METHODS = public_methods()


def parameters(face: str, name: str, world: SimpleNamespace) -> tuple[Any, dict[str, inspect.Parameter]]:
    method = getattr(FACES[face](world), name)
    return method, dict(inspect.signature(method).parameters)


def call(method: Any, arguments: dict[str, Any]) -> Any:
    """Call a method to its end: await it, exhaust it; positional-only parameters by position."""
    kinds = {name: parameter.kind for name, parameter in inspect.signature(method).parameters.items()}
    positional = [arguments[name] for name in kinds if kinds[name] == inspect.Parameter.POSITIONAL_ONLY]
    keywords = {n: v for n, v in arguments.items() if kinds.get(n) != inspect.Parameter.POSITIONAL_ONLY}

    async def run() -> Any:
        result = method(*positional, **keywords)
        if inspect.isawaitable(result):
            result = await result
        if hasattr(result, "__aiter__"):
            result = [item async for item in result]
        return list(result) if inspect.isgenerator(result) else result

    return (
        asyncio.run(run())
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        else _sync(method, positional, keywords)
    )


def _sync(method: Any, positional: list[Any], keywords: dict[str, Any]) -> Any:
    result = method(*positional, **keywords)
    if hasattr(result, "__aiter__"):
        return asyncio.run(_collect(result))
    return list(result) if inspect.isgenerator(result) else result


async def _collect(results: Any) -> list[Any]:
    return [item async for item in results]


def filled(signature: dict[str, inspect.Parameter], world: SimpleNamespace) -> dict[str, Any]:
    """Valid values of the required parameters."""
    values = valid_arguments(world)
    required = [
        name
        for name, parameter in signature.items()
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
    ]
    if "query" in required and "VectorStoreQuery" in str(signature["query"].annotation):
        values["query"] = VectorStoreQuery(query_str="apple", mode=VectorStoreQueryMode.HYBRID, similarity_top_k=10)
    if "embedding" in required and "list[float]" not in str(signature["embedding"].annotation).lower():
        values["embedding"] = "hash"
    return {name: values.get(name, f"no value for {name}") for name in required}


ACCEPTING = [(face, name) for face, name in METHODS if name not in PASSED_ON]


@pytest.mark.parametrize(("face", "name"), ACCEPTING, ids=[f"{face}.{name}" for face, name in ACCEPTING])
@pytest.mark.parametrize("unknown", ["query_filter", "unknown_argument"])  # LangChain's stores take `where`
def test_an_unknown_argument_is_refused_and_nothing_changes(world, face: str, name: str, unknown: str):
    method, signature = parameters(face, name, world)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values()):
        return  # Python refuses it
    before, path = snapshot(world), world.root / "never"
    arguments = {**filled(signature, world), unknown: {"type": "nothing"}}
    for given in arguments.keys() & {"source", "retriever", "ensemble"} if name in world.sources else ():
        arguments[given] = world.sources[name]
    if name in world.sources or name in {"from_texts", "afrom_texts", "from_documents", "afrom_documents"}:
        arguments["store" if "store" in signature else "path"] = path
    with pytest.raises(ERRORS, match=unknown):
        call(method, arguments)
    assert snapshot(world) == before
    assert not path.exists()


# -- ids ----------------------------------------------------------------------------------------------------------

WRONG = [None, [], [None], "", 5, {"a": 1}, b"a", ["a", None], [["a"]], [b"a"], float("nan"), (), {None}]
ID_NAMES = {
    *("ids", "doc_ids", "doc_id", "node_ids", "ref_doc_id", "keys", "key", "group_ids"),
    *("namespace", "namespace_prefix", "session", "session_id", "agent_id"),
}
"""Parameters that say which documents are meant."""

READS_AND_DELETES = ("delete", "forget", "clear", "remove", "get", "read", "exists", "list", "recent")
ID_METHODS = [
    (face, name, parameter)
    for face, name in METHODS
    if name.removeprefix("a").startswith(READS_AND_DELETES) or name.startswith(READS_AND_DELETES)
    for parameter in ID_NAMES
    if parameter in inspect.signature(getattr(public_types()[face], name)).parameters
]
FOREIGN_ERRORS = (ValueError,)
"""InvalidNamespaceError of LangGraph."""


@pytest.mark.parametrize(("face", "name", "parameter"), ID_METHODS, ids=[".".join(case) for case in ID_METHODS])
def test_a_wrong_id_deletes_and_finds_nothing(world, face: str, name: str, parameter: str):
    method, signature = parameters(face, name, world)
    deletes = not name.removeprefix("a").startswith(("get", "read", "exists", "list", "recent"))
    if deletes and parameter in {"agent_id", "session"}:
        values = [value for value in WRONG if value is not None]  # None is shared, or every session
    elif signature[parameter].default is None:
        values = WRONG if deletes else [value for value in WRONG if value is not None]  # the default of a read
    else:
        values = WRONG
    if parameter in {"session", "session_id"}:
        values = [value for value in values if value != ""]  # the session of entries without one
    for value in values:
        before = snapshot(world)
        try:
            result = call(method, {**filled(signature, world), parameter: value})
        except (*ERRORS, *FOREIGN_ERRORS):
            result = None
        assert snapshot(world) == before, value
        assert not found(result), (value, result)


def found(result: Any) -> bool:
    """Whether a method found or deleted something."""
    if isinstance(result, SyncReport):
        return result.deleted > 0
    if isinstance(result, dict):
        return bool(result["ids"])  # `get` of Chroma
    return any(result) if isinstance(result, list) else bool(result) and result is not True  # `delete` of LangChain


def test_the_id_methods_are_the_ones_that_matter():
    assert {
        "DualIndexer.delete.doc_ids",
        "DualIndexer.adelete.doc_ids",
        "AgentView.delete.doc_ids",
        "LangChain HybridVectorStore.delete.ids",
        "LangChain HybridVectorStore.adelete.ids",
        "LangChain HybridVectorStore.get_by_ids.ids",
        "LangChain HybridVectorStore.aget_by_ids.ids",
        "LlamaIndex HybridVectorStore.delete.ref_doc_id",
        "LlamaIndex HybridVectorStore.adelete.ref_doc_id",
        "LlamaIndex HybridVectorStore.delete_nodes.node_ids",
        "LlamaIndex HybridVectorStore.adelete_nodes.node_ids",
        "LlamaIndex HybridVectorStore.get_nodes.node_ids",
        "HybridRecordManager.delete_keys.keys",
        "HybridStore.delete.namespace",
        "HybridStore.delete.key",
        "MemoryTable.delete.agent_id",
        "MemoryRecorder.forget.session",
        "HybridMemoryBlock.aforget.session_id",
    } <= {".".join(case) for case in ID_METHODS}


@pytest.mark.filterwarnings("ignore:.*langchain-community:DeprecationWarning")
@pytest.mark.parametrize("name", ["delete_ref_doc", "adelete_ref_doc", "delete_nodes", "adelete_nodes"])
@pytest.mark.parametrize("value", [value for value in WRONG if value not in ([], ())])
def test_a_llama_index_index_deletes_nothing_for_a_wrong_id(world, name: str, value: Any):
    index, before = llama_index.HybridVectorStore(world.indexer).as_index(), snapshot(world)
    argument = {"ref_doc_id" if "ref" in name else "node_ids": value}
    with contextlib.suppress(AgentRagError, TypeError):
        call(getattr(index, name), argument)
    with contextlib.suppress(AgentRagError, TypeError):
        call(getattr(index, name), {**dict.fromkeys(argument, "book"), "where": {}})
    assert snapshot(world) == before


@pytest.mark.parametrize("field", ["doc_ids", "node_ids"])
@pytest.mark.parametrize("value", [[None], "", 5, {"a": 1}, b"a", ["a", None], [["a"]], [""]])
@pytest.mark.parametrize("text", ["apple", ""])
def test_a_llama_index_query_by_wrong_ids_finds_nothing(world, field: str, value: Any, text: str):
    store = llama_index.HybridVectorStore(world.indexer)
    query = VectorStoreQuery(query_str=text, mode=VectorStoreQueryMode.HYBRID, similarity_top_k=10)
    setattr(query, field, value)
    for search in (store.query, store.aquery):
        try:
            result = call(search, {"query": query})
        except AgentRagError:
            continue
        assert result.ids == []


@pytest.mark.parametrize("bounds", [{"before": "x"}, {"after": b"x"}, {"before": True}, {"limit": -1}, {"limit": "1"}])
def test_a_record_manager_lists_nothing_for_bounds_it_cannot_compare(world, bounds):
    with pytest.raises(UsageError):
        langchain_agentrag.HybridRecordManager(world.indexer).list_keys(**bounds)


# -- a store ------------------------------------------------------------------------------------------------------

OTHER_ARGUMENTS = {"agent_id": "lina", "table": "sqlite://", "question": "apple"}


OPENS_A_PATH = {"langchain_agentrag.HybridVectorStore"}


def takers_of_a_store() -> dict[str, Callable[..., Any]]:
    """Public classes and functions with a parameter `indexer`."""
    modules = [langchain_agentrag, llama_index, testing, evaluation_runner, evaluation_tuning, question_generation]
    takers: dict[str, Callable[..., Any]] = {
        "MemoryRecorder": MemoryRecorder,
        "RecordingMemory.from_defaults": llama_index.RecordingMemory.from_defaults,
    }
    for module in modules:
        for name in getattr(module, "__all__", None) or ("evaluate", "sweep", "draft_questions"):
            taker = getattr(module, name, None)
            if inspect.isroutine(taker) or (inspect.isclass(taker) and not issubclass(taker, Exception | tuple)):
                has_store = "indexer" in inspect.signature(taker).parameters
            else:
                has_store = False
            if has_store:
                takers[f"{module.__name__}.{name}"] = taker
    return takers


def test_every_public_taker_of_a_store_is_known():
    assert {name.rpartition(".")[2] for name in takers_of_a_store()} >= {
        *("HybridVectorStore", "HybridRetriever", "HybridStore", "HybridRecordManager", "AgentView", "StoreEmbedding"),
        *("SearchTool", "ReadTool", "AgentRAGToolkit", "MemoryRecorderMiddleware", "MemoryRecorder", "from_defaults"),
        *("HybridMemoryBlock", "assert_isolated", "assert_consistent", "evaluate", "sweep", "draft_questions"),
    }


@pytest.mark.parametrize(("name", "taker"), takers_of_a_store().items())
@pytest.mark.parametrize("kind", ["path", "Path", "view", "None", "class"])
def test_what_is_no_store_is_refused_at_once_with_the_remedy(world, monkeypatch, name: str, taker: Any, kind: str):
    folder = world.root / "no_store"
    if name in OPENS_A_PATH and kind in {"path", "Path"}:
        return  # `tests/langchain/test_vectorstore_peers.py`
    monkeypatch.chdir(world.root)
    value = {"path": str(folder), "Path": folder, "view": world.indexer.for_agent("lina"), "None": None}.get(
        kind, DualIndexer
    )
    required = inspect.signature(taker).parameters
    others = {
        name: OTHER_ARGUMENTS.get(name, [])
        for name, parameter in required.items()
        if name != "indexer"
        and (parameter.default is parameter.empty or name == "agent_id")
        and parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
    }
    with (
        pytest.raises(UsageError, match=r"DualIndexer\(")
        if kind != "view"
        else pytest.raises(UsageError, match="agent_id='lina'")
    ):
        taker(indexer=value, **others)
    assert sorted(path.name for path in world.root.iterdir()) == ["files", "memory.db", "store"]


@pytest.mark.parametrize("value", ["folder", Path("folder"), None, 5])
def test_a_source_or_a_retriever_that_is_none_is_refused_at_once(world, value):
    syncs = (world.indexer.sync, world.indexer.for_agent("lina").sync)
    for use in (
        *(syncs if value is None or value == 5 else ()),
        llama_index.ConnectorReader,
        llama_index.AgentQueryEngine,
        llama_index.AgentQueryEngine.from_args,
        llama_index.as_query_engine_tool,
        lambda store: langchain_agentrag.QueryUnderstandingRouter().search(store, "apple"),
        lambda store: asyncio.run(langchain_agentrag.QueryUnderstandingRouter().asearch(store, "apple")),
    ):
        with pytest.raises(UsageError, match=r"Connector|DualIndexer\("):
            use(value)


# -- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["locl", "Local", "hsah", " ", "", 5, object(), b"hash", Path("no/such/folder"), "./no"]
)
def test_an_embedding_model_that_cannot_be_one_is_refused_before_a_folder_is_made(tmp_path, spec):
    with pytest.raises(AgentRagError):
        DualIndexer(tmp_path / "s", spec)
    with pytest.raises(AgentRagError):
        langchain_agentrag.HybridVectorStore.from_texts(["x"], spec, path=tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("text", ["2d", "36h", "90min", "1w", "7天", "12小时", "2周"])
def test_a_duration_is_written_like_an_age(world, text: str):
    assert world.indexer.search("apple", recency=text)
    assert langchain_agentrag.HybridRetriever(indexer=world.indexer, recency=text).invoke("apple")


@pytest.mark.parametrize("text", ["", "2", "0d", "-2d", "2 years", "d"])
def test_a_duration_that_is_none_is_refused(world, text: str):
    with pytest.raises(InvalidQueryError, match="recency"):
        world.indexer.search("apple", recency=text)


@pytest.mark.parametrize(
    "settings", [{"flter": {}}, {"search_kwargs": {"flter": {}}}, {"search_kwargs": {"k": 2, "mode": "x"}}]
)
def test_a_vector_store_retriever_refuses_unknown_settings_when_it_is_made(world, settings):
    with pytest.raises(UsageError):
        langchain_agentrag.HybridVectorStore(world.indexer).as_retriever(**settings)


def public_models() -> list[type[BaseModel]]:
    """Public classes whose settings pydantic checks."""
    named = [getattr(module, name) for module in (langchain_agentrag, llama_index) for name in module.__all__]
    models = [*named, HybridVectorStoreRetriever]
    return [model for model in models if inspect.isclass(model) and issubclass(model, BaseModel)]


@pytest.mark.parametrize("model", public_models())
def test_a_misspelled_setting_of_a_tool_or_retriever_is_refused(world, model):
    settings = {
        "indexer": world.indexer,
        "vectorstore": langchain_agentrag.HybridVectorStore(world.indexer),
        "database": langchain_agentrag.ReadOnlyDatabase(f"sqlite:///{world.root / 'memory.db'}"),
        "agent_id": "lina",
        "memory": Memory.from_defaults(),
        "recorder": MemoryRecorder(world.indexer, world.table),
    }
    names = inspect.signature(model).parameters.keys() | model.model_fields.keys()
    with pytest.raises(ValueError, match="flter"):
        model(**{name: value for name, value in settings.items() if name in names}, flter={"type": "manual"})
