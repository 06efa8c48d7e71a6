"""A partition as a log, for asyncio: append, read, scan, named readers.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from latewood.errors import DataLost, MessageTooLarge, NotFoundError, UsageError
from latewood.kernel import Record
from latewood.limits import READ_RECORDS_MAX, U64_MAX, KiB, MiB, check_name
from latewood.log.argument import nanoseconds, whole_or_none
from latewood.replica.client.argument import partition_number, record_sequence
from latewood.replica.client.batcher import Batcher
from latewood.replica.client.parts import gathered
from latewood.replica.client.verdict import CHANGING, READING
from latewood.replica.replies import Cursor, Done, Found, PartitionInfo, Partitions, Readers, Records
from latewood.replica.requests import FindTime, GetCursor, GetPartitions, GetReaders, Read, SetCursor
from latewood.replica.wire import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from latewood.replica.client.asynchronous import AsyncClient
    from latewood.replica.client.reader import AsyncReader

READ_BYTES: Final = 1 * MiB
"""Of records in one reply, beyond its first."""
_PAYLOAD_BYTES_MAX: Final = FRAME_BYTES_MAX - 1 * KiB
"""Of one record, whatever nodes are told to take: with its request it must fit a message."""
_CALL_RECORDS_MAX: Final = 1_024
"""Records of one call in one request: a quarter of what a node takes in hand for a partition."""
Start: TypeAlias = Literal["resume", "earliest", "latest"] | int


class Page(NamedTuple):
    """Some records, and the ends of the partition as they were then."""

    records: list[Record]
    first_sequence: int
    next_sequence: int
    born: int = 0
    """Tells one life of a partition from another; 0: there is none."""


class PartitionReaderInfo(NamedTuple):
    """A named reader of a partition, seen from outside."""

    name: str
    sequence: int
    """The next record it wants, as its last `commit` says."""
    lag: int
    """Records that it has not committed."""


class AsyncPartition:
    """One partition.  `client.partition(7)` makes one; it costs nothing."""

    def __init__(self, client: "AsyncClient", partition: int) -> None:
        """Take its number.

        Raises:
            UsageError: it is no whole number from 0 on.
        """
        self.partition_id: Final = partition_number(partition)
        self._client = client
        self._room = client.room
        self._batcher: Batcher | None = None

    # -- writing ------------------------------------------------------------------------------------------

    async def append(self, payload: bytes) -> int:
        """Append one record and return its sequence.

        Committed on return: a majority of the nodes has it on disk.  Exactly once, however often it had to be sent.
        Calls that wait together travel together.

        Raises:
            OutcomeUnknown: no answer came until the deadline; `client.resolve(error)` finds out.
            ClusterUnavailable, Overloaded: nothing was written; try again later.
            RecordTooLarge, UsageError: nothing was written, and never would be.
        """
        raw = payload if type(payload) is bytes else _payload(payload)
        batcher, room, size = self._batcher or self._begin(), self._room, len(raw)
        if size > _PAYLOAD_BYTES_MAX:
            raise MessageTooLarge(size, _PAYLOAD_BYTES_MAX)
        if size > room.free or room.is_crowded:
            await room.take(size)
        else:  # One call less for every record.
            room.free -= size
        return await batcher.put(raw, size)

    async def append_many(self, payloads: Iterable[bytes]) -> list[int]:
        """Append many records and return their sequences, in order.

        What does not fit one request is sent in several, one after another; others may then get a number between.

        Raises:
            OutcomeUnknown: of some the answer is missing, or only some were written; `client.resolve(error)` finds out,
                writes the rest, and has the sequences of all.
            ClusterUnavailable, Overloaded: nothing was written; try again later.
            RecordTooLarge, UsageError: one of them is at fault; a note says how many others were written.
        """
        if isinstance(payloads, bytes | bytearray | memoryview | str) or not isinstance(payloads, Iterable):
            raise UsageError("append_many takes many payloads; append takes one")
        batcher = self._begin()
        ended: list[tuple[list[bytes], asyncio.Future[list[int]] | None]] = []
        for cut, size in self._cut([_payload(one) for one in payloads]):  # One after another: they keep their order.
            failed = bool(ended) and (ended[-1][1] is None or ended[-1][1].exception() is not None)
            future = None if failed else await self._put(batcher, cut, size)
            if future is not None:
                await asyncio.wait([future])
            ended.append((cut, future))
        return gathered(self.partition_id, ended)

    # -- reading ------------------------------------------------------------------------------------------

    async def read(self, sequence: int, *, stale: bool = False) -> Record:
        """Return one record; what was acknowledged before is always found, unless `stale` allows an old answer.

        Raises:
            UsageError: that can be no sequence.
            NotFoundError: it is not written yet.
            DataLost: it was retired.
        """
        page = await self.page(record_sequence(sequence), 1, stale=stale)
        if page.records:
            return page.records[0]
        message = f"record {sequence} of partition {self.partition_id} is not written yet; next is {page.next_sequence}"
        raise NotFoundError(message)

    async def scan(
        self, start: int | None = None, stop: int | None = None, *, stale: bool = False
    ) -> AsyncIterator[Record]:
        """Yield records from `start`, by default the oldest, up to `stop` or what is written when we get there.

        Raises:
            DataLost: they were retired.
        """
        stop = whole_or_none(stop, "stop")
        if start is not None:
            at = record_sequence(start)
        else:
            at = await self._first_sequence(stale=True) if stale else (await self.ends()).first_sequence
        while stop is None or at < stop:
            count = READ_RECORDS_MAX if stop is None else min(READ_RECORDS_MAX, stop - at)
            page = await self.page(at, count, stale=stale)
            if not page.records:
                return
            for record in page.records:
                yield record
            at = page.records[-1].sequence + 1

    async def page(self, start: int, count: int, *, wait_s: float = 0.0, stale: bool = False) -> Page:
        """Return up to `count` records from `start` on; with none there, wait at most `wait_s` for the first.

        Raises:
            DataLost: the record at `start` was retired.
        """
        request = Read(0, self.partition_id, start, count, READ_BYTES, stale, int(wait_s * 1000))
        try:
            if stale:
                reply = await self._client.ask_any(request, Records, extra_s=wait_s)
            else:
                reply = await self._client.ask(request, READING, Records, extra_s=wait_s)
        except DataLost:
            raise DataLost(start, await self._first_sequence(stale=stale)) from None
        except NotFoundError:  # Nobody has written it yet.
            return Page([], 0, 0)
        if start < reply.first_sequence:
            raise DataLost(start, reply.first_sequence)
        records = [Record(one.sequence, one.timestamp_ns, one.ext_id, one.payload) for one in reply.records]
        return Page(records, reply.first_sequence, reply.next_sequence, reply.born)

    async def find_timestamp(self, timestamp: int | datetime) -> int:
        """Return the sequence of the first record at or after a time, or that of the next to be appended.

        The time is a datetime, in UTC if it names no zone, or nanoseconds since 1970.  A record has the time at which
        the node that led then took it.

        Raises:
            UsageError: it is neither.
        """
        moment = min(max(nanoseconds(timestamp), 0), U64_MAX)
        return (await self._client.ask(FindTime(0, self.partition_id, moment), READING, Found)).sequence

    async def ends(self) -> Page:
        """Return where the partition begins and ends, as the leader knows after all that was acknowledged."""
        return await self.page(await self._first_sequence(), 1)

    async def info(self) -> PartitionInfo:
        """Return the partition in figures.

        Raises:
            NotFoundError: there is none of that number.
        """
        found = await self._client.partitions([self.partition_id])
        if not found:
            message = f"there is no partition {self.partition_id}; the first append makes it"
            raise NotFoundError(message)
        return found[0]

    async def barrier(self, target: int = 0, *, timeout: float = 30.0) -> int:  # noqa: ASYNC109 - the node's too
        """Wait until this partition has applied everything up to a global index (0: all that is committed).

        Raises:
            WaitExpired: the time ran out.
        """
        return await self._client.barrier(target, [self.partition_id], timeout=timeout)

    # -- readers ------------------------------------------------------------------------------------------

    async def reader(self, name: str, start: Start = "resume") -> "AsyncReader":
        """Open a named reader; its position is kept by the cluster.

        `start` is `"resume"` (where it stopped; the oldest record if it is new), `"earliest"`, `"latest"` or a
        sequence.  Two readers that are open under one name do not see each other: the last commit counts.

        Raises:
            BadName: the name cannot be one.
            UsageError: `start` is none of these, or beyond the end.
        """
        from latewood.replica.client.reader import AsyncReader  # noqa: PLC0415 - it needs this module

        reader = AsyncReader(self, check_name(name, "reader"))
        await reader.begin(start)
        return reader

    async def readers(self) -> list[PartitionReaderInfo]:
        """Return all named readers with their lag, by name."""
        reply = await self._client.ask(GetReaders(0, self.partition_id), READING, Readers)
        end = reply.next_sequence
        return [PartitionReaderInfo(name, at, max(0, end - at)) for name, at in reply.readers]

    async def remove_reader(self, name: str) -> None:
        """Have the cluster forget a reader.

        Close it first: the next `commit` of one that is open makes it again.

        Raises:
            NotFoundError: there is none of that name.  After an `OutcomeUnknown` that says that it is forgotten.
        """
        if await self.load_cursor(check_name(name, "reader")) is None:  # Looked for once: what follows may be repeated.
            message = f"partition {self.partition_id} has no reader {name!r}; `readers()` lists them"
            raise NotFoundError(message)
        await self.store_cursor(name, -1)

    async def load_cursor(self, name: str) -> int | None:
        """Return where a reader stands, or None if there is none."""
        sequence = (await self._client.ask(GetCursor(0, self.partition_id, name), READING, Cursor)).sequence
        return sequence if sequence >= 0 else None

    async def store_cursor(self, name: str, sequence: int, born: int = 0) -> None:
        """Have a reader stand at a sequence, on all nodes; below 0: forget it.

        Raises:
            NotFoundError: it has read the life of the partition that began at `born`, and that is over.
        """
        await self._client.ask(SetCursor(0, self.partition_id, name, sequence, born), CHANGING, Done)

    # -- inside -------------------------------------------------------------------------------------------

    def _begin(self) -> Batcher:
        """Return the way of appends.

        Raises:
            ClosedError: the client is closed.
        """
        self._batcher = self._client.batcher(self.partition_id)
        return self._batcher

    async def _first_sequence(self, *, stale: bool = False) -> int:
        """Return the oldest record's number; 0 if there is no partition yet."""
        if stale:
            found = (await self._client.ask_any(GetPartitions(0, (self.partition_id,)), Partitions)).partitions
        else:
            found = await self._client.partitions([self.partition_id])
        return found[0].first_sequence if found else 0

    def _cut(self, payloads: list[bytes]) -> list[tuple[list[bytes], int]]:
        """Return payloads as requests' worth of them, each with its bytes."""
        options, cuts, begin, size = self._client.options, list[tuple[list[bytes], int]](), 0, 0
        if (largest := max(map(len, payloads), default=0)) > _PAYLOAD_BYTES_MAX:
            raise MessageTooLarge(largest, _PAYLOAD_BYTES_MAX)
        for at, payload in enumerate(payloads):
            full = at - begin >= _CALL_RECORDS_MAX or size + len(payload) > options.batch_bytes_max
            if at > begin and full:
                cuts.append((payloads[begin:at], size))
                begin, size = at, 0
            size += len(payload)
        return [*cuts, (payloads[begin:], size)] if payloads else []

    async def _put(self, batcher: Batcher, payloads: list[bytes], size: int) -> "asyncio.Future[list[int]]":
        await self._room.take(size)
        return batcher.put_many(payloads, size)


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        message = f"a payload is bytes, not {type(value).__name__}"
        raise UsageError(message) from None
