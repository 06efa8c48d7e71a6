"""What a client costs: CPU time of its process for each record, with nodes that answer at once.

`python bench/client.py`.  Beside it stands what asyncio alone costs in the same round: as many tasks, each awaiting one
future a record.  No program that awaits every append can cost less, so trust the ratio.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import latewood
from latewood.replica.replies import Appended, AppendedGroup
from latewood.replica.requests import VERSION, Append, AppendGroup, Hello, Welcome
from latewood.replica.wire import FRAME_BYTES_MAX, FrameBuffer, Message, encode_frame

_RECORDS: Final = 50_000
_WIDTH: Final = 1_024
_ROUNDS: Final = 9
_PAYLOAD: Final = bytes(100)
_MICROSECONDS: Final = 1_000_000
_LOOK_S: Final = 0.2


class _Node(asyncio.Protocol):
    """A node that has everything on disk before it is asked."""

    def __init__(self) -> None:
        self._buffer = FrameBuffer(FRAME_BYTES_MAX)
        self._ends: dict[int, int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"".join([encode_frame(self._answer(message)) for message in self._buffer.feed(data)]))

    def _answer(self, message: Message) -> Message:
        match message:
            case Hello():
                return Welcome(VERSION, "bench", 1, 1, "")
            case Append():
                return self._appended(message.id, message.partition, len(message.payloads))
            case AppendGroup():
                firsts = [self._appended(0, partition, 1).runs[0][0] for partition in message.partitions]
                return AppendedGroup(message.id, [], list(range(len(firsts))), firsts)
        raise AssertionError(message)

    def _appended(self, number: int, partition: int, count: int) -> Appended:
        start = self._ends.get(partition, 0)
        self._ends[partition] = start + count
        return Appended(number, [(start, count)])


async def _serve() -> None:
    """Say the port, and answer until nobody is there any more."""
    parent = os.getppid()
    server = await asyncio.get_running_loop().create_server(_Node, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    while os.getppid() == parent:  # noqa: ASYNC110 - whoever started us tells us nothing
        await asyncio.sleep(_LOOK_S)


async def _spent_us(append: Callable[[int], Awaitable[int]]) -> float:
    """Return the CPU time of one record, when so many tasks append them."""
    numbers = iter(range(_RECORDS))

    async def write() -> None:
        for number in numbers:
            await append(number)

    begun = time.process_time()
    await asyncio.gather(*(write() for _ in range(_WIDTH)))
    return (time.process_time() - begun) / _RECORDS * _MICROSECONDS


def _alone() -> Callable[[int], Awaitable[int]]:
    """Return what appends nothing: a future for each call, resolved with all others of a turn of the loop."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[int]] = []

    def resolve() -> None:
        futures = waiting[:]
        waiting.clear()
        for number, future in enumerate(futures):
            future.set_result(number)

    async def append(_: int) -> int:
        future: asyncio.Future[int] = loop.create_future()
        if not waiting:
            loop.call_soon(resolve)
        waiting.append(future)
        return await future

    return append


async def _measured(port: int, count: int) -> list[str]:
    """Return what a record cost when it went to one of so many partitions."""
    async with await latewood.connect_async([f"127.0.0.1:{port}"]) as client:
        partitions = [client.partition(number) for number in range(count)]

        async def append(number: int) -> int:
            return await partitions[number % count].append(_PAYLOAD)

        await _spent_us(append)  # Warm.
        ours, floor = [], []
        for _ in range(_ROUNDS):
            ours.append(await _spent_us(append))
            floor.append(await _spent_us(_alone()))
    ratios = [one / other for one, other in zip(ours, floor, strict=True)]
    figures = [
        f"{min(ours):.2f}",
        f"{statistics.median(ours):.2f}",
        f"{min(floor):.2f}",
        f"{statistics.median(ratios):.2f}",
    ]
    return [f"{count:,}", *figures]


def main() -> None:
    """Print the table."""
    if sys.argv[1:] == ["serve"]:
        asyncio.run(_serve())
        return
    node = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        port = int(node.stdout.readline())
        print(f"{_WIDTH:,} in flight, {len(_PAYLOAD)} bytes, load {os.getloadavg()[0]:.1f}; µs of CPU for a record")
        print("| partitions | least | median | asyncio alone, least | ratio, median of rounds |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        for count in (1, 1_000):
            print("|", " | ".join(asyncio.run(_measured(port, count))), "|")
    finally:
        node.terminate()
        node.wait()


if __name__ == "__main__":
    main()
