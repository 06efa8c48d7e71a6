"""The stores that the log is compared with, each behind the same few methods.

Every peer is set up the fastest way that keeps the promise at hand.  `durable=False` promises that a record
outlives the process, as the log's plain append does; `durable=True` that it outlives a power cut.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from struct import Struct
from typing import Any, Final, Protocol

Append = Callable[[bytes], object]
AppendMany = Callable[[list[bytes]], object]

_LMDB_BYTES: Final = 16 << 30
_key: Final = Struct(">Q").pack


class Store(Protocol):
    """Somewhere to put records in order."""

    def __init__(self, path: Path, *, durable: bool) -> None: ...

    def appender(self) -> Append:
        """Return what appends one record."""
        ...

    def batch_appender(self) -> AppendMany:
        """Return what appends a batch, all or nothing where the peer can."""
        ...

    def payloads(self) -> Iterator[Any]:
        """Yield every record, oldest first."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


class LMDBStore:
    """One transaction for each put or batch.  Not durable: `sync=False`, the kernel writes when it likes."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        import lmdb  # noqa: PLC0415 - a peer is loaded only where it runs

        self._env = lmdb.open(str(path), map_size=_LMDB_BYTES, sync=durable, metasync=durable)
        with self._env.begin() as txn:
            self._next = count(int(txn.stat()["entries"]))

    def appender(self) -> Append:
        env, numbers = self._env, self._next

        def append(payload: bytes) -> None:
            with env.begin(write=True) as txn:
                txn.put(_key(next(numbers)), payload, append=True)

        return append

    def batch_appender(self) -> AppendMany:
        env, numbers = self._env, self._next

        def append_many(payloads: list[bytes]) -> None:
            with env.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti(zip(map(_key, islice(numbers, len(payloads))), payloads, strict=True), append=True)

        return append_many

    def payloads(self) -> Iterator[Any]:
        with self._env.begin() as txn, txn.cursor() as cursor:
            yield from cursor.iternext(keys=False, values=True)

    def close(self) -> None:
        self._env.close()


class SyncedLMDBStore(LMDBStore):
    """The same, but synced after each MiB, as the log is: no more than that is ever at risk."""

    def batch_appender(self) -> AppendMany:
        env, append_many, pending = self._env, super().batch_appender(), 0

        def append_and_sync(payloads: list[bytes]) -> None:
            nonlocal pending
            append_many(payloads)
            pending += sum(map(len, payloads))
            if pending >= 1 << 20:
                env.sync(True)  # noqa: FBT003 - force
                pending = 0

        return append_and_sync


class SQLiteStore:
    """WAL; `synchronous` is OFF, or FULL where durable: NORMAL does not sync the WAL at a commit."""

    SYNCHRONOUS = "OFF"

    def __init__(self, path: Path, *, durable: bool) -> None:
        path.mkdir(exist_ok=True)
        self._connection = sqlite3.connect(path / "log.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else self.SYNCHRONOUS}")
        self._connection.execute("CREATE TABLE IF NOT EXISTS log (sequence INTEGER PRIMARY KEY, payload BLOB)")

    def appender(self) -> Append:
        execute = self._connection.execute
        return lambda payload: execute("INSERT INTO log (payload) VALUES (?)", (payload,))

    def batch_appender(self) -> AppendMany:
        connection = self._connection

        def append_many(payloads: list[bytes]) -> None:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO log (payload) VALUES (?)", [(payload,) for payload in payloads])
            connection.execute("COMMIT")

        return append_many

    def payloads(self) -> Iterator[Any]:
        for (payload,) in self._connection.execute("SELECT payload FROM log ORDER BY sequence"):
            yield payload

    def close(self) -> None:
        self._connection.close()


class SQLiteNormalStore(SQLiteStore):
    """As SQLite comes: it syncs at checkpoints."""

    SYNCHRONOUS = "NORMAL"


class RocksStore:
    """RocksDB with its write-ahead log, as bytes without a codec and without compression."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        import rocksdict  # noqa: PLC0415 - a peer is loaded only where it runs

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)  # noqa: FBT003 - its own signature
        options.set_compression_type(rocksdict.DBCompressionType.none())
        self._batch = rocksdict.WriteBatch
        self._db = rocksdict.Rdict(str(path), options)
        self._write_options = rocksdict.WriteOptions()
        self._write_options.sync = durable
        self._db.set_write_options(self._write_options)
        self._next = count()

    def appender(self) -> Append:
        database, numbers = self._db, self._next

        def append(payload: bytes) -> None:
            database[_key(next(numbers))] = payload

        return append

    def batch_appender(self) -> AppendMany:
        database, numbers, make, options = self._db, self._next, self._batch, self._write_options

        def append_many(payloads: list[bytes]) -> None:
            batch = make(raw_mode=True)
            put = batch.put
            for key, payload in zip(map(_key, islice(numbers, len(payloads))), payloads, strict=True):
                put(key, payload)
            database.write(batch, options)

        return append_many

    def payloads(self) -> Iterator[Any]:
        return iter(self._db.values())

    def close(self) -> None:
        self._db.close()


class PersistQueueStore:
    """persist-queue's SQLite queue; it commits, and does not sync, at every put."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        import persistqueue  # noqa: PLC0415 - a peer is loaded only where it runs

        del durable  # there is nothing to choose
        self._queue = persistqueue.SQLiteQueue(str(path), auto_commit=True)

    def appender(self) -> Append:
        put: Append = self._queue.put
        return put

    def batch_appender(self) -> AppendMany:
        return lambda payloads: [self._queue.put(payload) for payload in payloads]

    def payloads(self) -> Iterator[Any]:
        import persistqueue  # noqa: PLC0415 - a peer is loaded only where it runs

        with suppress(persistqueue.Empty):
            while True:
                yield self._queue.get(block=False)

    def close(self) -> None:
        self._queue.close()


class DequeStore:
    """diskcache's Deque, on SQLite with `synchronous=NORMAL`."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        import diskcache  # noqa: PLC0415 - a peer is loaded only where it runs

        del durable  # there is nothing to choose
        self._deque = diskcache.Deque(directory=str(path))

    def appender(self) -> Append:
        append: Append = self._deque.append
        return append

    def batch_appender(self) -> AppendMany:
        deque = self._deque

        def append_many(payloads: list[bytes]) -> None:
            with deque.transact():
                deque.extend(payloads)

        return append_many

    def payloads(self) -> Iterator[Any]:
        return iter(self._deque)

    def close(self) -> None:
        self._deque.cache.close()


STORES: Final[dict[str, type[Store]]] = {
    "lmdb": LMDBStore,
    "lmdb-synced": SyncedLMDBStore,
    "sqlite": SQLiteStore,
    "sqlite-normal": SQLiteNormalStore,
    "rocksdict": RocksStore,
    "persist-queue": PersistQueueStore,
    "diskcache": DequeStore,
}
