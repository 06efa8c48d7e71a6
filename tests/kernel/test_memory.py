"""The native kernel without memory: a MemoryError, and nothing half done.

Each allocation of the interpreter's in a call is made to fail, alone, and with all those after it.  What only nodes
call is in `tests/replica/test_memory.py`.
"""

import array
import os
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.forking import in_child
from tests.kernel.packing import U64_MAX
from tests.kernel.starving import refused, starve

pytestmark = pytest.mark.needs("native", "testcapi")

COUNT = 300
"""More than the interpreter has numbers of its own for."""


class Segments:
    """Buffers with records, an appender to each, and a door."""

    def __init__(self, kernel: ModuleType) -> None:
        self.kernel = kernel
        self.payloads = [b"%d" % number * 3 for number in range(COUNT)]
        self.keys = [b"key %d" % number for number in range(COUNT)]
        self.data = b"".join(self.payloads)
        self.ends = array.array("i", [0])
        for payload in self.payloads:
            self.ends.append(self.ends[-1] + len(payload))
        self.buffer, self.keyed, self.fresh = bytearray(1 << 16), bytearray(1 << 16), bytearray(1 << 16)
        self.scratch = bytearray(1 << 16)
        self.wake = bytearray(struct.pack("<II", 1 << 20, 1 << 20) * 8)
        self.file = os.open(os.devnull, os.O_RDWR)
        appender = self.appender(self.buffer)
        assert appender.append_many(self.payloads, 0, 0, 5) == COUNT
        self.end = appender.offset
        keyed = self.appender(self.keyed)
        keyed.append_many([struct.pack("<I", 4) + b"key" + payload for payload in self.payloads], 0, 0, 5)
        self.keyed_end = keyed.offset
        self.record = kernel.scan(self.buffer, 0, self.end, 1 << 40, 1, 1 << 20)[0][0]
        self.begin()

    def appender(self, buffer: bytearray) -> Any:
        made = self.kernel.Appender(buffer, None, 0, 1 << 40, 0, 16, 0, 0, 0, U64_MAX, 0)
        made.allow(len(buffer), len(buffer), 1 << 40)
        return made

    def begin(self) -> None:
        """Append to an empty buffer from here on."""
        self.fresh[:] = bytes(len(self.fresh))
        self.open = self.appender(self.fresh)
        self.door = self.kernel.Door(lambda *_: 1 << 40)
        self.door.set(self.open)

    def check(self, _found: str) -> None:
        """What can be read is what was counted: none is there without the others of its batch."""
        records, offset, _ = self.kernel.scan(self.fresh, 0, len(self.fresh), 1 << 40, 1 << 20, 1 << 20)
        assert (len(records), offset) == (self.open.count, self.open.offset)
        assert len(records) in {0, 1, COUNT}
        assert len(self.open.index()) == -(-len(records) // 16) * 16


CALLS: dict[str, Callable[[Segments], object]] = {
    "scan": lambda on: on.kernel.scan(on.buffer, 0, on.end, 1 << 40, 1000, 1 << 20),
    "a scan that is refused": lambda on: refused(lambda: on.kernel.scan(on.buffer, 4, on.end, 1 << 40, 1000, 1 << 20)),
    "columns": lambda on: on.kernel.columns(on.buffer, 0, on.end, 0, 1000, 1 << 20),
    "columns of keyed records": lambda on: on.kernel.columns(on.keyed, 0, on.keyed_end, 0, 1000, 1 << 20, 31, True),  # noqa: FBT003 - as the kernel is called
    "verify": lambda on: on.kernel.verify(on.buffer, 0, on.end),
    "skip": lambda on: on.kernel.skip(on.buffer, 0, on.end, 280),
    "index_records": lambda on: on.kernel.index_records(on.buffer, 0, on.end, 1000, 4, 0),
    "find_timestamp": lambda on: on.kernel.find_timestamp(on.buffer, 0, on.end, 6),
    "find_record": lambda on: on.kernel.find_record(on.buffer, 8, on.end),
    "nonzero_end": lambda on: on.kernel.nonzero_end(on.buffer, 0, 1 << 16),
    "arm": lambda on: on.kernel.arm(on.wake),
    "pwrite_all": lambda on: on.kernel.pwrite_all(on.file, on.data, 0, 4096, 8),
    "sync_and_note": lambda on: on.kernel.sync_and_note(on.file, False, on.file, on.data, True),  # noqa: FBT003 - as above
    "crc32c": lambda on: on.kernel.crc32c(on.data),
    "append": lambda on: on.open.append(b"x", 1 << 40, 1 << 41),
    "append of a bytearray": lambda on: on.open.append(on.scratch[:9]),
    "append at the door": lambda on: on.door.append(b"x"),
    "a slow append at the door": lambda on: on.door.append(b"x", ext_id=1 << 40, timestamp_ns=1 << 41, durable=True),
    "append_many": lambda on: on.open.append_many(on.payloads, 0, 0, 5),
    "append_many of a tuple": lambda on: on.open.append_many(tuple(on.payloads), 0, 0, 5),
    "append_many of bytearrays": lambda on: on.open.append_many([bytearray(one) for one in on.payloads], 0, 0, 5),
    "append_many, staged": lambda on: (
        on.open.append_many(on.payloads, 0, 0, 5, on.scratch),
        on.open.staged_bytes,
    ),
    "append_columns": lambda on: on.open.append_columns(on.data, on.ends, False, 0, COUNT, 0, 5),  # noqa: FBT003 - as above
    "state": lambda on: (on.open.state(), on.open.sequence, on.open.min_ext_id),
    "index": lambda on: on.open.index(),
    "deal": lambda on: on.kernel.deal(on.payloads, on.keys, 4, 0, 0, 1000),
    "largest": lambda on: on.kernel.largest(on.payloads),
    "a record": lambda on: on.kernel.Record(1 << 40, 1 << 41, 1 << 42, b""),
    "a record's text": lambda on: repr(on.record),
    "a record's hash": lambda on: hash(on.record),
    "a record's equality": lambda on: on.record == (1, 2, 3, b""),
    "a record as a list": lambda on: list(on.record),
    "a record's slice": lambda on: on.record[1:],
    "a record's field": lambda on: on.record.sequence,
    "a record's pickle": lambda on: on.record.__reduce__(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_memory_is_a_memory_error_and_leaves_nothing_half_done(name: str) -> None:
    assert "done" in in_child(lambda: starve(Segments, CALLS[name])) <= {"MemoryError", "done"}
