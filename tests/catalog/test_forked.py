"""A forked child and the catalog that its parent has open: the child opens it again, and leaves the parent's alone."""

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from latewood.catalog import Catalog
from latewood.catalog.tables import Component
from latewood.errors import Forked, Locked, UsageError
from tests.catalog.desk import Desk, db, put_database
from tests.forking import Forks, Gate, fork, in_child
from tests.patience import wait_until


def names(path: Path) -> list[str]:
    """Open the catalog to read, as somebody without it does, and return its databases."""
    with Catalog.open(path, mode="r") as catalog:
        return catalog.read(lambda view: [record.name for _, record in view.dbs()])


def slots(catalog: Catalog) -> list[list[str]]:
    """Return the rows of LMDB's table of readers: process, thread, transaction."""
    return [row.split() for row in catalog._env._env.readers().splitlines()[1:]]


def test_a_child_can_read_what_its_parent_has_open_and_goes_on_writing(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog, 1, "before")
    with Gate() as looked, Gate() as go:

        def work() -> tuple[list[str], list[str]]:
            first = names(desk.path)
            looked.open()
            go.wait()
            return first, names(desk.path)

        forks = Forks()
        forks.start(work)
        looked.wait()
        put_database(catalog, 2, "after")
        go.open()
        assert forks.results() == [(["before"], ["before", "after"])]


def test_a_child_cannot_write_what_its_parent_has_open(desk: Desk) -> None:
    catalog = desk.open()

    def work() -> None:
        with pytest.raises(Locked, match=f"process {os.getppid()}"):
            Catalog.open(desk.path)

    in_child(work)
    catalog.sync()


def test_a_child_may_write_what_its_parent_has_closed(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog, 1, "parents")
    with Gate() as go:

        def work() -> None:
            go.wait()
            with Catalog.open(desk.path) as mine:
                put_database(mine, 2, "childs")

        forks = Forks()
        forks.start(work)
        catalog.close()
        go.open()
        forks.results()
    assert names(desk.path) == ["parents", "childs"]


def test_a_child_may_write_once_its_parent_is_dead(tmp_path: Path) -> None:
    """The parent here is itself a child, so that it can die."""
    path = tmp_path / "catalog.mdb"
    alive, done = os.pipe(), os.pipe()

    def work() -> None:
        os.close(alive[1])
        os.read(alive[0], 1)  # Ends when the last who holds the other end is dead: the parent.
        with Catalog.open(path) as mine:
            put_database(mine, 2, "childs")
        os.write(done[1], b".")

    parent = fork()
    if parent == 0:  # pragma: no cover - another process
        catalog = Catalog.open(path)
        put_database(catalog, 1, "parents")
        if fork() == 0:
            try:
                work()
            finally:
                os._exit(0)
        os._exit(0)
    os.close(alive[1])
    os.waitpid(parent, 0)
    os.close(done[1])
    assert os.read(done[0], 1) == b".", "the child could not write"
    os.close(alive[0])
    os.close(done[0])
    assert names(path) == ["parents", "childs"]


def test_a_child_of_a_child_can_read_too(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog, 1, "clicks")

    def work() -> tuple[list[str], list[str], list[str]]:
        with Catalog.open(desk.path, mode="r") as mine:
            below = in_child(lambda: names(desk.path))
            return below, names_of(mine), in_child(lambda: in_child(lambda: names(desk.path)))

    assert in_child(work) == (["clicks"],) * 3


def names_of(catalog: Catalog) -> list[str]:
    return catalog.read(lambda view: [record.name for _, record in view.dbs()])


def test_a_child_still_cannot_open_one_catalog_twice(desk: Desk) -> None:
    desk.open()

    def work() -> None:
        with Catalog.open(desk.path, mode="r"), pytest.raises(UsageError, match="open in this process already"):
            Catalog.open(desk.path, mode="r")
        names(desk.path)

    in_child(work)


def test_the_workers_of_a_pool_can_read(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog, 1, "clicks")
    with pool(2) as workers:
        assert workers.map(names, [desk.path] * 4) == [["clicks"]] * 4


def pool(processes: int) -> Any:
    return multiprocessing.get_context("fork").Pool(processes)


def test_a_child_that_ends_as_any_program_does_leaves_the_parents_readers_alone(desk: Desk) -> None:
    """Finalising the inherited environment would free the slots that the parent's transactions stand in."""
    catalog = opened_to_read(desk)
    names_of(catalog)
    before = slots(catalog)
    assert before, "LMDB keeps a slot for the next transaction"
    child = fork()
    if child == 0:  # pragma: no cover - another process
        os._exit(_finalised(desk, catalog))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert slots(catalog) == before


def opened_to_read(desk: Desk) -> Catalog:
    """Return a catalog that no thread refers to, so that nothing but the fork keeps the child from finalising it."""
    with desk.open() as catalog:
        put_database(catalog, 1, "clicks")
    desk._opened.clear()
    return desk.open("r")


