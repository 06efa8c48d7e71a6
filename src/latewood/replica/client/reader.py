"""A named reader of a partition, for asyncio: a place that the cluster remembers.

Reads at least once: after a crash it goes on from the last `commit`.  One task at a time may use it.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from latewood.errors import ClosedError, NotFoundError, UsageError
from latewood.forking import close_after_fork, forked
from latewood.kernel import Record
from latewood.limits import READ_RECORDS_MAX
from latewood.log.argument import seconds, sequence_of, whole
from latewood.replica.client.partition import AsyncPartition, Page, Start

_WAIT_S: Final = 5.0
"""A node is asked to wait so long for a record, and then again: one that leads no more would wait for ever."""


class AsyncReader:
    """Reads a partition in order, as far as it is committed; iterating stops there, `follow` and `poll` wait."""

    def __init__(self, partition: AsyncPartition, name: str) -> None:
        """Hold the parts; `AsyncPartition.reader` is what opens a reader."""
        self.name, self._partition = name, partition
        self._sequence = 0
        self._committed: int | None = None
        self._buffer: list[Record] = []
        self._taken = 0
        self._born = 0
        """Of the life of the partition that it reads; 0: it has read nothing."""
        self._closed: ClosedError | None = None
        close_after_fork(self)

    async def begin(self, start: Start) -> None:
        """Go to where reading starts, and remember that unless it is where reading stopped."""
        self._committed = await self._partition.load_cursor(self.name)
        if start == "resume" and self._committed is not None:
            self._sequence = self._committed
            return
        self._sequence = await self._sequence_at(start)
        await self.commit()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def sequence(self) -> int:
        """The sequence of the next record."""
        return self._sequence

    @property
    def committed_sequence(self) -> int | None:
        """The sequence that the last `commit` stored."""
        return self._committed

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield every record that is committed, then stop."""
        while (record := await self.next()) is not None:
            yield record

    async def follow(self) -> AsyncIterator[Record]:
        """Yield every record, and wait for more for ever."""
        while True:
            for record in await self.poll(timeout=None):
                yield record

    async def next(self) -> Record | None:
        """Return the next record, or None if it is not written yet.

        Records are fetched many at a time: those that are here already are returned, whatever became of the partition.

        Raises:
            DataLost: it was removed; `seek` past the gap.
            NotFoundError: the partition ends before: it was torn down and begun anew.
            ClosedError: the reader was closed.
        """
        record = self.buffered()
        if record is None and await self._fill(0.0):
            record = self.buffered()
        return record

    def buffered(self) -> Record | None:
        """Return the next record if it is in memory already."""
        self._check_open()
        if self._taken == len(self._buffer):
            return None
        record = self._buffer[self._taken]
        self._taken += 1
        self._sequence = record.sequence + 1
        return record

    async def poll(
        self,
        max_records: int = READ_RECORDS_MAX,
        timeout: float | None = 0.0,  # noqa: ASYNC109 - it is the node that waits
    ) -> list[Record]:
        """Return up to `max_records`, waiting at most `timeout` seconds (None: for ever) for the first.

        Raises:
            DataLost, NotFoundError, ClosedError: as `next`.
            UsageError: `max_records` is not 1 or more, or `timeout` is not seconds.
        """
        self._check_open()
        if whole(max_records, "max_records") < 1:
            message = f"max_records must be 1 or more, not {max_records}"
            raise UsageError(message)
        patience = seconds(timeout)
        loop = asyncio.get_running_loop()
        deadline = None if patience is None else loop.time() + patience
        while self._taken == len(self._buffer):
            left = _WAIT_S if deadline is None else min(_WAIT_S, max(0.0, deadline - loop.time()))
            if not await self._fill(left) and deadline is not None and loop.time() >= deadline:
                return []
        records = self._buffer[self._taken : self._taken + max_records]
        self._taken += len(records)
        self._sequence = records[-1].sequence + 1
        return records

    async def commit(self) -> None:
        """Remember that every record handed out so far is dealt with: a majority of the nodes has it on return.

        A reader that was removed meanwhile is there again.

        Raises:
            NotFoundError: the partition was torn down since; what was handed out is of its earlier life.
        """
        self._check_open()
        sequence = self._sequence
        await self._partition.store_cursor(self.name, sequence, self._born)
        self._committed = sequence

    async def seek(self, *, sequence: int | None = None, timestamp: int | datetime | None = None) -> None:
        """Go to a sequence, or to the first record at or after a time (a datetime, or nanoseconds since 1970).

        Not remembered until `commit`.

        Raises:
            UsageError: not exactly one of the two, a sequence beyond the end, or no time.
        """
        self._check_open()
        if (sequence is None) == (timestamp is None):
            raise UsageError("seek needs either sequence or timestamp")
        if timestamp is not None:
            self._sequence = await self._partition.find_timestamp(timestamp)
        else:
            self._sequence = await self._sequence_at(sequence_of(sequence))
        self._buffer, self._taken, self._born = [], 0, 0

    async def lag(self) -> int:
        """Return how many committed records are still to be read.

        Raises:
            NotFoundError: the partition was torn down since.
        """
        self._check_open()
        ends = await self._partition.ends()
        self._check_is_there(ends)
        return ends.next_sequence - self._sequence

    def close(self) -> None:
        """Let go.  Does not commit."""
        self._closed = self._closed or ClosedError(f"reader {self.name!r} is closed; open it again")
        self._buffer, self._taken = [], 0

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child: the parent reads on, and commits."""
        self._closed = self._closed or forked(f"reader {self.name!r}")
        self._buffer, self._taken = [], 0

    async def _fill(self, wait_s: float) -> bool:
        page = await self._partition.page(self._sequence, READ_RECORDS_MAX, wait_s=wait_s)
        self._check_open()
        self._check_is_there(page)
        self._buffer, self._taken = page.records, 0
        self._born = page.born
        return bool(page.records)

    def _check_is_there(self, page: Page) -> None:
        if page.next_sequence < self._sequence or (self._born and page.born != self._born):
            partition_id = self._partition.partition_id
            message = (
                f"reader {self.name!r} stands at {self._sequence}, and partition {partition_id} was torn down since: "
                f"it ends at {page.next_sequence}; open the reader anew, with start='earliest'"
            )
            raise NotFoundError(message)

    def _check_open(self) -> None:
        if self._closed:
            raise type(self._closed)(*self._closed.args)

    async def _sequence_at(self, start: Start) -> int:
        ends = await self._partition.ends()
        if isinstance(start, int) and not isinstance(start, bool):
            if not 0 <= start <= ends.next_sequence:
                message = f"sequence {start} is not in the partition, which ends at {ends.next_sequence}"
                raise UsageError(message)
            return start
        word: object = start  # The type says which words there are; a caller without a type checker may not.
        if word == "latest":
            return ends.next_sequence
        if word in ("earliest", "resume"):
            return ends.first_sequence
        message = f"start must be 'resume', 'earliest', 'latest' or a sequence, not {start!r}"
        raise UsageError(message)
