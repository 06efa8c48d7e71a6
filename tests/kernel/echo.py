"""A process that answers each record it is sent with one of its own: `python -m tests.kernel.echo KERNEL FILE ROUNDS`.

The file holds two wake buffers and two segments: one way and back.  Nobody sleeps but on the wake buffers, and for
longer than the whole test may take: so one missed wake fails it.  A wake too many is no fault: a writer may be
held up between moving the epoch and its system call, and then wakes who has armed since.
"""

import importlib
import mmap
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.kernel.packing import EMPTY_STATE

MODULES: Final = {"native": "latewood._native", "pure": "latewood.kernel.pure"}
WAKES: Final = 4096
PAYLOAD: Final = b"ball"
LONG_NS: Final = 600_000_000_000


def file_bytes(rounds: int) -> int:
    """Return how large the file must be."""
    return WAKES + 2 * segment_bytes(rounds)


def segment_bytes(rounds: int) -> int:
    """Return how large each of the segments is: one record a round, and room for an empty one."""
    return (rounds + 1) * 32


class Side:
    """One end: it throws into one segment and catches from the other."""

    def __init__(self, kernel: ModuleType, memory: memoryview, rounds: int, mine: int) -> None:
        self.kernel = kernel
        self.waits = 0
        self._wakes = [memory[at : at + 8] for at in (0, 64)]
        size = segment_bytes(rounds)
        self._segments = [memory[WAKES + at * size : WAKES + (at + 1) * size] for at in (0, 1)]
        self._mine, self._theirs = mine, 1 - mine
        self._offset = 0
        self._appender: Any = kernel.Appender(self._segments[mine], self._wakes[mine], 0, 0, 0, 64, *EMPTY_STATE)
        self._appender.allow(size, size, rounds)

    def throw(self) -> None:
        """Append one record."""
        assert self._appender.append(PAYLOAD) >= 0

    def catch(self) -> None:
        """Wait for one record."""
        wake = self._wakes[self._theirs]
        while not self._look():
            epoch = self.kernel.arm(wake)
            if self._look():
                return
            self.waits += 1
            self.kernel.wait(wake, epoch, LONG_NS)

    def _look(self) -> bool:
        segment = self._segments[self._theirs]
        records, self._offset, state = self.kernel.scan(segment, self._offset, len(segment), 0, 1, 1 << 30)
        assert state in {self.kernel.MORE, self.kernel.EMPTY}
        assert all(record.payload == PAYLOAD for record in records)
        return bool(records)


def main(name: str, path: str, rounds: int) -> None:
    """Answer so many rounds."""
    kernel = importlib.import_module(MODULES[name])
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping, memoryview(mapping) as memory:
        side = Side(kernel, memory, rounds, 1)
        for _ in range(rounds):
            side.catch()
            side.throw()
        print(side.waits)
        sys.stdout.flush()
        del side


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
