"""Database: many logs that are appended to and read as one.

A key picks the shard; records of one key stay in order.  Records without a key go round the shards, a batch to each.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from latewood.catalog.tables import DbActive, DbDraining, DbRecord
from latewood.closing import Closing
from latewood.errors import ClosedError, UsageError
from latewood.forking import no_fork
from latewood.format import keyed
from latewood.format.identity import Mark
from latewood.log.argument import nanoseconds
from latewood.runtime.reader import DatabaseReader, ReaderStart
from latewood.runtime.record import DatabaseRecord, records_of
from latewood.runtime.shard import Shard
from latewood.runtime.sharding import Hand, deal_keyed, deal_round, shard_of
from latewood.types import DbId

if TYPE_CHECKING:
    import pyarrow as pa

    from latewood.runtime.readers import Readers

Place: TypeAlias = "int | datetime | Mapping[int, int] | None"
"""Where to begin or end in each shard: a sequence, a time, a sequence for each shard, or the whole."""


class ShardStats(NamedTuple):
    """One shard in numbers."""

    shard: int
    first_sequence: int
    next_sequence: int
    log_first_sequence: int
    """From here on the log has it; before, chunks do."""


class _Span(NamedTuple):
    """What is read of one shard."""

    start: int
    stop: int
    to_the_end: bool
    """Whether more would be read if the shard had it: then a log that is behind its chunks is told."""


class Database:
    """One database of a store.  Thread-safe; `Store.database` opens it, and closing the store closes it."""

    def __init__(
        self, db_id: DbId, record: DbRecord, shards: Sequence[Shard], readers: "Readers", state: Callable[[], DbRecord]
    ) -> None:
        """Hold the parts; `Store.database` is what opens one."""
        self.db_id, self.record = db_id, record
        self.shards = list(shards)
        self._readers, self._state = readers, state
        self._turns = count()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.record.name

    @property
    def keyed(self) -> bool:
        """Whether its records may have keys."""
        return self.record.options.keyed

    # -- appending --------------------------------------------------------------------------------------------

    def append(
        self,
        payload: bytes,
        key: bytes | None = None,
        *,
        ext_id: int = 0,
        timestamp_ns: int | None = None,
        durable: bool = False,
    ) -> tuple[int, int]:
        """Append one record and return its shard and its sequence there.

        Written, not durable, on return, unless asked; see `Log.append`.

        Raises:
            UsageError: a key for a database without keys, or one that is none.
            ClosedError: the database takes no more records: it is drained, or gone.
            DirectoryReplaced: the files of the store are not those that were opened any more.
        """
        self._check_appendable()
        shard = self.shards[self._shard_for(key)]
        body = self._encoded(key, payload)
        sequence = shard.log.append(body, ext_id=ext_id, timestamp_ns=timestamp_ns, durable=durable)
        if durable:
            shard.check_catalog()
        return shard.number, sequence

    def append_many(
        self,
        payloads: Sequence[bytes],
        keys: "Sequence[bytes | None] | None" = None,
        *,
        ext_id: int = 0,
        ext_ids: "Sequence[int] | None" = None,
        timestamps_ns: "int | Sequence[int] | None" = None,
        durable: bool = False,
    ) -> dict[int, range]:
        """Append records and return the sequences that they got in each shard, in the order in which they were given.

        Raises:
            UsageError: as `append`, or there are not as many keys, ids or times as payloads.
            ClosedError: as `append`.
        """
        self._check_appendable()
        turn = next(self._turns)
        for name, values in (("keys", keys), ("ext_ids", ext_ids), ("timestamps_ns", timestamps_ns)):
            if values is not None and not isinstance(values, int) and len(values) != len(payloads):
                message = f"{len(values)} {name} for {len(payloads)} payloads"
                raise UsageError(message)
        if keys is None and not (self.keyed and len(payloads)):
            shard = self.shards[turn % len(self.shards)]
            found = shard.log.append_many(
                payloads, ext_id=ext_id, ext_ids=ext_ids, timestamps_ns=timestamps_ns, durable=durable
            )
            if durable:
                shard.check_catalog()
            return {shard.number: found}
        ranges, hands = {}, self._dealt(payloads, keys, turn)
        for hand in hands:
            self.shards[hand.shard].log  # noqa: B018 - one that cannot be opened is met before anything is appended
        for hand in hands:
            ranges[hand.shard] = self.shards[hand.shard].log.append_many(
                hand.payloads,
                ext_id=ext_id,
                ext_ids=None if ext_ids is None else hand.picked(ext_ids),
                timestamps_ns=hand.picked_times(timestamps_ns),
                durable=durable,
            )
        if durable:
            self.shards[0].check_catalog()
        return ranges

    def flush(self) -> None:
        """Make everything that this store appended so far durable, in every shard; of other shards no log is opened."""
        for shard in self.shards:
            shard.flush()
        self.shards[0].check_catalog()

    # -- reading ----------------------------------------------------------------------------------------------

    def scan(
        self,
        start: Place = None,
        stop: Place = None,
        *,
        shard: int | None = None,
        as_of: int | None = None,
        merged: bool = False,
    ) -> Iterator[DatabaseRecord]:
        """Yield records from wherever they are: one shard after the other, or merged by their timestamps.

        `start` and `stop` are a sequence of every shard, a time, or a sequence for each shard; `as_of` ends where the
        catalog's chunks ended at a generation.

        Raises:
            DataLost: records are nowhere, as retention removed them; what lies before them in their shard comes first.
            LogBehind: the log of a shard ends before its chunks do, or is gone; what is in chunks comes first.
            CorruptError: something is damaged.
        """
        ranges = self._ranges(start, stop, shard, as_of)
        streams = [records_of(number, self._batches(number, span, None)) for number, span in ranges.items()]
        if merged:
            yield from heapq.merge(*streams, key=lambda record: record.timestamp_ns)
        else:
            yield from chain.from_iterable(streams)
        self._check_ends(ranges)

    def arrow_batches(
        self,
        start: Place = None,
        stop: Place = None,
        *,
        shard: int | None = None,
        as_of: int | None = None,
        columns: Iterable[str] | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the same as Arrow batches, shard by shard, in flat memory; only `columns`, if they are given.

        Raises:
            UsageError: there is no such column.
            DataLost, LogBehind, CorruptError: as `scan`.
        """
        with no_fork():
            from latewood.runtime.columns import with_shard  # noqa: PLC0415 - Arrow takes its time to load

        wanted, ranges = self._columns(columns), self._ranges(start, stop, shard, as_of)
        for number, span in ranges.items():
            for batch in self._batches(number, span, [name for name in wanted if name != "shard"] or ["sequence"]):
                yield with_shard(batch, number, wanted)
        self._check_ends(ranges)

    def to_arrow(
        self,
        start: Place = None,
        stop: Place = None,
        *,
        shard: int | None = None,
        as_of: int | None = None,
        columns: Iterable[str] | None = None,
    ) -> "pa.Table":
        """Return the same as one table, all of it in memory."""
        with no_fork():
            from latewood.runtime.columns import table  # noqa: PLC0415 - Arrow takes its time to load

        wanted = self._columns(columns)
        batches = list(self.arrow_batches(start, stop, shard=shard, as_of=as_of, columns=wanted))
        return table(batches, self.schema, wanted)

    @property
    def schema(self) -> "pa.Schema":
        """The columns of its tables."""
        with no_fork():
            from latewood.runtime.columns import database_schema  # noqa: PLC0415 - Arrow takes its time to load

        return database_schema(keyed=self.keyed)

    def reader(self, name: str, start: ReaderStart = "resume", *, merged: bool = False) -> DatabaseReader:
        """Open a named reader of all shards; its positions, one a shard, outlive the process.

        `start` is `"resume"`, `"earliest"`, `"latest"`, a time, or a sequence for each shard.  With `merged`, what one
        call of `poll` returns is in the order of timestamps.

        Raises:
            BadName: the name cannot be a file name, or begins with `latewood-`, as the system's own do.
            Locked: another reader of this name is open.
            AnotherLog: it has read another log than the one that a shard has now; start it elsewhere.
        """
        return self._readers.open(name, self.shards, start, merged=merged)

    def marks(self) -> dict[int, Mark | None]:
        """Return what a position in each shard carries that a program keeps elsewhere; see `check_positions`."""
        return {shard.number: shard.mark() for shard in self.shards}

    def check_positions(self, positions: Mapping[int, int], marks: Mapping[int, Mark | None]) -> None:
        """Do nothing if positions that a program keeps elsewhere, by shard, are of this database.

        `marks` is what `marks` returned when they were taken; a shard that has none there is believed.

        Raises:
            AnotherLog: one of them is of another database, or of records that a shard lost.
            LogBehind: the log of a shard is not there, or is another one, or ends before its chunks do.
            UsageError: there is no such shard, or that is no sequence, or no mark.
        """
        for number, sequence in positions.items():
            if number not in range(len(self.shards)):
                message = f"database {self.name!r} has no shard {number!r}"
                raise UsageError(message)
            self.shards[number].log.check_position(sequence, marks.get(number))

    def readers(self) -> "Readers":
        """Return the named readers, seen from outside."""
        return self._readers

    def stats(self) -> list[ShardStats]:
        """Return every shard in numbers."""
        return [ShardStats(shard.number, shard.first(), shard.end(), shard.log_first()) for shard in self.shards]

    def close(self) -> None:
        """Close its readers and logs: all of them, whatever some of them raise."""
        with Closing() as closing:
            closing(self._readers.close)
            for shard in self.shards:
                closing(shard.close)

    # -- inside -----------------------------------------------------------------------------------------------

    def _dealt(self, payloads: Sequence[bytes], keys: "Sequence[bytes | None] | None", turn: int) -> "list[Hand[Any]]":
        """Return what falls to each shard."""
        count = len(self.shards)
        if keys is None:
            return [hand._replace(shard=turn % count) for hand in deal_keyed(payloads, [None] * len(payloads), 1, turn)]
        if self.keyed:
            return deal_keyed(payloads, keys, count, turn)
        self._refuse_keys(keys)
        return deal_round(payloads, count, turn)

    def _encoded(self, key: bytes | None, payload: bytes) -> bytes:
        if self.keyed:
            return keyed.encode(key, payload)
        return payload

    def _shard_for(self, key: bytes | None) -> int:
        if key is None:
            return next(self._turns) % len(self.shards)
        self._refuse_keys([key])
        return shard_of(key, len(self.shards))

    def _refuse_keys(self, keys: "Sequence[bytes | None]") -> None:
        if not self.keyed and any(key is not None for key in keys):
            message = f"database {self.name!r} was made without keys"
            raise UsageError(message)

    def _check_appendable(self) -> None:
        status = self._state().status
        if not isinstance(status, DbActive):
            reason = "is being drained" if isinstance(status, DbDraining) else "is gone"
            message = f"database {self.name!r} {reason} and takes no more records"
            raise ClosedError(message)

    def _ranges(self, start: Place, stop: Place, shard: int | None, as_of: int | None) -> dict[int, _Span]:
        if shard is not None and not 0 <= shard < len(self.shards):
            message = f"there is no shard {shard}; database {self.name!r} has {len(self.shards)}"
            raise UsageError(message)
        chosen = self.shards if shard is None else [self.shards[shard]]
        ranges = {}
        for one in chosen:
            end = one.end() if as_of is None else min(one.end(), one.as_of(as_of))
            first = one.first() if start is None else max(0, _place(one, start, one.first()))
            wanted = end if stop is None else _place(one, stop, end)
            to_the_end = wanted > end or (wanted == end and not _is_counted(one, stop))
            ranges[one.number] = _Span(first, min(end, wanted), as_of is None and to_the_end)
        return ranges

    def _batches(self, number: int, span: _Span, columns: list[str] | None) -> Iterator[Any]:
        with closing(self.shards[number].batches(span.start, span.stop, columns)) as batches:  # type: ignore[type-var]
            yield from batches

    def _check_ends(self, ranges: Mapping[int, _Span]) -> None:
        """Raise if a shard that was read to its end has lost what came there."""
        for number, span in ranges.items():
            if span.to_the_end and (behind := self.shards[number].behind()) is not None:
                raise behind

    def _columns(self, columns: Iterable[str] | None) -> list[str]:
        names = self.schema.names
        wanted = names if columns is None else list(columns)
        unknown = [name for name in wanted if name not in names]
        if unknown:
            message = f"there is no column {unknown[0]!r}; there are {', '.join(names)}"
            raise UsageError(message)
        return wanted


def _place(shard: Shard, place: "int | datetime | Mapping[int, int]", missing: int) -> int:
    if isinstance(place, datetime):
        return shard.find_timestamp(nanoseconds(place))
    if isinstance(place, Mapping):
        return place.get(shard.number, missing)
    return place


def _is_counted(shard: Shard, stop: Place) -> bool:
    """Say whether a place to end at is a sequence in this shard, and not a time, or the end whatever that is."""
    return isinstance(stop, int) or (isinstance(stop, Mapping) and shard.number in stop)
