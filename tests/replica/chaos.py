"""What can happen to a cluster of real processes, one thing at a time; every fault ends healed, with all nodes running.

Each fault is a coroutine that is given the stage.  Chance comes from the stage's own generator, so a seed names the
faults, though not the moments at which they hit.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import latewood
from latewood import AsyncClient
from latewood.cli.errors import ExitCode
from tests.replica.checking import (
    PATIENCE_S,
    TIMEOUT_MS,
    Account,
    Writers,
    WrongError,
    compare,
    converged,
    leader_among,
    records,
    until,
)
from tests.replica.network import CLIENT, Mode, Network
from tests.replica.processes import SOURCES, TICK_MS, ClusterProcesses

ELECTION_S: Final = 10 * TICK_MS / 1_000
"""Ten ticks, the default: without a word for so long, and up to twice as long by chance, a node stands for election."""
SOME: Final = 40
"""Records that show that writers go on."""
_FULL_BYTES: Final = 256 << 10
"""What a full disk still takes: less than a segment."""
_NOTICED_S: Final = 12.0
"""After so long nodes have noticed that connections were swallowed, and made others."""
_FULL: Final = "free some space"
"""What a node says then."""
_ROOM_BYTES: Final = 4 << 30


class Stage:
    """A cluster with its network and its writers, and what is known of its nodes."""

    def __init__(
        self, root: Path, cluster: ClusterProcesses, network: Network, client: AsyncClient, chance: random.Random
    ) -> None:
        self.root, self.cluster, self.network, self.client, self.chance = root, cluster, network, client, chance
        self.writers: list[Writers] = []
        self.disk: Path | None = None
        """A small disk, if one can be had; `disk_node` has its files there."""
        self.disk_node = 0
        self.suspects: set[int] = set()
        """Nodes whose files a bit was flipped in, and nobody has complained yet."""
        self.next_id = 100
        self.elections: list[float] = []
        """Election timeouts until another node acknowledged a write, each time a leader was lost."""
        self.swallowed_at = float("-inf")
        self.counts: dict[str, int] = {}
        self.probes = Account(999)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- nodes --------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[int]:
        return list(self.cluster.nodes)

    def others(self, node: int) -> list[int]:
        return [other for other in self.nodes if other != node]

    async def leader(self) -> int:
        return await leader_among(self.client, self.cluster, self.nodes)

    async def victim(self) -> int:
        """Return the leader, or as often one of the others."""
        leader = await self.leader()
        return leader if self.chance.random() < 0.5 else self.chance.choice(self.others(leader))

    async def start(self, node: int) -> int:
        """Start a node, mend or replace it if its files were damaged, and return its id."""
        process = self.cluster.nodes[node]
        try:
            await asyncio.to_thread(process.start)
        except AssertionError:
            return await self.mend(node)
        return node

    async def mend(self, node: int) -> int:
        """Bring back a node that has stopped because of damage: repaired, or replaced by one with another id."""
        process = self.cluster.nodes[node]
        code = await asyncio.to_thread(process.end)
        if code != ExitCode.CORRUPT or node not in self.suspects:
            message = f"node {node} stopped by itself with {code}: {process.log.read_text()[-2_000:]}"
            raise WrongError(message)
        self.suspects.discard(node)
        repaired = await asyncio.to_thread(_cli, "cluster", "repair", "--config", str(process.config))
        if repaired.returncode == 0:
            self.count("nodes repaired")
            await asyncio.to_thread(process.start)
            return node
        if repaired.returncode != ExitCode.CORRUPT:
            raise WrongError(f"node {node} could not be repaired: {repaired.stderr}")
        return await self._replace(node)

    async def _replace(self, node: int) -> int:
        self.count("nodes replaced")
        new, self.next_id = self.next_id, self.next_id + 1
        await self.persist(lambda: self._remove(node))
        process = self.cluster.replace(node, new)
        if node == self.disk_node and self.disk is not None:
            (self.disk / str(new)).mkdir()
            (self.root / f"data-{new}").symlink_to(self.disk / str(new))
            self.disk_node = new
        await asyncio.to_thread(process.start, "--join")
        await self.persist(lambda: self.client.add_node(new, self.cluster.addresses[new]))
        return new

    async def _remove(self, node: int) -> None:
        with suppress(latewood.NotFoundError):  # An earlier try was carried out, and its answer lost.
            await self.client.remove_node(node)

    async def persist(self, work: Callable[[], Awaitable[object]]) -> None:
        """Ask again while the cluster is busy with other things."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await work()
                except (latewood.UnavailableError, latewood.OutcomeUnknown):
                    await asyncio.sleep(0.1)
                else:
                    return

    async def settle(self) -> None:
        """Have all nodes running, and the same everywhere."""
        self.network.heal()
        for node in self.nodes:
            if not self.cluster.nodes[node].is_running:
                await self.start(node)
        await converged(self.client, self.cluster, self.nodes)

    # -- writers ------------------------------------------------------------------------------------------

    async def goes_on(self) -> None:
        """Wait until every kind of writer has got on."""
        for writers in self.writers:
            await writers.grow_by(SOME)

    async def another_leads(self, old: int) -> None:
        """Wait until another node acknowledges a write, and note how long that took since the call."""
        began = time.monotonic()
        new = await leader_among(self.client, self.cluster, self.others(old))
        async with await latewood.connect_async([self.cluster.addresses[new]], timeout_ms=TIMEOUT_MS) as client:
            number = self.probes.count
            sequence = await client.partition(self.probes.partition).append(self.probes.payload("probe", number))
            if began > self.swallowed_at + _NOTICED_S:
                self.elections.append((time.monotonic() - began) / ELECTION_S)
            else:
                self.count("elections over dead links, not timed")
            self.probes.tell("probe", number, [sequence])


