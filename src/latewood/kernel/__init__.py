"""Hot loops over the bytes of segments.

One whole module is picked, once: `latewood._native` where it is built, else `latewood.kernel.pure`, which
LATEWOOD_PURE=1 forces.  Both have the same names; `NAME` says which one it is.

A free-threaded Python is refused.  The pure kernel publishes a record by the order of its stores, which is proved with
the interpreter's lock alone, and the native module is built for the stable ABI, which such a Python does not have.
"""

# ruff: noqa: TC004 - every name imported for the types is set at run time too
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latewood._native import (
        BAD,
        EMPTY,
        END,
        EXT_IDS,
        KEYS,
        LENGTHS,
        MORE,
        NAME,
        PAYLOADS,
        SEALED,
        TIMESTAMPS,
        UNFIT,
        Appender,
        Door,
        Record,
        arm,
        columns,
        crc32c,
        deal,
        find_record,
        find_timestamp,
        index_records,
        largest,
        nonzero_end,
        scan,
        skip,
        split_commands,
        verify,
        wait,
        wake_all,
    )

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

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError("Latewood does not run on a free-threaded Python (3.13t, 3.14t): use the ordinary build of it")

if not TYPE_CHECKING:
    if os.environ.get("LATEWOOD_PURE") == "1":
        from latewood.kernel import pure as _picked
    else:
        try:
            _picked = import_module("latewood._native")  # Not `from latewood`: that package stands above this one.
        except ImportError:
            from latewood.kernel import pure as _picked
    globals().update({name: getattr(_picked, name) for name in __all__})
