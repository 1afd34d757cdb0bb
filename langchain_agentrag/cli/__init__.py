"""The `agentrag` command."""
