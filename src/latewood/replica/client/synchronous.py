"""The client for programs without asyncio: the same, driven in a thread of its own.

Calls may come from any thread.  Those that come together travel together, as they do with asyncio.
"""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from latewood.closing import Closing, close_behind
from latewood.errors import ClosedError, OutcomeUnknown
from latewood.forking import close_after_fork, forked, keep_for_ever
from latewood.kernel import Record
from latewood.limits import READ_RECORDS_MAX
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.client.options import ClientOptions
from latewood.replica.client.partition import AsyncPartition, PartitionReaderInfo, Start
from latewood.replica.client.reader import AsyncReader
from latewood.replica.replies import Members, PartitionInfo, StatusReply

T = TypeVar("T")
_PAGE: Final = 1024


class _LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="latewood-client", daemon=True)
        self._is_closed = self._is_inherited = False
        close_after_fork(self)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return what it returns."""
        if self._is_closed or self._is_inherited:
            work.close()
            raise ClosedError("the client is closed; connect again") if self._is_closed else forked("the client")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, say: nobody waits for it any more.
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        if self._is_closed or self._is_inherited:
            return
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child.

        The loop is neither closed nor finalised there: that would take sockets out of the parent's epoll.
        """
        self._is_inherited = True
        keep_for_ever(self._loop)


class Client:
    """A cluster, seen from a program.  `latewood.connect` makes one.  Use it as a context manager, or call `close`."""

    def __init__(
        self, addresses: Sequence[str], *, cluster_id: str, tls: ssl.SSLContext | None, options: ClientOptions
    ) -> None:
        """Start the thread; no connection is made before it is needed."""
        self._thread = _LoopThread()
        try:
            self._client = self._thread.run(_made(addresses, cluster_id, tls, options))
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_behind(self.close, error)

    def partition(self, partition: int) -> "Partition":
        """Return a partition to append to and to read; the first append makes it."""
        return Partition(self._thread, self._client.partition(partition))

    def status(self, address: str | None = None) -> StatusReply:
        """Return how a node sees itself and the cluster: the one at `address`, else any that answers."""
        return self._thread.run(self._client.status(address))

    def partitions(self, partitions: Iterable[int] = (), address: str | None = None) -> list[PartitionInfo]:
        """Return partitions in figures, by default all: as the leader has them, or the node at `address`.

        Errors as `AsyncClient.partitions`.
        """
        return self._thread.run(self._client.partitions(partitions, address))

    def barrier(
        self, target: int = 0, partitions: Sequence[int] = (), *, timeout: float = 30.0, address: str | None = None
    ) -> int:
        """Wait until partitions have applied everything up to a global index, as `AsyncClient.barrier`."""
        return self._thread.run(self._client.barrier(target, partitions, timeout=timeout, address=address))

    def add_node(self, node_id: int, address: str, *, learner: bool = False) -> Members:
        """Make a running node a member: first a learner, and a voter once it has caught up."""
        return self._thread.run(self._client.add_node(node_id, address, learner=learner))

    def remove_node(self, node_id: int) -> Members:
        """Let a node be a member no more; it may be down.  Errors as `AsyncClient.remove_node`."""
        return self._thread.run(self._client.remove_node(node_id))

    def transfer_leader(self, node_id: int) -> None:
        """Have another node lead."""
        self._thread.run(self._client.transfer_leader(node_id))

    def tear_down(self, partition: int) -> None:
        """Remove a partition with its records, on all nodes."""
        self._thread.run(self._client.tear_down(partition))

    def resume(self, partition: int, address: str | None = None) -> None:
        """Let a paused partition try again: on the leader, or on the node at `address`."""
        self._thread.run(self._client.resume(partition, address))

    def resolve(self, unknown: OutcomeUnknown) -> list[int]:
        """Find out how an append ended whose answer did not come, and do what was not done: exactly once.

        Raises:
            UsageError: it is none of this client's appends.
            OutcomeUnknown: there is no answer still; resolve it again.
            OutcomeForgotten: the nodes remember it no more; look for the records, and append what is missing.
        """
        return self._thread.run(self._client.resolve(unknown))

    def close(self) -> None:
        """Wait for what was appended, at most until its deadline, and close all connections.  Twice is fine."""
        with Closing() as closing:
            closing(self._drained)
            closing(self._thread.close)

    def _drained(self) -> None:
        with suppress(ClosedError):
            self._thread.run(self._client.close())


