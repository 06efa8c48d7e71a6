"""Which directory a node is in: it ends when its directory is another, and does not open the storage there."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import latewood
from latewood.clock import SystemClock
from latewood.errors import DirectoryReplaced, DiskFull, LatewoodError, Locked
from latewood.fs import PosixFS
from latewood.fs.file import PosixFile
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.founding import found_node
from latewood.replica.node import Node
from latewood.replica.recovery import NodeLayout
from tests.patience import SECONDS_MAX
from tests.replica.processes import free_ports

pytestmark = pytest.mark.needs("native")


def founded(directory: Path) -> NodeConfig:
    """A cluster of one node, whose configuration is named relative to the current directory."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    (directory / "node.toml").write_text(
        f'cluster_id = "trial"\nnode_id = 1\nlisten = "{address}"\nmetrics = ""\n'
        f'[peers]\n1 = "{address}"\n[raft]\ntick_ms = 10\n'
    )
    config = load_config(Path("node.toml"))
    found_node(config, PosixFS(), SystemClock())
    return config


def run(config: NodeConfig, story: Callable[[Node, latewood.AsyncClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        node = Node(config)
        await node.start()
        try:
            async with await latewood.connect_async([config.listen], timeout_ms=5_000) as client:
                await story(node, client)
        finally:
            with contextlib.suppress(DirectoryReplaced):
                await node.close()

    asyncio.run(whole())


def test_a_node_stays_where_it_is_when_the_current_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = founded(tmp_path)
    (tmp_path / "other").mkdir()

    async def story(_: Node, client: latewood.AsyncClient) -> None:
        monkeypatch.chdir(tmp_path / "other")
        await client.partition(7).append(b"kept")

    run(config, story)
    assert list((tmp_path / "other").iterdir()) == []
    assert [path.name for path in (tmp_path / "data" / "partitions").glob("7-*")]


def test_a_node_whose_directory_was_replaced_ends_and_acknowledges_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = founded(tmp_path)

    async def story(node: Node, client: latewood.AsyncClient) -> None:
        await client.partition(7).append(b"kept")
        config.data.rename(tmp_path / "elsewhere")
        found_node(config, PosixFS(), SystemClock())
        with pytest.raises(LatewoodError):
            await client.partition(7).append(b"late")
        reason = await asyncio.wait_for(asyncio.shield(node.stopped), SECONDS_MAX)
        assert isinstance(reason, DirectoryReplaced)

    run(config, story)
    assert not NodeLayout(config.data).partitions.exists()


def test_the_removal_of_its_lock_file_lets_no_second_node_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = founded(tmp_path)

    async def story(_: Node, client: latewood.AsyncClient) -> None:
        await client.partition(7).append(b"kept")
        NodeLayout(config.data).lock.unlink()
        with pytest.raises(Locked):
            await Node(config).start()

    run(config, story)


def test_a_node_whose_logs_cannot_store_their_final_state_lets_go_of_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would find its own parent log locked when it opens its storage again."""
    monkeypatch.chdir(tmp_path)
    config = founded(tmp_path)
    pwrite = PosixFile.pwrite

    def refusing(file: PosixFile, data: bytes, offset: int) -> None:
        if file.path.name.startswith("manifest."):
            raise DiskFull(f"{file.path}: No space left on device")
        pwrite(file, data, offset)

    async def fails_to_close() -> None:
        node = Node(config)
        await node.start()
        async with await latewood.connect_async([config.listen], timeout_ms=5_000) as client:
            for partition in (7, 8):
                await client.partition(partition).append(b"kept")
        with monkeypatch.context() as patched:
            patched.setattr(PosixFile, "pwrite", refusing)
            with pytest.raises(DiskFull, match="No space left") as caught:
                await node.close()
        told = [str(caught.value), *caught.value.__notes__]
        assert any("/partitions/" in text for text in told)
        assert any("/parent/" in text for text in told)

    async def story(_: Node, client: latewood.AsyncClient) -> None:
        for partition in (7, 8):
            assert [record.payload async for record in client.partition(partition).scan()] == [b"kept"]

    asyncio.run(fails_to_close())
    run(config, story)


def test_a_node_whose_ticks_failed_lets_go_of_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = founded(tmp_path)

    def failing(*_: object) -> None:
        raise ZeroDivisionError("a tick failed")

    async def story(node: Node, client: latewood.AsyncClient) -> None:
        await client.partition(7).append(b"kept")
        with monkeypatch.context() as patched:
            patched.setattr(Node, "_tick", failing)
            assert isinstance(await asyncio.wait_for(asyncio.shield(node.stopped), SECONDS_MAX), ZeroDivisionError)

    async def again(_: Node, client: latewood.AsyncClient) -> None:
        assert [record.payload async for record in client.partition(7).scan()] == [b"kept"]

    run(config, story)
    run(config, again)
