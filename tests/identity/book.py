"""What a campaign knows: which records a program asked for, which of them were acknowledged, and where.

No two payloads are equal, in whatever log.  So a record that turns up in a directory tells by itself whether it belongs
there, and whether it was written twice.  Any thread may write to a book.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

SHOWN_MAX: Final = 5
_serial: Final = itertools.count()


class Wrong(AssertionError):
    """A promise was broken."""


def require(condition: object, what: str, *details: object) -> None:
    """Do nothing if a promise is kept.

    Raises:
        Wrong: it is not.
    """
    if not condition:
        raise Wrong(": ".join([what, *map(str, details)]))


class Place(NamedTuple):
    """Where a record is in a directory."""

    shard: int
    sequence: int


class Found(NamedTuple):
    """A record that was read."""

    place: Place
    payload: bytes


class Book:
    """The records of one directory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: set[bytes] = set()
        """Every payload that was given to an append."""
        self.kept: dict[Place, bytes] = {}
        """Those that are acknowledged as durable."""
        self.grows = False
        """Whether another process goes on writing, which this one knows nothing of."""

    def copy(self) -> Self:
        """Return the book of a copy of the directory."""
        copied = type(self)(f"a copy of {self.name}")
        copied.asked, copied.kept = set(self.asked), dict(self.kept)
        return copied

    @property
    def _begin(self) -> bytes:
        return self.name.encode() + b" "

    def payloads(self, count: int, size: int) -> list[bytes]:
        """Return payloads that nobody has ever asked for, and note them."""
        made = [b"%s%d " % (self._begin, next(_serial)) + bytes(size) for _ in range(count)]
        self.asked.update(made)
        return made

    def keep(self, shard: int, sequences: Iterable[int], payloads: Iterable[bytes]) -> None:
        """Note that records were acknowledged as durable.

        Raises:
            Wrong: another one has such a place.
        """
        for sequence, payload in zip(sequences, payloads, strict=True):
            place = Place(shard, sequence)
            before = self.kept.setdefault(place, payload)
            require(before == payload, "a place was given twice", place, before[:40], payload[:40])

    def check(self, found: Iterable[Found], *, begins: int = 0) -> int:
        """Compare all that a directory holds with the book, and return how many acknowledged records were compared.

        Raises:
            Wrong: one is missing or another, was never asked for, stands twice, or leaves a gap before it.
        """
        records = list(found)
        self.check_some(records)
        places = {record.place: record.payload for record in records}
        missing = sorted(set(self.kept) - set(places))
        require(not missing, f"{len(missing)} acknowledged records of {self.name} are lost", missing[:SHOWN_MAX])
        for shard in {place.shard for place in places}:
            sequences = sorted(place.sequence for place in places if place.shard == shard)
            expected = list(range(begins, begins + len(sequences)))
            require(sequences == expected, f"shard {shard} of {self.name} has gaps", sequences[:SHOWN_MAX])
        return len(self.kept)

    def check_some(self, records: Iterable[Found]) -> None:
        """Compare records that were read with the book; there may be others.

        Raises:
            Wrong: one is another, was never asked for, or stands twice.
        """
        records = list(records)
        twice = [payload[:40] for payload, count in Counter(one.payload for one in records).items() if count > 1]
        require(not twice, f"records of {self.name} stand twice", twice[:SHOWN_MAX])
        for record in records:
            is_known = record.payload in self.asked or (self.grows and record.payload.startswith(self._begin))
            require(is_known, f"a record that was never written to {self.name}", str(record)[:80])
            kept = self.kept.get(record.place, record.payload)
            require(
                kept == record.payload,
                f"a record of {self.name} is another than was acknowledged",
                str(record)[:80],
                kept[:40],
            )
