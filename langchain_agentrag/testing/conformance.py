"""Conformance suites: assertions that hold under `python -O` and without a test framework, and tables of results."""

from __future__ import annotations

from collections.abc import Mapping

OK = "yes"


def expect(condition: object, message: str) -> None:
    """Raise AssertionError unless a condition holds."""
    if not condition:
        raise AssertionError(message)


def expect_equal(actual: object, expected: object, what: str) -> None:
    """Raise AssertionError with both values unless they are equal; `what` names the value."""
    if actual != expected:
        raise AssertionError(f"{what} should be {expected!r}, not {actual!r}")


def expect_close(actual: float, expected: float, tolerance: float, what: str) -> None:
    """Raise AssertionError unless a number is within the tolerance of another."""
    if not abs(actual - expected) <= tolerance:
        raise AssertionError(f"{what} should be {expected!r} within {tolerance}, not {actual!r}")


def outcomes(suite: object) -> dict[str, str]:
    """Run the checks of a suite and return for each "yes" or the reason of its failure, in the suite's order."""
    results = {}
    for name in _check_names(suite):
        try:
            getattr(suite, name)()
        except Exception as error:  # noqa: BLE001  any error of a candidate is a result
            reason = str(error).splitlines()[0] if str(error) else ""
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            results[name] = f"{kind}{reason}"
        else:
            results[name] = OK
    return results


def conformance_table(candidates: Mapping[str, object]) -> str:
    """Run conformance suites and return a Markdown table: one row per check, one column per candidate.

    Args:
        candidates: Name → an instance of a conformance class; all of the same kind.
    """
    results = {name: outcomes(suite) for name, suite in candidates.items()}
    checks = list(dict.fromkeys(check for by_check in results.values() for check in by_check))
    lines = [f"| check | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for check in checks:
        cells = [_format_cell(by_check.get(check, "")) for by_check in results.values()]
        lines.append(f"| {check.removeprefix('test_').replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _check_names(suite: object) -> list[str]:
    ordered = [name for kind in reversed(type(suite).__mro__) for name in vars(kind)]
    return [name for name in dict.fromkeys(ordered) if name.startswith("test_")]


def _format_cell(outcome: str, max_chars: int = 70) -> str:
    text = outcome if outcome == OK else f"**no**: {outcome}"
    text = text.replace("|", "\\|")
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
