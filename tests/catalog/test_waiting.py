"""Waiting for a generation: told, expired, cancelled, closed."""

import threading

import pytest

from latewood.catalog import Catalog, WaitHandle
from latewood.catalog.tables import GENERATION, Component, WaiterSnapshot
from latewood.errors import ClosedError, ReadOnlyError, UnavailableError, UsageError, WaitExpired
from tests.catalog.desk import Desk, db, write
from tests.patience import wait_until


def bump(catalog: Catalog, component: int = Component.WAL, by: int = 1) -> None:
    write(catalog, lambda txn: txn.bump_generation(component, by))


def test_a_generation_that_has_come_needs_no_waiting(catalog: Catalog) -> None:
    bump(catalog, by=3)
    assert catalog.wait_for_generation(Component.WAL, 2) == 3
    assert catalog.register_waiter(Component.WAL, 3).done()


def test_a_waiter_is_told_when_its_generation_comes_and_not_before(catalog: Catalog) -> None:
    handle = catalog.register_waiter(Component.WAL, 2)
    bump(catalog)
    assert not handle.done()
    bump(catalog, by=5)
    assert handle.wait() == 6


def test_threads_that_wait_go_on(catalog: Catalog) -> None:
    seen: list[int] = []
    target = catalog.generation() + 2
    threads = [
        threading.Thread(target=lambda: seen.append(catalog.wait_for_generation(Component.CATALOG, target)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(catalog._room._handles) == 4)
    write(catalog, lambda txn: txn.put_db(1, db()))
    write(catalog, lambda txn: txn.put_db(2, db("two")))
    for thread in threads:
        thread.join(60)
    assert seen == [target] * 4


def test_a_waiter_expires_though_nothing_commits(desk: Desk) -> None:
    catalog = desk.open()
    handle = catalog.register_waiter(Component.WAL, 1, desk.now_ms + 3_600_000)
    wait_until(lambda: catalog._writer._wanted)  # type: ignore[union-attr]  # the writer sleeps again
    assert not handle.done()
    desk.clock.advance(seconds=3600)
    wait_until(handle.done)  # by itself: nobody waits for it, nobody commits
    with pytest.raises(WaitExpired, match="generation 1 in time"):
        handle.wait()


def test_a_waiting_thread_sees_its_deadline_though_the_writer_is_stuck(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = desk.open()
    handle = catalog.register_waiter(Component.WAL, 1, desk.now_ms + 60_000)
    monkeypatch.setattr(catalog._room, "sleep_s", lambda: 3600.0)
    desk.clock.advance(seconds=60)
    with pytest.raises(WaitExpired):
        handle.wait()


def test_a_deadline_that_has_passed_expires_at_once(desk: Desk) -> None:
    handle = desk.open().register_waiter(Component.WAL, 1, desk.now_ms)
    assert handle.done()


def test_a_clock_set_back_does_not_prolong_a_wait_for_ever(desk: Desk) -> None:
    catalog = desk.open()
    handle = catalog.register_waiter(Component.WAL, 1, desk.now_ms + 1)
    desk.clock.advance(seconds=-1_000_000)
    with pytest.raises(WaitExpired):
        handle.wait()


def test_who_cancels_waits_no_more(catalog: Catalog) -> None:
    handle = catalog.register_waiter(Component.WAL, 1)
    assert handle.cancel()
    assert not handle.cancel()
    with pytest.raises(ClosedError, match="cancelled"):
        handle.wait()
    bump(catalog)


def test_closing_tells_who_waits(catalog: Catalog) -> None:
    handle = catalog.register_waiter(Component.WAL, 1)
    catalog.close()
    with pytest.raises(ClosedError, match="closed"):
        handle.wait()


def test_callbacks_run_under_no_lock(catalog: Catalog) -> None:
    seen: list[tuple[bool, bool]] = []

    def callback(handle: WaitHandle) -> None:
        room, writer = catalog._room, catalog._writer
        assert writer is not None
        seen.append((room._lock.locked(), writer._mutex.locked()))
        catalog.register_waiter(Component.JOBS, 1)  # would hang under the lock
        assert handle.done()

    catalog.register_waiter(Component.WAL, 1).add_done_callback(callback)
    bump(catalog)
    wait_until(lambda: seen)
    assert seen == [(False, False)]


def test_a_callback_that_waits_for_a_commit_is_refused_or_served_but_never_hangs(catalog: Catalog) -> None:
    outcome: list[object] = []

    def callback(_: WaitHandle) -> None:
        try:
            outcome.append(catalog.sync())
        except UsageError as error:
            outcome.append(error)

    catalog.register_waiter(Component.WAL, 1).add_done_callback(callback)
    bump(catalog)
    wait_until(lambda: outcome)


def test_who_waits_shows_in_the_generations_record(desk: Desk) -> None:
    catalog = desk.open()
    for target in (30, 10, 20):
        catalog.register_waiter(Component.WAL, target, desk.now_ms + 10_000_000)
    bump(catalog)
    record = catalog.read(lambda view: view.get(GENERATION, Component.WAL))
    assert record is not None
    assert [waiter.target_generation for waiter in record.blocked_waiters] == [10, 20, 30]
    assert isinstance(record.blocked_waiters[0], WaiterSnapshot)
    assert record.blocked_waiters[0].deadline_ms == desk.now_ms + 10_000_000


def test_no_more_than_so_many_may_wait(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.catalog.waiting.CATALOG_WAITERS_MAX", 2)
    for _ in range(2):
        catalog.register_waiter(Component.WAL, 1)
    with pytest.raises(UnavailableError, match="wait for a generation already"):
        catalog.register_waiter(Component.WAL, 1)


def test_who_reads_only_waits_by_looking(desk: Desk) -> None:
    catalog = desk.open()
    bump(catalog)
    catalog.close()
    reader = desk.open("r")
    assert reader.wait_for_generation(Component.WAL, 1) == 1
    with pytest.raises(WaitExpired):
        reader.wait_for_generation(Component.WAL, 2, desk.now_ms)
    with pytest.raises(ReadOnlyError, match="mode='r'"):
        reader.register_waiter(Component.WAL, 2)
