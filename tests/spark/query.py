"""A streaming query without a JVM: what Spark does with the reader of a stream, and with a checkpoint.

Offsets are stored before a batch is run and a completion after it, as text.  Planned tasks are pickled, as on the way
to an executor.
"""

import json
import pickle
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from latewood.spark.options import parse_options
from latewood.spark.schema import table_schema
from latewood.spark.stream import StreamReader
from latewood.spark.survey import shape_of

Row = tuple[int, bytes]
"""Sequence and payload."""


class Query:
    """A query on `path`, and its checkpoint."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._given = {"path": str(path), "columns": "sequence,payload", **options}
        self.offsets: list[str] = []
        """Of each batch that was begun, its end."""
        self.done = 0
        """How many were completed."""
        self._reader: StreamReader | None = None

    @property
    def reader(self) -> StreamReader:
        """The reader, which begins with the options."""
        if self._reader is None:
            options = parse_options(self._given, streaming=True)
            self._reader = StreamReader(options, table_schema(options, shape_of(options)))
        return self._reader

    def stop(self, **options: Any) -> None:
        """Stop; it is started again, with other options perhaps, by whatever comes next."""
        if self._reader is not None:
            self._reader.stop()
        self._reader = None
        self._given |= options

    def run(self) -> list[Row]:
        """Run batches until nothing is left, first of all the one that it was stopped in; return their rows."""
        rows = self.repeat() if self.done < len(self.offsets) else []
        while self.begin():
            rows += self.repeat()
        return rows

    def begin(self) -> bool:
        """Store the end of another batch, if there is one."""
        start = self._start(len(self.offsets))
        end = json.dumps(self.reader.latestOffset(json.loads(start), ReadAllAvailable()))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def repeat(self) -> list[Row]:
        """Run the batch whose end was stored, and complete it."""
        start, end = json.loads(self._start(self.done)), json.loads(self.offsets[self.done])
        partitions = pickle.loads(pickle.dumps(list(self.reader.partitions(start, end))))  # noqa: S301 - ours
        rows: list[Row] = []
        for partition in partitions:
            for batch in self.reader.read(partition):
                columns = batch.to_pydict()
                rows += zip(columns["sequence"], columns["payload"], strict=True)
        self.done += 1
        self.reader.commit(end)
        return sorted(rows)

    def _start(self, batch: int) -> str:
        return self.offsets[batch - 1] if batch else json.dumps(self.reader.initialOffset())
