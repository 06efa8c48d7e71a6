"""Hard bounds, each with its reason."""

import re
from typing import Final

from latewood.errors import BadName, UsageError

KiB: Final = 1024
MiB: Final = 1024 * KiB

SEGMENT_BYTES_MIN: Final = 512
"""Room for the header and some records; tests use it."""

SEGMENT_BYTES_MAX: Final = 0xFFFF_FFF8
"""The header stores max_size in 32 bits, and records are 8-byte aligned."""

SEGMENT_ID_MAX: Final = 0xFFFF_FFFF
"""The header stores segment_index in 32 bits."""

MANIFEST_BYTES_MAX: Final = 1024 * MiB
"""About 18 million segments.  A larger file is damage, not a manifest."""

BATCH_BYTES_MAX: Final = 1 * MiB
"""So much of a batch is packed, written and published as one; it bounds the memory and the time that takes."""

BATCH_RECORDS_SMALL: Final = 32
"""Batches below this are packed straight into the mapping: a system call would cost more than its page faults."""

WRITE_BYTES: Final = 64 * KiB
"""Batches are written in such pieces: larger ones become large folios, which a later sync writes whole."""

CHECKPOINT_BYTES: Final = 1 * MiB
"""After so many bytes the open segment is synced in the background: recovery scans about this much."""

RESERVE_BYTES: Final = 4 * MiB
"""Appends never run further ahead of the last checkpoint, so recovery never reads more."""

READ_RECORDS_MAX: Final = 1024
"""Records handed out by one scan of a reader: bounds its memory, and what a lost reader repeats."""

READ_BYTES_MAX: Final = 4 * MiB
"""Payload bytes handed out by one scan, beyond its first record."""

ARROW_RECORDS_MAX: Final = 65_536
"""Rows in one Arrow batch."""

ARROW_BYTES_MAX: Final = 4 * MiB
"""Payload bytes in one Arrow batch, beyond its first record; far from the 2 GiB of 32-bit offsets."""

TIMESTAMP_NS_MAX: Final = (1 << 63) - 1
"""Footers and Arrow store times in 63 bits: until the year 2262."""

U64_MAX: Final = (1 << 64) - 1
"""What the formats store an ext_id or a watermark in."""

MANIFEST_RETRIES_MAX: Final = 100
"""How often a reader takes a fresh look when a writer replaced the manifest under it."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def check_name(name: str, what: str) -> str:
    """Return `name` if it can be a file name on every system.

    Raises:
        BadName: it cannot.
    """
    if not _NAME.fullmatch(name):
        message = f"{what} name {name!r} must match [a-z0-9][a-z0-9_-]{{0,63}}"
        raise BadName(message)
    return name


def check_number(number: int, number_max: int, what: str) -> int:
    """Return `number` if it is from 0 to `number_max`, and so can be stored.

    Raises:
        UsageError: it is not.
    """
    if not 0 <= number <= number_max:
        message = f"{what} must be from 0 to {number_max:,}, not {number:,}"
        raise UsageError(message)
    return number
