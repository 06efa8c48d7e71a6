"""The log itself, as one more store, and the workloads that only a log has."""

import asyncio
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import latewood
from bench.measure import MiB, Sample, Stopwatch, latencies, resident
from bench.payloads import payloads
from bench.peers import STORES, Append, AppendMany
from bench.processes import start_child
from latewood.format.record import record_bytes
from latewood.fs import PosixFS
from latewood.fs.file import PosixFile
from latewood.log.layout import Layout
from latewood.queue.verify import verify_queue

PRODUCERS: Final = 64


class LogStore:
    """A log with its default options: segments of 64 MiB, checkpoints and rolls in the background."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.log, self._durable = latewood.open(path), durable

    def appender(self) -> Append:
        append = self.log.append
        return (lambda payload: append(payload, durable=True)) if self._durable else append

    def batch_appender(self) -> AppendMany:
        append_many = self.log.append_many
        return (lambda batch: append_many(batch, durable=True)) if self._durable else append_many

    def payloads(self) -> Iterator[Any]:
        return self.log.scan()

    def close(self) -> None:
        self.log.close()


STORES["log"] = LogStore
"""Registered here and not in `peers`, so that the peers' process never loads the log."""


class _UnsyncedFile(PosixFile):
    def sync(self) -> None:
        """Leave it to the kernel."""


class _UnsyncedFS(PosixFS):
    """A disk that is not waited for: what makes 10,000 segments in seconds, for a log that no crash will meet."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> PosixFile:
        """Open a file that is never synced."""
        file = super().open(path, write=write, create=create)
        file.__class__ = _UnsyncedFile
        return file

    def sync_directory(self, path: Path) -> None:
        """Leave it to the kernel."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename onto nothing: ext4 writes a file out that replaces another."""
        target.unlink(missing_ok=True)
        super().rename(source, target)


