"""Catching up by a snapshot: a node that was offered one fetches it, with the records of partitions, and installs it.

In this order: 1. the chunks come, resumable, until the snapshot is whole and durable; 2. records that partitions miss
come and are flushed, where a partition's log is its state; 3. the engine is told, and installs; 4. the node opens its
storage anew.  If anything fails before 3, the leader hears of it and tries again later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from latewood.clock import Clock
from latewood.errors import ClosedError, ConflictError, CorruptError, LatewoodError, NotFoundError, UnavailableError
from latewood.fs import FileSystem
from latewood.limits import MiB
from latewood.replica.core import Core
from latewood.replica.machine import PartitionEntry
from latewood.replica.partition import PartitionLogStore
from latewood.replica.recovery import Pull, fetch_partitions
from latewood.replica.replies import PartitionRecords, Refused, SnapshotChunks
from latewood.replica.requests import FetchRecords, FetchSnapshot, SnapshotOffer
from latewood.replica.snapshot import PartitionState, SnapshotReader, SnapshotReceiver
from latewood.replica.wire import Reply, Request

_ANSWER_S: Final = 10.0
_PIECE_BYTES: Final = 4 * MiB

Ask = Callable[[int, Request, float], Awaitable[Reply]]
"""Asks a node something, within so many seconds."""

_logger = logging.getLogger(__name__)


async def fetch_chunks(
    offer: SnapshotOffer, sender: int, ask: Ask, fs: FileSystem, clock: Clock, directory: Path
) -> None:
    """Fetch a snapshot that a node offers; what came of it before need not come again.

    Raises:
        UnavailableError: it does not come.
        CorruptError: what came is damaged; it was thrown away.
    """
    loop = asyncio.get_running_loop()
    receiver = await loop.run_in_executor(None, SnapshotReceiver, fs, clock, directory, offer.index, offer.term)
    try:
        while not receiver.is_complete:
            start = receiver.next_number
            reply = await ask(sender, FetchSnapshot(0, offer.index, offer.term, start), _ANSWER_S)
            if not isinstance(reply, SnapshotChunks) or not reply.chunks:
                raise UnavailableError(f"node {sender} has no chunk {start}: {_reason(reply)}")
            await loop.run_in_executor(None, _take, receiver, start, reply.chunks)
    except (CorruptError, ConflictError):
        await loop.run_in_executor(None, receiver.abandon)
        raise
    finally:
        await loop.run_in_executor(None, receiver.close)


async def fetch_records(
    core: Core, offer: SnapshotOffer, sender: int, ask: Ask, fs: FileSystem, directory: Path
) -> None:
    """Fetch the records that belong to a snapshot that is here, and let it be installed.

    If this fails, partitions may be ahead of what the core knows of them: it must be opened anew.

    Raises:
        UnavailableError: they do not come.
        ClosedError: the core has ended.
    """
    fetch = pulling(asyncio.get_running_loop(), ask, lambda: [sender])

    def pull(state: PartitionState, start: int) -> list[PartitionEntry]:
        if core.is_closed:
            raise ClosedError("the node stops")
        return fetch(state, start)

    path = directory / f"{offer.index}-{offer.term}"

    def work() -> None:
        with SnapshotReader.open(fs, path) as reader:
            fetch_partitions(core.parts.roster, reader, pull)

    await core.lend(work)
    core.guard.allow(f"{offer.index}-{offer.term}".encode())


def pulling(loop: asyncio.AbstractEventLoop, ask: Ask, nodes: Callable[[], list[int]]) -> Pull:
    """Return what fetches records of a partition from other nodes, for a thread that is not the event loop's."""

    async def fetch(state: PartitionState, start: int) -> list[PartitionEntry]:
        gone: LatewoodError | None = None
        reasons = []
        for node in nodes():
            try:
                reply = await ask(node, FetchRecords(0, state.partition_id, state.born, start), _ANSWER_S)
            except UnavailableError as error:
                reasons.append(str(error))
                continue
            if isinstance(reply, PartitionRecords):
                return [PartitionEntry(state.partition_id, *record) for record in reply.records]
            if isinstance(reply, Refused) and reply.code == "not_found":
                gone = NotFoundError(reply.reason)
            reasons.append(_reason(reply))
        raise gone or UnavailableError(f"nobody has records of partition {state.partition_id}: {'; '.join(reasons)}")

    def pull(state: PartitionState, start: int) -> list[PartitionEntry]:
        return asyncio.run_coroutine_threadsafe(fetch(state, start), loop).result()

    return pull


def chunks_from(fs: FileSystem, directory: Path, request: FetchSnapshot) -> Reply:
    """Answer a node that fetches a snapshot.  Reads the disk."""
    path = directory / f"{request.index}-{request.term}"
    if not fs.exists(path):
        reason = f"there is no snapshot {path.name} any more"
        return Refused(request.id, "not_found", reason, retryable=False)
    chunks, size = list[bytes](), 0
    with SnapshotReader.open(fs, path) as reader:
        for _, raw in reader.chunks(request.start):
            chunks.append(raw)
            size += len(raw)
            if size > _PIECE_BYTES:
                break
    return SnapshotChunks(request.id, chunks)


def records_from(partition: PartitionLogStore | None, routed: int, request: FetchRecords) -> Reply:
    """Answer a node that fetches records of a partition.  Reads the disk."""
    if partition is None or partition.born != request.born:
        known = routed >= request.born
        reason = f"partition {request.partition}, born at {request.born}, is not here" + (
            " any more" if known else " yet"
        )
        return Refused(request.id, "not_found" if known else "unavailable", reason, retryable=not known)
    start = max(request.start_index, partition.first_index)
    entries = partition.read_some(start, 1 << 16)
    return PartitionRecords(
        request.id, [(one.index, one.global_index, one.timestamp_ns, one.payload) for one in entries]
    )


def _take(receiver: SnapshotReceiver, start: int, chunks: list[bytes]) -> None:
    for number, raw in enumerate(chunks, start):
        receiver.add(number, raw)
    receiver.flush()


def _reason(reply: Reply) -> str:
    return reply.reason if isinstance(reply, Refused) else f"it answered with {type(reply).__name__}"
