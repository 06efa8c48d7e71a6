"""What the tests of jobs share: a catalog with databases, a pool without threads, and handlers cut at every step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from latewood.catalog import Catalog, CatalogOptions, check_file, recover
from latewood.catalog.tables import DbOptions, DbRecord, JobRecord
from latewood.jobs import Handlers, JobContext, JobManager, JobOptions, Result, WorkerPool
from latewood.testing import FakeClock

KIND: Final = 1024
OTHER: Final = 1025
OPTIONS: Final = CatalogOptions(commit_budget_us=0)
DB: Final = 1
DB_2: Final = 2


class Killed(BaseException):
    """The process is dead: no handler of ours catches this."""


def make_databases(catalog: Catalog, *db_ids: int) -> None:
    txn = catalog.begin_write()
    for db_id in db_ids or (DB, DB_2):
        options = DbOptions(wal_dir=f"wal/{db_id}", chunk_dir=f"chunks/{db_id}")
        txn.put_db(
            db_id,
            DbRecord(name=f"db{db_id}", created_at_ms=0, config_hash=bytes(32), wal_shards=1, options=options),
        )
    txn.commit()


@contextmanager
def opened(path: Path, clock: FakeClock) -> Iterator[Catalog]:
    with Catalog.open(path, OPTIONS, clock=clock) as catalog:
        yield catalog


def reborn(catalog: Catalog, clock: FakeClock) -> Catalog:
    """Let the process die and another open the catalog: what was committed is there, and recovery runs."""
    path = catalog.path
    catalog.close()
    again = Catalog.open(path, OPTIONS, clock=clock)
    recover(again, clock)
    return again


def manager_of(catalog: Catalog, clock: FakeClock, **options: Any) -> JobManager:
    return JobManager(catalog, JobOptions(**options), clock=clock, chance=lambda: 0.0)


def pool_of(manager: JobManager, **handlers: Callable[[JobContext], Result]) -> WorkerPool:
    """Return a pool whose threads were not started; `custom=` handles KIND, `other=` handles OTHER."""
    registry = Handlers()
    for name, handler in handlers.items():
        registry.register({"custom": KIND, "other": OTHER}[name], handler)
    return WorkerPool(manager, registry, workers=1, name="w")


def states(manager: JobManager) -> dict[int, str]:
    return {job.job_id: type(job.state).__name__ for job in manager.jobs()}


def state(job: JobRecord) -> str:
    return type(job.state).__name__


def check_sound(catalog: Catalog) -> None:
    report = check_file(catalog.path)
    assert report.is_sound, report


class Steps:
    """Cuts a handler at a named step.  A handler calls `steps("name")` before each step that another process sees."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.cut_at: int | None = None

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if self.cut_at is not None and len(self.names) > self.cut_at:
            raise Killed(name)

    def begin(self, cut_at: int | None) -> None:
        self.names, self.cut_at = [], cut_at


def prove_idempotent(
    directory: Path,
    make_handler: Callable[[Path, Steps], Callable[[JobContext], Result]],
    picture: Callable[[Path, Catalog], object],
    payload: dict[str, Any],
    *,
    db_id: int | None = DB,
) -> list[str]:
    """Kill a handler at each of its steps, run it again after recovery, and compare what is there in the end.

    Returns the names of the steps.  `picture` returns all that the handler is meant to bring about.
    """
    steps = Steps()
    wanted = _outcome(directory / "whole", make_handler, picture, payload, steps, None, db_id)
    names = list(steps.names)
    assert names, "a handler without a step proves nothing"
    for cut_at, name in enumerate(names):
        found = _outcome(directory / f"cut-{cut_at}", make_handler, picture, payload, steps, cut_at, db_id)
        assert found == wanted, f"killed before {name!r}, it ends elsewhere: {found} instead of {wanted}"
    return names


def _outcome(
    directory: Path,
    make_handler: Callable[[Path, Steps], Callable[[JobContext], Result]],
    picture: Callable[[Path, Catalog], object],
    payload: dict[str, Any],
    steps: Steps,
    cut_at: int | None,
    db_id: int | None,
) -> object:
    directory.mkdir()
    clock = FakeClock()
    catalog = Catalog.open(directory / "catalog.mdb", OPTIONS, clock=clock)
    try:
        make_databases(catalog)
        manager = manager_of(catalog, clock)
        job_id = manager.enqueue(KIND, payload, db_id=db_id)
        steps.begin(cut_at)
        try:
            pool_of(manager, custom=make_handler(directory, steps)).run_next()
        except Killed:
            catalog = reborn(catalog, clock)
            manager = manager_of(catalog, clock)
        steps.cut_at = None
        names = list(steps.names)
        pool = pool_of(manager, custom=make_handler(directory, steps))
        while pool.run_next() is not None:
            pass
        if cut_at is None:
            steps.names = names
        assert state(manager.get(job_id)) == "Completed"
        check_sound(catalog)
        return picture(directory, catalog)
    finally:
        catalog.close()
