"""The demo: a small workshop's real files, and a story told over them that proves what it says."""
