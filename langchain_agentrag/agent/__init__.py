"""Framework-free logic behind the tools and middleware of agents."""
