"""The streaming reader: offsets are a sequence of each shard; only durable records are read.

The engine calls everything but `read` in one process of the driver.  `read` runs on executors, on a pickled copy, which
carries options and schema and nothing that is open.

A shard that appears while the query runs first enters the offsets with where it begins, and is read from the next batch
on: so every batch, when it is repeated, begins where it began.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from latewood.errors import DataLost
from latewood.spark import plan
from latewood.spark.batch import read_partition, scan_partitions
from latewood.spark.farewell import leave_quietly
from latewood.spark.offsets import Offsets, decode_offsets, encode_offsets
from latewood.spark.options import ReadOptions
from latewood.spark.positions import Positions, positions_of

# ruff: noqa: PLC0415, N802 - what opens the catalog is loaded on the driver only; the names are Spark's

_logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as they become durable.  One thread of the engine calls it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._target: Offsets | None = None
        self._positions: dict[str, Positions] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is open."""
        return self.__dict__ | {"_positions": {}}

    # -- the engine's side --------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins: where its reader stands, or where the options say."""
        from latewood.spark.ranges import check_bounds, checked_start, place_of
        from latewood.spark.survey import surveyed

        with surveyed(self._options) as survey:
            check_bounds(survey, self._options)
            stored = {} if self._options.has_start else self._stored(survey)
            offsets: Offsets = {}
            for shard in survey.shards:
                first, end = shard.first(), shard.log.durable_sequence
                start = stored.get(shard.id)
                if start is None:
                    start = place_of(shard, self._options.starting, first, end)
                start = first if start is None else start
                offsets[shard.id] = checked_start(shard, start, first, fails=self._options.fail_on_data_loss)
            self._hold(survey, offsets)
        return encode_offsets(offsets)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch may take."""
        if self._options.records_max is not None:
            return ReadMaxRows(self._options.records_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where to stop."""
        from latewood.spark.survey import surveyed

        with surveyed(self._options) as survey:
            self._target = {shard.id: shard.log.durable_sequence for shard in survey.shards}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        from latewood.spark.survey import surveyed

        known = decode_offsets(start)
        with surveyed(self._options) as survey:
            self._hold(survey, known)
            end = self._end(survey, known)
            if isinstance(limit, ReadAllAvailable):
                return encode_offsets(end)
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.records_max
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
            if rows is not None:
                end = plan.limit_records(known, end, rows)
            if size is not None:
                spans = {
                    shard.id: shard.spans(max(known[shard.id], shard.first()), end[shard.id])
                    for shard in survey.shards
                    if end.get(shard.id, 0) > known.get(shard.id, end.get(shard.id, 0))
                }
                end = plan.limit_bytes(known, end, spans, size)
        return encode_offsets(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where all that is durable ends, for the query's progress."""
        from latewood.spark.survey import surveyed

        with surveyed(self._options) as survey:
            return encode_offsets({shard.id: shard.log.durable_sequence for shard in survey.shards})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch.

        Raises:
            DataLost: retention removed records of it, and that should fail.
        """
        from latewood.spark.ranges import checked_start
        from latewood.spark.survey import surveyed

        begin, stop = decode_offsets(start), decode_offsets(end)
        with surveyed(self._options) as survey:
            self._hold(survey, begin)
            ranges = {}
            for shard in survey.shards:
                if shard.id not in begin or begin[shard.id] >= stop.get(shard.id, 0):
                    continue
                low = checked_start(shard, begin[shard.id], shard.first(), fails=self._options.fail_on_data_loss)
                ranges[shard.id] = [(low, max(low, min(stop[shard.id], shard.log.next_sequence)))]
            return scan_partitions(survey, ranges, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Move the reader: what is before `end` is dealt with."""
        offsets = decode_offsets(end)
        for positions in self._positions.values():
            positions.move(offsets)

    def stop(self) -> None:
        """Give the reader's name up; its positions stay."""
        for positions in self._positions.values():
            positions.close()
        self._positions = {}
        leave_quietly()

    # -- the executors' side ------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of a task."""
        return read_partition(partition, self._schema)

    # -- inside -------------------------------------------------------------------------------------------------

    def _end(self, survey: Any, known: Mapping[Any, int]) -> Offsets:
        """Return how far a batch could go; a shard that is new gets the place where it begins."""
        end = dict(known)
        for shard in survey.shards:
            if shard.id not in known:
                end[shard.id] = shard.first()
                continue
            durable = shard.log.durable_sequence
            if self._target is not None:
                durable = min(durable, max(known[shard.id], self._target.get(shard.id, known[shard.id])))
            if durable < known[shard.id]:
                self._went_back(shard, known[shard.id], durable)
            end[shard.id] = durable
        return end

    def _went_back(self, shard: Any, known: int, durable: int) -> None:
        if shard.log.next_sequence >= known:
            return  # Written, and read by a batch before; only the proof that it is durable is late.
        if self._options.fail_on_data_loss:
            error = DataLost(durable, known)
            error.add_note(
                f"{shard.id} went back behind the checkpoint: it was restored from an older copy, or rebuilt"
            )
            raise error
        _logger.warning("%s went back from %s to %s, behind the checkpoint", shard.id, known, durable)

    def _stored(self, survey: Any) -> Offsets:
        if self._options.reader is None:
            return {}
        stored: Offsets = {}
        for positions in positions_of(survey.shards, self._options.reader):
            stored |= positions.stored()
            positions.close()
        return stored

    def _hold(self, survey: Any, offsets: Offsets) -> None:
        """Be the named reader from `offsets` on, once for each database."""
        if self._options.reader is None:
            return
        fresh = [shard for shard in survey.shards if shard.id.database not in self._positions and shard.id in offsets]
        for positions, database in zip(
            positions_of(fresh, self._options.reader), dict.fromkeys(shard.id.database for shard in fresh), strict=True
        ):
            self._positions[database] = positions
            stored = positions.stored()
            positions.move({shard: min(offsets[shard], stored.get(shard, offsets[shard])) for shard in offsets})
