"""Enqueue jobs of a store's databases and, if asked, run them here until they are finished."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from latewood.catalog.tables import FailedPermanent, JobKind, JobRecord, LocalAndRemote, RemoteArchived
from latewood.cli.engine_option import HERE, EngineChoice
from latewood.cli.errors import ExitCode, say
from latewood.cli.job_rows import state_name
from latewood.cli.output import Output
from latewood.cli.progress import progress
from latewood.cli.store_argument import chosen_names, located, open_store
from latewood.errors import UniqueJobAlreadyPending, UsageError
from latewood.fs import PosixFS
from latewood.jobs import WorkerPool, kind_name
from latewood.runtime import Store
from latewood.runtime.opening import open_archive
from latewood.types import JobId

KINDS: Final[Mapping[str, int]] = {
    "flush": JobKind.FLUSH,
    "checkpoint": JobKind.CHECKPOINT,
    "compact": JobKind.COMPACT,
    "archive": JobKind.ARCHIVE,
    "evict": JobKind.EVICT,
    "hydrate": JobKind.HYDRATE,
    "retain": JobKind.RETAIN,
    "verify": JobKind.VERIFY,
    "mend": JobKind.MEND,
    "rekey": JobKind.REKEY,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
COLUMNS: Final = ("job_id", "kind", "database", "state", "attempts", "done", "total", "error")
_LOOK_S: Final = 0.02
"""How often progress is looked at; a job that is done is noticed as quickly."""


class Work(NamedTuple):
    """One job that every database is given."""

    kind: str
    payload: Mapping[str, Any] = {}


def run_work(
    path: Path,
    names: Sequence[str],
    work: Sequence[Work],
    output: Output,
    *,
    wait: bool,
    workers: int | None,
    check: Callable[[Store], None] | None = None,
    choice: EngineChoice = HERE,
) -> int:
    """Enqueue jobs and print them; with `wait`, or on Spark, run them first, one kind after the other.

    `check` comes first, and refuses a store that none of them could succeed in.
    """
    place = located(path, names)
    with open_store(place.root, "w", choice.engine(place.root)) as store:
        if check is not None:
            check(store)
        chosen = chosen_names(store, place.names)
        if not wait and not choice.is_spark:
            jobs = [job for one in work for job in enqueue(store, one, chosen)]
            output.rows(COLUMNS, [job_cells(store, job) for job in jobs])
            return ExitCode.OK
        jobs = []
        with working(store, workers):
            for one in work:
                jobs += enqueue(store, one, chosen)
                wait_for(store, jobs, one.kind)
        output.rows(COLUMNS, [job_cells(store, job) for job in jobs])
        return ExitCode.FAILED if any(has_failed(store, job) for job in jobs) else ExitCode.OK


def check_archive(store: Store) -> None:
    """Raise UsageError if the store has no archive."""
    if store.settings.archive_url is None:
        where = store.layout.settings
        raise UsageError(f"the store has no archive; set archive.url in {where}, or LATEWOOD_ARCHIVE_URL")


def check_archive_to_fill(store: Store) -> None:
    """Raise UsageError if the store has no archive; tell of chunks that were archived to another one.

    They are left where they are: an upload is of chunks that no archive has.
    """
    check_archive(store)
    archive = open_archive(store.settings, store.layout.root, PosixFS())
    present, root = archive.name if archive else None, store.layout.root
    found = Counter(
        residency.object.tier
        for db_id, _ in store.databases()
        for _, record in store.catalog.scan_chunks(db_id)
        if record.is_live and isinstance(residency := record.residency, RemoteArchived | LocalAndRemote)
    )
    for name, count in sorted(found.items()):
        if name != present:
            say(
                f"{count:,} chunks were archived to {name}, and the archive is {present} now: they are not sent again, "
                f"set archive.url back, or copy those objects there and run `latewood rebuild --catalog {root}`"
            )


def enqueue(store: Store, work: Work, names: Sequence[str]) -> list[JobId]:
    """Enqueue a job of each database; where one waits already, return that one."""
    jobs = []
    for name in names:
        try:
            jobs.append(store.enqueue(KINDS[work.kind], name, **work.payload))
        except UniqueJobAlreadyPending as error:
            say(f"a {work.kind} of {name!r} waits already: job {error.job_id}")
            jobs.append(error.job_id)
    return jobs


@contextmanager
def working(store: Store, workers: int | None) -> Iterator[WorkerPool]:
    """Run jobs meanwhile.  At the end, or when interrupted, handlers that heed it give their jobs back."""
    pool = WorkerPool(store.jobs, store.handlers, workers=workers or store.settings.workers)
    pool.start()
    try:
        yield pool
    finally:
        left = pool.stop()
        if left:
            say(f"left at work: jobs {', '.join(map(str, left))}; the next run repairs them")


def wait_for(store: Store, jobs: Collection[JobId], what: str) -> None:
    """Return when jobs are finished; meanwhile a terminal is shown how far they are."""
    with progress(what) as report:
        while True:
            found = [store.jobs.get(job) for job in jobs]
            if report is not None:
                report(*_progress_of(found))
            if all(job.is_finished for job in found):
                return
            time.sleep(_LOOK_S)


def has_failed(store: Store, job_id: JobId) -> bool:
    """Say whether a job has failed for good."""
    return isinstance(store.jobs.get(job_id).state, FailedPermanent)


def job_cells(store: Store, job_id: JobId) -> tuple[object, ...]:
    """Return the cells of COLUMNS."""
    return record_cells(store, store.jobs.get(job_id))


def record_cells(store: Store, job: JobRecord) -> tuple[object, ...]:
    """Return the cells of COLUMNS for a job that was read."""
    record = None if job.db_id is None else store.catalog.read(lambda view: view.db(job.db_id or 0))
    error = None if job.last_error is None else f"{job.last_error.kind}: {job.last_error.message}"
    kind = _NAMES.get(job.kind) or kind_name(job.kind)
    name = None if record is None else record.name
    return (job.job_id, kind, name, state_name(job), job.attempts, job.progress_done, job.progress_total, error)


def _progress_of(jobs: Sequence[JobRecord]) -> tuple[int, int]:
    """Return how much is done of how much; a job that does not know yet counts for nothing."""
    known = [job for job in jobs if job.progress_total]
    return sum(job.progress_done for job in known), sum(job.progress_total or 0 for job in known)
