"""What a node does for whoever asks: requests in, replies out.

Owned by the event loop's thread.  Reading is done by threads: a cold disk must not keep Raft.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from latewood.clock import Clock
from latewood.errors import (
    CorruptError,
    DataLost,
    LatewoodError,
    NotFoundError,
    Overloaded,
    UnavailableError,
    UsageError,
    WaitExpired,
)
from latewood.fs import FileSystem
from latewood.limits import MiB, check_name
from latewood.log import Log
from latewood.replica.config import NodeConfig
from latewood.replica.connection import Connection
from latewood.replica.core import Core
from latewood.replica.directory import (
    DIRECTORY_PARTITION,
    Change,
    ReaderPosition,
    encode_change,
)
from latewood.replica.figures import directory_of, first_sequence, partition_infos, status_of
from latewood.replica.grouping import Answer, GroupReplies, reply_to
from latewood.replica.membership import change_members, transfer_leader
from latewood.replica.partition import PartitionLogStore
from latewood.replica.recovery import NodeLayout
from latewood.replica.replies import (
    Code,
    Cursor,
    Done,
    Found,
    Partitions,
    Reached,
    Readers,
    Records,
    Refused,
    WireRecord,
)
from latewood.replica.requests import (
    CLIENT_ID_BYTES,
    PARTITION_MAX,
    Append,
    AppendGroup,
    Barrier,
    ChangeMembers,
    FetchRecords,
    FetchSnapshot,
    FindTime,
    GetCursor,
    GetPartitions,
    GetReaders,
    GetStatus,
    Read,
    Resume,
    SetCursor,
    TearDown,
    TransferLeader,
)
from latewood.replica.transfer import chunks_from, records_from
from latewood.replica.wire import Reply, Request
from latewood.replica.writing import WriteRequest, overloaded

_READ_POINT_S: Final = 5.0
_READ_RECORDS_MAX: Final = 65_536
_READ_BYTES_MAX: Final = 8 * MiB
_WAIT_MAX_MS: Final = 60_000

_CODES: Final[dict[type[LatewoodError], Code]] = {
    WaitExpired: "expired",
    UnavailableError: "unavailable",
    UsageError: "usage",
    NotFoundError: "not_found",
}

_logger = logging.getLogger(__name__)


class Host(Protocol):
    """What a service needs from its node."""

    core: Core | None
    config: NodeConfig
    fs: FileSystem
    layout: NodeLayout

    def addresses(self) -> dict[int, str]:
        """Return where nodes can be reached."""
        ...


class Service:
    """Answers requests with the core that its node has now."""

    def __init__(self, node: Host, clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="latewood-read")
        self._tasks: set[asyncio.Task[None]] = set()
        self._watchers: dict[int, set[asyncio.Future[None]]] = {}
        self._client_id = os.urandom(CLIENT_ID_BYTES)
        self._request_id = 0
        self.refused_count = 0
        self._answers: dict[type[Any], Callable[[Core, Connection, Any], Coroutine[Any, Any, Reply]]] = {
            Read: self._read,
            GetStatus: self._status,
            GetPartitions: self._partitions,
            Barrier: self._barrier,
            ChangeMembers: self._change_members,
            TransferLeader: self._transfer_leader,
            TearDown: self._tear_down,
            Resume: self._resume,
            GetCursor: self._get_cursor,
            SetCursor: self._set_cursor,
            GetReaders: self._get_readers,
            FindTime: self._find_time,
            FetchSnapshot: self._fetch_snapshot,
            FetchRecords: self._fetch_records,
        }

    def on_request(self, connection: Connection, request: Request) -> None:
        """Answer a request, now or later."""
        core: Core | None = self._node.core
        if core is None:
            reason = "the node is opening its storage; try again, or ask another"
            connection.send(Refused(request.id, "unavailable", reason, retryable=True))
        elif isinstance(request, Append):
            write = WriteRequest(request.partition, request.client_id, request.request_id, request.payloads)
            core.append(write, partial(self._answered, connection, request.id))
        elif isinstance(request, AppendGroup):
            if request.is_whole:
                core.append_group(request, GroupReplies(request.id, connection.send, self._refused))
            else:
                connection.abort(
                    f"{connection.name} sent a group of too many requests, or of some that lack what they need"
                )
        else:
            task = asyncio.get_running_loop().create_task(self._answer(core, connection, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def is_watched(self) -> bool:
        """Whether readers wait for records."""
        return bool(self._watchers)

    def on_applied(self, partition_ids: Collection[int]) -> None:
        """Wake readers that wait for records."""
        for partition_id in self._watchers.keys() & partition_ids:
            for future in self._watchers.pop(partition_id):
                if not future.done():
                    future.set_result(None)

    async def change_directory(self, core: Core, *changes: Change) -> Reply | None:
        """Have all nodes know something; return why not."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._request_id += 1
        request = WriteRequest(
            DIRECTORY_PARTITION, self._client_id, self._request_id, [encode_change(one) for one in changes]
        )
        core.append(request, lambda answer: None if done.done() else done.set_result(answer), ours=True)
        answer = await done
        if isinstance(answer, list):
            await core.ours()
            through = core.parts.watermarks.routed
            await core.barriers.wait("directory", through, [DIRECTORY_PARTITION], 10)
            return None
        return answer

    def close(self) -> None:
        """Answer nobody any more."""
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False)

    # -- writing ------------------------------------------------------------------------------------------

    def _answered(self, connection: Connection, number: int, answer: Answer) -> None:
        if isinstance(answer, Refused):
            self._refused()
        connection.send(reply_to(number, answer))

    def _refused(self) -> None:
        self.refused_count += 1

    async def _tear_down(self, core: Core, _: Connection, request: TearDown) -> Reply:
        if not 0 <= request.partition <= PARTITION_MAX:
            raise UsageError(f"there is no partition {request.partition}")
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        core.tear_down(request.partition, lambda answer: None if done.done() else done.set_result(answer))
        answer = await done
        return Done(request.id) if isinstance(answer, list) else msgspec.structs.replace(answer, id=request.id)

    # -- everything else ----------------------------------------------------------------------------------

    async def _answer(self, core: Core, connection: Connection, request: Request) -> None:
        try:
            reply = await self._answers[type(request)](core, connection, request)
        except CorruptError:
            reply = await self._after_damage(core, connection, request)
        except LatewoodError as error:
            reply = refusal_of(request.id, error)
            if core.is_closed and core is not self._node.core:  # Whatever it is, it is of storage that was let go.
                reason = "the node has opened its storage anew; try again"
                reply = Refused(request.id, "unavailable", reason, retryable=True)
        except Exception as error:  # The top of a request: whoever asked must hear of it.
            _logger.exception("a %s could not be answered", type(request).__name__)
            reply = Refused(request.id, "failed", f"{type(error).__name__}: {error}", retryable=False)
        connection.send(reply)

    async def _after_damage(self, core: Core, connection: Connection, request: Request) -> Reply:
        """Look again, because what is removed while it is read may look damaged; if it is, the node stops.

        Others have the same records, so whoever asks is told to ask another.
        """
        try:
            return await self._answers[type(request)](core, connection, request)
        except CorruptError as error:
            core.fail(error)
            return Refused(request.id, "unavailable", f"the node stops, its files are damaged: {error}", retryable=True)
        except LatewoodError as error:
            return refusal_of(request.id, error)

    async def _read(self, core: Core, _: Connection, request: Read) -> Reply:
        if not request.stale:
            if not core.is_leading:
                return msgspec.structs.replace(core.not_leader(), id=request.id)
            await core.read_point(_READ_POINT_S)
        deadline = asyncio.get_running_loop().time() + min(request.wait_ms, _WAIT_MAX_MS) / 1_000
        while True:
            await core.ours()
            partition = core.parts.roster.get(request.partition)
            next_sequence = partition.next_index - 1 if partition else 0
            left_s = deadline - asyncio.get_running_loop().time()
            if request.start < next_sequence or left_s <= 0:
                break
            await self._moved(request.partition, left_s)
        if partition is None:
            return Records(request.id, [], 0, 0)
        first = first_sequence(core, partition)
        return await asyncio.get_running_loop().run_in_executor(self._threads, _records, partition, first, request)

    async def _moved(self, partition_id: int, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(partition_id, set()).add(future)
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            watching = self._watchers.get(partition_id)
            if watching is not None:
                watching.discard(future)
                if not watching:
                    del self._watchers[partition_id]

    async def _status(self, core: Core, _: Connection, request: GetStatus) -> Reply:
        await core.ours()  # Not for long: partitions are made some at a time.
        return status_of(request.id, core, self._node.config.cluster_id, self._node.addresses())

    async def _partitions(self, core: Core, _: Connection, request: GetPartitions) -> Reply:
        if request.of_leader and not core.is_leading:
            return msgspec.structs.replace(core.not_leader(), id=request.id)
        await core.ours()
        return Partitions(request.id, partition_infos(core, request.partitions))

    async def _barrier(self, core: Core, _: Connection, request: Barrier) -> Reply:
        await core.ours()
        target = request.target
        if not target:
            if not core.is_leading:
                return msgspec.structs.replace(core.not_leader(), id=request.id)
            await core.read_point(_READ_POINT_S)
            await core.ours()
            target = core.parts.watermarks.routed
        partitions = request.partitions or core.parts.watermarks.partitions
        await core.barriers.wait(request.client or "anybody", target, partitions, request.timeout_ms / 1_000)
        return Reached(request.id, target)

    async def _change_members(self, core: Core, _: Connection, request: ChangeMembers) -> Reply:
        return await change_members(core, request, partial(self.change_directory, core))

    async def _transfer_leader(self, core: Core, _: Connection, request: TransferLeader) -> Reply:
        return await transfer_leader(core, request)

    async def _resume(self, core: Core, _: Connection, request: Resume) -> Reply:
        await core.ours()
        if core.parts.roster.get(request.partition) is None:
            raise NotFoundError(f"there is no partition {request.partition}")
        core.machine.resume(request.partition)
        return Done(request.id)

    async def _get_cursor(self, core: Core, _: Connection, request: GetCursor) -> Reply:
        if not core.is_leading:
            return msgspec.structs.replace(core.not_leader(), id=request.id)
        position = (await _readers(core)).get((request.partition, request.name))
        await core.ours()
        return Cursor(request.id, _stands_at(core, position) if position else -1)

    async def _get_readers(self, core: Core, _: Connection, request: GetReaders) -> Reply:
        if not core.is_leading:
            return msgspec.structs.replace(core.not_leader(), id=request.id)
        readers = await _readers(core)
        await core.ours()
        partition = core.parts.roster.get(request.partition)
        own = [(name, position) for (owner, name), position in readers.items() if owner == request.partition]
        found = sorted((name, _stands_at(core, position)) for name, position in own)
        return Readers(request.id, found, partition.next_index - 1 if partition else 0)

    async def _find_time(self, core: Core, _: Connection, request: FindTime) -> Reply:
        if not core.is_leading:
            return msgspec.structs.replace(core.not_leader(), id=request.id)
        await core.read_point(_READ_POINT_S)
        await core.ours()
        partition = core.parts.roster.get(request.partition)
        if partition is None:
            return Found(request.id, 0)
        path, loop = partition.path, asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _found, self._node.fs, path, request.timestamp_ns)
        return Found(request.id, max(found, first_sequence(core, partition)))

    async def _set_cursor(self, core: Core, _: Connection, request: SetCursor) -> Reply:
        check_name(request.name, "reader")
        if not core.is_leading:
            return msgspec.structs.replace(core.not_leader(), id=request.id)
        await core.ours()
        partition = core.parts.roster.get(request.partition)
        here = partition.born if partition else 0
        if request.born and request.born != here and request.sequence >= 0:
            reason = f"partition {request.partition} was torn down since reader {request.name!r} read it; open it anew"
            raise NotFoundError(reason)
        is_here = partition is not None and request.sequence < partition.next_index  # Else it read an earlier life.
        born = here if is_here else 0
        position = ReaderPosition(request.partition, request.name, request.sequence, born)
        refused = await self.change_directory(core, position)
        return Done(request.id) if refused is None else msgspec.structs.replace(refused, id=request.id)

    async def _fetch_snapshot(self, _: Core, connection: Connection, request: FetchSnapshot) -> Reply:
        _check_node(connection)
        directory = self._node.layout.snapshots
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, chunks_from, self._node.fs, directory, request
        )

    async def _fetch_records(self, core: Core, connection: Connection, request: FetchRecords) -> Reply:
        _check_node(connection)
        await core.ours()
        partition, routed = core.parts.roster.get(request.partition), core.parts.watermarks.routed
        return await asyncio.get_running_loop().run_in_executor(self._threads, records_from, partition, routed, request)


