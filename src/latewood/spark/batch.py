"""The batch reader: plans on the driver, reads on executors.

A query is pinned when it is planned: to ranges of sequences, not to files.  Spark plans once for each `load()`; a task
that finds its records elsewhere than planned looks for them itself, see `pieces`.

`pushFilters` is not here on purpose: Spark keeps what was pushed for all later uses of the same DataFrame, and they
come out wrong without a word (tests/spark/test_push_filters.py).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from latewood.spark import plan
from latewood.spark.columns import Shaper, needed
from latewood.spark.offsets import ShardId
from latewood.spark.options import ReadOptions
from latewood.spark.pieces import ShardReader, ShardSource
from latewood.spark.schema import arrow_schema
from latewood.spark.worker_heap import settle

# ruff: noqa: PLC0415 - what opens the catalog is loaded on the driver, never on executors


@dataclass(frozen=True)
class Stretch:
    """Records of one shard that one task reads, and the chunks that have them."""

    source: ShardSource
    start: int
    stop: int
    chunks: tuple[plan.Chunk, ...]


class ScanPartition(InputPartition):
    """One task: some stretches."""

    def __init__(self, stretches: Sequence[Stretch], *, fail_on_data_loss: bool) -> None:
        super().__init__(None)
        self.stretches, self.fail_on_data_loss = tuple(stretches), fail_on_data_loss


class BatchReader(DataSourceReader):
    """Reads records."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of a query."""
        from latewood.spark.ranges import batch_ranges
        from latewood.spark.survey import surveyed

        with surveyed(self._options) as survey:
            found = scan_partitions(survey, batch_ranges(survey, self._options), self._options)
        settle()
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of a task."""
        return read_partition(partition, self._schema)


def scan_partitions(
    survey: Any, ranges: Mapping[ShardId, Sequence[tuple[int, int]]], options: ReadOptions
) -> list[InputPartition]:
    """Return tasks for ranges of what was surveyed."""
    spans = [
        [span for start, stop in ranges.get(shard.id, ()) if start < stop for span in shard.spans(start, stop)]
        for shard in survey.shards
    ]
    total = sum(span.size for own in spans for span in own)
    size = options.partition_bytes or plan.task_bytes(total, os.cpu_count() or 1)
    tasks = plan.pack(spans, size, options.partitions_min)
    return [
        ScanPartition(
            [_stretch(survey.shards[part.shard], part) for part in task], fail_on_data_loss=options.fail_on_data_loss
        )
        for task in tasks
    ]


def read_partition(partition: InputPartition, schema: StructType) -> Iterator[Any]:
    """Yield the Arrow batches of a task; a query without records has one without a plan."""
    if not isinstance(partition, ScanPartition):
        return
    arrow = arrow_schema(schema)
    columns = needed(arrow.names)
    settle()
    for stretch in partition.stretches:
        shaper = Shaper(arrow, *stretch.source.shard)
        with ShardReader(stretch.source, fail_on_data_loss=partition.fail_on_data_loss) as reader:
            batches = reader.batches(stretch.start, stretch.stop, stretch.chunks, columns)
            with closing(batches):  # type: ignore[type-var]
                for batch in batches:
                    yield shaper.shaped(batch)


def _stretch(shard: Any, part: plan.Slice) -> Stretch:
    return Stretch(shard.source, part.start, part.stop, tuple(plan.within(shard.chunks, part.start, part.stop)))
