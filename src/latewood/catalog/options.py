"""What a user may choose about a catalog."""

from dataclasses import dataclass
from typing import Final

from latewood.errors import UsageError
from latewood.limits import KiB, MiB

_FOREVER: Final = 1 << 62
_MAP_BYTES_MIN: Final = 256 * KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """How a catalog grows, batches and keeps.  A catalog may be reopened with others."""

    map_bytes: int = 64 * MiB
    """Address space to begin with.  Costs no disk: the file grows with what is in it."""

    map_bytes_max: int = 64 * 1024 * MiB
    """Address space never grows beyond this; a batch that would need more fails with CatalogFull."""

    map_headroom_bytes: int = 8 * MiB
    """Grow when less than this is free, before a batch meets the end."""

    commit_budget_us: int = 500
    """When several producers commit, how long one commit may wait for the others.  One alone never waits."""

    queue_batches_max: int = 4096
    """Batches that may wait for the writer."""

    queue_wait_ms: int = 30_000
    """How long `commit` waits for a place in that queue, then Backpressure."""

    changes_max: int = 1_000_000
    """Changes kept for cursors.  Beyond, the oldest go, and a cursor that had not read them is told ChangesLost."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value out of bounds; the text says which.
        """
        _check("map_bytes", self.map_bytes, _MAP_BYTES_MIN, _FOREVER)
        _check("map_bytes_max", self.map_bytes_max, self.map_bytes, _FOREVER)
        _check("map_headroom_bytes", self.map_headroom_bytes, 0, _FOREVER)
        _check("commit_budget_us", self.commit_budget_us, 0, 1_000_000)
        _check("queue_batches_max", self.queue_batches_max, 1, 1 << 20)
        _check("queue_wait_ms", self.queue_wait_ms, 0, 1 << 40)
        _check("changes_max", self.changes_max, 1, _FOREVER)


def _check(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        message = f"{name} must be a whole number from {low:,} to {high:,}, not {value!r}"
        raise UsageError(message)
