"""Leases: who may claim what, and when a lease is dead.  Pure.

The clock of a machine jumps, both ways, so a lease is not dead because the clock says so.  It is dead when whoever
watches it has seen it silent for its whole length, where a step of the clock counts as no more than the time between
two looks can have been, and a step back as nothing.  So a jump forward, or a process that was stopped for an hour,
kills no lease; a jump back keeps none alive.  What makes this safe is not the clock: a commit by a worker that lost
its lease fails, because the lease's attempt is compared within the transaction.

Between two jobs the smaller priority goes first, then the one that has been due for longer, then the smaller id.
"""

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from latewood.catalog.tables import JobKind
from latewood.types import JobId


class Candidate(NamedTuple):
    """A pending job that is due."""

    job_id: JobId
    kind: int
    db_id: int | None
    gate_kind: int
    """The kind whose gate it must pass; 0: none."""

    def is_served(self, kinds: Container[int]) -> bool:
        """Say whether somebody who handles these kinds can do it; a repair is for who handles what it repairs."""
        return (self.gate_kind if self.kind == JobKind.REPAIR else self.kind) in kinds


class LeaseState(NamedTuple):
    """A lease as the catalog shows it."""

    job_id: JobId
    attempt: int
    heartbeat_at_ms: int
    expires_at_ms: int


def pick(candidates: Iterable[Candidate], kinds: Container[int], may_pass: Callable[[Candidate], bool]) -> JobId | None:
    """Return the first of the candidates, which come in order, that is served and that its gate lets pass."""
    for candidate in candidates:
        if candidate.is_served(kinds) and (not candidate.gate_kind or may_pass(candidate)):
            return candidate.job_id
    return None


def is_heartbeat_due(last_ms: int, now_ms: int, heartbeat_ms: int) -> bool:
    """Say whether to renew now; after a jump of the clock, either way: yes."""
    return not last_ms <= now_ms < last_ms + heartbeat_ms


def elapsed_ms(last_ms: int | None, now_ms: int, step_ms_max: int) -> int:
    """Return how much time has certainly passed between two looks at a clock that may jump."""
    return 0 if last_ms is None else min(max(0, now_ms - last_ms), step_ms_max)


def redated(not_before_ms: int, updated_at_ms: int, now_ms: int) -> int | None:
    """Return when a retry is due if the clock went back since it was decided on; None if it did not.

    The pause is what was meant, not the time of day.
    """
    if updated_at_ms <= now_ms or not_before_ms <= now_ms:
        return None
    return now_ms + max(0, not_before_ms - updated_at_ms)


class _Silence(NamedTuple):
    attempt: int
    heartbeat_at_ms: int
    lease_ms: int
    silent_ms: int


class LeaseWatch:
    """What one watcher has seen of leases that are not its own.  Belongs to one thread."""

    def __init__(self, step_ms_max: int) -> None:
        """`step_ms_max` is the most that can really have passed between two looks."""
        self._step_ms_max = step_ms_max
        self._last_ms: int | None = None
        self._seen: dict[JobId, _Silence] = {}

    def look(self, now_ms: int, leases: Iterable[LeaseState]) -> list[LeaseState]:
        """Return those leases that are dead by now."""
        step_ms = elapsed_ms(self._last_ms, now_ms, self._step_ms_max)
        self._last_ms = now_ms
        before, self._seen = self._seen, {}
        dead = []
        for lease in leases:
            silence = _silence(before.get(lease.job_id), lease, step_ms)
            self._seen[lease.job_id] = silence
            if silence.silent_ms >= silence.lease_ms:
                dead.append(lease)
        return dead


def _silence(before: _Silence | None, lease: LeaseState, step_ms: int) -> _Silence:
    lease_ms = max(1, lease.expires_at_ms - lease.heartbeat_at_ms)
    if before is None or before.attempt != lease.attempt:
        return _Silence(lease.attempt, lease.heartbeat_at_ms, lease_ms, 0)
    # After a clock was set back, the end that is stored is further away than the lease is long.
    lease_ms = min(lease_ms, before.lease_ms)
    is_silent = before.heartbeat_at_ms == lease.heartbeat_at_ms
    return _Silence(lease.attempt, lease.heartbeat_at_ms, lease_ms, before.silent_ms + step_ms if is_silent else 0)
