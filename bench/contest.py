"""Claims, and the rounds that settle them.

In each round everybody who takes part in a claim runs once, so that a disturbance meets all of them.  A figure is
the median over the rounds; a ratio is the median of the rounds' ratios.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from bench.measure import Sample, median
from bench.processes import Job, Kind, Worker

Direction = Literal["at least", "at most"]


class Target(NamedTuple):
    """What the log must reach."""

    direction: Direction
    value: float

    def met(self, value: float) -> bool:
        """Say whether a value reaches it."""
        return value >= self.value if self.direction == "at least" else value <= self.value


class Rival(NamedTuple):
    """Somebody, or some limit, that the log is compared with in one figure.

    The ratio is how many times as fast the log is; with a target "at most", how many times as long it takes.
    """

    label: str
    worker: Kind
    job: Job
    target: Target | None = None
    pure: bool = False
    """Whether it is the pure kernel that is compared."""
    figure: str = "wall_ns"
    unit: str | None = None
    """How it is shown, if not as the claim is."""


class Bound(NamedTuple):
    """A figure of the log itself that has a target."""

    label: str
    figure: str
    target: Target | None
    pure: bool = False
    unit: str | None = None
    """How it is shown, if not as the claim is."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the table: a workload, who else does it, and what the log must reach."""

    name: str
    title: str
    unit: str
    """How a figure is shown: see `bench.table`."""
    native: Job
    pure: Job | None
    rounds: int
    rivals: Sequence[Rival] = ()
    bounds: Sequence[Bound] = ()
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One comparison, settled."""

    label: str
    theirs: float | None
    ratio: float | None
    cpu_ratio: float | None
    """The same by the CPU time of all threads, which a busy machine changes less."""
    value: float
    target: Target | None
    pure: bool
    unit: str | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        return None if self.target is None else self.target.met(self.value)


@dataclass(frozen=True)
class Outcome:
    """A claim, settled."""

    claim: Claim
    native: Sample
    pure: Sample | None
    lines: list[Line]
    seconds: float


def settle(claim: Claim, workers: Callable[[Kind], Worker], directory: Path) -> Outcome:
    """Run everybody in rounds and compare."""
    started, parties = time.monotonic(), _parties(claim)
    for key, (kind, job) in parties.items():
        workers(kind).prepare(key, job, directory)
    samples: dict[str, list[Sample]] = {key: [] for key in parties}
    for _ in range(claim.rounds):
        for key, (kind, _job) in parties.items():
            samples[key].append(workers(kind).round(key))
    for key, (kind, _job) in parties.items():
        workers(kind).close(key)
    lines = [_bounded(bound, samples) for bound in claim.bounds]
    lines += [_compared(rival, _key(claim.rivals, number), samples) for number, rival in enumerate(claim.rivals)]
    pure = median(samples["pure"]) if claim.pure else None
    return Outcome(claim, median(samples["native"]), pure, lines, time.monotonic() - started)


def _parties(claim: Claim) -> dict[str, tuple[Kind, Job]]:
    """Return who takes part; one that is compared twice runs once."""
    parties: dict[str, tuple[Kind, Job]] = {"native": ("native", claim.native)}
    if claim.pure:
        parties["pure"] = ("pure", claim.pure)
    for number, rival in enumerate(claim.rivals):
        if _key(claim.rivals, number) == str(number):
            parties[str(number)] = (rival.worker, rival.job)
    return parties


def _key(rivals: Sequence[Rival], number: int) -> str:
    job = (rivals[number].worker, rivals[number].job)
    return str([(rival.worker, rival.job) for rival in rivals].index(job))


def _bounded(bound: Bound, samples: dict[str, list[Sample]]) -> Line:
    value = median(samples["pure" if bound.pure else "native"])[bound.figure]
    return Line(bound.label, None, None, None, value, bound.target, bound.pure, bound.unit)


def _compared(rival: Rival, key: str, samples: dict[str, list[Sample]]) -> Line:
    ours, theirs = samples["pure" if rival.pure else "native"], samples[key]
    cost = rival.target is not None and rival.target.direction == "at most"
    ratio = _ratio(ours, theirs, rival.figure, cost=cost)
    has_cpu = rival.figure == "wall_ns" and "process_ns" in ours[0] and "process_ns" in theirs[0]
    cpu_ratio = _ratio(ours, theirs, "process_ns", cost=cost) if has_cpu else None
    theirs_now = median(theirs)[rival.figure]
    return Line(rival.label, theirs_now, ratio, cpu_ratio, ratio, rival.target, rival.pure, rival.unit)


def _ratio(ours: list[Sample], theirs: list[Sample], figure: str, *, cost: bool) -> float:
    pairs = [(mine[figure], their[figure]) for mine, their in zip(ours, theirs, strict=True)]
    return statistics.median(mine / their if cost else their / mine for mine, their in pairs)
