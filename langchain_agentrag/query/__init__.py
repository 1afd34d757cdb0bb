"""Query understanding: a question routed to search options by rules, time expressions, or a language model."""
