"""Text analysis: one analyzer for Chinese, English, identifiers and mixed text."""

from langchain_agentrag.text.analyzer import FIELD_WEIGHTS, FIELDS, Analyzer, Terms, Weights

__all__ = ["FIELDS", "FIELD_WEIGHTS", "Analyzer", "Terms", "Weights"]
