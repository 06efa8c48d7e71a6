"""A program that enqueues and runs jobs until it is killed, and tells in a file what it was promised and what it did.

The file is written with single appends, which a kill cannot tear: `q` an acknowledged job, `b` and `e` the begin and
the end of an attempt, `a` that the catalog is open.
"""

import logging
import os
import random
from pathlib import Path
from typing import Final

from latewood.catalog import Catalog, CatalogOptions, recover
from latewood.catalog.ops import UpsertChunk
from latewood.catalog.tables import ChunkKey, ChunkRecord, CompressionCodec
from latewood.clock import SystemClock
from latewood.errors import UniqueJobAlreadyPending
from latewood.jobs import Handlers, JobContext, JobManager, JobOptions, Result, WorkerPool
from tests.jobs.kit import DB, DB_2, KIND, OTHER, make_databases

OPTIONS: Final = CatalogOptions(commit_budget_us=0)
JOB_OPTIONS: Final = JobOptions(lease_ms=600, poll_ms=50)
ATTEMPTS_MAX: Final = 100_000
"""A kill costs an attempt; none of these jobs may fail for that."""
NAME: Final = "catalog.mdb"
JOURNAL: Final = "journal"


class Journal:
    """Appends lines to a file."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / JOURNAL, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def say(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def handlers_of(journal: Journal) -> Handlers:
    """Handlers that tell what they do, and leave one chunk for each job."""

    def work(context: JobContext) -> Result:
        job = context.job
        journal.say("b", job.job_id, context.lease.attempt, job.db_id, job.gate_kind)
        context.progress(1, 2)
        txn = context.begin_write()
        txn.upsert_chunk(*chunk_of(job.db_id or 0, job.job_id))
        context.commit(txn)
        journal.say("e", job.job_id, context.lease.attempt, job.db_id, job.gate_kind)
        return [UpsertChunk(*chunk_of(job.db_id or 0, job.job_id))]

    def repair(context: JobContext) -> Result:
        job = context.job
        journal.say("b", job.job_id, context.lease.attempt, job.db_id, job.gate_kind)
        context.heartbeat()
        journal.say("e", job.job_id, context.lease.attempt, job.db_id, job.gate_kind)
        return None

    handlers = Handlers()
    for kind in (KIND, OTHER):
        handlers.register(kind, work, repair=repair)
    return handlers


def chunk_of(db_id: int, job_id: int) -> tuple[ChunkKey, ChunkRecord]:
    record = ChunkRecord(
        file_name=f"{job_id}.parquet",
        generation=0,
        size_bytes=job_id,
        compression=CompressionCodec.NONE,
        shard=0,
        sequence_min=job_id,
        sequence_max=job_id,
        row_count=1,
    )
    return ChunkKey(db_id, job_id), record


def work_until_killed(directory: Path, seed: int) -> None:
    """Enqueue and run jobs, for ever."""
    logging.disable(logging.CRITICAL)
    journal, chance = Journal(directory), random.Random(seed)
    catalog = Catalog.open(directory / NAME, OPTIONS)
    if catalog.read(lambda view: view.db(DB)) is None:
        make_databases(catalog)
    recover(catalog, SystemClock())
    manager = JobManager(catalog, JOB_OPTIONS)
    journal.say("a", os.getpid())
    with WorkerPool(manager, handlers_of(journal), workers=3):
        while True:
            enqueue(manager, journal, chance)


def enqueue(manager: JobManager, journal: Journal, chance: random.Random) -> None:
    """Enqueue one job, if there is room for it."""
    kind, db_id = chance.choice((KIND, OTHER)), chance.choice((None, DB, DB_2))
    try:
        job_id = manager.enqueue(kind, db_id=db_id, attempts_max=ATTEMPTS_MAX, priority=chance.randrange(3))
    except UniqueJobAlreadyPending:
        return
    journal.say("q", job_id)


def work_until_idle(directory: Path) -> None:
    """Recover, and run what is left."""
    logging.disable(logging.CRITICAL)
    with Catalog.open(directory / NAME, OPTIONS) as catalog:
        recover(catalog, SystemClock())
        manager = JobManager(catalog, JOB_OPTIONS)
        journal = Journal(directory)
        journal.say("a", os.getpid())
        with WorkerPool(manager, handlers_of(journal), workers=3) as pool:
            pool.wait_until_idle()
