"""Hydrate: chunks that are only remote come back as files.

Payload: `chunk_ids`, or `start` and `stop` sequences, or `shard`; nothing: all.   Order: docs/crash-safety.md
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from latewood.archive.names import TOKEN_BYTES, parse_file_name
from latewood.archive.sink import FILE_STEPS, FileSink
from latewood.archive.source import pieces
from latewood.archive.tier import Tier, TierSource
from latewood.archive.transfer import hydrate as bring_back
from latewood.catalog.tables import ChunkRecord, JobKind, LocalAndRemote, RemoteArchived
from latewood.errors import ConflictError, CorruptError, NotFoundError, UsageError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import HYDRATED_AT, Row, digest_of, live_rows, noted
from latewood.jobs.handlers.evict import settle_local
from latewood.jobs.handlers.proof import object_key_in
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.removal import is_only_remote, remove_file
from latewood.jobs.handlers.troubles import Troubles

HYDRATE: Final = JobKind.HYDRATE
"""The kind of these jobs."""

STEPS: Final = (
    "downloaded",
    *FILE_STEPS,
    "present",
    "replace file",
    "commit hydrated",
    "remove file",
    "sync directory",
)


def hydrate(attempt: Attempt) -> Result:
    """Bring back the chunks that the payload names.

    Raises:
        JobFailed: the database has no tier.
    """
    tier = attempt.tier()
    todo = [
        row
        for row in live_rows(attempt.rows())
        if is_only_remote(row.record) and is_wanted(row, attempt.context.payload)
    ]
    total, done, troubles = (
        sum(row.record.size_bytes for row in todo),
        0,
        Troubles(attempt, CorruptError, NotFoundError, UsageError),
    )
    for row in todo:
        with troubles.met_with([row]):
            _hydrate_chunk(attempt, tier, row)
        done += row.record.size_bytes
        attempt.context.progress(done, total)
    troubles.tell()
    return None


def is_wanted(row: Row, payload: Mapping[str, Any]) -> bool:
    """Say whether a payload means a chunk.  Pure."""
    record, chosen = row.record, payload.get("chunk_ids")
    start, stop = payload.get("start"), payload.get("stop")
    return (
        (chosen is None or row.chunk_id in chosen)
        and payload.get("shard") in (None, record.shard)
        and (start is None or record.sequence_max >= start)
        and (stop is None or record.sequence_min < stop)
    )


def replace_file(attempt: Attempt, tier: Tier, record: ChunkRecord) -> None:
    """Bring a chunk back over whatever has its name; whoever reads it sees the old file or the new.

    It gets a name of this job first: if that is where it ends, it is an orphan.

    Raises:
        NotFoundError, CorruptError: the object is not there, or not what it should be; the file is as it was.
    """
    key, path = object_key_in(tier, record), attempt.db.chunk_path(record)
    name, token = parse_file_name(record.file_name), attempt.random_bytes(TOKEN_BYTES).hex()
    if name is None:
        raise UsageError(f"{record.file_name} is no name of a chunk")
    sink = FileSink(attempt.fs, path.parent, token, attempt.step)
    try:
        for piece in pieces(TierSource(tier, key)):
            sink.write(piece)
        sink.prove(digest_of(record), path)
        published = sink.publish(name._replace(token=token).file_name)
    except BaseException:
        sink.abandon()
        raise
    attempt.step("replace file")
    attempt.fs.rename(published, path)
    attempt.step("sync directory")
    attempt.fs.sync_directory(path.parent)


def _hydrate_chunk(attempt: Attempt, tier: Tier, row: Row) -> None:
    record = row.record
    key, path, digest = object_key_in(tier, record), attempt.db.chunk_path(record), digest_of(record)
    try:
        bring_back(tier, key, attempt.fs, path, digest, hook=attempt.step, random_bytes=attempt.random_bytes)
    except ConflictError:  # A damaged file has its name, and no row claims that.
        replace_file(attempt, tier, record)

    def hydrated(found: ChunkRecord) -> ChunkRecord | None:
        residency = found.residency
        if not isinstance(residency, RemoteArchived) or not found.is_live:
            return None
        local = LocalAndRemote(object=residency.object, verified=residency.verified)
        return noted(replace(found, residency=local), **{HYDRATED_AT: attempt.now_ms()})

    if attempt.change("commit hydrated", row.chunk_id, hydrated):
        settle_local(attempt, "commit hydrated", row.chunk_id, record)
        return
    found = attempt.row(row.chunk_id)
    if found is None or found.purging:
        remove_file(attempt, record)  # It was retired meanwhile.
