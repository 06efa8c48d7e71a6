"""Backoff: how long a job that failed waits for its next attempt.  Pure; chance is handed in."""

from dataclasses import dataclass
from typing import Final

from latewood.errors import UsageError

_DOUBLINGS_MAX: Final = 62
"""Beyond, no pause of milliseconds is below its bound any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that double with each attempt, up to a bound, and are shortened by chance."""

    first_ms: int = 1_000
    """Before the second attempt."""

    max_ms: int = 300_000
    """No pause is longer: what failed for a while must not wait for hours once its cause is gone."""

    jitter: float = 0.5
    """Up to this share of a pause is taken off by chance, so that jobs that failed together do not return together."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value out of bounds.
        """
        if not 0 < self.first_ms <= self.max_ms or not 0 <= self.jitter <= 1:
            message = f"a pause grows from above 0 to max_ms, and jitter is a share: not {self}"
            raise UsageError(message)

    def pause_ms(self, attempt: int, chance: float) -> int:
        """Return the pause after attempt number `attempt` (from 1), for a chance from 0 up to 1."""
        longest_ms = min(self.max_ms, self.first_ms << min(max(attempt - 1, 0), _DOUBLINGS_MAX))
        return max(1, round(longest_ms * (1 - self.jitter * chance)))
