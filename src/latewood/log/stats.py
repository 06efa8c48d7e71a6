"""A log in figures."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LogStats:
    """What a log holds, at one moment."""

    path: Path
    first_sequence: int
    """The oldest record's."""
    next_sequence: int
    """That of the next record to be appended."""
    durable_sequence: int
    """Every record below it is durable."""
    segment_count: int
    """Sealed segments and the open one."""
    sealed_bytes: int
    """Bytes of all sealed segments' files."""
    active_segment_id: int
    active_bytes: int
    """Bytes written in the open segment."""
    manifest_generation: int
    kernel: str
    """`native` or `pure`."""

    @property
    def record_count(self) -> int:
        """Records that can be read."""
        return self.next_sequence - self.first_sequence
