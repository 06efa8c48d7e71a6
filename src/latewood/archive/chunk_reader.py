"""A chunk, read from any source: a file, an encrypted one, an object in a tier.

Nothing is believed before it is checked.  The footer's length is held against the file, the footer against its
checksum, its row groups against what a row group may take.  The bytes of a column are held against their checksum, and
the headers of its pages against the same bounds, before the Parquet library sees them; what it made of them against the
checksum of the records, before one is handed out.

Holds two row groups in memory.  Not thread-safe.   Format: docs/format/chunk.md
"""

import io
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latewood.archive import crypt
from latewood.archive.chunk import (
    MARK_SIZE,
    ChunkMeta,
    RowGroup,
    check_log,
    check_mark,
    decode_meta,
    from_stored,
    memory_schema,
    stored_columns,
    stored_schema,
)
from latewood.archive.crypt import DecryptingSource
from latewood.archive.keys import KeyRing
from latewood.archive.page import BadPage, check_pages
from latewood.archive.source import FileSource, Source
from latewood.archive.sums import RunningSums
from latewood.errors import CorruptError, KeyNotFound, UsageError
from latewood.fs import FileSystem
from latewood.kernel import crc32c
from latewood.limits import (
    ARROW_RECORDS_MAX,
    CHUNK_FOOTER_BYTES_MAX,
    CHUNK_ROW_GROUP_BYTES_MAX,
    CHUNK_ROW_GROUP_ROWS_MAX,
    CHUNK_ROW_GROUPS_MAX,
    KiB,
)

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_END_BYTES: Final = 64 * KiB
"""What the Parquet library asks for first, too."""
_SUMMED: Final = ("timestamp", "ext_id", "key", "payload")


def open_chunk(fs: FileSystem, path: Path, keys: KeyRing | None = None) -> "ChunkReader":
    """Open a chunk file, encrypted or not.

    Raises:
        NotFoundError: there is no such file.
        CorruptError, KeyNotFound, UnsupportedVersion: as `ChunkReader`.
    """
    return ChunkReader(FileSource(fs, path), keys)


def checked_log(reader: "ChunkReader", identity: bytes | None) -> "ChunkReader":
    """Return a reader of a chunk whose records came from the log of this identity; None: from any.

    Raises:
        AnotherLog: they came from another one; the reader is closed.
    """
    try:
        check_log(reader.meta, identity, reader.path)
    except BaseException:
        reader.close()
        raise
    return reader


