"""The client for asyncio: requests with retries, and what can be asked of a cluster.

An attempt that fails is repeated until the deadline, at whatever node leads then.  `verdict` decides, this acts.

Owned by the thread of its event loop.
"""

import asyncio
import random
import secrets
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec

from latewood.errors import (
    ClosedError,
    ClusterUnavailable,
    LatewoodError,
    NotFoundError,
    OutcomeForgotten,
    OutcomeUnknown,
    Overloaded,
    UnavailableError,
    UsageError,
    WaitExpired,
)
from latewood.limits import U32_MAX
from latewood.replica.client.argument import (
    global_index,
    node_number,
    partition_number,
    partition_numbers,
    wait_seconds,
)
from latewood.replica.client.batcher import Batcher
from latewood.replica.client.link import Link, NotTrusted
from latewood.replica.client.options import Address, ClientOptions
from latewood.replica.client.partition import AsyncPartition
from latewood.replica.client.parts import KnownPart, Part, SentPart, UnsentPart
from latewood.replica.client.room import Room
from latewood.replica.client.route import Route
from latewood.replica.client.sending import Sender
from latewood.replica.client.verdict import (
    CHANGING,
    NOTHING_DONE,
    ONCE,
    READING,
    Lost,
    Nature,
    Raise,
    Retry,
    Return,
    give_up,
    judge,
    wrong_kind,
)
from latewood.replica.replies import Appended, Done, Members, NotLeader, PartitionInfo, Partitions, Reached, StatusReply
from latewood.replica.requests import (
    CLIENT_ID_BYTES,
    Append,
    Barrier,
    ChangeMembers,
    GetPartitions,
    GetStatus,
    Resume,
    TearDown,
    TransferLeader,
)
from latewood.replica.wire import Reply, Request, WireError, decode_message, encode_frame

_PAUSE_S: Final = 0.05
"""Between two questions to a node that cannot answer now."""
_GRACE_S: Final = 0.5
"""How much later than its time a node's word that a wait expired may come."""

R = TypeVar("R", bound=Reply)


