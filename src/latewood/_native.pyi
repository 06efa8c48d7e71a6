# The native kernel; `latewood.kernel.pure` has the same types.

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

from _typeshed import ReadableBuffer, WriteableBuffer

_Bytes: TypeAlias = bytes | bytearray
_Column: TypeAlias = _Bytes | None

NAME: Final[Literal["native", "pure"]]
MORE: Final = 0
EMPTY: Final = 1
SEALED: Final = 2
BAD: Final = 3
END: Final = 4
UNFIT: Final = 5
TIMESTAMPS: Final = 1
EXT_IDS: Final = 2
LENGTHS: Final = 4
PAYLOADS: Final = 8
KEYS: Final = 16

class Record(NamedTuple):
    sequence: int
    timestamp_ns: int
    ext_id: int
    payload: bytes

@final
class Appender:
    def __init__(
        self,
        buffer: WriteableBuffer,
        wake: WriteableBuffer | None,
        offset: int,
        sequence: int,
        count: int,
        interval: int,
        first_timestamp_ns: int,
        last_timestamp_ns: int,
        max_timestamp_ns: int,
        min_ext_id: int,
        max_ext_id: int,
    ) -> None: ...
    def allow(self, limit: int, hard: int, records: int) -> None: ...
    def append(self, payload: ReadableBuffer, ext_id: int = 0, timestamp_ns: int | None = None) -> int: ...
    def append_many(
        self,
        payloads: list[bytes] | list[ReadableBuffer] | tuple[ReadableBuffer, ...],
        start: int,
        ext_ids: int | ReadableBuffer,
        timestamps_ns: int | ReadableBuffer | None,
        scratch: WriteableBuffer | None = None,
    ) -> int: ...
    def append_columns(
        self,
        data: ReadableBuffer | None,
        offsets: ReadableBuffer,
        wide: bool,
        start: int,
        stop: int,
        ext_ids: int | ReadableBuffer,
        timestamps_ns: int | ReadableBuffer | None,
        scratch: WriteableBuffer | None = None,
    ) -> int: ...
    @property
    def staged_bytes(self) -> int: ...
    def count_staged(self) -> None: ...
    def close(self) -> None: ...
    def release(self) -> None: ...
    def state(self) -> tuple[int, int, int, int, int, int, int, int]: ...
    def index(self) -> bytes: ...
    @property
    def offset(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def first_timestamp_ns(self) -> int: ...
    @property
    def last_timestamp_ns(self) -> int: ...
    @property
    def max_timestamp_ns(self) -> int: ...
    @property
    def min_ext_id(self) -> int: ...
    @property
    def max_ext_id(self) -> int: ...

def crc32c(data: ReadableBuffer, seed: int = 0) -> int: ...
def scan(
    buffer: ReadableBuffer, offset: int, limit: int, sequence: int, max_records: int, max_bytes: int
) -> tuple[list[Record], int, int]: ...
def columns(
    buffer: ReadableBuffer,
    offset: int,
    limit: int,
    sequence: int,
    max_records: int,
    max_bytes: int,
    wanted: int = 31,
    keyed: bool = False,
) -> tuple[int, int, int, _Column, _Column, _Column, _Column, _Column, _Column, _Column]: ...
def verify(buffer: ReadableBuffer, offset: int, limit: int) -> tuple[int, int, int, int, int, int, int, int]: ...
def skip(buffer: ReadableBuffer, offset: int, limit: int, count: int) -> tuple[int, int]: ...
def index_records(
    buffer: ReadableBuffer, offset: int, limit: int, count: int, interval: int, max_timestamp_ns: int
) -> bytes: ...
def find_timestamp(buffer: ReadableBuffer, offset: int, limit: int, timestamp_ns: int) -> tuple[int, int, int]: ...
def find_record(buffer: ReadableBuffer, offset: int, limit: int) -> int: ...
def nonzero_end(buffer: ReadableBuffer, offset: int, limit: int) -> int: ...
def arm(wake: WriteableBuffer) -> int: ...
def wait(wake: WriteableBuffer, epoch: int, timeout_ns: int) -> None: ...
def wake_all(wake: WriteableBuffer) -> None: ...

@final
class Door:
    def __init__(self, slow: Callable[[Any, int, int | None, bool], int]) -> None: ...
    def set(self, appender: Appender | None) -> None: ...
    def append(
        self, payload: ReadableBuffer, *, ext_id: int = 0, timestamp_ns: int | None = None, durable: bool = False
    ) -> int: ...

def largest(payloads: Iterable[ReadableBuffer]) -> int: ...
def pwrite_all(descriptor: int, data: ReadableBuffer, offset: int, piece_bytes: int, head_bytes: int) -> int: ...
def sync_and_note(descriptor: int, whole: bool, note: int, data: bytes, durable: bool) -> tuple[int, int]: ...
def deal(
    payloads: Sequence[ReadableBuffer],
    keys: Sequence[bytes | None],
    shards: int,
    turn: int,
    seed: int,
    key_bytes_max: int,
) -> list[tuple[int, _Bytes, _Bytes, int, _Bytes]]: ...
