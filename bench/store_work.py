"""What a store, and pyarrow without it, are timed at."""

import os
import random
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.measure import Sample, Stopwatch, resident

BATCH: Final = 10_000
NAME: Final = "bench"
START_US: Final = 1_772_452_800_000_000
ROW_GROUP_ROWS: Final = 131_072
ROWS_IN_A_FILE: Final = 4 * ROW_GROUP_ROWS
"""Of 100 random bytes each: about as large as a chunk is by default."""
KEYS: Final = [b"user-%d" % number for number in range(BATCH)]
COLUMNS: Final = ("sequence", "timestamp", "ext_id", "key", "payload")


def batches(records: int, payload_bytes: int) -> Iterator[list[bytes]]:
    """Yield payloads: random bytes, so that nothing compresses, and always the same."""
    source = random.Random(payload_bytes)
    for start in range(0, records, BATCH):
        rows = min(BATCH, records - start)
        whole = source.randbytes(rows * payload_bytes)
        yield [whole[at : at + payload_bytes] for at in range(0, len(whole), payload_bytes)]


# -- the store --------------------------------------------------------------------------------------------------


def open_store(directory: Path) -> Any:
    """Open a store with a tier in a directory beside it."""
    from latewood.archive.directory import DirectoryTier  # noqa: PLC0415 - peers run in a process without it
    from latewood.fs import PosixFS  # noqa: PLC0415 - as above
    from latewood.runtime import Store  # noqa: PLC0415 - as above

    return Store.open(directory / "lake", tier=DirectoryTier(PosixFS(), directory / "remote"))


def fill(db: Any, records: int, payload_bytes: int) -> None:
    """Append records with keys."""
    for payloads in batches(records, payload_bytes):
        db.append_many(payloads, keys=KEYS[: len(payloads)])
    db.flush()


def run(store: Any, kind: str, **payload: Any) -> None:
    """Run a job; it must succeed."""
    store.run_job(kind, NAME, **payload)


class Flush:
    """Sealed segments become chunks."""

    def __init__(self, directory: Path, records: int, payload_bytes: int) -> None:
        self._directory, self._records, self._payload_bytes = directory, records, payload_bytes
        self._numbers = count()

    def prepare(self) -> None:
        pass

    def round(self) -> Sample:
        place = self._directory / str(next(self._numbers))
        with open_store(place) as store:
            db = store.create_database(NAME)
            fill(db, self._records, self._payload_bytes)
            for shard in db.shards:
                shard.log.roll()
            own = resident()["own"]
            watch = Stopwatch()
            run(store, "flush")
            sample = watch.per(self._records)
            grown = resident()["own"] - own
        shutil.rmtree(place)
        return sample | {"own_bytes": max(0, grown)}

    def close(self) -> None:
        shutil.rmtree(self._directory)


