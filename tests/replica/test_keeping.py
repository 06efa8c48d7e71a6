"""A node keeps house: snapshots are taken, logs are cut; neither a machine that hangs nor a learner is in the way."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from latewood.clock import SystemClock
from latewood.fs import PosixFS
from latewood.replica.config import load_config
from latewood.replica.core import Core
from latewood.replica.engine import ChangeKind
from latewood.replica.founding import found_node
from latewood.replica.grouping import Answer
from latewood.replica.machine import LogMachine, MachineFactory, PartitionEntry
from latewood.replica.metrics import metrics_text
from latewood.replica.node import Node
from latewood.replica.writing import WriteRequest
from tests.replica.node import Tally
from tests.replica.processes import free_ports

pytestmark = pytest.mark.needs("native")

PATIENCE_S: Final = 60.0
TABLES: Final = (
    "[raft]\ntick_ms = 5\n[storage]\nsnapshot_bytes = 65536\nparent_segment_bytes = 524288\n"
    "partition_segment_bytes = 65536\nmachine_wait_ms = 50\n[limits]\npayload_bytes_max = 32768\n"
)


@asynccontextmanager
async def running(root: Path, factory: MachineFactory = LogMachine) -> AsyncIterator[Node]:
    """Run a node that is a cluster by itself."""
    path, (port,) = root / "node.toml", free_ports(1)
    path.write_text(
        f'cluster_id = "one"\nnode_id = 1\nlisten = "127.0.0.1:{port}"\n[peers]\n1 = "127.0.0.1:{port}"\n{TABLES}'
    )
    config = load_config(path)
    if not (root / "data").exists():
        found_node(config, PosixFS(), SystemClock())
    node = Node(config, factory)
    await node.start()
    try:
        await until(lambda: node.core is not None and node.core.is_leading)
        yield node
    finally:
        await node.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - threads make it true
            await asyncio.sleep(0.005)


class Writer:
    """Appends to a node's partitions."""

    def __init__(self, node: Node) -> None:
        self._node, self._count = node, 0

    async def write(self, partition: int, count: int = 32, size: int = 1_000) -> Answer:
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._count += 1
        request = WriteRequest(partition, bytes(16), self._count, [bytes(size)] * count)
        core_of(self._node).append(request, done.set_result)
        async with asyncio.timeout(PATIENCE_S):
            return await done


def core_of(node: Node) -> Core:
    assert node.core is not None
    return node.core


class Stubborn(Tally):
    """Hangs at a place, until it is let go."""

    place = ""
    hangs, may_go_on = threading.Event(), threading.Event()

    def apply(self, entry: PartitionEntry) -> None:
        self._hang("apply")
        super().apply(entry)

    def snapshot(self) -> Iterable[bytes]:
        self._hang("snapshot")
        return super().snapshot()

    def _hang(self, place: str) -> None:
        if place == type(self).place and not self.may_go_on.is_set():
            self.hangs.set()
            assert self.may_go_on.wait(PATIENCE_S)


def stubborn(at: str) -> type[Stubborn]:
    class Here(Stubborn):
        place = at
        hangs, may_go_on = threading.Event(), threading.Event()

    return Here


def test_a_machine_that_hangs_in_its_snapshot_stops_nobody_and_the_snapshot_comes_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind = stubborn("snapshot")

    async def story() -> None:
        async with running(tmp_path, lambda key: kind(key) if key == 2 else LogMachine(key)) as node:
            core, writer = core_of(node), Writer(node)
            assert node.keeper is not None
            await writer.write(2, 1)
            while not kind.hangs.is_set():
                await writer.write(1)
            for _ in range(20):
                assert isinstance(await writer.write(1), list), "other partitions go on"
            await until(lambda: node.keeper is not None and node.keeper.failed_count > 1)
            await until(lambda: not core.is_lent)
            assert core.parts.applier.hung() == [2]
            assert "latewood_machines_hung 1\n" in metrics_text(node)
            assert node.keeper.newest is None
            kind.may_go_on.set()
            await until(lambda: node.keeper is not None and node.keeper.newest is not None)
            assert core.parts.applier.hung() == []
            await writer.write(2, 1)
            await until(lambda: core.parts.watermarks[2].applied_index == 2)

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert "the machine of partition 2 hangs: it has been at its snapshot" in caplog.text


def test_a_machine_that_hangs_is_told_of_when_no_snapshot_is_due_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind = stubborn("apply")

    def said() -> list[str]:
        return [one.getMessage().partition(":")[0] for one in caplog.records if one.name == "latewood.replica.hanging"]

    async def story() -> None:
        async with running(tmp_path, lambda key: kind(key) if key == 2 else LogMachine(key)) as node:
            await Writer(node).write(2, 1)
            await until(lambda: bool(said()))
            kind.may_go_on.set()
            await until(lambda: len(said()) > 1)
            assert node.keeper is not None
            assert node.keeper.failed_count == 0

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert said() == ["the machine of partition 2 hangs", "the machine of partition 2 goes on"]


