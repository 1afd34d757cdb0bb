"""Wrong connectors and analyzers: each a right one with one mistake."""

from __future__ import annotations

import dataclasses
import itertools

from langchain_agentrag import Analyzer, SourceDocument
from langchain_agentrag.connector import SourceItem
from tests.contracts.connector import START
from tests.contracts.reference import MemoryConnector
from tests.contracts.test_contracts import MemorySource

# -- connectors -------------------------------------------------------------------------------------------------------


class SameVersion(MemoryConnector):
    def items(self):
        for item in super().items():
            yield dataclasses.replace(item, version="1") if isinstance(item, SourceItem) else item


class NewVersionEachTime(MemoryConnector):
    _counter = itertools.count()

    def items(self):
        for item in super().items():
            version = str(next(self._counter))
            yield dataclasses.replace(item, version=version) if isinstance(item, SourceItem) else item


class IdsFromText(MemoryConnector):
    def _load(self, key):
        return [dataclasses.replace(doc, doc_id=f"text-{sum(doc.text.encode())}") for doc in super()._load(key)]


class LosesOwner(MemoryConnector):
    def _load(self, key):
        return [dataclasses.replace(doc, agent_id=None) for doc in super()._load(key)]


class NewIdentityEachTime(MemoryConnector):
    _counter = itertools.count()

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._name = f"{self._name}-{next(self._counter)}"


class OneIdentityForAll(MemoryConnector):
    @property
    def connector_id(self):
        return "memory"


class HidesFailures(MemoryConnector):
    def items(self):
        return (item for item in super().items() if isinstance(item, SourceItem))


class RemembersTheDead(MemoryConnector):
    def items(self):
        yield from super().items()
        for key in START.keys() - self.texts.keys():
            yield SourceItem(key, "1", lambda key=key: [SourceDocument(f"{self._name}/{key}", START[key])])


class CutsTexts(MemoryConnector):
    def _load(self, key):
        return [dataclasses.replace(doc, text=doc.text[:-1]) for doc in super()._load(key)]


class MutantSource(MemorySource):
    kind: type[MemoryConnector] = MemoryConnector

    def connector(self):
        return self.kind(self.texts, self.name, self.agent_id)


# -- analyzers --------------------------------------------------------------------------------------------------------


class Truncates(Analyzer):
    def analyze(self, text, context=""):
        return super().analyze(text[:2_000], context)


class QueriesDiffer(Analyzer):
    """The index folds traditional characters and stems; the query does not."""

    def analyze_query(self, text):
        terms = super().analyze_query(text)
        return {**terms, "words": dict.fromkeys(text.split(), 1.0) or terms["words"]}


class SpansOffByOne(Analyzer):
    def match_spans(self, text, terms):
        return [(start + 1, stop + 1) for start, stop in super().match_spans(text, terms)]


class MixesInContext(Analyzer):
    def analyze(self, text, context=""):
        return super().analyze(f"{context} {text}")


class LongerThanItIs(Analyzer):
    def analyze(self, text, context=""):
        terms = super().analyze(text, context)
        return dataclasses.replace(terms, lengths={name: 2 * size + 1 for name, size in terms.lengths.items()})


class CountsOnce(Analyzer):
    def analyze(self, text, context=""):
        terms = super().analyze(text, context)
        return dataclasses.replace(terms, words=sorted(set(terms.words)))


class Remembers(Analyzer):
    """The second analysis of a text differs from the first."""

    def analyze(self, text, context=""):
        self._calls = getattr(self, "_calls", 0) + 1
        return super().analyze(text if self._calls < 2 else text + " again", context)


class NegativeWeights(Analyzer):
    def analyze_query(self, text):
        return {
            field: {term: -w for term, w in weights.items()} for field, weights in super().analyze_query(text).items()
        }
