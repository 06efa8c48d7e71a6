"""How many tests passed: read from the closing lines of every pytest run in an output."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

_CLOSING: Final = re.compile(
    r"^(?:=+ )?(?P<counts>\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s(?: \([^)]*\))?(?: =+)?$", re.MULTILINE
)
"""`3 failed, 120 passed, 2 errors in 75.01s (0:01:15)`, with `=` around it or, as `--quiet` prints it, without."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcomes of all runs of pytest together."""

    runs: int = 0
    passed: int = 0
    failed: int = 0
    """With the errors in fixtures, which fail a run as well."""
    skipped: int = 0
    others: int = 0
    """Expected failures, and expected failures that passed."""


def tally(output: str) -> Tally:
    """Add up every run of pytest in this output."""
    runs = [match["counts"] for match in _CLOSING.finditer(output)]
    counts: Counter[str] = Counter()
    for number, name in (count.split(" ") for run in runs for count in run.split(", ")):
        counts[name.removesuffix("s")] += int(number)
    return Tally(
        runs=len(runs),
        passed=counts["passed"],
        failed=counts["failed"] + counts["error"],
        skipped=counts["skipped"],
        others=counts["xfailed"] + counts["xpassed"],
    )
