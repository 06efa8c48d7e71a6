"""Staging: what a task has written and no commit has appended yet.

One file for each attempt of a task, under a name that no other attempt ever has.  It holds frames, each an Arrow batch
of records of one shard, and at its end the index of the frames.  Whoever reads it knows from the task's message where
the index is and what its checksum is; the index has a checksum for each frame.  So a file that is short, torn or
another one is refused, and never appended.

Order of writes: docs/crash-safety.md, "spark sink".
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from latewood.errors import CorruptError, NotFoundError
from latewood.fs import File, FileSystem
from latewood.kernel import crc32c

STEPS: Final = ("staged: made", "staged: written", "staged: synced", "staged: durable")
TYPES: Final = {"payload": pa.binary(), "timestamp": pa.int64(), "ext_id": pa.uint64()}
Hook: TypeAlias = Callable[[str], None]
"""Called with the name of each step that is done; whatever it raises ends the work there."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Some records of one shard."""

    shard: int
    offset: int
    length: int
    checksum: int
    """CRC-32C of its bytes."""
    rows: int
    payload_bytes_max: int


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a task tells of its file: enough to read it, and to know it from any other."""

    name: str
    partition: int
    columns: tuple[str, ...]
    index_offset: int
    index_bytes: int
    index_checksum: int


class StagedName(NamedTuple):
    """What the name of a staged file says: when it was made, and for whom."""

    made_ms: int
    query: str
    batch: int
    partition: int
    attempt: int
    token: str

    def __str__(self) -> str:
        return f"{self.made_ms}-{self.query}-{self.batch}-{self.partition}-{self.attempt}-{self.token}"

    @classmethod
    def parse(cls, name: str) -> "StagedName | None":
        """Return what a name says, or None if it is not one of ours."""
        head, _, rest = name.partition("-")
        tail = rest.rsplit("-", 4)
        numbers = [head, *tail[1:4]]
        if len(tail) != 5 or not all(number.isdecimal() for number in numbers):  # noqa: PLR2004 - as above
            return None
        return cls(int(head), tail[0], int(tail[1]), int(tail[2]), int(tail[3]), tail[4])


class StagingWriter:
    """Writes one file.  For the task's thread."""

    def __init__(self, fs: FileSystem, directory: Path, name: StagedName, hook: Hook) -> None:
        """Make the file, and the directory if it is not there."""
        self._fs, self._directory, self._name, self._hook = fs, directory, name, hook
        fs.make_directory(directory)
        self._path = directory / str(name)
        self._file = fs.open(self._path, create=True)
        self._offset = 0
        self._frames: list[Frame] = []
        self._columns: tuple[str, ...] = ("payload",)
        hook(STEPS[0])

    def add(self, shard: int, records: Any) -> None:
        """Write records of one shard."""
        body = memoryview(records.serialize())
        largest = pc.max(pc.binary_length(records.column("payload"))).as_py() or 0
        self._frames.append(Frame(shard, self._offset, body.nbytes, crc32c(body), records.num_rows, largest))
        self._columns = tuple(records.schema.names)
        self._write(body)

    def finish(self) -> StagedFile:
        """Make the file durable and return what there is to tell of it."""
        index = msgspec.msgpack.encode(self._frames)
        offset = self._offset
        self._write(index)
        self._hook(STEPS[1])
        self._file.sync()  # 1. The bytes.
        self._hook(STEPS[2])
        self._file.close()
        self._fs.sync_directory(self._directory)  # 2. The name.
        self._hook(STEPS[3])
        return StagedFile(
            name=str(self._name),
            partition=self._name.partition,
            columns=self._columns,
            index_offset=offset,
            index_bytes=len(index),
            index_checksum=crc32c(index),
        )

    def discard(self) -> None:
        """Remove the file: the task has failed, and another attempt has another name."""
        self._file.close()
        with suppress(NotFoundError):
            self._fs.remove(self._path)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.pwrite(data, self._offset)
        self._offset += len(data)


