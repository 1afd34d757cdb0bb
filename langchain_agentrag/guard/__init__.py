"""Side effects at most once: tool calls under guard, their operation log, and a bounded agent loop."""
