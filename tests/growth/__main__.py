"""Print how the processing time of each public text function grows: `python -m tests.growth [NAME …] [--last N]`."""

from __future__ import annotations

import argparse
import fnmatch
import logging
import sys
import time
import warnings

from tests.growth.functions import CALLS
from tests.growth.measure import Growth, growth_of, refused_or_done
from tests.growth.patterns import PATTERNS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="functions, as patterns: text.*")
    parser.add_argument("--last", type=int, default=64_000, help="largest length")
    parser.add_argument("--pattern", default="*", help="patterns of text")
    parser.add_argument("--once", action="store_true", help="do not measure a fault again")
    parser.add_argument("--faults", action="store_true", help="print each fault on a line of its own")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    patterns = {name: make for name, make in PATTERNS.items() if fnmatch.fnmatchcase(name, arguments.pattern)}
    faults = measured = 0
    started = time.monotonic()
    print("| function | worst pattern | exponent | ms | characters |\n|---|---|---|---|---|")
    for name, calls in CALLS.items():
        if arguments.names and not any(fnmatch.fnmatchcase(name, wanted) for wanted in arguments.names):
            continue
        for way, call in calls.items():
            checked = refused_or_done(call)
            growths: dict[str, Growth] = {}
            for pattern, make in patterns.items():
                growth = growths[pattern] = growth_of(checked, make, arguments.last, again=not arguments.once)
                measured += 1
                if growth.fault:
                    faults += 1
                    if arguments.faults:
                        print(f"FAULT {name} {way} {pattern!r}: {growth.fault}", flush=True)
            worst = max(growths, key=lambda pattern: (bool(growths[pattern].fault), growths[pattern].seconds_at_most))
            growth = growths[worst]
            length, seconds = growth.longest
            label = f"{name} ({way})" if way else name
            mark = f" **{growth.fault}**" if growth.fault else ""
            print(
                f"| {label} | {worst}{mark} | {growth.exponent:.2f} | {seconds * 1000:.1f} | {length:,} |", flush=True
            )
    print(f"\n{measured} pairs of function and pattern, {faults} faults, {time.monotonic() - started:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