class StagedReader:
    """Reads one file that a task has finished, and that nobody changes any more, so it can be mapped."""

    def __init__(self, file: File, staged: StagedFile) -> None:
        self._path = file.path
        self._schema = pa.schema([(name, TYPES[name]) for name in staged.columns])
        raw = file.pread(staged.index_bytes, staged.index_offset)
        if len(raw) != staged.index_bytes or crc32c(raw) != staged.index_checksum:
            raise CorruptError("the index of a staged file is not what its task wrote", file.path, staged.index_offset)
        self.frames: list[Frame] = msgspec.msgpack.decode(raw, type=list[Frame])
        self._mapping = file.map(staged.index_offset, writable=False)  # The index is behind it, so it is all there.

    def body(self, frame: Frame) -> memoryview:
        """Return the bytes of a frame, not copied.

        Raises:
            CorruptError: they are not what the task wrote.
        """
        raw = self._mapping.view[frame.offset : frame.offset + frame.length]
        if len(raw) != frame.length or crc32c(raw) != frame.checksum:
            raise CorruptError("staged records are not what their task wrote", self._path, frame.offset)
        return raw

    def close(self) -> None:
        """Unmap the file, once nobody has bytes of it any more."""
        self._mapping.close()

    def records(self, frame: Frame) -> Any:
        """Return a frame's records as an Arrow batch."""
        return pa.ipc.read_record_batch(pa.py_buffer(self.body(frame)), self._schema)


@contextmanager
def opened(fs: FileSystem, directory: Path, staged: StagedFile) -> Iterator[StagedReader]:
    """Open a staged file.

    Raises:
        CorruptError: it is gone, or not what its task wrote.
    """
    path = directory / staged.name
    try:
        file = fs.open(path)
    except NotFoundError:
        raise CorruptError("a staged file is gone", path, 0) from None
    try:
        with closing(StagedReader(file, staged)) as reader:
            yield reader
    finally:
        file.close()


def in_order(files: Sequence[StagedFile]) -> list[StagedFile]:
    """Return one file for each partition, in the order in which their records are appended."""
    chosen: dict[int, StagedFile] = {}
    for file in sorted(files, key=lambda file: (file.partition, file.name)):
        chosen.setdefault(file.partition, file)
    return list(chosen.values())


def batches_of(fs: FileSystem, directory: Path, files: Sequence[StagedFile], shard: int, skip: int) -> Iterator[Any]:
    """Yield the records of one shard as Arrow batches, in their order, but for the first `skip` records."""
    for file in files:
        with opened(fs, directory, file) as reader:
            for frame in reader.frames:
                if frame.shard != shard:
                    continue
                passed = min(skip, frame.rows)
                skip -= passed
                if passed < frame.rows:
                    yield reader.records(frame).slice(passed)


class AppendColumns(NamedTuple):
    """Records as `Log.append_many` takes them."""

    payloads: Any
    ext_ids: "array[int] | None"
    timestamps_ns: "array[int] | int"

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield timestamp, ext_id and payload of each."""
        for index, payload in enumerate(self.payloads.to_pylist()):
            time = self.timestamps_ns if isinstance(self.timestamps_ns, int) else self.timestamps_ns[index]
            yield time, self.ext_ids[index] if self.ext_ids else 0, payload


def append_columns(records: Any, timestamp_ns: int) -> AppendColumns:
    """Return records as they are appended; those that have no time get `timestamp_ns`."""
    names = records.schema.names
    ids = _numbers(records.column("ext_id")) if "ext_id" in names else None
    times: array[int] | int = timestamp_ns
    if "timestamp" in names:
        times = _numbers(records.column("timestamp").fill_null(timestamp_ns))
    return AppendColumns(records.column("payload"), ids, times)


def _numbers(column: Any) -> "array[int]":
    start = 8 * column.offset
    numbers = array("Q")
    numbers.frombytes(memoryview(column.buffers()[1])[start : start + 8 * len(column)])
    return numbers
