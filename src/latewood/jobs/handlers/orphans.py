"""Orphans: files in the chunk directory that no row names, and staging directories, left by a job that broke off.

A file's token begins with the id of the job that made it.  It is left alone while that job is at work; else nobody will
ever name it, and it goes.  One thing holds a finished chunk back: records that neither a live chunk nor the log has.
That is no crash, but a catalog that went back, and then the file may be the only copy.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from latewood.archive.names import ChunkName, parse_file_name, token_of_temporary
from latewood.archive.sink import remove_temporary
from latewood.catalog import CatalogView
from latewood.catalog.tables import InFlight
from latewood.errors import LogBehind
from latewood.jobs.handlers.attempt import Attempt, job_of_token
from latewood.jobs.handlers.staging import job_of_staging, remove_staging
from latewood.jobs.handlers.tier_orphans import sweep_tier
from latewood.types import JobId

_logger: Final = logging.getLogger(__name__)


class Unnamed(NamedTuple):
    """A file of ours that no row of the database names."""

    file_name: str
    job_id: JobId
    chunk: ChunkName | None
    """None: it is unfinished."""


def unnamed(file_names: Iterable[str], named: Collection[str]) -> list[Unnamed]:
    """Return the files of ours that are not named.  Pure; files that are not ours are nobody's business."""
    found = []
    for file_name in file_names:
        chunk, token = parse_file_name(file_name), token_of_temporary(file_name)
        token = chunk.token if chunk else token
        if token is not None and file_name not in named:
            found.append(Unnamed(file_name, job_of_token(token), chunk))
    return found


def holds_only_copy(chunk: ChunkName, last_applied: int, log_first: int, log_end: int) -> bool:
    """Say whether a file has records that the shard has neither in chunks nor in its log.  Pure."""
    is_before_log = max(chunk.sequence_min, last_applied) < min(chunk.sequence_max + 1, log_first)
    return is_before_log or chunk.sequence_max >= max(last_applied, log_end)


def sweep(attempt: Attempt) -> list[str]:
    """Remove the orphans of the database's chunk directory, and return their names."""
    directory = attempt.db.chunk_dir
    file_names = attempt.fs.list(directory)  # Before the catalog is read: what was named since is then seen as named.
    found = attempt.context.read(lambda view: _abandoned(view, attempt, file_names))
    for name in (stagings := attempt.context.read(lambda view: _abandoned_stagings(view, attempt, file_names))):
        attempt.step("remove orphan")
        remove_staging(attempt, directory / name)
    removed = [file.file_name for file in found if _is_orphan(attempt, file)]
    for file_name in removed:
        attempt.step("remove orphan")
        remove_temporary(attempt.fs, directory / file_name)
    removed += stagings
    if removed:
        attempt.fs.sync_directory(directory)
        _logger.info("database %d: removed what jobs that broke off had left: %s", attempt.db_id, ", ".join(removed))
    return [*removed, *sweep_tier(attempt)]


def strays(attempt: Attempt) -> list[str]:
    """Return the chunk files that no row names and that `sweep` keeps, because they may be the only copy."""
    file_names = attempt.fs.list(attempt.db.chunk_dir)
    found = attempt.context.read(lambda view: _abandoned(view, attempt, file_names))
    return [file.file_name for file in found if file.chunk and _is_only_copy(attempt, file.chunk)]


def _abandoned(view: CatalogView, attempt: Attempt, file_names: list[str]) -> list[Unnamed]:
    """Return the files that are not named, of jobs that are not at work.  This job's own are of its last attempt."""
    named = {record.file_name for _, record in view.chunks(attempt.db_id)}
    files = unnamed(file_names, named)
    return [file for file in files if file.job_id == attempt.job_id or not _is_at_work(view, file.job_id)]


def _abandoned_stagings(view: CatalogView, attempt: Attempt, names: list[str]) -> list[str]:
    """Return the staging directories of jobs that are not at work; one of this job is of an earlier attempt."""
    jobs = [(name, job_id) for name in names if (job_id := job_of_staging(name)) is not None]
    return [name for name, job_id in jobs if job_id == attempt.job_id or not _is_at_work(view, job_id)]


def _is_at_work(view: CatalogView, job_id: JobId) -> bool:
    job = view.job(job_id)
    return job is not None and isinstance(job.state, InFlight)


def _is_orphan(attempt: Attempt, file: Unnamed) -> bool:
    if file.chunk is None:
        return True
    if attempt.db.sharers(file.file_name):
        return False  # Its fork names it, and lets it go in its own time.
    if _is_only_copy(attempt, file.chunk):
        _logger.warning("%s stays: no row names it, and its records are nowhere else", file.file_name)
        return False
    return True


def _is_only_copy(attempt: Attempt, chunk: ChunkName) -> bool:
    if chunk.shard not in attempt.shards:
        return True
    state = attempt.context.read(lambda view: view.wal_state(attempt.db_id, chunk.shard))
    if state and any(chunk.sequence_min < stop and start <= chunk.sequence_max for start, stop in state.lost):
        return True
    last_applied = state.last_applied_sequence if state else 0
    try:
        log = attempt.db.log(chunk.shard)
        log_first, log_end = log.first_sequence, log.next_sequence
    except LogBehind:  # It has nothing of its own to make the chunk of again.
        return chunk.sequence_max >= last_applied
    return holds_only_copy(chunk, last_applied, log_first, log_end)
