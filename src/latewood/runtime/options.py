"""What a user may choose about a database."""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from latewood.catalog.tables import CompressionCodec, CompressionOptions, DbOptions, EncryptionOptions, RetentionOptions
from latewood.errors import UsageError
from latewood.limits import CHUNK_LEVEL_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, MiB
from latewood.runtime import sharding

SHARDS_MAX: Final = 4096
"""Each shard is a log of its own, with open files and mappings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """How a database is made.  Keys and shards are for ever; the rest holds for what is written from then on."""

    keyed: bool = True
    """Whether records may have keys.  Without, a record takes 4 bytes less, and `key` is refused."""

    segment_bytes_max: int = 64 * MiB
    """Of the logs of its shards."""

    segment_age_max_ms: int | None = None
    """Roll a segment that is this old, so that a quiet database reaches its chunks too."""

    chunk_bytes: int = 64 * MiB
    """About so large a chunk becomes."""

    compression_level: int = 1
    """Of zstd, in chunks."""

    key_id: str | None = None
    """Encrypt chunks with the key of this name; None: not at all.  Keys come from the store's settings."""

    retention_max_bytes: int | None = None
    """Chunks of all tiers together may take this much; the oldest go first."""

    retention_max_age_ms: int | None = None
    """A chunk whose youngest record is older goes."""

    evict_local_after_ms: int | None = None
    """An archived chunk's local file may go so long after its upload was verified; None: only on request."""

    purge_remote_after_ms: int | None = None
    """An object may go so long after retention let go of it."""

    grace_ms: int = 15 * 60 * 1000
    """What a compaction has replaced stays so long, for those who read it."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value out of bounds; the text says which.
        """
        _check("segment_bytes_max", self.segment_bytes_max, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
        _check("chunk_bytes", self.chunk_bytes, 1, 1 << 40)
        _check("compression_level", self.compression_level, 1, CHUNK_LEVEL_MAX)
        _check("grace_ms", self.grace_ms, 0, 1 << 40)
        for name in (
            "segment_age_max_ms",
            "retention_max_bytes",
            "retention_max_age_ms",
            "evict_local_after_ms",
            "purge_remote_after_ms",
        ):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), 0, 1 << 62)

    def stored(self, wal_dir: str, chunk_dir: str) -> DbOptions:
        """Return the same as the catalog stores it."""
        return DbOptions(
            wal_dir=wal_dir,
            chunk_dir=chunk_dir,
            compression=CompressionOptions(codec=CompressionCodec.ZSTD, level=self.compression_level),
            encryption=EncryptionOptions(key_id=self.key_id) if self.key_id else None,
            retention=RetentionOptions(
                max_bytes=self.retention_max_bytes,
                max_age_ms=self.retention_max_age_ms,
                evict_local_after_ms=self.evict_local_after_ms,
                purge_remote_after_ms=self.purge_remote_after_ms,
            ),
            keyed=self.keyed,
            segment_bytes_max=self.segment_bytes_max,
            segment_age_max_ms=self.segment_age_max_ms,
            chunk_bytes=self.chunk_bytes,
            grace_ms=self.grace_ms,
        )


def config_hash(shards: int, *, keyed: bool) -> bytes:
    """Return what a database must never change: how keys pick shards, and how records are laid out."""
    fixed = {"shards": shards, "sharding": sharding.NAME, "keyed": keyed}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).digest()


def check_shards(shards: int) -> int:
    """Return a number of shards that a database can have.

    Raises:
        UsageError: it cannot.
    """
    _check("shards", shards, 1, SHARDS_MAX)
    return shards


def _check(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        message = f"{name} must be a whole number from {low:,} to {high:,}, not {value!r}"
        raise UsageError(message)
