"""`HybridStore` at work: owners, lifetimes, Chinese, graphs; that it answers as LangGraph's own is tested elsewhere."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridStore, SourceDocument
from langchain_agentrag.errors import FilterError, InvalidDocumentError, ScopeError, UsageError
from tests.fakes import FixedClock, RecordingEmbeddings
from tests.langchain.scripts import ScriptedModel, calls

PLACE = ("users", "lina", "memories")


@pytest.fixture
def clock():
    return FixedClock(datetime(2026, 3, 2, 9, 0, tzinfo=UTC))


@pytest.fixture
def indexer(tmp_path, clock):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64), clock=clock) as opened:
        yield opened


def keys(items) -> list[str]:
    return [item.key for item in items]


# -- who owns what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ways",
    [
        {},
        {"agent_id": "lina", "shared": True},
        {"agent_id": "lina", "agent_id_key": "agent"},
        {"agent_id": "lina", "agent_of": lambda namespace: namespace[1]},
        {"agent_id_key": "agent", "shared": True},
    ],
)
def test_exactly_one_way_to_name_the_owner_is_required(indexer, ways):
    with pytest.raises(ScopeError):
        HybridStore(indexer, **ways)


def test_an_item_is_its_agents_alone(indexer):
    lina, otto = HybridStore(indexer, agent_id="lina"), HybridStore(indexer, agent_id="otto")
    shared = HybridStore(indexer, shared=True)
    lina.put(PLACE, "k", {"text": "门禁密码 7741"})
    shared.put(PLACE, "open", {"text": "opening hours 开放时间"})
    for other in (otto, shared):
        assert other.get(PLACE, "k") is None
        assert "k" not in keys(other.search((), query="门禁密码 7741"))
        assert "k" not in keys(other.search(()))
        other.delete(PLACE, "k")
    assert lina.get(PLACE, "k").value == {"text": "门禁密码 7741"}
    # what is shared is found by searching the store behind, not mixed into an agent's own items
    assert keys(lina.search((), query="开放时间")) == ["k"]
    assert lina.list_namespaces() == [PLACE]
    assert otto.list_namespaces() == []
    assert [hit.metadata["key"] for hit in indexer.search("7741", k=1, agent_id="lina")] == ["k"]
    assert all("7741" not in hit.text for hit in indexer.search("门禁密码 7741", agent_id="otto"))


def test_a_function_of_the_namespace_returns_the_owner(indexer):
    store = HybridStore(indexer, agent_of=lambda namespace: namespace[1])
    store.put(("users", "lina"), "k", {"text": "tea"})
    store.put(("users", "otto", "deep"), "k", {"text": "coffee"})
    assert keys(HybridStore(indexer, agent_id="lina").search(())) == ["k"]
    assert [item.value for item in store.search(("users", "otto"), query="tea")] == [{"text": "coffee"}]
    assert store.list_namespaces(prefix=("users", "otto", "*")) == [("users", "otto", "deep")]
    for unclear in (
        lambda: store.search(()),
        lambda: store.search(("users",), query="tea"),
        store.list_namespaces,
        lambda: store.list_namespaces(prefix=("users", "*")),
        lambda: store.put(("users",), "k", {"text": "x"}),
    ):
        with pytest.raises(ScopeError, match="agent_of"):
            unclear()


def test_a_function_that_gives_nobody_is_refused_unless_sharing_was_meant(indexer):
    def owner(namespace):
        return None if namespace[0] == "all" else namespace[1]

    with pytest.raises(ScopeError):
        HybridStore(indexer, agent_of=owner).put(("all", "x"), "k", {"text": "x"})
    with pytest.raises(ScopeError):
        HybridStore(indexer, agent_of=lambda _: "").put(("all", "x"), "k", {"text": "x"})
    HybridStore(indexer, agent_of=owner, shared=True).put(("all", "x"), "k", {"text": "x"})
    assert keys(HybridStore(indexer, shared=True).search(())) == ["k"]


def test_the_run_names_the_agent_and_without_one_nothing_is_read(indexer):
    store = HybridStore(indexer, agent_id_key="agent")

    @tool
    async def remember(text: str, runtime: ToolRuntime) -> str:
        """Remember a text."""
        await runtime.store.aput(("notes",), "n", {"text": text})
        return "kept"

    def run(config):
        model = ScriptedModel(steps=[calls("remember", text="周五换冷却液"), AIMessage("ok")])
        return asyncio.run(create_agent(model, [remember], store=store).ainvoke({"messages": [("user", "hi")]}, config))

    run({"configurable": {"agent": "lina"}})
    assert keys(HybridStore(indexer, agent_id="lina").search((), query="冷却液")) == ["n"]
    with pytest.raises(ScopeError):
        run({})
    with pytest.raises(ScopeError):
        store.get(("notes",), "n")


@pytest.mark.parametrize("other", ["agent10", "Agent1", "agent", "agent%", "*", "agent1 "])
def test_namespaces_that_look_alike_are_apart(indexer, other):
    store = HybridStore(indexer, agent_id="lina")
    store.put(("agent1",), "k", {"text": "tea"})
    store.put((other,), "k", {"text": "tea"})
    store.put((other, "agent1"), "k", {"text": "tea"})
    for query in (None, "tea"):
        assert [item.namespace for item in store.search(("agent1",), query=query)] == [("agent1",)]
        assert {item.namespace for item in store.search((other,), query=query)} == {(other,), (other, "agent1")}
    assert store.list_namespaces(prefix=("agent1",)) == [("agent1",)]


@pytest.mark.parametrize("label", ["a.b", "", "\x00", 3])
def test_operations_of_a_batch_are_checked_too(indexer, label):
    store = HybridStore(indexer, agent_id="lina")
    for op in (
        GetOp((label,), "k"),
        PutOp((label,), "k", {"text": "x"}),
        ListNamespacesOp((MatchCondition("prefix", (label,)),)),
    ):
        with pytest.raises(ValueError, match="namespace label"):
            store.batch([op])


# -- search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "best"),
    [("乌龙茶", "zh"), ("E1102", "code"), ("aisle seats", "en"), ("烏龍茶", "zh"), ("喝茶不加糖", "zh")],
)
def test_an_item_is_found_by_its_words(indexer, query, best):
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "zh", {"text": "她喜欢喝乌龙茶，不加糖"})
    store.put(PLACE, "en", {"text": "prefers aisle seats on trains"})
    store.put(PLACE, "code", {"text": "报警 E1102 换了快插接头", "time": date(2026, 3, 2)})
    items = store.search(PLACE, query=query)
    assert items[0].key == best
    assert all(0 <= item.score <= 1 for item in items)
    assert [item.score for item in items] == sorted((item.score for item in items), reverse=True)


@pytest.mark.model
@pytest.mark.parametrize(
    ("query", "best"), [("what does she drink in the morning", "zh"), ("火车座位", "en"), ("机器为什么停了", "code")]
)
def test_an_item_is_found_by_meaning_across_languages(tmp_path, query, best):
    with DualIndexer(tmp_path / "store", "local") as indexer:
        store = HybridStore(indexer, agent_id="lina")
        store.put(PLACE, "zh", {"text": "她早上喜欢喝乌龙茶，不加糖"})
        store.put(PLACE, "en", {"text": "prefers aisle seats on trains"})
        store.put(PLACE, "code", {"text": "报警 E1102 停机，换了快插接头"})
        assert store.search(PLACE, query=query, limit=1)[0].key == best


def test_each_field_is_searched_on_its_own_and_what_is_not_indexed_fills_up(indexer):
    store = HybridStore(indexer, agent_id="lina", fields=["title", "steps[*]"])
    store.put(PLACE, "a", {"title": "冷却液", "steps": ["drain the tank", "周五更换"], "secret": "7741"})
    store.put(PLACE, "b", {"title": "alarm", "steps": []})
    store.put(PLACE, "c", {"title": "周五更换"}, index=False)
    store.put(PLACE, "d", {"nothing": "周五更换"})
    store.put(PLACE, "e", {"title": "other", "nothing": "周五更换"}, index=["nothing"])
    items = store.search(PLACE, query="周五更换")
    assert {item.key for item in items[:2]} == {"a", "e"}
    assert [item.score is None for item in items] == [False] * 3 + [True] * 2
    assert keys(items[3:]) == ["d", "c"]
    assert keys(store.search(PLACE, query="7741", limit=5))[0] != "c"
    assert (
        len(
            {
                hit.chunk_id
                for hit in indexer.search("周五 冷却液 tank", k=9, agent_id="lina")
                if hit.metadata["key"] == "a"
            }
        )
        == 3
    )


FILTERED = {
    "a": {
        "kind": "note",
        "n": 3,
        "at": "2026-03-01",
        "user": {"name": "莉娜", "address": {"city": "Berlin"}},
        "tags": ["x"],
    },
    "b": {"kind": "笔记", "n": "12", "at": "2026-01-15", "user": {"name": "Otto"}, "user.name": "literal", "tags": []},
    "c": {"kind": None, "up": True, "half-open": 1, "0": "zero", "user": "nobody"},
}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"user.name": "莉娜"}, "a"),
        ({"user.name": "literal"}, "b"),  # a key that contains the dot comes first
        ({"user.address.city": {"$eq": "Berlin"}}, "a"),
        ({"user.address.city": {"$ne": "Berlin"}}, "bc"),
        ({"user": {"name": "Otto"}}, "b"),
        ({"user": {"address": {"city": {"$eq": "Berlin"}}}}, "a"),
        ({"user.address": {"city": "Berlin"}}, "a"),
        ({"user.name.first": "x"}, ""),
        ({"half-open": 1, "up": True}, "c"),
        ({"0": "zero"}, "c"),
        ({"n": {"$gt": 2, "$lt": 12}}, "a"),
        ({"n": {"$gte": "3"}}, "ab"),  # a text that is a number is one
        ({"at": {"$gte": "2026-02-01"}}, "a"),
        ({"at": {"$lt": "2026-02"}}, "b"),
        ({"kind": {"$gt": "笔"}}, "b"),
        ({"kind": {"$gt": 5}}, ""),  # a text is not compared with a number
        ({"user": {"$lt": 5}}, ""),
        ({"absent": {"$lte": 5}}, ""),
        ({"tags": ["x"]}, "a"),
        ({"kind": None}, "c"),
        ({"absent": None}, "abc"),
        ({}, "abc"),
        (None, "abc"),
    ],
)
def test_filters_take_what_the_stores_of_langgraph_take(indexer, where, found):
    store = HybridStore(indexer, agent_id="lina")
    for key, value in FILTERED.items():
        store.put(PLACE, key, {**value, "text": "冷却液"})
    assert sorted(keys(store.search(PLACE, filter=where))) == sorted(found)
    assert sorted(keys(store.search(PLACE, query="冷却液", filter=where))) == sorted(found)


@pytest.mark.parametrize(
    "where",
    [5, ["kind"], {5: "x"}, {"kind": {"$like": "x"}}, {"user": {"name": {"$in": ["x"]}}}, {"n": {"$gt": 1, "n": 2}}],
)
def test_filters_that_no_store_of_langgraph_has_are_refused_also_without_items(indexer, where):
    store = HybridStore(indexer, agent_id="lina")
    for query in (None, "x"):
        with pytest.raises(FilterError, match=r"filter|Unsupported operator"):
            store.search(PLACE, query=query, filter=where)


def test_without_a_query_the_last_put_comes_first(indexer, clock):
    store = HybridStore(indexer, agent_id="lina")
    for key in ("a", "b", "c"):
        store.put((*PLACE, key), key, {"text": "冷却液", "key": key}, ttl=60, index=None if key == "a" else False)
        clock.pass_minutes(1)
    assert keys(store.search(PLACE)) == ["c", "b", "a"]
    store.put((*PLACE, "a"), "a", {"text": "again", "key": "a"}, ttl=60)
    clock.pass_minutes(1)
    assert keys(store.search(PLACE)) == ["a", "c", "b"]
    store.get((*PLACE, "b"), "b", refresh_ttl=True)  # renewing a lifetime is no put
    assert keys(store.search(PLACE)) == ["a", "c", "b"]
    assert keys(store.search(PLACE, filter={"text": "冷却液"})) == ["c", "b"]
    assert keys(store.search(PLACE, limit=1, offset=1)) == ["c"]
    times = [item.updated_at for item in store.search(PLACE)]
    assert times == sorted(times, reverse=True)


def test_items_put_together_are_in_reverse_order_too(indexer):
    store = HybridStore(indexer, agent_id="lina")
    store.batch([PutOp(PLACE, key, {"text": key}) for key in "abc"])
    assert keys(store.search(PLACE)) == ["c", "b", "a"]


def test_a_value_as_deep_as_can_be_stored_is_listed(indexer):
    deep: dict = {"text": "冷却液"}
    for _ in range(90):
        deep = {"deeper": deep}
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "k", deep)
    assert keys(store.search(PLACE)) == ["k"]
    assert store.get(PLACE, "k").value == deep


def test_pages_of_a_search_hold_each_item_once(indexer):
    store = HybridStore(indexer, agent_id="lina")
    for number in range(7):
        store.put(PLACE, f"k{number}", {"text": f"note {number} 冷却液"}, index=None if number < 4 else False)
    whole = keys(store.search(PLACE, query="冷却液", limit=7))
    pages = [keys(store.search(PLACE, query="冷却液", limit=2, offset=offset)) for offset in (0, 2, 4, 6)]
    assert [key for page in pages for key in page] == whole
    assert sorted(whole) == [f"k{number}" for number in range(7)]


def test_the_model_never_sees_an_empty_text(tmp_path):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "store", model) as indexer:
        store = HybridStore(indexer, agent_id="lina")
        store.put(PLACE, "a", {"text": "secret"}, index=False)
        store.put(PLACE, "b", {})
        store.put(PLACE, "c", {"text": "。。。"}, index=["text"])
        assert "" not in model.texts
        assert not any("secret" in text for text in model.texts)
        assert keys(store.search(PLACE)) == ["c", "b", "a"]
        assert indexer.verify().ok


@pytest.mark.parametrize("option", ["filter", "vector", "max_per_document"])
def test_options_that_each_call_decides_are_refused(indexer, option):
    with pytest.raises(UsageError, match=option):
        HybridStore(indexer, agent_id="lina", search={option: 1})


def test_unknown_options_are_refused(indexer):
    with pytest.raises(UsageError, match="mode"):
        HybridStore(indexer, agent_id="lina", search={"mod": "vector"})


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_values_survive_reopening_as_they_were(tmp_path):
    value = {
        "text": "茶", "when": datetime(2026, 3, 2, 8, tzinfo=UTC), "price": Decimal("1.10"), "raw": b"\x00",
        "deep": {"$t": "x", "list": [1, None, {"a": float("inf")}]}, "emoji": "🚀", "half": "\ud83d", "agent_id": "otto",
    }  # fmt: skip
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        HybridStore(indexer, agent_id="lina").put(PLACE, "键/\x00.", value)
    with DualIndexer(tmp_path / "store") as indexer:
        store = HybridStore(indexer, agent_id="lina")
        assert store.get(PLACE, "键/\x00.").value == value
        assert store.search(PLACE, filter={"price": {"$gt": 1}})[0].value == value
        assert HybridStore(indexer, agent_id="otto").search(()) == []


def test_a_put_keeps_when_an_item_was_made(indexer, clock):
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "k", {"text": "one"})
    clock.pass_minutes(5)
    store.put(PLACE, "k", {"text": "two"})
    item = store.get(PLACE, "k")
    assert item.updated_at - item.created_at == timedelta(minutes=5)
    assert store.search(PLACE, query="one")[0].value == {"text": "two"}


@pytest.mark.parametrize("value", [5, "text", ["a"], {"a": object()}, {1: "a"}])
def test_a_value_that_cannot_be_kept_leaves_the_batch_undone(indexer, value):
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "old", {"text": "old"})
    with pytest.raises(InvalidDocumentError):
        store.batch([PutOp(PLACE, "new", {"text": "x"}), PutOp(PLACE, "old", None), PutOp(PLACE, "bad", value)])
    assert keys(store.search(PLACE)) == ["old"]


def test_what_was_deleted_is_on_no_disk(indexer):
    from tests.store.erasure import find_deleted_text, wait_until_purged

    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "k", {"text": "quetzalcoatlus 翼龙密码"})
    store.put(PLACE, "k", {"text": "renamed"})
    store.put(PLACE, "k2", {"text": "quetzalcoatlus"})
    store.delete(PLACE, "k2")
    wait_until_purged(indexer)
    assert find_deleted_text(indexer._store, ["quetzalcoatlus", "翼龙密码"]) == []


async def test_the_asynchronous_methods_do_the_same(indexer):
    store = HybridStore(indexer, agent_id="lina")
    await asyncio.gather(*(store.aput(PLACE, f"k{n}", {"text": f"笔记 {n}"}) for n in range(8)))
    assert sorted(keys(await store.asearch(PLACE, query="笔记"))) == [f"k{n}" for n in range(8)]
    assert (await store.aget(PLACE, "k3")).value == {"text": "笔记 3"}
    await store.adelete(PLACE, "k3")
    assert await store.aget(PLACE, "k3") is None
    assert await store.alist_namespaces(max_depth=1) == [("users",)]


# -- lifetimes --------------------------------------------------------------------------------------------------------


def test_an_item_ends_when_its_time_has_passed(indexer, clock):
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "short", {"text": "冷却液"}, ttl=10)
    store.put(PLACE, "long", {"text": "冷却液"})
    clock.pass_minutes(10)
    assert store.get(PLACE, "short") is None
    assert keys(store.search(PLACE)) == keys(store.search(PLACE, query="冷却液")) == ["long"]
    store.put(("other",), "k", {"text": "x"}, ttl=1)
    clock.pass_minutes(2)
    assert store.list_namespaces() == [PLACE]
    assert store.sweep_ttl() == 2
    assert store.sweep_ttl() == 0
    store.put(PLACE, "short", {"text": "new"})
    assert store.get(PLACE, "short").created_at == clock.now


def test_expired_items_stay_readable_until_they_are_swept_with_the_option(indexer, clock):
    store = HybridStore(indexer, agent_id="lina", ttl={"omit_expired": False, "refresh_on_read": False})
    omitting = HybridStore(indexer, agent_id="lina", ttl={"omit_expired": True})
    store.put(PLACE, "old", {"text": "冷却液"}, ttl=1)
    clock.pass_minutes(2)
    store.put(PLACE, "new", {"text": "冷却液"})
    assert store.get(PLACE, "old").value == {"text": "冷却液"}
    assert keys(store.search(PLACE)) == ["new", "old"]
    assert [(item.key, item.score is None) for item in store.search(PLACE, query="冷却液")] == [
        ("new", False),
        ("old", True),
    ]
    for other in (omitting, HybridStore(indexer, agent_id="lina")):
        assert other.get(PLACE, "old") is None
        assert keys(other.search(PLACE)) == keys(other.search(PLACE, query="冷却液")) == ["new"]
    otto = HybridStore(indexer, agent_id="otto", ttl={"omit_expired": False})
    assert otto.get(PLACE, "old") is None
    assert otto.search(()) == otto.list_namespaces() == []
    store.put(("other",), "k", {"text": "x"}, ttl=1)
    clock.pass_minutes(2)
    assert store.list_namespaces() == [("other",), PLACE]
    assert omitting.list_namespaces() == [PLACE]
    assert omitting.get(PLACE, "old", refresh_ttl=True) is None
    store.get(PLACE, "old", refresh_ttl=True)  # a renewed item lives again
    assert keys(omitting.search(PLACE)) == ["new", "old"]
    assert store.sweep_ttl() == 1
    assert store.search(("other",)) == []
    clock.pass_minutes(2)
    store.delete(PLACE, "old")
    assert keys(store.search(())) == ["new"]
    assert indexer.verify().ok


@pytest.mark.parametrize("read", ["get", "search", "query"])
@pytest.mark.parametrize("renew", [True, False, None])
@pytest.mark.parametrize("configured", [True, False])
def test_reading_refreshes_the_ttl_with_the_option(indexer, clock, read, renew, configured):
    store = HybridStore(indexer, agent_id="lina", ttl={"default_ttl": 10, "refresh_on_read": configured})
    store.put(PLACE, "k", {"text": "冷却液"})
    clock.pass_minutes(8)
    how = {"refresh_ttl": renew}
    result = {
        "get": lambda: [store.get(PLACE, "k", **how)],
        "search": lambda: store.search(PLACE, **how),
        "query": lambda: store.search(PLACE, query="冷却液", **how),
    }[read]()
    assert keys(result) == ["k"]
    clock.pass_minutes(8)
    alive = store.get(PLACE, "k") is not None
    assert alive is (configured if renew is None else renew)
    if alive:
        assert store.get(PLACE, "k").updated_at < clock.now - timedelta(minutes=15)


def test_the_default_ttl_can_be_disabled_per_item(indexer, clock):
    store = HybridStore(indexer, agent_id="lina", ttl={"default_ttl": 1})
    store.put(PLACE, "k", {"text": "x"}, ttl=None)
    clock.pass_minutes(1e6)
    assert keys(store.search(PLACE)) == ["k"]


def test_reading_goes_on_when_a_lifetime_cannot_be_renewed(indexer, clock, monkeypatch):
    from langchain_agentrag.errors import StoreLockedError

    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "k", {"text": "x"}, ttl=10)
    clock.pass_minutes(5)

    def busy(*_args, **_options):
        raise StoreLockedError("busy")

    monkeypatch.setattr(indexer, "index_documents", busy)
    assert store.get(PLACE, "k").value == {"text": "x"}


def test_a_sweeper_sweeps_until_it_is_stopped(indexer, clock):
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "k", {"text": "x"}, ttl=1)
    clock.pass_minutes(2)
    store.start_ttl_sweeper(sweep_interval_minutes=0.001)
    for _ in range(200):
        if not indexer.get(["item:" + '["users.lina.memories","k"]'], agent_id="lina"):
            break
        asyncio.run(asyncio.sleep(0.05))
    else:
        pytest.fail("the sweeper removed nothing")
    assert store.stop_ttl_sweeper(timeout=30)
    with pytest.raises(UsageError):
        store.start_ttl_sweeper(-1)


@pytest.mark.parametrize("way", [{"agent_id": "lina"}, {"shared": True}])
def test_a_store_of_one_owner_sweeps_for_that_owner_and_tells_of_no_other(indexer, clock, way):
    stores = [HybridStore(indexer, agent_id="otto"), HybridStore(indexer, **way)]
    for store in stores:
        store.put(PLACE, "k", {"text": "x"}, ttl=1)
    clock.pass_minutes(2)
    assert stores[1].sweep_ttl() == 1
    assert stores[1].sweep_ttl() == 0
    assert stores[0].sweep_ttl() == 1


def test_a_store_of_several_agents_sweeps_for_them_all(indexer, clock):
    store = HybridStore(indexer, agent_of=lambda namespace: namespace[0])
    for agent in ("lina", "otto"):
        store.put((agent,), "k", {"text": "x"}, ttl=1)
    clock.pass_minutes(2)
    assert store.sweep_ttl() == 2


# -- around it --------------------------------------------------------------------------------------------------------


def test_forgetting_an_agent_forgets_its_items(indexer):
    store = HybridStore(indexer, agent_id="lina")
    store.put(PLACE, "k", {"text": "x"})
    indexer.for_agent("lina").forget()
    assert store.search(()) == store.list_namespaces() == []


def test_documents_that_are_no_items_are_not_the_stores(indexer):
    indexer.index_documents([SourceDocument("note", "冷却液 note", {"namespace": "users"})], "lina")
    store = HybridStore(indexer, agent_id="lina")
    assert store.search((), query="冷却液") == store.search(()) == []


def test_without_langgraph_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['langgraph'] = None; sys.modules['langgraph.store.base'] = None\n"
        "from langchain_agentrag.errors import MissingExtraError\n"
        "try: from langchain_agentrag import HybridStore\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "langchain-agentrag[langgraph]"' in done.stdout
