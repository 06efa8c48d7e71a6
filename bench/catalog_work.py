"""What the catalog, and LMDB without it, are timed at."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.measure import MiB, Sample, Stopwatch, latencies, percentile, resident

_MAP_BYTES: Final = 4096 * MiB


def _in_threads(producers: int, produce: Callable[[int, list[int]], None], count: int) -> Sample:
    """Return the time a commit took of the whole, and the tail of single ones."""
    times: list[list[int]] = [[] for _ in range(producers)]
    threads = [threading.Thread(target=produce, args=(number, times[number])) for number in range(producers)]
    watch = Stopwatch()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [one for each in times for one in each]
    tail = {"p50_ns": percentile(found, 0.5), "p99_ns": percentile(found, 0.99)}
    return watch.per(producers * count) | tail


def _lateness(wait: Callable[[], object], ring: Callable[[], object]) -> int:
    """Return how long after `ring` has returned a thread comes back from `wait`, in nanoseconds."""
    woken: list[int] = []

    def sleep() -> None:
        wait()
        woken.append(time.perf_counter_ns())

    waiter = threading.Thread(target=sleep)
    waiter.start()
    time.sleep(0.001)
    ring()
    rung = time.perf_counter_ns()
    waiter.join()
    return max(0, woken[0] - rung)


class Commits:
    """Each producer commits one small change after another."""

    def __init__(self, directory: Path, producers: int, count: int) -> None:
        self._directory, self._producers, self._count = directory, producers, count

    def prepare(self) -> None:
        from latewood.catalog import Catalog  # noqa: PLC0415 - peers run in a process without it

        self._catalog = Catalog.open(self._directory / "catalog.mdb")

    def round(self) -> Sample:
        return _in_threads(self._producers, self._produce, self._count)

    def _produce(self, number: int, times: list[int]) -> None:
        from latewood.catalog.tables import WalStateKey, WalStateRecord  # noqa: PLC0415 - as above

        for sequence in range(self._count):
            start = time.perf_counter_ns()
            txn = self._catalog.begin_write()
            txn.put_wal_state(WalStateKey(1, number), WalStateRecord(last_applied_sequence=sequence))
            txn.commit()
            times.append(time.perf_counter_ns() - start)

    def close(self) -> None:
        self._catalog.close()
        shutil.rmtree(self._directory)


class LoopCommits(Commits):
    """The same by as many coroutines of one event loop."""

    def round(self) -> Sample:
        import asyncio  # noqa: PLC0415 - peers run in a process without it

        times: list[int] = []
        watch = Stopwatch()
        asyncio.run(self._produce_all(times))
        tail = {"p50_ns": percentile(times, 0.5), "p99_ns": percentile(times, 0.99)}
        return watch.per(self._producers * self._count) | tail

    async def _produce_all(self, times: list[int]) -> None:
        from asyncio import gather  # noqa: PLC0415 - as above

        await gather(*[self._produce_in_loop(number, times) for number in range(self._producers)])

    async def _produce_in_loop(self, number: int, times: list[int]) -> None:
        from latewood.catalog.tables import WalStateKey, WalStateRecord  # noqa: PLC0415 - as above

        for sequence in range(self._count):
            start = time.perf_counter_ns()
            txn = self._catalog.begin_write()
            txn.put_wal_state(WalStateKey(1, number), WalStateRecord(last_applied_sequence=sequence))
            await txn.committed()
            times.append(time.perf_counter_ns() - start)


class RawCommits:
    """The same change, in a transaction of its own."""

    def __init__(self, directory: Path, producers: int, count: int) -> None:
        self._directory, self._producers, self._count = directory, producers, count

    def prepare(self) -> None:
        import lmdb  # noqa: PLC0415 - a peer is loaded only where it runs

        self._env = lmdb.open(str(self._directory / "raw.db"), subdir=False, map_size=_MAP_BYTES, max_dbs=4)
        self._db = self._env.open_db(b"wal_state")

    def round(self) -> Sample:
        return _in_threads(self._producers, self._produce, self._count)

    def _produce(self, number: int, times: list[int]) -> None:
        key = number.to_bytes(12, "big")
        for sequence in range(self._count):
            start = time.perf_counter_ns()
            with self._env.begin(write=True, db=self._db) as txn:
                txn.put(key, sequence.to_bytes(64, "big"))
            times.append(time.perf_counter_ns() - start)

    def close(self) -> None:
        self._env.close()
        shutil.rmtree(self._directory)


class Wake:
    """One thread waits for the next generation, another commits."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory, self._count = directory, count

    def prepare(self) -> None:
        from latewood.catalog import Catalog  # noqa: PLC0415 - peers run in a process without it

        self._catalog = Catalog.open(self._directory / "catalog.mdb")

    def round(self) -> Sample:
        from latewood.catalog.tables import Component  # noqa: PLC0415 - as above

        late = []
        for _ in range(self._count):
            handle = self._catalog.register_waiter(Component.WAL, self._catalog.generation(Component.WAL) + 1)
            txn = self._catalog.begin_write()
            txn.bump_generation(Component.WAL)
            late.append(_lateness(handle.wait, txn.commit))
        return latencies(late)

    def close(self) -> None:
        self._catalog.close()
        shutil.rmtree(self._directory)


