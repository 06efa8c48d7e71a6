"""Outcomes as a table, in Markdown, which reads well on a terminal too."""

from collections.abc import Callable, Sequence
from typing import Final

from bench.contest import Line, Outcome
from bench.measure import NANOSECONDS

_HEAD: Final = ("claim", "native", "pure", "compared with", "theirs", "ratio", "by CPU", "target", "")


def _time(nanoseconds: float) -> str:
    for unit, size in (("s", NANOSECONDS), ("ms", 1_000_000), ("µs", 1_000)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def _rate(nanoseconds: float) -> str:
    return f"{NANOSECONDS / nanoseconds:,.0f}/s"


def _bandwidth(nanoseconds: float) -> str:
    return f"{1 / nanoseconds:.2f} GB/s"


def _bytes(count: float) -> str:
    return f"{count / (1 << 20):.1f} MiB"


SHOWN: Final[dict[str, Callable[[float], str]]] = {
    "time": _time,
    "rate": _rate,
    "bandwidth": _bandwidth,
    "bytes": _bytes,
}
"""How a figure is shown: times are kept in nanoseconds, for each record or for each byte."""

_FIGURE: Final = {"bytes": "own_bytes"}


def rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Return the lines of one claim; only the first names it."""
    claim = outcome.claim
    show, figure = SHOWN[claim.unit], _FIGURE.get(claim.unit, "wall_ns")
    title = claim.title + (f" ({claim.note})" if claim.note else "")
    native = show(outcome.native[figure])
    pure = show(outcome.pure[figure]) if outcome.pure else "-"
    found = [_row(line, show) for line in outcome.lines] or [("", "", "", "", "", "")]
    first, *rest = found
    return [(title, native, pure, *first), *(("", "", "", *row) for row in rest)]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the whole table, its columns aligned."""
    body = [row for outcome in outcomes for row in rows(outcome)]
    widths = [max(len(row[column]) for row in [_HEAD, *body]) for column in range(len(_HEAD))]
    rule = tuple("-" * max(3, width) for width in widths)
    return "\n".join(_joined(row, widths) for row in [_HEAD, rule, *body])


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return how many targets were met, and name those that were not."""
    judged = [(outcome, line) for outcome in outcomes for line in outcome.lines if line.met is not None]
    missed = [f"{outcome.claim.name}: {line.label}" for outcome, line in judged if not line.met]
    met = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    return met + ("." if not missed else "; missed: " + "; ".join(missed) + ".")


def _row(line: Line, show: Callable[[float], str]) -> tuple[str, ...]:
    label = f"pure: {line.label}" if line.pure else line.label
    show = SHOWN[line.unit] if line.unit else show
    verdict = {None: "", True: "met", False: "MISSED"}[line.met]
    if line.ratio is None or line.theirs is None:
        return (label, show(line.value), "", "", _target(line, show), verdict)
    cpu = "" if line.cpu_ratio is None else _times(line.cpu_ratio)
    return (label, show(line.theirs), _times(line.ratio), cpu, _target(line, lambda value: f"{value:g}x"), verdict)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2f}x"


def _target(line: Line, show: Callable[[float], str]) -> str:
    if line.target is None:
        return ""
    return f"{'≥' if line.target.direction == 'at least' else '≤'} {show(line.target.value)}"


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
