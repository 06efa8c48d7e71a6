"""When the clock asks for a flush or a roll.

Owns two moments of the open segment: since when something waits to be flushed, and when its first record came.  Acts on
neither: the writer asks, flushes and rolls, under its own lock.
"""

from latewood.clock import Clock
from latewood.log import roll
from latewood.log.options import LogOptions

_MILLISECOND_NS = 1_000_000


class Timing:
    """The times of one log's open segment.  Guarded by the writer's lock, but for `unflushed_since_ns`."""

    def __init__(self, options: LogOptions, clock: Clock) -> None:
        self._flush_ms, self._age_max_ms, self._clock = options.flush_ms, options.segment_age_max_ms, clock
        self.unflushed_since_ns: int | None = None
        self._first_append_ns: int | None = None

    def begin_segment(self, first_append_ns: int | None) -> None:
        """Go on with another segment; of one that has records it is not known when they came, only when it was made."""
        self._first_append_ns = first_append_ns

    def note_unflushed(self) -> bool:
        """Note that something waits to be flushed by the clock; return whether that is new."""
        if self._flush_ms is None or self.unflushed_since_ns is not None:
            return False
        self.unflushed_since_ns = self._clock.now_ns()
        return True

    def flush_due_ns(self) -> int | None:
        """Return when to flush, if something waits for that; now, if the clock was set back meanwhile."""
        since, now_ns = self.unflushed_since_ns, self._clock.now_ns()
        if since is None or self._flush_ms is None:
            return None
        return since + self._flush_ms * _MILLISECOND_NS if since <= now_ns else now_ns

    def note_append(self, count: int) -> bool:
        """Note when a segment gets its first record; return whether that is new."""
        if self._age_max_ms is None or self._first_append_ns is not None or not count:
            return False
        self._first_append_ns = self._clock.now_ns()
        return True

    def is_old(self, count: int) -> bool:
        """Say whether a segment with so many records has reached its age."""
        if self._age_max_ms is None or self._first_append_ns is None or not count:
            return False
        return roll.is_old(self._first_append_ns, self._age_max_ms, self._clock.now_ns())

    def old_at_ns(self) -> int | None:
        """Return when the open segment will reach its age, if it has records."""
        if self._age_max_ms is None or self._first_append_ns is None:
            return None
        return self._first_append_ns + self._age_max_ms * _MILLISECOND_NS