def _cli(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "latewood.cli", *arguments]
    environment = dict(os.environ) | {"PYTHONPATH": str(SOURCES)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


# -- processes --------------------------------------------------------------------------------------------


async def kill_leader(stage: Stage) -> None:
    leader = await stage.leader()
    stage.cluster.nodes[leader].kill()
    await stage.another_leads(leader)
    await stage.goes_on()
    await stage.start(leader)


async def kill_follower(stage: Stage) -> None:
    follower = stage.chance.choice(stage.others(await stage.leader()))
    stage.cluster.nodes[follower].kill()
    await stage.goes_on()
    await stage.start(follower)


async def kill_some(stage: Stage) -> None:
    """Two or all of them: nothing can be acknowledged meanwhile."""
    nodes = stage.chance.sample(stage.nodes, stage.chance.choice([2, 3]))
    for node in nodes:
        stage.cluster.nodes[node].kill()
    for node in nodes:
        await stage.start(node)


async def pause(stage: Stage) -> None:
    node = await stage.victim()
    was_leader = node == await stage.leader()
    stage.cluster.nodes[node].send(signal.SIGSTOP)
    try:
        if was_leader:
            await stage.another_leads(node)
        await stage.goes_on()
    finally:
        stage.cluster.nodes[node].send(signal.SIGCONT)


async def stop_gracefully(stage: Stage) -> None:
    node = await stage.victim()
    code = await asyncio.to_thread(stage.cluster.nodes[node].end)
    if code:
        raise WrongError(f"node {node} ended with {code}")
    await stage.goes_on()
    await stage.start(node)


# -- the network ------------------------------------------------------------------------------------------


async def cut_leader(stage: Stage) -> None:
    """And show that it acknowledges nothing while it is alone."""
    leader = await stage.leader()
    stage.network.cut(leader, stage.others(leader))
    lonely = Account(998)
    async with await latewood.connect_async([stage.cluster.addresses[leader]], timeout_ms=1_500) as client:
        alone = asyncio.create_task(client.partition(lonely.partition).append(b"alone"))
        await stage.another_leads(leader)
        await asyncio.wait([alone])
        if alone.exception() is None:
            raise WrongError(f"node {leader} acknowledged a write that only it has")
    await stage.goes_on()
    stage.network.heal()


async def cut_follower(stage: Stage) -> None:
    follower = stage.chance.choice(stage.others(await stage.leader()))
    stage.network.cut(follower, stage.others(follower))
    await stage.goes_on()
    stage.network.heal()


async def cut_pair(stage: Stage) -> None:
    one, other = stage.chance.sample(stage.nodes, 2)
    stage.network.cut(one, [other])
    await stage.goes_on()
    stage.network.heal()


async def cut_one_way(stage: Stage) -> None:
    node, outward = await stage.victim(), stage.chance.random() < 0.5
    was_leader = node == await stage.leader()
    for other in stage.others(node):
        stage.network.set(*((node, other) if outward else (other, node)), Mode.HOLDS)
    if was_leader:
        await stage.another_leads(node)
    await stage.goes_on()
    stage.network.heal()


async def refuse(stage: Stage) -> None:
    node = await stage.victim()
    for other in [*stage.others(node), *stage.chance.choice([[], [CLIENT]])]:
        stage.network.set(node, other, Mode.REFUSES)
    await stage.goes_on()
    stage.network.heal()


async def swallow(stage: Stage) -> None:
    node = await stage.victim()
    for other in stage.others(node):
        stage.network.set(node, other, Mode.SWALLOWS)
        stage.network.set(other, node, Mode.SWALLOWS)
    stage.swallowed_at = time.monotonic()
    await stage.goes_on()
    stage.network.heal()
    stage.swallowed_at = time.monotonic()


async def flap(stage: Stage) -> None:
    for _ in range(8):
        node = stage.chance.choice(stage.nodes)
        stage.network.cut(node, stage.others(node))
        await asyncio.sleep(stage.chance.random() * ELECTION_S)
        for other in stage.others(node):
            stage.network.reset(node, other)
        stage.network.heal()
        await asyncio.sleep(stage.chance.random() * ELECTION_S)
    await stage.goes_on()


async def delay(stage: Stage) -> None:
    for one in stage.nodes:
        for other in stage.others(one):
            stage.network.set(one, other, Mode.PASSES, stage.chance.random() * ELECTION_S / 4)
    await stage.goes_on()
    stage.network.heal()


# -- disks ------------------------------------------------------------------------------------------------


async def flip_partition(stage: Stage) -> None:
    """A bit of one node's copy: whoever reads there gets what was written, or is refused; then the node is mended."""
    account = stage.chance.choice([account for writers in stage.writers for account in writers.accounts])
    await until(lambda: account.count > SOME)  # Else there is nothing to flip yet.
    end = account.end
    await stage.settle()
    node, running = await stage.victim(), stage.chance.random() < 0.5
    least = end if running else 0  # One that was stopped may not know yet what is committed.
    if not running:
        await asyncio.to_thread(stage.cluster.nodes[node].end, stage.chance.choice([signal.SIGTERM, signal.SIGKILL]))
    flip(stage.chance, next((stage.root / f"data-{node}" / "partitions").glob(f"{account.partition}-*")))
    stage.suspects.add(node)
    if not running:
        node = await stage.start(node)
    if await _is_refused(stage, node, account, least):
        stage.count("flips refused to a reader")
        await until(lambda: not stage.cluster.nodes[node].is_running)
        await stage.mend(node)
    await stage.goes_on()


async def flip_parent(stage: Stage) -> None:
    """A bit of one node's parent log, whether or not it runs: it must not start with that."""
    await stage.settle()
    node = await stage.victim()
    if stage.chance.random() < 0.5:
        stage.cluster.nodes[node].kill()
    flip(stage.chance, stage.root / f"data-{node}" / "parent")
    stage.suspects.add(node)
    await stage.goes_on()
    stage.cluster.nodes[node].kill()
    await stage.goes_on()
    await stage.start(node)


async def fill_disk(stage: Stage) -> None:
    """No room for one node's next segment; as a leader or as a follower."""
    if (disk := stage.disk) is None:
        return
    if stage.chance.random() < 0.5:
        await stage.persist(lambda: stage.client.transfer_leader(stage.disk_node))
    log = stage.cluster.nodes[stage.disk_node].log
    before = len(log.read_text())
    try:
        await until(lambda: _leave_no_room(disk))
        for _ in range(100):
            await stage.goes_on()
            if _FULL in log.read_text()[before:]:
                stage.count("disks that were full")
                break
        await stage.goes_on()
    finally:
        has_room = resize(disk, _ROOM_BYTES)
    if not has_room:
        raise WrongError("a disk could not be given room again")


FAULTS: Final[dict[str, Callable[[Stage], Awaitable[None]]]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        kill_leader,
        kill_follower,
        kill_some,
        pause,
        stop_gracefully,
        cut_leader,
        cut_follower,
        cut_pair,
        cut_one_way,
        refuse,
        swallow,
        flap,
        delay,
        flip_partition,
        flip_parent,
        fill_disk,
    )
}


