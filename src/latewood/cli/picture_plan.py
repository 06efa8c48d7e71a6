"""Where everything in a picture goes: what is drawn, and the sums that keep it apart.  Pure.

A picture has a panel for each database, or one for a log; a panel has a bar for each shard.  A bar runs along the
sequences of its records and says what holds them.  Readers stand above it, each with its name.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

CHARACTER_WIDTH: Final = 0.62
"""Of a usual character, in font sizes; a little more than any usual font takes, so that labels never meet."""
NARROW: Final = 2.0
"""Pixels.  Neighbours of one kind that are narrower become one: nobody could tell them apart."""
_STEPS: Final = (1, 2, 5)


class Kind(Enum):
    """What holds a record."""

    ARCHIVED = "archived only"
    COPIED = "local and archived"
    LOCAL = "local chunk"
    SEALED = "sealed segment"
    OPEN = "open segment"

    @property
    def is_chunk(self) -> bool:
        """Whether it is a chunk, and not a part of the log."""
        return self in (Kind.ARCHIVED, Kind.COPIED, Kind.LOCAL)


class Stretch(NamedTuple):
    """A chunk or a segment: the records from `start` up to `stop`."""

    kind: Kind
    start: int
    stop: int
    size_bytes: int
    name: str
    pieces: int = 1
    """How many chunks or segments it stands for."""


class Needle(NamedTuple):
    """A named reader, in one shard."""

    name: str
    sequence: int
    """The next record that it wants."""
    lag: int


class Bar(NamedTuple):
    """One shard."""

    name: str
    first: int
    stop: int
    stretches: Sequence[Stretch]
    needles: Sequence[Needle]


class Panel(NamedTuple):
    """One database, or one log."""

    name: str
    bars: Sequence[Bar]
    problems: Sequence[str] = ()
    """What could not be drawn, and why."""


class Picture(NamedTuple):
    """Everything."""

    title: str
    subtitle: str
    panels: Sequence[Panel]


class Label(NamedTuple):
    """A text above a bar, and the needle that it belongs to."""

    x: float
    row: int
    """0 is next to the bar."""
    text: str
    needle: Needle


class Scale(NamedTuple):
    """From sequences to pixels."""

    first: int
    stop: int
    left: float
    width: float

    def x(self, sequence: int) -> float:
        """Return where a sequence is; one that is gone, or has not come, stands at the edge."""
        within = min(max(sequence, self.first), self.stop) - self.first
        return self.left + self.width * within / max(1, self.stop - self.first)


class Total(NamedTuple):
    """All chunks or segments of one kind."""

    kind: Kind
    pieces: int
    records: int
    size_bytes: int


def scale_of(bars: Sequence[Bar], left: float, width: float) -> Scale:
    """Return one scale for all bars of a panel, so that they can be compared."""
    first = min((bar.first for bar in bars), default=0)
    return Scale(first, max((bar.stop for bar in bars), default=first), left, width)


def ticks(first: int, stop: int, count_max: int) -> list[int]:
    """Return round sequences within a range, evenly apart: the multiples of 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for step in (power * one for one in _STEPS):
            found = range(-(-first // step) * step, stop + 1, step)
            if len(found) <= count_max:
                return list(found)
        power *= 10


def merged(stretches: Iterable[Stretch], scale: Scale) -> list[Stretch]:
    """Return the same with narrow neighbours of one kind as one."""
    found: list[Stretch] = []
    for one in stretches:
        last = found[-1] if found else None
        is_narrow = scale.x(one.stop) - scale.x(one.start) < NARROW
        if last and is_narrow and (last.kind, last.stop) == (one.kind, one.start) and _is_dense(last, scale):
            pieces, size = last.pieces + one.pieces, last.size_bytes + one.size_bytes
            first = last.name.partition(" … ")[0]
            found[-1] = Stretch(last.kind, last.start, one.stop, size, f"{first} … {one.name}", pieces)
        else:
            found.append(one)
    return found


def labels(needles: Iterable[Needle], scale: Scale, font: float) -> list[Label]:
    """Return a label for each needle, to the right of it, in rows so that no label and no needle crosses another.

    Row 0 is next to the bar, and a needle passes through all rows below its label.  From right to left, a label goes
    above every needle that stands where it would be.
    """
    found: list[Label] = []
    for needle in sorted(needles, key=lambda one: (scale.x(one.sequence), one.name), reverse=True):
        x, text = scale.x(needle.sequence), label_text(needle)
        end = x + text_width(text, font)
        above = [label.row + 1 for label in found if label.x <= end]
        found.append(Label(x, max(above, default=0), text, needle))
    return found


def label_text(needle: Needle) -> str:
    """Return what stands beside a needle."""
    return f"{needle.name}: {needle.lag:,} behind" if needle.lag else f"{needle.name}: up to date"


def text_width(text: str, font: float) -> float:
    """Return the width of a text, with room to the next."""
    return (len(text) * CHARACTER_WIDTH + 1.2) * font


def flowed(widths: Sequence[float], width: float) -> list[tuple[float, int]]:
    """Return the place and the row of things that follow on one another, and go to a new row where there is no room."""
    places, x, row = [], 0.0, 0
    for one in widths:
        if x and x + one > width:
            x, row = 0.0, row + 1
        places.append((x, row))
        x += one
    return places


def totals(bars: Iterable[Bar]) -> list[Total]:
    """Return what there is of each kind, in the order of age; what there is not is left out."""
    every = [stretch for bar in bars for stretch in bar.stretches]
    found = []
    for kind in Kind:
        own = [stretch for stretch in every if stretch.kind is kind]
        if own:
            records = sum(one.stop - one.start for one in own)
            found.append(Total(kind, sum(one.pieces for one in own), records, sum(one.size_bytes for one in own)))
    return found


class Portion(NamedTuple):
    """A part of a stretch: all of it is in log and chunks both, or in one alone."""

    start: int
    stop: int
    is_shared: bool


def shared_range(stretches: Iterable[Stretch]) -> tuple[int, int]:
    """Return the sequences that the log and chunks both have: a log ends, and chunks begin, what there is."""
    every = list(stretches)
    chunk_stop = max((one.stop for one in every if one.kind.is_chunk), default=0)
    log_first = min((one.start for one in every if not one.kind.is_chunk), default=chunk_stop)
    return log_first, max(log_first, chunk_stop)


def portions(stretch: Stretch, shared: tuple[int, int]) -> list[Portion]:
    """Return a stretch, cut where what both have begins and ends."""
    cuts = sorted({stretch.start, stretch.stop, *(cut for cut in shared if stretch.start < cut < stretch.stop)})
    return [Portion(start, stop, is_shared=shared[0] <= start and stop <= shared[1]) for start, stop in pairwise(cuts)]


def _is_dense(stretch: Stretch, scale: Scale) -> bool:
    """Say whether a stretch is narrow itself, or made of narrow ones."""
    return (scale.x(stretch.stop) - scale.x(stretch.start)) / stretch.pieces < NARROW
