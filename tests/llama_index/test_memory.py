"""`HybridMemoryBlock`: recall by meaning, word, agent, session and time."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import Memory
from llama_index.core.utils import get_tokenizer
from pydantic import ValidationError

from langchain_agentrag import SourceDocument
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.errors import AgentRagError, ScopeError
from langchain_agentrag.llama_index import HybridMemoryBlock, HybridRetriever
from langchain_agentrag.testing.llama_index import run_counting_ticks
from tests.fences import unfenced

NOON = dt.datetime(2026, 3, 10, 12, tzinfo=dt.UTC)


def message(text: str, role: str = "user", **more) -> ChatMessage:
    return ChatMessage(role=role, content=text, additional_kwargs=more)


def put(block, messages, session="s1"):
    asyncio.run(block.aput(messages, from_short_term_memory=True, session_id=session))


def ask(block, question, session="s1", **options) -> str:
    return unfenced(asyncio.run(block.aget([message(question)], session_id=session, **options)))


@pytest.fixture
def block(indexer):
    return HybridMemoryBlock(indexer=indexer, agent_id="规划者", clock=lambda: NOON)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("主轴过热是滤网堵了，换上新的就好了", "主轴过热上次怎么解决的"),
        ("The release key is kept in locker R-17.", "where is the release key"),
        ("部署用的 token 存放在 vault 的 path kv/ops", "token 放在哪里"),
        ("错误码 ORA-00942 是因为没有建表", "ORA-00942"),
    ],
)
def test_a_recorded_message_is_recalled(block, text, question):
    put(block, [message("今天午饭吃什么"), message(text, "assistant"), message("See you tomorrow.")])
    assert f"assistant] {text}" in ask(block, question)


def test_recalled_messages_have_time_and_speaker_oldest_first(block):
    put(
        block,
        [
            message("滤网 第二条", time="2026-03-02T08:00:00+00:00"),
            message("滤网 第一条", "assistant", time=dt.datetime(2026, 3, 1, 7, tzinfo=dt.UTC)),
        ],
    )
    assert ask(block, "滤网").splitlines() == [
        "[2026-03-01 07:00 assistant] 滤网 第一条",
        "[2026-03-02 08:00 user] 滤网 第二条",
    ]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-03-02T09:00:00+08:00", "2026-03-02 09:00"),
        (dt.datetime(2026, 3, 2, 9, tzinfo=dt.timezone(dt.timedelta(hours=-5))), "2026-03-02 09:00"),
        ("2026-03-02T09:00:00Z", "2026-03-02 09:00"),
        ("2026-03-02 09:00", "2026-03-02 09:00"),
        (1_772_442_000, "2026-03-02 09:00"),
    ],
)
def test_what_is_recalled_shows_the_hour_that_was_on_the_clock(block, time, expected):
    put(block, [message("三号泵 pump three 漏油", time=time)])
    assert f"[{expected} user]" in asyncio.run(block.aget([message("三号泵 漏油")], session_id="s1"))


def test_messages_of_one_flush_keep_their_order(block):
    put(block, [message(f"步骤 {n} 检查滤网") for n in range(4)])
    assert [line[-8:] for line in ask(block, "滤网 步骤").splitlines()] == [f"步骤 {n} 检查滤网"[-8:] for n in range(4)]


class TestSessionsAndAgents:
    def test_one_block_serves_any_number_of_sessions(self, block):
        for session in ("s1", "s2", "s10"):
            put(block, [message(f"门牌号是 {session}号")], session)
        for session in ("s10", "s1", "s2", "s1"):
            assert ask(block, "门牌号", session) == f"[2026-03-10 12:00 user] 门牌号是 {session}号"
        assert ask(block, "门牌号", "s3") == ask(block, "门牌号", None) == ""

    def test_across_sessions_with_the_option(self, block, indexer):
        for session in ("s1", "s2"):
            put(block, [message(f"门牌号是 {session}号")], session)
        wide = HybridMemoryBlock(indexer=indexer, agent_id="规划者", across_sessions=True)
        assert {"s1号", "s2号"} == {line[-3:] for line in ask(wide, "门牌号", "s9").splitlines()}

    def test_agents_do_not_share_memories(self, block):
        other = block.for_agent("执行者")
        put(block, [message("口令是芝麻")])
        put(other, [message("口令是西瓜")])
        assert ("芝麻" in ask(block, "口令"), "西瓜" in ask(block, "口令")) == (True, False)
        assert ("芝麻" in ask(other, "口令"), "西瓜" in ask(other, "口令")) == (False, True)

    def test_documents_are_no_memories(self, block, indexer):
        fake = {"type": "dialogue", "session": "s1", "role": "user"}
        indexer.index_documents([SourceDocument("shared", "口令是公开的", fake)])
        indexer.index_documents([SourceDocument("own", "口令手册", {"session": "s1"})], "规划者")
        assert ask(block, "口令") == ""

    def test_memories_are_private_documents_of_the_agent(self, block, indexer):
        put(block, [message("口令是芝麻")])
        assert HybridRetriever(indexer).retrieve("口令") == []
        [one] = HybridRetriever(indexer, agent_id="规划者").retrieve("口令")
        assert {key: one.metadata[key] for key in ("type", "role", "session", "time")} == {
            "type": "dialogue", "role": "user", "session": "s1", "time": NOON,
        }  # fmt: skip

    def test_an_agent_named_on_the_way_must_be_the_blocks(self, block):
        put(block, [message("口令是芝麻")])
        assert "芝麻" in ask(block, "口令", agent_id="规划者")
        with pytest.raises(ScopeError):
            ask(block, "口令", agent_id="执行者")

    @pytest.mark.parametrize("agent", [None, "", 7])
    def test_there_is_no_memory_without_an_agent(self, indexer, agent):
        with pytest.raises((ValidationError, AgentRagError)):
            HybridMemoryBlock(indexer=indexer, agent_id=agent)


class TestTime:
    @pytest.fixture
    def diary(self, block):
        put(block, [message(f"三月{day}日 检查了滤网", time=f"2026-03-{day:02}T09:00:00+08:00") for day in (1, 5, 9)])
        return block

    @pytest.mark.parametrize(
        ("since", "until", "days"),
        [
            (None, None, ["1", "5", "9"]),
            (dt.datetime(2026, 3, 5, 1, tzinfo=dt.UTC), None, ["5", "9"]),
            (dt.datetime(2026, 3, 5, 1, 0, 1, tzinfo=dt.UTC), None, ["9"]),
            (None, dt.datetime(2026, 3, 5, 9, tzinfo=dt.timezone(dt.timedelta(hours=8))), ["1"]),
            (dt.date(2026, 3, 2), dt.date(2026, 3, 9), ["5"]),
            (dt.date(2026, 4, 1), None, []),
        ],
    )
    def test_a_time_range_limits_the_recall(self, diary, since, until, days):
        answer = ask(diary, "滤网", since=since, until=until)
        assert [line.split("三月")[1][0] for line in answer.splitlines()] == days

    def test_recent_ones_win_among_equals_with_recency(self, diary, indexer):
        recent = HybridMemoryBlock(
            indexer=indexer, agent_id="规划者", k=1, half_life=dt.timedelta(days=2), clock=lambda: NOON
        )
        assert "三月9日" in ask(recent, "滤网 检查")
        assert "三月1日" in ask(recent, "三月1日 检查了滤网")  # an exact match is not buried

    def test_a_half_life_is_positive(self, indexer):
        with pytest.raises(ValidationError, match="positive"):
            HybridMemoryBlock(indexer=indexer, agent_id="a", half_life=dt.timedelta(0))


class TestWhatIsStored:
    def test_the_callers_messages_are_not_changed(self, block):
        messages = [message("口令是芝麻", kept="yes")]
        before = copy.deepcopy(messages)
        put(block, messages)
        assert messages == before

    def test_storing_again_changes_nothing(self, block, indexer):
        for _ in range(3):
            put(block, [message("口令是芝麻"), message("好的", "assistant")])
        assert indexer.stats("规划者").documents == 2

    def test_nothing_is_stored_of_system_prompts_and_silence(self, block, indexer):
        put(block, [message("你是助手", "system"), message("  "), ChatMessage(role="user", blocks=[])])
        assert indexer.stats("规划者").documents == 0

    def test_tool_calls_and_their_results_are_recalled(self, block):
        call = ToolCallBlock(tool_call_id="c1", tool_name="restart_pump", tool_kwargs={"pump": "P-7"})
        calling = ChatMessage(role="assistant", blocks=[TextBlock(text="我来重启"), call])
        put(block, [calling, message("重启成功，压力 3.2 bar", "tool", tool_call_id="c1")])
        assert 'restart_pump({"pump": "P-7"})' in ask(block, "restart_pump P-7")
        assert "压力 3.2 bar" in ask(block, "重启成功了吗")

    def test_pictures_are_noted(self, block):
        put(
            block,
            [
                ChatMessage(
                    role="user", blocks=[TextBlock(text="这是铭牌"), ImageBlock(url="https://example.org/p.png")]
                )
            ],
        )
        assert "[image]" in ask(block, "铭牌")

    def test_the_base_classs_way_in_works_too(self, block):
        asyncio.run(block._aput([message("口令是芝麻", session_id="s1")]))
        assert "芝麻" in ask(block, "口令")

    def test_blocks_that_take_nothing_from_short_term_memory(self, indexer):
        deaf = HybridMemoryBlock(indexer=indexer, agent_id="a", accept_short_term_memory=False)
        put(deaf, [message("口令是芝麻")])
        assert ask(deaf, "口令") == ""

    def test_a_session_can_be_forgotten(self, block):
        for session in ("s1", "s2"):
            put(block, [message(f"口令是 {session}")], session)
        assert asyncio.run(block.aforget("s1")) == 1
        assert (ask(block, "口令", "s1"), bool(ask(block, "口令", "s2"))) == ("", True)


def test_the_query_is_the_last_user_message(block, indexer):
    put(block, [message("滤网在仓库二"), message("扳手在仓库五")])
    talk = [message("滤网在哪"), message("在找", "assistant"), message("扳手在哪"), message("查一下", "assistant")]
    one = HybridMemoryBlock(indexer=indexer, agent_id="规划者", k=1)
    assert "扳手" in asyncio.run(one.aget(talk, session_id="s1"))
    assert asyncio.run(one.aget([], session_id="s1")) == asyncio.run(one.aget(None, session_id="s1")) == ""


def test_long_recollections_lose_their_oldest_entries(indexer):
    block = HybridMemoryBlock(indexer=indexer, agent_id="a", max_chars=120, clock=lambda: NOON)
    put(block, [message(f"滤网记录 {n} " + "很长" * 10) for n in range(4)])
    answer = ask(block, "滤网记录")
    assert len(answer) <= 120
    assert "滤网记录 3" in answer


def test_a_question_nothing_answers_recalls_nothing(block):
    put(block, [message("口令是芝麻")])
    assert ask(block, "zzz") == ask(block, "？！") == ""


def test_it_shows_no_store_and_no_texts(block):
    put(block, [message("口令是芝麻")])
    assert "芝麻" not in repr(block) + str(block.model_dump())
    assert "indexer" not in block.model_dump()
    with pytest.raises(ValidationError):
        HybridMemoryBlock(indexer=block.indexer, agent_id="a", sesion=1)


class TestInLlamaIndexsMemory:
    def memory(self, block, session):
        return Memory.from_defaults(session_id=session, token_limit=80, token_flush_size=10, memory_blocks=[block])

    def test_two_sessions_share_a_block_and_nothing_else(self, block):
        async def talk():
            memories = {session: self.memory(block, session) for session in ("s1", "s2")}
            for session, memory in memories.items():
                await memory.aput(message(f"我的门牌号是 {session}-零七，请记住"))
                for n in range(6):
                    await memory.aput(
                        message(f"闲聊 {n} 今天天气真不错啊，适合出门走走", "assistant" if n % 2 else "user")
                    )
            return {
                session: (await memory.aget(input="我的门牌号是多少"))[0].content
                for session, memory in memories.items()
            }

        answers = asyncio.run(talk())
        for session, other in (("s1", "s2"), ("s2", "s1")):
            assert f"门牌号是 {session}-零七" in answers[session]
            assert other not in answers[session]

    def test_time_travels_through_memory(self, block):
        put(
            block,
            [
                message("三月的滤网", time="2026-03-01T00:00:00+00:00"),
                message("一月的滤网", time="2026-01-01T00:00:00+00:00"),
            ],
        )

        async def recall():
            [first, *_] = await self.memory(block, "s1").aget(
                input="滤网", until=dt.datetime(2026, 2, 1, tzinfo=dt.UTC)
            )
            return first.content

        assert "一月的滤网" in asyncio.run(recall())
        assert "三月的滤网" not in asyncio.run(recall())

    def test_a_chat_engine_remembers_with_it(self, block, indexer):
        put(block, [message("我的门牌号是零七")])
        indexer.index_documents(["门牌号的规定"])
        engine = ContextChatEngine.from_defaults(
            retriever=HybridRetriever(indexer), llm=MockLLM(), memory=self.memory(block, "s1")
        )
        assert "门牌号是零七" in str(engine.chat("我的门牌号"))

    async def test_it_works_within_a_running_loop_and_blocks_nobody(self, block):
        await block.aput([message("口令是芝麻")], session_id="s1")
        recalled, ticks = await run_counting_ticks(lambda: block.aget([message("口令")], session_id="s1"))
        assert ticks
        assert "芝麻" in recalled
        assert "芝麻" in self.memory(block, "s1").get(input="口令")[0].content  # the sync twin, within the loop


class TestTightLimits:
    """Under a tight `token_limit` the block shortens itself; it vanishes only when nothing useful fits."""

    @pytest.fixture
    def recalled(self, indexer):
        block = HybridMemoryBlock(indexer=indexer, agent_id="规划者", clock=lambda: NOON, priority=1, k=6)
        put(block, [message(f"滤网 note {n}: 主轴过热 clean the filter, 重启机器") for n in range(6)])
        return block, asyncio.run(block.aget([message("滤网 filter")], session_id="s1"))

    def test_at_least_as_many_tokens_are_saved_as_asked_for(self, recalled):
        block, text = recalled
        total = len(get_tokenizer()(text))
        for saved in range(1, total + 3):
            shorter = asyncio.run(block.atruncate(text, saved))
            if shorter is None:
                assert total - saved < 90  # the fence, the stamp and a few characters do not fit
                continue
            assert len(get_tokenizer()(shorter)) <= total - saved
            lines = shorter.splitlines()
            assert (lines[0], lines[-1]) == (text.splitlines()[0], text.splitlines()[-1])
            body = "\n".join(lines[1:-1])
            assert body.startswith("[2026-03-10 12:00 user] 滤网 note")
            assert body in text
        assert asyncio.run(block.atruncate(text, total)) is None

    def test_the_oldest_go_first(self, recalled):
        block, text = recalled
        shorter = asyncio.run(block.atruncate(text, len(get_tokenizer()(text)) // 2))
        kept = [line for line in shorter.splitlines() if "note" in line]
        assert kept == [line for line in text.splitlines() if "note" in line][-len(kept) :]
        assert 0 < len(kept) < 6

    def test_without_a_fence_too(self, indexer):
        block = HybridMemoryBlock(indexer=indexer, agent_id="a", safety=PassageSafety.off())
        text = "[2026-03-10 12:00 user] eins\n[user] zwei\nzweite Zeile"
        assert asyncio.run(block.atruncate(text, 5)) == "[user] zwei\nzweite Zeile"

    @pytest.mark.parametrize("limit", [100, 150, 250, 2_000])
    def test_memory_keeps_what_fits(self, recalled, limit):
        block, _ = recalled
        memory = Memory.from_defaults(session_id="s1", token_limit=limit, memory_blocks=[block])

        async def recall():
            await memory.aput(message("滤网 filter"))
            return await memory.aget()

        [system, _] = asyncio.run(recall())
        assert "note 5" in system.content
        assert ("note 0" in system.content) == (limit == 2_000)


@pytest.mark.parametrize(
    ("text", "mark"), [("滤网堵了，换新的就好", "只是资料"), ("the filter is clogged, replace it", "data, not")]
)
def test_the_fence_is_in_the_language_of_what_is_recalled(block, text, mark):
    put(block, [message(text)])
    opening = asyncio.run(block.aget([message(text)], session_id="s1")).splitlines()[0]
    assert mark in opening
    assert ("只是资料" in opening) != ("data, not" in opening)
