"""Store: many databases under one catalog, and the jobs that move their records through the tiers.

One process has a store open to write; any number may read it.  The composition root: it alone knows every layer.
"""

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec.structs import replace

from latewood.archive.keys import KeyRing
from latewood.archive.log_check import ChunkFiles
from latewood.archive.tier import Tier
from latewood.catalog import Catalog, CatalogOptions, RecoveryReport, recover
from latewood.catalog.description import origin_of, store_description
from latewood.catalog.tables import (
    Completed,
    Component,
    DbActive,
    DbDraining,
    DbRecord,
    DbTombstoned,
    EncryptionOptions,
    JobKind,
    JobRecord,
    WalStateKey,
    WalStateRecord,
)
from latewood.clock import Clock, checked
from latewood.closing import Closing, close_behind
from latewood.errors import (
    CorruptError,
    JobFailed,
    NotFoundError,
    ReadOnlyError,
    UniqueJobAlreadyPending,
    UsageError,
    WaitExpired,
)
from latewood.forking import OwnLock
from latewood.format.store_layout import DatabaseLayout
from latewood.fs import FileSystem, PosixFS
from latewood.jobs import JobManager, JobOptions, WorkerPool
from latewood.jobs.handlers import Handlers, upkeep_handlers
from latewood.jobs.handlers.late import late_handlers
from latewood.jobs.kinds import kind_of
from latewood.limits import check_name
from latewood.queue import Queue
from latewood.runtime.births import adopted, named
from latewood.runtime.continuation import Continuation, continuations, continue_shard
from latewood.runtime.database import Database
from latewood.runtime.fork import fork_database
from latewood.runtime.inventory import Inventory, Latest
from latewood.runtime.opening import hold_directory, layout_of, load_settings, open_archive, open_keys
from latewood.runtime.options import DatabaseOptions, check_shards, config_hash
from latewood.runtime.purge import purge_database
from latewood.runtime.readers import Readers
from latewood.runtime.room import check_shards_fit, warn_of_shards
from latewood.runtime.shard import Shard
from latewood.runtime.shard_log import make_log, open_log
from latewood.runtime.site import DatabaseSite, StoreSite
from latewood.settings.settings import Settings
from latewood.types import DbId, JobId

if TYPE_CHECKING:
    from collections.abc import Callable

    from latewood.tasks.engine import Engine

Mode = Literal["w", "r"]
_MS: Final = 1_000_000
_LOOK_MS: Final = 100
"""Whoever waits for a job looks again after this, also if nothing rings."""


