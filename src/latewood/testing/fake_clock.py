"""A clock that stands still until a test moves it."""

from typing import Final

_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000

START_NS: Final = 1_772_452_800 * _SECOND
"""2026-03-02 12:00:00 UTC: noon, so that a test that moves an hour stays within one day's folder."""


class FakeClock:
    """Tells the time it was last given.  Moving it back is allowed: real clocks do that too."""

    def __init__(self, now_ns: int = START_NS) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Return the present time, in nanoseconds since 1970."""
        return self._now_ns

    def advance(self, ns: int = 0, *, seconds: int = 0, ms: int = 0) -> None:
        """Move the time on by the sum of the arguments."""
        self._now_ns += ns + seconds * _SECOND + ms * _MS

    def set(self, now_ns: int) -> None:
        """Make it any time at all."""
        self._now_ns = now_ns
