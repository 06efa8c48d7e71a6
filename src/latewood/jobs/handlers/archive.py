"""Archive: chunks that are only local go to the tier.

An archive without identity gets one first, and the catalog notes it.  Each chunk is put under a key that follows from
its name, on the condition that there is none or that it has the same bytes; then read back whole; only then does its
row say that the tier has it.   Order: docs/crash-safety.md
"""

from typing import Final

from msgspec.structs import replace

from latewood.archive.identity import IDENTITY_STEPS
from latewood.archive.tier import Tier
from latewood.archive.transfer import UPLOAD_STEPS, RemoteCopy, upload
from latewood.catalog.tables import ChunkRecord, Local, LocalAndRemote, RemoteObject
from latewood.errors import CorruptError, NotFoundError, ObjectConflict
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, digest_of, live_rows
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.removal import remove_object
from latewood.jobs.handlers.troubles import Troubles

STEPS: Final = (*IDENTITY_STEPS, *UPLOAD_STEPS, "commit archived", "remove object")


def archive(attempt: Attempt) -> Result:
    """Upload every live chunk that no verified object holds.

    Raises:
        JobFailed: the database has no tier, or another archive is there.
    """
    todo = [row for row in live_rows(attempt.rows()) if needs_upload(row.record)]
    tier = attempt.tier(make=bool(todo))
    total, done, troubles = (
        sum(row.record.size_bytes for row in todo),
        0,
        Troubles(attempt, CorruptError, NotFoundError, ObjectConflict),
    )
    for row in todo:
        with troubles.met_with([row]):
            archive_chunk(attempt, tier, row)
        done += row.record.size_bytes
        attempt.context.progress(done, total)
    troubles.tell()
    return None


def needs_upload(record: ChunkRecord) -> bool:
    """Say whether a live chunk has a file, and no object that was read back."""
    residency = record.residency
    return isinstance(residency, Local) or (isinstance(residency, LocalAndRemote) and not residency.verified)


def archive_chunk(attempt: Attempt, tier: Tier, row: Row) -> None:
    """Upload one chunk, prove the object, and say so in its row.

    Raises:
        NotFoundError: there is no such file; it may have been retired meanwhile.
        CorruptError: the file, or what the tier made of it, is not what it should be.
        ObjectConflict: the tier has other bytes under that key.
    """
    key = attempt.db.object_key(row.record)
    path = attempt.db.chunk_path(row.record)
    copy = upload(attempt.fs, path, tier, key, digest_of(row.record), attempt.step)

    def archived(record: ChunkRecord) -> ChunkRecord | None:
        if record.purging:
            return None
        residency = LocalAndRemote(object=remote_object(copy), verified=copy.verified)
        return replace(record, residency=residency, uploaded_at_ms=attempt.now_ms())

    if not attempt.change("commit archived", row.chunk_id, archived):
        remove_object(attempt, tier, row.record, key)  # It was retired meanwhile, and nobody would know of it.


def remote_object(copy: RemoteCopy) -> RemoteObject:
    """Return what a row says of an object."""
    info = copy.info
    return RemoteObject(tier=copy.tier, key=info.key, etag=info.etag, version_id=info.version_id)
