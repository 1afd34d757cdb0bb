"""Storage: the SQLite catalog, the keyword and vector indexes derived from it, and the write protocol."""