def _finalised(desk: Desk, catalog: Catalog) -> int:  # pragma: no cover - another process
    """Do by hand what the end of an interpreter does: let go of everything."""
    catalog.close()
    catalog._env = None  # type: ignore[assignment]
    catalog.feed = None  # type: ignore[assignment]
    catalog._writer = None
    desk._opened.clear()
    gc.collect()
    return 0


def test_a_child_that_lets_go_of_the_parents_catalog_keeps_its_own_locks(desk: Desk) -> None:
    """POSIX drops all of a process's locks on a file when any descriptor of it is closed."""
    catalog = opened_to_read(desk)
    with Gate() as stands, Gate() as go:

        def work() -> None:
            mine = Catalog.open(desk.path, mode="r")

            def stay(_: object) -> None:
                _finalised(desk, catalog)
                stands.open()
                go.wait()

            mine.read(stay)

        forks = Forks()
        forks.start(work)
        stands.wait()
        assert catalog._env._env.reader_check() == 0, "a living reader was taken for a dead one"
        go.open()
        forks.results()


def test_a_child_forked_in_the_middle_of_a_read_ends_it_without_the_parents_slot(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog, 1, "clicks")
    seen: list[object] = []

    def callback(_: object) -> None:
        if fork_and_return(seen):
            seen.append(slots(catalog))

    before_end = list[object]()
    try:
        catalog.read(callback)
    except BaseException as error:  # noqa: BLE001 - in the child, which ends here
        before_end.append(error)
    if seen == ["child"]:  # pragma: no cover - another process
        os._exit(0 if not before_end or isinstance(before_end[0], Forked) else 1)
    assert seen[0] == 0, "the child failed"
    own = [row for row in seen[1] if row[0] == str(os.getpid())]  # type: ignore[attr-defined]
    assert any(row[2] != "-" for row in own), "the parent's transaction has lost its slot"


def fork_and_return(seen: list[object]) -> bool:
    """Fork; note the child's exit status in the parent, and only then return there."""
    child = fork()
    if child == 0:  # pragma: no cover - another process
        seen.append("child")
        return False
    seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return True


def held(catalog: Catalog, inside: threading.Event, go: threading.Event) -> None:
    """Stay in a read until told to go on."""

    def stay(_: object) -> None:
        inside.set()
        go.wait(60)

    catalog.read(stay)


def committing(catalog: Catalog, inside: threading.Event, go: threading.Event) -> None:
    """Stay in the middle of a commit until told to go on."""
    committer = catalog._writer._committer  # type: ignore[union-attr]
    finish = committer._finish

    def stay(rows: Any, generation: int) -> None:
        inside.set()
        go.wait(60)
        finish(rows, generation)

    committer._finish = stay  # type: ignore[method-assign]
    put_database(catalog, 7, "slow")


@pytest.mark.parametrize("busy", [held, committing])
def test_a_fork_in_the_middle_of_another_threads_work_hangs_nobody(
    desk: Desk, busy: Callable[[Catalog, threading.Event, threading.Event], None]
) -> None:
    catalog = desk.open()
    put_database(catalog, 1, "clicks")
    inside, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=busy, args=(catalog, inside, go))
    thread.start()
    wait_until(inside.is_set)

    def work() -> list[str]:
        with pytest.raises(Forked):
            catalog.sync()
        with pytest.raises(Forked):
            names_of(catalog)
        catalog.close()
        return names(desk.path)

    try:
        assert in_child(work) == ["clicks"]
    finally:
        go.set()
        thread.join()
    catalog.sync()
    assert names_of(catalog)[0] == "clicks"


def test_a_fork_while_another_thread_opens_a_catalog_leaves_the_child_free_to_read_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's handle is known to LMDB, and not yet to anybody else, when the child is made."""
    with desk.open() as catalog:
        put_database(catalog, 1, "clicks")
    results: list[object] = []
    really_open = lmdb.open

    def work() -> list[str]:
        monkeypatch.undo()
        return names(desk.path)

    def open_and_fork(*args: Any, **options: Any) -> Any:
        made = really_open(*args, **options)
        results.append(in_child(work))
        return made

    monkeypatch.setattr(lmdb, "open", open_and_fork)
    desk.open().close()
    monkeypatch.undo()
    assert results == [["clicks"]]
    with desk.open() as again:
        assert names_of(again) == ["clicks"]


def test_what_a_child_inherited_refuses_and_says_what_to_do(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    txn = catalog.begin_write()

    def work() -> None:
        for use in (
            catalog.sync,
            catalog.info,
            catalog.generation,
            lambda: catalog.read(lambda view: view.db(1)),
            catalog.begin_write,
            txn.commit,
            catalog.reserve_job_id,
            lambda: catalog.register_waiter(Component.WAL, 1),
            lambda: catalog.wait_for_generation(Component.WAL, 1),
            lambda: list(catalog.changes("nobody")),
        ):
            with pytest.raises(Forked, match="open it again"):
                use()
        with catalog:
            pass
        catalog.close()

    in_child(work)
    assert catalog.read(lambda view: view.db(1)) == db()
