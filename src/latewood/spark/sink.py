"""The sink: a DataFrame, or the batches of a streaming query, appended to a log or a database.

Tasks stage their rows as files; the driver appends them in one commit that knows whether it has happened before.  So
tasks may be retried, run twice and be killed, and a streaming query may replay its last batch: each row is in the log
once.   How to use it: docs/guide/spark-sink.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from latewood.clock import SystemClock
from latewood.errors import UnavailableError, UsageError
from latewood.fs import PosixFS
from latewood.limits import ARROW_RECORDS_MAX, MiB
from latewood.spark.commits import Batch, Committer
from latewood.spark.commits_files import stream_query, txn_query
from latewood.spark.staging import Hook, StagedFile, StagedName, StagingWriter
from latewood.spark.worker_heap import settle
from latewood.spark.writing_columns import Columns, find_columns, records_of, split_by_shard
from latewood.spark.writing_options import WriteOptions, parse_write_options
from latewood.spark.writing_patience import patiently
from latewood.spark.writing_target import Target, check_there, find_target

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Spark's own names for what a task belongs to.  Nobody promises them: a test tells when they change."""

_GROUP_BYTES: Final = 8 * MiB
"""So much is gathered before it is divided among the shards: what a task keeps in memory, beyond one batch."""

_MS: Final = 1_000_000


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    file: StagedFile | None
    """None: the task had no rows."""


@dataclass(frozen=True)
class Sink:
    """What both kinds of writer are made of.  Pickled, and sent to every task."""

    options: WriteOptions
    target: Target
    columns: Columns

    def stage(self, batches: Iterator[Any], query: str, batch: int, step: Hook) -> StagedFile | None:
        """Write a task's rows to a file of its own, durably; None if there are none.

        Raises:
            ClosedError: the target was deleted since the query began.
        """
        check_there(PosixFS(), self.target)
        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        name = StagedName(SystemClock().now_ns() // _MS, query, batch, partition, attempt, uuid4().hex)
        writer: StagingWriter | None = None
        try:
            for turn, rows in enumerate(_grouped(batches)):
                writer = writer or StagingWriter(PosixFS(), self.target.staging, name, step)
                records, keys = records_of(rows, self.columns, has_keys=self.target.keyed)
                for shard, piece in split_by_shard(records, keys, len(self.target.logs), partition + turn):
                    writer.add(shard, piece)
            settle()
            return writer.finish() if writer else None
        except BaseException:
            if writer:
                writer.discard()
            raise

    def committer(self, step: Hook) -> Committer:
        """Return what appends staged files."""
        settle()
        return Committer(
            PosixFS(),
            self.target,
            lock_timeout_ms=self.options.lock_timeout_ms,
            staging_age_max_ms=self.options.staging_age_max_ms,
            hook=step,
        )


class BatchSink(DataSourceArrowWriter):
    """Appends one DataFrame.  With a `txnId` once, however often it is run; without one each time."""

    def __init__(self, sink: Sink) -> None:
        txn_id = sink.options.txn_id
        self.sink = sink
        self.batch = Batch(f"once-{uuid4().hex}", "once", 0) if txn_id is None else Batch(txn_query(txn_id), "txn", 0)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of one task."""
        return Staged(self.batch.query, self.sink.stage(iterator, self.batch.query, 0, self.step))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what all tasks have staged."""
        self.sink.committer(self.step).commit(self.batch, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks have staged, unless a commit has begun with it."""
        self.sink.committer(self.step).abort(self.batch, _files(messages))

    def step(self, name: str) -> None:
        """Do nothing; tests do something.  Called after each step that another process could see."""


class StreamSink(DataSourceStreamArrowWriter):
    """Appends each batch of a streaming query exactly once."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of one task."""
        query, batch = current_batch()
        return Staged(query, self.sink.stage(iterator, query, batch, self.step))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append what all tasks of a batch have staged, unless that has happened before."""
        for query in _queries(messages):
            self.sink.committer(self.step).commit(Batch(query, "stream", batchId), _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what tasks have staged, unless a commit has begun with it."""
        for query in _queries(messages):
            self.sink.committer(self.step).abort(Batch(query, "stream", batchId), _files(messages))

    def step(self, name: str) -> None:
        """Do nothing; tests do something.  Called after each step that another process could see."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:  # noqa: FBT001 - as Spark calls it
    """Return what `df.write.format("latewood")` writes with.

    Raises:
        UsageError: an option or a column is not understood, or the mode is `overwrite`.
        NotFoundError: there is no such database.
    """
    return BatchSink(_sink(options, schema, overwrite=overwrite, streaming=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:  # noqa: FBT001 - as Spark calls it
    """Return what `df.writeStream.format("latewood")` writes with.

    Raises:
        UsageError: an option or a column is not understood, or the output mode is `complete`.
        NotFoundError: there is no such database.
    """
    return StreamSink(_sink(options, schema, overwrite=overwrite, streaming=True))


def current_batch() -> tuple[str, int]:
    """Return the query and the number of the batch that this task belongs to.

    Raises:
        UsageError: it belongs to none, or this Spark calls them otherwise.
    """
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if not query or not batch:
        raise UsageError(f"this task has no {QUERY_ID} and {BATCH_ID}: it is not part of a streaming query")
    return stream_query(query), int(batch)


def _sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> Sink:
    if overwrite:
        mode = "outputMode('append')" if streaming else "mode('append')"
        raise UsageError(f"a log is only ever appended to: use {mode}; to begin anew, write to a new directory")
    parsed = parse_write_options(options, streaming=streaming)
    target = patiently(lambda: find_target(PosixFS(), parsed.path), parsed.lock_timeout_ms)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    settle()
    return Sink(parsed, target, find_columns(fields, has_keys=target.keyed))


def _grouped(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield rows in larger batches: few large frames cost less than many small ones."""
    gathered: list[Any] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ARROW_RECORDS_MAX or size >= _GROUP_BYTES:
            yield pa.concat_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.concat_batches(gathered)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.file for message in messages if isinstance(message, Staged) and message.file]


def _queries(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    queries = {message.query for message in messages if isinstance(message, Staged)}
    if len(queries) > 1:
        raise UnavailableError(f"tasks of more than one query in one batch: {', '.join(sorted(queries))}")
    return queries
