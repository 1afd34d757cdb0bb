"""Databases as sources: rows, schemas, and read-only queries."""
