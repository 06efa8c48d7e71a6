"""A bit that flips on the disk of one real node: nobody reads it, no other node gets it, and the node can be mended.

The tests do what the messages say, in so many words.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood import AsyncClient
from latewood.cli.errors import ExitCode
from tests.replica.checking import Account, Writers, check, leader_among, records, until
from tests.replica.processes import SOURCES, ClusterProcesses, flip_a_bit

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

SMALL: Final = (
    "[storage]\nsnapshot_bytes = 65536\nparent_segment_bytes = 524288\npartition_segment_bytes = 65536\n"
    "[limits]\npayload_bytes_max = 32768\n"
)
"""Logs roll often, and the parent log forgets: what a partition held at first only other nodes have."""
NEW: Final = 4


def commands(text: str) -> list[list[str]]:
    """Return the commands that a message names."""
    return [found.split()[1:] for found in re.findall(r"`(latewood [^`]+)`", text)]


def latewood_cli(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "latewood.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)}, timeout=120
    )


class Scene:
    """A cluster that has written for a while."""

    def __init__(self, root: Path, cluster: ClusterProcesses, client: AsyncClient, writers: Writers) -> None:
        self.root, self.cluster, self.client, self.writers = root, cluster, client, writers
        self.account = writers.accounts[0]

    async def write(self, count: int = 400) -> None:
        self.writers.start(self.client, f"t{self.account.count}-")
        await self.writers.grow_by(count)
        await self.writers.stop()

    async def agree(self, *nodes: int) -> None:
        await check(self.client, self.cluster, self.writers.accounts, nodes or self.cluster.first, {})

    def data(self, node: int) -> Path:
        return self.root / f"data-{node}"

    def last_words(self, node: int) -> str:
        return self.cluster.nodes[node].log.read_text().splitlines()[-1]

    async def stops(self, node: int) -> str:
        """Wait until a node has stopped because of damage, and return what it said."""
        await until(lambda: not self.cluster.nodes[node].is_running)
        assert self.cluster.nodes[node].end() == ExitCode.CORRUPT
        return self.last_words(node)


def run(root: Path, story: Callable[[Scene], Awaitable[None]], extra: str = SMALL, *, spare: int = 0) -> None:
    async def work(cluster: ClusterProcesses) -> None:
        writers = Writers([Account(7, 500)], batch=50)
        async with await latewood.connect_async(cluster.seeds) as client:
            try:
                scene = Scene(root, cluster, client, writers)
                await scene.write()
                await scene.agree()
                await story(scene)
            finally:
                writers.abandon()

    with ClusterProcesses(root, extra=extra, spare=spare) as cluster:
        try:
            asyncio.run(work(cluster))
        except BaseException:
            print(cluster.logs())
            raise


def mend(said: str) -> "subprocess.CompletedProcess[str]":
    """Do what a node said when it stopped."""
    (command,) = (one for one in commands(said) if one[0] == "cluster")
    return latewood_cli(*command)


@pytest.mark.parametrize("leads", [True, False])
def test_a_flip_under_a_running_node_is_never_read_and_mended_from_the_others(tmp_path: Path, *, leads: bool) -> None:
    async def story(scene: Scene) -> None:
        leader = await leader_among(scene.client, scene.cluster, scene.cluster.nodes)
        damaged = leader if leads else leader % 3 + 1
        flip_a_bit(scene.data(damaged) / "partitions")
        # Whoever asks the leader gets what was written, of another node if need be.
        assert await records(scene.client, 7) == scene.account.expected()
        if not leads:
            async with await latewood.connect_async([scene.cluster.addresses[damaged]]) as alone:
                with pytest.raises(latewood.UnavailableError, match="damaged"):
                    await records(alone, 7, stale=True)
        said = await scene.stops(damaged)
        await scene.write()
        await scene.agree(*(node for node in scene.cluster.first if node != damaged))
        mended = mend(said)
        assert (mended.returncode, "partition" in mended.stdout) == (0, True), mended
        assert next(scene.data(damaged).glob("damaged/partitions-7-*")).is_dir()
        scene.cluster.nodes[damaged].start()
        await scene.agree()
        await scene.client.transfer_leader(damaged)
        await scene.write()
        await scene.agree()

    run(tmp_path, story)


def test_a_node_that_does_not_start_because_of_a_partition_is_mended_as_it_says(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        assert scene.cluster.nodes[1].end() == 0
        flip_a_bit(scene.data(1) / "partitions")
        with pytest.raises(AssertionError, match="at byte"):
            scene.cluster.nodes[1].start()
        said = await scene.stops(1)
        await scene.write()
        assert mend(said).returncode == 0
        scene.cluster.nodes[1].start()
        await scene.agree()

    run(tmp_path, story, extra="")


def test_a_repair_beside_a_running_node_is_refused_and_of_a_sound_one_changes_nothing(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        config = str(scene.cluster.nodes[1].config)
        assert latewood_cli("cluster", "repair", "--config", config).returncode == ExitCode.LOCKED
        assert scene.cluster.nodes[1].end() == 0
        assert latewood_cli("cluster", "repair", "--config", config).returncode == 0
        assert not (scene.data(1) / "damaged").exists()
        scene.cluster.nodes[1].start()
        await scene.agree()

    run(tmp_path, story)


@pytest.mark.parametrize("running", [True, False])
def test_a_node_with_a_damaged_parent_log_is_replaced_as_it_says(tmp_path: Path, *, running: bool) -> None:
    async def story(scene: Scene) -> None:
        node, cluster, seeds = scene.cluster.nodes[1], scene.cluster, scene.cluster.seeds
        if running:
            flip_a_bit(scene.data(1) / "parent")
            await scene.write()
            node.kill()
        else:
            assert node.end() == 0
            flip_a_bit(scene.data(1) / "parent")
        with pytest.raises(AssertionError, match="at byte"):
            node.start()
        refused = mend(await scene.stops(1))
        assert refused.returncode == ExitCode.CORRUPT
        remove, serve, add = commands(refused.stderr)[-3:]
        assert (remove[1], serve[0], add[1]) == ("remove", "serve", "add")
        filled = {"CLUSTER": ",".join(seeds), "FILE": str(node.config), "ID": str(NEW)}
        done = latewood_cli(*(filled.get(word, word) for word in remove))
        assert done.returncode == 0, done.stderr
        cluster.replace(1, NEW)
        node.start(*serve[3:])
        done = latewood_cli(*(filled.get(word, word) for word in add))
        assert done.returncode == 0, done.stderr
        await scene.write()
        await scene.agree(2, 3, NEW)
        cluster.nodes[2].kill()  # It counts: with one more lost there is a majority still.
        await scene.write(100)
        await scene.agree(3, NEW)

    run(tmp_path, story, extra="")


def test_a_node_that_lost_its_disk_does_not_come_back_under_its_id(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, extra=SMALL) as cluster:
        with latewood.connect(cluster.seeds) as client:
            client.partition(7).append(b"a")
            cluster.nodes[1].kill()
            (tmp_path / "data-1").rename(tmp_path / "lost")
            client.partition(7).append(b"b")
        said = latewood_cli("serve", "--config", str(cluster.nodes[1].config), "--join")
        assert said.returncode == ExitCode.USAGE
        assert "node 1 votes already" in said.stderr
        said = latewood_cli("cluster", "init", "--config", str(cluster.nodes[1].config))
        assert said.returncode == ExitCode.USAGE
        assert "has records already" in said.stderr
        assert not (tmp_path / "data-1").exists()
