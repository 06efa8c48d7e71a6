"""A directory, a clock that stands still, and the catalogs that a test opens there."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from latewood.catalog import Catalog, CatalogOptions, CatalogTxn, CommitReceipt, Lease, Mode
from latewood.catalog.tables import (
    ChunkKey,
    ChunkRecord,
    CompressionCodec,
    DbOptions,
    DbRecord,
    JobKind,
    JobRecord,
    WalStateKey,
    WalStateRecord,
)
from latewood.errors import LatewoodError
from latewood.limits import KiB
from latewood.testing import FakeClock

LEASE_MS: Final = 1000
HASH: Final = bytes(32)


class Desk:
    """Where a test works: one catalog, opened as often as it likes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "catalog.mdb"
        self.clock = FakeClock()
        self._opened: list[Catalog] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for catalog in self._opened:
            with suppress(LatewoodError):
                catalog.close()

    def open(self, mode: Mode = "w", **options: Any) -> Catalog:
        chosen = CatalogOptions(**{"map_bytes": 1024 * KiB, **options})
        catalog = Catalog.open(self.path, chosen, mode=mode, clock=self.clock)
        self._opened.append(catalog)
        return catalog

    @property
    def now_ms(self) -> int:
        return self.clock.now_ns() // 1_000_000


def write(catalog: Catalog, *fills: Callable[[CatalogTxn], object]) -> CommitReceipt:
    """Commit what each `fill(txn)` puts into one transaction."""
    txn = catalog.begin_write()
    for fill in fills:
        fill(txn)
    return txn.commit()


def db(name: str = "clicks", **changes: Any) -> DbRecord:
    fields = {
        "created_at_ms": 1,
        "config_hash": HASH,
        "wal_shards": 2,
        "options": DbOptions(wal_dir="wal", chunk_dir="chunks"),
    }
    return DbRecord(name=name, **{**fields, **changes})


def chunk(chunk_id: int = 1, **changes: Any) -> ChunkRecord:
    fields = {
        "file_name": f"{chunk_id:09}.parquet",
        "generation": 1,
        "size_bytes": 1000,
        "compression": CompressionCodec.ZSTD,
        "shard": 0,
        "sequence_min": 10 * chunk_id,
        "sequence_max": 10 * chunk_id + 9,
        "row_count": 10,
    }
    return ChunkRecord(**{**fields, **changes})


def job(job_id: int = 0, kind: int = JobKind.FLUSH, **changes: Any) -> JobRecord:
    return JobRecord(**{"job_id": job_id, "created_at_ms": 1, "kind": kind, "db_id": 1, **changes})


def put_database(catalog: Catalog, db_id: int = 1, name: str = "clicks", shards: int = 2) -> None:
    def fill(txn: CatalogTxn) -> None:
        txn.put_db(db_id, db(name, wal_shards=shards))
        for shard in range(shards):
            txn.put_wal_state(WalStateKey(db_id, shard), WalStateRecord())

    write(catalog, fill)


def put_chunks(catalog: Catalog, count: int, db_id: int = 1) -> None:
    def fill(txn: CatalogTxn) -> None:
        for chunk_id in range(1, count + 1):
            txn.upsert_chunk(ChunkKey(db_id, chunk_id), chunk(chunk_id))

    write(catalog, fill)


def enqueue(catalog: Catalog, kind: int = JobKind.FLUSH, **changes: Any) -> int:
    txn = catalog.begin_write()
    job_id = txn.enqueue_job(job(0, kind, **changes))
    txn.commit()
    return job_id


def acquire(catalog: Catalog, job_id: int, worker_id: str = "w") -> Lease:
    write(catalog, lambda txn: txn.acquire_job(job_id, worker_id, LEASE_MS))
    return Lease(worker_id, job_of(catalog, job_id).attempts)


def job_of(catalog: Catalog, job_id: int) -> JobRecord:
    found = catalog.read(lambda view: view.job(job_id))
    assert found is not None
    return found


def run_python(script: str, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