def flip(chance: random.Random, directory: Path) -> None:
    """Flip a bit of what is written of a log, in place."""
    segment = chance.choice(sorted(directory.rglob("0*.q")))
    end = len(segment.read_bytes().rstrip(b"\0"))
    at = chance.randrange(end)
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << chance.randrange(8))]))


@contextmanager
def small_disk(path: Path) -> Iterator[Path | None]:
    """Yield a disk whose size can be changed; None if none can be had here."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def resize(disk: Path, size: int) -> bool:
    """Give a disk another size; False if it has more than that."""
    command = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _leave_no_room(disk: Path) -> bool:
    """Leave hardly any room on a disk; False if its node took more between the look and the change."""
    found = os.statvfs(disk)
    return resize(disk, (found.f_blocks - found.f_bfree) * found.f_frsize + _FULL_BYTES)


async def _is_refused(stage: Stage, node: int, account: Account, least: int) -> bool:
    """Read what a node has, after a bit was flipped there: all of it is right, or the node refuses because of damage.

    Writers are at work, so some may be there that nobody was told of yet; but at least so many must be.
    """
    async with await latewood.connect_async([stage.cluster.addresses[node]]) as client:
        try:
            found = await records(client, account.partition, stale=True)
        except latewood.UnavailableError as error:
            is_damaged = "damaged" in str(error)
            return is_damaged or not stage.cluster.nodes[node].is_running
    told = account.told(len(found))
    what = f"partition {account.partition} of node {node}, where a bit was flipped"
    compare(what, 0, [told.get(at, payload) for at, payload in enumerate(found)], found)
    if len(found) < least:
        raise WrongError(f"{what}: a reader was given {len(found)} records as if there were no more, of {least}")
    if node in stage.suspects:
        stage.count("flips without effect")
    return False
