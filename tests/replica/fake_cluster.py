"""Nodes that speak the protocol and share one memory, and do to a client what a network and dying leaders do.

Every request for a change, and every part of a group, uses up one `Fault` of the script; when that is at its end all
goes well.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, Self

from latewood.replica.replies import (
    Appended,
    AppendedGroup,
    Cursor,
    Done,
    Found,
    Members,
    NodeProgress,
    NotLeader,
    PartitionInfo,
    Partitions,
    Reached,
    Readers,
    Records,
    Refused,
    StatusReply,
    WireRecord,
)
from latewood.replica.requests import (
    REQUEST_WINDOW,
    VERSION,
    Append,
    AppendGroup,
    Barrier,
    ChangeMembers,
    FindTime,
    GetCursor,
    GetPartitions,
    GetReaders,
    GetStatus,
    Hello,
    Read,
    Rejected,
    SetCursor,
    TearDown,
    TransferLeader,
    Welcome,
)
from latewood.replica.wire import FRAME_BYTES_MAX, FrameBuffer, encode_frame
from tests.replica.groups import parts_of

CHANGES: Final = (Append, SetCursor, TearDown, ChangeMembers, TransferLeader)
PAYLOAD_BYTES_MAX: Final = 1 << 20


class Fault(Enum):
    """What may happen to a request."""

    FINE = "it is done and answered"
    DROP = "the connection breaks before anything is done"
    LOSE = "it is done, and the connection breaks before the answer"
    PART = "its first half is done, and the connection breaks"
    MUTE = "it is done, and no answer ever comes"
    MOVED = "another node leads now, and this one says so"
    NOBODY = "nobody leads, for a moment"
    TWICE = "it is answered twice"
    LATE = "it is done, and answered after what comes later"
    FULL = "a limit is reached"
    UNSURE_DONE = "it is done, and the node does not know"
    UNSURE = "it is not done, and the node does not know"
    GARBAGE = "it is done, and the answer is damaged"


class FakeCluster:
    """Some nodes, one memory.  Use it in a running loop: `async with FakeCluster() as cluster`."""

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        *,
        count: int = 3,
        tls: ssl.SSLContext | None = None,
        forgetful: bool = False,
        name: str = "fake",
    ) -> None:
        self.faults, self.count, self.tls, self.name = iter(faults), count, tls, name
        self.forgetful = forgetful
        """Does not recognize repetitions: the bug that a test of exactly once must find."""
        self.records: dict[int, list[bytes]] = {}
        self.first: dict[int, int] = {}
        self.answers: dict[tuple[int, bytes], dict[int, list[int]]] = {}
        self.cursors: dict[tuple[int, str], int] = {}
        self.members = dict.fromkeys(range(1, count + 1), "")
        self.leader = 1
        self.cut_off: dict[int, dict[int, str]] = {}
        """Nodes that nobody tells anything any more, with the members that they knew last."""
        self.is_behind = False
        """What a barrier waits for never comes."""
        self.is_hung = False
        """No barrier is ever answered."""
        self.opening: set[int] = set()
        """Nodes that open their storage, and so refuse everything for now."""
        self.seen: list[Any] = []
        self.connections = 0
        self.spread = 0
        """The most that the numbers of a client were apart."""
        self._servers: list[asyncio.Server] = []
        self.open: set[_Conversation] = set()
        self.written = asyncio.Event()

    @property
    def addresses(self) -> list[str]:
        return list(self.members.values())

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in range(1, self.count + 1):

            def made(number: int = number) -> _Conversation:
                return _Conversation(self, number)

            server = await loop.create_server(made, "127.0.0.1", 0, ssl=self.tls)
            self._servers.append(server)
            self.members[number] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for conversation in list(self.open):
            conversation.transport.abort()
        await asyncio.sleep(0)

    async def stop(self, number: int) -> None:
        """Have a node be gone."""
        self._servers[number - 1].close()
        for conversation in list(self.open):
            if conversation.number == number:
                conversation.transport.abort()

    def fault(self, request: Any) -> Fault:
        return next(self.faults, Fault.FINE) if isinstance(request, CHANGES) else Fault.FINE

    def do(self, request: Any, *, share: float = 1.0) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case for each request
        """Carry a request out, as a leader would, and return its reply."""
        match request:
            case Append():
                return self._append(request, share)
            case Read():
                return self._read(request)
            case SetCursor():
                self.cursors[request.partition, request.name] = request.sequence
                return Done(request.id)
            case GetCursor():
                return Cursor(request.id, self.cursors.get((request.partition, request.name), -1))
            case GetReaders():
                found = [
                    (name, at) for (owner, name), at in self.cursors.items() if owner == request.partition and at >= 0
                ]
                return Readers(request.id, sorted(found), len(self.records.get(request.partition, ())))
            case FindTime():
                end = len(self.records.get(request.partition, ()))
                return Found(
                    request.id, min(max(request.timestamp_ns - 1_000, self.first.get(request.partition, 0)), end)
                )
            case GetPartitions():
                wanted = request.partitions or tuple(self.records)
                return Partitions(request.id, [self._info(one) for one in wanted if one in self.records])
            case Barrier():
                return Reached(request.id, request.target or 99)
            case TearDown():
                self.records.pop(request.partition, None)
                return Done(request.id)
            case TransferLeader():
                self.leader = request.node_id
                return Done(request.id)
            case ChangeMembers():
                if request.change == "remove":
                    self.members.pop(request.node_id, None)
                else:
                    self.members[request.node_id] = request.address
                return Members(request.id, sorted(self.members), [])
        raise AssertionError(request)

    def status(self, request: GetStatus, number: int) -> StatusReply:
        is_cut_off = number in self.cut_off
        members, leader = self.cut_off.get(number, self.members), 0 if is_cut_off else self.leader
        nodes = [NodeProgress(one, "voter", where, 7, one == leader) for one, where in members.items()]
        role = "leader" if number == leader else "pre_candidate" if is_cut_off else "follower"
        figures = (3, 9, 8, 7, 6, 1, 9, 0, len(self.records), 0, 0)
        return StatusReply(request.id, number, self.name, role, leader, self.members.get(leader, ""), *figures, nodes)

    def _append(self, request: Append, share: float) -> Any:
        if any(len(payload) > PAYLOAD_BYTES_MAX for payload in request.payloads):
            size = max(map(len, request.payloads))
            return Refused(request.id, "too_large", "too large", retryable=False, value=size, bound=PAYLOAD_BYTES_MAX)
        known = self.answers.setdefault((request.partition, request.client_id), {})
        highest = max(known, default=0)
        self.spread = max(self.spread, highest - request.request_id)
        if request.request_id <= highest - REQUEST_WINDOW:
            return Refused(request.id, "too_old", "the request is too old", retryable=False)
        records = self.records.setdefault(request.partition, [])
        done = [] if self.forgetful else known.setdefault(request.request_id, [])
        for payload in request.payloads[len(done) : max(1, int(len(request.payloads) * share))]:
            done.append(len(records))
            records.append(payload)
        known[request.request_id] = done
        self.written.set()
        return Appended(request.id, [(sequence, 1) for sequence in done])

    def _read(self, request: Read) -> Any:
        records = self.records.get(request.partition)
        if records is None:
            return Refused(request.id, "not_found", "there is no such partition", retryable=False)
        first = self.first.get(request.partition, 0)
        if request.start < first:
            return Refused(request.id, "data_lost", "retired", retryable=False, value=request.start, bound=first)
        stop = min(len(records), request.start + request.records_max)
        found = [WireRecord(at, 1_000 + at, at + 10, records[at]) for at in range(request.start, stop)]
        return Records(request.id, found, first, len(records))

    def _info(self, partition: int) -> PartitionInfo:
        first, end = self.first.get(partition, 0), len(self.records[partition])
        return PartitionInfo(partition, 1, first, end, end, end, end, 0, 0, 0, 1, is_throttled=False, is_frozen=False)


class _Conversation(asyncio.Protocol):
    """One connection to one fake node."""

    transport: asyncio.Transport

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.buffer = FrameBuffer(FRAME_BYTES_MAX)
        self.late: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.cluster.connections += 1
        self.cluster.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.cluster.open.discard(self)

    def data_received(self, data: bytes) -> None:
        for message in self.buffer.feed(data):
            if not self.transport.is_closing():
                self._take(message)

    def say(self, *messages: Any) -> None:
        self.transport.write(b"".join(map(encode_frame, messages)))

    def _take(self, message: Any) -> None:
        cluster = self.cluster
        if isinstance(message, Hello):
            if message.cluster_id not in ("", cluster.name):
                self.say(Rejected(f"this is cluster {cluster.name!r}, not {message.cluster_id!r}", is_final=True))
                self.transport.close()
                return
            self.say(
                Welcome(VERSION, cluster.name, self.number, cluster.leader, cluster.members.get(cluster.leader, ""))
            )
            return
        cluster.seen.append(message)
        if self.number in cluster.opening:
            self.say(Refused(message.id, "unavailable", "the node is opening its storage", retryable=True))
        elif isinstance(message, Barrier) and (cluster.is_behind or cluster.is_hung):
            self._let_wait(message)
        elif isinstance(message, GetStatus):
            self.say(cluster.status(message, self.number))
        elif isinstance(message, Read) and message.wait_ms and self._is_at_end(message):
            asyncio.ensure_future(self._answer_later(message))  # noqa: RUF006 - the loop ends with the test
        elif isinstance(message, AppendGroup):
            self._suffer_together(message)
        elif self.number != cluster.leader and not _is_for_any(message):
            self.say(self._not_leader(message))
        else:
            self._suffer(message, cluster.fault(message), self.say)
        late, self.late = self.late, []
        if late and not self.transport.is_closing():
            asyncio.get_running_loop().call_later(0.002, self._say_late, late)

    def _not_leader(self, request: Any) -> NotLeader:
        leader = self.cluster.leader
        return NotLeader(request.id, leader, self.cluster.members.get(leader, ""))

    def _suffer_together(self, group: AppendGroup) -> None:
        """Have each part of a group suffer what comes next; the answers of those before a loss do arrive."""
        answers: list[Any] = []

        def say(*parts: Any) -> None:
            answers.extend(parts)

        for place, part in enumerate(parts_of(group)):
            request = Append(place, part.partition, group.client_id, part.request_id, list(part.payloads))
            if self.number != self.cluster.leader:
                say(self._not_leader(request))
                continue
            fault = self.cluster.fault(request)
            if fault is Fault.LOSE:
                self.say(_grouped(group.id, answers))
            self._suffer(request, fault, say)
            if self.transport.is_closing():
                return
        self.say(_grouped(group.id, answers))
        self.late = [_grouped(group.id, [answer]) for answer in self.late]

    def _say_late(self, late: list[Any]) -> None:
        if not self.transport.is_closing():
            self.say(*late)

    def _let_wait(self, request: Barrier) -> None:
        if not self.cluster.is_hung:
            expired = Refused(request.id, "expired", "not applied in time", retryable=True)
            asyncio.get_running_loop().call_later(request.timeout_ms / 1000, self._say_late, [expired])

    def _is_at_end(self, request: Read) -> bool:
        return request.start >= len(self.cluster.records.get(request.partition, ()))

    async def _answer_later(self, request: Read) -> None:
        self.cluster.written.clear()
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                await self.cluster.written.wait()
        except TimeoutError:
            pass
        self._say_late([self.cluster.do(request)])

    def _suffer(self, message: Any, fault: Fault, say: Callable[..., None]) -> None:  # noqa: C901, PLR0912 - one case for each fault
        cluster = self.cluster
        match fault:
            case Fault.DROP:
                self.transport.abort()
            case Fault.LOSE:
                cluster.do(message)
                self.transport.abort()
            case Fault.PART:
                cluster.do(message, share=0.5)
                self.transport.abort()
            case Fault.MUTE:
                cluster.do(message)
            case Fault.MOVED:
                cluster.leader = cluster.leader % cluster.count + 1
                say(self._not_leader(message))
            case Fault.NOBODY:
                say(NotLeader(message.id, 0))
            case Fault.TWICE:
                reply = cluster.do(message)
                say(reply, reply)
            case Fault.LATE:
                self.late.append(cluster.do(message))
            case Fault.FULL:
                say(Refused(message.id, "overloaded", "full", True, 7, "queued_ops", 9, 8))  # noqa: FBT003 - as sent
            case Fault.UNSURE_DONE | Fault.UNSURE:
                if fault is Fault.UNSURE_DONE:
                    cluster.do(message)
                say(Refused(message.id, "unknown", "the leader lost its office", retryable=True))
            case Fault.GARBAGE:
                cluster.do(message)
                self.transport.write(b"\0\0\0\1\xc1")
            case _:
                say(cluster.do(message))


def _is_for_any(request: Any) -> bool:
    """Say whether a node answers from what it has, whoever leads."""
    if isinstance(request, GetPartitions):
        return not request.of_leader
    return isinstance(request, Read) and request.stale


def _grouped(number: int, answers: list[Any]) -> AppendedGroup:
    """Return answers as a node says them: plainly where the records are neighbours."""
    plain = [one for one in answers if isinstance(one, Appended) and one.runs and _is_one_run(one.sequences)]
    rest = [one for one in answers if one not in plain]
    return AppendedGroup(number, rest, [one.id for one in plain], [one.sequences[0] for one in plain])


def _is_one_run(sequences: list[int]) -> bool:
    return sequences == list(range(sequences[0], sequences[0] + len(sequences)))
