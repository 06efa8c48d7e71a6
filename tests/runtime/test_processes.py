"""Forked children of a process that has a store open, as web servers and pools of workers make them.

A child opens the store again to read; what it inherited refuses, and using or closing that leaves the parent alone.
"""

import multiprocessing
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from latewood.catalog.tables import Component, JobKind
from latewood.errors import Forked, Locked
from latewood.jobs import WorkerPool
from latewood.runtime import Database, Store
from tests.forking import Forks, Gate, fork, in_child
from tests.patience import wait_until

NAME = "clicks"


@pytest.fixture
def root(home: Path) -> Path:
    return home / "lake"


def payloads(db: Database) -> list[bytes]:
    return sorted(record.payload for record in db.scan())


def read(root: Path) -> tuple[list[bytes], list[bytes]]:
    """Open the store as a child does, and read it as records and as a table."""
    with Store.open(root, mode="r") as store:
        db = store.database(NAME)
        return payloads(db), sorted(db.to_arrow(columns=["payload"])["payload"].to_pylist())


def filled(store: Store) -> Database:
    """Make a database with records in chunks and in logs, and one shard that nobody has touched."""
    db = store.create_database(NAME, shards=3)
    db.append_many([b"a", b"b"])
    store.run_job(JobKind.FLUSH, NAME, seal=True)
    db.append_many([b"c", b"d"])
    assert payloads(db) == [b"a", b"b", b"c", b"d"]
    return db


ALL = [b"a", b"b", b"c", b"d"]


# -- servers and pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_the_workers_of_a_pool_read_the_store_that_their_parent_has_open(root: Path, store: Store, start: str) -> None:
    db = filled(store)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(start)) as pool:
        assert list(pool.map(read, [root] * 4)) == [(ALL, ALL)] * 4
    with multiprocessing.get_context("fork").Pool(2) as forked:
        assert forked.map(read, [root] * 4) == [(ALL, ALL)] * 4
    db.append(b"e")
    assert payloads(db) == [*ALL, b"e"]


def test_a_child_reads_while_its_parent_goes_on_appending(root: Path, store: Store) -> None:
    db = filled(store)
    with Gate() as ready, Gate() as go:

        def work() -> tuple[list[bytes], list[bytes]]:
            with Store.open(root, mode="r") as mine, mine.database(NAME).reader("child") as reader:
                before = sorted(record.payload for record in reader)
                reader.commit()
                ready.open()
                go.wait()
                return before, [record.payload for record in reader]

        forks = Forks()
        forks.start(work)
        ready.wait()
        db.append(b"after", durable=True)
        store.run_job(JobKind.FLUSH, NAME, seal=True)
        go.open()
        assert forks.results() == [(ALL, [b"after"])]
    assert {one.name for one in db.readers().positions()} == {"child"}


def asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_server_that_forks_its_workers_first_serves_what_is_appended_later(root: Path, store: Store) -> None:
    """As gunicorn does: the parent opens the store and the socket, then forks; each worker opens the store itself."""
    db = filled(store)
    workers, requests = 2, 4
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with Store.open(root, mode="r") as mine:
                for _ in range(requests // workers):
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(b" ".join(payloads(mine.database(NAME))))

        forks = Forks()
        for _ in range(workers):
            forks.start(serve)
        port = listening.getsockname()[1]
        answers = []
        for number in range(requests):
            db.append(b"e%d" % number)
            answers.append(asked(port))
        assert answers == [b" ".join([*ALL, *(b"e%d" % n for n in range(number + 1))]) for number in range(requests)]
        forks.results()


class Handler(socketserver.BaseRequestHandler):
    """Answers with what the store has; runs in a child of its own."""

    def handle(self) -> None:
        root: Path = self.server.root  # type: ignore[attr-defined]
        self.request.sendall(b" ".join(read(root)[0]))


class ForkingServer(socketserver.ForkingTCPServer):
    """A child for each request."""

    root: Path


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_server_that_forks_for_each_request_serves_what_its_parent_appends(root: Path, store: Store) -> None:
    db = filled(store)
    with ForkingServer(("127.0.0.1", 0), Handler) as server:
        server.root = root
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = server.server_address[1]
            assert asked(port) == b" ".join(ALL)
            db.append(b"e")
            assert asked(port) == b" ".join([*ALL, b"e"])
        finally:
            server.shutdown()
            thread.join()


def test_a_child_of_a_child_reads_too(root: Path, store: Store) -> None:
    filled(store)

    def work() -> list[Any]:
        with Store.open(root, mode="r") as mine:
            return [in_child(lambda: read(root)), payloads(mine.database(NAME)), in_child(lambda: read(root))]

    assert in_child(work) == [(ALL, ALL), ALL, (ALL, ALL)]


# -- writing ----------------------------------------------------------------------------------------------


def test_a_child_may_write_only_what_its_parent_has_closed(root: Path) -> None:
    store = Store.open(root)
    filled(store)

    def refused() -> None:
        with pytest.raises(Locked, match=f"process {os.getppid()}"):
            Store.open(root)

    def write() -> None:
        with Store.open(root) as mine:
            mine.database(NAME).append(b"e")

    in_child(refused)
    store.database(NAME).append(b"parents")
    store.close()
    in_child(write)
    with Store.open(root) as again:
        assert payloads(again.database(NAME)) == [*ALL, b"e", b"parents"]


# -- what is inherited ------------------------------------------------------------------------------------


def refused(store: Store, db: Database) -> None:
    """Use everything that the child inherited, and close it."""
    for use in (
        lambda: store.database(NAME),
        lambda: store.create_database("other"),
        store.databases,
        lambda: store.enqueue(JobKind.FLUSH, NAME),
        store.run_jobs,
        store.start_workers,
        store.purge,
        lambda: store.generation,
        lambda: store.jobs.claim("w", [JobKind.FLUSH]),
        lambda: db.append(b"x"),
        lambda: db.append_many([b"x"]),
        db.flush,
        lambda: list(db.scan()),
        lambda: list(db.arrow_batches()),
        db.to_arrow,
        db.stats,
        lambda: db.reader("mine"),
        lambda: db.shards[2].log.next_sequence,
    ):
        with pytest.raises(Forked, match="open it again"):
            use()
    with store:
        pass
    store.close()
    db.close()


def test_what_a_child_inherited_refuses_and_can_be_closed(root: Path, store: Store) -> None:
    db = filled(store)
    in_child(lambda: refused(store, db))
    db.append_many([b"e"])
    store.run_job(JobKind.FLUSH, NAME, seal=True)
    assert payloads(db) == [*ALL, b"e"]
    assert read_outside(root) == [*ALL, b"e"]


def read_outside(root: Path) -> list[bytes]:
    """Read the store in a process that inherited nothing."""
    script = (
        "import sys; from latewood.runtime import Store; s = Store.open(sys.argv[1], mode='r');"
        f" print(*sorted(r.payload.decode() for r in s.database('{NAME}').scan()))"
    )
    done = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, check=False, timeout=60)
    assert not done.returncode, done.stderr
    return [word.encode() for word in done.stdout.split()]


def test_a_reader_that_a_child_inherited_refuses_and_its_parent_reads_on(store: Store) -> None:
    db = filled(store)
    with db.reader("billing") as reader:
        assert len(reader.poll(1)) == 1
        reader.commit()

        def work() -> None:
            for use in (reader.poll, reader.commit, lambda: list(reader), reader.lag, lambda: reader.seek("earliest")):
                with pytest.raises(Forked, match="open it again"):
                    use()
            with reader:
                pass

        in_child(work)
        assert len(list(reader)) == 3
        reader.commit()


def test_a_scan_that_was_under_way_ends_in_the_child(store: Store) -> None:
    db = filled(store)
    batches = db.arrow_batches(columns=["payload"])
    next(batches)

    def work() -> None:
        with pytest.raises(Forked):
            next(batches)

    in_child(work)
    assert sum(batch.num_rows for batch in batches) > 0


def test_workers_that_a_child_inherited_are_not_waited_for(store: Store) -> None:
    filled(store)
    pool = store.start_workers(1)

    def work() -> None:
        for use in (pool.run_next, pool.tick, pool.running, pool.wait_until_idle, pool.start):
            with pytest.raises(Forked, match="open it again"):
                use()
        assert pool.stop() == []
        store.close()

    in_child(work)
    store.run_job(JobKind.FLUSH, NAME, seal=True)


# -- a fork in the middle of another thread's work --------------------------------------------------------