class ChunkReader:
    """One chunk.  Closes its source."""

    def __init__(self, source: Source, keys: KeyRing | None = None) -> None:
        """Read the footer.

        Raises:
            CorruptError: this is no chunk, or not as it was written.
            KeyNotFound: it is encrypted, and the key is not among those given.
            UnsupportedVersion: a later program wrote it.
        """
        self._source = source
        self._lock = threading.Lock()
        """Around what is read: the stretches in memory are those of one row group."""
        try:
            self.path = source.path
            self._decrypting = _decrypted(source, keys)
            self._source = self._decrypting or source
            self._window = _Window(self._source)
            self._footer_at = _check_tail(self._window, self.path)
            with self._damage():
                self._parquet = _parquet_file(self._window)
                self._layout = self._parquet.metadata
                texts = self._layout.metadata
                self._schema = self._parquet.schema_arrow
            self.meta = decode_meta(texts, self.path)
            self.keyed = "key" in self._schema.names
            self._check_layout()
        except BaseException:
            self._source.close()
            raise

    @property
    def key_id(self) -> str | None:
        """The key that it is encrypted with, if it is."""
        return self._decrypting.key_id if self._decrypting else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the source."""
        self._source.close()

    def batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        rows_max: int = ARROW_RECORDS_MAX,
    ) -> Iterator[Any]:
        """Yield records from sequence `start` up to `stop`, of those that are here, as the log's Arrow batches.

        Only `columns` are read, by default all, and only the row groups that are needed.

        Raises:
            CorruptError: what was read is not what was written.
            UsageError: there is no such column.
        """
        names = self._names(columns)
        first = self.meta.sequence_min if start is None else max(start, self.meta.sequence_min)
        end = self.meta.sequence_max + 1 if stop is None else min(stop, self.meta.sequence_max + 1)
        wanted = [
            (number, sequence)
            for number, sequence, group in self._groups()
            if max(first, sequence) < min(end, sequence + group.rows)
        ]
        for sequence, batch in self._ahead(wanted, names):
            low, high = max(first, sequence), min(end, sequence + batch.num_rows)
            for at in range(low, high, rows_max):
                yield batch.slice(at - sequence, min(rows_max, high - at))

    def find_timestamp(self, timestamp_ns: int) -> int:
        """Return the sequence of the first record that is not older, or the one behind the last if all are.

        Row groups that are older throughout are passed over.

        Raises:
            CorruptError: what was read is not what was written.
        """
        for number, sequence, group in self._groups():
            if group.timestamp_max_ns >= timestamp_ns:
                times = self._group(number, sequence, ["timestamp"]).column("timestamp").view(pa.int64())
                at: int = pc.index(pc.greater_equal(times, timestamp_ns), value=True).as_py()
                if at >= 0:
                    return sequence + at
        return self.meta.sequence_max + 1

    def verify(self) -> ChunkMeta:
        """Read everything and check it: each checksum, count, order, range and gap.

        Raises:
            CorruptError: something is not as it was written.
        """
        names, total = self._names(None), RunningSums()
        for number, sequence, group in self._groups():
            batch = self._group(number, sequence, names, check_sequences=True)
            total.add(batch)
            found = pc.min_max(batch.column("timestamp").view(pa.int64()))
            if (found["min"].as_py(), found["max"].as_py()) != (group.timestamp_min_ns, group.timestamp_max_ns):
                raise self._corrupt(f"the timestamps of row group {number} are not in the range that it declares")
        if total.over(self.meta.sequence_min, self.meta.row_count) != self.meta.checksum:
            raise self._corrupt("the records do not match the checksum of the chunk")
        if total.payload_bytes != self.meta.payload_bytes:
            raise self._corrupt("the payloads are not as long as the chunk declares")
        return self.meta

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        known = memory_schema(keyed=self.keyed).names
        names = known if columns is None else list(columns)
        if unknown := [name for name in names if name not in known]:
            raise UsageError(f"no column {unknown[0]!r}; there are {', '.join(known)}")
        if not names or len(set(names)) != len(names):
            raise UsageError("name at least one column, and each once")
        return names

    def _groups(self) -> Iterator[tuple[int, int, RowGroup]]:
        """Yield number, first sequence and description of each row group."""
        sequence = self.meta.sequence_min
        for number, group in enumerate(self.meta.row_groups):
            yield number, sequence, group
            sequence += group.rows

    def _ahead(self, wanted: list[tuple[int, int]], names: list[str]) -> Iterator[tuple[int, Any]]:
        """Yield first sequence and columns of row groups; while one is looked at, a thread reads the next."""
        if len(wanted) == 1:
            ((number, sequence),) = wanted
            yield sequence, self._group(number, sequence, names)
        if len(wanted) <= 1:
            return
        with ThreadPoolExecutor(1, "latewood-chunk") as thread:
            reading = [thread.submit(self._group, *wanted[0], names)]
            for index, (_, sequence) in enumerate(wanted):
                batch = reading.pop().result()
                if index + 1 < len(wanted):
                    reading.append(thread.submit(self._group, *wanted[index + 1], names))
                yield sequence, batch

    def _group(self, number: int, sequence: int, names: list[str], *, check_sequences: bool = False) -> Any:
        """Return columns of one row group, checked."""
        with self._lock:
            return self._group_alone(number, sequence, names, check_sequences=check_sequences)

    def _group_alone(self, number: int, sequence: int, names: list[str], *, check_sequences: bool) -> Any:
        group = self.meta.row_groups[number]
        stored = stored_columns([name for name in names if name != "sequence" or check_sequences])
        # Without a column there is nothing to read: the sequences follow from the footer.
        table = self._read(number, stored or ["timestamp_rest_ns"], group.rows)
        if check_sequences and not _is_run(table.column("sequence"), sequence):
            raise self._corrupt(f"the sequences of row group {number} have a gap")
        with self._damage():
            batch = from_stored(table, names, sequence, keyed=self.keyed)
        self._check_sums(number, batch)
        return batch

    def _read(self, number: int, stored: list[str], rows: int) -> Any:
        indexes = [index for index, name in enumerate(self._schema.names) if name in stored]
        layout = self._layout.row_group(number)
        spans = {index: self._span(layout.column(index)) for index in indexes}
        self._window.load(list(spans.values()))
        self._check_stored(number, spans, rows)
        with self._damage():
            table = self._parquet.read_row_group(number, columns=stored)
        self._window.unload()
        if table.num_rows != rows:
            raise self._corrupt(f"row group {number} has {table.num_rows} rows, not {rows}")
        return table

    def _check_stored(self, number: int, spans: dict[int, tuple[int, int]], rows: int) -> None:
        """Raise unless the bytes of columns are those that were written, and take no more memory than they may."""
        left, sums = CHUNK_ROW_GROUP_BYTES_MAX, self.meta.row_groups[number].stored
        for index, (start, stop) in spans.items():
            data = self._window.view(start, stop)
            if crc32c(data) != sums[index]:
                reason = f"column {self._schema.names[index]!r} of row group {number} is not what was written"
                raise CorruptError(reason, self.path, start)
            try:
                left -= check_pages(data, rows, left)
            except BadPage as error:
                raise CorruptError(f"row group {number}: {error}", self.path, start) from None

    def _span(self, column: Any) -> tuple[int, int]:
        start = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset is not None:
            start = min(start, column.dictionary_page_offset)
        stop = start + column.total_compressed_size
        if not len(_MAGIC) <= start < stop <= self._footer_at:
            raise self._corrupt("a column is said to be where there is none")
        return start, stop

    def _check_layout(self) -> None:
        """Raise unless the Parquet footer says what ours does, and nothing that would not fit into memory."""
        layout, groups = self._layout, self.meta.row_groups
        if not self._schema.equals(stored_schema(keyed=self.keyed)):
            raise self._corrupt("the columns are not those of a chunk")
        if layout.num_row_groups != len(groups) or len(groups) > CHUNK_ROW_GROUPS_MAX:
            raise self._corrupt("the number of row groups is not as declared")
        for number, group in enumerate(groups):
            found = layout.row_group(number)
            if found.num_rows != group.rows or not 0 < group.rows <= CHUNK_ROW_GROUP_ROWS_MAX:
                raise self._corrupt(f"the number of rows of row group {number} is not as declared, or out of bounds")
            if len(group.stored) != len(self._schema):
                raise self._corrupt(f"row group {number} has not one checksum for each column")
            if not 0 <= found.total_byte_size <= CHUNK_ROW_GROUP_BYTES_MAX:
                raise self._corrupt(f"row group {number} would take {found.total_byte_size:,} bytes")

    def _check_sums(self, number: int, batch: Any) -> None:
        sums = RunningSums()
        sums.add(batch)
        found, expected = sums.columns(), self.meta.row_groups[number].sums
        for name in _SUMMED:
            if name in batch.schema.names and getattr(found, name) != getattr(expected, name):
                raise self._corrupt(f"column {name!r} of row group {number} does not match its checksum")

    def _corrupt(self, reason: str) -> CorruptError:
        return CorruptError(reason, self.path, 0)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Turn what the Parquet library says about bad bytes into our error."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError) as error:
            reason = str(error).partition("\n")[0]
            raise self._corrupt(f"the Parquet file cannot be read: {reason}") from None


class _Window(io.RawIOBase):
    """A source as the Parquet library wants it, with some stretches of it in memory."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at, self.size = source, 0, source.size
        self._loaded: list[tuple[int, memoryview]] = []

    def load(self, spans: list[tuple[int, int]]) -> None:
        """Read stretches, those that touch as one."""
        self._loaded = []
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(spans):
            if merged and merged[-1][1] == start:
                start = merged.pop()[0]  # noqa: PLW2901 - one longer stretch
            merged.append((start, stop))
        self._loaded = [(start, memoryview(self._source.read(start, stop - start))) for start, stop in merged]

    def unload(self) -> None:
        """Forget them."""
        self._loaded = []

    def view(self, start: int, stop: int) -> memoryview:
        """Return a stretch: from memory if it is there."""
        for at, data in self._loaded:
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        return memoryview(self._source.read(start, stop - start))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int = -1, /) -> Any:
        left = max(0, self.size - self._at)
        length = left if length < 0 else min(length, left)
        data = self.view(self._at, self._at + length)
        self._at += length
        return data


