"""Two programs to be killed: one writes a log and says what it was promised, one follows it and says what it saw.

They run in processes of their own and speak through a pipe, a line after each call that returned.  What a line says
was so before it was sent, so it holds however soon afterwards the process is killed.
"""

import os
import random
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import latewood
from latewood import LogOptions, Queue, Reader
from latewood.fs import PosixFS
from latewood.fs.file import PosixFile

OPTIONS: Final = LogOptions(segment_bytes_max=8192, index_interval=8)
READER: Final = "near"
FOLLOWER: Final = "far"


def payload(sequence: int, life: int) -> bytes:
    """The payload of a record, by who appended it under which sequence."""
    length = zlib.crc32(b"%d" % sequence) % 400 if sequence % 50 else 3000
    return (b"%d:%d " % (life, sequence) * (length // 4 + 1))[:length]


class Suicide(PosixFS):
    """The disk of a program that kills itself before a certain operation on files."""

    def __init__(self, operations: int) -> None:
        self._left = operations

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> PosixFile:
        self.count()
        return _SuicideFile.counted(super().open(path, write=write, create=create), self.count)

    def make_directory(self, path: Path) -> None:
        self.count()
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.count()
        super().sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.count()
        super().rename(source, target)

    def rename_new(self, source: Path, target: Path) -> None:
        self.count()
        super().rename_new(source, target)

    def remove(self, path: Path) -> None:
        self.count()
        super().remove(path)


class _SuicideFile(PosixFile):
    _count: Callable[[], None]

    @classmethod
    def counted(cls, file: PosixFile, count: Callable[[], None]) -> PosixFile:
        file.__class__ = cls
        assert isinstance(file, cls)
        file._count = count
        return file

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._count()
        super().pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self._count()
        super().truncate(size)

    def allocate(self, size: int) -> None:
        self._count()
        super().allocate(size)

    def sync(self) -> None:
        self._count()
        super().sync()


class Scribe:
    """Writes a log until it dies."""

    def __init__(self, log: Queue, pipe: int, life: int, chance: random.Random) -> None:
        self._log, self._pipe, self._life, self._chance = log, pipe, life, chance
        self._reader: Reader | None = None

    def say(self, *words: object) -> None:
        os.write(self._pipe, (" ".join(map(str, words)) + "\n").encode())

    def run(self) -> None:
        acts = [self.append] * 10 + [self.append_many] * 4 + [self.flush, self.append_durable, self.commit]
        while True:
            self._chance.choice([*acts, self.roll, self.cleanup, self.set_ext_id])()

    def _payloads(self, count: int) -> list[bytes]:
        start = self._log.next_sequence
        return [payload(sequence, self._life) for sequence in range(start, start + count)]

    def append(self) -> None:
        self.say("written", self._log.append(*self._payloads(1)) + 1)

    def append_durable(self) -> None:
        self.say("written", self._log.append(*self._payloads(1), durable=True) + 1)

    def append_many(self) -> None:
        self.say("written", self._log.append_many(self._payloads(self._chance.randint(1, 40))).stop)

    def flush(self) -> None:
        self._log.flush()

    def roll(self) -> None:
        self._log.roll()

    def set_ext_id(self) -> None:
        self._log.set_ext_id(self._chance.randint(0, 3))

    def commit(self) -> None:
        if self._reader is None:
            self._reader = self._log.reader(READER)
        self._reader.poll(self._chance.randint(1, 200))
        self._reader.commit()
        self.say("committed", self._reader.sequence)

    def cleanup(self) -> None:
        if self._log.cleanup():
            self.say("first", self._log.first_sequence)


def write(path: Path, pipe: int, life: int, seed: int, dies_at: int) -> None:
    """Write until killed; with `dies_at`, by ourselves before the operation of this number."""
    chance = random.Random(seed)
    fs = Suicide(dies_at) if dies_at else PosixFS()
    Scribe(Queue.open(path, OPTIONS, fs=fs), pipe, life, chance).run()


def follow(path: Path, pipe: int) -> None:
    """Read whatever is written, and say so, until killed."""
    with latewood.open(path, mode="r") as log, log.reader(FOLLOWER) as reader:
        os.write(pipe, b"from %d\n" % reader.sequence)
        while True:
            if records := reader.poll(64, timeout=0.1):
                for record in records:
                    os.write(pipe, b"saw %d %d\n" % (record.sequence, zlib.crc32(record.payload)))
                reader.commit()
                os.write(pipe, b"committed %d\n" % reader.sequence)
