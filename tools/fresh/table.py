"""Outcomes as a Markdown table, which reads well on a terminal too, or as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from tools.fresh.facts import described
from tools.fresh.rows import SUITES
from tools.fresh.trial import Outcome

_HEAD: Final = (
    "row", "before", "as", "set-up brought", "set-up", "demo", "tests", "passed", "failed", "skipped", "result",
)  # fmt: skip
_FIGURES: Final = range(_HEAD.index("set-up"), _HEAD.index("result"))
_NONE: Final = "-"


def markdown(outcomes: Sequence[Outcome], facts: Mapping[str, str | int]) -> str:
    """Return the table, its columns aligned, with the machine's facts below it."""
    body = [cells(outcome) for outcome in outcomes]
    widths = [max(len(row[column]) for row in [_HEAD, *body]) for column in range(len(_HEAD))]
    rule = tuple("-" * (width - 1) + ":" if at in _FIGURES else "-" * width for at, width in enumerate(widths))
    table = "\n".join(_joined(row, widths) for row in [_HEAD, rule, *body])
    return f"{table}\n\n{', '.join(f'{name} {value}' for name, value in facts.items())}"


def as_json(outcomes: Sequence[Outcome], facts: Mapping[str, str | int]) -> str:
    """Return all that is known of every row."""
    return json.dumps({**facts, "rows": [_fields(outcome) for outcome in outcomes]}, indent=2)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """Return one row of the table."""
    seconds = {phase.name: f"{phase.seconds:.0f} s" for phase in outcome.phases}
    tests = outcome.tests
    counts = (tests.passed, tests.failed, tests.skipped)
    return (
        " ".join([outcome.row.name, *outcome.row.variables]),
        f"Debian {outcome.row.release}: {described(outcome.before)}",
        outcome.row.user,
        ", ".join(outcome.brought) or _NONE,
        *(seconds.get(name, _NONE) for name in ("setup", "demo", "test")),
        *((f"{count:,}" for count in counts) if tests.runs else (_NONE,) * len(counts)),
        "; ".join(outcome.failures) or "ok",
    )


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if at in _FIGURES else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


def _fields(outcome: Outcome) -> dict[str, object]:
    return {
        **asdict(outcome.row),
        "suite": SUITES[outcome.row.release],
        "before": asdict(outcome.before),
        "brought": outcome.brought,
        "phases": [phase._asdict() for phase in outcome.phases],
        "tests": asdict(outcome.tests),
        "failures": outcome.failures,
        "log": str(outcome.log),
    }