def refusal_of(number: int, error: LatewoodError) -> Refused:
    """Return the reply that tells of an error."""
    if isinstance(error, Overloaded):
        return msgspec.structs.replace(overloaded(error), id=number)
    if isinstance(error, DataLost):
        return Refused(number, "data_lost", str(error), retryable=False, value=error.start, bound=error.stop)
    code: Code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "failed")
    return Refused(number, code, str(error), retryable=isinstance(error, UnavailableError))


async def _readers(core: Core) -> Mapping[tuple[int, str], ReaderPosition]:
    """Return where all readers stand, after everything that was acknowledged before the call."""
    await core.read_point(_READ_POINT_S)
    await core.ours()
    await core.barriers.wait("directory", core.parts.watermarks.routed, [DIRECTORY_PARTITION], _READ_POINT_S)
    machine = directory_of(core)
    return machine.readers if machine else {}


def _stands_at(core: Core, position: ReaderPosition) -> int:
    """Return where a reader stands; one that read an earlier life of its partition has read nothing of this one."""
    partition = core.parts.roster.get(position.partition)
    if partition is None or position.born == partition.born:
        return position.sequence
    return first_sequence(core, partition)


def _found(fs: FileSystem, path: Path, timestamp_ns: int) -> int:
    with Log.open(path, mode="r", fs=fs) as log:  # Beside the writer, whose thread this is not.
        return log.find_timestamp(timestamp_ns)


def _records(partition: PartitionLogStore, first: int, request: Read) -> Records:
    following = partition.next_index - 1
    if request.start < first:
        raise DataLost(request.start, first)
    records, size = list[WireRecord](), 0
    count_max = min(max(1, request.records_max), _READ_RECORDS_MAX)
    bytes_max = min(request.bytes_max, _READ_BYTES_MAX)
    for entry in partition.read(request.start + 1, min(following, request.start + count_max) + 1):
        size += len(entry.payload)
        if records and size > bytes_max:
            break
        records.append(WireRecord(entry.index - 1, entry.timestamp_ns, entry.global_index, entry.payload))
    return Records(request.id, records, first, following, partition.born)


def _check_node(connection: Connection) -> None:
    if not connection.node_id:
        raise UsageError("only a node may ask for this")
