"""`python -m latewood.testing.simulate --seeds A:B [--planted NAME|all]`: live through runs of a small cluster.

Exits 0 only if every run was clean, and every planted bug was caught.  A seed that fails fails again.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from latewood.errors import LatewoodError, NotFoundError
from latewood.replica.native import check_native
from latewood.testing.simulate_log import DiskStorage
from latewood.testing.simulate_model import ModelStorage
from latewood.testing.simulate_planted import LOG_ONLY, Bug, planted
from latewood.testing.simulate_truth import Violation
from latewood.testing.simulate_world import Outcome, World


class Failure(NamedTuple):
    """A run that broke a promise."""

    seed: int
    reason: str


Store = Literal["model", "log"]


def simulate(seed: int, bug: Bug | None = None, store: Store = "log") -> Outcome | Failure:
    """Live through one run, with the real logs, or on a model of a disk."""
    try:
        with planted(bug), _quiet():
            return World(seed, bug, DiskStorage if store == "log" else ModelStorage).run()
    except (Violation, LatewoodError, AssertionError) as error:  # what breaks is as bad as a broken promise
        return Failure(seed, f"{type(error).__name__}: {error}")


def catch(bug: Bug, seeds: range, store: Store = "log") -> Failure | None:
    """Return the first run that a planted bug breaks, and that is clean without it."""
    store = "log" if bug in LOG_ONLY else store
    runs = (simulate(seed, bug, store) for seed in seeds)
    broken = (run for run in runs if isinstance(run, Failure) and isinstance(simulate(run.seed, None, store), Outcome))
    return next(broken, None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m latewood.testing.simulate", description=(__doc__ or "").strip())
    parser.add_argument("--seeds", type=_seeds, default=range(100), metavar="A:B", help="from A, below B")
    names = [bug.name.lower() for bug in Bug]
    parser.add_argument("--planted", choices=[*names, "all"], metavar="NAME", help=f"all, or {', '.join(names)}")
    parser.add_argument("--store", choices=["log", "model"], default="log", help="the real logs, or a fast model")
    given = parser.parse_args(arguments)
    if given.planted is None:
        return _clean(given.seeds, given.store)
    bugs = list(Bug) if given.planted == "all" else [Bug[given.planted.upper()]]
    sound = _clean(given.seeds, given.store) if given.planted == "all" else 0
    missed = [bug for bug in bugs if not _caught(bug, given.seeds, given.store)]
    return int(bool(missed)) | sound


def _clean(seeds: range, store: Store) -> int:
    start = time.perf_counter()
    runs = [simulate(seed, store=store) for seed in seeds]
    failures = [run for run in runs if isinstance(run, Failure)]
    outcomes = [run for run in runs if isinstance(run, Outcome)]
    for failure in failures:
        _say(f"seed {failure.seed}: {failure.reason}")
    seconds = time.perf_counter() - start
    _say(
        f"{len(runs)} seeds, {len(failures)} broken; {sum(run.committed for run in outcomes):,} entries committed, "
        f"{sum(run.acknowledged for run in outcomes):,} acknowledged, {sum(run.crashes for run in outcomes):,} "
        f"crashes; {len(runs) / seconds:.1f} seeds/s"
    )
    return int(bool(failures))


def _caught(bug: Bug, seeds: range, store: Store) -> bool:
    failure = catch(bug, seeds, store)
    verdict = f"caught by seed {failure.seed}: {failure.reason}" if failure else f"MISSED by all {len(seeds)} seeds"
    _say(f"{bug.name.lower()}: {verdict}")
    return failure is not None


@contextmanager
def _quiet() -> Iterator[None]:
    """Have nobody warned of torn tails and machines that stumble: that is what a run is made of."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _seeds(text: str) -> range:
    first, _, stop = text.partition(":")
    return range(int(first), int(stop)) if stop else range(int(first), int(first) + 1)


if __name__ == "__main__":
    try:
        check_native()
    except NotFoundError as missing:  # Each seed would be a broken promise.
        sys.exit(str(missing))
    sys.exit(main())
