"""How chunks are cut."""

from dataclasses import dataclass, replace
from typing import Final, Self

from latewood.errors import UsageError
from latewood.limits import CHUNK_LEVEL_MAX, CHUNK_ROW_GROUP_BYTES_MAX, CHUNK_ROW_GROUP_ROWS_MAX, MiB

_CHUNK_BYTES_MAX: Final = 1 << 40
"""No chunk is as large as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """Sizes and compression of chunks."""

    chunk_bytes: int = 64 * MiB
    """About so large a file becomes. Larger: fewer objects, more memory for an upload."""

    row_group_bytes: int = 16 * MiB
    """Keys and payloads in one row group, about. It is what a reader holds in memory at a time."""

    row_group_rows: int = 131_072
    """Rows in one row group at most."""

    compression_level: int = 1
    """Of zstd. Higher ones take longer, and gain little on most payloads."""

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        bounds = {
            "chunk_bytes": (1, _CHUNK_BYTES_MAX),
            "row_group_bytes": (1, CHUNK_ROW_GROUP_BYTES_MAX // 4),
            "row_group_rows": (1, CHUNK_ROW_GROUP_ROWS_MAX),
            "compression_level": (1, CHUNK_LEVEL_MAX),
        }
        for name, (least, most) in bounds.items():
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"{name} must be from {least:,} to {most:,}, not {getattr(self, name):,}")

    def uncut(self) -> Self:
        """Return the same, with which records become one chunk, however many they are."""
        return replace(self, chunk_bytes=_CHUNK_BYTES_MAX)
