"""Which of the chunks that were found count, when a catalog is made again.  Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from latewood.archive.chunk import ChunkMeta
from latewood.archive.names import ChunkName
from latewood.archive.source import Digest
from latewood.types import DbId


class Found(NamedTuple):
    """A chunk that was found, and where."""

    name: ChunkName
    meta: ChunkMeta | None
    """None: it could not be read.  What its name says is all that is known."""
    digest: Digest
    key_id: str | None
    is_local: bool
    object_key: str | None
    origin: DbId | None = None
    """Of a fork: the database in whose directory it is."""

    @property
    def sequence_min(self) -> int:
        """The first sequence in it."""
        return self.meta.sequence_min if self.meta else self.name.sequence_min

    @property
    def sequence_max(self) -> int:
        """The last sequence in it."""
        return self.meta.sequence_max if self.meta else self.name.sequence_max


class LogSpan(NamedTuple):
    """What a shard's log has that chunks can be made of."""

    first: int
    """Its first sequence."""
    sealed_end: int
    """Every record before this one, from the first on, is in a sealed segment."""

    def holds(self, one: Found) -> bool:
        """Say whether it has all records of a chunk."""
        return self.first <= one.sequence_min and one.sequence_max < self.sealed_end


def strangers(found: Iterable[Found], wanted: bytes | None, log: bytes | None) -> list[Found]:
    """Return the chunks of one shard that another log's records are in: they were copied there from elsewhere.

    `wanted` is the identity of the shard's log as the database's description notes it.  If it does not, `log` is that
    of the log that is there; if no chunk names it, the log itself may be the stranger, and all chunks are believed.
    What a fork shares, and a chunk that names no log, is never one.
    """
    named = [one for one in found if one.origin is None and one.meta is not None and one.meta.mark is not None]
    others = [one for one in named if one.meta and one.meta.mark and one.meta.mark.identity != (wanted or log)]
    if wanted is not None:
        return others
    return others if log is not None and len(others) < len(named) else []


def choose(found: Iterable[Found], log: LogSpan | None) -> tuple[list[Found], list[Found]]:
    """Return the chunks of one shard that count, in order, and those that others stand for.

    A chunk that was made from others takes their place.  Of two that overlap otherwise (a flush that ran twice) the one
    that begins earlier counts, and of those that begin together the longer one.  One that could not be read counts only
    where nothing else has its records: it may be the only copy, and a key may turn up.  What lies behind a gap that the
    log can fill does not count if the log has that too: it will be flushed again.  `log` is None if what it has
    is unknown.
    """
    everything = list(found)
    replaced = {parent for one in everything if one.meta for parent in one.meta.parents}
    alive = [one for one in everything if one.name.token not in replaced]
    chosen: list[Found] = []
    for one in _ordered(one for one in alive if one.meta):
        if not chosen or one.sequence_min > chosen[-1].sequence_max:
            chosen.append(one)
    unread = (one for one in alive if one.meta is None)
    for one in _ordered(one for one in unread if log is None or not log.holds(one)):
        if all(one.sequence_max < other.sequence_min or one.sequence_min > other.sequence_max for other in chosen):
            chosen.append(one)
    chosen = _ordered(chosen) if log is None else _without_what_follows(_ordered(chosen), log)
    tokens = {one.name.token for one in chosen}
    return chosen, [one for one in everything if one.name.token not in tokens]


def gaps_of(
    shard: int, chosen: Sequence[Found], log: LogSpan | None, *, begins_at_0: bool
) -> list[tuple[int, int, int]]:
    """Return the sequences that nothing holds; those before the first chunk only if `begins_at_0`.

    What a retention may have removed is no gap.
    """
    gaps, at = [], chosen[0].sequence_min if chosen else log.first if log else 0
    if begins_at_0:
        at = 0
    for one in chosen:
        gaps += _missing(shard, at, one.sequence_min, log)
        at = one.sequence_max + 1
    if log is not None and at < log.first:
        gaps.append((shard, at, log.first))
    return gaps


def _missing(shard: int, start: int, stop: int, log: LogSpan | None) -> list[tuple[int, int, int]]:
    """Return what of a stretch the log does not have."""
    if log is None or log.sealed_end <= start or log.first >= stop:
        return [(shard, start, stop)] if start < stop else []
    parts = ((start, min(stop, log.first)), (max(start, log.sealed_end), stop))
    return [(shard, low, high) for low, high in parts if low < high]


def _ordered(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda one: (one.sequence_min, -one.sequence_max, one.name.token))


def _without_what_follows(chosen: list[Found], log: LogSpan) -> list[Found]:
    """Return chunks up to a gap that the log fills, if it has what lies behind that as well."""
    for index, one in enumerate(chosen):
        at = chosen[index - 1].sequence_max + 1 if index else one.sequence_min
        if one.sequence_min > at >= log.first and chosen[-1].sequence_max < log.sealed_end:
            return chosen[:index]
    return chosen