class Store:
    """Databases, their catalog and their jobs.  Thread-safe.  Use it as a context manager, or call `close`."""

    def __init__(self, site: StoreSite, mode: Mode, job_options: JobOptions | None, settings: Settings) -> None:
        """Hold the parts; `Store.open` is what opens a store."""
        self._site, self._mode = site, mode
        self.catalog: Final = site.catalog
        self.layout: Final = site.layout
        self.settings: Final = settings
        """From `latewood.toml` and the environment; what was passed to `open` is not in them."""
        self.recovered: RecoveryReport | None = None
        """What the opening put right; None of a store that was opened to read."""
        self.jobs: Final = JobManager(site.catalog, job_options, clock=site.clock)
        self.handlers: Final = Handlers()
        self.engine: Engine | None = None
        """What does the work of jobs on files; None: the threads that run them.  Jobs that begin look here."""
        self._databases: dict[DbId, Database] = {}
        self._lock = OwnLock(threading.RLock)
        self._pool: WorkerPool | None = None
        if mode == "w":
            self.handlers.update(upkeep_handlers())
            self.handlers.update(late_handlers(site, lambda: self.engine))

    @classmethod
    def open(
        cls,
        root: str | Path,
        *,
        mode: Mode = "w",
        tier: Tier | None = None,
        keys: KeyRing | None = None,
        catalog_options: CatalogOptions | None = None,
        job_options: JobOptions | None = None,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
    ) -> Self:
        """Open a store, making it if it is not there, and recover what a crash left.

        What is not given comes from the environment, or from `latewood.toml` in the root: the tier from `archive.url`,
        the keys from `encryption.key_file`, and so on; see docs/guide/settings.md.

        Raises:
            Locked: another process has it open to write.
            NotFoundError: nothing to read is there.
            CatalogCorrupted: the catalog is damaged: `latewood rebuild --catalog`.
            UsageError: the directory holds something else, or a setting is not understood.
        """
        fs, clock = fs or PosixFS(), checked(clock)
        layout = layout_of(fs, root)
        settings = load_settings(layout.root, fs)
        tier = open_archive(settings, layout.root, fs) if tier is None else tier
        keys = open_keys(settings, layout.root, fs) if keys is None else keys
        catalog_options, job_options = catalog_options or settings.catalog, job_options or settings.jobs
        with ExitStack() as undo:
            fs = hold_directory(fs, layout, writable=mode == "w")
            undo.callback(fs.close)
            catalog = undo.enter_context(Catalog.open(layout.catalog, catalog_options, mode=mode, clock=clock, fs=fs))
            site = StoreSite(fs, clock, catalog, layout, tier, keys)
            store = cls(site, mode, job_options, settings)
            site.find = store.site_of
            if mode == "w":
                store.recovered = recover(catalog, clock)
            undo.pop_all()
        return store

    # -- databases --------------------------------------------------------------------------------------------

    def create_database(
        self, name: str, shards: int = 1, options: DatabaseOptions | None = None, **chosen: Any
    ) -> Database:
        """Make a database and return it.  Durable on return.

        Options are those of `DatabaseOptions`, as an object, or by name; by name, those that are not given are as the
        store's settings say under `[database]`.

        Raises:
            BadName: the name cannot be a file name.
            UsageError: an option is not understood, there is such a database, or its shards take too many open files.
            ReadOnlyError: the store was opened to read.
        """
        self._check_writable()
        check_name(name, "database")
        options = _options(options, chosen, self.settings.database)
        check_shards_fit(name, check_shards(shards))
        if options.key_id:
            self._site.keys_with(options.key_id, f"database {name!r}")
        with self._lock:
            if self._find(name) is not None:
                message = f"there is a database {name!r} already"
                raise UsageError(message)
            db_id = self.catalog.reserve_ids(Component.DB_IDS)[0]
            layout = self.layout.database(db_id, name)
            record = self._new_record(name, shards, options, layout)
            for shard in range(shards):  # 1. The logs.  2. The catalog: only now it is there.
                make_log(self._site, layout.shard(shard), record, 0, record.log_identity(shard))
            self._site.fs.make_directory(layout.chunks)
            self._put_database(db_id, record, [0] * shards)
            return self._opened(db_id, record)

    def database(self, name: str) -> Database:
        """Return a database by its name.

        Raises:
            NotFoundError: there is none.
            CorruptError: its configuration is not what it was made with.
        """
        with self._lock:
            found = self._find(name)
            if found is None:
                message = f"there is no database {name!r}"
                raise NotFoundError(message)
            return self._opened(*found)

    def databases(self) -> list[tuple[DbId, DbRecord]]:
        """Return every database that is not gone, in the order in which they were made."""
        rows = self.catalog.read(lambda view: list(view.dbs()))
        return [(db_id, record) for db_id, record in rows if not isinstance(record.status, DbTombstoned)]

    def drain(self, name: str) -> None:
        """Take no more records; jobs go on, and reading does.  Durable on return."""
        self._set_status(name, DbDraining())

    def activate(self, name: str) -> None:
        """Take records again."""
        self._set_status(name, DbActive())

    def drop(self, name: str) -> None:
        """Let a database be gone.  Its files stay until `purge`; its name is free."""
        self._set_status(name, DbTombstoned(tombstoned_at_ms=self._site.clock.now_ns() // _MS))

    def set_key(self, name: str, key_id: str | None) -> None:
        """Have new chunks of a database encrypted with another key; None: not at all.  Durable on return.

        Chunks that are there keep theirs: `run_job("rekey", name)` writes them anew, and after that, an archive and
        the grace period, `run_job("retain", name)` removes the last of the old ones.

        Raises:
            NotFoundError: there is no such database.
            KeyNotFound: the store's settings have no such key.
        """
        encryption = EncryptionOptions(key_id=key_id) if key_id else None
        if encryption is not None:
            self._site.keys_with(encryption.key_id, f"database {name!r}")
        self._change(name, lambda record: replace(record, options=replace(record.options, encryption=encryption)))

    def purge(self) -> list[str]:
        """Remove for good what is left of databases that were dropped; return the names of those that are gone.

        One whose chunks a fork shares stays, out of sight, until the fork needs them no more.

        Raises:
            UsageError: objects of one are archived, and the store has no archive now.
        """
        self._check_writable()
        rows = self.catalog.read(lambda view: list(view.dbs()))
        dropped = [(db_id, record) for db_id, record in rows if isinstance(record.status, DbTombstoned)]
        return [record.name for db_id, record in dropped if purge_database(self._site, self._dropped(db_id, record))]

    def fork(self, name: str, new_name: str) -> Database:
        """Make a database that begins as another one's chunks are now, and shares their files.  Durable on return.

        What the other has only in its logs is not part of it: flush it first.

        Raises:
            NotFoundError, BadName, UsageError: as `database` and `create_database`.
        """
        self._check_writable()
        check_name(new_name, "database")
        source = self.database(name)
        with self._lock:
            if self._find(new_name) is not None:
                message = f"there is a database {new_name!r} already"
                raise UsageError(message)
            db_id = self.catalog.reserve_ids(Component.DB_IDS)[0]
            layout = self.layout.database(db_id, new_name)
            record = fork_database(self._site, source, db_id, new_name, layout)
            return self._opened(db_id, record)

    def logs_behind(self, name: str) -> list[Continuation]:
        """Return the shards of a database whose logs end before their chunks do, or are gone, and what can be done.

        Raises:
            NotFoundError: there is no such database.
            CorruptError: a log cannot be read at all, or a reader's position.
        """
        database = self.database(name)
        return continuations(self._site, database, self.site_of(database.db_id))

    def continue_log(self, name: str, planned: Continuation) -> Continuation:
        """Replace one of those logs by one that goes on behind the chunks, and keep it under another name.  Durable.

        Raises:
            UsageError: that log goes as far as its chunks by now: it was restored, or goes on already.
            Locked: a process has that log open to write.
            ReadOnlyError: the store was opened to read.
        """
        self._check_writable()
        database = self.database(name)
        return continue_shard(self._site, database, self.site_of(database.db_id), planned)

    # -- jobs -------------------------------------------------------------------------------------------------

    def enqueue(self, kind: JobKind | int, database: str, **payload: Any) -> JobId:
        """Let a job of a database wait for a worker, and return its id.

        Raises:
            UniqueJobAlreadyPending: one of its kind waits already; the error has its id.
            NotFoundError: there is no such database.
        """
        self._check_writable()
        found = self._find(database)
        if found is None:
            message = f"there is no database {database!r}"
            raise NotFoundError(message)
        return self.jobs.enqueue(kind, payload, db_id=found[0])

    def run_job(self, kind: str | int, database: str, **payload: Any) -> JobRecord:
        """Have a job of a database done and return it: `flush`, `checkpoint`, `compact`, `archive`, `evict` and so on.

        Does whatever else is due on the way, in this thread; if workers run, waits for them instead.

        Raises:
            JobFailed: it failed for good, or backs off; the error says why.
            NotFoundError: there is no such database.
            UsageError: there is no such kind.
        """
        number = kind_of(kind) if isinstance(kind, str) else kind
        try:
            job_id = self.enqueue(number, database, **payload)
        except UniqueJobAlreadyPending as pending:
            job_id = pending.job_id
        job = self._done(job_id)
        if not isinstance(job.state, Completed):
            reason = job.last_error.message if job.last_error else type(job.state).__name__
            raise JobFailed(f"job {job_id}, {kind} of {database!r}: {reason}")
        return job

    def _done(self, job_id: JobId) -> JobRecord:
        """Return a job once it is finished, or failed and backs off."""
        if self._pool is None:
            self.run_jobs()
            return self.jobs.get(job_id)
        while True:
            generation = self.catalog.generation(Component.JOBS)
            job = self.jobs.get(job_id)
            if job.is_finished or (job.last_error is not None and job.not_before_ms > self.jobs.now_ms()):
                return job
            with suppress(WaitExpired):
                deadline_ms = self.jobs.now_ms() + _LOOK_MS
                self.catalog.wait_for_generation(Component.JOBS, generation + 1, deadline_ms)

    def run_jobs(self) -> list[JobId]:
        """Run every job that is due, in this thread, and return their ids.  A job that fails backs off by itself."""
        self._check_writable()
        done: list[JobId] = []
        pool = WorkerPool(self.jobs, self.handlers, workers=1, on_outcome=lambda job, _: done.append(job.job.job_id))
        while pool.run_next() is not None:
            pool.tick()
        return done

    def start_workers(self, workers: int | None = None) -> WorkerPool:
        """Run jobs in the background until the store is closed; `workers` is as the settings say if it is not given.

        Raises:
            UsageError: they run already.
        """
        self._check_writable()
        with self._lock:
            if self._pool is not None:
                raise UsageError("the workers run already")
            self._pool = WorkerPool(self.jobs, self.handlers, workers=workers or self.settings.workers).start()
            return self._pool

    @property
    def generation(self) -> int:
        """How often chunks were changed: what `as_of` means."""
        return self.catalog.generation(Component.CHUNKS)

    # -- the end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the workers, close every database, then the catalog.  Closing twice is fine.

        All of it is closed, whatever some of it raises: one error says so, with the others in its notes.

        Raises:
            Poisoned: records of a log, or a commit of the catalog, are in doubt.
            DiskFull: there is no room for the final state of a log; everything acknowledged is safe.
        """
        with self._lock:
            databases, pool = list(self._databases.values()), self._pool
        with Closing() as closing:
            if pool is not None:
                closing(pool.stop)
            for database in databases:
                closing(database.close)
            closing(self.catalog.close)
            closing(self._site.fs.close)
        self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_behind(self.close, error)

    # -- inside -----------------------------------------------------------------------------------------------

    def site_of(self, db_id: DbId) -> DatabaseSite:
        """Return a database as its jobs see it.

        Raises:
            NotFoundError: there is none.
        """
        record = self._record(db_id)
        if record is None:
            message = f"there is no database {db_id}"
            raise NotFoundError(message)
        with self._lock:
            database = self._opened(db_id, record)
        record, layout = self._record(db_id) or record, self.layout.located(record.options.wal_dir)
        logs: Callable[[int], Queue] = lambda shard: database.shards[shard].log  # noqa: E731 - a log for each
        return DatabaseSite(db_id, record, layout, self._site, logs, database.readers().floor)

    def _dropped(self, db_id: DbId, record: DbRecord) -> DatabaseSite:
        def no_log(shard: int) -> Queue:
            message = f"database {record.name!r} is gone, and so is its shard {shard}"
            raise NotFoundError(message)

        layout = self.layout.located(record.options.wal_dir)
        return DatabaseSite(db_id, record, layout, self._site, no_log, lambda _: None)

    def _opened(self, db_id: DbId, record: DbRecord) -> Database:
        if (known := self._databases.get(db_id)) is not None:
            return known
        if record.config_hash != config_hash(record.wal_shards, keyed=record.options.keyed):
            reason = f"the configuration of database {record.name!r} is not what it was made with"
            raise CorruptError(reason, self.layout.catalog, 0)
        if record.identity is None and self._mode == "w":
            record = adopted(self._site, db_id, record)
        layout = self.layout.located(record.options.wal_dir)
        inventory = Inventory(self.catalog, db_id)
        files = ChunkFiles(self._site.fs, layout.chunks, self._site.keys)
        opened = partial(open_log, self._site, layout, record, self._mode, files)
        shards = [
            Shard(
                number,
                partial(opened, number, partial(inventory.covered, number)),
                inventory,
                lambda chunk: self.site_of(db_id).open_chunk(chunk),
                lambda chunk: self.site_of(db_id).missing(chunk),
                keyed=record.options.keyed,
            )
            for number in range(record.wal_shards)
        ]
        writable = self._mode == "w" or self._site.fs.is_writable(layout.root)
        readers = Readers(self._site.fs, layout, self._site.clock.now_ns, shards, writable=writable)
        warn_of_shards(record, writable=self._mode == "w")
        self._databases[db_id] = Database(db_id, record, shards, readers, Latest(self.catalog, db_id, record))
        return self._databases[db_id]

    def _new_record(self, name: str, shards: int, options: DatabaseOptions, layout: DatabaseLayout) -> DbRecord:
        stored = options.stored(self.layout.relative(layout.shards), self.layout.relative(layout.chunks))
        created_at_ms, hashed = self._site.clock.now_ns() // _MS, config_hash(shards, keyed=options.keyed)
        record = DbRecord(name=name, created_at_ms=created_at_ms, config_hash=hashed, wal_shards=shards, options=stored)
        return named(record, self._site)

    def _put_database(self, db_id: DbId, record: DbRecord, applied: list[int]) -> None:
        path = self.layout.located(record.options.wal_dir).description
        store_description(self._site.fs, path, db_id, record)
        txn = self.catalog.begin_write()
        txn.put_db(db_id, record)
        for shard, sequence in enumerate(applied):
            txn.put_wal_state(WalStateKey(db_id, shard), WalStateRecord(last_applied_sequence=sequence))
        txn.commit()

    def _set_status(self, name: str, status: DbActive | DbDraining | DbTombstoned) -> None:
        with self._lock:
            db_id = self._change(name, lambda record: replace(record, status=status))
            if isinstance(status, DbTombstoned) and (database := self._databases.pop(db_id, None)):
                database.close()

    def _change(self, name: str, change: "Callable[[DbRecord], DbRecord]") -> DbId:
        """Change the row of a database, then its description; return its id."""
        self._check_writable()
        with self._lock:
            found = self._find(name)
            if found is None:
                message = f"there is no database {name!r}"
                raise NotFoundError(message)
            db_id, record = found[0], change(found[1])
            path = self.layout.located(record.options.wal_dir).description
            origin = origin_of(self._site.fs, path)
            txn = self.catalog.begin_write()
            txn.put_db(db_id, record)
            txn.commit()
            store_description(self._site.fs, path, db_id, record, origin)
            return db_id

    def _find(self, name: str) -> tuple[DbId, DbRecord] | None:
        found = self.catalog.read(lambda view: view.db_by_name(name))
        return None if found is None or isinstance(found[1].status, DbTombstoned) else found

    def _record(self, db_id: DbId) -> DbRecord | None:
        return self.catalog.read(lambda view: view.db(db_id))

    def _check_writable(self) -> None:
        if self._mode != "w":
            raise ReadOnlyError("the store was opened with mode='r'; open it without to write")


def _options(options: DatabaseOptions | None, chosen: dict[str, Any], usual: Mapping[str, Any]) -> DatabaseOptions:
    if options is not None and chosen:
        raise UsageError("give options as an object or by name, not both")
    try:
        return options or DatabaseOptions(**{**usual, **chosen})
    except TypeError as error:
        raise UsageError(str(error).replace("DatabaseOptions.__init__()", "create_database")) from None
