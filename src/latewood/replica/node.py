"""A node: its transport, its core, and what happens when either fails.

The event loop's thread owns it.  A core that fails because of the disk is opened again, with pauses; one that finds
damage, or disagrees with its parent log, ends the node: others must not hear what it has to say.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import msgspec

from latewood.clock import Clock, checked
from latewood.errors import (
    CorruptError,
    DirectoryReplaced,
    DiskFull,
    LatewoodError,
    Locked,
    UnavailableError,
    UnsupportedVersion,
)
from latewood.fs import FileSystem, Lock, PosixFS
from latewood.limits import MiB
from latewood.log import LogOptions
from latewood.replica.addresses import split_address
from latewood.replica.apply import Applier
from latewood.replica.config import NodeConfig
from latewood.replica.connection import Connection
from latewood.replica.core import Core
from latewood.replica.directory import DIRECTORY_PARTITION, DirectoryMachine
from latewood.replica.dispatch import Dispatcher, Limits
from latewood.replica.engine import Message, MessageKind
from latewood.replica.figures import directory_of
from latewood.replica.founding import births_of, check_owner, hold_node, parent_options
from latewood.replica.keeping import Keeper
from latewood.replica.link import Identity
from latewood.replica.machine import LogMachine, MachineFactory, PartitionStateMachine
from latewood.replica.offers import Offers
from latewood.replica.raft_rs import RaftOptions
from latewood.replica.recovery import NodeLayout, NodeSite, RecoveredNode, recover_node
from latewood.replica.requests import Acknowledged, RaftMessages, SnapshotOffer, SnapshotOutcome
from latewood.replica.retaining import Retainer
from latewood.replica.service import Service
from latewood.replica.standing import Standing
from latewood.replica.transfer import pulling
from latewood.replica.transport import Transport
from latewood.replica.wire import Peer, Request

_MESSAGES_BYTES: Final = 8 * MiB
"""Messages to one node in one frame."""
_ACKNOWLEDGE_TICKS: Final = 5
_CHECK_TICKS: Final = 100
"""So often a node without a policy looks whether it may drop what a reader of its files kept."""
_REOPEN_FIRST_S: Final = 0.1
_REOPEN_MAX_S: Final = 5.0

_FATAL: Final = (CorruptError, UnsupportedVersion, DirectoryReplaced)
"""What another attempt would meet again.  In another directory the node would not know what it has promised."""

_logger = logging.getLogger(__name__)


class Node:
    """One node of a cluster.  `start` it, wait for `stopped`, then `close` it."""

    def __init__(
        self,
        config: NodeConfig,
        factory: MachineFactory = LogMachine,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.fs, self._clock = fs or PosixFS(), checked(clock)
        config = self.config = msgspec.structs.replace(config, data=self.fs.absolute(config.data))
        self.layout = NodeLayout(config.data)
        self.core: Core | None = None
        self.keeper: Keeper | None = None
        self._retainer: Retainer | None = None
        self._factory = factory
        self._loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[BaseException | None] = self._loop.create_future()
        """Ends when the node cannot go on, with the reason."""
        self.service = Service(self, self._clock)
        identity = Identity(config.cluster_id, config.node_id, config.advertise)
        self.transport = Transport(identity, self, config.tls)
        self._learnt: dict[int, str] = {}
        """Where nodes said that they are."""
        self._unreachable: set[int] = set()
        self._standing = Standing(config, self.transport.request, self._others)
        self._offers = Offers(self.transport, self.fs, self._clock, self.layout, self._reopen)
        self._tasks: list[asyncio.Task[None]] = []
        self._reopening: asyncio.Task[None] | None = None
        self._lock: Lock | None = None
        self._ticks = 0
        self._is_closing = False

    async def start(self) -> int:
        """Listen, and bring the storage forward; return the port.

        Raises:
            NotFoundError: the directory was never made a node's.
            CorruptError: something that was durable is damaged.
            Locked: another process has it.
            OSError: the address cannot be had.
        """
        check_owner(self.config, self.fs)  # This says more than that a directory is not there.
        self.fs = self.fs.rooted(self.layout.root)  # Opened again after troubles, the storage is in the same directory.
        check_owner(self.config, self.fs)  # And this is true of the one that is held open.
        self._offers = Offers(self.transport, self.fs, self._clock, self.layout, self._reopen)
        self._lock = hold_node(self.config, self.fs)  # First: who runs already has the port too, and that says less.
        port = await self.transport.listen(*split_address(self.config.listen))
        self._set_peers()
        try:
            await self._open()
        except Locked:
            raise
        except UnavailableError as error:  # A full disk, or peers that it needs and cannot reach: that passes.
            _logger.warning("the storage cannot be opened yet: %s", error)
            self._reopen()
        ticks = self._loop.create_task(self._tick_for_ever(), name="ticks")
        ticks.add_done_callback(self._ticks_ended)
        self._tasks.append(ticks)
        return port

    async def close(self) -> None:
        """Stop gracefully: hand over if we lead, answer nobody any more, and release everything."""
        self._is_closing = True
        tasks = [*self._tasks, *([self._reopening] if self._reopening else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # What one of them raised is told by `stopped`, and keeps nothing open.
        self._offers.close()
        self._standing.close()
        try:
            await self._close_core()
        finally:  # Storage that can store nothing any more keeps neither the port nor the lock.
            self.service.close()
            await self.transport.close()
            if self._lock is not None:
                self._lock.close()
            self.fs.close()

    async def hand_over(self, timeout_s: float) -> None:
        """If we lead, have the node that has come furthest lead instead; give up after a while."""
        core = self.core
        if core is None or not core.is_leading:
            return
        others = [one for one in core.engine.status().progress if one.node != core.node_id and one.recent_active]
        voters = [one for one in others if one.node in core.raft.driver.conf.voters]
        if voters:
            heir = max(voters, key=lambda one: one.match).node
            core.raft.act(lambda: core.engine.transfer_leader(heir))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while core.leader == core.node_id:  # noqa: ASYNC110 - the engine has no event for it
                        await asyncio.sleep(0.01)

    def now_ns(self) -> int:
        """Return the time, as this node has it."""
        return self._clock.now_ns()

    def addresses(self) -> dict[int, str]:
        """Return where nodes can be reached: what the cluster knows, else what they said, else the configuration."""
        machine = directory_of(self.core) if self.core else None
        known = machine.addresses if machine else {}
        own = {self.config.node_id: self.config.advertise}
        return {**self.config.peers, **self._learnt, **known, **own}

    # -- from the transport -------------------------------------------------------------------------------

    def on_peer(self, node_id: int, message: Peer) -> None:
        """Take a message of another node."""
        core = self.core
        if core is not None and type(message) is RaftMessages:  # Mostly.
            core.raft.step(node_id, message.messages)
            return
        if isinstance(message, SnapshotOffer):
            self._offers.on_offer(core, node_id, message)
        if core is None:
            return
        match message:
            case SnapshotOutcome():
                self._offers.on_outcome(core, node_id, message)
            case Acknowledged():
                if not core.is_lent:
                    core.parts.acks.acknowledge_through(node_id, message.global_index)

    def on_request(self, connection: Connection, request: Request) -> None:
        """Take a request."""
        if connection.node_id:
            self._offers.touch(connection.node_id)
        self.service.on_request(connection, request)

    def on_address(self, node_id: int, address: str) -> None:
        """Take note of where a node says that it is."""
        if self._learnt.get(node_id) != address:
            self._learnt[node_id] = address
            self._set_peers()

    def leader(self) -> tuple[int, str]:
        """Return who leads, and where that is."""
        leader = self.core.leader if self.core else 0
        return leader, self.leader_address(leader)

    # -- from the core ------------------------------------------------------------------------------------

    def leader_address(self, node_id: int) -> str:
        """Return where a node can be reached."""
        return self.addresses().get(node_id, "") if node_id else ""

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for records."""
        return self.service.is_watched

    def send(self, messages: Sequence[Message]) -> None:
        """Send the engine's messages, or lose them."""
        batches: dict[int, list[bytes]] = {}
        for to, kind, data in messages:
            if kind == MessageKind.SNAPSHOT:
                self._offers.offer(self.core, self.keeper, to, data)
            elif to in batches:
                batches[to].append(data)
            else:
                batches[to] = [data]
        for to, batch in batches.items():
            for piece in _pieces(batch) if len(batch) > 1 else (batch,):
                if not self.transport.send(to, RaftMessages(piece)):
                    self._unreachable.add(to)

    def on_applied(self, partition_ids: Collection[int]) -> None:
        """Wake those who wait for records."""
        self.service.on_applied(partition_ids)
        if DIRECTORY_PARTITION in partition_ids:
            self._set_peers()

    def on_installed(self) -> None:
        """Open the storage anew behind the snapshot that was installed."""
        _logger.info("a snapshot is installed; the storage is opened anew")
        self._reopen(0.0)

    def on_failure(self, error: BaseException) -> None:
        """Open the storage again, or end, depending on what happened."""
        if isinstance(error, _FATAL) or not isinstance(error, LatewoodError):
            _logger.error("the node stops: %s", error)
            if not self.stopped.done():
                self.stopped.set_result(error)
        else:
            _logger.warning("the core stopped, and is opened again: %s", error)
            # With a full disk it would be elected, and stop again: others first find a leader.
            self._reopen(_REOPEN_MAX_S if isinstance(error, DiskFull) else _REOPEN_FIRST_S)

    # -- the core's life ----------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Recover the storage, and begin a core on it."""
        config = self.config
        loop = self._loop
        wait_ms, retention = config.storage.machine_wait_ms, config.retention
        applier = Applier(self._clock, notify=self._on_applier, machine_wait_ms=wait_ms)
        bounds = config.limits
        dispatcher = Dispatcher(
            Limits(
                ops_max=bounds.partition_ops_max,
                bytes_max=bounds.partition_bytes_max,
                age_max_ms=bounds.partition_age_max_ms,
                lag_max=bounds.partition_lag_max,
            ),
            Limits(ops_max=bounds.total_ops_max, bytes_max=bounds.total_bytes_max, age_max_ms=None),
        )
        site = NodeSite(
            self.layout,
            self.fs,
            self._clock,
            self._machine,
            births_of(config),
            parent_options(config),
            LogOptions(segment_bytes_max=config.storage.partition_segment_bytes),
            background=True,
        )
        pull = pulling(loop, self.transport.request, self._others)

        def work() -> RecoveredNode:
            return recover_node(site, pull=pull, dispatcher=dispatcher, applier=applier)

        recovered = await loop.run_in_executor(None, work)
        raft = RaftOptions(election_ticks=config.raft.election_ticks, priority=config.raft.priority)
        self.core = core = Core(config.node_id, recovered, self, self._clock, raft, bounds.payload_bytes_max)
        applier.start(config.storage.apply_threads)
        policy = retention.policy if retention else None
        self.keeper = Keeper(core, self.fs, self._clock, self.layout, config.storage.snapshot_bytes, policy)
        self.keeper.start()
        check_ticks = max(1, retention.check_ms // config.raft.tick_ms) if retention else _CHECK_TICKS
        tell_all = partial(self.service.change_directory, core)
        self._retainer = Retainer(core, self.fs, self._clock, policy, tell_all, check_ticks)
        self._offers.clear()
        self._set_peers()

    def _machine(self, partition_id: int) -> PartitionStateMachine:
        return DirectoryMachine() if partition_id == DIRECTORY_PARTITION else self._factory(partition_id)

    async def _close_core(self) -> None:
        core, self.core = self.core, None
        if self.keeper is not None:
            self.keeper.close()
            self.keeper = None
        if self._retainer is not None:
            self._retainer.close()
            self._retainer = None
        if core is not None:
            await core.close()

    def _reopen(self, pause_s: float = _REOPEN_FIRST_S) -> None:
        if self._reopening is None and not self._is_closing:
            self._reopening = self._loop.create_task(self._reopen_soon(pause_s), name="reopening")

    async def _reopen_soon(self, pause_s: float) -> None:
        try:
            await self._close_core()
        except LatewoodError as error:
            _logger.warning("not everything could be closed: %s", error)
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._open()
                break
            except UnavailableError as error:
                pause_s = min(_REOPEN_MAX_S, max(_REOPEN_FIRST_S, 2 * pause_s))
                _logger.warning("the storage cannot be opened yet: %s", error)
            except LatewoodError as error:
                self.stopped.set_result(error)
                break
        self._reopening = None

    def _on_applier(self) -> None:
        """Have the event loop look at what workers have done; called by a worker."""
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody looks any more.
            self._loop.call_soon_threadsafe(self._on_progress)

    def _on_progress(self) -> None:
        if self.core is not None:
            self.core.collect()

    # -- time ---------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        tick_s, due = self.config.raft.tick_ms / 1_000, self._loop.time()
        while True:
            due = max(due + tick_s, self._loop.time())  # What was slept through is not made up for.
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if self.core is not None:
                self._tick(self.core)

    def _ticks_ended(self, ticks: "asyncio.Task[None]") -> None:
        """Stop, if it was no end that we wanted: without time a node is of no use, and would not say so."""
        if not ticks.cancelled() and (error := ticks.exception()) is not None:
            self.on_failure(error)

    def _tick(self, core: Core) -> None:
        self._ticks += 1
        for node in self._unreachable:
            core.raft.act(lambda node=node: core.engine.report_unreachable(node))  # type: ignore[misc]
        self._unreachable.clear()
        self._offers.tick(core)
        core.tick()
        self._standing.tick(core)
        if core.raft.failure is None and self.keeper is not None:
            self.keeper.tick()
            if self._retainer is not None:
                self._retainer.tick()
        if self._ticks % _ACKNOWLEDGE_TICKS == 0 and not core.is_lent:
            applied = Acknowledged(core.parts.watermarks.applied_floor())
            for node in core.raft.driver.conf.members:
                self.transport.send(node, applied)
            self._set_peers()

    def _set_peers(self) -> None:
        addresses = self.addresses()
        members = self.core.raft.driver.conf.members if self.core else frozenset()
        wanted = members or frozenset(addresses)
        leader = {self.core.leader} if self.core and self.core.leader else set()
        self.transport.set_peers((node, addresses[node]) for node in wanted | leader if node in addresses)

    def _others(self) -> list[int]:
        """Return whom to ask for records: whoever can be reached, and everybody while nobody can."""
        leader = self.core.leader if self.core else 0
        others = sorted(node for node in self.addresses() if node != self.config.node_id)
        reached = [node for node in others if self.transport.is_connected(node)]  # Waiting for one takes ten seconds.
        return sorted(reached or others, key=lambda node: node != leader)


def _pieces(messages: list[bytes]) -> list[list[bytes]]:
    """Cut messages into frames."""
    if sum(map(len, messages)) <= _MESSAGES_BYTES:
        return [messages]
    pieces, size = list[list[bytes]]([[]]), 0
    for message in messages:
        size += len(message)
        if pieces[-1] and size > _MESSAGES_BYTES:
            pieces.append([])
            size = len(message)
        pieces[-1].append(message)
    return pieces
