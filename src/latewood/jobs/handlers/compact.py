"""Compact: small neighbours become one chunk.

The new chunk is made from the old ones, wherever they are, and takes their place in one commit.  The old ones stay for
a grace period, for those who read them; `retain` removes them then.

Payload: `target_bytes`, `grace_ms`, `eager: true` (join whatever fits).   Order: docs/crash-safety.md
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from latewood.archive.chunk_writer import Chunk
from latewood.archive.sink import FILE_STEPS, remove_temporary
from latewood.catalog import CatalogView, Op
from latewood.catalog.tables import ChunkRecord
from latewood.errors import CorruptError, NotFoundError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, has_file, live_rows, merged_marks, object_of, row_of
from latewood.jobs.handlers.compaction import Piece, plan
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.staging import STAGED_STEPS, adopted, workplace
from latewood.jobs.handlers.troubles import Troubles
from latewood.tasks.chunks import ChunkPlace, Compacted, CompactTask, compact_group

STEPS: Final = (*FILE_STEPS, *STAGED_STEPS, "commit compaction", "drop compaction")


def compact(attempt: Attempt) -> Result:
    """Make one chunk of each run of neighbours that is worth it."""
    groups = {tuple(row.chunk_id for row in group): group for group in _groups(attempt)}
    if not groups:
        return None
    total, done = sum(row.record.size_bytes for group in groups.values() for row in group), 0
    troubles = Troubles(attempt, CorruptError, NotFoundError)
    with workplace(attempt) as directory, _made(attempt, list(groups.values()), directory) as results:
        for made in results:
            group = groups[made.chunk_ids]
            with troubles.met_with(group):
                if made.error is not None:
                    raise made.error
                assert made.chunk is not None
                _commit(attempt, group, adopted(attempt, made.chunk))
            done += sum(row.record.size_bytes for row in group)
            attempt.context.progress(done, total)
    troubles.tell()
    return None


def _made(attempt: Attempt, groups: Sequence[list[Row]], directory: Path) -> "closing[Generator[Compacted]]":
    """Return what groups become, for as long as somebody wants it."""
    return closing(attempt.map(compact_group, (_task(attempt, group, directory) for group in groups)))


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


def _task(attempt: Attempt, group: Sequence[Row], directory: Path) -> CompactTask:
    recipe = attempt.recipe(group[0].record.shard, directory)
    places = tuple(_place(attempt, row.record) for row in group)
    return CompactTask(recipe, tuple(row.chunk_id for row in group), places)


def _place(attempt: Attempt, record: ChunkRecord) -> ChunkPlace:
    named = object_of(record)
    return ChunkPlace(str(attempt.db.chunk_path(record)) if has_file(record) else None, named.key if named else None)


def _commit(attempt: Attempt, group: Sequence[Row], chunk: Chunk) -> None:
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
