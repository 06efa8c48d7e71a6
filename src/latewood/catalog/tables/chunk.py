"""`chunk_catalog`: every chunk of every database, and where its bytes are.

Key, `KEY_SIZE` bytes, big-endian:

| offset | size | field    | type | meaning                |
| -----: | ---: | -------- | ---- | ---------------------- |
|      0 |    8 | db_id    | u64  | the database           |
|      8 |    8 | chunk_id | u64  | the chunk's number     |

Value, version 2: `ChunkRecord`; version 1 lacks its last field.  Format: docs/format/catalog.md
"""

from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from latewood.catalog.tables.db import CompressionCodec
from latewood.catalog.tables.record import Record, Table, TupleKey
from latewood.limits import CHUNK_FILE_NAME_BYTES_MAX, U16_MAX

KEY_SIZE: Final = 16
VERSION: Final = 2
MARKS: Final = "marks"
"""Where a row keeps its marks, in `columns`."""

Mark: TypeAlias = tuple[int, int]
"""A generation of the catalog's chunks, and the last sequence that had become part of a chunk with it."""


class ChunkKey(NamedTuple):
    """One chunk of one database."""

    db_id: int
    chunk_id: int


class RemoteObject(Record, frozen=True, kw_only=True):
    """Where an archived chunk is, as its tier names it."""

    tier: str
    key: str
    etag: str | None = None
    version_id: str | None = None


class Local(Record, frozen=True, kw_only=True, tag=0):
    """In the database's chunk directory only."""


class LocalAndRemote(Record, frozen=True, kw_only=True, tag=1):
    """In the chunk directory and in a tier; may be evicted once verified."""

    object: RemoteObject
    verified: bool


class RemoteArchived(Record, frozen=True, kw_only=True, tag=2):
    """In a tier only."""

    object: RemoteObject
    verified: bool


class Evicted(Record, frozen=True, kw_only=True, tag=3):
    """Nowhere any more, by retention.  The row tells that it was."""


ChunkResidency: TypeAlias = Local | LocalAndRemote | RemoteArchived | Evicted


class ChunkRecord(Record, frozen=True, kw_only=True):
    """One chunk: its file, what of which shard it holds, and where it is."""

    file_name: Annotated[str, msgspec.Meta(min_length=1, max_length=CHUNK_FILE_NAME_BYTES_MAX)]
    generation: int
    """The catalog's generation at which it was made, or 0 if the maker did not know."""
    size_bytes: int
    compression: CompressionCodec
    encrypted: bool = False
    residency: ChunkResidency = Local()

    shard: Annotated[int, msgspec.Meta(ge=0, le=U16_MAX)]
    sequence_min: int
    sequence_max: int
    """The last sequence in it, counted in."""
    segment_min: int | None = None
    segment_max: int | None = None
    row_count: int
    ext_id_min: int | None = None
    ext_id_max: int | None = None
    timestamp_min_ns: int | None = None
    timestamp_max_ns: int | None = None
    checksum: int | None = None
    """CRC-32C of the whole file."""
    key_id: str | None = None
    """The key that it is encrypted with, if it is."""

    created_at_ms: int = 0
    uploaded_at_ms: int | None = None
    purge_after_ms: int | None = None
    supersedes: tuple[int, ...] = ()
    """The chunks that a compaction made this one from."""
    superseded_by: int | None = None
    origin_db_id: int | None = None
    """Of a fork: the database in whose directory the file is."""
    purging: bool = False
    """Whether its file and object are being deleted: it holds nothing any more."""
    columns: dict[str, Any] | None = None
    """What a maker may want to note about the columns."""
    cohorts: tuple[tuple[int, int], ...] = ()
    """Of the segments that its records came from: the first sequence of each, and its `ext_id`; none: all are of 0."""

    @property
    def is_live(self) -> bool:
        """Whether its records are read from it, and not from another that took its place."""
        return self.superseded_by is None and not self.purging and not isinstance(self.residency, Evicted)

    @property
    def marks(self) -> list[Mark]:
        """When which of its records had become part of a chunk."""
        stored = (self.columns or {}).get(MARKS)
        return [(mark[0], mark[1]) for mark in stored] if stored else [(self.generation, self.sequence_max)]

    @property
    def wal_range(self) -> tuple[int, int]:
        """First and last sequence."""
        return self.sequence_min, self.sequence_max


def _from_version_0(body: bytes) -> ChunkRecord:
    """Version 0 was a map, knew one shard, no row count but that of its range, and residency as a word."""
    old: dict[str, Any] = msgspec.msgpack.decode(body)
    first, last = old["wal_range"]
    residency: ChunkResidency = Local() if old["residency"] == "local" else Evicted()
    if old["residency"] == "remote":
        residency = RemoteArchived(object=RemoteObject(tier="archive", key=old["object"]), verified=old["verified"])
    return ChunkRecord(
        file_name=old["file_name"],
        generation=old["generation"],
        size_bytes=old["size_bytes"],
        compression=CompressionCodec(old["compression"]),
        encrypted=old["encrypted"],
        residency=residency,
        shard=0,
        sequence_min=first,
        sequence_max=last,
        row_count=last - first + 1,
        uploaded_at_ms=old["uploaded_at_epoch_ms"],
        purge_after_ms=old["purge_after_epoch_ms"],
    )


def _from_version_1(body: bytes) -> ChunkRecord:
    """Version 1 knew no cohorts: its array is one element shorter."""
    return msgspec.msgpack.decode(body, type=ChunkRecord)


CHUNK: Final = Table(
    "chunk_catalog",
    4,
    TupleKey(">QQ", ChunkKey),
    ChunkRecord,
    version=VERSION,
    older={0: _from_version_0, 1: _from_version_1},
)