class Arrow:
    """Batches from an Arrow array, which never becomes Python objects."""

    def __init__(self, directory: Path, payload_bytes: int, seconds: float) -> None:
        self._path, self._seconds = directory / "arrow", seconds
        self._list = payloads(payload_bytes)

    def prepare(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 - it takes 0.4 s to import

        self._array = pa.array(self._list, pa.binary())

    def round(self) -> Sample:
        with latewood.open(self._path) as log:
            watch, count = Stopwatch(), 0
            while watch.seconds() < self._seconds:
                log.append_many(self._array)
                count += len(self._list)
            sample = watch.per(count)
        shutil.rmtree(self._path)
        return sample

    def close(self) -> None:
        pass


class _Filled:
    """A log of sealed segments in the page cache, made once."""

    def __init__(self, directory: Path, payload_bytes: int, megabytes: int) -> None:
        self._path, self._payload_bytes = directory / "filled", payload_bytes
        self.bytes = megabytes * MiB

    def prepare(self) -> None:
        batch = payloads(self._payload_bytes)
        self.count = self.bytes // record_bytes(self._payload_bytes) // len(batch) * len(batch)
        with latewood.open(self._path) as log:
            for _ in range(self.count // len(batch)):
                log.append_many(batch)
            log.seal()
        self._log = latewood.open(self._path, mode="r")

    def close(self) -> None:
        self._log.close()
        shutil.rmtree(self._path)


class ArrowScan(_Filled):
    """Everything to Arrow batches, each record's checksum looked at."""

    def round(self) -> Sample:
        watch = Stopwatch()
        count = sum(batch.num_rows for batch in self._log.arrow_batches())
        assert count == self.count
        return watch.per(count)


class Verify(_Filled):
    """What `latewood verify --deep` does: every checksum of every segment, through fresh mappings."""

    def round(self) -> Sample:
        watch = Stopwatch()
        found = verify_queue(PosixFS(), Layout(self._path), deep=True)
        sample = watch.per(self.count * record_bytes(self._payload_bytes))
        assert found.is_sound
        assert found.records_checked == self.count
        return sample


class Producers:
    """Durable appends by many at once: asyncio tasks, or threads."""

    def __init__(self, directory: Path, kind: str, records: int) -> None:
        self._path, self._records = directory / kind, records
        self._run = self._run_tasks if kind == "asyncio" else self._run_threads
        self._payload = payloads(100)[0]

    def prepare(self) -> None:
        self._log = latewood.open(self._path)

    def round(self) -> Sample:
        watch = Stopwatch()
        self._run()
        return watch.per(self._records * PRODUCERS)

    def _run_tasks(self) -> None:
        async def produce() -> None:
            for _ in range(self._records):
                await self._log.append_async(self._payload)

        async def run() -> None:
            await asyncio.gather(*(produce() for _ in range(PRODUCERS)))

        asyncio.run(run())

    def _run_threads(self) -> None:
        def produce() -> None:
            for _ in range(self._records):
                self._log.append(self._payload, durable=True)

        threads = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        self._log.close()
        shutil.rmtree(self._path)


class Open:
    """Open to append, with so many sealed segments; the log is shared by whoever opens it."""

    def __init__(self, directory: Path, segments: int) -> None:
        self._path, self._segments = directory.parent / "shared", segments

    def prepare(self) -> None:
        if self._path.exists():
            return
        options = latewood.LogOptions(segment_bytes_max=1024)
        with latewood.Log.open(self._path, options, fs=_UnsyncedFS(), background=False) as log:
            for _ in range(self._segments):
                log.append(b"x" * 100)
                log.roll()

    def round(self) -> Sample:
        watch = Stopwatch()
        log = latewood.open(self._path)
        sample = watch.per(1)
        assert len(log._manifest().entries) == self._segments
        log.close()
        return sample

    def close(self) -> None:
        pass  # The directory goes as a whole, when the last has opened it.


class Tail:
    """From an append in one process to the record in another, a millisecond apart."""

    def __init__(self, directory: Path, records: int) -> None:
        self._path, self._records = directory / "tail", records

    def prepare(self) -> None:
        latewood.open(self._path).close()

    def round(self) -> Sample:
        with latewood.open(self._path, mode="r") as log, log.reader("tail", start="latest") as reader:
            child = start_child("pace", str(self._path), str(self._records))
            records = islice(reader.follow(), self._records)
            late = [time.monotonic_ns() - int.from_bytes(record.payload, "little") for record in records]
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        return latencies(late)

    def close(self) -> None:
        shutil.rmtree(self._path)


class Memory:
    """What a process grows by while it writes, and then scans, much more than its memory should hold."""

    def __init__(self, directory: Path, gigabytes: float) -> None:
        self._path, self._bytes = directory / "memory", int(gigabytes * 1e9)

    def prepare(self) -> None:
        pass

    def round(self) -> Sample:
        batch = payloads(1024)
        rounds = self._bytes // (len(batch) * 1024)
        with latewood.open(self._path) as log:
            written = _grow((log.append_many(batch) for _ in range(rounds)), every=8)
        with latewood.open(self._path, mode="r") as log:
            scanned = _grow(log.arrow_batches(), every=1)
        shutil.rmtree(self._path)
        grown = {name: max(written[name], scanned[name]) for name in ("own_bytes", "all_bytes")}
        return grown | {
            "write_bytes_per_s": self._bytes / written["seconds"],
            "scan_bytes_per_s": self._bytes / scanned["seconds"],
        }

    def close(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _grow(steps: Iterable[object], every: int) -> Sample:
    """Return the time that the steps take, and how far memory grows after the first tenth of them."""
    watch, looks = Stopwatch(), []
    for number, _ in enumerate(steps):
        if number % every == 0:
            looks.append(resident())
    seconds = watch.seconds()
    base, later = looks[len(looks) // 10], looks[len(looks) // 10 :]
    grown = {f"{name}_bytes": float(max(look[name] for look in later) - base[name]) for name in base}
    return grown | {"seconds": seconds}
