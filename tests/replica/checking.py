"""Clients that check a cluster: writers that remember what they were told, and the comparison with what every node has.

A writer waits for each answer, and resolves those that are in doubt.  So at the end every record that it tried to write
was acknowledged, with its sequence: whatever is missing was lost, whatever is there twice or besides was made up.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import latewood
from latewood import AsyncClient

PATIENCE_S: Final = 120.0
TIMEOUT_MS: Final = 120_000
"""Of writers: faults last shorter than this."""


class Cluster(Protocol):
    """Where nodes are."""

    addresses: dict[int, str]


class WrongError(AssertionError):
    """A promise was broken."""


class Account:
    """What writers were told about one partition."""

    def __init__(self, partition: int, payload_bytes: int = 0) -> None:
        self.partition = partition
        self.count = 0
        """Of acknowledged records."""
        self._told: dict[int, tuple[str, int]] = {}
        """Writer and number of each record, by sequence."""
        self._padding = b"." * payload_bytes

    def payload(self, writer: str, number: int) -> bytes:
        raw = f"{self.partition}/{writer}/{number}/".encode()
        return raw + self._padding[len(raw) :]

    def tell(self, writer: str, number: int, sequences: list[int]) -> None:
        """Take note of an answer."""
        for at, sequence in enumerate(sequences):
            if sequence in self._told:
                message = f"partition {self.partition}: two records were acknowledged as {sequence}"
                raise WrongError(message)
            self._told[sequence] = (writer, number + at)
        self.count += len(sequences)

    @property
    def end(self) -> int:
        """Behind the last record that was acknowledged; there are those before it, though perhaps not told of yet."""
        return max(self._told, default=-1) + 1

    def told(self, stop: int) -> dict[int, bytes]:
        """Return what was acknowledged so far, by sequence, below a bound."""
        return {at: self.payload(*one) for at, one in self._told.items() if at < stop}

    def expected(self, start: int = 0) -> list[bytes]:
        """Return all that must be there from a sequence on, and nothing else, once no writer is at work."""
        stop = self.end
        gaps = [sequence for sequence in range(start, stop) if sequence not in self._told]
        if gaps:
            message = f"partition {self.partition}: nobody was told of records {gaps[:5]}, and later ones are there"
            raise WrongError(message)
        return [self.payload(*self._told[sequence]) for sequence in range(start, stop)]


class Writers:
    """Some writers of one client, each to one partition, until they are stopped."""

    def __init__(self, accounts: Iterable[Account], each: int = 2, batch: int = 1) -> None:
        self.accounts = list(accounts)
        self._each, self._batch = each, batch
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.calls = 0
        """That were acknowledged."""
        self.doubts = 0
        """Answers that did not come, and were resolved."""

    @property
    def count(self) -> int:
        return sum(account.count for account in self.accounts)

    def start(self, client: AsyncClient, name: str = "w") -> None:
        self._is_over = False
        for account in self.accounts:
            for writer in range(self._each):
                self._tasks.append(asyncio.create_task(self._write(client, account, f"{name}{writer}")))

    async def stop(self) -> None:
        """Have every writer end what it has begun."""
        self._is_over = True
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)

    def abandon(self) -> None:
        """Let writers end where they are: something has failed."""
        for task in self._tasks:
            task.cancel()

    async def grow_by(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        target = self.count + count
        await until(lambda: self.count >= target or any(task.done() for task in self._tasks))
        for task in self._tasks:
            if task.done():
                task.result()

    async def _write(self, client: AsyncClient, account: Account, name: str) -> None:
        number, last = 0, -1
        while not self._is_over:
            payloads = [account.payload(name, number + at) for at in range(self._batch)]
            sequences = await self._append(client, account.partition, payloads)
            if not last < sequences[0] or sequences != sorted(sequences):
                message = f"partition {account.partition}: {name} wrote {number} behind {last}, and it is {sequences}"
                raise WrongError(message)
            account.tell(name, number, sequences)
            self.calls += 1
            number, last = number + self._batch, sequences[-1]

    async def _append(self, client: AsyncClient, partition: int, payloads: list[bytes]) -> list[int]:
        doubt: latewood.OutcomeUnknown | None = None
        while True:
            try:
                if doubt is not None:
                    return list(await client.resolve(doubt))
                return list(await client.partition(partition).append_many(payloads))
            except latewood.OutcomeUnknown as error:
                doubt = error
                self.doubts += 1
            except latewood.UnavailableError:
                pass  # Nothing was written.


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens elsewhere."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it happens in other processes
            await asyncio.sleep(0.01)


async def leader_among(client: AsyncClient, cluster: Cluster, nodes: Iterable[int]) -> int:
    """Wait until one of these nodes leads and takes requests, as it says itself; return it."""
    wanted = list(nodes)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for node in wanted:
                try:
                    status = await client.status(cluster.addresses[node])
                except latewood.UnavailableError:
                    continue
                if status.role == "leader":
                    return node
            await asyncio.sleep(0.01)


async def converged(client: AsyncClient, cluster: Cluster, nodes: Iterable[int]) -> None:
    """Wait until nodes have applied everything that is committed now."""
    async with asyncio.timeout(PATIENCE_S):
        for node in nodes:
            while True:
                try:
                    await client.barrier(address=cluster.addresses[node], timeout=5.0)
                    break
                except latewood.UnavailableError:
                    await asyncio.sleep(0.05)


async def records(client: AsyncClient, partition: int, start: int = 0, *, stale: bool = False) -> list[bytes]:
    """Return what a cluster has of a partition; with `stale`, what the node has that the client knows."""
    return [record.payload async for record in client.partition(partition).scan(start, stale=stale)]


async def check(
    client: AsyncClient, cluster: Cluster, accounts: Iterable[Account], nodes: Iterable[int], start: dict[int, int]
) -> None:
    """Compare what the cluster and each node has with what writers were told; nobody writes meanwhile.

    `start` says from which sequence on, by partition.

    Raises:
        WrongError: something was lost, is there twice, or differs between nodes.
    """
    wanted = list(nodes)
    await converged(client, cluster, wanted)
    for account in accounts:
        at = start.get(account.partition, 0)
        expected = account.expected(at)
        if len(set(expected)) != len(expected):
            raise WrongError(f"partition {account.partition}: a record was acknowledged twice")
        compare(f"partition {account.partition}", at, expected, await records(client, account.partition, at))
        for node in wanted:
            async with await latewood.connect_async([cluster.addresses[node]]) as one:
                found = await records(one, account.partition, at, stale=True)
            compare(f"partition {account.partition} on node {node}", at, expected, found)


def compare(what: str, start: int, expected: list[bytes], found: list[bytes]) -> None:
    """Raise WrongError unless the same records are there, in the same order."""
    if found == expected:
        return
    lost, besides = set(expected) - set(found), set(found) - set(expected)
    twice = len(found) - len(set(found))
    at = next((at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), len(found))
    message = (
        f"{what}: {len(lost)} records lost, {twice} twice, {len(besides)} besides; of {len(expected)} acknowledged, "
        f"{len(found)} are there; the first difference is at {start + at}"
    )
    raise WrongError(message)