def test_whoever_waits_for_a_machine_is_told_while_a_snapshot_is_taken(tmp_path: Path) -> None:
    """The snapshot waits for the machine, and takes notice of what it has done: so must the barrier."""
    kind = stubborn("apply")

    async def story() -> None:
        async with running(tmp_path, lambda key: kind(key) if key == 2 else LogMachine(key)) as node:
            core, writer = core_of(node), Writer(node)
            core.parts.applier._machine_wait_ms = 60_000
            await writer.write(2, 1)
            assert await asyncio.to_thread(kind.hangs.wait, PATIENCE_S)
            barrier = asyncio.create_task(core.barriers.wait("test", core.parts.watermarks.routed, [2], PATIENCE_S))
            settle = core.parts.applier.settle

            def let_go(wait_s: float) -> None:
                del wait_s
                kind.may_go_on.set()
                settle(PATIENCE_S)

            core.parts.applier.settle = let_go  # type: ignore[method-assign]
            assert node.keeper is not None
            node.keeper.want()
            await until(lambda: node.keeper is not None and node.keeper.newest is not None)
            async with asyncio.timeout(PATIENCE_S / 2):
                await barrier

    asyncio.run(story())


@pytest.mark.slow
def test_partitions_of_machines_are_shortened_behind_the_parent_log_and_after_a_restart(tmp_path: Path) -> None:
    def factory(key: int) -> Tally | LogMachine:
        return Tally(key) if key == 2 else LogMachine(key)

    async def story() -> None:
        async with running(tmp_path, factory) as node:
            core, writer = core_of(node), Writer(node)
            async with asyncio.timeout(PATIENCE_S):
                while core.parts.roster.get(2) is None or first_index(core, 2) == 1:
                    await writer.write(2)
                    await writer.write(1)
            assert first_index(core, 1) == 1, "a log without retention keeps everything"
            await until(lambda: not core.is_lent)
            assert first_index(core, 2) - 1 <= base_of(core, 2)
            count = core.parts.watermarks[2].highest_index
        async with running(tmp_path, factory) as node:
            core = core_of(node)
            await until(lambda: core.parts.watermarks[2].applied_index == count)
            machine = core.parts.applier.machine(2)
            assert isinstance(machine, Tally)
            assert machine.count == count

    def first_index(core: Core, key: int) -> int:
        partition = core.parts.roster.get(key)
        assert partition is not None
        return partition.first_index

    def base_of(core: Core, key: int) -> int:
        from latewood.replica.snapshot import SnapshotReader  # noqa: PLC0415 - here alone

        assert core.store.snapshot is not None
        path = tmp_path / "data" / "snapshots" / core.store.snapshot.data.decode()
        with SnapshotReader.open(PosixFS(), path) as reader:
            return next(one.partition_log_index for one in reader.partitions if one.partition_id == key)

    asyncio.run(story())


async def add_learner(core: Core, node: int) -> None:
    def propose() -> None:
        assert core.engine.propose_change([(ChangeKind.ADD_LEARNER, node)], joint=False)

    core.raft.act(propose)
    await until(lambda: node in core.raft.driver.conf.learners)


def test_learners_that_are_away_do_not_keep_the_parent_log_from_being_cut(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as node:
            core, writer = core_of(node), Writer(node)
            for learner in (2, 3):
                await add_learner(core, learner)
            first = core.store.first_index
            async with asyncio.timeout(PATIENCE_S):
                while core.store.first_index == first:
                    await writer.write(1)

    asyncio.run(story())


def test_a_snapshot_has_the_members_of_its_own_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is wanted while a change is committed, and on its way to nobody: what came before it is not routed."""

    async def story() -> None:
        async with running(tmp_path) as node:
            core, keeper = core_of(node), node.keeper
            assert keeper is not None
            await Writer(node).write(1)
            with monkeypatch.context() as held_up:
                held_up.setattr(core, "_route", lambda: None)
                await add_learner(core, 2)
                assert core.raft.driver.conf_index > core.parts.watermarks.routed
                taking = asyncio.create_task(keeper._take())
                for _ in range(10):
                    await asyncio.sleep(0)
            core._go_on()
            await taking
            assert keeper.newest is not None
            assert keeper.newest.index >= core.raft.driver.conf_index
            assert keeper.newest.conf.learners == (2,)

    asyncio.run(story())
