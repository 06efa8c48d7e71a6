"""A process that runs out of memory in the middle of work on a log: each time in a child of its own, with less room.

`python -m tests.log.low_memory DIRECTORY WORK...` prints one line for each child: the work, the bytes that it had, what
came of it, and what became of the log.
"""

import gc
import mmap
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import latewood
from latewood import Poisoned, Queue
from latewood.runtime.sharding import deal_keyed

RECORDS: Final = 10_000
SEGMENT_BYTES: Final = 1 << 18
SECONDS_MAX: Final = 30
PIECES: Final = (1 << 16, 1 << 12, 512, 64)
"""What is allocated until there is no more, the largest first."""
ROOMS: Final = (0, *(1 << power for power in range(13, 26)))
PAGE: Final = resource.getpagesize()

payloads: Final = [b"%d" % number * 10 for number in range(RECORDS)]
keys: Final = [b"key %d" % number for number in range(RECORDS)]

WORK: Final[dict[str, Callable[[Queue], object]]] = {
    "append_many": lambda log: log.append_many(payloads),
    "append": lambda log: [log.append(payload) for payload in payloads[:4000]],
    "scan": lambda log: list(log.scan()),
    "to_arrow": lambda log: log.to_arrow(),
    "deal": lambda _: deal_keyed(payloads, keys, 4, 0),
}


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * PAGE


class Starved:
    """Leaves this process so many bytes, a multiple of the page, and what one allocation of each size may find."""

    def __init__(self, room: int) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        self._held: list[list[bytes]] = [[] for _ in PIECES]
        kept = mmap.mmap(-1, room) if room else None
        resource.setrlimit(resource.RLIMIT_AS, (address_space(), self._before[1]))
        for size, held in zip(PIECES, self._held, strict=True):
            try:
                while True:
                    held.append(bytes(size))
            except MemoryError:
                continue
        if kept is not None:
            kept.close()

    def end(self) -> None:
        self._held.clear()
        resource.setrlimit(resource.RLIMIT_AS, self._before)


def work_on(log: Queue, work: Callable[[Queue], object], room: int) -> str:
    starved = Starved(room)
    try:
        work(log)
    except MemoryError:
        return "MemoryError"
    except (latewood.StorageError, Poisoned) as error:  # A segment could not be mapped: the operating system says so.
        return "MemoryError" if "Cannot allocate memory" in str(error) else repr(error)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the test says what it thinks of it
        return repr(error)
    finally:
        starved.end()
    return "done"


def child(path: Path, name: str, room: int) -> str:
    """Acknowledge some records, run out of memory, and see what is there."""
    log = latewood.open(path, segment_bytes_max=SEGMENT_BYTES)
    log.append_many(payloads, durable=True)
    acknowledged = log.next_sequence
    gc.collect()
    came = work_on(log, WORK[name], room)
    became = "usable"
    try:
        assert log.append(b"more") == log.next_sequence - 1
    except Poisoned:
        became = "poisoned"
    with suppress(Poisoned):
        log.close()
    with latewood.open(path) as again:
        records = list(again.scan())
        assert [record.payload for record in records[:RECORDS]] == payloads
        assert len(records) == again.next_sequence >= acknowledged
        again.append(b"after")
    return f"{came}, {became}"


def main() -> None:
    directory, names = Path(sys.argv[1]), sys.argv[2:]
    with latewood.open(directory / "warm", segment_bytes_max=SEGMENT_BYTES) as log:  # Whatever is imported, is now.
        log.append_many(payloads[:3])
        for work in WORK.values():
            work(log)
    for name in names:
        for room in ROOMS:
            with tempfile.TemporaryDirectory(dir=directory) as path:
                reading, writing = os.pipe()
                if (pid := os.fork()) == 0:
                    signal.alarm(SECONDS_MAX)
                    os.write(writing, child(Path(path) / "log", name, room).encode())
                    os._exit(0)
                os.close(writing)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                said = os.read(reading, 1000).decode()
                os.close(reading)
                sys.stdout.write(f"{name}, {room}, {said or f'ended with {status}'}\n")


if __name__ == "__main__":
    main()
