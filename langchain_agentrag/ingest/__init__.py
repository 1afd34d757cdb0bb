"""Writing: documents of any make to prepared batches, and connectors kept in step with the store."""
