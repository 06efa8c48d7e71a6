"""What a chunk is: its columns, and what its footer says about it.

A chunk is one Parquet file with a contiguous range of one shard's records, in the order of their sequences.  The
Parquet footer carries two texts of ours:

`latewood.version`    the version of all this
`latewood.chunk`      `ChunkMeta` as JSON

Parquet has no checksum of its footer, and a library that is handed a damaged one may do anything, so in front of it
stands a mark, `MARK_SIZE` bytes:

| offset | size | field    | type | meaning                                           |
| -----: | ---: | -------- | ---- | ------------------------------------------------- |
|      0 |    8 | magic    | [u8] | "LWFOOTER"                                        |
|      8 |    2 | version  | u16  | 1                                                 |
|     10 |    2 | reserved | u16  | 0                                                 |
|     12 |    4 | checksum | u32  | CRC-32C of the 12 bytes before, then of all behind |

Little-endian.  To whoever reads Parquet it is a gap between columns and footer, which is allowed.

Invariant: row counts of the row groups add up to `row_count`, which is `sequence_max` - `sequence_min` + 1.
Pure: no I/O.   Format: docs/format/chunk.md
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from latewood.archive.cohorts import Cohorts, are_cohorts_of
from latewood.archive.names import ChunkName
from latewood.errors import AnotherLog, CorruptError, UnsupportedVersion, UsageError
from latewood.format.identity import Mark
from latewood.format.mark import parse_mark
from latewood.kernel import crc32c
from latewood.log.arrow import SCHEMA

VERSION: Final = 1
MAGIC: Final = b"LWFOOTER"
MARK_SIZE: Final = 16
_MARK: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "H"  # reserved
    "I"  # checksum
)
assert _MARK.size == MARK_SIZE
_SUMMED_BYTES: Final = 12

VERSION_KEY: Final = b"latewood.version"
META_KEY: Final = b"latewood.chunk"

KEY: Final = pa.field("key", pa.binary(), nullable=True)
KEYED_SCHEMA: Final = SCHEMA.insert(SCHEMA.get_field_index("payload"), KEY)
"""Records of a database with keys, in memory."""

_STORED_TIME: Final = (
    pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("timestamp_rest_ns", pa.int16(), nullable=False),
)
_NS_IN_US: Final = 1000
_ANOTHER_MEND: Final = (
    "it was copied from another database, or the shard's log was made anew: move the chunk away, or bring the log back "
    "from a backup"
)


class ColumnSums(msgspec.Struct, frozen=True, kw_only=True):
    """CRC-32C of each column; `latewood.archive.sums` says over which bytes."""

    timestamp: int
    ext_id: int
    payload: int
    key: int | None = None
    """None if there are no keys."""


class RowGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What one row group holds: enough to pass over it, and to prove what was read from it."""

    rows: int
    timestamp_min_ns: int
    timestamp_max_ns: int
    sums: ColumnSums
    stored: tuple[int, ...]
    """CRC-32C of the bytes of each column as they are in the file, page headers included, in the order of columns."""


class ChunkMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk says about itself."""

    token: str
    """The chunk's own id; its file is named after it."""
    database: str
    database_id: int
    shard: int
    sequence_min: int
    sequence_max: int
    """The last sequence in it, counted in."""
    row_count: int
    segment_min: int | None
    segment_max: int | None
    """The segments that the records came from, both counted in; None if nobody knew."""
    ext_id_min: int
    ext_id_max: int
    timestamp_min_ns: int
    timestamp_max_ns: int
    payload_bytes: int
    """Length of all payloads together."""
    checksum: int
    """Over all records, whatever the row groups are: equal for a chunk, for the log that it was made from, and for
    what a compaction makes of it."""
    writer: str
    """The program that wrote it, with its version."""
    created_ns: int
    parents: tuple[str, ...] = ()
    """Tokens of the chunks that a compaction made this one from, in order."""
    log: str | None = None
    """The identity of the log that the records came from; None: it had none, or a fork joined chunks of several."""
    life: str | None = None
    """The life that the log was in when the chunk was made; of parents from several lives, that of the last one."""
    cohorts: Cohorts = ()
    """Of the segments that the records came from, each with the first sequence that is of it."""
    row_groups: tuple[RowGroup, ...]

    def name(self, *, encrypted: bool) -> ChunkName:
        """Return the name that its file has."""
        return ChunkName(self.shard, self.sequence_min, self.sequence_max, self.token, encrypted)

    @property
    def mark(self) -> Mark | None:
        """Return `log` and `life` as one."""
        return parse_mark(self.log, self.life)


def encode_meta(meta: ChunkMeta) -> dict[bytes, bytes]:
    """Return the texts for a Parquet footer."""
    return {VERSION_KEY: str(VERSION).encode(), META_KEY: msgspec.json.encode(meta)}


