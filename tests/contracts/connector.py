"""What every connector must do: one check per sentence of `connectors.base` and of what a sync relies on."""

from __future__ import annotations

from typing import Any

from langchain_agentrag.connector import Gap, SourceItem

START = {"a.txt": "alpha 数据", "b.txt": "beta 连接", "c.txt": "gamma 超时"}


def listed(connector: Any) -> dict[str, SourceItem | Gap]:
    items = list(connector.items())
    keys = [item.key for item in items]
    assert len(set(keys)) == len(keys), "an item is listed once"
    return dict(zip(keys, items, strict=True))


class ConnectorContract:
    """`source(agent_id, name)` holds START and gives `connector()`, `write(key, text)`, `remove(key)`, `spoil(key)`."""

    def test_the_identity_is_equal_in_every_instance(self, source):
        one = source()
        assert (
            one.connector().connector_id
            == one.connector().connector_id
            != source(name="other").connector().connector_id
        )

    def test_every_item_is_listed_once_with_its_text(self, source):
        items = listed(source().connector())
        assert len(items) == 3
        texts = {document.text for item in items.values() for document in item.load()}
        assert texts == set(START.values())

    def test_listing_and_loading_can_be_repeated(self, source):
        connector = source().connector()
        first, second = listed(connector), listed(connector)
        assert first.keys() == second.keys()
        assert all(list(first[key].load()) == list(second[key].load()) for key in first)

    def test_ids_are_unique_and_stable(self, source):
        one = source()
        ids = [doc.doc_id for item in listed(one.connector()).values() for doc in item.load()]
        assert len(set(ids)) == len(ids) == 3
        one.write("b.txt", "another text")
        assert ids == [doc.doc_id for item in listed(one.connector()).values() for doc in item.load()]

    def test_the_version_changes_exactly_with_the_item(self, source):
        one = source()
        before = {key: item.version for key, item in listed(one.connector()).items()}
        assert before == {key: item.version for key, item in listed(one.connector()).items()}
        assert None not in before.values()
        one.write("b.txt", "beta, and more of it")
        after = {key: item.version for key, item in listed(one.connector()).items()}
        changed = {key for key in before if before[key] != after[key]}
        assert len(changed) == 1
        assert changed.pop().endswith("b.txt")

    def test_documents_belong_to_the_connector_s_agent(self, source):
        for agent in (None, "a%"):
            connector = source(agent_id=agent).connector()
            assert connector.agent_id == agent
            assert {doc.agent_id for item in listed(connector).values() for doc in item.load()} == {agent}

    def test_what_is_gone_is_no_longer_listed(self, source):
        one = source()
        one.remove("a.txt")
        assert len(listed(one.connector())) == 2

    def test_it_loads_as_langchain_documents(self, source):
        documents = source(agent_id="a").connector().load()
        assert {document.page_content for document in documents} == set(START.values())
        assert all(document.metadata["agent_id"] == "a" and document.metadata["doc_id"] for document in documents)

    def test_a_sync_does_what_changed_and_no_more(self, source, indexer):
        one = source()
        first = indexer.sync(one.connector())
        assert (first.added, first.unchanged) == (3, 0)
        again = indexer.sync(one.connector())
        assert (again.added, again.updated, again.deleted, again.unchanged) == (0, 0, 0, 3)
        one.write("a.txt", "omega 数据")
        one.remove("b.txt")
        one.write("d.txt", "delta")
        third = indexer.sync(one.connector())
        assert (third.added, third.updated, third.deleted, third.unchanged) == (1, 1, 1, 1)
        assert [hit.text for hit in indexer.search("omega", mode="keyword")] == ["omega 数据"]
        assert list(indexer.search("beta alpha", mode="keyword")) == []

    def test_what_cannot_be_read_is_reported_and_what_was_stored_of_it_is_kept(self, source, indexer):
        one = source()
        indexer.sync(one.connector())
        one.spoil("b.txt")
        report = indexer.sync(one.connector())
        assert (len(report.failed), report.deleted) == (1, 0)
        assert indexer.stats().documents == 3

    def test_two_sources_leave_each_other_alone(self, source, indexer):
        one, two = source(), source(name="other")
        indexer.sync(one.connector())
        indexer.sync(two.connector())
        two.remove("a.txt")
        assert indexer.sync(two.connector()).deleted == 1
        assert indexer.stats().documents == 5
        assert indexer.sync(one.connector()).unchanged == 3

    def test_the_same_source_of_two_agents_is_two_sources(self, source, indexer):
        mine, yours = source(agent_id="a"), source(agent_id="a ")
        assert indexer.for_agent("a").sync(mine.connector()).added == 3
        assert indexer.for_agent("a ").sync(yours.connector()).added == 3
        yours.remove("a.txt")
        yours.remove("b.txt")
        assert indexer.for_agent("a ").sync(yours.connector()).deleted == 2
        assert (indexer.stats("a").documents, indexer.stats("a ").documents) == (3, 1)
        assert indexer.for_agent("a").sync(mine.connector()).unchanged == 3
