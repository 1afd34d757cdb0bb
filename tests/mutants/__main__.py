"""Print what kills each mutant: `python -m tests.mutants`. Exit code 1 when one lives."""

from __future__ import annotations

import logging
import sys

from tests.mutants.engines import all_faults
from tests.mutants.forms import all_forms


def main() -> int:
    logging.disable(logging.CRITICAL)  # a broken engine complains, which is its right
    alive = 0
    mutants = {**all_forms(), **all_faults()}
    sys.stdout.write("| protocol | mutant | killed by |\n|---|---|---|\n")
    for (protocol, name), kill in mutants.items():
        killer = kill()
        alive += killer is None
        sys.stdout.write(f"| {protocol} | {name} | {killer or '**it lives**'} |\n")
        sys.stdout.flush()
    sys.stdout.write(f"\n{len(mutants) - alive} of {len(mutants)} mutants killed.\n")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
