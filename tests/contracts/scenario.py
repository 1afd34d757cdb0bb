"""A short life of a store that exercises every guarantee once, so that a wrong engine fails it."""

from __future__ import annotations

from datetime import timedelta

from langchain_agentrag import SourceDocument, quarantined
from langchain_agentrag.testing import assert_consistent, assert_isolated
from tests.contracts.world import START, World

AGENTS = ["a", "a1", "A", "a ", "caf\u00e9", "cafe\u0301"]
_TEXTS = {
    None: "共享手册：数据库连接超时 E1102 请检查配置。\n\n第二段 alpha beta。\n\n第三段：退款流程与密码重置，退款退款。",
    "a": "私人笔记 alpha 密码 是 swordfish-一。\n\n数据库 alpha alpha alpha 连接失败的记录，见 v2.10.3。",
    "a1": "计划 beta 密码 是 marlin-二。",
    "A": "大写 gamma 密码 是 halibut-三 数据库 超时 超时 超时。",
    "a ": "空格 delta 密码 是 turbot-四。",
    "caf\u00e9": "预约 epsilon 密码 是 sardine-五。",
    "cafe\u0301": "分解 zeta 密码 是 mackerel-六。",
}
_QUERIES = ["密码 alpha", "数据库 连接超时", "E1102 退款", "same line"]
_FILTERS = [None, {"n": {"$gte": 2}}, {"$or": [{"type": "manual"}, {"n": 3}]}, {"$not": {"type": "manual"}}]


def live(world: World, *, deep: bool = True) -> None:
    """Write, look, change, look again; then check the store itself.

    Raises:
        AssertionError: an answer differs from the model's, or a check of the store failed.
    """
    for owner, text in _TEXTS.items():
        world.put(
            owner,
            [
                SourceDocument("d1", text, {"type": "manual", "n": 1}),
                SourceDocument("d2", "same line", {"n": 2, "draft": True}),
                SourceDocument(f"only-{len(owner or '')}", "数据库 超时 alpha beta " * 3, {"type": "note", "n": 3}),
            ],
        )
    look(world)
    world.put(None, [SourceDocument("d1", "共享手册 换了 alpha。", {"lang": "zh", "n": 5})])
    world.put("a", [SourceDocument("d2", "same line", {"n": 9, "agent_id": "a"}), SourceDocument("d9", "same line")])
    world.put("A", [SourceDocument("d1", "。", {}), SourceDocument("d7", _TEXTS["a"] or "", {"owner": "a"})])
    world.put("a", [SourceDocument("d2", "same line", {"n": 10})])  # updated, it keeps its place before its equals
    world.search("a", "same line", 50, mode="keyword")
    world.delete("a", ["only-1", "absent"])
    world.delete("A", ["d7"], {"n": {"$exists": True}})  # both must agree: d7 has no n
    world.delete(None, None, {"n": 2, "draft": True})
    world.delete("a1", None, {"agent_id": "a"})
    world.delete("a1", None, {"agent_id": "a1", "n": 3})
    look(world)
    pass_time(world)
    hold_back(world)
    world.forget("a ")
    world.reopen()
    look(world)
    world.refuse_empty_agent()
    world.verify()
    if deep:
        assert_consistent(world.indexer)
        assert_isolated(world.indexer, sample=60)


def pass_time(world: World) -> None:
    """Documents of several hours, some of which expire; asked for in ranges, before and after they are gone."""
    for owner in (None, "a", "a1"):
        world.put(
            owner,
            [
                SourceDocument(
                    f"t{hour}",
                    f"数据库 超时 alpha, hour {hour}",
                    {
                        "time": START + timedelta(hours=hour),
                        "session": f"s{hour % 2}",
                        "expires_at": START + timedelta(hours=2 if hour < 2 else 900),
                    },
                )
                for hour in range(4)
            ],
        )
    world.tick(1)
    ask_in_ranges(world)
    world.tick(1)  # exactly the moment at which they expire
    ask_in_ranges(world)
    world.put("a", [SourceDocument("t1", "数据库 alpha again", {"time": START})])  # it comes back as a new one
    world.delete("a1", None, None, (None, START + timedelta(hours=3)))
    world.delete("a1", ["t3", "d1"], None, (None, None), "s1")
    ask_in_ranges(world)
    world.sweep()
    ask_in_ranges(world)
    world.delete("a", ["t3"], erase=True)
    world.delete(None, ["t2", "absent"], erase=True)
    ask_in_ranges(world)


def hold_back(world: World) -> None:
    """Documents from outside, quarantined; everybody asks for them, before and after some are released."""
    pages = {
        owner: [
            SourceDocument(f"w{n}", f"数据库 超时 swordfish-{n} {owner} " * (n + 1), {"type": "web", "n": n})
            for n in range(3)
        ]
        for owner in (None, "a", "a1")
    }
    for owner, documents in pages.items():
        world.put(owner, list(quarantined(documents)))
    hunt_everything(world)
    for owner in (None, "a"):
        world.put(owner, pages[owner][:1])
        world.delete(owner, ["w1"], {"quarantined": True})
    hunt_everything(world)


def hunt_everything(world: World) -> None:
    """Search for each quarantined document as each agent; modes take turns."""
    for agent in (None, "a", "a1", "A"):
        for turn, document in enumerate(world.model.quarantined()):
            world.hunt(document, agent, ("hybrid", "keyword", "vector")[turn % 3])
        world.stats(agent)
        world.read(agent, "w2")


def ask_in_ranges(world: World) -> None:
    """Ranges with and without the bonus for being recent; agents and modes take turns."""
    hours = [None, *(START + timedelta(hours=hour) for hour in (1, 3))]
    for turn, (after, before) in enumerate((one, other) for one in hours for other in hours):
        agent, recency = (None, "a", "a1")[turn % 3], timedelta(hours=1) if turn % 2 else None
        mode = ("hybrid", "keyword", "vector")[turn // 3 % 3]
        world.search(agent, "数据库 alpha", 20, mode=mode, window=(after, before), recency=recency)
    for agent in (None, "a", "a1"):
        world.search(agent, "超时 alpha", 50)
        for doc_id in ("t0", "t1", "t3"):
            world.read(agent, doc_id)
        world.get(agent, ["t0", "t1", "t3"])
        world.stats(agent)


def look(world: World) -> None:
    """Ask every question as everybody, in turns of modes and rules."""
    turn = 0
    for agent in [None, *AGENTS, "nobody-known"]:
        for query in _QUERIES:
            for mode in ("hybrid", "keyword", "vector"):
                turn += 1
                where = _FILTERS[turn % len(_FILTERS)]
                fusion = ("adaptive", "convex", "rrf", "dbsf", "relative")[turn // 4 % 5]
                world.search(agent, query, (1, 3, 50)[turn % 3], mode=mode, fusion=fusion, where=where)
        for fusion, weights in (("convex", (1.0, 0.0)), ("convex", (0.2, 0.8)), ("rrf", (0.9, 0.1))):
            world.search(agent, "密码 数据库", 50, fusion=fusion, weights=weights, where={"agent_id": {"$ne": "b"}})
        for other in AGENTS:
            world.search(agent, "密码", 50, mode="keyword", where={"agent_id": other})
        for doc_id in ("d1", "d2", "only-1", "d9", "absent"):
            world.read(agent, doc_id, 0, after=1)
            world.read(agent, doc_id, 1, before=1)
        world.get(agent, ["d1", "d9", "only-1", "absent"])
        world.stats(agent)
