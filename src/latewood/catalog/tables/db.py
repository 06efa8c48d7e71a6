"""`db`: the databases, and `db_name`: which of them has a name.

Key of `db`, `KEY_SIZE` bytes, big-endian:

| offset | size | field | type | meaning                      |
| -----: | ---: | ----- | ---- | ---------------------------- |
|      0 |    8 | db_id | u64  | 1, 2, 3 …, never used again  |

Value, version 2: `DbRecord`; version 1 lacks its last two fields.  Key of `db_name`: the name, UTF-8, as
`limits.check_name` allows it; value: `DbNameRecord`.  A tombstoned database gives its name up.
Format: docs/format/catalog.md
"""

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from latewood.catalog.tables.record import NameKey, NumberKey, Record, Table
from latewood.format.identity import IDENTITY_BYTES
from latewood.limits import U16_MAX, MiB

KEY_SIZE: Final = 8
CONFIG_HASH_SIZE: Final = 32
VERSION: Final = 2
NAME_VERSION: Final = 1


class CompressionCodec(StrEnum):
    """How the bytes of a chunk are compressed."""

    NONE = "none"
    SNAPPY = "snappy"
    ZSTD = "zstd"
    LZ4 = "lz4"
    GZIP = "gzip"


class CompressionOptions(Record, frozen=True, kw_only=True):
    """How new chunks are compressed."""

    codec: CompressionCodec = CompressionCodec.ZSTD
    level: int | None = None
    """None: the codec's own default."""


class EncryptionOptions(Record, frozen=True, kw_only=True):
    """How new chunks are encrypted.  Names a key, never holds one."""

    algorithm: str = "aes-256-gcm"
    key_id: str


class RetentionOptions(Record, frozen=True, kw_only=True):
    """What may be deleted; None: never for that reason."""

    max_bytes: int | None = None
    max_age_ms: int | None = None
    ignore_readers_silent_ms: int | None = None
    evict_local_after_ms: int | None = None
    """An archived chunk's local file goes so long after its upload was verified."""
    purge_remote_after_ms: int | None = None


class DbOptions(Record, frozen=True, kw_only=True):
    """Where a database lives, and how its chunks are made and kept."""

    wal_dir: str
    chunk_dir: str
    compression: CompressionOptions = CompressionOptions()
    encryption: EncryptionOptions | None = None
    retention: RetentionOptions = RetentionOptions()
    keyed: bool = True
    """Whether its records may have keys."""
    segment_bytes_max: int = 64 * MiB
    segment_age_max_ms: int | None = None
    chunk_bytes: int = 64 * MiB
    grace_ms: int = 15 * 60 * 1000
    """What a compaction has replaced stays so long, for those who read it."""


class DbActive(Record, frozen=True, kw_only=True, tag=0):
    """Takes appends and jobs."""


class DbDraining(Record, frozen=True, kw_only=True, tag=1):
    """Takes no more appends; its jobs run out."""


class DbTombstoned(Record, frozen=True, kw_only=True, tag=2):
    """Gone; its rows stay until a purge."""

    tombstoned_at_ms: int


DbLifecycle: TypeAlias = DbActive | DbDraining | DbTombstoned


class DbRecord(Record, frozen=True, kw_only=True):
    """One database: what it is called, how it is set up, whether it lives."""

    name: str
    created_at_ms: int
    config_hash: Annotated[bytes, msgspec.Meta(min_length=CONFIG_HASH_SIZE, max_length=CONFIG_HASH_SIZE)]
    wal_shards: Annotated[int, msgspec.Meta(ge=1, le=U16_MAX)]
    options: DbOptions
    status: DbLifecycle = DbActive()
    identity: Annotated[bytes, msgspec.Meta(min_length=IDENTITY_BYTES, max_length=IDENTITY_BYTES)] | None = None
    """16 random bytes from its birth; None: an older program made it, and no store was opened to write since."""
    logs: bytes = b""
    """The identities of the logs of its shards, one behind the other; empty as long as it has none itself."""

    def log_identity(self, shard: int) -> bytes | None:
        """Return which log the log of a shard is; None: nobody has noted it yet."""
        return self.logs[shard * IDENTITY_BYTES : (shard + 1) * IDENTITY_BYTES] or None


class DbNameRecord(Record, frozen=True, kw_only=True):
    """Which database has this name."""

    db_id: int


def _from_version_0(body: bytes) -> DbRecord:
    """Version 0 was a map, had one codec name for the compression, no retention, and a number as lifecycle."""
    old: dict[str, Any] = msgspec.msgpack.decode(body)
    lifecycles: dict[int, DbLifecycle] = {0: DbActive(), 1: DbDraining()}
    options = old["options"]
    return DbRecord(
        name=old["name"],
        created_at_ms=old["created_at_epoch_ms"],
        config_hash=old["config_hash"],
        wal_shards=old["wal_shards"],
        options=DbOptions(
            wal_dir=options["wal_dir"],
            chunk_dir=options["chunk_dir"],
            compression=CompressionOptions(codec=CompressionCodec(options["compression"])),
        ),
        status=lifecycles.get(old["status"]) or DbTombstoned(tombstoned_at_ms=old["tombstoned_at_epoch_ms"]),
    )


def _from_version_1(body: bytes) -> DbRecord:
    """Version 1 knew no identities: its array is two elements shorter."""
    return msgspec.msgpack.decode(body, type=DbRecord)


DB: Final = Table("db", 1, NumberKey(), DbRecord, version=VERSION, older={0: _from_version_0, 1: _from_version_1})
DB_NAME: Final = Table("db_name", 2, NameKey(), DbNameRecord, version=NAME_VERSION, is_logged=False)