def _decrypted(source: Source, keys: KeyRing | None) -> DecryptingSource | None:
    head = source.read(0, min(source.size, len(crypt.MAGIC)))
    if head.startswith(_MAGIC):
        return None
    if head != crypt.MAGIC:
        raise CorruptError("this is no chunk, or it is cut short", source.path, 0)
    if keys is None:
        raise KeyNotFound(f"{source.path} is encrypted, and no keys are given")
    return DecryptingSource(source, keys)


def _check_tail(window: _Window, path: Path) -> int:
    """Return where the footer begins, after a look at its length and its checksum."""
    size = window.size
    window.load([(max(0, size - _END_BYTES), size)])  # All of the footer in most cases, and at one go.
    if size < len(_MAGIC) + _TAIL_BYTES:
        raise CorruptError("the Parquet file is cut short", path, size)
    tail = bytes(window.view(size - _TAIL_BYTES, size))
    if tail[4:] != _MAGIC:
        raise CorruptError("the Parquet file does not end as one does", path, size - _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL_BYTES - length
    if length > CHUNK_FOOTER_BYTES_MAX or start < len(_MAGIC) + MARK_SIZE:
        raise CorruptError(f"a footer of {length:,} bytes is out of bounds", path, size - _TAIL_BYTES)
    mark = bytes(window.view(start - MARK_SIZE, start))
    check_mark(mark, window.view(start, size), path, start - MARK_SIZE)
    return start


def _parquet_file(window: _Window) -> Any:
    return pq.ParquetFile(
        pa.PythonFile(window, mode="r"),
        pre_buffer=False,  # what is needed is in memory already
        thrift_string_size_limit=CHUNK_FOOTER_BYTES_MAX,
        thrift_container_size_limit=CHUNK_FOOTER_BYTES_MAX,
        arrow_extensions_enabled=False,
    )


def _is_run(column: Any, sequence: int) -> bool:
    expected = pa.chunked_array([pa.arange(sequence, sequence + len(column))])
    return bool(column.equals(expected))
