"""Parts of speech of Chinese words, as jieba's dictionary has them; for rules on questions, never for the index."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import cache

from langchain_agentrag.text.segment import choose, segmenter

Tagger = Callable[[str], list[tuple[str, str]]]


def tagged(run: str) -> list[tuple[str, str]]:
    """(word, tag) of a run of Han characters; tags that begin with "n" are nouns and names, "v" verbs, "r" pronouns."""
    return _tagger()(run)


@cache
def _tagger() -> Tagger:
    backend = segmenter(choose("auto"))
    own: Tagger | None = getattr(backend, "tag", None)
    return own or _jieba_tagger()


def _jieba_tagger() -> Tagger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has outdated escapes and imports
        import jieba  # type: ignore[import-untyped]
        import jieba.posseg  # type: ignore[import-untyped]

    jieba.default_logger.setLevel(logging.ERROR)  # it logs to stderr while it loads
    tagger = jieba.posseg.POSTokenizer(jieba.Tokenizer())  # the host program's jieba stays as it is
    return lambda run: [(pair.word, pair.flag) for pair in tagger.lcut(run)]
