"""What rows of chunks say, and new rows.  Pure.

A chunk is *live* if its records are read from it.  The live chunks of a shard follow on one another, from the retention
floor up to `last_applied_sequence`, at every moment.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from latewood.archive.source import Digest
from latewood.catalog.tables import (
    ChunkRecord,
    CompressionCodec,
    Local,
    LocalAndRemote,
    RemoteArchived,
    RemoteObject,
)
from latewood.catalog.tables.chunk import MARKS, Mark
from latewood.errors import UsageError
from latewood.types import ChunkId

if TYPE_CHECKING:
    from latewood.archive.chunk_writer import Chunk

MARKS_MAX: Final = 1024
"""Marks of one row: the oldest go, and with them how far the shard had come at so old a generation."""

HYDRATED_AT: Final = "hydrated_at_ms"
_MS: Final = 1_000_000


class Row(NamedTuple):
    """One row of a database's chunks."""

    chunk_id: ChunkId
    record: ChunkRecord


def live_rows(rows: Iterable[Row], shard: int | None = None) -> list[Row]:
    """Return the live chunks of a shard, or of all, in the order of their sequences."""
    found = [row for row in rows if row.record.is_live and shard in (None, row.record.shard)]
    return sorted(found, key=lambda row: (row.record.shard, row.record.sequence_min))


def has_file(record: ChunkRecord) -> bool:
    """Say whether the row claims a local file."""
    return isinstance(record.residency, Local | LocalAndRemote)


def object_of(record: ChunkRecord) -> RemoteObject | None:
    """Return the object that the row names, or None."""
    residency = record.residency
    return residency.object if isinstance(residency, LocalAndRemote | RemoteArchived) else None


def has_verified_object(record: ChunkRecord) -> bool:
    """Say whether the row names an object that was read back."""
    residency = record.residency
    return isinstance(residency, LocalAndRemote | RemoteArchived) and residency.verified


def doubted(record: ChunkRecord) -> ChunkRecord | None:
    """Return a row that does not vouch for its object any more; None if it does not."""
    residency = record.residency
    if not isinstance(residency, LocalAndRemote | RemoteArchived) or not residency.verified:
        return None
    return replace(record, residency=replace(residency, verified=False))


def digest_of(record: ChunkRecord) -> Digest:
    """Return what the chunk's file and object must be.

    Raises:
        UsageError: an older program noted no checksum.
    """
    if record.checksum is None:
        raise UsageError(f"the row of {record.file_name} has no checksum; compact it with a neighbour to get one")
    return Digest(record.size_bytes, record.checksum)


def merged_marks(records: Sequence[ChunkRecord]) -> list[Mark]:
    """Return the marks of all of them, in order, and no more than a row should have."""
    found: dict[int, int] = {}
    for generation, sequence in (mark for record in records for mark in record.marks):
        found[generation] = max(sequence, found.get(generation, sequence))
    return sorted(found.items())[-MARKS_MAX:]


def noted(record: ChunkRecord, **notes: Any) -> ChunkRecord:
    """Return a row with notes added to its `columns`."""
    return replace(record, columns={**(record.columns or {}), **notes})


def note_of(record: ChunkRecord, name: str) -> Any:
    """Return one of a row's notes, or None."""
    return (record.columns or {}).get(name)


def row_of(chunk: "Chunk", generation: int, marks: Sequence[Mark] | None = None) -> ChunkRecord:
    """Return the row of a new chunk.  `marks`: what it keeps of the chunks that it takes the place of."""
    meta = chunk.meta
    return ChunkRecord(
        file_name=chunk.name.file_name,
        generation=generation,
        size_bytes=chunk.digest.size,
        compression=CompressionCodec.ZSTD,
        encrypted=chunk.name.encrypted,
        shard=meta.shard,
        sequence_min=meta.sequence_min,
        sequence_max=meta.sequence_max,
        cohorts=meta.cohorts,
        segment_min=meta.segment_min,
        segment_max=meta.segment_max,
        row_count=meta.row_count,
        ext_id_min=meta.ext_id_min,
        ext_id_max=meta.ext_id_max,
        timestamp_min_ns=meta.timestamp_min_ns,
        timestamp_max_ns=meta.timestamp_max_ns,
        checksum=chunk.digest.checksum,
        key_id=chunk.key_id,
        created_at_ms=meta.created_ns // _MS,
        columns={MARKS: [list(mark) for mark in marks or [(generation, meta.sequence_max)]]},
    )


def gaps(rows: Sequence[Row], end: int) -> list[tuple[int, int]]:
    """Return the stretches that the live chunks of one shard, in order, leave out, or hold twice, before `end`."""
    found, at = [], rows[0].record.sequence_min if rows else end
    for row in rows:
        if row.record.sequence_min != at:
            found.append((min(at, row.record.sequence_min), max(at, row.record.sequence_min)))
        at = row.record.sequence_max + 1
    return found + ([(min(at, end), max(at, end))] if at != end else [])
