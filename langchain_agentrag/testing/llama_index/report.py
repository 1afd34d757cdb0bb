"""Conformance of several candidates side by side, without pytest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OK = "yes"


def outcomes(suite: Any) -> dict[str, str]:
    """Check → "yes", or why not, in the order of the suite."""
    results = {}
    for name in _checks(suite):
        try:
            getattr(suite, name)()
        except Exception as error:  # noqa: BLE001  whatever a candidate raises is its result
            reason = str(error).splitlines()[0] if str(error) else ""
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            results[name] = f"{kind}{reason}"
        else:
            results[name] = OK
    return results


def conformance_table(candidates: Mapping[str, Any]) -> str:
    """A Markdown table: one row per check, one column per candidate.

    Args:
        candidates: Name → an instance of a conformance class; all of the same kind.
    """
    results = {name: outcomes(suite) for name, suite in candidates.items()}
    checks = list(dict.fromkeys(check for found in results.values() for check in found))
    lines = [f"| check | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for check in checks:
        cells = [_cell(found.get(check, "")) for found in results.values()]
        lines.append(f"| {check.removeprefix('test_').replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _checks(suite: Any) -> list[str]:
    ordered = [name for kind in reversed(type(suite).__mro__) for name in vars(kind)]
    return [name for name in dict.fromkeys(ordered) if name.startswith("test_")]


def _cell(outcome: str, most: int = 70) -> str:
    text = outcome if outcome == OK else f"**no**: {outcome}"
    text = text.replace("|", "\\|")
    return text if len(text) <= most else text[: most - 1] + "…"
