"""Every public function that takes text from outside, with a way to call it on one text: `CALLS` and `EXEMPT`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from langchain_agentrag import (
    Analyzer,
    Chunking,
    DualIndexer,
    HashingEmbeddings,
    filters,
    metadata,
    notebook,
    times,
    types,
)
from langchain_agentrag.agent import (
    budget,
    canonical_json,
    citation_support,
    citations,
    prompt_injection,
    recorder,
    retrieval_calls,
    sufficiency,
    tool_arguments,
    tool_replies,
)
from langchain_agentrag.cli import options as cli_options
from langchain_agentrag.cli import output, render, sync_config, terminal_text
from langchain_agentrag.connectors.files import content, formats, html, pdf, structured, tables, walk
from langchain_agentrag.connectors.memory import backend as memory_backend
from langchain_agentrag.connectors.memory import dialogue, messages, turns
from langchain_agentrag.connectors.sql import rows as sql_rows
from langchain_agentrag.connectors.sql import statement as sql_statement
from langchain_agentrag.embedding import embedder
from langchain_agentrag.evaluation import question_generation
from langchain_agentrag.guard.validation import ArgumentSchema
from langchain_agentrag.langgraph import items
from langchain_agentrag.llama_index import ingestion, query_engine
from langchain_agentrag.normalization import normalize
from langchain_agentrag.query import lenient_json, model_route, router, rules, time_expressions
from langchain_agentrag.search import followup, postprocess, ranking
from langchain_agentrag.search import options as search_options
from langchain_agentrag.store import commit, queries
from langchain_agentrag.text import analyzer, chunking, numerals, sentences, tokenizer
from langchain_agentrag.types import Explanation, Failure, Hit, Hits, Passage, QueryMatches, SourceDocument

Call = Callable[[str], object]

_NOW = datetime(2026, 3, 4, 5, tzinfo=UTC)
_ORDINARY = "The pump of hall 3 was serviced on 3 May 2024 by Ms Lin; error E1102 is solved. 三号泵已于五月三日检修。"
_HISTORY = [{"role": "user", "content": "How is the pump serviced?"}, {"role": "assistant", "content": _ORDINARY}]
_ANALYZER = Analyzer(user_words=["云帆科技", "Blue Moon", "a"], synonyms=[("pump", "泵", "a b"), ("三十", "thirty")])
_ROUTER = router.QueryUnderstandingRouter(
    types={"manual": ["手册", "manual", "a"], "row": ["row"], "dialogue": ["chat"]}, sources={"x": ["x", "wiki"]}
)


def _document(text: str, kind: types.TextKind = "plain") -> SourceDocument:
    return SourceDocument("d", text, kind=kind)


def _hit(text: str, doc_id: str = "d", **fields: Any) -> Hit:
    spans = tuple((at, at + 2) for at in range(0, len(text) - 2, 4))
    matches = QueryMatches(text, lambda: spans)
    return Hit(doc_id, 0, text, 0.5, explanation=Explanation(matches=matches), **fields)


def _spans(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((at, at + 2) for at in range(0, len(text) - 2, 4))


def _replies(text: str, language: tool_arguments.Language = "en") -> object:
    replies = tool_replies.ToolReplies(language, "", "read")
    hit = _hit(text, metadata={"source": text, "title": text}, locator={"heading": text})
    return replies.search_results(Hits([hit], query=text), snippet_size=400, max_chars=4_000, condition={"a": text})


def _passage_reply(text: str) -> object:
    passage = Passage("d", 0, text, 0, len(text), 0, 0, 1, metadata={"source": text}, locator={"heading": text})
    return tool_replies.ToolReplies("zh", "", "read").passage(passage, offset=0, max_chars=4_000)


def _rendered(view: object) -> object:
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=100)
    console.print(view)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _encoded(read: Callable[[bytes], object]) -> Call:
    return lambda text: read(text.encode("utf-8", "replace"))


@cache
def _schema() -> ArgumentSchema:
    properties = {
        "a": {"type": "integer"},
        "b": {"type": "object"},
        "c": {"type": "string", "maxLength": 5},
        "d": {"type": "number"},
    }
    return ArgumentSchema({"type": "object", "properties": properties, "required": ["a"]})


@cache
def _indexer() -> DualIndexer:
    import tempfile

    store = DualIndexer(tempfile.mkdtemp(), embeddings=HashingEmbeddings(64))
    store.index_documents([_ORDINARY, "Second text on oil and filters. 第二段文字。"])
    return store


def _search(text: str, **options: Any) -> Hits:
    return _indexer().search(text, 2, **options)


def _index(text: str) -> object:
    return _indexer().index_documents([SourceDocument("growing", text)])


def _memory_row(text: str) -> object:
    raw = json.dumps({"type": "human", "data": {"content": text}})
    problems: list[str] = []
    stored = dialogue.stored_message(raw, "1", problems, encoded=True)
    entries = dialogue.entries_from_messages("s", stored, dialogue.ReadOptions(), problems)
    return [turns.as_document(entry, "source", "agent") for entry in entries]


def _tool_call(text: str) -> object:
    call = turns.ToolCall(session="s", entry_id="1", tool="t", arguments=text, result=text)
    return turns.as_document(call, text, None)


def _answer_source(text: str, answer: str | None = None) -> object:
    return citations.check_citations(
        answer or "The pump was serviced on 3 May 2024 [1]. It uses 3 kg of oil [1].", [_hit(text)]
    )


def _model(text: str) -> Callable[[str], str]:
    return lambda _prompt: text


def _route_by_model(text: str) -> object:
    route = rules.route_by_rules("pump", "pump", rules.RouteTargets({"dialogue": ()}, {}), _NOW)
    return model_route.route_by_model(route, _model(text), rules.RouteTargets({"dialogue": ()}, {}), _NOW)


def _repair(text: str) -> object:
    return [
        _schema().validate(value) for value in (text, {"a": text, "b": text, "c": text, "d": text}, {text: 1, "a": 1})
    ]


def _tool_search(text: str) -> object:
    arguments = tool_arguments.search_arguments("en", 5)
    values: list[dict[str, Any]] = [
        {"query": text},
        {"query": "a", "filter": text},
        {"query": "a", "k": text},
        {"query": "a", "after": text},
    ]
    return [_validated(arguments, value) for value in values]


def _tool_read(text: str) -> object:
    arguments = tool_arguments.read_arguments("zh")
    return [
        _validated(arguments, value)
        for value in ({"doc_id": text}, {"doc_id": f"a#{text}"}, {"doc_id": "a", "chunk_id": text})
    ]


def _validated(model: Any, value: Mapping[str, Any]) -> object:
    from pydantic import ValidationError

    try:
        return model.model_validate(value)
    except ValidationError as error:
        return tool_arguments.format_validation_error(error, "en")


def _secrets(text: str) -> object:
    secrets = sync_config.Secrets({"A": "secret"})
    try:
        return secrets.redact(secrets.fill(text))
    except (KeyError, ValueError):
        return None


def _route_rules(question: str) -> object:
    targets = rules.RouteTargets({"manual": ("手册", "manual")}, {"wiki": ("wiki",)})
    return rules.route_by_rules(question, question, targets, _NOW)


_NUMBERED = [f"item {number}" for number in range(3)]

CALLS: dict[str, dict[str, Call]] = {
    # -- agent ----
    "agent.citation_support.find_identifiers": {"": citation_support.find_identifiers},
    "agent.citation_support.find_quantities": {"": citation_support.find_quantities},
    "agent.citation_support.normalize_quantities": {"": citation_support.normalize_quantities},
    "agent.citation_support.normalize_dates": {"": citation_support.normalize_dates},
    "agent.citation_support.fold_text": {"": citation_support.fold_text},
    "agent.citation_support.find_quotations": {"": citation_support.find_quotations},
    "agent.citation_support.contains_quotation": {
        "passage": lambda text: citation_support.contains_quotation(text, "the pump … oil"),
        "both": lambda text: citation_support.contains_quotation(text, text),
    },
    "agent.citation_support.judge_by_rules": {
        "passage": lambda text: citation_support.judge_by_rules(_ORDINARY, text),
        "statement": lambda text: citation_support.judge_by_rules(text, _ORDINARY),
        "both": lambda text: citation_support.judge_by_rules(text, text),
        "reversed": lambda text: citation_support.judge_by_rules(text, text[::-1]),
        "nearly": lambda text: citation_support.judge_by_rules(f"{text} not so", f"{text} is so"),
    },
    "agent.citations.check_citations": {
        "answer": lambda text: citations.check_citations(text, [_hit(_ORDINARY)] * 3),
        "cited answer": lambda text: citations.check_citations(f"{text} [1]", [_hit(_ORDINARY)]),
        "source": _answer_source,
        "both": lambda text: _answer_source(text, f"{text}[1]"),
        "doc_id": lambda text: citations.check_citations(f"It is serviced so [{text}].", [_hit(_ORDINARY, doc_id=text)]),
        "judge": lambda text: citations.check_citations("The pump likes tea a lot [1].", [_hit(_ORDINARY)], judge=lambda *_: text),
    },
    "agent.prompt_injection.trust_of": {"": lambda text: prompt_injection.trust_of({"url": text, "role": [text]})},
    "agent.prompt_injection.PassageSafety.text": {"": prompt_injection.PassageSafety().text},
    "agent.prompt_injection.PassageSafety.name": {"": prompt_injection.PassageSafety().name},
    "agent.prompt_injection.PassageSafety.message": {"": prompt_injection.PassageSafety().message},
    "agent.prompt_injection.PassageSafety.may_stand_open": {"": prompt_injection.PassageSafety().may_stand_open},
    "agent.prompt_injection.PassageSafety.suspicious": {"": lambda text: prompt_injection.PassageSafety().suspicious(text, {"url": text})},
    "agent.prompt_injection.Fence.wrap": {"": lambda text: prompt_injection.PassageSafety().fence("zh").wrap(text, {"url": text}, inspect=text)},
    "agent.prompt_injection.close_fence": {"": prompt_injection.close_fence},
    "agent.prompt_injection.neutralise_markup": {"": prompt_injection.neutralise_markup},
    "agent.prompt_injection.neutralise_links": {"": prompt_injection.neutralise_links},
    "agent.prompt_injection.instruction_kinds": {"": prompt_injection.instruction_kinds},
    "agent.recorder.shorten": {"": lambda text: recorder.shorten(text, 8_000)},
    "agent.recorder.repeated_share": {
        "text": lambda text: recorder.repeated_share(text, [_ORDINARY] * 3),
        "passage": lambda text: recorder.repeated_share(_ORDINARY, [text]),
        "both": lambda text: recorder.repeated_share(text, [text, text[1:]]),
        "short passage": lambda text: recorder.repeated_share(text, [text[:10], text[:20]]),
    },
    "agent.recorder.contains_passage": {
        "text": lambda text: recorder.contains_passage(text, [_ORDINARY]),
        "both": lambda text: recorder.contains_passage(text, [text + "b", text[1:]]),
        "half": lambda text: recorder.contains_passage(text, [text[: len(text) // 2] + "b" + text[: len(text) // 4]]),
    },
    "agent.recorder.remove_repeated": {
        "text": lambda text: recorder.remove_repeated(text, [_ORDINARY]),
        "both": lambda text: recorder.remove_repeated(text, [text]),
    },
    "agent.retrieval_calls.RetrievalCall.from_tool_call": {
        "": lambda text: retrieval_calls.RetrievalCall.from_tool_call("search", "t", {"query": text}, retrieval_calls.Evidence())
    },
    "agent.retrieval_calls.call_key": {
        "query": lambda text: retrieval_calls.call_key("search", "t", {"query": text}),
        "sql": lambda text: retrieval_calls.call_key("read", "t", {"sql": text, text: 1}),
    },
    "agent.retrieval_calls.extract_evidence": {"": lambda text: retrieval_calls.extract_evidence(text, [{"text": text}, text])},
    "agent.retrieval_calls.preview": {"": retrieval_calls.preview},
    "agent.retrieval_calls.shorten_line": {"": lambda text: retrieval_calls.shorten_line(text, 80)},
    "agent.sufficiency.split_question": {"": sufficiency.split_question},
    "agent.sufficiency.part_coverage": {
        "question": lambda text: sufficiency.part_coverage(text, [_ORDINARY]),
        "passage": lambda text: sufficiency.part_coverage("What of the pump? And the oil?", [text]),
    },
    "agent.sufficiency.uncovered_parts": {"": lambda text: sufficiency.uncovered_parts(text, [])},
    "agent.sufficiency.SufficiencyJudge.judge": {
        "answer": lambda text: sufficiency.SufficiencyJudge(_model(text)).judge("What of the pump?", [_ORDINARY])
    },
    "agent.tool_arguments.point_in_time": {"": lambda text: tool_arguments.point_in_time("after", text)},
    "agent.tool_arguments.whole_number": {"": lambda text: tool_arguments.whole_number("k", text, 5, 1, 50)},
    "agent.tool_arguments.detect_language": {"": tool_arguments.detect_language},
    "agent.tool_arguments.search_arguments": {"": _tool_search},
    "agent.tool_arguments.read_arguments": {"": _tool_read},
    "agent.tool_replies.ToolReplies.search_results": {"": _replies, "zh": lambda text: _replies(text, "zh")},
    "agent.tool_replies.ToolReplies.passage": {"": _passage_reply},
    "agent.tool_replies.ToolReplies.error": {"": lambda text: tool_replies.ToolReplies("en", "", "r").error(text, ValueError(text))},
    "agent.tool_replies.ToolReplies.internal_error": {"": lambda text: tool_replies.ToolReplies("en", "", "r").internal_error(text, ValueError(text))},
    "agent.tool_replies.snippet": {
        "": lambda text: tool_replies.snippet(text, _spans(text), 400),
        "long": lambda text: tool_replies.snippet(text, _spans(text), max(1, len(text) - 10)),
    },
    "agent.tool_replies.hit_record": {"": lambda text: tool_replies.hit_record(_hit(text, metadata={"source": text}))},
    "agent.canonical_json.canonical": {"": lambda text: canonical_json.canonical({text: [text]})},
    "agent.canonical_json.operation_id": {"": lambda text: canonical_json.operation_id(text, text, {text: text}, text)},
    "agent.budget.RetrievalHistory.new_run": {"": lambda text: budget.RetrievalHistory().new_run(text)},
    # -- cli ----
    "cli.options.parse_duration": {"": lambda text: _bad_parameter(cli_options.parse_duration, text, "--since")},
    "cli.options.parse_filter": {"": lambda text: _bad_parameter(cli_options.parse_filter, text)},
    "cli.output.hits_document": {"": lambda text: output.to_json(output.hits_document(Hits([_hit(text)], query=text), agent_id=None))},
    "cli.render.locator_parts": {"": lambda text: render.locator_parts({"heading": text, text: text})},
    "cli.render.highlighted_snippet": {"": lambda text: _rendered(render.highlighted_snippet(text, _spans(text)))},
    "cli.render.hits_table": {"": lambda text: _rendered(render.hits_table(Hits([_hit(text[:20_000], doc_id=text[:2_000])], query=text[:2_000])))},
    "cli.render.passage_view": {"": lambda text: _rendered(render.passage_view(Passage("d", 0, text, 0, len(text), 0, 0, 1)))},
    "cli.render.shell_quoted": {"": render.shell_quoted},
    "cli.render.no_hits_message": {"": render.no_hits_message},
    "cli.render.failure_line": {"": lambda text: render.failure_line("failed", text, text, "red")},
    "cli.render.failure_lines": {"": lambda text: render.failure_lines("a", [Failure(text, text)], "red")},
    "cli.sync_config.Secrets.fill": {"": _secrets},
    "cli.sync_config.Secrets.redact": {"": _secrets},
    "cli.terminal_text.printable": {"": terminal_text.printable},
    "cli.terminal_text.snippet": {
        "": lambda text: terminal_text.snippet(text, _spans(text)),
        "wide": lambda text: terminal_text.snippet(text, _spans(text), width=max(2, len(text) // 2)),
    },
    "cli.terminal_text.line_breaks": {"": lambda text: terminal_text.line_breaks(text, 80)},
    # -- connectors ----
    "connectors.files.content.TextBuilder.add": {"": lambda text: content.TextBuilder().add(text, {}, context=text)},
    "connectors.files.content.clean_text": {"": content.clean_text},
    "connectors.files.content.one_line": {"": content.one_line},
    "connectors.files.content.markdown_table": {"": lambda text: content.markdown_table([[text, text], [text]])},
    "connectors.files.content.front_matter": {"": content.front_matter},
    "connectors.files.formats.skip_reason": {"": formats.skip_reason},
    "connectors.files.formats.format_of": {"": formats.format_of},
    "connectors.files.formats.read": {
        name: lambda text, name=name: formats.read(f"a.{name}", text.encode("utf-8", "replace"), 2**30)
        for name in ("txt", "md", "py", "yaml", "html", "csv", "tsv", "json", "jsonl", "ipynb", "pdf", "docx")
    },
    "connectors.files.html.read_html": {"body": _encoded(lambda data: html.read_html(b"<html><body><main>" + data + b"</main></body></html>"))},
    "connectors.files.structured.read_json": {"string": lambda text: structured.read_json(json.dumps({"a": text, text: [text]}).encode())},
    "connectors.files.structured.read_notebook": {
        "cell": lambda text: structured.read_notebook(json.dumps({"cells": [{"cell_type": "code", "source": text, "outputs": [{"text": text}]}]}).encode())
    },
    "connectors.files.tables.read_csv": {"quoted": _encoded(lambda data: tables.read_csv(b"a,b\n1," + data))},
    "connectors.files.pdf.join_wrapped_lines": {"": pdf.join_wrapped_lines},
    "connectors.files.walk.check_globs": {"": lambda text: walk.check_globs("glob", text)},
    "connectors.memory.backend.escape_key": {"": memory_backend.escape_key},
    "connectors.memory.backend.file_key_prefix": {"": memory_backend.file_key_prefix},
    "connectors.memory.dialogue.stored_message": {"text": _memory_row, "raw": lambda text: dialogue.stored_message(text, text, [], encoded=True)},
    "connectors.memory.dialogue.entries_from_messages": {"": _memory_row},
    "connectors.memory.messages.read_message": {
        "content": lambda text: messages.read_message({"role": "assistant", "content": text, "tool_calls": [{"function": {"name": "t", "arguments": text}}]})
    },
    "connectors.memory.turns.document_id": {"": lambda text: turns.document_id(text, text, text)},
    "connectors.memory.turns.as_document": {"": _tool_call},
    "connectors.memory.turns.item_document": {"": lambda text: turns.item_document(turns.LangGraphItem(("a",), text, {"text": text, text: 1}), "s", None)},
    "connectors.memory.turns.replace_surrogates": {"": turns.replace_surrogates},
    "connectors.memory.turns.readable": {"": lambda text: turns.readable('{"\\u0061": "' + text)},
    "connectors.sql.statement.check_select": {
        dialect or "none": lambda text, dialect=dialect: sql_statement.check_select(text, dialect) for dialect in ("sqlite", "postgresql")
    },
    "connectors.sql.rows.converter": {"": sql_rows.converter("NUMERIC(10,2)", "sqlite")},  # type: ignore[dict-item]
    "connectors.sql.rows.unique_names": {"": lambda text: sql_rows.unique_names([text, text])},
    "connectors.sql.rows.template_parts": {"": lambda text: _value_error(sql_rows.template_parts, text)},
    "connectors.sql.rows.key_text": {"": lambda text: sql_rows.key_text((text, text))},
    "connectors.sql.rows.value_text": {"": sql_rows.value_text},
    # -- embedding ----
    "embedding.backends.HashingEmbeddings.embed_query": {"": HashingEmbeddings(64).embed_query},
    "embedding.backends.HashingEmbeddings.embed_documents": {"": lambda text: HashingEmbeddings(64).embed_documents([text])},
    "embedding.embedder.prefixes_for": {"": embedder.prefixes_for},
    # -- evaluation ----
    "evaluation.question_generation.draft_questions": {
        "markdown": lambda text: [list(question_generation._faq_questions(_document(text))), list(question_generation._heading_questions(_document(text)))],
        "passages": lambda text: list(question_generation._passages(text)),
        "answer": lambda text: question_generation._parse_answer(text, _ORDINARY),
        "passage": lambda text: question_generation._parse_answer("What is there to know about it?", text),
    },
    # -- filters, metadata, times, types ----
    "filters.parse": {"key": lambda text: filters.parse({text: 1}), "value": lambda text: filters.parse({"a": {"$contains": text}})},
    "filters.match": {
        "dotted": lambda text: filters.match({"a.b": text}, {"a": {"b": text}}),
        "contains": lambda text: filters.match({"a": {"$contains": text[: len(text) // 2] + "x"}}, {"a": text}),
        "order": lambda text: filters.match({"a": {"$gt": text}}, {"a": text}),
    },
    "filters.LikePattern.matches": {
        "text": lambda text: filters.LikePattern("%" + text[:2] * 400 + "_%").matches(text),
        "pieces": lambda text: filters.LikePattern("%".join(text[:2] * 400)).matches(text),
        "pattern": lambda text: filters.LikePattern(text).matches(text[:1_000]),
    },
    "filters.lookup": {"": lambda text: filters.lookup({"a": {"b": 1}}, text)},
    "metadata.encode": {"": lambda text: metadata.encode({text: text})},
    "metadata.decode": {"": metadata.decode},
    "metadata.normalise": {"": lambda text: metadata.normalise({text: [text]})},
    "metadata.fingerprint": {"": lambda text: metadata.fingerprint({text: text})},
    "metadata.is_storable": {"": metadata.is_storable},
    "metadata.is_date_text": {"": metadata.is_date_text},
    "metadata.short_repr": {"": metadata.short_repr},
    "normalization.normalize": {form: lambda text, form=form: normalize(form, text) for form in ("NFKC", "NFKD")},
    "times.parse_time": {"": times.parse_time},
    "times.document_time": {"": lambda text: times.document_time({"time": text})},
    "times.document_expiry": {"": lambda text: times.document_expiry({"expires_at": text})},
    "times.check_time": {"": lambda text: times.check_time("after", text, _NOW)},
    "times.check_duration": {"": lambda text: times.check_duration("ttl", text)},
    "types.format_locator": {"": lambda text: types.format_locator({text: text})},
    "types.split_reference": {"": types.split_reference, "number": lambda text: types.split_reference(f"a#{text}")},
    "types.short_id_of": {"": lambda text: types.short_id_of(text, 1)},
    "notebook.highlight_html": {"": lambda text: notebook.highlight_html(text, _spans(text), before="<", after=">")},
    "notebook.hits_to_html": {"": lambda text: notebook.hits_to_html(Hits([_hit(text, doc_id=text)], query=text))},
    # -- faces ----
    "guard.validation.ArgumentSchema.with_defaults": {"": lambda text: _schema().with_defaults({text: text})},
    "guard.validation.ArgumentSchema.validate": {"": _repair},
    "langgraph.items.matches_filter": {
        "equal": lambda text: items.matches_filter({"a": text}, {"a": text}),
        "order": lambda text: _value_error(lambda one: items.matches_filter({"a": one}, {"a": {"$gt": one}}), text),
    },
    "langgraph.items.item_id": {"": lambda text: items.item_id((text,), text)},
    "langgraph.items.namespace_of_id": {"": lambda text: items.namespace_of_id(items.item_id((text,), text))},
    "llama_index.ingestion.chinese_sentence_splitter": {"": ingestion.chinese_sentence_splitter},
    "llama_index.query_engine.citations": {"": query_engine._REFERENCE.findall},
    # -- query ----
    "query.lenient_json.read_json_objects": {"": lenient_json.read_json_objects},
    "query.model_route.route_by_model": {"answer": _route_by_model},
    "query.router.QueryUnderstandingRouter.route": {
        "question": lambda text: _ROUTER.route(text, now=_NOW),
        "follow-up": lambda text: _ROUTER.route(text, history=_HISTORY, now=_NOW),
        "history": lambda text: _ROUTER.route("And the second one?", history=[{"role": "user", "content": text}, ("assistant", text)], now=_NOW),
    },
    "query.rules.route_by_rules": {"": _route_rules},
    "query.time_expressions.blank_titles": {"": time_expressions.blank_titles},
    "query.time_expressions.with_short_gaps": {"": time_expressions.with_short_gaps},
    "query.time_expressions.time_range": {"": lambda text: time_expressions.time_range(text, _NOW)},
    # -- search ----
    "search.followup.words_of": {"": followup.words_of},
    "search.followup.content_words": {"": followup.content_words},
    "search.followup.topic_words": {"": followup.topic_words},
    "search.followup.subject_words": {"": followup.subject_words},
    "search.followup.names_something": {"": followup.names_something},
    "search.followup.ordinal": {"": followup.ordinal},
    "search.followup.is_elliptical": {"": followup.is_elliptical},
    "search.followup.is_followup": {"": followup.is_followup},
    "search.followup.shares_word": {"": lambda text: followup.shares_word(text, ["pump", "b"])},
    "search.followup.complete_question": {
        "question": lambda text: followup.complete_question(text, followup.read_history(_HISTORY)),
        "history": lambda text: followup.complete_question("And its price?", followup.read_history([text, text, text])),
        "list": lambda text: followup.complete_question("What does the second one cost?", followup.read_history([("user", text), ("assistant", text)])),
        "第二个": lambda text: followup.complete_question("第二个多少钱？", followup.read_history([("user", text), ("assistant", text)])),
    },
    "search.followup.resolve_followup": {
        "answer": lambda text: followup.resolve_followup("And its price?", followup.read_history(_HISTORY), _model(text), 5.0)
    },
    "search.options.check_request": {
        "query": lambda text: search_options.check_request(text, 3, agent_id=None, options={}).is_blank,
        "k": lambda text: search_options.check_request("a", text, agent_id=None, options={}),
        "agent": lambda text: search_options.check_request("a", 1, agent_id=text, options={}),
    },
    "search.options.check_option_names": {"": lambda text: search_options.check_option_names({text: 1}, search_options.OPTIONS)},
    "search.postprocess.group_near_duplicates": {"": lambda text: postprocess.group_near_duplicates([text, text[1:], _ORDINARY])},
    "search.ranking.named_speakers": {
        "query": lambda text: ranking.named_speakers(text, ["Will Ab", "May", "林娜", "aa"]),
        "names": lambda text: ranking.named_speakers("What did Will say?", [text, text[:60], *text.split()[:20]]),
    },
    "search.ranking.other_speakers": {"": lambda text: ranking.other_speakers(text, {1: "Will Ab", 2: "林娜"})},
    "indexer.DualIndexer.search": {
        "hybrid": _search,
        "keyword": lambda text: _search(text, mode="keyword"),
        "vector": lambda text: _search(text, mode="vector"),
        "history": lambda text: _search("And its price?", history=[text, ("assistant", text)]),
        "follow-up": lambda text: _search(text, history=_HISTORY),
    },
    "indexer.DualIndexer.index_documents": {"": _index},
    # -- store ----
    "store.commit.embedding_hash": {"": commit.embedding_hash},
    "store.queries.parse_locator": {"": lambda text: queries.parse_locator(json.dumps({"a": text}))},
    # -- text ----
    "text.analyzer.UserWords.find": {"": _ANALYZER._user_words.find},
    "text.analyzer.matching_form": {"": lambda text: analyzer.matching_form(tokenizer.fold(text))},
    "text.analyzer.Synonyms.find": {"": lambda text: _ANALYZER._synonyms.find(analyzer.matching_form(text))},
    "text.analyzer.Analyzer.analyze": {"": _ANALYZER.analyze, "context": lambda text: _ANALYZER.analyze("", text)},
    "text.analyzer.Analyzer.analyze_query": {"": _ANALYZER.analyze_query},
    "text.analyzer.Analyzer.widen": {"": lambda text: _ANALYZER.widen({"words": {}, "grams": {}, "context": {}}, text)},
    "text.analyzer.Analyzer.codes": {"": _ANALYZER.codes},
    "text.analyzer.Analyzer.match_spans": {
        "": lambda text: _ANALYZER.match_spans(text, ["pump", "泵", "a", "e1102", "中中"]),
        "own": lambda text: _ANALYZER.match_spans(text[:8_000], _ANALYZER.analyze_query(text[:2_000])["words"].keys()),
    },
    "text.chunking.join_context": {"": lambda text: chunking.join_context(text, text)},
    "text.chunking.speaker_of": {"": lambda text: chunking.speaker_of({"speaker": text})},
    "text.chunking.chunk_document": {
        **{
            f"{kind} {size}/{overlap}": lambda text, kind=kind, size=size, overlap=overlap: chunking.chunk_document(
                _document(text, kind), Chunking(size, overlap)
            )
            for kind in ("plain", "markdown", "code")
            for size, overlap in ((500, 0), (50, 20))
        },
    },
    "text.numerals.read_chinese": {"": lambda text: numerals.read_chinese(_only(text, "一二三〇十百千万亿点"))},
    "text.numerals.read_chinese_strictly": {"": lambda text: numerals.read_chinese_strictly(_only(text, "一二三〇十百千万亿"))},
    "text.numerals.transcribe_digits": {"": lambda text: numerals.transcribe_digits(_only(text, "一二三〇"))},
    "text.numerals.number_variants": {"": numerals.number_variants},
    "text.sentences.sentence_ends": {"": lambda text: list(sentences.sentence_ends(text, 0, len(text)))},
    "text.sentences.clause_ends": {"": lambda text: list(sentences.clause_ends(text, 0, len(text)))},
    "text.sentences.space_ends": {"": lambda text: list(sentences.space_ends(text, 0, len(text)))},
    "text.sentences.line_ends": {"": lambda text: [list(sentences.line_ends(text, 0, len(text), soft=soft)) for soft in (True, False)]},
    "text.sentences.all_line_ends": {"": lambda text: list(sentences.all_line_ends(text, 0, len(text)))},
    "text.sentences.starts_with_closing_punctuation": {"": lambda text: sentences.starts_with_closing_punctuation(text, 0)},
    "text.sentences.splits_grapheme": {"": lambda text: sentences.splits_grapheme(text, len(text) // 2)},
    "text.sentences.fallback_cut": {"": lambda text: sentences.fallback_cut(text, 0, len(text) - 1)},
    "text.tokenizer.fold": {"": tokenizer.fold},
    "text.tokenizer.fold_case": {"": lambda text: tokenizer.fold_case(tokenizer.fold(text))},
    "text.tokenizer.FoldedText": {"": tokenizer.FoldedText},
    "text.tokenizer.to_simplified": {"": tokenizer.to_simplified},
    "text.tokenizer.bigrams": {"": tokenizer.bigrams},
    "text.tokenizer.segment": {"": lambda text: tokenizer.segment(tokenizer.get_segmenter(), _han(text))},
    "text.tokenizer.pos_tags": {"": lambda text: tokenizer.pos_tags(_han(text))},
    "text.tokenizer.stem": {"": tokenizer.stem},
    "text.tokenizer.word_terms": {"": tokenizer.word_terms},
    "text.tokenizer.code_terms": {"": tokenizer.code_terms},
    "text.tokenizer.has_content": {"": tokenizer.has_content},
    "text.tokenizer.is_code": {"": tokenizer.is_code},
}  # fmt: skip
"""Function → how it is called on a text, under a name for each way."""


def _bad_parameter(function: Callable[..., object], *arguments: object) -> object:
    import click

    try:
        return function(*arguments)
    except click.BadParameter:
        return None


def _value_error(function: Callable[[str], object], text: str) -> object:
    try:
        return function(text)
    except ValueError:
        return None


def _only(text: str, characters: str) -> str:
    """Return the text with other characters replaced, since the function takes only these."""
    return "".join(char if char in characters else characters[ord(char) % len(characters)] for char in text)


def _han(text: str) -> str:
    return "".join(char if "\u3400" <= char <= "\u9fff" else chr(0x4E00 + ord(char) % 2_000) for char in text)


_PARTS = "it passes its text to functions that are measured here, and does nothing else with it"
_NAMES = "names and keys of the caller or of the store, compared or bound as SQL values"
_UNIT = "the name of a unit, out of a match of a pattern"
_MATCH = "a match of a pattern, of which it looks up one group"
_DOES = "it runs something, and text is only an argument of it or part of a message"

EXEMPT: dict[str, str] = {
    # -- packages that handle text: by name --
    "agent.budget.RetrievalBudget.same_as": "ids of passages, compared",
    "agent.budget.RetrievalHistory.from_json": "what `as_json` wrote",
    "agent.budget.RetrievalHistory.has_new": "ids of passages, compared",
    "agent.budget_messages.BudgetMessages.end_of_run": "formats previews, which are short",
    "agent.budget_messages.BudgetMessages.status": "formats parts of a question, which are short",
    "agent.messages.load_messages": "names of message files",
    "agent.recorder.MemoryRecorder.answered": _NAMES,
    "agent.recorder.MemoryRecorder.forget": _NAMES,
    "agent.recorder.MemoryRecorder.record": _PARTS,
    "agent.retrieval_calls.RetrievalCall.from_json": "what `as_json` wrote",
    "agent.retrieval_meter.RetrievalMeter.after": _PARTS,
    "agent.retrieval_meter.RetrievalMeter.before": _PARTS,
    "agent.retrieval_meter.RetrievalMeter.begin": _PARTS,
    "agent.retrieval_meter.RetrievalMeter.failed": _PARTS,
    "agent.retrieval_meter.RetrievalMeter.follows": _PARTS,
    "connectors.files.content.TextBuilder.content": "joins what was added",
    "query.calendar_ranges.calendar_unit": _UNIT,
    "query.calendar_ranges.day_part": _MATCH,
    "query.calendar_ranges.half_unit_ago": _UNIT,
    "query.calendar_ranges.last_units": _UNIT,
    "query.calendar_ranges.month_part": _MATCH,
    "query.calendar_ranges.read_count": "a count of at most ten characters, out of a match of a pattern",
    "query.calendar_ranges.rule": "compiles a pattern of ours",
    "query.calendar_ranges.some_units_ago": _UNIT,
    "query.calendar_ranges.units_ago": _UNIT,
    "query.calendar_ranges.year_part": _MATCH,
    "query.router.QueryUnderstandingRouter.aroute": "`route` in a thread",
    "query.router.QueryUnderstandingRouter.asearch": "`route` and a search",
    "query.router.QueryUnderstandingRouter.search": "`route` and a search",
    "query.router.SupportsSearch.asearch": "a protocol",
    "query.router.SupportsSearch.search": "a protocol",
    "search.options.check_count": "the name of an option",
    "text.numerals.read_english": "at most 30 words, see `citation_support`",
    "text.tokenizer.word_list": "the name of a list",
    # -- other packages --
    "cli.app.*": _PARTS,
    "cli.demo.*": _DOES,
    "cli.evaluation.*": _DOES,
    "cli.commands.*": "arguments and messages of the command line",
    "cli.language.*": "texts of the package, and the name of a language",
    "cli.listing.*": _NAMES,
    "cli.options.load_*": "a name that the user writes",
    "cli.output.*": _DOES,
    "cli.sync.*": _NAMES,
    "cli.sync_config.read_source_file": "a file of the user, parsed by tomllib",
    "connectors.memory.backend.Backend.sessions": "a protocol",
    "connectors.memory.chat_*": _PARTS,
    "connectors.memory.database.*": _DOES,
    "connectors.memory.detect.*": _NAMES,
    "connectors.memory.langgraph_checkpoints.*": _PARTS,
    "connectors.memory.table.*": _PARTS,
    "connectors.sql.*": _NAMES,
    "embedding.*": "a model of the user, or its name",
    "errors.*": _DOES,
    "evaluation.*": "files and names of the user",
    "guard.*": _NAMES,
    "indexer.*": "the search and the writing that are measured, reading by id, and deleting by id",
    "ingest.*": _NAMES,
    "isolation_check.*": "protocols",
    "langchain.*": _PARTS,
    "langgraph.*": _NAMES,
    "lazy_imports.*": "names of modules",
    "llama_index.*": _PARTS,
    "llm.*": _DOES,
    "scope.*": _NAMES,
    "search.bm25.*": "terms, as keys",
    "search.cache.*": "texts as keys",
    "search.engine.*": _NAMES,
    "search.followup.add_context_terms": "terms, as keys",
    "search.hits.*": "reasons, in words",
    "search.postprocess.expand_neighbours": "chunks of the store",
    "search.postprocess.jaccard": "two sets",
    "search.query_embedding.*": _NAMES,
    "search.ranking.match_rows": "terms, as keys",
    "search.rerank.*": "a model of the user, or its name",
    "store.*": _NAMES,
    "testing.*": "assertions for the tests of users",
    "timeouts.*": _DOES,
}
"""Pattern over names of functions (as in `fnmatch`) → why a text of any length cannot make it slow.

In `TEXT_PACKAGES` a pattern is one name.
"""

TEXT_PACKAGES = (
    "agent.", "text.", "query.", "filters.", "metadata.", "normalization.", "notebook.", "times.", "types.",
    "connectors.files.", "connectors.memory.messages.", "connectors.memory.dialogue.", "connectors.memory.turns.",
    "search.options.", "cli.render.", "cli.terminal_text.", "search.followup.words", "search.followup.is_",
)  # fmt: skip
"""Modules in which any new function with a text must be measured, or exempt by its name."""
