"""Sentences of Chinese, English and mixed text for LlamaIndex's node parsers, whose own splitter sees English only."""

from __future__ import annotations

import re

from langchain_agentrag.text.sentences import line_ends, sentence_ends

_VISIBLE = re.compile(r"\S")


def chinese_sentence_splitter(text: str) -> list[str]:
    """Sentences in order; joined they are the text again, character by character.

    For `SentenceSplitter(chunking_tokenizer_fn=…)`, `SentenceWindowNodeParser.from_defaults(sentence_splitter=…)` and
    `SemanticSplitterNodeParser.from_defaults(sentence_splitter=…)`. White space stays with the sentence before it.
    """
    ends = {*sentence_ends(text, 0, len(text)), *line_ends(text, 0, len(text), soft=False)}
    cuts = sorted({_behind_space(text, end) for end in ends} - {len(text)})
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [piece for piece in pieces if piece]


def _behind_space(text: str, position: int) -> int:
    found = _VISIBLE.search(text, position)
    return found.start() if found else len(text)
