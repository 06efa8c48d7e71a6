"""The writer: coalescing, bad batches, failures, backpressure, the end."""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lmdb
import pytest

from latewood.catalog import Catalog, CommitReceipt, Op
from latewood.catalog.ops import BumpGeneration, PutDb
from latewood.catalog.rows import RowWriter
from latewood.catalog.tables import DB, ChunkKey, Component
from latewood.errors import (
    Backpressure,
    ClosedError,
    ConflictError,
    DiskFull,
    Poisoned,
    UsageError,
)
from latewood.limits import CATALOG_BATCH_OPS_MAX
from tests.catalog.desk import Desk, chunk, db, write
from tests.patience import wait_until

if TYPE_CHECKING:
    from concurrent.futures import Future


class Explode(Op, frozen=True):
    """An operation with a bug."""

    def apply(self, rows: RowWriter) -> None:
        rows.put(DB, 99, db("half"))
        message = "a bug"
        raise ZeroDivisionError(message)


class Block(Op, frozen=True):
    """Holds the writer up until it is told to go on."""

    begun: threading.Event
    go: threading.Event

    def apply(self, rows: RowWriter) -> None:  # noqa: ARG002
        self.begun.set()
        assert self.go.wait(60)


@contextmanager
def held_up(catalog: Catalog) -> Iterator[None]:
    """Keep the writer busy for as long as the block takes."""
    begun, go = threading.Event(), threading.Event()
    txn = catalog.begin_write()
    txn.add(Block(begun, go))
    future = txn.commit_async()
    assert begun.wait(60)
    try:
        yield
    finally:
        go.set()
        future.result(60)


def send(catalog: Catalog, *ops: Op) -> "Future[CommitReceipt]":
    txn = catalog.begin_write()
    txn.extend(ops)
    return txn.commit_async()


def fail_commits(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, errors: Sequence[Exception]) -> list[Exception]:
    """Have the next commits of LMDB fail."""
    left = list(errors)

    class Txn:
        def __init__(self, txn: Any) -> None:
            self._txn = txn

        def __getattr__(self, name: str) -> Any:
            return getattr(self._txn, name)

        def commit(self) -> None:
            if left:
                self._txn.abort()
                raise left.pop(0)
            self._txn.commit()

    begin = catalog._env.begin
    monkeypatch.setattr(catalog._env, "begin", lambda: Txn(begin()))
    return left


# -- coalescing -------------------------------------------------------------------------------------------


def test_batches_that_queue_up_share_one_commit_and_its_generation(catalog: Catalog) -> None:
    with held_up(catalog):
        futures = [send(catalog, PutDb(i, db(f"d{i}"))) for i in range(1, 21)]
    assert len({future.result(60).generation for future in futures}) == 1
    assert catalog.read(lambda view: view.count(DB)) == 20


def test_batches_are_applied_in_the_order_in_which_they_came(catalog: Catalog) -> None:
    with held_up(catalog):
        futures = [send(catalog, BumpGeneration(Component.WAL), PutDb(1, db(wal_shards=i))) for i in range(1, 9)]
    assert [future.result(60).generations[Component.WAL] for future in futures] == list(range(1, 9))
    assert catalog.read(lambda view: view.db(1)) == db(wal_shards=8)


def test_many_threads_commit_and_each_has_its_own_answer(catalog: Catalog) -> None:
    def work(number: int) -> None:
        for turn in range(10):
            receipt = write(
                catalog,
                lambda txn: txn.upsert_chunk(ChunkKey(number, turn), chunk()),  # noqa: B023 - called at once
                lambda txn: txn.bump_generation(1000 + number),
            )
            assert receipt.generations[1000 + number] == turn + 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [catalog.generation(1000 + number) for number in range(1, 17)] == [10] * 16
    assert catalog.generation() < 170


def test_one_thread_alone_leads_and_is_never_in_the_queue(catalog: Catalog) -> None:
    writer = catalog._writer
    assert writer is not None
    writer._take = pytest.fail  # type: ignore[method-assign]  # the thread sleeps in the real one
    for number in range(5):
        write(catalog, lambda txn, number=number: txn.put_db(1, db(wal_shards=number + 1)))  # type: ignore[misc]
    assert catalog.read(lambda view: view.db(1)) == db(wal_shards=5)
    del writer._take


