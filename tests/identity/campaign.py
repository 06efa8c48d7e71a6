"""The campaign of identities: directories, logs and programs that are taken for others.

    python -m tests.identity.campaign --seeds 0:500 --minutes 10

Each seed is one round, in a process of its own: a log, a store, an archive, a checkpoint or a node is written, one
thing happens, and everything that was acknowledged is looked for.  A round that breaks a promise prints its seed, and
exits 1 in the end; `--seeds 17` plays it alone.  `--planted` plants each bug, and says after how many seeds it is
caught.  Threads take turns as they will, so a seed may have to be repeated: `--repeat 50`.
"""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from tests.forking import Forks
from tests.identity.planted import BUGS, Bug
from tests.identity.rounds import Outcome, draw, play

AT_ONCE: Final = 2
LINES_MAX: Final = 40
Given = tuple[str, str, str]


class Failure(NamedTuple):
    """A round that broke a promise."""

    seed: int
    given: Given
    reason: str


def played(seed: int, given: Given | None = None, bug: Bug | None = None) -> Outcome | Failure:
    """Play one round in a process of its own."""
    return next(iter(_together([_round(seed, given, bug)], [(seed, given or draw(seed))])))


def caught(bug: Bug, seeds: int) -> int | None:
    """Return after how many seeds a planted bug breaks a round that is clean without it; None: after none of them."""
    for seed in range(seeds):
        given = bug.rounds[seed % len(bug.rounds)]
        if isinstance(played(seed, given, bug), Failure) and isinstance(played(seed, given), Outcome):
            return seed + 1
    return None


def _round(seed: int, given: Given | None, bug: Bug | None = None) -> Callable[[], Outcome]:
    def work() -> Outcome:
        logging.disable(logging.CRITICAL)  # Warnings of torn tails and of stopped programs are what rounds are made of.
        if bug is None:
            return play(seed, given)
        with bug.planted():
            return play(seed, given)

    return work


def _together(works: list[Callable[[], Outcome]], named: list[tuple[int, Given]]) -> Iterator[Outcome | Failure]:
    children = []
    for work in works:
        forks = Forks()
        forks.start(work)
        children.append(forks)
    for forks, (seed, given) in zip(children, named, strict=True):
        try:
            (outcome,) = forks.results()
        except AssertionError as error:  # With the traceback of the child, or it hung.
            yield Failure(seed, given, "\n".join(str(error).splitlines()[-LINES_MAX:]))
        else:
            yield outcome


def run(seeds: range, *, minutes: float, repeat: int = 1, only: str = "") -> list[Outcome | Failure]:
    """Play rounds until the seeds or the minutes are over; failures are printed as they come."""
    began, found = time.monotonic(), list[Outcome | Failure]()
    wanted = (seed for seed in seeds for _ in range(repeat) if only in " ".join(draw(seed)))
    with suppress(KeyboardInterrupt):  # What was found until then is shown.
        while time.monotonic() - began <= minutes * 60 and (some := list(islice(wanted, AT_ONCE))):
            named = [(seed, draw(seed)) for seed in some]
            for one in _together([_round(seed, given) for seed, given in named], named):
                found.append(one)
                if isinstance(one, Failure):
                    print(f"seed {one.seed}, {', '.join(one.given)}:\n{one.reason}\n", flush=True)
            _progress(len(found), began)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return found


def _progress(rounds: int, began: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{rounds:,} rounds, {time.monotonic() - began:,.0f} s ", end="", file=sys.stderr, flush=True)


def show(found: list[Outcome | Failure]) -> None:
    """Print what was played, compared and met."""
    outcomes = [one for one in found if isinstance(one, Outcome)]
    failures = [one for one in found if isinstance(one, Failure)]
    subjects = sorted({one.subject for one in outcomes} | {one.given[0] for one in failures})
    events = sorted({one.event for one in outcomes} | {one.given[1] for one in failures})
    counts = Counter((one.event, one.subject) for one in outcomes)
    counts.update((one.given[1], one.given[0]) for one in failures)
    print("".join([f"{'rounds':20}", *(f"{name:>12}" for name in subjects)]))
    for event in events:
        print("".join([f"{event:20}", *(f"{counts[event, name] or '-':>12}" for name in subjects)]))
    errors: Counter[str] = Counter()
    for one in outcomes:
        errors += one.errors
    print(f"rounds           {len(found):,}")
    print(f"records checked  {sum(one.checked for one in outcomes):,} acknowledged ones")
    print(f"errors met       {', '.join(f'{name} {count:,}' for name, count in errors.most_common()) or 'none'}")
    seeds = ", ".join(str(one.seed) for one in failures)
    print(f"broken promises  {len(failures)}{': seeds ' if failures else ''}{seeds}")


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.identity.campaign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", type=_seeds, default=range(1_000_000), metavar="A:B", help="from A, below B")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most so long")
    parser.add_argument("--repeat", type=int, default=1, help="play each seed so often")
    parser.add_argument("--only", default="", help="rounds in whose subject, event and company this text stands")
    parser.add_argument("--planted", type=int, metavar="SEEDS", help="plant each bug, for at most so many seeds")
    given = parser.parse_args(argv)
    if given.planted is not None:
        return _plant(given.planted)
    found = run(given.seeds, minutes=given.minutes, repeat=given.repeat, only=given.only)
    show(found)
    return int(any(isinstance(one, Failure) for one in found))


def _plant(seeds: int) -> int:
    missed = 0
    for name, bug in BUGS.items():
        after = caught(bug, seeds)
        missed += after is None
        print(f"{name}: {f'caught after {after} seeds' if after else f'MISSED by {seeds} seeds'}", flush=True)
    return int(missed > 0)


def _seeds(text: str) -> range:
    first, _, stop = text.partition(":")
    return range(int(first), int(stop) if stop else int(first) + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
