"""The analyzer: what is found by what, in Chinese, English and everything that is neither."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_agentrag.errors import UsageError
from langchain_agentrag.search.bm25 import FieldStats, Scorer
from langchain_agentrag.text import FIELDS, Analyzer

ANALYZER = Analyzer()
MIXED = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            "中国农业发展银行花落知多少的了吗漢計畫乾々〇ひカ한ﾊﾟ１Ａé́ß İﬁ\u200b\ud800\x00.-_/@'+#:= \n,0129aBcZ🎉"
        ),
    ),
    max_size=60,
)


def rank(documents: list[str], query: str, analyzer: Analyzer = ANALYZER) -> list[tuple[str, float]]:
    """Documents that match, best first, with their scores."""
    analysed = [analyzer.analyze(text) for text in documents]
    counts = [{field: Counter(getattr(terms, field)) for field in FIELDS} for terms in analysed]
    stats = {field: FieldStats(len(documents), sum(terms.lengths[field] for terms in analysed)) for field in FIELDS}
    frequencies = {field: Counter(term for one in counts for term in one[field]) for field in FIELDS}
    scorer = Scorer(analyzer.analyze_query(query), stats, frequencies)
    scores = [scorer.score(one, terms.lengths) for one, terms in zip(counts, analysed, strict=True)]
    assert all(score < scorer.maximum or score == 0 for score in scores)
    return sorted(((t, s) for t, s in zip(documents, scores, strict=True) if s > 0), key=lambda pair: -pair[1])


def terms_of(text: str, analyzer: Analyzer = ANALYZER) -> set[str]:
    terms = analyzer.analyze(text)
    return {*terms.words, *terms.grams}


def query_terms(text: str, analyzer: Analyzer = ANALYZER) -> set[str]:
    query = analyzer.analyze_query(text)
    return {*query["words"], *query["grams"]}


class TestIdentifiers:
    @pytest.mark.parametrize(
        ("query", "wanted", "others"),
        [
            ("10.20.30.40", "网关 10.20.30.40 已更换", ["网关 10.20.99.1 正常", "网关 40.30.20.10 停用"]),
            ("v2.10.3", "组件 v2.10.3 发布", ["组件 v2.1 与 0.3 发布", "组件 v2.3.10 发布"]),
            ("QX-900", "型号 QX-900 适配器", ["QX 系列共 900 台"]),
            ("ORA-00942", "ORA-00942 表不存在", ["ORA 手册第 00942 页"]),
            ("4.55", "价格 4.55 元", ["价格 4 元，55 件"]),
            ("a.b@example.com", "联系 a.b@example.com", ["example of a com b", "b.a@example.com"]),
            ("db-1.corp.local", "主机 db-1.corp.local 宕机", ["主机 db-2.corp.local 宕机", "local corp db 1"]),
            ("/etc/app/main.conf", "改 /etc/app/main.conf 即可", ["main app conf in etc", "/etc/main/app.conf"]),
            ("snake_case_name", "call snake_case_name()", ["the snake in this case has a name"]),
            ("C++", "用 C++ 写的", ["用 C 写的", "用 C# 写的"]),
            ("C#", "用 C# 写的", ["用 C 写的", "用 C++ 写的"]),
            ("ModuleNotFoundError", "报 ModuleNotFoundError 了", ["the module was not found, an error"]),
        ],
    )
    def test_whole_identifier_ranks_before_its_scattered_parts(self, query, wanted, others):
        hits = rank([*others, wanted, "无关的一行", "nothing at all"], query)
        assert hits[0][0] == wanted
        assert all(score < hits[0][1] for _, score in hits[1:])

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("http://10.20.30.40:8080/status", "10.20.30.40"),
            ("v1.2.3", "1.2.3"),
            ("src/foo-bar.py", "foo-bar.py"),
            ("src/foo-bar.py", "foo-bar"),
            ("a.b@example.com", "example.com"),
            ("ModuleNotFoundError", "module"),
            ("XMLHttpRequest", "http"),
            ("E1102", "1102"),
            ("iPhone15", "iphone"),
            ("total 1,234,567 rows", "1234567"),
            ("Melanie's book", "Melanie"),
        ],
    )
    def test_part_of_an_identifier_finds_it(self, text, part):
        assert rank([text, "其他", "unrelated"], part)[0][0] == text

    @pytest.mark.parametrize("query", ["abc101", "ABC101", "Abc101", "ＡＢＣ１０１"])
    def test_codes_match_in_any_case_and_width(self, query):
        assert rank(["module ABC101 manual", "module abd101 manual", "x y", "r s"], query)[0][0].endswith(
            "ABC101 manual"
        )

    @pytest.mark.parametrize("query", ["E1102", "e1102", "Ｅ１１０２"])
    def test_full_width_is_folded_on_both_sides(self, query):
        assert rank(["设备报错Ｅ１１０２，请重启", "版本Ｖ１．０"], query)[0][0].startswith("设备报错")


class TestChinese:
    LINES = ("春眠不觉晓", "处处闻啼鸟", "夜来风雨声", "花落知多少")

    @pytest.mark.parametrize(("query", "line"), [("风雨", 2), ("花", 3), ("鸟", 1), ("晓", 0), ("多少", 3), ("觉", 0)])
    def test_a_word_or_single_character_finds_its_line(self, query, line):
        assert rank(list(self.LINES), query)[0][0] == self.LINES[line]

    @pytest.mark.parametrize("query", ["农业", "银行", "农业发展银行", "发展银行", "中国"])
    def test_parts_of_a_compound_find_it(self, query):
        assert rank(["中国农业发展银行年度报告", "无关文字"], query)

    def test_the_compound_scores_no_less_than_its_part(self):
        documents = ["中国农业发展银行年度报告", "农业与银行", "其他"]
        whole, part = (dict(rank(documents, query))[documents[0]] for query in ("农业发展银行", "农业"))
        assert whole >= part

    def test_words_within_words_do_not_lengthen_the_document(self):
        terms = ANALYZER.analyze("中国农业发展银行年度报告")
        assert terms.lengths["words"] == 3 < len(terms.words)
        assert terms.lengths["grams"] == len("中国农业发展银行年度报告")

    @pytest.mark.parametrize(
        ("written", "query"),
        [("軟體計畫", "软体计划"), ("乾隆頭髮", "乾隆头发"), ("漢字轉換", "汉字转换"), ("臺灣", "台湾")],
    )
    def test_traditional_and_simplified_find_each_other(self, written, query):
        assert terms_of(written) == terms_of(query)

    @pytest.mark.parametrize("text", ["什么", "怎么办", "the of and", "是不是", "你们 and me"])
    def test_a_query_of_stop_words_only_keeps_them(self, text):
        assert query_terms(text) & terms_of(text)

    def test_stop_words_are_dropped_from_queries_and_kept_in_the_index(self):
        assert "what" not in query_terms("what is 汇率")
        assert "what" in terms_of("what is 汇率")
        assert {"的", "什么"}.isdisjoint(query_terms("银行的汇率是什么"))

    def test_an_acronym_is_no_stop_word(self):
        assert "it" in query_terms("IT department")
        assert "it" not in query_terms("it departs")

    @pytest.mark.parametrize("text", ["ひらがな", "カタカナ", "한국어", "ภาษาไทย", "か", "한"])
    def test_kana_hangul_and_thai_are_found_by_any_of_their_characters(self, text):
        for character in text:
            if character.isalpha():
                assert query_terms(character) & terms_of(text)

    def test_backends_give_equal_terms(self):
        texts = ["结婚的和尚未结婚的", "南京市长江大桥", "漢字轉換計畫", "𠮷野家々〇", "研究生命起源" * 500]
        one, other = Analyzer(backend="rjieba"), Analyzer(backend="jieba")
        assert one.fingerprint == other.fingerprint
        assert all(one.analyze(text) == other.analyze(text) for text in texts)


class TestUserWords:
    WORDS = ("ces", "w底", "Blue Moon认证", "*ST云帆", "<NUM>", "克尔云帆", "糖类抗原19-9")

    @pytest.mark.parametrize(
        "text", ["batch processes overview", "wow底出现了", "faces", "通过克尔云帆认证", "10.20.30.40"]
    )
    def test_a_user_word_takes_no_term_away(self, text):
        before, after = (
            Counter(ANALYZER.analyze(text).words),
            Counter(Analyzer(user_words=self.WORDS).analyze(text).words),
        )
        assert before <= after

    def test_a_latin_user_word_never_cuts_a_longer_word(self):
        analyzer = Analyzer(user_words=["ces", "w底"])
        for text in ("batch processes overview", "wow底出现了"):
            assert analyzer.analyze(text) == ANALYZER.analyze(text)
        assert analyzer.analyze_query("processes") == ANALYZER.analyze_query("processes")

    @pytest.mark.parametrize(
        ("word", "unit", "scattered"),
        [
            ("Blue Moon认证", "通过Blue Moon认证", "通过认证的 moon 和 blue"),
            ("*ST云帆", "昨日*ST云帆涨停", "ST 股与云帆涨停"),
            ("<NUM>", "替换 <num> 标记", "替换 num 标记"),
            ("克尔云帆", "通过克尔云帆认证", "云帆与克尔通过认证"),
            ("糖类抗原19-9", "检测糖类抗原19-9", "19-9 检测糖类的抗原"),
        ],
    )
    def test_a_user_word_of_any_characters_is_found_as_a_unit(self, word, unit, scattered):
        hits = rank([scattered, unit, "无关", "其他"], word, Analyzer(user_words=[word]))
        assert hits[0][0] == unit
        assert hits[0][1] > hits[1][1]

    @pytest.mark.parametrize("words", [["***"], [""], ["  "], ["长" * 101], [3], "克尔云帆", 5, None])
    def test_a_user_word_that_cannot_work_is_refused(self, words):
        with pytest.raises(UsageError):
            Analyzer(user_words=words)

    def test_user_words_change_the_fingerprint_and_their_order_does_not(self):
        assert Analyzer(user_words=["甲乙", "丙丁"]).fingerprint == Analyzer(user_words=["丙丁", "甲乙"]).fingerprint
        assert Analyzer(user_words=["甲乙"]).fingerprint != ANALYZER.fingerprint

    def test_the_host_programs_jieba_is_left_alone(self):
        import jieba

        before = dict(jieba.dt.FREQ)
        Analyzer(user_words=["克尔云帆"], backend="jieba").analyze("通过克尔云帆认证")
        assert before == jieba.dt.FREQ


class TestContract:
    def test_context_goes_to_its_own_field(self):
        plain, headed = ANALYZER.analyze("正文"), ANALYZER.analyze("正文", "花落知多少 Install guide")
        assert (plain.words, plain.grams, plain.context) == (headed.words, headed.grams, [])
        assert {"花", "花落", "instal"} <= set(headed.context)
        assert headed.lengths["context"] == 4

    @pytest.mark.parametrize(
        "text", ["", "   \n\t", "，。！？", "...---///", "\x00\x01", "\u200b\ufeff", "\ud800\udfff"]
    )
    def test_text_without_words_gives_empty_fields(self, text):
        terms = ANALYZER.analyze(text, text)
        assert (terms.words, terms.grams, terms.context) == ([], [], [])
        assert not any(terms.lengths.values())
        assert not any(ANALYZER.analyze_query(text).values())
        assert set(ANALYZER.analyze_query(text)) == set(FIELDS)

    def test_stop_words_and_weights_leave_the_fingerprint(self):
        assert Analyzer(stop_words=["汇率"]).fingerprint == ANALYZER.fingerprint
        assert "汇率" not in query_terms("银行汇率", Analyzer(stop_words=["匯率"]))

    def test_built_in_stop_words_are_in_the_form_they_are_compared_in(self):
        from langchain_agentrag.text import analyzer
        from langchain_agentrag.text.tokenizer import STOP_WORDS

        assert {word: analyzer._stop_word_form(word) for word in STOP_WORDS} == {word: word for word in STOP_WORDS}

    def test_unknown_backend_and_bare_string_are_refused(self):
        with pytest.raises(UsageError, match="rjieba"):
            Analyzer(backend="other")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="list"):
            Analyzer(stop_words="的")
        with pytest.raises(UsageError, match="list"):
            Analyzer(stop_words=5)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "synonyms", [5, None, "ab", [None], [5], ["ab"], [()], [("a",)], [("a", "A")], [("a", "")], [("a", 5)]]
    )
    def test_synonyms_that_stand_for_nothing_are_refused(self, synonyms):
        with pytest.raises(UsageError):
            Analyzer(synonyms=synonyms)

    def test_synonyms_in_circles_widen_once(self):
        circle = Analyzer(synonyms=[("a1x", "b1x"), ("b1x", "c1x"), ("c1x", "a1x")])
        assert set(circle.analyze_query("a1x")["words"]) >= {"a1x", "b1x", "c1x"}
        line = Analyzer(synonyms=[("apple", "苹果"), ("苹果", "pomme")])
        assert "pomm" not in " ".join(line.analyze_query("apple")["words"])

    def test_import_loads_no_dictionary(self):
        code = (
            "import sys, langchain_agentrag.text as a; a.Analyzer()\n"
            "print([m for m in ('jieba', 'rjieba', 'opencc', 'Stemmer') if m in sys.modules])"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert out.stdout.strip() == "[]"

    def test_nothing_is_printed_or_logged_by_jieba(self):
        code = "from langchain_agentrag.text import Analyzer; Analyzer(backend='jieba').analyze('研究生命')"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert (out.stdout, out.stderr) == ("", "")

    def test_threads_get_the_same_terms(self):
        texts = [f"线程{n}研究生命科学 running{n} ModuleNotFoundError 漢字{n}" for n in range(200)]
        expected = [ANALYZER.analyze(text) for text in texts]
        results: list[list[object]] = []
        shared = Analyzer()
        workers = [threading.Thread(target=lambda: results.append([*map(shared.analyze, texts)])) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert results == [expected] * 6


class TestSpans:
    @pytest.mark.parametrize(
        ("text", "query", "expected"),
        [
            ("重启ＱＸ－９００后", "qx-900", ["ＱＸ－９００"]),
            ("the runner was running", "run", ["running"]),
            ("新的計畫書", "计划", ["計畫"]),
            ("ﬁne ﬁle", "file", ["ﬁle"]),
            ("cafe\u0301 bar", "CAFÉ", ["cafe\u0301"]),
            ("密\u200b码 error", "密码", ["密\u200b码"]),
            ("ﾊﾟﾅ社", "パナ", ["ﾊﾟﾅ"]),
            ("通过 Blue Moon认证。", "blue moon认证", ["Blue Moon认证"]),
            ("㍿ 株式会社", "株式", ["㍿", "株式"]),
            ("Ⅷ a.b@x.com!", "x.com", ["x.com"]),
        ],
    )
    def test_spans_are_places_in_the_original_text(self, text, query, expected):
        analyzer = Analyzer(user_words=["Blue Moon认证"])
        words = analyzer.analyze_query(query)["words"]
        assert [text[start:end] for start, end in analyzer.match_spans(text, words)] == expected

    def test_no_terms_no_spans(self):
        assert ANALYZER.match_spans("任何 text", []) == []

    @given(MIXED)
    def test_every_term_of_a_text_is_found_in_it_and_spans_do_not_overlap(self, text):
        terms = terms_of(text)
        spans = ANALYZER.match_spans(text, terms)
        assert bool(spans) == bool(terms)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        for term in terms:
            assert ANALYZER.match_spans(text, {term})


class TestProperties:
    @given(MIXED, MIXED)
    def test_any_text_gives_well_formed_terms(self, text, context):
        terms = ANALYZER.analyze(text, context)
        for field in FIELDS:
            produced = getattr(terms, field)
            assert terms.lengths[field] <= len(produced)
            assert (terms.lengths[field] > 0) == bool(produced)
            for term in produced:
                assert 0 < len(term) <= 200
                assert not any(character.isspace() for character in term)
                term.encode()
        assert terms == Analyzer().analyze(text, context)

    @given(MIXED)
    def test_a_text_is_found_by_itself(self, text):
        query = ANALYZER.analyze_query(text, widen=False)
        terms = ANALYZER.analyze(text, text)
        for field in FIELDS:
            assert set(query[field]) <= set(getattr(terms, field))
            assert all(weight > 0 for weight in query[field].values())
        assert any(query.values()) == bool(terms.words or terms.grams)

    @given(MIXED)
    def test_texts_equal_under_nfkc_give_equal_terms(self, text):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            assert ANALYZER.analyze(unicodedata.normalize(form, text)) == ANALYZER.analyze(text)

    @given(st.text("abcxyz019 .-_/'中国银行", max_size=40))
    def test_shouted_and_quiet_texts_give_equal_terms(self, text):
        assert ANALYZER.analyze(text.upper()) == ANALYZER.analyze(text)

    @given(MIXED, st.lists(st.sampled_from(["ces", "中国农", "a b", "B.c", "花落", "1-2"]), max_size=4))
    @settings(max_examples=50)
    def test_user_words_only_ever_add_terms(self, text, words):
        more = Analyzer(user_words=words).analyze(text)
        less = ANALYZER.analyze(text)
        assert Counter(less.words) <= Counter(more.words)
        assert (less.grams, less.lengths) == (more.grams, more.lengths)

    @pytest.mark.parametrize(
        "unit",
        [
            "a",
            "中",
            "花落知多少",
            "a.",
            "a'",
            "a-b/",
            "http://a/",
            "é",
            "\u0301",
            "\u200b",
            "ひ",
            "aB",
            "1,000",
            "_",
            "+",
            "漢",
        ],
    )
    def test_time_grows_linearly_on_one_long_line(self, unit):
        def seconds(size: int) -> float:
            text = (unit * size)[:size]
            started = time.process_time()
            ANALYZER.analyze(text)
            ANALYZER.analyze_query(text)
            ANALYZER.match_spans(text, {"中", "a"})
            return time.process_time() - started

        seconds(1_000)
        small, large = seconds(20_000), seconds(160_000)
        assert large < 8 * max(small, 0.02) * 4  # quadratic would be 64 times

    def test_a_megabyte_on_one_line_is_analysed(self):
        text = ("设备报错Ｅ１１０２，ModuleNotFoundError at 10.20.30.40; " * 25_000)[:1_000_000]
        started = time.process_time()
        terms = ANALYZER.analyze(text)
        assert terms.words.count("10.20.30.40") > 20_000
        assert time.process_time() - started < 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("报警E1102怎么处理", {"e1102"}),
        ("What changed in v4.7.2 on 10.20.30.40?", {"v4.7.2", "4.7.2", "10.20.30.40"}),
        ("Ｅ１１０２ 与 ORA-01555", {"e1102", "ora-01555"}),
        ("合同 HT-2024-0371 的第 3 条", {"ht-2024-0371"}),
        ("三十 days in 2024", set()),
        ("no code at all 没有代码", set()),
        ("", set()),
    ],
)
def test_codes_are_named_as_a_whole_whatever_stands_around_them(text, expected):
    assert Analyzer().codes(text) == expected
