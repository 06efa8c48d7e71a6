"""What a user may choose about jobs: how they are leased, tried again and kept."""

from dataclasses import dataclass, field
from typing import Final

from latewood.errors import UsageError
from latewood.jobs.backoff import Backoff

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_FOREVER_MS: Final = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How jobs are leased and tried again.  Options of a program, not of the catalog: nothing of them is stored."""

    lease_ms: int = 30_000
    """How long a worker may be silent before its job is taken from it.  Longer: a worker that hangs holds its gate
    longer.  Shorter: more heartbeats, and a pause of the machine costs a repair."""

    heartbeats_in_lease: int = 3
    """How often a lease is renewed before it would end, so that one renewal that fails costs nothing."""

    run_ms_max: int = _DAY_MS
    """A handler at work for longer is taken to hang: its lease is not renewed any more."""

    progress_ms: int = 500
    """How often progress becomes durable at most: each time is a commit."""

    poll_ms: int = 1_000
    """How often idle workers look for jobs that nobody told them of, for instance those that have become due."""

    attempts_max: int = 5
    """Attempts of a job that says nothing else."""

    backoff: Backoff = field(default_factory=Backoff)
    """The pause before a job that failed is tried again."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value out of bounds; the text says which.
        """
        _check("heartbeats_in_lease", self.heartbeats_in_lease, 2, 100)
        _check("lease_ms", self.lease_ms, self.heartbeats_in_lease, _DAY_MS)
        _check("run_ms_max", self.run_ms_max, 1, _FOREVER_MS)
        _check("progress_ms", self.progress_ms, 0, _DAY_MS)
        _check("poll_ms", self.poll_ms, 1, _DAY_MS)
        _check("attempts_max", self.attempts_max, 1, 1_000)

    @property
    def heartbeat_ms(self) -> int:
        """How long after a heartbeat the next one is due."""
        return self.lease_ms // self.heartbeats_in_lease


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetention:
    """Which finished jobs are forgotten.  Jobs that are not finished are always kept."""

    finished_max: int = 10_000
    """Keep at most so many, the newest: what bounds the table, and how long a listing of it takes."""

    completed_age_max_ms: int | None = 7 * _DAY_MS
    """Forget a job that was completed or cancelled so long ago: hardly anybody asks after it.  None: not for that."""

    failed_age_max_ms: int | None = 30 * _DAY_MS
    """Forget a job that failed so long ago.  Longer than the others: somebody may still have to look at its error."""

    cursors_silent_ms: int | None = None
    """Remove cursors of the change log that acknowledged nothing for so long, so that they hold no changes back.
    None: never, because whoever comes back to a cursor that is gone must read everything anew."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value out of bounds; the text says which.
        """
        _check("finished_max", self.finished_max, 0, 1 << 40)
        for name in ("completed_age_max_ms", "failed_age_max_ms", "cursors_silent_ms"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), 0, _FOREVER_MS)


def _check(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        message = f"{name} must be a whole number from {low:,} to {high:,}, not {value!r}"
        raise UsageError(message)
