"""Rekey: chunks that are encrypted with another key than the database's, or not at all, are written anew with that key.

Each becomes one new chunk with the same records, wherever the old one is, and that takes its place in one commit, as in
a compaction: the old one stays for a grace period, and `retain` removes it then, an archived one once the new one is
archived too.  Only after that may the old key be forgotten.

Payload: `grace_ms`, `chunk_ids`; nothing: all.   Order: docs/crash-safety.md
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from latewood.archive.chunk_writer import Chunk
from latewood.archive.compact import compact_chunks
from latewood.archive.sink import FILE_STEPS, remove_temporary
from latewood.catalog import CatalogView, Op
from latewood.catalog.tables import ChunkRecord, JobKind
from latewood.errors import CorruptError, NotFoundError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, live_rows, merged_marks, row_of
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.troubles import Troubles

REKEY: Final = JobKind.REKEY
"""The kind of these jobs."""

STEPS: Final = (*FILE_STEPS, "commit rekeyed", "drop rekeyed")


def rekey(attempt: Attempt) -> Result:
    """Write every live chunk that another key, or none, was used for anew."""
    key_id = attempt.db.keys.current_id if attempt.db.keys else None
    chosen = attempt.context.payload.get("chunk_ids")
    todo = [
        row
        for row in live_rows(attempt.rows())
        if needs_rekey(row.record, key_id) and (chosen is None or row.chunk_id in chosen)
    ]
    total, done = sum(row.record.size_bytes for row in todo), 0
    troubles = Troubles(attempt, CorruptError, NotFoundError)  # A key that is not given is not found either.
    for row in todo:
        with troubles.met_with([row]):
            _rekey_chunk(attempt, row)
        done += row.record.size_bytes
        attempt.context.progress(done, total)
    troubles.tell()
    return None


def needs_rekey(record: ChunkRecord, key_id: str | None) -> bool:
    """Say whether a chunk is encrypted otherwise than with a key; None: in the open.  Pure."""
    return record.key_id != key_id or record.encrypted != (key_id is not None)


def _rekey_chunk(attempt: Attempt, row: Row) -> None:
    chunk, chunk_id = _written_anew(attempt, row.record), attempt.new_chunk_id()
    purge_after_ms = attempt.now_ms() + attempt.context.payload.get("grace_ms", attempt.db.record.options.grace_ms)

    def decide(view: CatalogView, generation: int) -> Sequence[Op]:
        found = view.chunk(attempt.db_id, row.chunk_id)
        if found is None or not found.is_live:
            return []
        new = replace(row_of(chunk, generation, merged_marks([found])), supersedes=(row.chunk_id,))
        old = replace(found, superseded_by=chunk_id, purge_after_ms=purge_after_ms)
        return [attempt.upsert(chunk_id, new), attempt.upsert(row.chunk_id, old)]

    if not attempt.commit("commit rekeyed", decide):
        attempt.step("drop rekeyed")  # A compaction, retention or a repair took the old one meanwhile.
        remove_temporary(attempt.fs, chunk.path)
        attempt.fs.sync_directory(chunk.path.parent)


def _written_anew(attempt: Attempt, record: ChunkRecord) -> Chunk:
    site = attempt.chunk_site(record.shard, attempt.db.chunk_options.uncut())
    with attempt.db.open_chunk(record) as reader:
        (chunk,) = compact_chunks(site, [reader])
    return chunk
