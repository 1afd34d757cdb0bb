"""Writing: documents to prepared batches, connectors kept in step with the store, import from Chroma."""