def decode_meta(texts: Mapping[bytes, bytes] | None, path: Path) -> ChunkMeta:
    """Return what a Parquet footer says.

    Raises:
        CorruptError: it is not that of a chunk, or not as it was written.
        UnsupportedVersion: a later program wrote it.
    """
    texts = texts or {}
    version, text = texts.get(VERSION_KEY, b""), texts.get(META_KEY, b"")
    if not version.isdigit():
        raise CorruptError("the Parquet footer is not that of a chunk", path, 0)
    if int(version) != VERSION:
        raise UnsupportedVersion("chunk", int(version), path)
    try:
        meta = msgspec.json.decode(text, type=ChunkMeta)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the chunk's description cannot be read: {error}", path, 0) from None
    _check_counts(meta, path)
    try:
        parse_mark(meta.log, meta.life)
    except ValueError as error:
        raise CorruptError(f"the chunk's description cannot be read: {error}", path, 0) from None
    return meta


def check_log(meta: ChunkMeta, identity: bytes | None, path: Path) -> None:
    """Raise if a chunk's records came from another log than the shard's.

    Its life does not count: a log that lost records may have chunks of them.  A chunk that names no log is of any, and
    so is every chunk if `identity` is None.

    Raises:
        AnotherLog: they did.
    """
    if identity is None or meta.mark is None or meta.mark.identity == identity:
        return
    reason = f"the chunk is of the log {meta.log}, and shard {meta.shard} is the log {identity.hex()}"
    raise AnotherLog(reason, path, _ANOTHER_MEND)


def encode_mark(rest: bytes) -> bytes:
    """Return the mark in front of a Parquet footer; `rest` is that footer and all behind it."""
    head = _MARK.pack(MAGIC, VERSION, 0, 0)[:_SUMMED_BYTES]
    return head + crc32c(rest, crc32c(head)).to_bytes(4, "little")


def check_mark(mark: bytes, rest: bytes | memoryview, path: Path, offset: int) -> None:
    """Raise unless a Parquet footer is what was written.

    Raises:
        CorruptError: it is not, or has no mark.
        UnsupportedVersion: a later program wrote it.
    """
    magic, version, _, checksum = _MARK.unpack(mark)
    if magic != MAGIC:
        raise CorruptError("this Parquet file is no chunk, or its footer is damaged", path, offset)
    if version != VERSION:
        raise UnsupportedVersion("chunk", version, path)
    if crc32c(rest, crc32c(mark[:_SUMMED_BYTES])) != checksum:
        raise CorruptError("the footer does not match its checksum", path, offset)


def memory_schema(*, keyed: bool) -> Any:
    """Return the columns of records in memory, as the log hands them out."""
    return KEYED_SCHEMA if keyed else SCHEMA


def stored_schema(*, keyed: bool) -> Any:
    """Return the columns of a Parquet file."""
    fields = [field for field in memory_schema(keyed=keyed) if field.name != "timestamp"]
    return pa.schema([fields[0], *_STORED_TIME, *fields[1:]])


def is_keyed(schema: Any) -> bool:
    """Say whether batches of this schema have keys.

    Raises:
        UsageError: they are not records.
    """
    for keyed in (False, True):
        if schema.equals(memory_schema(keyed=keyed)):
            return keyed
    raise UsageError(f"a chunk is made of {', '.join(KEYED_SCHEMA.names)} as the log hands them out, not of {schema}")


def to_stored(batch: Any) -> Any:
    """Return records as a Parquet file has them: time in microseconds, and what is beyond those."""
    nanoseconds = batch.column("timestamp").view(pa.int64())
    microseconds = pc.divide(nanoseconds, _NS_IN_US)
    rest = pc.subtract(nanoseconds, pc.multiply(microseconds, _NS_IN_US)).cast(pa.int16())
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {"timestamp": microseconds.view(_STORED_TIME[0].type), "timestamp_rest_ns": rest}
    schema = stored_schema(keyed="key" in columns)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def stored_columns(columns: list[str]) -> list[str]:
    """Return which columns of a Parquet file make up these columns of records."""
    return [
        stored for name in columns for stored in (["timestamp", "timestamp_rest_ns"] if name == "timestamp" else [name])
    ]


def from_stored(table: Any, columns: list[str], sequence: int, *, keyed: bool) -> Any:
    """Return columns of records from those of a Parquet file, as one batch without copying payloads."""
    fields = memory_schema(keyed=keyed)
    arrays = [_array_of(table, name, sequence) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([fields.field(name) for name in columns]))


def _array_of(table: Any, name: str, sequence: int) -> Any:
    if name == "sequence":
        return pa.arange(sequence, sequence + table.num_rows)
    if name != "timestamp":
        return _whole(table.column(name))
    microseconds = _whole(table.column("timestamp")).view(pa.int64())
    nanoseconds = pc.add(
        pc.multiply(microseconds, _NS_IN_US), _whole(table.column("timestamp_rest_ns")).cast(pa.int64())
    )
    return nanoseconds.view(SCHEMA.field("timestamp").type)


def _whole(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _check_counts(meta: ChunkMeta, path: Path) -> None:
    rows = sum(group.rows for group in meta.row_groups)
    if not 0 < meta.row_count == rows == meta.sequence_max - meta.sequence_min + 1:
        raise CorruptError("the chunk's description does not add up", path, 0)
    if not are_cohorts_of(meta.cohorts, meta.sequence_min, meta.sequence_max):
        raise CorruptError("the chunk's cohorts are not those of its records", path, 0)
