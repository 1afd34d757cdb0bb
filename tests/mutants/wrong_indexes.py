"""Wrong indexes: each the plain reference with one mistake."""

from __future__ import annotations

import numpy as np

from tests.contracts.reference import MemoryKeywords, MemoryVectors

# -- keyword indexes -----------------------------------------------------------------------------------------------------


class StaleFrequencies(MemoryKeywords):
    """Goes on counting deleted rows."""

    def __init__(self):
        super().__init__()
        self._ever = MemoryKeywords()

    def add(self, rows, terms):
        super().add(rows, terms)
        self._ever.add(rows, terms)

    def doc_freqs(self, query):
        return self._ever.doc_freqs(query)


class ForgetsToDelete(MemoryKeywords):
    def delete(self, rows):
        pass


class OneTooMany(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        return super().candidates(query, limit + 1, allowed)


class PadsWithZeros(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        ranking = super().candidates(query, limit, allowed)
        rest = [row for row in self._entries if row not in dict(ranking) and (allowed is None or row in set(allowed))]
        return (ranking + [(row, 0.0) for row in rest])[:limit] if any(query.values()) else ranking


class FoldsCase(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        folded = {field: {term.casefold(): weight for term, weight in terms.items()} for field, terms in query.items()}
        return super().candidates(folded, limit, allowed)


class MatchesPrefixes(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        wide = {
            field: {
                stored_term: weight
                for row in self._entries.values()
                for stored_term in getattr(row, field)
                for term, weight in terms.items()
                if stored_term.startswith(term)
            }
            for field, terms in query.items()
        }
        return super().candidates(wide, limit, allowed)


class MixesFields(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        everything = {term: weight for terms in query.values() for term, weight in terms.items()}
        return super().candidates(dict.fromkeys(("words", "grams", "context"), everything), limit, allowed)


class IgnoresAllowed(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        return super().candidates(query, limit)


class FiltersAfterTheLimit(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        ranking = super().candidates(query, limit)
        return (
            ranking if allowed is None else [pair for pair in ranking[: max(1, limit // 4)] if pair[0] in set(allowed)]
        )


class IgnoresWeights(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        flat = {field: dict.fromkeys(terms, 1.0) for field, terms in query.items()}
        return super().candidates(flat, limit, allowed)


class WorstFirst(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        return super().candidates(query, limit, allowed)[::-1]


class CountsOccurrences(MemoryKeywords):
    def doc_freqs(self, query):
        return {
            field: {term: sum(getattr(row, field).count(term) for row in self._entries.values()) for term in terms}
            for field, terms in query.items()
        }


class RequiresEveryTerm(MemoryKeywords):
    def candidates(self, query, limit, allowed=None):
        ranking = super().candidates(query, limit, allowed)
        wanted = [(field, term) for field, terms in query.items() for term in terms]
        return [
            pair for pair in ranking if all(term in getattr(self._entries[pair[0]], field) for field, term in wanted)
        ]


class ComplainsOfAbsentRows(MemoryKeywords):
    def delete(self, rows):
        for row in rows:
            del self._entries[row]


class RoundsRows(MemoryKeywords):
    """Row ids as 32-bit numbers."""

    def rows(self):
        return super().rows().astype(np.int32).astype(np.int64)


# -- vector indexes ------------------------------------------------------------------------------------------------------


class DotProduct(MemoryVectors):
    def nearest(self, vector, limit):
        ranking = [(row, float(stored @ vector)) for row, stored in self._entries.items()]
        return sorted(ranking, key=lambda pair: -pair[1])[:limit]


class GivesDistances(MemoryVectors):
    def nearest(self, vector, limit):
        return [(row, 1 - cosine) for row, cosine in super().nearest(vector, limit)]


class FarthestFirst(MemoryVectors):
    def nearest(self, vector, limit):
        return super().nearest(vector, 10**6)[::-1][:limit]


class KeepsDeletedVectors(MemoryVectors):
    def delete(self, rows):
        pass


class MergesEqualVectors(MemoryVectors):
    def nearest(self, vector, limit):
        row_by_cosine = {round(cosine, 9): row for row, cosine in reversed(super().nearest(vector, limit))}
        return sorted(((row, cosine) for cosine, row in row_by_cosine.items()), key=lambda pair: -pair[1])


class OneTooFew(MemoryVectors):
    def nearest(self, vector, limit):
        return super().nearest(vector, max(1, limit - 1))


class DropsLargeBatches(MemoryVectors):
    def add(self, rows, vectors):
        super().add(rows[:5_461], vectors[:5_461])
