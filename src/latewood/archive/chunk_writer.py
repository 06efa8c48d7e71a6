"""Records into chunks, in flat memory.

Batches go in, files come out: each grows until it is about as large as the options say, gets its footer, is synced, and
only then its name.  Whatever breaks off leaves at most an unfinished file.   Format: docs/format/chunk.md
"""

import io
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latewood.archive.chunk import ChunkMeta, RowGroup, encode_mark, encode_meta, is_keyed, stored_schema, to_stored
from latewood.archive.cohorts import Cohorts, cohorts_within
from latewood.archive.crypt import EncryptingSink
from latewood.archive.keys import KeyRing
from latewood.archive.names import TOKEN_BYTES, ChunkName, RandomBytes
from latewood.archive.options import ChunkOptions
from latewood.archive.page import column_spans
from latewood.archive.sink import FileSink, Hook, Sink, no_hook
from latewood.archive.source import Digest
from latewood.archive.sums import RunningSums, check_contiguous
from latewood.clock import Clock, SystemClock
from latewood.errors import UsageError
from latewood.format.identity import Mark
from latewood.format.mark import mark_texts
from latewood.fs import FileSystem
from latewood.kernel import crc32c
from latewood.limits import CHUNK_ROW_GROUP_BYTES_MAX, CHUNK_ROW_GROUPS_MAX

_DICTIONARY: Final = ("timestamp_rest_ns", "ext_id", "key")
_ENCODING: Final = {
    "sequence": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "payload": "DELTA_LENGTH_BYTE_ARRAY",
}
_STATISTICS: Final = ("sequence", "timestamp", "ext_id")
"""Not of keys and payloads: they would stand in the footer in the clear, and prune nothing."""


class SegmentStart(NamedTuple):
    """Where a segment begins in its log."""

    segment_id: int
    sequence: int
    cohort: int = 0
    """Its `ext_id`."""


class Chunk(NamedTuple):
    """One chunk file, durable under its name."""

    path: Path
    name: ChunkName
    digest: Digest
    """Of the file as it is, encrypted if it is."""
    meta: ChunkMeta
    key_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSite:
    """Where chunks of one shard are made, and with what."""

    fs: FileSystem
    directory: Path
    database: str
    database_id: int
    shard: int
    options: ChunkOptions = field(default_factory=ChunkOptions)
    keys: KeyRing | None = None
    """If given, chunks are encrypted with the current one."""
    clock: Clock = field(default_factory=SystemClock)
    random_bytes: RandomBytes = secrets.token_bytes
    hook: Hook = no_hook
    """Called after each of `FILE_STEPS`, for each chunk."""


class Origin(NamedTuple):
    """Where the records of chunks come from."""

    segments: Sequence[SegmentStart] = ()
    """The segments of the log, in order; none if it is not known."""
    segment_range: tuple[int | None, int | None] = (None, None)
    """What to say if there are no `segments`."""
    cohorts: Cohorts = ()
    """Where cohorts begin, if there are no `segments`."""
    parents: tuple[str, ...] = ()
    mark: Mark | None = None
    """Of the log that they came from."""


UNKNOWN: Final = Origin()
"""Nobody knows."""


def write_chunks(site: ChunkSite, batches: Iterable[Any], origin: Origin = UNKNOWN) -> Iterator[Chunk]:
    """Yield the chunks that batches of records become, each durable when it is yielded.

    Whoever stops after one of them goes on later from the sequence behind it.

    Raises:
        UsageError: the batches are not records of contiguous sequences, or one of them does not fit a row group.
        DiskFull, StorageError: the disk refused; chunks yielded before are safe.
    """
    writer: ChunkWriter | None = None
    try:
        for batch in batches:
            for piece in _pieces(batch, site.options):
                writer = writer or ChunkWriter(site, piece, origin)
                writer.write(piece)
                if writer.is_full:
                    finished, writer = writer, None
                    yield finished.finish()
        if writer is not None:
            finished, writer = writer, None
            yield finished.finish()
    finally:
        if writer is not None:
            writer.abandon()


