"""Jobs whose work is done on Spark: `latewood.spark.jobs`.

    from latewood.spark import jobs, session
    jobs.flush(session(), "lake/clicks")

The driver opens the store to write, holds the leases, plans and commits; executors work on files and objects, and never
see the catalog.  All of it is the code that a local worker runs, with another engine.  This is the composition root of
jobs and Spark, which do not know each other; `latewood.spark` looks it up here.   Why: docs/adr/0023-jobs-on-spark.md
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from latewood.catalog.tables import Component, JobRecord
from latewood.errors import NotFoundError, UnavailableError, WaitExpired
from latewood.format.store_layout import StoreLayout
from latewood.fs import PosixFS
from latewood.jobs.handlers.report import load_report
from latewood.log.layout import Layout
from latewood.log.rebuild import RebuildReport, rebuild
from latewood.queue.verify import verify_queue
from latewood.runtime.births import claim_of_shard
from latewood.runtime.remake import Remade, remake_catalog
from latewood.runtime.store import Store
from latewood.spark.archive import ArchiveNames, archive_names
from latewood.spark.engine import SPARK_ERRORS, SparkEngine, reason_of
from latewood.spark.local_session import session as local_session
from latewood.spark.options import ReadOptions
from latewood.spark.place import find_place, local_path
from latewood.tasks.segments import looks_at_ends, looks_at_records
from latewood.types import JobId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "JobReport",
    "compact",
    "engine_of",
    "flush",
    "rebuild_catalog",
    "rebuild_manifest",
    "retain",
    "verify",
]

_LOOK_MS: Final = 100
"""Whoever waits for a job looks again after this, also if nothing rings."""


class JobReport(NamedTuple):
    """A job that was done."""

    job_id: int
    kind: str
    database: str
    done: int
    """Records of a flush, bytes of a compaction, chunks of a retention."""
    total: int | None
    attempts: int


def flush(
    spark: "SparkSession", path: str | Path, *, seal: bool = True, keep_log: bool = False, lanes: int | None = None
) -> list[JobReport]:
    """Make chunks of what is in the logs of a store, or of one database of it, as `lake/clicks`; return its jobs.

    With `seal` the open segments are sealed first.  A checkpoint follows, unless `keep_log`: what chunks have may leave
    the logs.

    Raises:
        JobFailed: a job failed; the error says which, and why.
        Locked: another process has the store open to write.
    """
    payload = {"seal": True} if seal else {}
    with _opened(spark, path, lanes) as (store, names):
        done = _run(store, "flush", names, payload)
        return done if keep_log else [*done, *_run(store, "checkpoint", names)]


def compact(
    spark: "SparkSession",
    path: str | Path,
    *,
    target_bytes: int | None = None,
    grace_ms: int | None = None,
    eager: bool = False,
    lanes: int | None = None,
) -> list[JobReport]:
    """Make few large chunks of many small ones; what is not given is as the database has it.

    Raises:
        JobFailed, Locked: as `flush`.
    """
    payload = _given(target_bytes=target_bytes, grace_ms=grace_ms, eager=eager or None)
    with _opened(spark, path, lanes) as (store, names):
        return _run(store, "compact", names, payload)


def retain(
    spark: "SparkSession", path: str | Path, *, grace_ms: int | None = None, lanes: int | None = None
) -> list[JobReport]:
    """Let go of what the retention of databases does not keep; a grace that is not given is as the database has it.

    Raises:
        JobFailed, Locked: as `flush`.
    """
    with _opened(spark, path, lanes) as (store, names):
        return _run(store, "retain", names, _given(grace_ms=grace_ms))


def verify(spark: "SparkSession", path: str | Path, *, lanes: int | None = None) -> list[dict[str, Any]]:
    """Check every checksum in every tier, and return what was found of each database: `verify.json`, as plain values.

    What is broken and has a sound copy is repaired by jobs that are waited for; a repair that fails is no error here.
    Of a log, the one report is what `latewood verify --deep` prints.

    Raises:
        JobFailed, Locked: as `flush`.
    """
    place = find_place(PosixFS(), str(path))
    if not place.is_store:
        return [_verified_log(spark, place.root, lanes)]
    with _opened(spark, path, lanes) as (store, names):
        _run(store, "verify", names)
        found = [load_report(PosixFS(), store.site_of(store.database(name).db_id).report_dir) for name in names]
        for report in found:
            if report.mend_job_id is not None:
                _wait_for(store, report.mend_job_id)
        return [{**msgspec.to_builtins(report), "is_sound": report.is_sound} for report in found]


def rebuild_manifest(
    spark: "SparkSession",
    path: str | Path,
    *,
    dry_run: bool = False,
    accept_loss: bool = False,
    lanes: int | None = None,
) -> RebuildReport:
    """Make the manifest of one log again from its segments, whose headers and footers executors read.

    Raises:
        NotFoundError: there is no log, or it has no segments.
        Locked: a writer has the log open.
    """
    root = local_path(str(path))
    looks = partial(looks_at_ends, engine_of(spark, root, lanes=lanes))
    claim = claim_of_shard(PosixFS(), root)
    return rebuild(PosixFS(), Layout(root), dry_run=dry_run, accept_loss=accept_loss, looks=looks, claim=claim)


def rebuild_catalog(
    spark: "SparkSession", path: str | Path, *, dry_run: bool = False, lanes: int | None = None
) -> Remade:
    """Make the catalog of a store again, from chunks and objects that executors read; the old one is kept beside it.

    Raises:
        NotFoundError: there is no store.
        Locked: another process has it open to write.
    """
    root = local_path(str(path))
    return remake_catalog(root, dry_run=dry_run, engine=engine_of(spark, root, lanes=lanes))


def engine_of(spark: "SparkSession", root: Path, *, lanes: int | None = None) -> SparkEngine:
    """Return an engine for the tasks of a store, or of a log, in a directory that executors see under the same path."""
    root = root.absolute()
    names = ArchiveNames(str(root))  # A log has neither archive nor keys.
    if StoreLayout(root).databases.is_dir():
        names = archive_names(PosixFS(), root, ReadOptions(path=str(root)), os.environ)
    return SparkEngine(spark, names, lanes=lanes)


def session(master: str | None) -> "SparkSession":
    """Return a session that works here, on a master if one is given.

    Raises:
        UnavailableError: Spark does not start, or does not reach the master.
    """
    chosen = {} if master is None else {"spark.master": master}
    try:
        return local_session("latewood jobs", **{"spark.log.level": "ERROR"}, **chosen)
    except SPARK_ERRORS as error:
        where = "here" if master is None else f"on {master}"
        message = f"there is no Spark session {where}: {reason_of(error)}; `latewood spark doctor` looks for the cause"
        raise UnavailableError(message) from error


@contextmanager
def _opened(spark: "SparkSession", path: str | Path, lanes: int | None) -> Iterator[tuple[Store, list[str]]]:
    """Yield a store whose jobs are done on Spark, by workers that keep their leases, and the databases meant."""
    place = find_place(PosixFS(), str(path))
    if not place.is_store:
        raise NotFoundError(f"there is no store at {place.root}: jobs are of databases; a log has none")
    with Store.open(place.root) as store:
        store.engine = engine_of(spark, place.root, lanes=lanes)
        names = [record.name for _, record in store.databases()]
        if place.database is not None and place.database not in names:
            raise NotFoundError(f"there is no database {place.database!r} in {place.root}")
        store.start_workers()
        yield store, names if place.database is None else [place.database]


def _verified_log(spark: "SparkSession", root: Path, lanes: int | None) -> dict[str, Any]:
    layout = Layout(root)
    looks = partial(looks_at_records, engine_of(spark, root, lanes=lanes), layout)
    found = verify_queue(PosixFS(), layout, deep=True, looks=looks)
    findings = [{**finding._asdict(), "path": str(finding.path)} for finding in found.findings]
    return {"path": str(root), "is_sound": found.is_sound, **found._asdict(), "findings": findings}


def _run(store: Store, kind: str, names: Sequence[str], payload: dict[str, Any] | None = None) -> list[JobReport]:
    return [_report(kind, name, store.run_job(kind, name, **(payload or {}))) for name in names]


def _given(**payload: Any) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if value is not None}


def _wait_for(store: Store, job_id: JobId) -> None:
    """Return when a job is finished; workers do it."""
    while True:
        generation = store.catalog.generation(Component.JOBS)
        if store.jobs.get(job_id).is_finished:
            return
        with suppress(WaitExpired):
            store.catalog.wait_for_generation(Component.JOBS, generation + 1, store.jobs.now_ms() + _LOOK_MS)


def _report(kind: str, database: str, job: JobRecord) -> JobReport:
    return JobReport(job.job_id, kind, database, job.progress_done, job.progress_total, job.attempts)
