"""What a report says, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "zh"]

WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "title": "Retrieval quality of {name}",
        "facts": "{questions} questions · model {model} · {depth} hits asked for per question",
        "headline": "With “{main}” the expected source comes first for {first} of the questions, and is among the "
        "first ten for {ten}.",
        "measures": "Measures",
        "measures_note": "Mean over the questions. The line over a bar is the 95 % interval (bootstrap over "
        "questions): where two of them overlap widely, the difference may be chance.",
        "found": "How soon the answer is found",
        "found_note": "Share of the questions whose expected source is among the first n results.",
        "latency": "Latency of a search",
        "latency_note": "Milliseconds without embedding the question: median, and the value that 95 % of the searches "
        "stay below. Embedding one question took {embed} (median).",
        "compared": "“{main}” against the other settings of this run",
        "baseline": "Against the baseline “{name}”",
        "setting": "setting",
        "against": "against",
        "measure": "measure",
        "change": "change",
        "interval": "95 % interval",
        "better": "better / worse",
        "verdict": "verdict",
        "significant_better": "better",
        "significant_worse": "worse",
        "noise": "may be chance",
        "same": "no difference",
        "failures": "What was missed",
        "failures_note": "{count} of {questions} questions have no expected source among the first {k} under “{main}”. "
        "{shown} of them in detail:",
        "no_failures": "Every question has an expected source among the first {k} under “{main}”.",
        "missing": "The expected source is not in the store, or not visible to the agent asking.",
        "unseen": "Neither leg has it among its first hundred: the question shares no rare word with it, and its "
        "meaning is far off.",
        "keyword_only": "Only the keyword leg has it; other passages were nearer in meaning.",
        "vector_only": "Only the vector leg has it; it shares too little wording with the question.",
        "outranked": "Both legs have it, yet other passages came first.",
        "expected": "expected",
        "instead": "came first",
        "nowhere": "–",
        "place": "rank",
        "vector": "vector",
        "keyword": "keyword",
        "matched": "matched words",
        "agent": "asked for agent",
        "unanswerable": "{count} questions expect a source that is not in the store or not visible to their agent; no "
        "setting can answer them, and they count as failed.",
        "degraded": "In {count} searches a leg failed; the figures of “{name}” are not those of both legs.",
        "sweep": "Settings for this data",
        "sweep_note": "{tried} settings were tried on one half of the questions ({chosen} of them); the best was then "
        "measured on the other half ({held}), which had no part in choosing it.",
        "sweep_keep": "Keep the defaults: on the held-out half the best setting, {best}, is not significantly better "
        "({change}). The differences are within noise.",
        "sweep_same": "Keep the defaults: no other setting was better on the half used to choose.",
        "sweep_best": "Keep the defaults: none of the others was better on the half used to choose.",
        "sweep_take": "Take {best}: on the held-out half it is better than the defaults by {change}.",
        "chosen_half": "half used to choose",
        "held_half": "held-out half",
    },
    "zh": {
        "title": "“{name}”的检索质量",
        "facts": "{questions} 个问题 · 模型 {model} · 每个问题取 {depth} 条结果",
        "headline": "使用“{main}”时，{first} 的问题首条即为预期来源，{ten} 的问题在前十条之内找到。",
        "measures": "指标",
        "measures_note": "所有问题的平均值。柱上的横线是 95% 置信区间（对问题做自助抽样）："
        "两条区间大幅重叠时，差异可能出于偶然。",
        "found": "多快能找到答案",
        "found_note": "预期来源出现在前 n 条结果中的问题所占比例。",
        "latency": "检索耗时",
        "latency_note": "单位毫秒，不含问题的向量化：中位数，以及 95% 的检索不超过的值。"
        "向量化一个问题用时 {embed}（中位数）。",
        "compared": "“{main}”与本次其他设置的比较",
        "baseline": "与基线“{name}”的比较",
        "setting": "设置",
        "against": "对比",
        "measure": "指标",
        "change": "变化",
        "interval": "95% 区间",
        "better": "更好 / 更差",
        "verdict": "结论",
        "significant_better": "更好",
        "significant_worse": "更差",
        "noise": "可能是偶然",
        "same": "没有差别",
        "failures": "未找到的问题",
        "failures_note": "使用“{main}”时，{questions} 个问题中有 {count} 个在前 {k} 条内没有预期来源。"
        "以下列出其中 {shown} 个：",
        "no_failures": "使用“{main}”时，每个问题在前 {k} 条内都有预期来源。",
        "missing": "预期来源不在库中，或提问的智能体无权看到。",
        "unseen": "两路检索的前一百条里都没有：问题与它没有共同的稀有词，语义也相距较远。",
        "keyword_only": "只有关键词检索找到了它；按语义有别的段落更近。",
        "vector_only": "只有向量检索找到了它；它与问题的共同用词太少。",
        "outranked": "两路检索都找到了它，但别的段落排在前面。",
        "expected": "预期",
        "instead": "实际排第一",
        "nowhere": "–",
        "place": "名次",
        "vector": "向量",
        "keyword": "关键词",
        "matched": "匹配的词",
        "agent": "提问的智能体",
        "unanswerable": "有 {count} 个问题的预期来源不在库中，或提问的智能体看不到；任何设置都无法回答，按失败计。",
        "degraded": "有 {count} 次检索中某一路失败；“{name}”的数字不代表两路检索的结果。",
        "sweep": "适合这批数据的设置",
        "sweep_note": "在一半问题（{chosen} 个）上试了 {tried} 种设置，"
        "再用未参与选择的另一半（{held} 个）检验其中最好的一种。",
        "sweep_keep": "保留默认设置：在留出的一半上，最好的设置 {best} 并没有显著更好（{change}），差异属于噪声。",
        "sweep_same": "保留默认设置：在用于选择的一半上，没有别的设置更好。",
        "sweep_best": "保留默认设置：在用于选择的一半上，没有别的设置更好。",
        "sweep_take": "建议采用 {best}：在留出的一半上比默认设置高 {change}。",
        "chosen_half": "用于选择的一半",
        "held_half": "留出的一半",
    },
}
