"""The LMDB environment: opening, growing, and short read transactions.

One file and LMDB's lock file beside it, `<name>-lock`, both of mode 0600.  Every commit is durable: LMDB's own sync
stays on, and nothing is written through the map.  Growing the map needs a moment without transactions in this process:
readers enter and leave through `_Readers`, which the writer can hold shut.

LMDB refuses to open one file twice in a process; so does this.  After a fork the child may open it once more, and only
that one is the child's: it never touches what it inherited, not even to end a transaction.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import lmdb

from latewood.catalog.failures import translated
from latewood.catalog.inherited import let_go
from latewood.catalog.options import CatalogOptions
from latewood.catalog.rows import RowReader, RowWriter
from latewood.catalog.tables import TABLES
from latewood.errors import ClosedError, NotFoundError, UnavailableError
from latewood.forking import close_after_fork, forked
from latewood.format.store_layout import CATALOG_NAME
from latewood.fs.root import known_file
from latewood.limits import CATALOG_READERS_MAX, CATALOG_TABLES_MAX

_logger: Final = logging.getLogger(__name__)
T = TypeVar("T")
LIB_VERSION: Final = 0
"""LMDB 0.9, data format 1.  py-lmdb bundles 1.0 too, whose files are mutually unreadable with these."""

_MODE: Final = 0o600
_READERS_WAIT_S: Final = 30.0
_RESIZES_MAX: Final = 100


class LMDBEnv:
    """One open environment.  Reading is for any thread, `begin` and `grow` for the one that writes."""

    def __init__(self, path: Path, options: CatalogOptions, *, writable: bool, file_bytes: int) -> None:
        self.path, self._options = path, options
        self._map_bytes = max(options.map_bytes, _rounded(file_bytes + options.map_headroom_bytes))
        self._readers = _Readers()
        self._over: ClosedError | None = None
        """Why nothing may be read any more."""
        self._is_inherited = False
        """Whether this is a child of the process that opened it, and must leave it alone."""
        self._env: Any = None
        close_after_fork(self)  # Before there is an environment: another thread may fork as soon as there is.
        try:
            self._env = lmdb.open(
                str(path),
                subdir=False,
                readonly=not writable,
                create=writable,
                mode=_MODE,
                map_size=self._map_bytes,
                max_dbs=CATALOG_TABLES_MAX,
                max_readers=CATALOG_READERS_MAX,
                max_spare_txns=4,
                lib_version=LIB_VERSION,
            )
        except lmdb.Error as error:
            raise translated(error, path) from error
        self.handles: Mapping[str, Any] = {}
        try:
            self.stale_readers = self._env.reader_check()
            self.handles = self._open_tables(create=writable)
            self._page_bytes: int = self._env.stat()["psize"]
            self._file = known_file(path, "catalog" if path.name == CATALOG_NAME else "another") if writable else None
        except lmdb.Error as error:
            self._env.close()
            raise translated(error, path) from error
        except BaseException:
            self._env.close()
            raise

    def begin(self) -> Any:
        """Begin the write transaction."""
        return self._env.begin(write=True)

    @contextmanager
    def writing(self) -> Iterator[RowWriter]:
        """Hand out the rows of a write transaction, which is committed at the end, or given up with an error.

        For the time before there is a writer: nobody else may begin one.

        Raises:
            CatalogCorrupted: LMDB met a damaged page.
            DiskFull, CatalogFull: there is no room.
        """
        try:
            txn = self.begin()
            try:
                yield RowWriter(txn, self.handles, self.path)
                self.commit(txn)
            finally:
                self.end(txn)
        except lmdb.Error as error:
            raise translated(error, self.path) from error

    def commit(self, txn: Any) -> None:
        """Make a write transaction durable.

        Raises:
            Forked: a signal handler forked since it began, and this is the child.
        """
        if self._is_inherited:
            raise forked(self.path)
        txn.commit()

    def check_file(self) -> None:
        """Return if the path still leads to the file that is open to write: what goes to another one is never found.

        Raises:
            DirectoryReplaced: the file was removed, or another one has its name.
        """
        if self._file is not None:
            self._file.check()

    def end(self, txn: Any) -> None:
        """Give a transaction up, unless it has ended, or is the parent's and this is a child that was forked in it."""
        if not self._is_inherited:
            txn.abort()

    def begin_within(self, parent: Any) -> Any:
        """Begin a transaction within the write transaction, which can be given up alone."""
        return self._env.begin(parent=parent, write=True)

    def read(self, callback: Callable[[RowReader], T]) -> T:
        """Return `callback(rows)` of one snapshot, which ends with the call.

        Raises:
            CatalogCorrupted: a row is not what was written.
            ClosedError: the environment is closed.
        """
        with self._reading() as txn:
            rows = RowReader(txn, self.handles, self.path)
            try:
                return callback(rows)
            finally:
                rows.is_over = True

    def is_low(self) -> bool:
        """Say whether less than the headroom is free, and the map may still grow."""
        info = self._env.info()
        used: int = (info["last_pgno"] + 1) * self._page_bytes
        return used + self._options.map_headroom_bytes > self._map_bytes < self._options.map_bytes_max

    def grow(self, *, patient: bool) -> bool:
        """Double the map, up to its ceiling, and say whether that was possible.  No transaction of ours may be open.

        Waits for readers of this process if it is patient, else only tries.
        """
        target = min(self._map_bytes * 2, self._options.map_bytes_max)
        if target <= self._map_bytes:
            return False
        with self._readers.shut(_READERS_WAIT_S if patient else 0) as alone:
            if alone:
                self._set_size(target)
            return alone

    @property
    def may_grow(self) -> bool:
        """Whether the map is below its ceiling."""
        return self._map_bytes < self._options.map_bytes_max

    @property
    def is_read_here(self) -> bool:
        """Whether the calling thread is in the middle of a `read`."""
        return self._readers.is_mine

    def info(self) -> dict[str, int]:
        """Return what LMDB says of the environment: sizes, readers, the last transaction."""
        info: dict[str, int] = dict(self._env.info())
        return info | {"page_bytes": self._page_bytes, "stale_readers": self.stale_readers}

    def close(self) -> None:
        """Close it, after the last reader has left; if one stays, its map is left to the end of the process."""
        if self._is_inherited:
            return
        with self._readers.shut(_READERS_WAIT_S) as alone:
            self._over = ClosedError("the catalog is closed; open it again")
            if alone:
                self._env.close()
            else:
                _logger.warning("%s: a reader is still inside, so the map stays", self.path)

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child: what is shared with the parent is not touched."""
        self._is_inherited = True
        self._over = self._over or forked(self.path)
        self._readers.abandon()
        let_go(self._env, str(self.path))

    def _set_size(self, size: int) -> None:
        try:
            self._env.set_mapsize(size)
        except lmdb.Error as error:
            raise translated(error, self.path) from error
        self._map_bytes = self._env.info()["map_size"]

    def _open_tables(self, *, create: bool) -> Mapping[str, Any]:
        if create:
            with self._env.begin(write=True) as txn:
                return {t.name: self._env.open_db(t.name.encode(), txn=txn) for t in TABLES}
        try:  # Not within a transaction of ours: handles that a read transaction opens end with it.
            return {t.name: self._env.open_db(t.name.encode(), create=False) for t in TABLES}
        except (lmdb.NotFoundError, lmdb.ReadonlyError) as error:
            message = f"{self.path} is no catalog, or one whose creation was cut off: {error}"
            raise NotFoundError(message) from error

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        for _ in range(_RESIZES_MAX):
            with self._readers.inside():
                if self._over:
                    raise type(self._over)(*self._over.args)
                try:
                    txn = self._env.begin()
                except lmdb.MapResizedError:
                    txn = None
                except lmdb.Error as error:
                    raise translated(error, self.path) from error
                if txn is not None:
                    try:
                        yield txn
                    except lmdb.Error as error:
                        raise translated(error, self.path) from error
                    finally:
                        self.end(txn)
                    return
            self._adopt_size()
        message = f"{self.path} grows faster than it can be read"
        raise UnavailableError(message)

    def _adopt_size(self) -> None:
        """Take on the size that another process has given the map."""
        with self._readers.shut(_READERS_WAIT_S) as alone:
            if alone:
                self._set_size(0)


class _Readers:
    """Counts the read transactions of this process, and lets somebody hold them off."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._count = 0
        self._is_shut = False
        self._mine = threading.local()

    @contextmanager
    def inside(self) -> Iterator[None]:
        nested = getattr(self._mine, "depth", 0)
        with self._changed:
            while self._is_shut and not nested:  # Who is inside already must not wait for who waits for it.
                self._changed.wait()
            self._count += 1
        try:
            self._mine.depth = nested + 1
            yield
        finally:
            self._mine.depth = nested
            with self._changed:
                self._count -= 1
                if self._is_shut and not self._count:
                    self._changed.notify_all()

    @contextmanager
    def shut(self, seconds: float) -> Iterator[bool]:
        """Hold new readers off; True once those inside have left, False if they did not in time."""
        with self._changed:
            while self._is_shut:
                self._changed.wait()
            self._is_shut = True
        try:  # An interrupt while this waits must not leave it shut.
            with self._changed:
                alone = self._changed.wait_for(lambda: not self._count, seconds) if seconds else not self._count
            yield alone
        finally:
            with self._changed:
                self._is_shut = False
                self._changed.notify_all()

    def abandon(self) -> None:
        """Begin anew in a forked child, in which only this thread is there, and may be inside."""
        self._changed = threading.Condition(threading.Lock())
        self._count, self._is_shut = 0, False
        self._mine = threading.local()

    @property
    def is_mine(self) -> bool:
        """Whether this thread is inside."""
        return getattr(self._mine, "depth", 0) > 0


def _rounded(size: int) -> int:
    return -(-size // 65_536) * 65_536
