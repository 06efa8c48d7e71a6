"""A disk in memory, a clock that stands still, and the logs that a test opens on them."""

from pathlib import Path
from typing import Any, Final, Self

import latewood
from latewood import Queue, RetentionPolicy
from latewood.format.checkpoint import Checkpoint
from latewood.format.checkpoint import decode as decode_checkpoint
from latewood.format.segment import SegmentFooter, SegmentHeader
from latewood.log import Log
from latewood.log.layout import Layout
from latewood.segment import read_footer, read_header
from latewood.testing import FakeClock, MemFS

ROOT: Final = Path("q")
SEGMENT_BYTES: Final = 4096
"""Small enough that a test can fill it."""


def payloads(log: Log, start: int | None = None, stop: int | None = None) -> list[bytes]:
    return [record.payload for record in log.scan(start, stop)]


def sealed_ids(log: Log) -> list[int]:
    entries = log.view().manifest.entries
    return [entries[index].segment_id for index in range(len(entries))]


class Desk:
    """Where a test works: one log at `ROOT`, opened as often as it likes."""

    def __init__(self, fs: MemFS | None = None, clock: FakeClock | None = None) -> None:
        self.fs = fs or MemFS()
        self.clock = clock or FakeClock()
        self.layout = Layout(ROOT)
        self._opened: list[Queue] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.fs.heal()
        for log in self._opened:
            log.close()

    def open(self, *, retention: RetentionPolicy | None = None, **options: Any) -> Queue:
        """Open the log to append, all work done by the calling thread."""
        fields = {"segment_bytes_max": SEGMENT_BYTES} | options
        log = latewood.open(ROOT, fs=self.fs, clock=self.clock, background=False, retention=retention, **fields)
        self._opened.append(log)
        return log

    def open_to_read(self) -> Queue:
        """Open the log as another process would that only reads."""
        log = latewood.open(ROOT, mode="r", fs=self.fs, clock=self.clock)
        self._opened.append(log)
        return log

    def kill(self) -> None:
        """End every process that has the log open, without a word to it: the disk and its cache stay."""
        self._opened.clear()
        self.fs._locks.clear()

    # -- looking at the disk ------------------------------------------------------------------------------

    def raw(self, path: Path) -> bytes:
        file = self.fs.open(path)
        data = file.pread(file.size(), 0)
        file.close()
        return data

    def overwrite(self, path: Path, data: bytes, offset: int = 0) -> None:
        file = self.fs.open(path, write=True)
        file.pwrite(data, offset)
        file.close()

    def truncate(self, path: Path, size: int) -> None:
        file = self.fs.open(path, write=True)
        file.truncate(size)
        file.close()

    def segment_paths(self) -> list[Path]:
        """Every segment's file, by id."""
        found = [path for path in self.fs.walk(self.layout.segments) if path.suffix == ".q" and path.stem.isdigit()]
        return sorted(found, key=lambda path: int(path.stem))

    def header(self, index: int) -> SegmentHeader:
        file = self.fs.open(self.segment_paths()[index])
        try:
            return read_header(file)
        finally:
            file.close()

    def footer(self, index: int) -> SegmentFooter:
        file = self.fs.open(self.segment_paths()[index])
        try:
            return read_footer(file)
        finally:
            file.close()

    def checkpoint(self) -> Checkpoint:
        return decode_checkpoint(self.raw(self.layout.checkpoint), self.layout.checkpoint)
