"""What holds the records, as tables: segments, chunks, readers, jobs, shards, and the plan of a read.

Rows are made on the driver, which knows the catalog; those of segments on executors, from headers and footers.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from latewood.fs import PosixFS
from latewood.log.identity import stranger_reason
from latewood.log.listing import SegmentInfo, list_segments
from latewood.queue.cursor import load_cursor
from latewood.queue.listing import list_readers
from latewood.spark.options import ReadOptions
from latewood.spark.pieces import ShardReader, ShardSource
from latewood.spark.schema import view_row

# ruff: noqa: PLC0415 - what opens the catalog is loaded on the driver, never on executors

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS_MAX: Final = 10_000
"""Rows that one task carries."""
_SIGN: Final = 1 << 63


class RowsPartition(InputPartition):
    """Rows that the driver has made."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(None)
        self.rows = tuple(rows)


class SegmentsPartition(InputPartition):
    """A log whose segments are to be listed."""

    def __init__(self, source: ShardSource) -> None:
        super().__init__(None)
        self.source = source


class ViewReader(DataSourceReader):
    """Reads a view."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._names = options, schema.names

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of a query."""
        from latewood.spark.survey import surveyed

        with surveyed(self._options) as survey:
            if self._options.view == "segments":
                return [SegmentsPartition(shard.source) for shard in survey.shards]
            makers: dict[str, Callable[[Any, ReadOptions], Iterator[dict[str, Any]]]] = {
                "chunks": _chunks,
                "readers": _readers,
                "jobs": _jobs,
                "shards": _shards,
                "plan": _plan,
            }
            values = makers[self._options.view](survey, self._options)
            rows = [view_row(self._options.view, one, self._names) for one in values]
        return [RowsPartition(rows[at : at + _ROWS_MAX]) for at in range(0, len(rows), _ROWS_MAX)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a task."""
        if isinstance(partition, RowsPartition):
            yield from partition.rows
        elif isinstance(partition, SegmentsPartition):
            with ShardReader(partition.source) as reader:
                for segment in list_segments(reader.log):
                    yield view_row("segments", _segment(partition.source, segment), self._names)


def _segment(source: ShardSource, segment: SegmentInfo) -> dict[str, Any]:
    return {
        "database": source.shard.database or None,
        "shard": source.shard.number,
        "segment_id": segment.segment_id,
        "state": segment.state,
        "first_sequence": segment.first_sequence,
        "record_count": segment.record_count,
        "size_bytes": segment.size_bytes,
        "created_at": _time(segment.created_at_ns),
        "sealed_at": _time(segment.sealed_at_ns),
        "first_timestamp": _time(segment.first_timestamp_ns),
        "last_timestamp": _time(segment.last_timestamp_ns),
        "ext_id": segment.ext_id - 2 * _SIGN if segment.ext_id >= _SIGN else segment.ext_id,
        "path": str(segment.path),
    }


def _chunks(survey: Any, _: ReadOptions) -> Iterator[dict[str, Any]]:
    from latewood.spark.survey import chunk_rows

    for database, chunk_id, record, state in chunk_rows(survey):
        residency = type(record.residency).__name__
        item = getattr(record.residency, "object", None)
        yield {
            "database": database,
            "shard": record.shard,
            "chunk_id": chunk_id,
            "state": state,
            "residency": {"LocalAndRemote": "local and remote", "RemoteArchived": "remote"}.get(
                residency, residency.lower()
            ),
            "sequence_min": record.sequence_min,
            "sequence_max": record.sequence_max,
            "row_count": record.row_count,
            "size_bytes": record.size_bytes,
            "timestamp_min": _time(record.timestamp_min_ns),
            "timestamp_max": _time(record.timestamp_max_ns),
            "encrypted": record.encrypted,
            "generation": record.generation,
            "created_at": _time(record.created_at_ms * 1_000_000),
            "file_name": record.file_name,
            "object_key": item.key if item is not None else None,
        }


def _readers(survey: Any, _: ReadOptions) -> Iterator[dict[str, Any]]:
    for shard in survey.shards:
        found = _log_readers(shard) if shard.database is None else _database_readers(shard)
        for name, sequence, lag, committed_at_ns, problem in found:
            yield {
                "database": shard.id.database or None,
                "shard": shard.id.number,
                "reader": name,
                "sequence": sequence,
                "lag": lag,
                "committed_at": _time(committed_at_ns),
                "problem": problem,
            }


def _log_readers(shard: Any) -> Iterator[tuple[str, int | None, int | None, int | None, str | None]]:
    for one in list_readers(shard.log):
        yield one.name, one.sequence, one.lag, one.committed_at_ns, one.problem


def _database_readers(shard: Any) -> Iterator[tuple[str, int | None, int | None, int | None, str | None]]:
    fs, files, end = PosixFS(), shard.database.files, shard.end()
    identity = shard.log.identity if shard.behind is None else None
    for name in fs.list(files.readers):
        path = files.cursor(name, shard.id.number)
        cursor = load_cursor(fs, path) if fs.exists(path) else None
        if cursor is not None and cursor.sequence is not None:
            stranger = stranger_reason(identity, cursor.mark, cursor.sequence)
            lag = max(0, end - cursor.sequence) if stranger is None else None
            yield name, cursor.sequence, lag, cursor.committed_at, stranger


def _jobs(survey: Any, _: ReadOptions) -> Iterator[dict[str, Any]]:
    from latewood.spark.survey import check_is_store, job_rows

    check_is_store(survey, "view=jobs")
    for database, kind, record in job_rows(survey):
        yield {
            "job_id": record.job_id,
            "database": database,
            "kind": kind,
            "state": type(record.state).__name__,
            "created_at": _time(record.created_at_ms * 1_000_000),
            "updated_at": _time(record.updated_at_ms * 1_000_000),
            "attempts": record.attempts,
            "priority": record.priority,
            "progress_done": record.progress_done,
            "progress_total": record.progress_total,
            "last_error": f"{record.last_error.kind}: {record.last_error.message}" if record.last_error else None,
        }


def _shards(survey: Any, options: ReadOptions) -> Iterator[dict[str, Any]]:
    from latewood.spark.ranges import batch_ranges

    ranges = batch_ranges(survey, options)
    for shard in survey.shards:
        stats = shard.log.stats()
        yield {
            "database": shard.id.database or None,
            "shard": shard.id.number,
            "first_sequence": shard.first(),
            "next_sequence": stats.next_sequence,
            "durable_sequence": stats.durable_sequence,
            "log_first_sequence": shard.log_first,
            "records": sum(stop - start for start, stop in ranges[shard.id]),
            "segments": stats.segment_count,
            "log_bytes": stats.sealed_bytes + stats.active_bytes,
            "chunks": len(shard.chunks),
            "chunk_bytes": sum(chunk.size for chunk in shard.chunks),
        }


def _plan(survey: Any, options: ReadOptions) -> Iterator[dict[str, Any]]:
    """Yield the stretches of a read: whole chunks wherever there are some, also where the log still has them."""
    from latewood.spark.ranges import batch_ranges
    from latewood.spark.survey import is_lasting

    for shard in survey.shards:
        lasting = {
            chunk for chunk, record in zip(shard.chunks, shard.records, strict=True) if is_lasting(shard, record)
        }
        for start, stop in batch_ranges(survey, options)[shard.id]:
            for piece in shard.pieces_from_chunks(start, stop):
                chunk = piece.chunk
                whole = chunk is not None and (piece.start, piece.stop) == (chunk.sequence_min, chunk.sequence_max + 1)
                yield {
                    "database": shard.id.database or None,
                    "shard": shard.id.number,
                    "start": piece.start,
                    "stop": piece.stop,
                    "holder": "log" if chunk is None else "chunk",
                    "file": chunk.file if chunk else None,
                    "object_key": chunk.key if chunk else None,
                    "size_bytes": chunk.size if chunk else None,
                    "is_plain": whole and chunk in lasting,
                }


def _time(nanoseconds: int | None) -> datetime | None:
    return None if nanoseconds is None else _EPOCH + timedelta(microseconds=nanoseconds // 1000)
