"""Faults of one node's disk, in real processes: the others go on, and nothing wrong spreads."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.cli.errors import ExitCode
from latewood.replica.client.asynchronous import AsyncClient
from tests.replica.processes import ClusterProcesses, flip_a_bit
from tests.replica.test_cluster import PARTITION, caught_up, stale, status_when
from tests.replica.test_cluster_changes import SMALL, fill

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

DAMAGED: Final = 1


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


async def committed(client: AsyncClient, cluster: ClusterProcesses) -> int:
    return max([(await client.status(cluster.addresses[node])).committed for node in (2, 3)])


@pytest.mark.parametrize("leads", [False, True])
def test_a_full_disk_stops_one_node_and_room_brings_it_back(tmp_path: Path, *, leads: bool) -> None:
    async def story(cluster: ClusterProcesses, disk: Path) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await client.transfer_leader(DAMAGED if leads else 2)
            await fill(client, 5_000)
            end = await committed(client, cluster)
            assert cluster.nodes[DAMAGED].is_running
            assert "free some space" in cluster.nodes[DAMAGED].log.read_text(), "the disk was not full at all"
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)  # noqa: ASYNC221 - short
            await status_when(client, cluster.addresses[DAMAGED], lambda one: one.applied >= end)
            expected = [record.payload async for record in client.partition(PARTITION).scan()]
            assert await stale(cluster.addresses[DAMAGED]) == expected

    cluster, disk = ClusterProcesses(tmp_path, extra=SMALL), tmp_path / "disk"
    with small_disk(disk, "2m"):
        shutil.move(tmp_path / f"data-{DAMAGED}", disk / "data")
        (tmp_path / f"data-{DAMAGED}").symlink_to(disk / "data")
        with cluster:
            asyncio.run(story(cluster, disk))


async def filled(client: AsyncClient, cluster: ClusterProcesses) -> None:
    await fill(client, 100)
    await caught_up(client, cluster.addresses[DAMAGED])


@pytest.mark.parametrize("log", ["parent", "partitions"])
def test_a_node_with_a_flipped_bit_does_not_start_and_the_others_go_on(tmp_path: Path, log: str) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await filled(client, cluster)
            assert cluster.nodes[DAMAGED].end() == 0
            flip_a_bit(tmp_path / f"data-{DAMAGED}" / log)
            with pytest.raises(AssertionError, match="at byte"):
                cluster.nodes[DAMAGED].start()
            assert cluster.nodes[DAMAGED].end() == ExitCode.CORRUPT
            await fill(client, 100)

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_what_a_partition_had_not_flushed_is_mended_from_the_parent_log(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await filled(client, cluster)
            cluster.nodes[DAMAGED].kill()
            flip_a_bit(tmp_path / f"data-{DAMAGED}" / "partitions")
            cluster.nodes[DAMAGED].start()
            await caught_up(client, cluster.addresses[DAMAGED])
            expected = [record.payload async for record in client.partition(PARTITION).scan()]
            assert await stale(cluster.addresses[DAMAGED]) == expected

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))