def test_the_writers_thread_keeps_off_while_another_leads(catalog: Catalog) -> None:
    writer = catalog._writer
    assert writer is not None
    leading, go, second = threading.Event(), threading.Event(), threading.Event()
    wait_until(lambda: writer._wanted)
    leader = threading.Thread(target=catalog.apply, args=(Block(leading, go),))
    leader.start()
    assert leading.wait(60)
    assert writer._leader == leader.ident
    future = send(catalog, Block(second, go))
    writer.poke()
    assert not second.wait(0.05)
    assert not writer._is_busy  # nor waits for LMDB's own lock
    go.set()
    leader.join(60)
    assert future.result(60).generation == catalog.generation()
    assert second.is_set()


def test_an_empty_batch_is_answered_when_all_before_it_are_durable(catalog: Catalog) -> None:
    before = catalog.generation()
    assert catalog.sync() == before
    write(catalog, lambda txn: txn.put_db(1, db()))
    assert catalog.sync() == before + 1


def test_a_transaction_commits_once(catalog: Catalog) -> None:
    txn = catalog.begin_write()
    txn.put_db(1, db())
    assert len(txn) == 1
    txn.commit()
    for again in (txn.commit, txn.commit_async, lambda: txn.put_db(2, db())):
        with pytest.raises(UsageError, match="begin another"):
            again()


def test_nothing_is_written_before_commit(catalog: Catalog) -> None:
    txn = catalog.begin_write()
    txn.put_db(1, db())
    assert catalog.read(lambda view: view.db(1)) is None


# -- bad batches ------------------------------------------------------------------------------------------


def test_a_bad_batch_fails_alone_and_leaves_nothing(catalog: Catalog) -> None:
    with held_up(catalog):
        futures = [
            send(catalog, PutDb(1, db("one")), BumpGeneration(Component.WAL)),
            send(catalog, PutDb(2, db("two")), PutDb(3, db("one"))),
            send(catalog, PutDb(4, db("four")), Explode()),
            send(catalog, PutDb(5, db("five")), BumpGeneration(Component.WAL)),
            send(catalog, BumpGeneration(Component.WAL), Explode()),
        ]
    assert isinstance(futures[1].exception(60), ConflictError)
    assert isinstance(futures[2].exception(60), ZeroDivisionError)
    assert isinstance(futures[4].exception(60), ZeroDivisionError)
    assert futures[0].result().generation == futures[3].result().generation
    assert futures[3].result().generations[Component.WAL] == 2
    assert catalog.read(lambda view: [db_id for db_id, _ in view.dbs()]) == [1, 5]
    assert catalog.generation(Component.WAL) == 2


def test_a_group_of_nothing_but_bad_batches_commits_nothing(catalog: Catalog) -> None:
    before = catalog.generation()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            catalog.apply(Explode())
    assert catalog.generation() == before
    assert catalog.read(lambda view: view.db(99)) is None
    assert catalog.apply(PutDb(1, db())).generation == before + 1


def test_too_many_operations_are_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="at most"):
        catalog.apply(*[BumpGeneration(1)] * (CATALOG_BATCH_OPS_MAX + 1))


# -- what must not wait for itself ------------------------------------------------------------------------


def test_committing_within_a_read_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="commit after `read`"):
        catalog.read(lambda _: catalog.apply(PutDb(1, db())))


def test_committing_in_a_callback_of_a_future_is_refused_there(catalog: Catalog) -> None:
    caught: list[BaseException] = []

    def callback(_: object) -> None:
        try:
            catalog.sync()
        except UsageError as error:
            caught.append(error)

    with held_up(catalog):
        send(catalog, PutDb(1, db())).add_done_callback(callback)
    catalog.sync()
    wait_until(lambda: caught)
    assert "callback" in str(caught[0])


# -- failures ---------------------------------------------------------------------------------------------


def test_a_full_disk_is_tried_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog._writer._committer, "_pause", lambda _: None)  # type: ignore[union-attr]
    left = fail_commits(monkeypatch, catalog, [lmdb.DiskError("no space")] * 3)
    catalog.apply(PutDb(1, db()))
    assert not left
    assert catalog.read(lambda view: view.db(1)) == db()


