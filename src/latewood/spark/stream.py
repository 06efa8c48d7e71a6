"""The streaming reader: offsets are a sequence of each shard; only durable records are read.

The engine calls everything but `read` in one process of the driver.  `read` runs on executors, on a pickled copy, which
carries options and schema and nothing that is open.

A shard that appears while the query runs first enters the offsets with where it begins, and is read from the next batch
on: so every batch, when it is repeated, begins where it began.

Offsets name the log that they are of.  Before one of them is used it is compared with the log that is there: one that
was deleted and made anew under the same name is another log, and what a checkpoint says of the first says nothing of
the second.  The rule is in `standing`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
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

from latewood.spark import plan
from latewood.spark.batch import read_partition, scan_partitions
from latewood.spark.farewell import leave_quietly
from latewood.spark.offsets import Marks, Offsets, StoredOffsets, decode_offsets, encode_offsets
from latewood.spark.options import ReadOptions
from latewood.spark.positions import Positions, positions_of
from latewood.spark.standing import CHECKPOINT_MEND, READER_MEND, Standing, another_log, behind, standings

# ruff: noqa: PLC0415, N802 - what opens the catalog is loaded on the driver only; the names are Spark's

_logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as they become durable.  One thread of the engine calls it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._target: Offsets | None = None
        self._positions: dict[str, tuple[Marks, Positions]] = {}
        """Of each database, with the logs that they are of."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is open."""
        return self.__dict__ | {"_positions": {}}

    # -- the engine's side --------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins: where its reader stands, or where the options say.

        Raises:
            AnotherLog: its reader stands in another log, and that should fail.
        """
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
            return self._encoded(survey, offsets, hold=True)

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
        """Return where the next batch ends.

        Raises:
            AnotherLog: the checkpoint is of another log than the one that is there, or of records that this one does
                not have, as an older copy does not; and that should fail.
        """
        from latewood.spark.survey import surveyed

        stored = decode_offsets(start)
        with surveyed(self._options) as survey:
            known = stored.sequences | self._stands(survey, stored, "the checkpoint of this query", CHECKPOINT_MEND)
            self._hold(survey, known)
            end = self._end(survey, known)
            if not isinstance(limit, ReadAllAvailable):
                end = self._limited(survey, known, end, limit)
            return encode_offsets(StoredOffsets(end, stored.marks | survey.marks()))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where all that is durable ends, for the query's progress."""
        from latewood.spark.survey import surveyed

        with surveyed(self._options) as survey:
            return self._encoded(survey, {shard.id: shard.log.durable_sequence for shard in survey.shards})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch.

        Raises:
            DataLost: retention removed records of it, and that should fail.
            AnotherLog: it is of another log than the one that is there, and that should fail.
        """
        from latewood.spark.ranges import checked_start
        from latewood.spark.survey import surveyed

        first, last = decode_offsets(start), decode_offsets(end)
        with surveyed(self._options) as survey:
            begin = self._stands(survey, first, "the checkpoint of this query", CHECKPOINT_MEND)
            stop = self._ends(survey, last)
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
        for _, positions in self._positions.values():
            positions.move(offsets)

    def stop(self) -> None:
        """Give the reader's name up; its positions stay."""
        for _, positions in self._positions.values():
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
                self._went_back(survey, shard, known[shard.id], durable)
            end[shard.id] = durable
        return end

    def _went_back(self, survey: Any, shard: Any, known: int, durable: int) -> None:
        if shard.log.next_sequence >= known:
            return  # Written, and read by a batch before; only the proof that it is durable is late.
        self._check(
            shard.id, survey.homes()[shard.id], behind(known, durable), "the checkpoint of this query", CHECKPOINT_MEND
        )

    def _limited(self, survey: Any, known: Offsets, end: Offsets, limit: ReadLimit) -> Offsets:
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
        return end

    def _encoded(self, survey: Any, offsets: Offsets, *, hold: bool = False) -> dict[str, Any]:
        if hold:
            self._hold(survey, offsets)
        return encode_offsets(StoredOffsets(offsets, survey.marks()))

    # -- whose offsets these are --------------------------------------------------------------------------------

    def _stands(self, survey: Any, stored: StoredOffsets, whose: str, mend: str) -> Offsets:
        """Return where the shards that are here stand in what was stored."""
        homes = survey.homes()
        found = standings(homes, stored)
        for shard, one in found.items():
            self._check(shard, homes[shard], one, whose, mend)
        return {shard: one.sequence for shard, one in found.items()}

    def _ends(self, survey: Any, stored: StoredOffsets) -> Offsets:
        """Return where a batch ends in the shards that are here; in one whose log is another it has no records."""
        homes = survey.homes()
        found = standings(homes, stored)
        for shard, one in found.items():
            self._check(shard, homes[shard], one, "the batch that this query was stopped in", CHECKPOINT_MEND)
        return {shard: one.sequence for shard, one in found.items() if one.stranger is None}

    def _check(self, shard: Any, home: Any, found: Standing, whose: str, mend: str) -> None:
        if found.stranger is None:
            return
        error = another_log(shard, home, found, whose, mend)
        if self._options.fail_on_data_loss:
            raise error
        _logger.warning("%s: %s; the query goes on %s", error.path, error.reason, found.place)

    # -- the named reader ---------------------------------------------------------------------------------------

    def _stored(self, survey: Any) -> Offsets:
        """Return where the reader that this query is stands in the shards that are here."""
        if self._options.reader is None:
            return {}
        stored = StoredOffsets({}, {})
        for positions in positions_of(survey.shards, self._options.reader):
            with closing(positions):
                found = positions.stored()
                stored.sequences.update(found.sequences)
                stored.marks.update(found.marks)
        mend = READER_MEND.replace("{reader}", self._options.reader)
        return self._stands(survey, stored, f"the position of reader {self._options.reader!r}", mend)

    def _hold(self, survey: Any, offsets: Mapping[Any, int]) -> None:
        """Be the named reader from `offsets` on, once for each database, and again if its logs are others now."""
        if self._options.reader is None:
            return
        marks, homes = survey.marks(), survey.homes()
        for database in dict.fromkeys(shard.id.database for shard in survey.shards):
            own = [shard for shard in survey.shards if shard.id.database == database and shard.id in offsets]
            held = {shard.id: marks[shard.id] for shard in own}
            before = self._positions.get(database)
            if not own or (before is not None and before[0] == held):
                continue
            if before is not None:
                before[1].close()
            (positions,) = positions_of(own, self._options.reader)
            self._positions[database] = held, positions
            stands = standings(homes, positions.stored())
            known = {shard: one.sequence for shard, one in stands.items() if one.stranger is None}
            start = {shard: min(offsets[shard], known.get(shard, offsets[shard])) for shard in held}
            positions.move(StoredOffsets(start, held))
