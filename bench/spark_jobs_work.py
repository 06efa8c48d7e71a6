"""What jobs on Spark are timed at: a scrub and a flush, against Spark's own reading and writing of the same rows.

Each is timed as a user calls it: from a path to the result, so that opening the store, planning and committing count.
"""

import shutil
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.measure import Sample
from bench.spark_work import GROUPS, PAYLOAD_BYTES, WARM_UPS, Watch, log_of, parquet_of, session
from bench.store_work import batches

# ruff: noqa: PLC0415 - pyspark and its JVM are of use to these workloads only

NAME: Final = "bench"
STORED: Final = ("sequence", "timestamp", "ext_id", "payload")
"""The columns of a chunk without keys."""


@cache
def chunks_of(directory: Path, records: int) -> Path:
    """Make a store that has the records of `log_of` in chunks, and nothing in its log."""
    from latewood.runtime import Store

    path = directory / f"chunks-{records}"
    sealed(path, records)
    with Store.open(path) as store:
        store.run_job("flush", NAME)
        store.run_job("checkpoint", NAME)
    return path


@cache
def plain_of(directory: Path, records: int) -> Path:
    """Make Parquet files of the columns that a chunk has, compressed as a chunk is."""
    path = directory / f"plain-{records}"
    rows = session().read.format("latewood").load(str(log_of(directory, records))).select(*STORED)
    rows.write.option("compression", "zstd").parquet(str(path))
    return path


def sealed(path: Path, records: int) -> None:
    """Make a store that has the records of `log_of` in sealed segments."""
    from latewood.runtime import Store

    with Store.open(path) as store:
        db: Any = store.create_database(NAME)
        at = 0
        for payloads in batches(records, PAYLOAD_BYTES):
            db.append_many(payloads, ext_ids=[number % GROUPS for number in range(at, at + len(payloads))])
            at += len(payloads)
        for shard in db.shards:
            shard.log.roll()


class Verify:
    """Every checksum of a log, or of chunks; or every byte of Parquet files, read and thrown away."""

    def __init__(self, directory: Path, records: int, source: str) -> None:
        self._shared, self._records, self._source = directory.parents[1], records, source

    def prepare(self) -> None:
        made = {"log": log_of, "chunks": chunks_of, "parquet": parquet_of, "plain": plain_of}[self._source]
        self._path = str(made(self._shared, self._records))
        for _ in range(WARM_UPS):
            self.round()

    def round(self) -> Sample:
        watch = Watch()
        found = self._scanned() if self._source in ("parquet", "plain") else self._verified()
        sample = watch.sample()
        assert found == self._records, f"{found} in {self._path}"
        return sample

    def close(self) -> None:
        pass

    def _verified(self) -> int:
        """Return how many records were looked at."""
        from latewood.spark import jobs

        (report,) = jobs.verify(session(), self._path)
        assert report["is_sound"], report
        if self._source == "log":
            return int(report["records_checked"])
        assert report["files"], report
        return self._records

    def _scanned(self) -> int:
        session().read.parquet(self._path).write.format("noop").mode("overwrite").save()
        return self._records


class Flush:
    """Sealed segments become chunks; or Parquet files become Parquet files, with the same columns and compression."""

    def __init__(self, directory: Path, records: int, source: str) -> None:
        self._directory, self._records, self._source = directory, records, source
        self._numbers = count()

    def prepare(self) -> None:
        if self._source == "parquet":
            self._rows = str(plain_of(self._directory.parents[1], self._records))
        self.round()

    def round(self) -> Sample:
        path = self._directory / str(next(self._numbers))
        sample = self._copied(str(path)) if self._source == "parquet" else self._flushed(path)
        shutil.rmtree(path)
        return sample

    def close(self) -> None:
        shutil.rmtree(self._directory)

    def _flushed(self, path: Path) -> Sample:
        from latewood.spark import jobs

        sealed(path, self._records)
        watch = Watch()
        flushed, *_ = jobs.flush(session(), path)
        sample = watch.sample()
        assert flushed.done == self._records, flushed
        return sample

    def _copied(self, path: str) -> Sample:
        watch = Watch()
        session().read.parquet(self._rows).write.option("compression", "zstd").parquet(path)
        sample = watch.sample()
        assert session().read.parquet(path).count() == self._records
        return sample
