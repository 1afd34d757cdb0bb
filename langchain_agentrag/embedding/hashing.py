"""Hashing embeddings: vectors without a model, by signed feature hashing of words and character n-grams."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from functools import lru_cache

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_agentrag.errors import UsageError

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
            raise UsageError(
                f"dim must be a positive integer, got {dim!r}: use 384, or 1024 for fewer collisions."
            )
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
    text = unicodedata.normalize("NFKC", text).casefold()
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
