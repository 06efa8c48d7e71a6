"""Batches of payloads: a list of bytes-likes, or an Arrow array that never becomes Python objects."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from latewood.errors import UsageError
from latewood.forking import no_fork
from latewood.kernel import Appender, largest
from latewood.limits import TIMESTAMP_NS_MAX, U64_MAX, check_number

Column: TypeAlias = "int | array[int]"
"""One value for all records, or one for each."""


class Batch(Protocol):
    """Payloads that the kernel can pack, from any of them on."""

    count: int
    timestamps_ns: "Column | None"

    def largest(self) -> int:
        """Return the length of the largest payload."""
        ...

    def payload_bytes(self, index: int) -> int:
        """Return the length of one payload."""
        ...

    def pack(self, appender: Appender, start: int, scratch: memoryview | None) -> int:
        """Pack payloads from `start` on, or stage them in `scratch`; return how many there was room for."""
        ...


class ListBatch:
    """A list or tuple of bytes-likes."""

    def __init__(self, payloads: Sequence[bytes], ext_ids: Column, timestamps_ns: "Column | None") -> None:
        self._payloads = payloads if isinstance(payloads, list | tuple) else list(payloads)
        self.count = len(self._payloads)
        self._ext_ids = _checked(ext_ids, self.count, "ext_ids")
        self.timestamps_ns = _checked(timestamps_ns, self.count, "timestamps_ns")

    def largest(self) -> int:
        """Return the length of the largest payload, or raise TypeError if one is not bytes-like."""
        return largest(self._payloads)

    def payload_bytes(self, index: int) -> int:
        """Return the length of one payload."""
        return memoryview(self._payloads[index]).nbytes

    def pack(self, appender: Appender, start: int, scratch: memoryview | None) -> int:
        """Pack payloads from `start` on, or stage them in `scratch`."""
        return appender.append_many(self._payloads, start, self._ext_ids, self.timestamps_ns, scratch)


class Packed(NamedTuple):
    """Payloads that were packed into one column."""

    data: Any
    ends: Any
    """i64, as many as there are payloads and one more."""
    largest: int
    """The length of the largest."""


class _ColumnBatch:
    """Payloads one after the other in a buffer, and where they end."""

    def __init__(self, data: Any, offsets: Any, *, wide: bool, start: int, count: int) -> None:
        self._data, self._offsets, self._wide, self._start, self.count = data, offsets, wide, start, count
        self._lengths = memoryview(offsets).cast("B").cast("q" if wide else "i")
        self._ext_ids: Column = 0
        self.timestamps_ns: Column | None = None

    def set_numbers(self, ext_ids: Column, timestamps_ns: "Column | None") -> None:
        # The kernel indexes these by the position in the offsets buffer, which a slice does not start.
        self._ext_ids = _shifted(_checked(ext_ids, self.count, "ext_ids"), self._start)
        self.timestamps_ns = _shifted(_checked(timestamps_ns, self.count, "timestamps_ns"), self._start)

    def payload_bytes(self, index: int) -> int:
        """Return the length of one payload."""
        at = self._start + index
        return int(self._lengths[at + 1] - self._lengths[at])

    def pack(self, appender: Appender, start: int, scratch: memoryview | None) -> int:
        """Pack payloads from `start` on, or stage them in `scratch`."""
        first, stop = self._start + start, self._start + self.count
        return appender.append_columns(
            self._data, self._offsets, self._wide, first, stop, self._ext_ids, self.timestamps_ns, scratch
        )


class PackedBatch(_ColumnBatch):
    """What was packed before, by whoever deals records out."""

    def __init__(self, packed: Packed, ext_ids: Column, timestamps_ns: "Column | None") -> None:
        super().__init__(packed.data, packed.ends, wide=True, start=0, count=memoryview(packed.ends).nbytes // 8 - 1)
        self.set_numbers(ext_ids, timestamps_ns)
        self._largest = packed.largest

    def largest(self) -> int:
        """Return the length of the largest payload."""
        return self._largest


class ArrowBatch(_ColumnBatch):
    """A `pyarrow` array of type binary, string or their large kin."""

    def __init__(self, values: Any, ext_ids: Column, timestamps_ns: "Column | None") -> None:
        with no_fork():
            from latewood.log.arrow import binary_buffers  # noqa: PLC0415 - pyarrow takes 0.4 s to import

        data, offsets, wide, start = binary_buffers(values)
        super().__init__(data, offsets, wide=wide, start=start, count=len(values))
        self.set_numbers(ext_ids, timestamps_ns)

    def largest(self) -> int:
        """Return the length of the largest payload."""
        with no_fork():
            from latewood.log.arrow import largest_length  # noqa: PLC0415 - pyarrow takes 0.4 s to import

        return largest_length(self._offsets, self._start, self.count, wide=self._wide)


def make_batch(
    payloads: Any, ext_id: int, ext_ids: Iterable[int] | None, timestamps_ns: int | Iterable[int] | None
) -> Batch:
    """Return the batch that fits the kind of `payloads`.

    Raises:
        UsageError: there are more or fewer ids or timestamps than payloads, or a timestamp after the year 2262.
    """
    ids: Column = check_number(ext_id, U64_MAX, "ext_id") if ext_ids is None else array("Q", ext_ids)
    times: Column | None
    times = timestamps_ns if timestamps_ns is None or isinstance(timestamps_ns, int) else array("Q", timestamps_ns)
    if isinstance(times, int) or (times is not None and not _are_below_the_top_bit(times)):
        check_number(times if isinstance(times, int) else max(times), TIMESTAMP_NS_MAX, "timestamps_ns")
    if isinstance(payloads, Packed):
        return PackedBatch(payloads, ids, times)
    is_arrow = type(payloads).__module__.partition(".")[0] == "pyarrow"
    return ArrowBatch(payloads, ids, times) if is_arrow else ListBatch(payloads, ids, times)


def _are_below_the_top_bit(numbers: "array[int]") -> bool:
    """Say whether all are below 2**63, by their highest bytes: to make an integer of each takes five times as long."""
    return bytes(memoryview(numbers).cast("B")[7::8]).isascii()  # Little-endian, as all that we store.


def _checked(column: Any, count: int, name: str) -> Any:
    if isinstance(column, array) and len(column) != count:
        message = f"{name} has {len(column)} values for {count} payloads"
        raise UsageError(message)
    return column


def _shifted(column: Any, start: int) -> Any:
    return array("Q", bytes(8 * start)) + column if isinstance(column, array) and start else column