def test_a_disk_that_stays_full_fails_the_batch_and_the_next_may_succeed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(catalog._writer._committer, "_pause", pauses.append)  # type: ignore[union-attr]
    fail_commits(monkeypatch, catalog, [lmdb.DiskError("no space")] * 6)
    with pytest.raises(DiskFull, match="free some space"):
        catalog.apply(PutDb(1, db()))
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32]
    catalog.apply(PutDb(2, db()))
    assert catalog.read(lambda view: [db_id for db_id, _ in view.dbs()]) == [2]


@pytest.mark.parametrize("error", [lmdb.PanicError("panic"), lmdb.CorruptedError("bad"), lmdb.Error("sync", 5)])
def test_a_poisoned_environment_refuses_everything_until_it_is_reopened(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    if isinstance(error, lmdb.Error) and type(error) is lmdb.Error:
        error.code = errno.EIO  # type: ignore[misc]  # as the binding sets it
    catalog = desk.open()
    handle = catalog.register_waiter(Component.WAL, 1)
    with held_up(catalog):
        fail_commits(monkeypatch, catalog, [error])
        futures = [send(catalog, PutDb(number, db(f"d{number}"))) for number in (1, 2)]
    for future in futures:
        assert isinstance(future.exception(60), Poisoned)
    wait_until(handle.done)
    with pytest.raises(Poisoned):
        handle.wait()
    with pytest.raises(Poisoned, match="reopen"):
        catalog.apply(PutDb(3, db()))
    with pytest.raises(Poisoned):
        catalog.close()
    monkeypatch.undo()
    again = desk.open()
    assert not again.was_clean
    again.apply(PutDb(3, db()))


def test_poison_met_by_a_leader_stops_the_writer_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = desk.open()
    fail_commits(monkeypatch, catalog, [lmdb.PanicError("panic")])
    with pytest.raises(Poisoned):
        catalog.apply(PutDb(1, db()))
    wait_until(lambda: not catalog._writer._thread.is_alive())  # type: ignore[union-attr]
    with pytest.raises(Poisoned):
        send(catalog, PutDb(2, db()))


def test_an_interrupt_after_the_commit_does_not_lose_count(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    before = catalog.generation()
    advance = catalog._watermarks.advance

    def interrupted(_: object) -> None:
        monkeypatch.setattr(catalog._watermarks, "advance", advance)
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog._watermarks, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        catalog.apply(PutDb(1, db()))
    assert catalog.read(lambda view: view.db(1)) == db()
    assert catalog.apply(PutDb(2, db("two"))).generation == before + 2
    assert catalog.generation() == before + 2


def test_an_interrupt_in_the_middle_leaves_nothing_and_the_next_commit_works(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(catalog._writer._committer, "_finish", interrupted)  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt):
            catalog.apply(PutDb(1, db()))
    assert catalog.read(lambda view: view.db(1)) is None
    catalog.apply(PutDb(2, db()))


def test_a_wake_up_that_was_lost_costs_the_others_a_moment_only(catalog: Catalog) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        catalog.apply(PutDb(number, db(f"d{number}")))
        done.append(number)

    with held_up(catalog):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        queue = catalog._writer._queue  # type: ignore[union-attr]
        wait_until(lambda: len(queue) == 4)
        for ticket in queue:  # Whoever should wake the next one finds its latch broken.
            ticket.latch = threading.Semaphore(0)
    for thread in threads:
        thread.join(60)
    assert sorted(done) == [1, 2, 3, 4]


# -- backpressure -----------------------------------------------------------------------------------------


def test_a_queue_that_stays_full_is_backpressure(desk: Desk) -> None:
    catalog = desk.open(queue_batches_max=2, queue_wait_ms=1)
    with held_up(catalog):
        futures = [send(catalog, PutDb(number, db(f"d{number}"))) for number in (1, 2)]
        with pytest.raises(Backpressure, match="nothing was written"):
            send(catalog, PutDb(3, db("d3")))
    assert [future.result(60).generation for future in futures]
    assert catalog.read(lambda view: view.db(3)) is None


def test_a_sender_waits_for_a_place_in_the_queue(desk: Desk) -> None:
    catalog = desk.open(queue_batches_max=1)
    with held_up(catalog):
        send(catalog, PutDb(1, db("one")))
        thread = threading.Thread(target=lambda: catalog.apply(PutDb(2, db("two"))))
        thread.start()
        wait_until(lambda: catalog._writer._space_wanted)  # type: ignore[union-attr]
    thread.join(60)
    assert catalog.read(lambda view: view.count(DB)) == 2


# -- the end ----------------------------------------------------------------------------------------------


def test_closing_commits_what_is_in_the_queue(desk: Desk) -> None:
    catalog = desk.open()
    with held_up(catalog):
        futures = [send(catalog, PutDb(number, db(f"d{number}"))) for number in range(1, 9)]
        closer = threading.Thread(target=catalog.close)
        closer.start()
        wait_until(lambda: catalog._writer._is_stopping)  # type: ignore[union-attr]
        with pytest.raises(ClosedError):
            send(catalog, PutDb(9, db("late")))
    closer.join(60)
    assert all(future.result(60) for future in futures)
    again = desk.open()
    assert again.was_clean
    assert again.read(lambda view: view.count(DB)) == 8


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.apply(PutDb(1, db())),
        lambda c: c.begin_write(),
        lambda c: c.read(lambda view: view.db(1)),
        lambda c: c.generation(),
        lambda c: c.register_waiter(0, 1),
        lambda c: c.wait_for_generation(0, 0),
        lambda c: c.scan_chunks(1),
        lambda c: c.info(),
        lambda c: c.changes("x"),
    ],
)
def test_a_closed_catalog_says_so(catalog: Catalog, use: Callable[[Catalog], object]) -> None:
    catalog.close()
    catalog.close()
    with pytest.raises(ClosedError, match="open it again"):
        use(catalog)


