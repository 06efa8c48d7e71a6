"""What the campaign does things to: a log, a store, an archive, a checkpoint.  Nodes are in `nodes.py`.

A program is a subject that is open, with the book of what it was told.  Every step that it takes is taken with the
calls that users have.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import latewood
from latewood.archive.directory import DirectoryTier
from latewood.errors import LatewoodError, UniqueJobAlreadyPending
from latewood.fs import PosixFS
from latewood.jobs.kinds import kind_of
from latewood.runtime import Database, Store
from tests.identity.book import Book, Found, Place, require

NAME: Final = "clicks"
READER: Final = "billing"
SEGMENT_BYTES: Final = 4096
BATCH_MAX: Final = 12
PAYLOAD_BYTES_MAX: Final = 400
KINDS: Final = ["flush", "checkpoint", "compact", "verify"]
ARCHIVE_KINDS: Final = ["archive", "evict", "hydrate"]
USUAL: Final[dict[str, dict[str, Any]]] = {"flush": {"seal": True}, "compact": {"eager": True}, "evict": {"now": True}}


class Program(ABC):
    """A program that has something open.  Its steps are taken by any thread, but for `use`, `turn` and `close`."""

    fails_as_a_whole: ClassVar[bool] = True
    """Whether nothing is acknowledged any more once the directory is another."""

    def __init__(self, path: Path, book: Book, chance: random.Random) -> None:
        self.path, self.book, self._chance = path, book, chance

    @abstractmethod
    def write(self) -> None:
        """Have some records acknowledged as durable."""

    @abstractmethod
    def use(self) -> None:
        """Do something else that this kind of program does."""

    @abstractmethod
    def close(self) -> None:
        """Close all of it."""

    def start_jobs(self) -> None:
        """Have jobs run in the background."""
        raise NotImplementedError

    def _payloads(self, chance: random.Random) -> list[bytes]:
        return self.book.payloads(chance.randint(1, BATCH_MAX), chance.randrange(PAYLOAD_BYTES_MAX))


class LogProgram(Program):
    """Writes a log, and reads it by a name."""

    def __init__(self, path: Path, book: Book, chance: random.Random) -> None:
        super().__init__(path, book, chance)
        self.log = latewood.open(path, segment_bytes_max=SEGMENT_BYTES, background=chance.random() < 0.3)

    def write(self) -> None:
        chance = random.Random(self._chance.random())
        payloads = self._payloads(chance)
        way = chance.randrange(3)
        if way == 0:
            self.book.keep(0, [self.log.append(payloads[0], durable=True)], payloads[:1])
        elif way == 1:
            self.book.keep(0, self.log.append_many(payloads, durable=True), payloads)
        else:
            sequences = [self.log.append(payload) for payload in payloads]
            self.log.flush()
            self.book.keep(0, sequences, payloads)

    def use(self) -> None:
        self._chance.choice([self.log.roll, self.log.flush, self._scan, self._read, self.log.stats])()

    def close(self) -> None:
        self.log.close()

    def _scan(self) -> None:
        self.book.check_some(_found_in(self.log))

    def _read(self) -> None:
        with self.log.reader(READER) as reader:
            records = reader.poll(self._chance.randint(1, 100))
            self.book.check_some(Found(Place(0, record.sequence), record.payload) for record in records)
            reader.commit()


class CheckpointProgram(LogProgram):
    """Writes a log that a streaming query reads, whose checkpoint is elsewhere."""

    def __init__(self, path: Path, book: Book, chance: random.Random) -> None:
        from tests.spark.query import Query  # noqa: PLC0415 - pyspark takes its time to load

        super().__init__(path, book, chance)
        self.query = Query(path)
        self.rows: list[tuple[int, bytes]] = []
        """Everything that the query has given."""
        self.run_query()  # From now on its checkpoint names the log.

    def use(self) -> None:
        if self._chance.random() < 0.5:
            super().use()
        else:
            self.run_query()

    def run_query(self) -> None:
        """Run batches until nothing is left, and compare."""
        self.rows += self.query.run()
        check_rows(self.rows, self.book)

    def close(self) -> None:
        with suppress(LatewoodError):
            self.query.stop()
        super().close()


def check_rows(rows: list[tuple[int, bytes]], book: Book) -> None:
    """Check that a query gave the records of one log, each once, and skipped none."""
    book.check_some(Found(Place(0, sequence), payload) for sequence, payload in rows)
    sequences = [sequence for sequence, _ in rows]
    require(sequences == list(range(len(sequences))), f"the query on {book.name} skipped or repeated", sequences[-5:])


class StoreProgram(Program):
    """Writes a database of several shards, and runs jobs."""

    shards: ClassVar[int] = 3
    kinds: ClassVar[list[str]] = KINDS

    def __init__(self, path: Path, book: Book, chance: random.Random, tier: Any = None) -> None:
        super().__init__(path, book, chance)
        self.store = Store.open(path, tier=tier)
        try:
            self.db = self._database()
        except BaseException:
            with suppress(LatewoodError):
                self.store.close()
            raise

    def _database(self) -> Database:
        if any(record.name == NAME for _, record in self.store.databases()):
            return self.store.database(NAME)
        return self.store.create_database(NAME, shards=self.shards, segment_bytes_max=SEGMENT_BYTES, grace_ms=0)

    def write(self) -> None:
        chance = random.Random(self._chance.random())
        payloads = self._payloads(chance)
        if chance.randrange(2):
            shard, sequence = self.db.append(payloads[0], durable=True)
            self.book.keep(shard, [sequence], payloads[:1])
            return
        is_durable = bool(chance.randrange(2))
        placed = self.db.append_many(payloads, durable=is_durable)
        if not is_durable:
            self.db.flush()
        ((shard, sequences),) = placed.items()
        self.book.keep(shard, sequences, payloads)

    def use(self) -> None:
        acts: list[Callable[[], object]] = [self._scan, self._read, self.db.stats, self.db.flush]
        acts += [partial(self.run, kind) for kind in self.kinds]
        self._chance.choice(acts)()

    def run(self, kind: str) -> None:
        """Run a job, or have it wait if workers are there."""
        if self.store._pool is None:
            self.store.run_job(kind, NAME, **USUAL.get(kind, {}))
        else:
            with suppress(UniqueJobAlreadyPending):
                self.store.enqueue(kind_of(kind), NAME, **USUAL.get(kind, {}))

    def start_jobs(self) -> None:
        self.store.start_workers(1)

    def close(self) -> None:
        self.store.close()

    def _scan(self) -> None:
        self.book.check_some(_found_in_database(self.db))

    def _read(self) -> None:
        with self.db.reader(READER) as reader:
            records = reader.poll(self._chance.randint(1, 100))
            self.book.check_some(Found(Place(one.shard, one.sequence), one.payload) for one in records)
            reader.commit()


class ArchiveProgram(StoreProgram):
    """Moves the chunks of a store to an archive, which is the directory that things happen to."""

    fails_as_a_whole = False
    shards = 2
    kinds: ClassVar[list[str]] = [*KINDS, *ARCHIVE_KINDS]

    def __init__(self, path: Path, book: Book, chance: random.Random) -> None:
        path.mkdir(exist_ok=True)
        tier = tier_of(path)
        list(tier.list())  # From now on it is held open.
        super().__init__(lake_of(path), book, chance, tier)
        self.path = path

    def use(self) -> None:
        if self._chance.random() < 0.5:
            for kind in ("flush", "checkpoint", "archive"):
                self.run(kind)
        super().use()


def lake_of(archive: Path) -> Path:
    """Return where the store of an archive is."""
    return archive.absolute().with_name("lake")


def tier_of(path: Path) -> DirectoryTier:
    """Return an archive, whose name does not tell where it is."""
    tier = DirectoryTier(PosixFS(), path)
    tier.name = "file:///archive"
    return tier


def _found_in(log: Any) -> Iterator[Found]:
    return (Found(Place(0, record.sequence), record.payload) for record in log.scan())


def _found_in_database(db: Database) -> list[Found]:
    return [Found(Place(record.shard, record.sequence), record.payload) for record in db.scan()]


class Subject:
    """A kind of program, and how its directory is read by others."""

    def __init__(self, name: str, begin: Callable[[Path, Book, random.Random], Program]) -> None:
        self.name, self.begin = name, begin

    def read(self, path: Path) -> list[Found]:
        """Read a directory as another program does."""
        if self.name in ("log", "checkpoint"):
            with latewood.open(path, mode="r") as log:
                return list(_found_in(log))
        if self.name == "node":
            from tests.identity.nodes import read_node  # noqa: PLC0415 - as `_begin_node`

            return read_node(path)
        tier, root = (tier_of(path), lake_of(path)) if self.name == "archive" else (None, path)
        with Store.open(root, mode="r", tier=tier) as store:
            return _found_in_database(store.database(NAME))

    def make(self, path: Path, chance: random.Random) -> Book:
        """Make another one of this kind; return its book."""
        book = Book("another")
        if self.name == "archive":
            path.mkdir()
            return book
        with closing(self.begin(path, book, chance)) as program:
            for _ in range(chance.randint(1, 6)):
                program.write()
        return book


def _begin_node(path: Path, book: Book, chance: random.Random) -> Program:
    from tests.identity.nodes import NodeProgram  # noqa: PLC0415 - it is a program of this module, too

    return NodeProgram(path, book, chance)


SUBJECTS: Final = {
    subject.name: subject
    for subject in (
        Subject("log", LogProgram),
        Subject("store", StoreProgram),
        Subject("archive", ArchiveProgram),
        Subject("checkpoint", CheckpointProgram),
        *([Subject("node", _begin_node)] if find_spec("latewood._native") else []),
    )
}
"""A node needs the native module."""