@contextmanager
def busy(work: Callable[[], object], at: tuple[object, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the block while a thread is in the middle of `work`: where it calls the function named by `at`."""
    inside, go = threading.Event(), threading.Event()
    whole = getattr(*at)

    def stay(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is thread:
            inside.set()
            assert go.wait(60)
        return whole(*arguments, **options)

    thread = threading.Thread(target=work)
    with monkeypatch.context() as patched:
        patched.setattr(*at, stay)
        thread.start()
        try:
            wait_until(inside.is_set)
            yield
        finally:
            go.set()
            thread.join()


MOMENTS: dict[str, tuple[Callable[[Store, Database], object], str]] = {
    "an append that rolls": (lambda _, db: db.shards[0].log.roll(), "latewood.log.writer:store_pointer"),
    "a flush": (lambda _, db: db.append(b"z", durable=True), "latewood.log.durability:encode"),
    "the opening of a shard's log": (lambda _, db: db.shards[2].log, "latewood.log.opening:recover"),
    "a database that is made": (
        lambda store, _: store.create_database("new"),
        "latewood.runtime.store:store_description",
    ),
    "a job": (lambda store, _: store.run_job(JobKind.FLUSH, NAME, seal=True), "latewood.catalog.commit:append_changes"),
    "a look at the chunks": (
        lambda store, db: (store.run_job(JobKind.FLUSH, NAME, seal=True), payloads(db)),
        "latewood.runtime.inventory:Inventory._scan",
    ),
    "a reader that begins": (lambda _, db: db.reader("r").close(), "latewood.runtime.reader:store_cursor"),
    "ids that are reserved": (
        lambda store, _: store.catalog.reserve_ids(Component.CHUNK_IDS),
        "latewood.catalog.commit:append_changes",
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_fork_in_the_middle_of_another_threads_work_hangs_nobody(
    root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with Store.open(root) as store:
        db = filled(store)
    with Store.open(root) as store:
        db = store.database(NAME)
        db.append(b"e")  # To the first shard.
        work, place = MOMENTS[moment]
        module, _, name = place.partition(":")
        holder: Any = sys.modules[module]
        for part in name.split(".")[:-1]:
            holder = getattr(holder, part)
        with busy(lambda: work(store, db), (holder, name.split(".")[-1]), monkeypatch):

            def child() -> list[bytes]:
                monkeypatch.undo()
                refused(store, db)
                return read(root)[0]

            found = in_child(child)
        assert set(found) >= {*ALL, b"e"}
        db.append_many([b"f"], durable=True)
        assert set(payloads(db)) >= {*ALL, b"e", b"f"}


# -- whole programs ---------------------------------------------------------------------------------------

PROGRAM = """
import atexit, os, sys
from latewood.runtime import Store

atexit.register(lambda: None)
root = sys.argv[1]
with Store.open(root) as store:
    db = store.create_database("clicks", shards=2)
    db.append_many([b"a", b"b"], durable=True)
    reader = db.reader("billing")
    scan = db.scan()
    next(scan)
    store.start_workers(2)
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == 0, status
        db.append(b"c", durable=True)
        assert len(list(reader)) == 3
        reader.commit()
        store.run_job("flush", "clicks")
        assert len(list(db.scan())) == 3
        print("the parent is well")
    else:
        other = Store.open(root, mode="r")
        assert len(list(other.database("clicks").scan())) == 2
"""
"""The child leaves the block that closes the store, and ends as any program does, with everything still referred to."""


def test_a_program_whose_child_ends_as_any_program_does_goes_on(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", PROGRAM, root],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "the parent is well"), done.stderr
    assert "Traceback" not in done.stderr
    assert read_outside(root) == [b"a", b"b", b"c"]


def test_a_child_of_a_parent_that_died_may_write(root: Path) -> None:
    """The parent here is itself a child, so that it can die with the store open."""
    with Gate() as done:
        alive = os.pipe()
        parent = fork()
        if parent == 0:  # pragma: no cover - another process
            store = Store.open(root)
            filled(store).flush()
            if fork() == 0:
                os.close(alive[1])
                os.read(alive[0], 1)  # Ends when nobody holds the other end any more.
                with Store.open(root) as mine:
                    mine.database(NAME).append(b"childs", durable=True)
                done.open()
            os._exit(0)
        os.close(alive[1])
        os.waitpid(parent, 0)
        done.wait()
        os.close(alive[0])
    assert set(read_outside(root)) == {*ALL, b"childs"}


def test_threads_of_a_pool_that_are_the_parents_alone_are_told_so(store: Store) -> None:
    """A pool that was made before the fork and is started after it would begin to work in the child."""
    pool = WorkerPool(store.jobs, store.handlers, workers=1)

    def work() -> None:
        with pytest.raises(Forked), pool:
            pass

    in_child(work)
    pool.start().stop()