def test_an_interrupt_while_closing_leaves_it_to_be_closed_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = desk.open()
    writer = catalog._writer
    assert writer is not None

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer, "stop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            catalog.close()
    catalog.apply(PutDb(1, db()))
    catalog.close()
    assert desk.open().was_clean


def test_producers_that_stop_do_not_make_the_next_wait_for_them(catalog: Catalog) -> None:
    with held_up(catalog):
        threads = [threading.Thread(target=catalog.apply, args=(PutDb(n, db(f"d{n}")),)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(catalog._writer._queue) == 8)  # type: ignore[union-attr]
    for thread in threads:
        thread.join(60)
    began = time.monotonic()
    catalog.apply(PutDb(9, db("nine")))
    catalog.apply(PutDb(10, db("ten")))
    assert time.monotonic() - began < 30  # not for ever
    assert catalog._writer._expected == 1  # type: ignore[union-attr]


# -- coroutines -------------------------------------------------------------------------------------------


def test_coroutines_commit_together_and_each_has_its_own_answer(catalog: Catalog) -> None:
    async def commit(number: int) -> CommitReceipt:
        txn = catalog.begin_write()
        txn.put_db(number, db(f"d{number % 7}"))
        return await txn.committed()

    async def all_of_them() -> list[CommitReceipt | BaseException]:
        return await asyncio.gather(*[commit(number) for number in range(1, 8)], commit(8), return_exceptions=True)

    *good, bad = asyncio.run(all_of_them())
    assert all(isinstance(receipt, CommitReceipt) for receipt in good)
    assert isinstance(bad, ConflictError)
    assert catalog.read(lambda view: view.count(DB)) == 7


def test_a_coroutine_that_is_cancelled_leaves_its_batch_to_be_committed(catalog: Catalog) -> None:
    async def cancelled() -> None:
        txn = catalog.begin_write()
        txn.put_db(1, db())
        task = asyncio.ensure_future(txn.committed())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with held_up(catalog):
        asyncio.run(cancelled())
    catalog.sync()
    assert catalog.read(lambda view: view.db(1)) == db()


def test_a_full_queue_does_not_stop_a_loop(desk: Desk) -> None:
    catalog = desk.open(queue_batches_max=1, queue_wait_ms=60_000)
    with held_up(catalog):
        send(catalog, PutDb(1, db()))
        with pytest.raises(Backpressure):
            asyncio.run(catalog.begin_write().committed())
