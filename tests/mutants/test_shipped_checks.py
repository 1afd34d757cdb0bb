"""`langchain_agentrag.testing` on its own, without any model: leaks and damage are found, and no private text is quoted."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from langchain_agentrag import SourceDocument
from langchain_agentrag.cli.app import app
from langchain_agentrag.store.commit import pack_vector
from langchain_agentrag.testing import assert_consistent, assert_isolated
from tests.contracts.world import World
from tests.mutants import engines  # noqa: F401  registers the faults
from tests.mutants.faults import FAULTS, ON_CHROMA, around

LEAKS = {
    "agents match by prefix": "agent 'a' was shown",
    "agents match without case": "was shown",
    "agents match after Unicode normalisation": "was shown",
    "agents match without blanks at the ends": "was shown",
    "nobody sees everything": "nobody was shown",
    "read() finds documents of anybody": "by read",
    "a refusal tells that the document exists": "an error tells",
    "stats() counts everybody's documents": "tells agent",
    "every agent's texts count in everybody's scores": "depend on documents it may not see",
}
SECRETS = ["swordfish", "marlin", "halibut", "turbot", "sardine", "mackerel"]


@pytest.fixture(params=[{}, ON_CHROMA], ids=["exact", "hnsw"])
def world(request):
    opened = World(twins=False, **request.param)
    agents = ["a", "a1", "A", "a ", "caf\u00e9", "cafe\u0301"]
    for place, (agent, secret) in enumerate(zip(agents, SECRETS, strict=True)):
        opened.put(
            agent,
            [
                SourceDocument(f"doc-{place}-{n}", f"密码 是 {secret}-{n}，数据库 连接超时 alpha。" * 2, {"n": n})
                for n in range(4)
            ],
        )
    opened.put(None, [SourceDocument("shared", "共享 数据库 手册 alpha。\n\n第二段 密码 重置。" * 3)])
    yield opened
    opened.close()


def test_a_sound_store_passes(world):
    assert_isolated(world.indexer)
    assert_consistent(world.indexer)
    report = world.indexer.verify(deep=True)
    assert report.ok
    assert report.probes


@pytest.mark.parametrize("title", LEAKS)
def test_a_leak_is_found_and_reported_without_the_text(world, title):
    with FAULTS[title][0](), pytest.raises(AssertionError, match=LEAKS[title]) as caught:
        assert_isolated(world.indexer, sample=100)
    assert not any(secret in str(caught.value) for secret in SECRETS)


def test_a_leak_by_a_filter_is_found(world):
    """The right partitions are asked, but a filter that names another agent opens its own as well."""
    from langchain_agentrag.filters import filter_keys
    from langchain_agentrag.scope import Scope
    from langchain_agentrag.search import engine
    from langchain_agentrag.store.visibility import VisiblePartition

    def opened(original, self, query):
        if "agent_id" in filter_keys(query.request.condition):
            everybody = [VisiblePartition(part) for part in self._store.catalog.partitions() if part.chunks]
            with (
                around(engine.Searcher, "_partitions", lambda _, self, scope, **__: everybody),
                around(Scope, "admits", lambda _, self, owner: True),
            ):
                return original(self, query)
        return original(self, query)

    with around(engine.Searcher, "search", opened), pytest.raises(AssertionError, match="agent_id"):
        assert_isolated(world.indexer)


DAMAGE = {
    "text": ("UPDATE chunks SET text = replace(text, '密码', '口令') WHERE row = :row", "not what the document holds"),
    "span": ("UPDATE chunks SET start = start + 1 WHERE row = :row", "not what the document holds"),
    "terms": ("UPDATE chunks SET terms = 'other\n\n' WHERE row = :row", "terms that the analyzer does not give"),
    "lengths": ("UPDATE chunks SET lengths = '1 1 1' WHERE row = :row", "terms that the analyzer does not give"),
    "hash": ("UPDATE chunks SET hash = x'00' WHERE row = :row", "a hash of something else"),
    "ordinal": ("UPDATE chunks SET ordinal = 7 WHERE row = :row", "not numbered from 0"),
    "no vector": ("DELETE FROM vectors WHERE row = :row", "no vector"),
    "short vector": ("UPDATE vectors SET vector = x'00000000' WHERE row = :row", "of another length"),
    "not finite": ("UPDATE vectors SET vector = :nan WHERE row = :row", "not finite"),
    "owner": ("UPDATE chunks SET partition = 1 WHERE row = :row", "somebody else|counts in the catalog"),
    "counts": ("UPDATE partitions SET chunks = chunks + 1", "counts in the catalog"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_in_the_catalog_is_found(world, kind):
    statement, expected = DAMAGE[kind]
    with world.indexer._store.catalog.transaction() as connection:
        row = connection.execute("SELECT max(row) FROM chunks").fetchone()[0]
        nan = pack_vector(np.full(16, np.nan, dtype=np.float32))
        connection.execute(
            statement, {name: value for name, value in (("row", row), ("nan", nan)) if f":{name}" in statement}
        )
    with pytest.raises(AssertionError, match=expected) as caught:
        assert_consistent(world.indexer)
    assert not any(secret in str(caught.value) for secret in SECRETS)


def test_damage_in_the_keyword_index_is_found(world):
    store = world.indexer._store
    partition = store.catalog.partition("a")
    index = store.indexes.open_keyword_index(partition)
    row = int(index.rows()[0])
    with store.lock.acquire():
        index.delete([row])
    with pytest.raises(AssertionError, match="keyword index"):
        assert_consistent(world.indexer)
    with store.lock.acquire():
        index.add([row], [world.model._analyzer.analyze("something else altogether")])
    with pytest.raises(AssertionError, match=r"not found by their own words|counts"):
        assert_consistent(world.indexer)


@pytest.mark.parametrize("world", [ON_CHROMA], indirect=True, ids=["hnsw"])
def test_damage_in_chroma_is_found(world):
    store = world.indexer._store
    partition = store.catalog.partition("a")
    with store.lock.acquire():
        index = store.indexes.open_vector_index(partition)
        index.add(index.rows()[:1].tolist(), -np.eye(16, dtype=np.float32)[:1])
    with pytest.raises(AssertionError, match="not the catalog's"):
        assert_consistent(world.indexer)


def test_the_exit_code_of_the_command_line_reports_damage(world):
    folder = world.folder / "store"
    world.indexer.close()
    run = CliRunner().invoke(app, ["verify", "--deep", "--store", str(folder)])
    assert run.exit_code == 0, run.output
    assert "attempts" in run.output
    world.reopen()
    with world.indexer._store.catalog.transaction() as connection:
        connection.execute("UPDATE chunks SET hash = x'00'")
    world.indexer.close()
    run = CliRunner().invoke(app, ["verify", "--deep", "--json", "--store", str(folder)])
    assert run.exit_code == 1
    assert "hash of something else" in run.output
