"""Catalog: every durable fact that the store knows, behind one typed door."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

from latewood.catalog.changes import ChangeEntry
from latewood.catalog.commit import CommitReceipt, Committer, stored_generations
from latewood.catalog.env import LMDBEnv
from latewood.catalog.feed import ChangeFeed
from latewood.catalog.generations import Watermarks
from latewood.catalog.ids import IdSource
from latewood.catalog.opening import open_env, session_begun, session_ended
from latewood.catalog.ops import BumpGeneration, Op, PutRuntimeState
from latewood.catalog.options import CatalogOptions
from latewood.catalog.scan import stream
from latewood.catalog.tables import (
    CHUNK,
    DB,
    JOB,
    ChangePosition,
    ChunkKey,
    ChunkRecord,
    Component,
    JobRecord,
    Record,
    RuntimeRecord,
    Table,
)
from latewood.catalog.tables.runtime_state import SESSION
from latewood.catalog.txn import CatalogTxn
from latewood.catalog.view import CatalogView
from latewood.catalog.waiting import WaitHandle, WaitRoom
from latewood.catalog.watching import wait_by_looking
from latewood.catalog.writer import Writer
from latewood.clock import Clock, checked
from latewood.closing import Closing, close_behind
from latewood.errors import ClosedError, ReadOnlyError, UsageError
from latewood.forking import close_after_fork, forked
from latewood.fs import FileSystem, Lock, PosixFS
from latewood.types import DbId, JobId

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R", bound=Record)
Mode = Literal["w", "r"]
_MS: Final = 1_000_000


class Catalog:
    """The LMDB database of a store.  One process writes it, any number read it.

    Thread-safe.  All writes go through one thread of its own.  After a fork the child must open it again.  Use it as a
    context manager, or call `close`.
    """

    def __init__(
        self, env: LMDBEnv, options: CatalogOptions, clock: Clock, mode: Mode, lock: Lock | None, fs: FileSystem
    ) -> None:
        """Hold the parts; `Catalog.open` is what opens a catalog."""
        self._env, self._options, self._clock, self._mode, self._lock, self._fs = env, options, clock, mode, lock, fs
        self._watermarks = Watermarks()
        self._room = WaitRoom(clock, self._watermarks)
        self._writer: Writer | None = None
        self._ids = {
            component: IdSource(partial(self._raise_generation, component))
            for component in (Component.JOB_IDS, Component.DB_IDS, Component.CHUNK_IDS)
        }
        self._session = RuntimeRecord()
        self._closed: ClosedError | None = None
        self._is_inherited = False
        """Whether this is a forked child of the process that opened it: there is nothing to close."""
        self._closing = threading.Lock()
        self.feed = ChangeFeed(env, clock, self)
        """The change log and its cursors."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: CatalogOptions | None = None,
        *,
        mode: Mode = "w",
        clock: Clock | None = None,
        fs: FileSystem | None = None,
    ) -> Self:
        """Open the catalog in a file, making it if it is not there, and bring old rows up to date.

        With `mode="r"` nothing is changed and no writer is kept out; LMDB still takes a slot in its lock file.

        Raises:
            Locked: another process, or this one, has it open to write; the error has its pid.
            NotFoundError: nothing to read is there.
            CatalogCorrupted: the file is damaged; `latewood catalog check` says where.
            UnsupportedVersion: a later program wrote it.
            ReadOnlyError: it may only be read.
            UsageError: it is open in this process already, or the mode is neither "w" nor "r".
        """
        if mode not in ("w", "r"):
            message = f"mode must be 'w' or 'r', not {mode!r}"
            raise UsageError(message)
        options, clock, fs = options or CatalogOptions(), checked(clock), fs or PosixFS()
        with ExitStack() as undo:
            env, lock, fs = open_env(fs, fs.absolute(Path(path)), options, clock, writable=mode == "w")
            undo.callback(_release, env, lock, fs)
            catalog = cls(env, options, clock, mode, lock, fs)
            catalog._begin()
            undo.pop_all()
        close_after_fork(catalog)
        return catalog

    @property
    def path(self) -> Path:
        """The file."""
        return self._env.path

    @property
    def was_clean(self) -> bool:
        """Whether whoever wrote it before closed it; True of a new one."""
        return self._session.clean

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self, callback: Callable[[CatalogView], T]) -> T:
        """Return `callback(view)` of one snapshot.  Be quick, and do not commit in it: the map cannot grow meanwhile.

        Raises:
            CatalogCorrupted: a row is not what was written.
        """
        self._check_open()
        return self._env.read(lambda rows: callback(CatalogView(rows)))

    def scan(self, table: Table[K, R], start: K | None = None) -> Iterator[tuple[K, R]]:
        """Yield the rows of a table in the order of their keys, a page at a time, holding no transaction between."""
        self._check_open()
        return stream(self._env, table, b"" if start is None else table.pack_key(start))

    def scan_chunks(self, db_id: DbId) -> Iterator[tuple[ChunkKey, ChunkRecord]]:
        """Yield the chunks of a database in the order of their ids, as `scan` does."""
        self._check_open()
        return stream(self._env, CHUNK, prefix=DB.pack_key(db_id))

    def scan_jobs(self, start: JobId = 0) -> Iterator[tuple[JobId, JobRecord]]:
        """Yield every job from an id on, as `scan` does."""
        return self.scan(JOB, start)

    def generation(self, component: int = Component.CATALOG) -> int:
        """Return a component's generation, as of the last commit."""
        self._check_open()
        if self._mode == "w":
            return self._watermarks[component]
        return self.read(lambda view: view.generation(component))

    def check_file(self) -> None:
        """Return if the path still leads to the file that is written; nothing is asked of one that is only read.

        Raises:
            DirectoryReplaced: the file was removed, or another one has its name.
        """
        self._env.check_file()

    def info(self) -> dict[str, int]:
        """Return sizes, readers and the like, as LMDB tells them."""
        self._check_open()
        return self._env.info()

    # -- writing ----------------------------------------------------------------------------------------------

    def begin_write(self, batch_hint: int = 0) -> CatalogTxn:  # noqa: ARG002 - a list needs no hint; part of the API
        """Return an empty batch.  Nothing is written, and nobody is kept waiting, before its `commit`.

        Raises:
            ReadOnlyError: the catalog was opened with mode='r'.
            ClosedError: it is closed.
        """
        return CatalogTxn(self._the_writer(), self._clock, self)

    def apply(self, *ops: Op) -> CommitReceipt:
        """Commit some operations; as `begin_write`, `extend` and `commit` would."""
        return self._the_writer().commit(ops)

    def sync(self) -> int:
        """Return the catalog's generation once everything submitted before is durable."""
        return self.apply().generation

    def reserve_job_id(self) -> JobId:
        """Return a job id that was never given out and never will be again.  Commits once in a while."""
        return self.reserve_ids(Component.JOB_IDS)[0]

    def reserve_ids(self, component: Component, count: int = 1) -> range:
        """Return consecutive ids of JOB_IDS, DB_IDS or CHUNK_IDS that were never given out.  Commits once in a while.

        Raises:
            UsageError: no such ids, or too many.
        """
        self._check_open()
        if component not in self._ids:
            message = f"component {component} gives no ids out"
            raise UsageError(message)
        return self._ids[component].reserve(count)

    # -- waiting ----------------------------------------------------------------------------------------------

    def register_waiter(self, component: int, target: int, deadline_ms: int | None = None) -> WaitHandle:
        """Return a wait for a component to come to a generation.  The deadline is a time of the clock passed in.

        Raises:
            ReadOnlyError: the catalog was opened with mode='r': use `wait_for_generation`.
            ClosedError: it is closed.
        """
        writer = self._the_writer()
        handle = self._room.register(component, target, deadline_ms)
        if not handle.done() and deadline_ms is not None:
            writer.poke()
        return handle

    def wait_for_generation(self, component: int, target: int, deadline_ms: int | None = None) -> int:
        """Block until a component has come to a generation, and return where it is.

        Raises:
            WaitExpired: the deadline came first.
            ClosedError: the catalog was closed meanwhile.
        """
        self._check_open()
        if self._mode == "r":
            return wait_by_looking(lambda: self.generation(component), component, target, deadline_ms, self._clock)
        if self._watermarks[component] >= target:
            return self._watermarks[component]
        return self.register_waiter(component, target, deadline_ms).wait()

    # -- changes ----------------------------------------------------------------------------------------------

    def changes(self, cursor: str) -> Iterator[ChangeEntry]:
        """Yield what changed since a cursor's last acknowledgement, in order, until there is no more.

        Raises:
            NotFoundError: there is no such cursor; `feed.create` makes one.
            ChangesLost: the log was full, and dropped what this cursor had not acknowledged.
        """
        self._check_open()
        return self.feed.changes(cursor)

    def acknowledge(self, cursor: str, upto: ChangePosition | int) -> CommitReceipt:
        """Note durably that a cursor has dealt with all changes up to a position, or of a generation and before.

        Raises:
            NotFoundError: there is no such cursor.
            UsageError: that generation has not come yet.
        """
        return self.feed.acknowledge(cursor, upto)

    def wait_for_changes(self, cursor: str, deadline_ms: int | None = None) -> None:
        """Block until `changes(cursor)` has something to yield.

        Raises:
            WaitExpired: the deadline came first.
            NotFoundError: there is no such cursor.
        """
        self._check_open()
        self.feed.wait(cursor, deadline_ms)

    # -- the end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit what is under way, tell who waits, and note that this was a clean end.  Closing twice is fine.

        Raises:
            Poisoned: a commit failed.
            DirectoryReplaced: the catalog's file, or its directory, is not the one that was opened any more.
            UsageError: the calling thread is in a callback of the catalog, which this would wait for.
        """
        if self._is_inherited:
            return
        if self._env.is_read_here or (self._writer and self._writer.is_mine):
            message = "close the catalog after its callback: it waits for that to end"
            raise UsageError(message)
        with self._closing:
            if self._closed:
                return
            with Closing() as closing:
                if self._writer:
                    closing(partial(self._writer.stop, self._last_ops))
                if not (self._writer and self._writer.is_alive):  # If an interrupt came first: close again.
                    self._closed = ClosedError("the catalog is closed; open it again")
                    closing(partial(self._room.close, self._closed))
                    closing(partial(_release, self._env, self._lock, self._fs))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_behind(self.close, value)

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child."""
        self._closed, self._is_inherited = self._closed or forked(self.path), True
        self._closing = threading.Lock()
        self._room.abandon(self._closed)
        if self._writer:
            self._writer.abandon(self._closed)

    def _begin(self) -> None:
        self._session = session_begun(self._env, self._clock, writable=self._mode == "w")
        self._watermarks.advance(self._env.read(stored_generations))
        if self._mode == "w":
            committer = partial(
                Committer,
                self._env,
                self._clock,
                self._watermarks,
                changes_max=self._options.changes_max,
                snapshots=self._room.snapshots,
                check_root=self._check_place,
            )
            self._writer = Writer(self._env, self._options, self._room, committer)
            self._writer.start()

    def _check_place(self) -> None:
        self._fs.check_root()
        self._env.check_file()

    def _last_ops(self) -> list[Op]:
        return [PutRuntimeState(SESSION, session_ended(self._env, self._clock))]

    def _raise_generation(self, component: int, increment: int) -> int:
        return self.apply(BumpGeneration(component, increment)).generations[component]

    def _the_writer(self) -> Writer:
        self._check_open()
        if self._writer is None:
            message = "the catalog was opened with mode='r'; open it without to write"
            raise ReadOnlyError(message)
        return self._writer

    def _check_open(self) -> None:
        if self._closed:
            raise type(self._closed)(*self._closed.args)


def _release(env: LMDBEnv, lock: Lock | None, fs: FileSystem) -> None:
    with Closing() as closing:
        closing(env.close)
        if lock:
            closing(lock.close)
        closing(fs.close)
