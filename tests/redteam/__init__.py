"""Passages that try to take a model over, written for this project, and a scripted model that would let them."""
