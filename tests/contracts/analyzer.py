"""Contract of every analyzer, whatever its words are."""

from __future__ import annotations

import itertools

import pytest

TEXTS = [
    "数据库连接超时，请检查配置。",
    "The alphas were running over C++ and v2.10.3 at 10.20.30.40",
    "ORA-00942 ModuleNotFoundError snake_case e-mail a.b@example.com",
    "機器學習與資料庫",
    "ＦＵＬＬ　ｗｉｄｔｈ ﬁne Straße café",
    "データベース 한국어 검색 🚀🚀",
    "第 1 行\n第 2 行\t第 3 行",
    "的 了 吗 the of",
]


class AnalyzerContract:
    """`make()` gives an analyzer with its usual settings."""

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_text_always_gives_the_same_terms(self, make, text):
        first, second = make(), make()
        assert first.analyze(text) == first.analyze(text) == second.analyze(text)
        assert first.fingerprint == second.fingerprint

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_text_is_found_by_itself(self, make, text):
        """Query and index agree: the query terms of a text are among its index terms."""
        analyzer = make()
        terms, query = analyzer.analyze(text), analyzer.analyze_query(text)
        assert query["words"] or query["grams"]
        for field in ("words", "grams"):
            assert set(query[field]) <= set(getattr(terms, field)), field
            assert all(weight > 0 for weight in query[field].values())

    def test_different_texts_share_no_terms(self, make):
        analyzer = make()
        terms = analyzer.analyze("数据库连接 alpha")
        query = analyzer.analyze_query("退款 zeta")
        assert query["words"]
        assert not set(query["words"]) & set(terms.words)
        assert not set(query["grams"]) & set(terms.grams)

    @pytest.mark.parametrize("text", TEXTS)
    def test_no_term_holds_white_space(self, make, text):
        terms = make().analyze(text, context=text)
        everything = [*terms.words, *terms.grams, *terms.context]
        assert everything
        assert all(term and not any(char.isspace() for char in term) for term in everything)

    @pytest.mark.parametrize("text", TEXTS)
    def test_lengths_count_positions_of_each_field(self, make, text):
        terms = make().analyze(text, "alpha 数据")
        assert set(terms.lengths) == {"words", "grams", "context"}
        assert all(0 <= terms.lengths[name] <= len(getattr(terms, name)) for name in terms.lengths)
        assert terms.lengths["words"] + terms.lengths["grams"] > 0

    def test_the_context_is_a_field_of_its_own(self, make):
        terms = make().analyze("alpha", "beta")
        assert terms.context
        assert not set(terms.context) & set(terms.words)
        assert make().analyze("alpha").context == []

    def test_a_long_text_is_analysed_to_its_end(self, make):
        analyzer = make()
        terms = analyzer.analyze("数据 alpha " * 20_000 + "omega退款")
        assert set(analyzer.analyze_query("omega")["words"]) <= set(terms.words)
        assert set(analyzer.analyze_query("退款")["grams"]) <= set(terms.grams)
        assert terms.words.count(next(iter(analyzer.analyze_query("alpha")["words"]))) == 20_000

    @pytest.mark.parametrize("text", ["", "   \n", "。，！？", "..."])
    def test_a_text_without_words_has_no_terms(self, make, text):
        terms = make().analyze(text)
        assert (terms.words, terms.grams, terms.context) == ([], [], [])
        assert not any(make().analyze_query(text).values())

    @pytest.mark.parametrize("text", TEXTS)
    def test_spans_of_matches_are_exact(self, make, text):
        """Each span, analyzed on its own, gives one of the query terms."""
        analyzer = make()
        query = set(analyzer.analyze_query(text)["words"])
        padded = f"〖{text}〗 。。"
        spans = analyzer.match_spans(padded, query)
        assert spans == sorted(spans)
        assert all(0 <= start < stop <= len(padded) for start, stop in spans)
        assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))
        assert not query or spans
        for start, stop in spans:
            terms = analyzer.analyze(padded[start:stop])
            assert query & {*terms.words, *terms.grams}, padded[start:stop]
        assert analyzer.match_spans(padded, set()) == []
