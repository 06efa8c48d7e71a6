"""Three nodes on this machine, a writer that goes on, and a leader that is killed with -9 under it, again and again.

The nodes are real processes with disks of their own.  The writer appends events and notes what is acknowledged.  Every
few seconds the leader is killed and started again; at the end all three nodes are asked for everything, and it is
counted: acknowledged events that are missing, that stand elsewhere, or that are there twice.

    python examples/cluster.py [--short]

Needs some 100 MB in the temporary directory and removes what it put there.  Exits 1 if anything was lost.
"""

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import latewood
from latewood.replica.client.asynchronous import AsyncClient

PARTITION: Final = 7
WRITERS: Final = 16
COMMAND: Final = (sys.executable, "-m", "latewood.cli")


class Nodes:
    """Three nodes as processes."""

    def __init__(self, root: Path) -> None:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            ports = [one.getsockname()[1] for one in sockets]
        self.addresses = {number: f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}
        self._root = root
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        peers = "\n".join(f'{number} = "{address}"' for number, address in self.addresses.items())
        for number, address in self.addresses.items():
            self._config(number).write_text(
                f'cluster_id = "demo"\nnode_id = {number}\ndata = "data-{number}"\nlisten = "{address}"\n'
                f"[peers]\n{peers}\n[raft]\ntick_ms = 50\n"
            )
            subprocess.run(
                [*COMMAND, "cluster", "init", "--config", self._config(number)], check=True, stdout=subprocess.DEVNULL
            )
            self.start(number)

    def start(self, number: int) -> None:
        """Start a node, and return when it serves."""
        command = [*COMMAND, "serve", "--config", str(self._config(number))]
        process = self._running[number] = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:  # It has said why on stderr, which is ours.
            sys.exit(f"node {number} does not serve")
        json.loads(line)

    def kill(self, number: int) -> None:
        """End a node with -9."""
        process = self._running.pop(number)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        """End all of them."""
        for number in list(self._running):
            self.kill(number)

    def _config(self, number: int) -> Path:
        return self._root / f"node-{number}.toml"


class Story:
    """What the writer was told."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.acknowledged: dict[int, bytes] = {}
        self.pause_s = 0.0
        """The longest that nothing was acknowledged."""
        self._last = time.monotonic()
        self._is_over = False

    async def tell(self, kills: int, between_s: float) -> list[list[bytes]]:
        """Write, kill, and return what each node has in the end."""
        seeds = list(self._nodes.addresses.values())
        async with await latewood.connect_async(seeds) as client:
            writers = [asyncio.create_task(self._write(client, number)) for number in range(WRITERS)]
            for _ in range(kills):
                await asyncio.sleep(between_s)
                leader = (await client.status()).leader
                print(
                    f"{len(self.acknowledged):>9,} acknowledged; node {leader} leads, and is killed with -9", flush=True
                )
                self._nodes.kill(leader)
                await asyncio.sleep(between_s)
                led = (await client.status()).leader
                print(
                    f"{len(self.acknowledged):>9,} acknowledged; node {led} leads, node {leader} starts again",
                    flush=True,
                )
                await asyncio.to_thread(self._nodes.start, leader)
            await asyncio.sleep(between_s)
            self._is_over = True
            await asyncio.gather(*writers)
            end = await client.partition(PARTITION).barrier()
            return [await self._everything(address, end) for address in seeds]

    async def _write(self, client: AsyncClient, writer: int) -> None:
        number = 0
        while not self._is_over:
            event = f"event {number} of writer {writer}".encode()
            sequence = await client.partition(PARTITION).append(event)
            self.acknowledged[sequence] = event
            now = time.monotonic()
            self.pause_s, self._last = max(self.pause_s, now - self._last), now
            number += 1

    async def _everything(self, address: str, end: int) -> list[bytes]:
        """Return what one node has, once it has applied all that was acknowledged."""
        async with await latewood.connect_async([address]) as client:
            while (await client.status(address)).applied < end:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.05)
            return [record.payload async for record in client.partition(PARTITION).scan(stale=True)]


def main() -> int:
    """Tell the story, and return whether anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="Kill once, and soon.")
    short = parser.parse_args().short
    root = Path(tempfile.mkdtemp(prefix="latewood-cluster-"))
    nodes = None
    try:
        nodes = Nodes(root)
        print("three nodes serve at " + ", ".join(nodes.addresses.values()), flush=True)
        story = Story(nodes)
        found = asyncio.run(story.tell(1 if short else 3, 1.5 if short else 3.0))
    finally:
        if nodes is not None:
            nodes.close()
        shutil.rmtree(root)
    told = story.acknowledged.items()
    lost = sum(sequence >= len(one) or one[sequence] != event for one in found for sequence, event in told)
    twice = sum(len(one) - len(set(one)) for one in found)
    alike = all(one == found[0] for one in found)
    print(f"acknowledged  {len(told):,}\nlost          {lost:,}\ntwice         {twice:,}")
    print(f"nodes alike   {'yes' if alike else 'no'}\nlongest pause {story.pause_s:.1f} s")
    return 0 if alike and not lost and not twice else 1


if __name__ == "__main__":
    sys.exit(main())
