"""Several sources and agents described in one file, kept in step with a store: `agentrag sync agentrag.toml`."""