class Partition:
    """One partition.  `client.partition(7)` makes one; it costs nothing."""

    def __init__(self, thread: _LoopThread, partition: AsyncPartition) -> None:
        self._thread, self._partition = thread, partition
        self.partition_id: Final = partition.partition_id

    def append(self, payload: bytes) -> int:
        """Append one record and return its sequence: committed, exactly once.  Errors as `AsyncPartition.append`."""
        return self._thread.run(self._partition.append(payload))

    def append_many(self, payloads: Iterable[bytes]) -> list[int]:
        """Append many records and return their sequences.  Errors as `AsyncPartition.append_many`."""
        return self._thread.run(self._partition.append_many(payloads))

    def read(self, sequence: int, *, stale: bool = False) -> Record:
        """Return one record; what was acknowledged before is always found, unless `stale` allows an old answer."""
        return self._thread.run(self._partition.read(sequence, stale=stale))

    def scan(self, start: int | None = None, stop: int | None = None, *, stale: bool = False) -> Iterator[Record]:
        """Yield records from `start`, by default the oldest, up to `stop` or what is written when we get there."""
        records = self._partition.scan(start, stop, stale=stale)
        while batch := self._thread.run(_some_of(records)):
            yield from batch

    def find_timestamp(self, timestamp: int | datetime) -> int:
        """Return the sequence of the first record at or after a time, or that of the next to be appended."""
        return self._thread.run(self._partition.find_timestamp(timestamp))

    def info(self) -> PartitionInfo:
        """Return the partition in figures."""
        return self._thread.run(self._partition.info())

    def barrier(self, target: int = 0, *, timeout: float = 30.0) -> int:
        """Wait until this partition has applied everything up to a global index (0: all that is committed)."""
        return self._thread.run(self._partition.barrier(target, timeout=timeout))

    def reader(self, name: str, start: Start = "resume") -> "PartitionReader":
        """Open a named reader; its position is kept by the cluster.  As `AsyncPartition.reader`."""
        return PartitionReader(self._thread, self._thread.run(self._partition.reader(name, start)))

    def readers(self) -> list[PartitionReaderInfo]:
        """Return all named readers with their lag, by name."""
        return self._thread.run(self._partition.readers())

    def remove_reader(self, name: str) -> None:
        """Have the cluster forget a reader.  Errors as `AsyncPartition.remove_reader`."""
        self._thread.run(self._partition.remove_reader(name))


class PartitionReader:
    """A named reader of a partition.  Not thread-safe.  Reads at least once, from the last `commit` on."""

    def __init__(self, thread: _LoopThread, reader: AsyncReader) -> None:
        self._thread, self._reader = thread, reader
        self.name: Final = reader.name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_behind(self.close, error)

    @property
    def sequence(self) -> int:
        """The sequence of the next record."""
        return self._reader.sequence

    @property
    def committed_sequence(self) -> int | None:
        """The sequence that the last `commit` stored."""
        return self._reader.committed_sequence

    def __iter__(self) -> Iterator[Record]:
        """Yield every record that is committed, then stop."""
        while (record := self.next()) is not None:
            yield record

    def follow(self) -> Iterator[Record]:
        """Yield every record, and wait for more for ever."""
        while True:
            yield from self.poll(timeout=None)

    def next(self) -> Record | None:
        """Return the next record, or None if it is not written yet.  Errors as `AsyncReader.next`."""
        return self._reader.buffered() or self._thread.run(self._reader.next())

    def poll(self, max_records: int = READ_RECORDS_MAX, timeout: float | None = 0.0) -> list[Record]:
        """Return up to `max_records`, waiting at most `timeout` seconds (None: for ever) for the first."""
        return self._thread.run(self._reader.poll(max_records, timeout))

    def commit(self) -> None:
        """Remember that every record handed out so far is dealt with.  As `AsyncReader.commit`."""
        self._thread.run(self._reader.commit())

    def seek(self, *, sequence: int | None = None, timestamp: int | datetime | None = None) -> None:
        """Go to a sequence, or to the first record at or after a time.  As `AsyncReader.seek`."""
        self._thread.run(self._reader.seek(sequence=sequence, timestamp=timestamp))

    def lag(self) -> int:
        """Return how many committed records are still to be read.  Errors as `AsyncReader.lag`."""
        return self._thread.run(self._reader.lag())

    def close(self) -> None:
        """Let go.  Does not commit."""
        self._reader.close()


async def _made(
    addresses: Sequence[str], cluster_id: str, tls: ssl.SSLContext | None, options: ClientOptions
) -> AsyncClient:
    return AsyncClient(addresses, cluster_id=cluster_id, tls=tls, options=options)


async def _some_of(records: AsyncIterator[Record]) -> list[Record]:
    """Return the next records: as many as one hop between threads is worth."""
    found = list[Record]()
    while len(found) < _PAGE:
        try:
            found.append(await anext(records))
        except StopAsyncIteration:
            break
    return found
