"""How similar a model finds texts that have nothing to do with each other.

Models differ: 0.2 in one, 0.85 in another. A cosine says something only measured from there. The sentences
are fixed and ship with the package; nobody's stored text is ever used, so the figure cannot leak or drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from langchain_agentrag.embedding.embedder import Embedder

# Every sentence has a topic of its own, within and across the languages.
_QUERIES = {
    "zh": (
        "怎样给多肉植物浇水",
        "退税需要准备哪些材料",
        "这台洗衣机为什么一直漏水",
        "昆曲起源于什么年代",
        "数据库备份失败如何排查",
        "周末从北京去天津坐几点的火车",
    ),
    "en": (
        "how do I sharpen a kitchen knife",
        "which vaccine does a puppy need first",
        "why is my bicycle chain slipping",
        "who painted the ceiling of the chapel",
        "terms for cancelling a gym membership",
        "what causes the northern lights",
    ),
}
_PASSAGES = {
    "zh": (
        "该公司第三季度净利润同比下降了百分之七。",
        "把牛腩焯水后加入番茄，小火炖两个小时。",
        "候鸟每年秋天沿着海岸线向南迁徙。",
        "会议决定由小李负责下个月的客户回访。",
        "他在最后一分钟罚进点球，球队晋级决赛。",
        "这座石拱桥建于宋代，全长六十余米。",
    ),
    "en": (
        "The parser returns an error when a closing bracket is missing.",
        "Tenants must give two months' notice before moving out.",
        "Glaciers in the valley have retreated by nearly a mile.",
        "She practised the violin every evening until the concert.",
        "The warehouse ships orders placed before noon on the same day.",
        "Regular sleep lowers the risk of high blood pressure.",
    ),
}


class Background(NamedTuple):
    """Cosines of unrelated queries and passages under one model.

    Attributes:
        mean: Over pairs of one language, since they are what a search confuses.
        deviation: Standard deviation of the same.
        lowest: Mean over the pair of languages that are farthest apart, at least 0. A passage in the other language may
            be near and yet lie below `mean`.
    """

    mean: float = 0.0
    deviation: float = 0.0
    lowest: float = 0.0


def background_cosine(embedder: Embedder) -> Background:
    """The model's background. Costs twelve queries and two batches of six passages."""
    rows = [
        _unit(np.stack([embedder.embed_query(query) for query in queries])) for queries in _QUERIES.values()
    ]
    columns = [_unit(embedder.embed_documents(passages)) for passages in _PASSAGES.values()]
    every = np.concatenate([(row @ column.T).ravel() for row, column in zip(rows, columns, strict=True)])
    lowest = min(float((row @ column.T).mean()) for row in rows for column in columns)
    return Background(float(every.mean()), float(every.std()), max(0.0, lowest))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
