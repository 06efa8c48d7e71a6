"""Which combinations of what a disk may hold are worth trying.  Pure: numbers in, numbers out.

A unit is one thing that a power cut decides about on its own: a sector, a length, a family of names.  It
has some options; a choice names one option for every unit, and is one state of the disk.
"""

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Choice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that survives or not.  Option 0: nothing since the last sync."""

    options: int
    latest: int
    """The option in which nothing is lost."""
    timeline: tuple[tuple[int, int], ...]
    """(time, option): which option was the present one from which time on."""
    lost: tuple[int, ...]
    """Options that miss one thing out of all."""
    kept: tuple[int, ...]
    """Options that hold one thing out of all."""
    metadata: bool
    """Names and lengths: without them, no data is seen, so a choice of data alone would test nothing."""

    def at(self, time: int) -> int:
        """Return the option that was the present one at a time."""
        option = 0
        for since, then in self.timeline:
            option = then if since <= time else option
        return option


def choices(units: Sequence[Unit], limit: int, seed: int) -> Iterator[Choice]:
    """Yield every choice if there are at most `limit`; else the telling ones, then random ones up to `limit`.

    The telling ones come even if they are more than `limit`, those that find most first.  The same
    arguments give the same choices.
    """
    if math.prod(unit.options for unit in units) <= limit:
        yield from itertools.product(*(range(unit.options) for unit in units))
        return
    rng = random.Random(seed)  # noqa: S311 - a sample that can be repeated, not a secret
    seen: set[Choice] = set()
    yield from _unseen(itertools.chain(_corners(units), _singles(units, rng), _prefixes(units)), seen)
    yield from itertools.islice(_unseen(_random(units, rng, limit), seen), max(0, limit - len(seen)))


def _unseen(candidates: Iterable[Choice], seen: set[Choice]) -> Iterator[Choice]:
    for choice in candidates:
        if choice not in seen:
            seen.add(choice)
            yield choice


def _corners(units: Sequence[Unit]) -> Iterator[Choice]:
    yield (0,) * len(units)
    yield tuple(unit.latest for unit in units)
    yield tuple(unit.latest if unit.metadata else 0 for unit in units)
    yield tuple(0 if unit.metadata else unit.latest for unit in units)


def _singles(units: Sequence[Unit], rng: random.Random) -> Iterator[Choice]:
    """Yield each unit lost alone and kept alone, in random order so that a cut-off sample still spreads."""
    nothing, everything, metadata, _ = _corners(units)
    for index in rng.sample(range(len(units)), len(units)):
        unit = units[index]
        for option in unit.lost:
            yield _replaced(everything, index, option)
        for option in unit.kept:
            yield _replaced(nothing, index, option)
            yield _replaced(metadata, index, option)


def _prefixes(units: Sequence[Unit]) -> Iterator[Choice]:
    times = sorted({time for unit in units for time, _ in unit.timeline})
    for time in times:
        yield tuple(unit.at(time) for unit in units)


def _random(units: Sequence[Unit], rng: random.Random, limit: int) -> Iterator[Choice]:
    """Yield `limit` random choices: sparse, even and dense ones, with names and lengths mostly kept."""
    for _ in range(limit):
        data, metadata = rng.choice((0.1, 0.5, 0.9)), rng.choice((0.5, 0.9, 1.0))
        chances = ((metadata if unit.metadata else data) for unit in units)
        yield tuple(
            unit.latest if rng.random() < chance else rng.randrange(unit.options)
            for unit, chance in zip(units, chances, strict=True)
        )


def _replaced(choice: Choice, index: int, option: int) -> Choice:
    return (*choice[:index], option, *choice[index + 1 :])