class RawWake:
    """An event between two threads."""

    def __init__(self, directory: Path, count: int) -> None:
        del directory
        self._count = count

    def prepare(self) -> None:
        pass

    def round(self) -> Sample:
        late = []
        for _ in range(self._count):
            event = threading.Event()
            late.append(_lateness(event.wait, event.set))
        return latencies(late)

    def close(self) -> None:
        pass


def fill(path: Path, chunks: int, jobs: int) -> None:
    """Write a catalog with so many rows, as few commits as may be."""
    from latewood.catalog import Catalog  # noqa: PLC0415 - peers run in a process without it
    from latewood.catalog.tables import (  # noqa: PLC0415 - as above
        ChunkKey,
        ChunkRecord,
        CompressionCodec,
        JobKind,
        JobRecord,
    )

    with Catalog.open(path) as catalog:
        for start in range(0, chunks, 1000):
            txn = catalog.begin_write()
            for number in range(start, min(chunks, start + 1000)):
                record = ChunkRecord(
                    file_name=f"{number:012d}.parquet",
                    generation=1,
                    size_bytes=64 * MiB,
                    compression=CompressionCodec.ZSTD,
                    shard=number % 4,
                    sequence_min=number * 1000,
                    sequence_max=number * 1000 + 999,
                    row_count=1000,
                )
                txn.upsert_chunk(ChunkKey(1 + number % 8, number), record)
            txn.commit()
        for start in range(0, jobs, 1000):
            txn = catalog.begin_write()
            for number in range(start, min(jobs, start + 1000)):
                kind = JobKind.CUSTOM + number % 7
                txn.enqueue_job(JobRecord(job_id=0, created_at_ms=1, kind=kind, payload={"number": number}))
            txn.commit()


class Recover:
    """Open a catalog and recover, in a fresh process each time."""

    def __init__(self, directory: Path, chunks: int, jobs: int) -> None:
        self._directory, self._chunks, self._jobs = directory, chunks, jobs
        self._path = directory / "catalog.mdb"

    def prepare(self) -> None:
        fill(self._path, self._chunks, self._jobs)

    def round(self) -> Sample:
        command = [sys.executable, "-m", "bench.catalog_work", str(self._path)]
        wall_ns, own_bytes = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
        return {"wall_ns": wall_ns, "row_ns": wall_ns / (self._chunks + self._jobs), "own_bytes": own_bytes}

    def close(self) -> None:
        shutil.rmtree(self._directory)


class RawScan:
    """A cursor over as many rows of the same size, nothing decoded."""

    def __init__(self, directory: Path, chunks: int, jobs: int) -> None:
        self._directory, self._rows = directory, chunks + jobs

    def prepare(self) -> None:
        import lmdb  # noqa: PLC0415 - a peer is loaded only where it runs

        self._env = lmdb.open(str(self._directory / "raw.db"), subdir=False, map_size=_MAP_BYTES, sync=False)
        for start in range(0, self._rows, 10_000):
            with self._env.begin(write=True) as txn:
                for number in range(start, min(self._rows, start + 10_000)):
                    txn.put(number.to_bytes(16, "big"), bytes(120), append=True)

    def round(self) -> Sample:
        watch, count = Stopwatch(), 0
        with self._env.begin() as txn, txn.cursor() as cursor:
            for _ in cursor.iternext():
                count += 1
        assert count == self._rows
        return watch.per(1)

    def close(self) -> None:
        self._env.close()
        shutil.rmtree(self._directory)


class Feed:
    """Every change since the beginning, by one cursor."""

    def __init__(self, directory: Path, changes: int) -> None:
        self._directory, self._changes = directory, changes

    def prepare(self) -> None:
        from latewood.catalog import Catalog  # noqa: PLC0415 - as above
        from latewood.catalog.tables import WalStateKey, WalStateRecord  # noqa: PLC0415 - as above

        self._catalog = Catalog.open(self._directory / "catalog.mdb")
        self._catalog.feed.create("bench")
        for start in range(0, self._changes, 500):
            txn = self._catalog.begin_write()
            for number in range(start, start + 500):
                txn.put_wal_state(WalStateKey(number, 0), WalStateRecord(last_applied_sequence=number))
            txn.commit()

    def round(self) -> Sample:
        watch, count = Stopwatch(), sum(1 for _ in self._catalog.changes("bench"))
        assert count >= self._changes
        return watch.per(count)

    def close(self) -> None:
        self._catalog.close()
        shutil.rmtree(self._directory)


def _recover(path: Path) -> Any:
    from latewood.catalog import Catalog, recover  # noqa: PLC0415 - as above
    from latewood.clock import SystemClock  # noqa: PLC0415 - as above

    before, start = resident()["own"], time.perf_counter_ns()
    with Catalog.open(path) as catalog:
        recover(catalog, SystemClock())
        spent = time.perf_counter_ns() - start
        return spent, max(0, resident()["own"] - before)


if __name__ == "__main__":
    print(*_recover(Path(sys.argv[1])))
