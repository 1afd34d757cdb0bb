"""What each family of embedding models wants in front of queries and of passages.

Models trained with instructions lose much without them, above all across languages. The family is told from
the model's name, so it works for hub names, local folders and tags such as "nomic-embed-text:latest" alike.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Prefixes(NamedTuple):
    """Text put in front of queries and of passages."""

    query: str = ""
    passage: str = ""


_RETRIEVE = "Given a web search query, retrieve relevant passages that answer the query"
_REPRESENT = "Represent this sentence for searching relevant passages: "

# First match wins, on the lower-case last part of the name. Sources: the models' own cards.
_FAMILIES: tuple[tuple[re.Pattern[str], Prefixes], ...] = tuple(
    (re.compile(pattern), prefixes)
    for pattern, prefixes in (
        (r"multilingual-e5-\w+-instruct|e5-mistral", Prefixes(f"Instruct: {_RETRIEVE}\nQuery: ")),
        (r"^(multilingual-)?e5-(small|base|large)", Prefixes("query: ", "passage: ")),
        (r"^bge-(small|base|large)-zh(?!-noinstruct)", Prefixes("为这个句子生成表示以用于检索相关文章：")),
        (r"^bge-(small|base|large)-en(?!-noinstruct)", Prefixes(_REPRESENT)),
        (r"^gte-qwen\d*(\.\d+)?-.*instruct", Prefixes(f"Instruct: {_RETRIEVE}\nQuery: ")),
        (r"^qwen3-embedding", Prefixes(f"Instruct: {_RETRIEVE}\nQuery:")),
        (r"^nomic-embed-text", Prefixes("search_query: ", "search_document: ")),
        (r"^mxbai-embed-(large|2d|xsmall)|^uae-large", Prefixes(_REPRESENT)),
        (r"^snowflake-arctic-embed2|^snowflake-arctic-embed-.*v2", Prefixes("query: ")),
        (r"^snowflake-arctic-embed", Prefixes(_REPRESENT)),
        (r"^embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
    )
)
_CACHED = re.compile(r"models--(?:[^/\\]+--)?([^/\\]+)[/\\]snapshots[/\\]")


def prefixes_for(model: str) -> Prefixes:
    """Prefixes of a model's family; empty ones where none are wanted (bge-m3, gte, MiniLM) or known.

    Args:
        model: Hub name, folder or tag.
    """
    cached = _CACHED.search(model)  # a folder of the hub's cache ends in a commit, not in the model's name
    name = cached[1] if cached else re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    for pattern, prefixes in _FAMILIES:
        if pattern.search(name.lower()):
            return prefixes
    return Prefixes()
