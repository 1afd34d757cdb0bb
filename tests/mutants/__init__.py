"""Deliberately wrong implementations. A suite that lets one of them live is itself wrong.

`python -m tests.mutants` prints which suite kills which mutant.
"""
