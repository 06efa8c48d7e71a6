"""The kernel in Python: the reference, and the fallback where the native twin is not built.

The twin in `native/` has the same names, does the same and passes the same tests.
"""

from typing import Final

from latewood.kernel.pure_appender import Appender
from latewood.kernel.pure_columns import EXT_IDS, KEYS, LENGTHS, PAYLOADS, TIMESTAMPS, columns
from latewood.kernel.pure_commands import split_commands
from latewood.kernel.pure_deal import deal
from latewood.kernel.pure_door import Door, largest
from latewood.kernel.pure_futex import arm, wait, wake_all
from latewood.kernel.pure_record import Record, crc32c
from latewood.kernel.pure_scan import (
    BAD,
    EMPTY,
    END,
    MORE,
    SEALED,
    UNFIT,
    find_record,
    find_timestamp,
    index_records,
    nonzero_end,
    scan,
    skip,
    verify,
)

NAME: Final = "pure"

__all__ = [
    "BAD",
    "EMPTY",
    "END",
    "EXT_IDS",
    "KEYS",
    "LENGTHS",
    "MORE",
    "NAME",
    "PAYLOADS",
    "SEALED",
    "TIMESTAMPS",
    "UNFIT",
    "Appender",
    "Door",
    "Record",
    "arm",
    "columns",
    "crc32c",
    "deal",
    "find_record",
    "find_timestamp",
    "index_records",
    "largest",
    "nonzero_end",
    "scan",
    "skip",
    "split_commands",
    "verify",
    "wait",
    "wake_all",
]