class Scan:
    """All records, in Arrow batches or one by one, from the tiers that are named, each with its equal share."""

    def __init__(
        self, directory: Path, records: int, payload_bytes: int, tiers: list[str], *, one_by_one: bool = False
    ) -> None:
        self._directory, self._records, self._payload_bytes = directory, records, payload_bytes
        self._tiers, self._one_by_one = tiers, one_by_one

    def prepare(self) -> None:
        self._store = open_store(self._directory)
        self._db = self._store.create_database(NAME)
        jobs: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
            "archive": (("flush", {"seal": True}), ("archive", {}), ("checkpoint", {}), ("evict", {"now": True})),
            "chunks": (("flush", {"seal": True}), ("checkpoint", {})),
            "log": (),
        }
        for tier in self._tiers:
            fill(self._db, self._records // len(self._tiers), self._payload_bytes)
            for kind, payload in jobs[tier]:
                run(self._store, kind, **payload)
        self._rows = sum(shard.end() for shard in self._db.shards)

    def round(self) -> Sample:
        return scanned(self._db.scan() if self._one_by_one else self._db.arrow_batches(), self._rows)

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(self._directory)


class AppendKeyed:
    """Batches with keys, to a database."""

    def __init__(self, directory: Path, records: int, payload_bytes: int, shards: int) -> None:
        self._directory, self._records, self._payload_bytes, self._shards = directory, records, payload_bytes, shards

    def prepare(self) -> None:
        self._store = open_store(self._directory)
        self._db = self._store.create_database(NAME, shards=self._shards)
        self._batches = list(batches(self._records, self._payload_bytes))

    def round(self) -> Sample:
        watch = Stopwatch()
        for payloads in self._batches:
            self._db.append_many(payloads, keys=KEYS[: len(payloads)])
        return watch.per(self._records)

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(self._directory)


class AppendPlain:
    """The same bytes, keys in front of payloads, to logs: each gets its share of every batch."""

    def __init__(self, directory: Path, records: int, payload_bytes: int, logs: int) -> None:
        self._directory, self._records, self._payload_bytes, self._count = directory, records, payload_bytes, logs

    def prepare(self) -> None:
        import latewood  # noqa: PLC0415 - as above
        from latewood.format import keyed  # noqa: PLC0415 - as above

        self._logs = [latewood.open(self._directory / f"log-{number}") for number in range(self._count)]
        whole = batches(self._records, self._payload_bytes)
        packed = [[keyed.encode(*pair) for pair in zip(KEYS, batch, strict=False)] for batch in whole]
        self._batches = [[batch[number :: self._count] for number in range(self._count)] for batch in packed]

    def round(self) -> Sample:
        watch = Stopwatch()
        for shares in self._batches:
            for log, share in zip(self._logs, shares, strict=True):
                log.append_many(share)
        return watch.per(self._records)

    def close(self) -> None:
        for log in self._logs:
            log.close()
        shutil.rmtree(self._directory)


# -- pyarrow ----------------------------------------------------------------------------------------------------


def tables(records: int, payload_bytes: int) -> Iterator[Any]:
    """Yield the same records as tables of one file each, as a chunk would have them."""
    import pyarrow as pa  # noqa: PLC0415 - loaded only where it runs

    sequence, rows, parts = 0, list[bytes](), batches(records, payload_bytes)
    while rows or sequence < records:
        while len(rows) < ROWS_IN_A_FILE and (part := next(parts, None)) is not None:
            rows += part
        taken, rows = rows[:ROWS_IN_A_FILE], rows[ROWS_IN_A_FILE:]
        numbers = range(sequence, sequence + len(taken))
        columns = [
            pa.array(numbers, pa.int64()),
            pa.array([START_US + number for number in numbers], pa.timestamp("us", tz="UTC")),
            pa.array([0] * len(taken), pa.uint64()),
            pa.array([KEYS[number % BATCH] for number in numbers], pa.binary()),
            pa.array(taken, pa.binary()),
        ]
        yield pa.Table.from_arrays(columns, names=list(COLUMNS))
        sequence += len(taken)


def write(table: Any, path: Path) -> None:
    """Write one file as chunks are written, and make it durable, as they are."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    pq.write_table(table, path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP_ROWS)
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


class WriteParquet:
    """A table in memory becomes files."""

    def __init__(self, directory: Path, records: int, payload_bytes: int) -> None:
        self._directory, self._records, self._payload_bytes = directory, records, payload_bytes

    def prepare(self) -> None:
        self._tables = list(tables(self._records, self._payload_bytes))

    def round(self) -> Sample:
        watch = Stopwatch()
        for number, table in enumerate(self._tables):
            write(table, self._directory / f"{number}.parquet")
        return watch.per(self._records)

    def close(self) -> None:
        shutil.rmtree(self._directory)


class ReadParquet:
    """All rows of such files, in batches, in flat memory; as a dataset, with as many threads as there are cores."""

    def __init__(self, directory: Path, records: int, payload_bytes: int, how: str = "batches") -> None:
        self._directory, self._records, self._payload_bytes, self._how = directory, records, payload_bytes, how

    def prepare(self) -> None:
        for number, table in enumerate(tables(self._records, self._payload_bytes)):
            write(table, self._directory / f"{number:05}.parquet")

    def round(self) -> Sample:
        return scanned(
            {"batches": self._batches, "dataset": self._dataset, "rows": self._each}[self._how](), self._records
        )

    def close(self) -> None:
        shutil.rmtree(self._directory)

    def _batches(self) -> Iterator[Any]:
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        for path in sorted(self._directory.iterdir()):
            yield from pq.ParquetFile(path).iter_batches(batch_size=65_536)

    def _dataset(self) -> Iterator[Any]:
        import pyarrow.dataset as ds  # noqa: PLC0415 - as above

        yield from ds.dataset(self._directory, format="parquet").to_batches()

    def _each(self) -> Iterator[Any]:
        for batch in self._batches():
            plain = [batch.column(name) for name in COLUMNS]
            plain[1] = plain[1].view("int64")  # As we do: making datetime objects takes most of the time otherwise.
            yield from zip(*(column.to_pylist() for column in plain), strict=True)


def scanned(found: Iterator[Any], rows: int) -> Sample:
    """Time a scan, and note how far the process grew after the first tenth of it."""
    watch, seen, own, most = Stopwatch(), 0, 0, 0
    for item in found:
        seen += getattr(item, "num_rows", 1)
        if not own and seen * 10 >= rows:
            own = resident()["own"]
        elif hasattr(item, "num_rows"):
            most = max(most, resident()["own"])
    assert seen == rows, f"{seen} of {rows}"
    return watch.per(rows) | {"own_bytes": max(0, most - own)}
