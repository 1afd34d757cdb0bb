"""Text analysis: one analyzer for Chinese, English, identifiers and mixed text."""

from langchain_agentrag.text.analyzer import FIELDS, Analyzer, Terms, Weights

__all__ = ["FIELDS", "Analyzer", "Terms", "Weights"]