class ChunkWriter:
    """One chunk that grows.  `write_chunks` is how to use it."""

    def __init__(self, site: ChunkSite, first: Any, origin: Origin) -> None:
        """Begin a chunk with the sequence, and the columns, of a batch that is then to be written."""
        self._site, self._origin, self._options = site, origin, site.options
        self._keyed = is_keyed(first.schema)
        self._schema = first.schema
        self._token = site.random_bytes(TOKEN_BYTES).hex()
        self._first = self._next = first.column("sequence")[0].as_py()
        ChunkName.checked(site.shard, self._first, self._first, self._token)
        self._sums, self._ranges = RunningSums(), _Ranges()
        self._group, self._groups = _Group(), list[RowGroup]()
        self._file = FileSink(site.fs, site.directory, self._token, site.hook)
        try:
            self._cipher = EncryptingSink(self._file, site.keys, random_bytes=site.random_bytes) if site.keys else None
            self._handle = _Handle(self._cipher or self._file)
            self._parquet = _parquet_writer(self._handle, self._schema_stored, site.options)
            self._handle.take()
        except BaseException:
            self._file.abandon()
            raise

    @property
    def _schema_stored(self) -> Any:
        return stored_schema(keyed=self._keyed)

    @property
    def is_full(self) -> bool:
        """Whether another row group would make the file larger than it should be."""
        if self._group.rows or not self._groups:
            return False
        size, count = self._file.digest.size, len(self._groups)
        return size + size // count > self._options.chunk_bytes or count >= CHUNK_ROW_GROUPS_MAX

    def write(self, batch: Any) -> None:
        """Add records, which go on where the last ones ended."""
        if not batch.schema.equals(self._schema):
            raise UsageError("all batches of a chunk have the same columns")
        self._next = check_contiguous(batch, self._next)
        self._sums.add(batch)
        self._group.add(batch)
        if self._group.rows >= self._options.row_group_rows or self._group.bytes >= self._options.row_group_bytes:
            self._end_group()

    def finish(self) -> Chunk:
        """Write the footer and give the file its name, durably."""
        try:
            if self._group.rows:
                self._end_group()
            meta = self._meta()
            self._end_file(meta)
            name = meta.name(encrypted=self._cipher is not None)
            path = self._file.publish(name.file_name)
        except BaseException:
            self.abandon()
            raise
        return Chunk(path, name, self._file.digest, meta, self._site.keys.current_id if self._site.keys else None)

    def abandon(self) -> None:
        """Remove what is unfinished."""
        self._handle.drop()
        with suppress(pa.ArrowException, OSError):
            self._parquet.close()  # Left open, it would write a footer when it is collected.
        self._file.abandon()

    def _end_file(self, meta: ChunkMeta) -> None:
        sink = self._cipher or self._file
        self._handle.drop()
        self._parquet.add_key_value_metadata(encode_meta(meta))
        self._parquet.close()
        footer = self._handle.take()
        sink.write(encode_mark(footer))
        sink.write(footer)
        if self._cipher:
            self._cipher.finish()

    def _end_group(self) -> None:
        group, self._group = self._group, _Group()
        ranges = _Ranges()
        for batch in group.batches:
            ranges.add(batch)
        self._ranges.join(ranges)
        table = pa.Table.from_batches([to_stored(batch) for batch in group.batches], schema=self._schema_stored)
        self._parquet.write_table(table, row_group_size=group.rows)
        raw = memoryview(self._handle.take())
        spans = column_spans(raw, group.rows, len(self._schema_stored))
        self._groups.append(
            RowGroup(
                rows=group.rows,
                timestamp_min_ns=ranges.timestamp[0],
                timestamp_max_ns=ranges.timestamp[1],
                sums=group.sums.columns(),
                stored=tuple(crc32c(raw[start:stop]) for start, stop in spans),
            )
        )

    def _meta(self) -> ChunkMeta:
        count = self._next - self._first
        log, life = mark_texts(self._origin.mark)
        starts = [(segment.sequence, segment.cohort) for segment in self._origin.segments]
        cohorts = starts or self._origin.cohorts
        low, high = segment_range(self._origin.segments, self._first, self._next - 1) or self._origin.segment_range
        return ChunkMeta(
            token=self._token,
            database=self._site.database,
            database_id=self._site.database_id,
            shard=self._site.shard,
            sequence_min=self._first,
            sequence_max=self._next - 1,
            row_count=count,
            segment_min=low,
            segment_max=high,
            ext_id_min=self._ranges.ext_id[0],
            ext_id_max=self._ranges.ext_id[1],
            timestamp_min_ns=self._ranges.timestamp[0],
            timestamp_max_ns=self._ranges.timestamp[1],
            payload_bytes=self._sums.payload_bytes,
            checksum=self._sums.over(self._first, count),
            writer=f"latewood {_program_version()}",
            created_ns=self._site.clock.now_ns(),
            parents=self._origin.parents,
            log=log,
            life=life,
            cohorts=cohorts_within(cohorts, self._first, self._next - 1),
            row_groups=tuple(self._groups),
        )