class AsyncClient:
    """A cluster, seen from a program.  `latewood.connect_async` makes one; use it in one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        cluster_id: str,
        tls: ssl.SSLContext | None,
        options: ClientOptions,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Hold the parts; no connection is made before it is needed."""
        self.options = options
        self.client_id = secrets.token_bytes(CLIENT_ID_BYTES)
        """Names this client to the nodes, together with the numbers of its requests."""
        self.room = Room(options.queued_bytes_max)
        """What may wait or be on the way."""
        self._route = Route(addresses, cluster_id, tls, options)
        self._sender = Sender(self.client_id, options, self._route, self.room, chance)
        self._loop = asyncio.get_running_loop()
        self._chance = chance
        self._batchers: dict[int, Batcher] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def partition(self, partition: int) -> AsyncPartition:
        """Return a partition to append to and to read; the first append makes it."""
        return AsyncPartition(self, partition)

    # -- the cluster --------------------------------------------------------------------------------------

    async def status(self, address: str | None = None) -> StatusReply:
        """Return how a node sees itself and the cluster: the one at `address`, else any that answers.

        Raises:
            ClusterUnavailable: it, or every one, cannot be reached.
            UnavailableError: it, or every one that can be, opens its storage; try again.
        """
        if address is not None:
            return await self._ask_one(GetStatus(0), address, StatusReply)
        return await self._ask_each(GetStatus(0), StatusReply)

    async def partitions(self, partitions: Iterable[int] = (), address: str | None = None) -> list[PartitionInfo]:
        """Return partitions in figures, by default all: as the leader has them, or the node at `address`.

        A node that does not lead may be behind.

        Raises:
            UsageError: these are no partitions' numbers.
            ClusterUnavailable: no node leads, or that at `address` cannot be reached.
        """
        request = GetPartitions(0, partition_numbers(partitions), of_leader=address is None)
        if address is not None:
            return (await self._ask_one(request, address, Partitions)).partitions
        return (await self.ask(request, READING, Partitions)).partitions

    async def barrier(
        self,
        target: int = 0,
        partitions: Sequence[int] = (),
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 - it is the node that waits
        address: str | None = None,
    ) -> int:
        """Wait until partitions (none named: all) have applied everything up to a global index, and return it.

        0 means everything that is committed when it is asked.  It is the leader that waits, or the node at `address`.

        Raises:
            UsageError: an argument is of another type, or out of bounds.
            WaitExpired: the time ran out.
            ClusterUnavailable: so it did, or `timeout_ms`, before there was a connection.
        """
        deadline = self._loop.time() + wait_seconds(timeout)
        request = Barrier(0, global_index(target), list(partition_numbers(partitions)), 1, self.client_id.hex())
        try:
            async with asyncio.timeout_at(deadline + _GRACE_S):
                if address is None or not target:  # Only the leader knows what is committed now.
                    target = await self._wait_at_leader(request, deadline)
                if address is None:
                    return target
                return await self._wait_at(address, msgspec.structs.replace(request, target=target), deadline)
        except TimeoutError:
            if address is None or not target:
                self._route.leave_leader()
            raise WaitExpired(f"no answer within {timeout:.3g} s; the node may hang") from None

    async def add_node(self, node_id: int, address: str, *, learner: bool = False) -> Members:
        """Make a running node a member: first a learner, and a voter once it has caught up.

        Raises:
            UsageError: it cannot be, or another node is at that address; nothing was changed.
            ClusterUnavailable: nobody answers there; nothing was changed.
            UnavailableError: another change is under way, or the node did not catch up; try again.
        """
        Address.parse(address)
        request = ChangeMembers(0, "add_learner" if learner else "add", node_number(node_id), address)
        await self._check_is_at(node_id, address)
        return await self._change(request)

    async def remove_node(self, node_id: int) -> Members:
        """Let a node be a member no more; it may be down.

        Raises:
            NotFoundError: it is none; nothing was changed.  After an `OutcomeUnknown` that says that it was done.
            UsageError: it is the last one that votes.
        """
        request = ChangeMembers(0, "remove", node_number(node_id))
        await self._check_is_member(node_id)
        return await self._change(request)

    async def transfer_leader(self, node_id: int) -> None:
        """Have another node lead."""
        request = TransferLeader(0, node_number(node_id))
        await self.ask(request, CHANGING, Done, extra_s=request.timeout_ms / 1000)

    async def tear_down(self, partition: int) -> None:
        """Remove a partition with its records, on all nodes.  Its number can be used again.

        Raises:
            OutcomeUnknown: the answer was lost.  It is not asked again: somebody may have written the partition anew.
        """
        await self.ask(TearDown(0, partition_number(partition)), ONCE, Done)

    async def resume(self, partition: int, address: str | None = None) -> None:
        """Let a paused partition try again: on the leader, or on the node at `address`."""
        request = Resume(0, partition_number(partition))
        if address is not None:
            await self._ask_one(request, address, Done)
        else:
            await self.ask(request, CHANGING, Done)

    async def resolve(self, unknown: OutcomeUnknown) -> list[int]:
        """Find out how an append ended whose answer did not come, and do what was not done: exactly once.

        Only the client that appended can: the others do not have its requests.

        Raises:
            UsageError: it is none of this client's appends.
            OutcomeUnknown: there is no answer still; resolve it again.
            OutcomeForgotten: the nodes remember it no more: after about 1,000 later ones, or five minutes.  Look for
                the records, and append what is missing.
        """
        given: object = unknown  # A caller without a type checker may give anything.
        if not isinstance(given, OutcomeUnknown):
            message = f"what is resolved is an OutcomeUnknown, not {type(given).__name__}"
            raise UsageError(message)
        parts = [part for part in unknown.parts if isinstance(part, SentPart | KnownPart | UnsentPart)]
        if not parts or any(isinstance(part, SentPart) and part.request.client_id != self.client_id for part in parts):
            raise UsageError("only an append of this very client can be resolved")
        sequences: list[int] = []
        for at, part in enumerate(parts):
            try:
                found = await self._resolve_part(part)
            except (OutcomeUnknown, UnavailableError) as error:
                reason = error.reason if isinstance(error, OutcomeUnknown) else str(error).removesuffix(NOTHING_DONE)
                kind = type(error) if isinstance(error, OutcomeUnknown) else OutcomeUnknown
                raise kind(reason, (*parts[:at], _replaced(part, error), *parts[at + 1 :])) from error
            parts[at] = KnownPart(tuple(found))
            sequences += found
        return sequences

    async def close(self) -> None:
        """Wait for what was appended, at most until its deadline, and close all connections."""
        with suppress(ClosedError):
            self._route.check_open()
            await self._sender.drain(self._batchers.values())
            await self._route.close()

    # -- for partitions and readers -----------------------------------------------------------------------

    def batcher(self, partition: int) -> Batcher:
        """Return the way of appends to a partition.

        Raises:
            ClosedError: the client is closed.
        """
        self._route.check_open()
        found = self._batchers.get(partition)
        if found is None:
            found = Batcher(partition, self.client_id, self.options, self.room, self._sender)
            self._batchers[partition] = found
        return found

    async def ask(self, request: Request, nature: Nature, kind: type[R], *, extra_s: float = 0.0) -> R:
        """Ask the leader, until there is an answer or the deadline.

        `extra_s` is what the node may wait itself: an attempt may take so much longer, the search for a leader may not.

        Raises:
            LatewoodError: as `verdict` says.
        """
        deadline = self._deadline()
        return await self._ask_until(_checked(request), nature, kind, deadline, extra_s)

    async def ask_any(self, request: Request, kind: type[R], *, extra_s: float = 0.0) -> R:
        """Ask any node, again for a moment if it cannot answer: for what need not be the latest.

        Raises:
            UnavailableError: what the first said; those after it may only be gone.
        """
        end = self._deadline()
        deadline, attempt = min(end, self._loop.time() + self.options.attempt_ms / 1000), 0
        first: UnavailableError | None = None
        while True:
            try:
                return await self._ask_one(request, None, kind, extra_s, end)
            except UnavailableError as error:  # It opens its storage, or has just gone.
                attempt, first = attempt + 1, first or error
                pause = self.options.pause_s(attempt, self._chance())
                is_final = isinstance(error, (NotTrusted, Overloaded, WaitExpired))
                if is_final or self._loop.time() + pause >= deadline:
                    raise first from None
            await asyncio.sleep(pause)

    # -- inside -------------------------------------------------------------------------------------------

    async def _append(self, request: Append, deadline: float) -> Appended:
        return await self._ask_until(request, CHANGING, Appended, deadline, 0.0)

    async def _resolve_part(self, part: Part) -> Sequence[int]:
        match part:
            case KnownPart():
                return part.sequences
            case UnsentPart():
                return await self.partition(part.partition).append_many(part.payloads)
            case SentPart():
                deadline = min(self._deadline(), part.until)
                if self._loop.time() >= part.until:
                    raise OutcomeForgotten("it was too long ago: nodes may have forgotten it, and would do it again")
                appended = await self._append(part.request, deadline)
                return appended.sequences[part.start : part.stop]

    async def _check_is_at(self, node_id: int, address: str) -> None:
        """Refuse an address at which there is another node: members would look for the one and find the other."""
        deadline = self._deadline()
        while True:
            try:
                link = await self._route.at(address, deadline)
                break
            except ClusterUnavailable as error:
                if isinstance(error, NotTrusted) or self._loop.time() + _PAUSE_S >= deadline:
                    start = f"`latewood serve --config node.toml --join` starts node {node_id} there"
                    raise ClusterUnavailable(f"{error}; nothing was changed; {start}") from error
            await asyncio.sleep(_PAUSE_S)
        found = link.greeted.result().node_id
        if found != node_id:
            raise UsageError(f"at {address} is node {found}, not node {node_id}; nothing was changed")

    async def _check_is_member(self, node_id: int) -> None:
        """Refuse a node that the leader does not know; once, before anything is asked for that may be repeated."""
        seen = await self.ask(GetStatus(0), READING, StatusReply)
        members = [one.node_id for one in seen.nodes]
        if node_id not in members:
            there = ", ".join(map(str, members))
            raise NotFoundError(f"node {node_id} is no member of cluster {seen.cluster_id!r}, which has {there}")

    async def _change(self, request: ChangeMembers) -> Members:
        return await self.ask(request, CHANGING, Members, extra_s=request.timeout_ms / 1000)

    async def _ask_until(self, request: Request, nature: Nature, kind: type[R], deadline: float, extra_s: float) -> R:
        in_doubt, last, attempt, begun = False, None, 0, self._loop.time()
        while True:
            attempt += 1
            outcome = await self._attempt(request, deadline, extra_s)
            verdict = judge(_of_leader(outcome[1]), nature, in_doubt=in_doubt)
            match verdict:
                case Return():
                    return _of_kind(verdict.reply, kind, outcome[0])
                case Raise():
                    raise verdict.error
                case Retry():
                    in_doubt, last = verdict.in_doubt, verdict.why
            self._route.learn(verdict, outcome[0])
            pause = 0.0 if verdict.address and attempt == 1 else self.options.pause_s(attempt, self._chance())
            if self._loop.time() + pause >= deadline:
                raise give_up(last, f"{deadline - begun:.3g} s", in_doubt=in_doubt)
            await asyncio.sleep(pause)

    async def _attempt(self, request: Request, deadline: float, extra_s: float) -> tuple[str, Reply | Lost]:
        """Return whom we asked, and how it ended."""
        try:
            link = await self._route.leader(deadline)
        except ClusterUnavailable as error:
            return "", Lost(str(error), was_sent=False, is_final=isinstance(error, NotTrusted))
        return link.address, await self._answer(link, request, self._patience_s(deadline) + extra_s)

    def _deadline(self) -> float:
        """Return when a call that begins now gives up."""
        return self._loop.time() + self.options.timeout_ms / 1000

    def _patience_s(self, deadline: float) -> float:
        """Return how long to wait for an answer that is asked for now."""
        return min(self.options.attempt_ms / 1000, deadline - self._loop.time())

    async def _answer(self, link: Link, request: Request, patience_s: float) -> Reply | Lost:
        answer = link.send(request)
        if not answer.done():
            timer = self._loop.call_later(max(patience_s, 0.001), self._route.hangs, link)
            try:
                return await answer
            finally:
                timer.cancel()
        return answer.result()

    async def _wait_at_leader(self, request: Barrier, deadline: float) -> int:
        left_s = deadline - self._loop.time()
        asked, end = _checked(_waiting_for(request, left_s)), min(deadline, self._deadline())
        # The connection outlives the wait: others use it too, and a node that is a little late is none that hangs.
        return (await self._ask_until(asked, READING, Reached, end, left_s + 2 * _GRACE_S)).global_index

    async def _wait_at(self, address: str, request: Barrier, deadline: float) -> int:
        """Wait at one node, also if it opens its storage anew meanwhile."""
        while True:
            left_s = deadline - self._loop.time()
            asked, end = _waiting_for(request, left_s), min(deadline, self._deadline())
            try:
                return (await self._ask_one(asked, address, Reached, left_s + 2 * _GRACE_S, end)).global_index
            except UnavailableError as error:
                is_final = isinstance(error, (WaitExpired, Overloaded))
                if is_final or self._loop.time() + _PAUSE_S >= deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _ask_each(self, request: Request, kind: type[R]) -> R:
        """Ask any node, and if that cannot answer now the others, within the time of one call.

        Raises:
            UnavailableError: what the first said.
        """
        end = self._deadline()
        try:
            return await self._ask_one(request, None, kind, deadline=end)
        except UnavailableError as error:
            for address in self._route.addresses:
                with suppress(UnavailableError):
                    return await self._ask_one(request, address, kind, deadline=end)
            raise error from None

    async def _ask_one(
        self, request: Request, address: str | None, kind: type[R], extra_s: float = 0.0, deadline: float | None = None
    ) -> R:
        """Ask one node, and once: its answer is about itself."""
        _checked(request)
        end = self._deadline() if deadline is None else deadline
        link = await (self._route.any(end) if address is None else self._route.at(address, end))
        outcome = await self._answer(link, request, self._patience_s(end) + extra_s)
        verdict = judge(outcome, READING, in_doubt=False)
        match verdict:
            case Return():
                return _of_kind(verdict.reply, kind, link.address)
            case Raise():
                raise verdict.error
            case Retry():
                raise _with_place(verdict.why, link.address)


