"""A cluster of one node, whose directory things happen to; what is in it is read through a node as well."""

import asyncio
import random
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

import latewood
from latewood.clock import SystemClock
from latewood.errors import ClosedError, LatewoodError, NotFoundError
from latewood.fs import PosixFS
from latewood.replica.config import load_config
from latewood.replica.founding import found_node
from latewood.replica.node import Node
from tests.identity.book import Book, Found, Place
from tests.identity.subjects import READER, Program
from tests.patience import SECONDS_MAX
from tests.replica.processes import free_ports

PARTITIONS: Final = (1, 2)
TIMEOUT_MS: Final = 4_000
"""Long enough for a node that founds itself on a busy machine; a round meets it once, when its node has ended."""
_SMALL: Final = "[raft]\ntick_ms = 10\n[storage]\nsnapshot_bytes = 2097152\n"


class NodeProgram(Program):
    """A node in a thread of its own, and a client."""

    def __init__(self, path: Path, book: Book, chance: random.Random) -> None:
        super().__init__(path, book, chance)
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        file = path.absolute().with_name(f"node-{port}.toml")
        file.write_text(
            f'cluster_id = "identity"\nnode_id = 1\nlisten = "{address}"\nmetrics = ""\n'
            f'[peers]\n1 = "{address}"\n{_SMALL}'
        )
        self.config = msgspec.structs.replace(load_config(file), data=path)
        if not (path / "node.json").exists():
            found_node(self.config, PosixFS(), SystemClock())
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)
        self._check_started()
        try:
            self.client = latewood.connect([address], timeout_ms=TIMEOUT_MS)
        except BaseException:
            self._end()
            raise

    def _check_started(self) -> None:
        if self._error is not None:
            self._thread.join()
            raise self._error

    def write(self) -> None:
        self._check()
        chance = random.Random(self._chance.random())
        payloads, number = self._payloads(chance), chance.choice(PARTITIONS)
        self.book.keep(number, self.client.partition(number).append_many(payloads), payloads)

    def use(self) -> None:
        self._check()
        acts: list[Any] = [self._scan, partial(self._read, self._chance.choice(PARTITIONS))]
        self._chance.choice(acts)()

    def close(self) -> None:
        self.client.close()
        self._end()

    def found(self) -> list[Found]:
        """Return all that the node has."""
        found: list[Found] = []
        for number in PARTITIONS:
            with suppress(NotFoundError):
                records = self.client.partition(number).scan()
                found += [Found(Place(number, record.sequence), record.payload) for record in records]
        return found

    def _scan(self) -> None:
        self.book.check_some(self.found())

    def _read(self, number: int) -> None:
        with suppress(NotFoundError), self.client.partition(number).reader(READER) as reader:
            self.book.check_some(Found(Place(number, one.sequence), one.payload) for one in reader.poll(20))
            reader.commit()

    def _check(self) -> None:
        if self._error is not None:
            raise ClosedError(f"the node has ended: {self._error}")

    def _end(self) -> None:
        """Stop the node, and raise what it ended with."""
        with suppress(RuntimeError):  # Its loop is closed already.
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - the top of a thread
            self._error = self._error or error
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        node = Node(self.config)
        try:
            await node.start()
            self._ready.set()
            over = asyncio.ensure_future(self._over.wait())
            both: list[asyncio.Future[Any]] = [node.stopped, over]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if node.stopped.done():
                self._error = node.stopped.result()
        finally:
            await node.close()


def read_node(path: Path) -> list[Found]:
    """Start a node in a directory, and read all that it has."""
    program = NodeProgram(path, Book("nobody"), random.Random(0))
    try:
        return program.found()
    finally:
        with suppress(LatewoodError):
            program.close()
