"""The other process of a workload: one that is killed, or one that writes at a pace.

`python -m bench.child fill STORE PATH` appends at full speed and says when it is time to kill it;
`pace PATH RECORDS` appends the time, every millisecond; `ticks RECORDS` writes it to a pipe instead.
"""

import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.payloads import payloads
from bench.peers import STORES

_FILL_BYTES: Final = 48 << 20
_PACE_S: Final = 0.001
_SETTLE_S: Final = 0.2
_STDOUT: Final = 1


def fill(store: str, path: str) -> None:
    """Append until somebody kills this process; speak when a segment would be three quarters full."""
    if store == "log":
        from bench import ours  # noqa: F401, PLC0415 - registers the log, which no peer shall load
    append_many, batch = STORES[store](Path(path), durable=False).batch_appender(), payloads(100)
    written = 0
    while True:
        append_many(batch)
        before, written = written, written + 128 * len(batch)
        if before < _FILL_BYTES <= written:
            os.write(_STDOUT, b"now\n")


def pace(path: str, records: str) -> None:
    """Append the time of the append, again and again."""
    import latewood  # noqa: PLC0415 - only this needs it

    with latewood.open(path) as log:
        _tick(int(records), log.append)


def ticks(records: str) -> None:
    """Write the time to a pipe: what the system itself needs to wake another process."""
    _tick(int(records), lambda now: os.write(_STDOUT, now))


def _tick(records: int, send: Callable[[bytes], object]) -> None:
    time.sleep(_SETTLE_S)
    for _ in range(records):
        time.sleep(_PACE_S)
        send(struct.pack("<Q", time.monotonic_ns()))


if __name__ == "__main__":
    actions: dict[str, Callable[..., None]] = {"fill": fill, "pace": pace, "ticks": ticks}
    actions[sys.argv[1]](*sys.argv[2:])
