"""What every store is asked to do, and timed at.

A workload is prepared once and then does rounds; whatever a round leaves behind, it removes outside its time.
"""

import shutil
import signal
import time
from pathlib import Path
from typing import Protocol

from bench.measure import Sample, Stopwatch, latencies
from bench.payloads import BATCH, payloads
from bench.peers import STORES, Store
from bench.processes import start_child


class Workload(Protocol):
    """Something that is done in rounds."""

    def prepare(self) -> None:
        """Do what is not timed."""
        ...

    def round(self) -> Sample:
        """Do it once more and return what it took."""
        ...

    def close(self) -> None:
        """Remove all that is left."""
        ...


class _Appends:
    def __init__(self, directory: Path, store: str, payload_bytes: int, seconds: float) -> None:
        self._path, self._store, self._seconds = directory / store, store, seconds
        self._payload_bytes = payload_bytes

    def prepare(self) -> None:
        self._payloads = payloads(self._payload_bytes)

    def round(self) -> Sample:
        store = STORES[self._store](self._path, durable=False)
        try:
            return self._timed(store)
        finally:
            store.close()
            shutil.rmtree(self._path)

    def _timed(self, store: Store) -> Sample:
        raise NotImplementedError

    def close(self) -> None:
        pass


class AppendOne(_Appends):
    """One record a call, into a fresh store, for so long; nothing is asked to be durable."""

    def _timed(self, store: Store) -> Sample:
        append, blocks = store.appender(), [self._payloads[at : at + 100] for at in range(0, BATCH, 100)]
        watch, count = Stopwatch(), 0
        while watch.seconds() < self._seconds:
            for payload in blocks[count // 100 % 10]:
                append(payload)
            count += 100
        return watch.per(count)


class AppendMany(_Appends):
    """A thousand records a call, into a fresh store, for so long; nothing is asked to be durable."""

    def _timed(self, store: Store) -> Sample:
        append_many = store.batch_appender()
        watch, count = Stopwatch(), 0
        while watch.seconds() < self._seconds:
            append_many(self._payloads)
            count += BATCH
        return watch.per(count)


class Fill(_Appends):
    """A thousand records a call until so much is written, and closed: durable, every cost counted."""

    def __init__(self, directory: Path, store: str, payload_bytes: int, megabytes: int) -> None:
        super().__init__(directory, store, payload_bytes, 0.0)
        self._batches = (megabytes << 20) // (payload_bytes * BATCH)

    def _timed(self, store: Store) -> Sample:
        append_many = store.batch_appender()
        watch = Stopwatch()
        for _ in range(self._batches):
            append_many(self._payloads)
        store.close()
        return watch.per(self._batches * BATCH * self._payload_bytes)


class Iterate:
    """Every record as a Python object."""

    def __init__(self, directory: Path, store: str, payload_bytes: int, records: int) -> None:
        self._path, self._store, self._records = directory / store, store, records
        self._payload_bytes = payload_bytes

    def prepare(self) -> None:
        self._opened = STORES[self._store](self._path, durable=False)
        append_many, batch = self._opened.batch_appender(), payloads(self._payload_bytes)
        for _ in range(self._records // BATCH):
            append_many(batch)

    def round(self) -> Sample:
        watch, count = Stopwatch(), 0
        for _ in self._opened.payloads():
            count += 1
        return watch.per(count)

    def close(self) -> None:
        self._opened.close()
        shutil.rmtree(self._path)


class Durable:
    """One record, or one batch, after another, each durable before the next; the store stays open."""

    def __init__(self, directory: Path, store: str, payload_bytes: int, count: int, *, batches: bool) -> None:
        self._path, self._store, self._count, self._batches = directory / store, store, count, batches
        self._payloads = payloads(payload_bytes)

    def prepare(self) -> None:
        self._opened = STORES[self._store](self._path, durable=True)
        self._append, self._append_many = self._opened.appender(), self._opened.batch_appender()

    def round(self) -> Sample:
        times = []
        for number in range(self._count):
            start = time.perf_counter_ns()
            if self._batches:
                self._append_many(self._payloads)
            else:
                self._append(self._payloads[number % BATCH])
            times.append(time.perf_counter_ns() - start)
        return latencies(times)

    def close(self) -> None:
        self._opened.close()
        shutil.rmtree(self._path)


class Killed:
    """Open after kill -9 of a writer at full speed, the first segment all but full."""

    def __init__(self, directory: Path, store: str) -> None:
        self._path, self._store = directory / f"killed-{store}", store

    def prepare(self) -> None:
        pass

    def round(self) -> Sample:
        child = start_child("fill", self._store, str(self._path))
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        watch = Stopwatch()
        store = STORES[self._store](self._path, durable=False)
        sample = watch.per(1)
        store.close()
        shutil.rmtree(self._path)
        return sample

    def close(self) -> None:
        pass
