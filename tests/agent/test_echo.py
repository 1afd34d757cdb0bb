"""Text that repeats passages is detected in any wrapping; other text is unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.agent.recorder import REPEATED_NOTE, remove_repeated, repeated_share, shorten

ZH = "报警 E1102：气压不足，检查八毫米的快插接头，备件放在柜 B2 的第三层抽屉里。"
EN = "Alarm E1105: adjust the gap of the proximity switch; a spare one is in cabinet B4."


@pytest.mark.parametrize("passage", [ZH, EN, "门禁密码是七七四一", "gate code 7741"])
@pytest.mark.parametrize(
    "wrap",
    [
        str,
        str.upper,
        lambda text: json.dumps({"text": text}, ensure_ascii=False),
        lambda text: f"[1] “{text}” (0.83)",
        "\n".join,
        lambda text: f"> {text[: len(text) // 2]}\n> {text[len(text) // 2 :]}",
    ],
)
def test_a_passage_is_known_again(passage, wrap):
    assert repeated_share(wrap(passage), [EN[:20], passage]) > 0.5


@pytest.mark.parametrize("text", [ZH, EN, "", "7741", "库存 14 件"])
def test_other_texts_are_not(text):
    assert (
        repeated_share(
            text,
            ["今天的天气很好，适合去公园散步，也适合看书。", "The weather is fine today and good for walks.", "B2", ""],
        )
        == 0
    )
    assert remove_repeated(text, ["今天的天气很好，适合去公园散步，也适合看书。", "B2"]) == text


def test_only_the_lines_that_repeat_are_left_out():
    text = f"Context:\n{ZH}\n{EN}\n\n问题：备件还有几个？\n{ZH[:8]}"
    assert remove_repeated(text, [ZH, EN]) == f"Context:\n{REPEATED_NOTE}\n\n问题：备件还有几个？\n{ZH[:8]}"


@given(st.text(max_size=200), st.lists(st.text(max_size=60), max_size=4))
def test_shares_lie_between_nothing_and_everything(text, passages):
    assert 0 <= repeated_share(text, passages) <= 1
    assert repeated_share(text, []) == 0
    assert repeated_share(text, [*passages, text]) >= repeated_share(text, passages)


@given(st.text(max_size=300), st.integers(100, 400))
def test_a_shortened_text_has_its_ends_and_fits(text, most):
    shortened = shorten(text * 3, most)
    assert len(shortened) <= most
    if len(text) * 3 <= most:
        assert shortened == text * 3
    else:
        assert shortened[:20] == (text * 3)[:20]
        assert shortened[-10:] == (text * 3)[-10:]
