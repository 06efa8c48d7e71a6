"""One record: its bytes in a segment, its checksum, and the tuple that callers see.

| offset | size | field        | type | meaning                                                      |
| -----: | ---: | ------------ | ---- | ------------------------------------------------------------ |
|      0 |    4 | length       | u32  | payload bytes, this header and the padding not counted       |
|      4 |    4 | checksum     | u32  | CRC-32C of bytes 8..24+length, extended from the seed length |
|      8 |    8 | timestamp_ns | u64  | append time, nanoseconds since 1970                          |
|     16 |    8 | ext_id       | u64  | caller's id; 0: none                                         |

Little-endian, then the payload, then zeros up to a multiple of 8.  The checksum is the commit mark and is stored last:
0 means that nothing is committed here, so a sum of 0 is stored as 0xFFFFFFFF.  A length of 0xFFFFFFFF with a mark means
that the segment was sealed here.
"""

import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import google_crc32c

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

if sys.byteorder != "little":
    raise ImportError("Latewood's format is little-endian, and so must be the machine")

HEADER: Final = 24
SEAL: Final = 0xFFFFFFFF
U64_MAX: Final = 0xFFFFFFFFFFFFFFFF
PADDING: Final = tuple(bytes(-length & 7) for length in range(8))

FRONT: Final = struct.Struct(
    "<"
    "I"  # length
    "I"  # checksum
)
PREFIX: Final = struct.Struct(
    "<"
    "Q"  # timestamp_ns
    "Q"  # ext_id
)


class Record(NamedTuple):
    """One record read back."""

    sequence: int
    timestamp_ns: int
    ext_id: int
    payload: bytes


def crc32c(data: "ReadableBuffer", seed: int = 0) -> int:
    """Return the CRC-32C of `data`, extended from `seed`."""
    if not 0 <= seed <= SEAL:
        raise OverflowError("the seed is not a u32")
    return int(google_crc32c.extend(seed, as_bytes(data)))


def size(length: int) -> int:
    """Return the whole bytes of a record with a payload of `length`."""
    return HEADER + (length + 7 & ~7)


def as_view(buffer: "ReadableBuffer") -> memoryview:
    """Return the bytes of any contiguous buffer.

    Raises:
        TypeError: it is not bytes-like.
    """
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise TypeError("a contiguous bytes-like object is required")
    if view.format == "B" and view.ndim == 1:
        return view
    # An empty or an oddly typed view cannot be cast.
    castable = view.nbytes and view.format.lstrip("@").isalpha()
    return view.cast("B") if castable else memoryview(view.tobytes())


def as_writable(buffer: "WriteableBuffer") -> memoryview:
    """Return the bytes of a writable contiguous buffer.

    Raises:
        TypeError: it is not bytes-like, or only to be read.
    """
    view = as_view(buffer)
    if view.readonly:
        raise TypeError("a writable bytes-like object is required")
    return view


def as_words(view: memoryview) -> memoryview:
    """Return the whole u32 words of `view`, each of which is loaded and stored in one piece."""
    whole = view.nbytes & ~3
    return view[:whole].cast("I") if whole else view[:0]


def as_bytes(buffer: "ReadableBuffer") -> bytes:
    """Return a copy of any contiguous buffer, or the same bytes object."""
    return buffer if type(buffer) is bytes else as_view(buffer).tobytes()
