"""What a queue is, without files: a list of records, and some places in it.

A `Model` is a value: whoever is about to do something copies it, makes the copy what the queue should become, and
keeps both.  If it then fails, or the program dies, what is found must lie between the two.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from latewood import LogOptions, Record, RetentionPolicy

_HEADER_BYTES: Final = 64
_MS: Final = 1_000_000


def record_bytes(payload: bytes) -> int:
    return 24 + (len(payload) + 7) // 8 * 8


class Cursor(NamedTuple):
    """What a reader has committed, and when."""

    sequence: int
    committed_at_ns: int


class Sealed(NamedTuple):
    """A segment that is full."""

    stop: int
    """The sequence after its last one."""
    sealed_at_ns: int


Maybe = frozenset[Cursor | None]
"""What a power cut may leave of a reader.  None: nothing."""


@dataclass
class Model:
    options: LogOptions
    bytes_max: int
    """How large the open segment may become; the options hold from the next one on."""
    records: list[Record] = field(default_factory=list)
    """All that were ever appended: retired ones too."""
    first: int = 0
    durable: int = 0
    sealed: list[Sealed] = field(default_factory=list)
    """Retired ones too."""
    half_sealed: list[Sealed] = field(default_factory=list)
    """Whose seal failed: the next to open the log may finish it."""
    offset: int = _HEADER_BYTES
    since_ns: int | None = None
    """When the open segment got its first record."""
    cohorts: frozenset[int] = frozenset({0})
    """What `set_ext_id` may have left; one, unless it failed."""
    cursors: dict[str, Cursor] = field(default_factory=dict)
    maybe: dict[str, Maybe] = field(default_factory=dict)

    def copy(self) -> "Model":
        return replace(
            self,
            records=self.records.copy(),
            sealed=self.sealed.copy(),
            half_sealed=self.half_sealed.copy(),
            cursors=self.cursors.copy(),
            maybe=self.maybe.copy(),
        )

    # -- the log ----------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stops(self) -> list[int]:
        """Where the sealed segments end that were not retired."""
        return [segment.stop for segment in self.sealed if segment.stop > self.first]

    @property
    def base(self) -> int:
        return self.sealed[-1].stop if self.sealed else 0

    @property
    def payload_bytes_max(self) -> int:
        return self.options.segment_bytes_max // 8 * 8 - _HEADER_BYTES - 24

    def fits(self, payload: bytes) -> bool:
        """Whether the open segment has room for one more."""
        records_max = self.options.segment_records_max
        full = records_max is not None and self.end - self.base >= records_max
        return not full and self.offset + record_bytes(payload) <= self.bytes_max

    def append(self, record: Record, now_ns: int) -> None:
        if not self.fits(record.payload):
            self.roll(now_ns)
        self.records.append(record)
        self.offset += record_bytes(record.payload)
        self.since_ns = now_ns if self.since_ns is None else self.since_ns

    def grow_older(self, now_ns: int) -> None:
        age_ms = self.options.segment_age_max_ms
        if age_ms is not None and self.since_ns is not None and now_ns - self.since_ns >= age_ms * _MS:
            self.roll(now_ns)

    def roll(self, now_ns: int) -> None:
        if self.end > self.base:
            self.sealed.append(Sealed(self.end, now_ns))
        self.offset, self.bytes_max, self.since_ns = _HEADER_BYTES, self.options.segment_bytes_max // 8 * 8, None
        self.durable = self.end

    def set_ext_id(self, ext_id: int, now_ns: int) -> None:
        if self.end > self.base and self.cohorts != {ext_id}:
            self.roll(now_ns)
        self.cohorts = frozenset({ext_id})

    def find_timestamp(self, timestamp_ns: int) -> int:
        later = (one.sequence for one in self.records[self.first :] if one.timestamp_ns >= timestamp_ns)
        return next(later, self.end)

    # -- readers and retention --------------------------------------------------------------------------

    def segment_of(self, sequence: int) -> tuple[int, int]:
        """Where the segment that holds a sequence begins and ends; the open one ends nowhere."""
        stops = [0] + [segment.stop for segment in self.sealed]
        number = bisect_right(stops, sequence)
        return stops[number - 1], stops[number] if number < len(stops) else 1 << 62

    def commit(self, name: str, sequence: int, now_ns: int) -> None:
        self.cursors[name] = Cursor(sequence, now_ns)
        self.maybe[name] = frozenset({self.cursors[name]})
        self.durable = max(self.durable, sequence)

    def forget(self, name: str) -> None:
        del self.cursors[name]
        del self.maybe[name]

    def retire(self, policy: RetentionPolicy, sizes: Iterable[int], now_ns: int) -> int:
        """Drop the segments that may go, and return how many; `sizes` are those of all that there are."""
        sizes = list(sizes)
        silent_ms = policy.ignore_readers_silent_ms
        heeded = [
            cursor.sequence
            for cursor in self.cursors.values()
            if silent_ms is None or now_ns - cursor.committed_at_ns <= silent_ms * _MS
        ]
        count, there = 0, [segment for segment in self.sealed if segment.stop > self.first]
        for segment in there:
            age_ns, bytes_left = now_ns - segment.sealed_at_ns, sum(sizes[count:])
            old = policy.max_age_ms is not None and age_ns > policy.max_age_ms * _MS
            many = policy.max_bytes is not None and bytes_left > policy.max_bytes
            if not (segment.stop <= min(heeded) if heeded else old or many):
                break
            count += 1
        if count:
            self.first = there[count - 1].stop
            self.maybe = {name: frozenset({cursor}) for name, cursor in self.cursors.items()}
        return count
