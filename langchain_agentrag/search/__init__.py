"""Searching: which rows to look at, how to score them, why they are where they are."""
