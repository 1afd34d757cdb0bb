"""Tests of the evaluation layer."""