def _checked(request: Request) -> Request:
    """Return a request that a node will understand.

    Raises:
        UsageError: an argument is of another type; a node would close the connection.
    """
    try:
        decode_message(encode_frame(request)[4:])
    except (WireError, TypeError, OverflowError) as error:
        message = f"an argument of the wrong type for {type(request).__name__}: {error}"
        raise UsageError(message) from None
    return request


def _waiting_for(request: Barrier, wait_s: float) -> Barrier:
    return msgspec.structs.replace(request, timeout_ms=min(max(1, int(wait_s * 1000)), U32_MAX))


def _of_kind(reply: Reply, kind: type[R], address: str) -> R:
    if not isinstance(reply, kind):
        raise wrong_kind(reply, kind, address)
    return reply


def _of_leader(outcome: Reply | Lost) -> Reply | Lost:
    """Return what a leader would have said: any node tells its status, and the leader's may be what was asked for."""
    if isinstance(outcome, StatusReply) and outcome.role != "leader":
        return NotLeader(outcome.id, outcome.leader, outcome.leader_address)
    return outcome


def _with_place(error: LatewoodError, address: str) -> LatewoodError:
    error.add_note(f"asked was {address}")
    return error


def _replaced(part: Part, error: LatewoodError) -> Part:
    """Return what is known of a part now: what had not been sent may have been sent by this attempt."""
    if isinstance(part, UnsentPart) and isinstance(error, OutcomeUnknown) and len(error.parts) == 1:
        return cast("Part", error.parts[0])
    return part
