"""Compact: small neighbours become one chunk.

The new chunk is made from the old ones, wherever they are, and takes their place in one commit.  The old ones stay for
a grace period, for those who read them; `retain` removes them then.

Payload: `target_bytes`, `grace_ms`, `eager: true` (join whatever fits).   Order: docs/crash-safety.md
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace as with_options
from typing import Final

from msgspec.structs import replace

from latewood.archive.chunk_writer import Chunk
from latewood.archive.compact import compact_chunks
from latewood.archive.sink import FILE_STEPS, remove_temporary
from latewood.catalog import CatalogView, Op
from latewood.errors import CorruptError, NotFoundError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, live_rows, merged_marks, row_of
from latewood.jobs.handlers.compaction import Piece, plan
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.troubles import Troubles

STEPS: Final = (*FILE_STEPS, "commit compaction", "drop compaction")


def compact(attempt: Attempt) -> Result:
    """Make one chunk of each run of neighbours that is worth it."""
    groups = _groups(attempt)
    total, done = sum(row.record.size_bytes for group in groups for row in group), 0
    troubles = Troubles(attempt, CorruptError, NotFoundError)
    for group in groups:
        with troubles.met_with(group):
            _compact_group(attempt, group)
        done += sum(row.record.size_bytes for row in group)
        attempt.context.progress(done, total)
    troubles.tell()
    return None


def _groups(attempt: Attempt) -> list[list[Row]]:
    payload, rows = attempt.context.payload, attempt.rows()
    target = payload.get("target_bytes") or attempt.db.chunk_options.chunk_bytes
    by_id = {row.chunk_id: row for row in rows}
    groups = [
        group
        for shard in attempt.shards
        for group in plan([_piece(row) for row in live_rows(rows, shard)], target, eager=bool(payload.get("eager")))
    ]
    return [[by_id[piece.chunk_id] for piece in group] for group in groups]


def _piece(row: Row) -> Piece:
    record = row.record
    return Piece(row.chunk_id, record.sequence_min, record.sequence_max, record.size_bytes)


def _compact_group(attempt: Attempt, group: Sequence[Row]) -> None:
    chunk = _made(attempt, group)
    chunk_id = attempt.new_chunk_id()
    grace_ms = attempt.context.payload.get("grace_ms", attempt.db.record.options.grace_ms)

    def decide(view: CatalogView, generation: int) -> Sequence[Op]:
        parents = {row.chunk_id: view.chunk(attempt.db_id, row.chunk_id) for row in group}
        found = {parent: record for parent, record in parents.items() if record is not None and record.is_live}
        if len(found) < len(group):
            return []
        purge_after_ms = attempt.now_ms() + grace_ms
        new = replace(row_of(chunk, generation, merged_marks(list(found.values()))), supersedes=tuple(found))
        return [attempt.upsert(chunk_id, new)] + [
            attempt.upsert(parent, replace(record, superseded_by=chunk_id, purge_after_ms=purge_after_ms))
            for parent, record in found.items()
        ]

    if not attempt.commit("commit compaction", decide):
        attempt.step("drop compaction")  # Retention, or a repair, took one of them meanwhile.
        remove_temporary(attempt.fs, chunk.path)
        attempt.fs.sync_directory(chunk.path.parent)


def _made(attempt: Attempt, group: Sequence[Row]) -> Chunk:
    size = sum(row.record.size_bytes for row in group)
    options = attempt.db.chunk_options
    one = with_options(options, chunk_bytes=max(options.chunk_bytes, 2 * size))  # What is estimated must not cut it.
    with ExitStack() as opened:
        readers = [opened.enter_context(attempt.db.open_chunk(row.record)) for row in group]
        (chunk,) = compact_chunks(attempt.chunk_site(group[0].record.shard, one), readers)
    return chunk
