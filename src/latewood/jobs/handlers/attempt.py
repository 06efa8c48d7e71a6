"""Attempt: one attempt at a job of a database, with all that its handler needs.

Every commit that changes rows of chunks goes through `commit`: it requires the generation of the catalog's chunks that
the decision was made from and raises it by one, so no two decisions about chunks cross.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from latewood.archive.chunk_writer import ChunkSite
from latewood.archive.options import ChunkOptions
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier
from latewood.catalog import CatalogView, Op
from latewood.catalog.ops import UpsertChunk
from latewood.catalog.tables import ChunkKey, ChunkRecord, Component
from latewood.errors import AnotherArchive, ConflictError, JobFailed, LeaseLost, NotFoundError
from latewood.jobs.handlers.chunks import Row
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.site import DatabaseSite, StoreSite
from latewood.tasks.chunks import JOB_BYTES, Recipe, job_bytes
from latewood.tasks.engine import Engine, LocalEngine, Run, Tools
from latewood.tasks.parcels import PARCEL_BYTES
from latewood.types import ChunkId, JobId

T = TypeVar("T")
R = TypeVar("R")

COMMITS_MAX: Final = 64
"""How often a decision is made again because other jobs changed chunks meanwhile; then the job is tried again."""


class Decide(Protocol):
    """Returns what to change, from one snapshot; nothing if there is nothing to do.  Be quick in it."""

    def __call__(self, view: CatalogView, generation: int) -> Sequence[Op]:
        """`generation` is what the chunks' generation will be with these changes."""
        ...


class Attempt:
    """One attempt at one job.  For the handler's thread."""

    def __init__(
        self, context: JobContext, store: StoreSite, steps: Hook = no_hook, engine: Engine | None = None
    ) -> None:
        """`steps` is called with the name of each step that another process could see, and may end the attempt there.

        `engine` does the work on files; None: this thread.

        Raises:
            JobFailed: the job is of no database, or of one that is gone.
        """
        if context.job.db_id is None:
            raise JobFailed(f"job {context.job.job_id} is of no database")
        self.context, self.store, self.step = context, store, steps
        self.fs, self.db_id = store.fs, context.job.db_id
        try:
            self.db: DatabaseSite = store.database(self.db_id)
        except NotFoundError as error:
            raise JobFailed(str(error)) from error
        self._is_archive_checked = False
        """Whether this attempt has looked which archive is there.  Threads of the engine may look twice."""
        self.engine: Engine = engine or LocalEngine(self.tools())

    @property
    def job_id(self) -> JobId:
        """The job's id, which begins the token of every file that it makes."""
        return self.context.job.job_id

    @property
    def shards(self) -> range:
        """The numbers of the database's shards."""
        return range(self.db.record.wal_shards)

    def now_ms(self) -> int:
        """Return the time by the store's clock."""
        return self.store.clock.now_ns() // 1_000_000

    def tier(self, *, make: bool = False) -> Tier:
        """Return where chunks are archived to, once it is known to be the archive that has the store's chunks.

        With `make` an archive that has no identity yet gets one.

        Raises:
            JobFailed: nowhere, or what is there is not that archive.
        """
        if self.db.tier is None:
            raise JobFailed(f"database {self.db.record.name!r} has no tier to archive to; set one")
        if make or not self._is_archive_checked:
            try:
                self.db.check_archive(make=make, hook=self.step)
            except AnotherArchive as error:
                raise JobFailed(str(error)) from error
            self._is_archive_checked = True
        return self.db.tier

    def rows(self) -> list[Row]:
        """Return all chunks of the database, as of one moment."""
        return self.context.read(
            lambda view: [Row(key.chunk_id, record) for key, record in view.chunks(self.db_id)],
        )

    def row(self, chunk_id: ChunkId) -> ChunkRecord | None:
        """Return one of them as it is now, or None."""
        return self.context.read(lambda view: view.chunk(self.db_id, chunk_id))

    def commit(self, name: str, decide: Decide) -> bool:
        """Decide, and commit that as one; return whether there was something to change.  Step `name` comes before.

        Raises:
            LeaseLost: the job is another's by now.
            ConflictError: others changed chunks each time.
        """
        for _ in range(COMMITS_MAX):
            before, ops = self.context.read(lambda view: _decided(view, decide))
            if not ops:
                return False
            self.step(name)
            txn = self.context.begin_write()
            txn.require_generation(Component.CHUNKS, before)
            txn.extend(ops)
            txn.bump_generation(Component.CHUNKS)
            try:
                self.context.commit(txn)
            except LeaseLost:
                raise
            except ConflictError as error:
                conflict = error
                continue
            return True
        raise conflict

    def change(self, name: str, chunk_id: ChunkId, change: Callable[[ChunkRecord], ChunkRecord | None]) -> bool:
        """Commit a change of one row; return whether it was changed.  `change` returns None to leave it."""

        def decide(view: CatalogView, generation: int) -> Sequence[Op]:
            del generation
            record = view.chunk(self.db_id, chunk_id)
            changed = None if record is None else change(record)
            return [] if changed is None else [self.upsert(chunk_id, changed)]

        return self.commit(name, decide)

    def upsert(self, chunk_id: ChunkId, record: ChunkRecord) -> UpsertChunk:
        """Return what makes or changes a row of this database."""
        return UpsertChunk(ChunkKey(self.db_id, chunk_id), record)

    def new_chunk_id(self) -> ChunkId:
        """Return an id that no chunk ever had."""
        return self.store.catalog.reserve_ids(Component.CHUNK_IDS)[0]

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes; as many as a token has begin with the job's id, so that its files are known by it."""
        return job_bytes(self.job_id, self.store.random_bytes)(count)

    def map(self, run: "Run[T, R]", tasks: Iterable[T]) -> "Generator[R]":
        """Yield what tasks come to, in their order, wherever they are done; raises as `context.check` does, too."""
        return self.engine.map(run, tasks, self.context.check)

    @property
    def parcel_bytes(self) -> int:
        """How much of what is small goes into one task: nothing beside another where all is done here."""
        return PARCEL_BYTES if self.engine.lanes > 1 else 1

    def tools(self) -> Tools:
        """Return what tasks are done with in this process."""
        return Tools(
            fs=self.fs,
            clock=self.store.clock,
            random_bytes=self.store.random_bytes,
            tier=self.tier,
            keys=self.db.keys_to_read,
            step=self.step,
        )

    def recipe(self, shard: int, directory: Path) -> Recipe:
        """Return how chunks of a shard are made, in a directory."""
        key_id = self.db.keys.current_id if self.db.keys else None
        name, options = self.db.record.name, self.db.chunk_options
        return Recipe(self.job_id, str(directory), name, self.db_id, shard, options, key_id)

    def chunk_site(self, shard: int, options: ChunkOptions | None = None) -> ChunkSite:
        """Return where chunks of a shard are made, and with what."""
        return ChunkSite(
            fs=self.fs,
            directory=self.db.chunk_dir,
            database=self.db.record.name,
            database_id=self.db_id,
            shard=shard,
            options=options or self.db.chunk_options,
            keys=self.db.keys,
            clock=self.store.clock,
            random_bytes=self.random_bytes,
            hook=self.step,
        )


def job_of_token(token: str) -> JobId:
    """Return the job that made the file with this token."""
    return int(token[: 2 * JOB_BYTES], 16)


def _decided(view: CatalogView, decide: Decide) -> tuple[int, Sequence[Op]]:
    generation = view.generation(Component.CHUNKS)
    return generation, decide(view, generation + 1)
