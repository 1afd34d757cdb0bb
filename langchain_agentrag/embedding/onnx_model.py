"""ONNX embedding models, run by onnxruntime without torch: a folder as sentence-transformers or fastembed keep it."""

from __future__ import annotations

import importlib
import json
import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_agentrag.errors import EmbeddingError, MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL_FILES = (
    "onnx/model.onnx",
    "model.onnx",
    "model_optimized.onnx",
    "onnx/model_quantized.onnx",
    "model_quantized.onnx",
)
"""Where the model of a folder is looked for, in this order."""

_POOLING = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_CLS_FAMILIES = ("bge-", "gte-base-en-v1.5", "gte-large-en-v1.5", "snowflake-arctic", "mxbai-embed", "uae-large")
_POSITIONS = 10**9  # a tokenizer's model_max_length when the length is unknown is above this


class OnnxModel:
    """Text encoder in ONNX format with its tokenizer. Thread-safe, also usable in a forked child.

    Texts are run one by one, without padding: the vector of a text does not depend on what is embedded beside it,
    and on a processor batches of one are no slower.

    Args:
        folder: Folder with `tokenizer.json` and one of `MODEL_FILES`. Pooling, normalization and the longest input
            come from the configuration files of sentence-transformers; without them the pooling is that of the
            model's family, vectors are scaled to length 1, and the longest input is 512 tokens.
        windows: Whether texts that are too long are read in windows, whose vectors are averaged by their number of
            tokens; otherwise they are cut.

    Attributes:
        max_tokens: Longest input, special tokens included.
        prompts: Prompts of the configuration, by name.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        EmbeddingError: The folder holds no such model.
    """

    def __init__(self, folder: Path, *, windows: bool = False) -> None:
        self._windows = windows
        path = next((folder / name for name in MODEL_FILES if (folder / name).is_file()), None)
        if path is None or not (folder / "tokenizer.json").is_file():
            raise EmbeddingError(
                f"{folder} is no ONNX embedding model: it needs tokenizer.json and one of {', '.join(MODEL_FILES)}. "
                "Export the model to ONNX, or load it through sentence-transformers."
            )
        self._path = path
        self._tokenizer = _import("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.max_tokens = _max_tokens(folder)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        self._special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._pooling, self._normalize = _pooling(folder), _normalizes(folder)
        self.prompts = {
            str(k): str(v) for k, v in _json(folder / "config_sentence_transformers.json", "prompts").items()
        }
        self._sessions: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._session()

    def encode(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a text with its prompt, shape (d,)."""
        encoding = self._tokenizer.encode(text)
        windows = [encoding, *encoding.overflowing] if self._windows else [encoding]
        weights = [max(1, len(window.ids) - self._special) for window in windows]
        vectors = [self._run(window.ids, window.attention_mask) for window in windows]
        vector = np.average(vectors, axis=0, weights=weights)
        if self._normalize:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return vector.astype(np.float32, copy=False)

    def is_cut(self, text: str) -> bool:
        """Return whether a text with its prompt is longer than the model reads; never if it reads windows."""
        return not self._windows and bool(self._tokenizer.encode(text).overflowing)

    def _run(self, ids: Sequence[int], mask: Sequence[int]) -> NDArray[np.float32]:
        session = self._session()
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": [0] * len(ids)}
        inputs = {item.name: np.array([values[item.name]], dtype=np.int64) for item in session.get_inputs()}
        outputs = [np.asarray(output[0], dtype=np.float32) for output in session.run(None, inputs)]
        pooled = next((output for output in outputs if output.ndim == 1), None)
        if pooled is not None:
            return pooled
        tokens = outputs[0][np.asarray(mask, dtype=bool)]
        pool = {"cls": lambda: tokens[0], "last": lambda: tokens[-1], "max": lambda: tokens.max(axis=0)}
        return np.asarray(pool.get(self._pooling, lambda: tokens.mean(axis=0))(), dtype=np.float32)

    def _session(self) -> Any:  # noqa: ANN401  (onnxruntime has no types)
        """Return the session of this process: a fork does not copy the threads of the parent's."""
        process = os.getpid()
        if process not in self._sessions:
            with self._lock:
                if process not in self._sessions:
                    self._sessions[process] = _open(self._path)
        return self._sessions[process]


def _open(path: Path) -> Any:  # noqa: ANN401
    runtime = _import("onnxruntime")
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the processor
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EmbeddingError(
            f"The ONNX model {path} cannot be loaded: {' '.join(str(error).split())[:300]}."
        ) from error


def _import(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("ONNX embedding models", "local") from error


def _json(path: Path, key: str) -> dict[str, Any]:
    """Return a mapping out of a JSON file; empty if there is none."""
    content = _content(path)
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, dict) else {}


def _content(path: Path) -> Any:  # noqa: ANN401
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise EmbeddingError(f"{path} is no valid JSON: {error}. Copy the model's folder again.") from error


def _max_tokens(folder: Path) -> int:
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
        ("config.json", "max_position_embeddings"),
    ):
        content = _content(folder / name)
        value = content.get(key) if isinstance(content, dict) else None
        if isinstance(value, int | float) and math.isfinite(value) and 0 < value < _POSITIONS:
            return int(value)
    return 512


def _pooling(folder: Path) -> str:
    content = _content(folder / "1_Pooling" / "config.json")
    if isinstance(content, dict):
        modes = [mode for key, mode in _POOLING.items() if content.get(key)]
        mode = content.get("pooling_mode")
        modes += [mode] if isinstance(mode, str) else []
        if len(modes) != 1 or modes[0] not in _POOLING.values():
            raise EmbeddingError(
                f"The pooling of {folder} is not supported: {content}. One of mean, cls, max and last token is."
            )
        return modes[0]
    config = _content(folder / "config.json")
    names = f"{folder.as_posix()} {config.get('_name_or_path', '') if isinstance(config, dict) else ''}".lower()
    return "cls" if any(family in names for family in _CLS_FAMILIES) else "mean"


def _normalizes(folder: Path) -> bool:
    modules = _content(folder / "modules.json")
    if not isinstance(modules, list):
        return True
    return any(isinstance(module, dict) and str(module.get("type", "")).endswith("Normalize") for module in modules)