def segment_range(segments: Sequence[SegmentStart], sequence_min: int, sequence_max: int) -> tuple[int, int] | None:
    """Return the first and the last of `segments`, which are in order, with records of a range; None if none is."""
    ends = [*(segment.sequence for segment in segments[1:]), sequence_max + 1]
    found = [
        segment.segment_id
        for segment, end in zip(segments, ends, strict=False)
        if segment.sequence <= sequence_max and sequence_min < end
    ]
    return (found[0], found[-1]) if found else None


class _Group:
    """Batches that wait to become a row group."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.rows = self.bytes = 0
        self.sums = RunningSums()

    def add(self, batch: Any) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        self.sums.add(batch)


class _Ranges:
    """Smallest and largest timestamp and ext_id."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[int, int]] = {}

    def add(self, batch: Any) -> None:
        for name, kind in (("timestamp", pa.int64()), ("ext_id", pa.uint64())):
            found = pc.min_max(batch.column(name).view(kind))
            self._take(name, found["min"].as_py(), found["max"].as_py())

    def join(self, other: "_Ranges") -> None:
        for name, (low, high) in other._all.items():  # noqa: SLF001 - one of its kind
            self._take(name, low, high)

    def _take(self, name: str, low: int, high: int) -> None:
        known = self._all.get(name, (low, high))
        self._all[name] = min(known[0], low), max(known[1], high)

    @property
    def timestamp(self) -> tuple[int, int]:
        return self._all["timestamp"]

    @property
    def ext_id(self) -> tuple[int, int]:
        return self._all["ext_id"]


class _Handle(io.RawIOBase):
    """A sink as the Parquet library wants it: a file that is never closed.  It keeps what was written until `take`."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink: Sink | None = sink
        self._kept: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._kept.append(piece)
        return self._sink.write(piece) if self._sink else len(piece)

    def drop(self) -> None:
        """Hand on nothing any more."""
        self._sink = None

    def take(self) -> bytes:
        """Return what was written since the last time."""
        kept, self._kept = b"".join(self._kept), []
        return kept


def _parquet_writer(handle: _Handle, schema: Any, options: ChunkOptions) -> Any:
    return pq.ParquetWriter(
        pa.PythonFile(handle, mode="w"),
        schema,
        compression="zstd",
        compression_level=options.compression_level,
        use_dictionary=[name for name in _DICTIONARY if name in schema.names],
        column_encoding=_ENCODING,
        write_statistics=list(_STATISTICS),
        write_page_checksum=True,
        store_schema=False,
        sorting_columns=[pq.SortingColumn(0)],
    )


def _pieces(batch: Any, options: ChunkOptions) -> Iterator[Any]:
    """Yield parts of a batch that fit a row group, in order."""
    rows, size = batch.num_rows, batch.nbytes
    if rows == 1 and size > CHUNK_ROW_GROUP_BYTES_MAX // 2:
        raise UsageError(f"a record of {size:,} bytes does not fit a chunk: {CHUNK_ROW_GROUP_BYTES_MAX // 2:,} do")
    if rows <= 1 or (rows <= options.row_group_rows and size <= options.row_group_bytes):
        yield from [batch] if rows else []
        return
    half = rows // 2
    yield from _pieces(batch.slice(0, half), options)
    yield from _pieces(batch.slice(half), options)


def _program_version() -> str:
    try:
        return version("latewood")
    except PackageNotFoundError:
        return "0+unknown"
