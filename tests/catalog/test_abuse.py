"""What a careless, or hostile, caller does to a catalog: it is told, and nobody else notices."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from latewood.catalog import Catalog, CatalogOptions
from latewood.catalog.env import _Readers
from latewood.catalog.ops import BumpGeneration, PutDb
from latewood.catalog.tables import CHUNK, DB, ChangePosition, ChunkKey, Component, MetricDelta, MetricKey, WalStateKey
from latewood.errors import BadName, CatalogCorrupted, ClosedError, Forked, LatewoodError, StorageError, UsageError
from latewood.limits import CATALOG_VALUE_BYTES_MAX, JOB_BYTES_MAX, U64_MAX
from tests.catalog.desk import Desk, acquire, chunk, db, enqueue, job, job_of, put_chunks, put_database
from tests.catalog.test_writer import held_up, send
from tests.forking import fork
from tests.patience import wait_until


def deep(levels: int) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for _ in range(levels):
        payload = {"in": payload}
    return payload


BAD: dict[str, Callable[[Any], object]] = {
    "a name that climbs": lambda txn: txn.put_db(1, db("../etc")),
    "a name with a zero byte": lambda txn: txn.put_db(1, db("a\0b")),
    "a name that is none": lambda txn: txn.put_db(1, db(7)),  # type: ignore[arg-type]
    "a name that is too long": lambda txn: txn.put_db(1, db("x" * 65)),
    "half a character": lambda txn: txn.upsert_chunk(ChunkKey(1, 1), chunk(file_name="\udcff.parquet")),
    "an id below zero": lambda txn: txn.put_db(-1, db()),
    "an id beyond 64 bits": lambda txn: txn.put_db(U64_MAX + 1, db()),
    "a number beyond 64 bits": lambda txn: txn.upsert_chunk(ChunkKey(1, 1), chunk(size_bytes=1 << 70)),
    "a shard beyond 16 bits": lambda txn: txn.delete_wal_state(WalStateKey(1, 1 << 16)),
    "a payload without a bottom": lambda txn: txn.enqueue_job(job(77, payload=deep(100_000))),
    "a payload of objects": lambda txn: txn.enqueue_job(job(77, payload={"x": object()})),
    "a payload that is too large": lambda txn: txn.enqueue_job(job(77, payload={"x": "y" * JOB_BYTES_MAX})),
    "a row that is too large": lambda txn: txn.upsert_chunk(
        ChunkKey(1, 1), chunk(columns={"x": "y" * CATALOG_VALUE_BYTES_MAX})
    ),
    "a priority below zero": lambda txn: txn.enqueue_job(job(77, priority=-1)),
    "a kind that there is not": lambda txn: txn.enqueue_job(job(77, 1 << 15)),
    "a measurement that is no number": lambda txn: txn.merge_metric(MetricKey(0, 1), MetricDelta.of(float("nan"))),
    "a generation and a half": lambda txn: txn.bump_generation(Component.WAL, 1.5),
    "a component below zero": lambda txn: txn.bump_generation(-1),
}


@pytest.mark.parametrize("fill", BAD.values(), ids=BAD)
def test_what_cannot_be_stored_fails_its_batch_and_nothing_else(
    catalog: Catalog, fill: Callable[[Any], object]
) -> None:
    with held_up(catalog):
        before = send(catalog, PutDb(8, db("before")))
        txn = catalog.begin_write()
        txn.put_db(7, db("gone"))
        try:
            fill(txn)
            bad = txn.commit_async()
        except UsageError:
            bad = None
        after = send(catalog, PutDb(9, db("after")))
    assert before.result(60).generation == after.result(60).generation
    assert bad is None or isinstance(bad.exception(60), UsageError)
    assert catalog.read(lambda view: [db_id for db_id, _ in view.dbs()]) == [8, 9]


def test_a_generation_at_its_end_fails_who_raises_it_and_not_the_writer(catalog: Catalog) -> None:
    catalog.apply(BumpGeneration(1024, U64_MAX))
    with pytest.raises(UsageError, match="cannot be raised"):
        catalog.apply(BumpGeneration(1024))
    assert catalog.apply(PutDb(1, db())).generation == catalog.generation()


def test_an_error_after_the_last_operation_fails_only_the_batch_it_belongs_to(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = catalog._writer._committer  # type: ignore[union-attr]
    finish = committer._finish

    def picky(rows: Any, generation: int) -> None:
        if 666 in rows.bumped:
            raise UsageError("not that one")
        finish(rows, generation)

    monkeypatch.setattr(committer, "_finish", picky)
    with held_up(catalog):
        good, bad, also = (send(catalog, BumpGeneration(component)) for component in (665, 666, 667))
    assert isinstance(bad.exception(60), UsageError)
    assert good.result(60).generation + 1 == also.result(60).generation


def test_an_error_of_lmdb_about_one_batch_fails_that_alone(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    committer = catalog._writer._committer  # type: ignore[union-attr]
    apply = committer._apply

    def full(rows: Any, batch: Any) -> None:
        if PutDb(2, db("two")) in batch.ops:
            raise lmdb.TxnFullError("too many dirty pages")
        apply(rows, batch)

    monkeypatch.setattr(committer, "_apply", full)
    with held_up(catalog):
        one, two, three = (send(catalog, PutDb(n, db(name))) for n, name in enumerate(("one", "two", "three"), 1))
    assert isinstance(two.exception(60), StorageError)
    assert one.result(60).generation < three.result(60).generation


@pytest.mark.parametrize(
    ("target", "deadline_ms"), [(1.5, None), (1 << 70, None), (99, 1.5), (99, float("inf")), (-1, 1)]
)
def test_a_waiter_that_could_not_be_stored_is_refused_before_it_waits(
    catalog: Catalog, target: Any, deadline_ms: Any
) -> None:
    with pytest.raises(UsageError):
        catalog.register_waiter(Component.CATALOG, target, deadline_ms)
    catalog.apply(PutDb(1, db()))


def test_a_cursor_out_of_bounds_does_not_stop_the_others(catalog: Catalog) -> None:
    catalog.feed.create("sound")
    for generation in (-1, 1 << 70):
        with pytest.raises(UsageError):
            catalog.feed.create("bad", generation)
    with pytest.raises(UsageError):
        catalog.acknowledge("sound", ChangePosition(0, 1 << 40))
    with pytest.raises(BadName):
        catalog.feed.create("../bad")
    catalog.apply(PutDb(1, db()))
    catalog.acknowledge("sound", catalog.generation())
    assert not list(catalog.changes("sound"))


def test_the_largest_job_can_still_be_repaired(desk: Desk) -> None:
    catalog = desk.open(map_bytes=64 << 20)
    put_database(catalog)
    job_id = enqueue(catalog, payload={"x": "y" * (JOB_BYTES_MAX - 200)})
    acquire(catalog, job_id)
    txn = catalog.begin_write()
    repair_id = txn.break_off_job(job_id, 1)
    txn.commit()
    assert len(job_of(catalog, repair_id).payload["payload"]["x"]) == JOB_BYTES_MAX - 200


# -- views and scans that outlive what they look at -------------------------------------------------------


def test_a_scan_that_leaves_its_callback_says_so(catalog: Catalog) -> None:
    put_chunks(catalog, 3)
    begun = catalog.read(lambda view: (scan := view.chunks(1), next(scan))[0])
    for scan in (catalog.read(lambda view: view.chunks(1)), begun):
        with pytest.raises(UsageError, match="within the callback"):
            next(scan)


def test_a_scan_of_a_catalog_that_was_closed_says_so(catalog: Catalog) -> None:
    put_chunks(catalog, 3)
    scan = catalog.scan(CHUNK)
    catalog.close()
    with pytest.raises(ClosedError, match="open it again"):
        next(scan)


def test_a_forked_child_can_use_nothing_that_it_inherited(desk: Desk) -> None:
    catalog = desk.open()
    put_chunks(catalog, 3)
    scan, txn = catalog.scan(CHUNK), catalog.begin_write()
    handle = catalog.register_waiter(Component.WAL, 1)
    pid = fork()
    if not pid:
        code = 0
        for number, use in enumerate((lambda: next(scan), txn.commit, handle.wait), start=1):
            try:
                use()
                code = number
            except Forked:
                continue
            except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
                code = 10 + number
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(scan)) == 3


# -- callbacks --------------------------------------------------------------------------------------------


def test_closing_in_a_callback_is_refused_and_does_not_hang(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="after its callback"):
        catalog.read(lambda _: catalog.close())
    caught: list[BaseException | None] = []
    with held_up(catalog):
        future = send(catalog, PutDb(1, db()))
        future.add_done_callback(lambda _: caught.append(_error_of(catalog.close)))
    wait_until(lambda: caught)
    assert isinstance(caught[0], UsageError)
    catalog.close()


def _error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except LatewoodError as error:
        return error
    return None


def test_a_callback_that_exits_does_not_end_the_writer_nor_keep_others_waiting(catalog: Catalog) -> None:
    with held_up(catalog):
        first = send(catalog, PutDb(1, db("one")))
        first.add_done_callback(lambda _: sys.exit(3))
        handles = [catalog.register_waiter(Component.WAL, 1) for _ in range(3)]
        for handle in handles:
            handle.add_done_callback(lambda _: sys.exit(3))
        second = send(catalog, BumpGeneration(Component.WAL))
    assert second.result(60)
    wait_until(lambda: all(handle.done() for handle in handles))
    assert send(catalog, PutDb(2, db("two"))).result(60)


# -- interrupts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["_lead", "_step_down"])
def test_an_interrupt_as_a_thread_begins_or_ends_to_lead_leaves_the_writer_to_others(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    writer = catalog._writer
    assert writer is not None
    with monkeypatch.context() as patch:
        step_down = writer._step_down
        told: list[int] = []

        def interrupted(*_: object) -> None:
            if told:
                step_down()
            told.append(1)
            if len(told) == 1:
                raise KeyboardInterrupt

        patch.setattr(writer, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            catalog.apply(PutDb(1, db()))
    assert send(catalog, PutDb(2, db("two"))).result(60)
    assert catalog.apply(PutDb(3, db("three")))


def test_a_ring_that_was_lost_costs_the_writer_a_moment_only(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = catalog._writer
    assert writer is not None
    monkeypatch.setattr("latewood.catalog.writer._LOOK_S", 0.01)
    catalog.sync()
    with held_up(catalog):
        pass
    monkeypatch.setattr(writer, "_ring", lambda: None)
    assert send(catalog, PutDb(1, db())).result(60)


def test_an_interrupt_while_the_map_waits_for_readers_lets_them_in_again() -> None:
    readers = _Readers()

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    real = readers._changed.wait_for
    readers._changed.wait_for = interrupted  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt), readers.inside(), readers.shut(30):
        pass
    readers._changed.wait_for = real  # type: ignore[method-assign]
    with readers.inside():
        pass
    with readers.shut(1) as alone:
        assert alone


# -- files ------------------------------------------------------------------------------------------------


def test_a_map_that_no_machine_has_is_refused(tmp_path: Path) -> None:
    options = CatalogOptions(map_bytes=1 << 60, map_bytes_max=1 << 61)
    with pytest.raises(LatewoodError):
        Catalog.open(tmp_path / "catalog.mdb", options)


def test_a_map_that_cannot_grow_costs_nobody_what_was_committed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> bool:
        raise StorageError("no address space")

    monkeypatch.setattr(catalog._env, "grow", refused)
    monkeypatch.setattr(catalog._env, "is_low", lambda: True)
    for number in range(1, 40):
        catalog.apply(PutDb(number, db(f"d{number}")))
    assert catalog.read(lambda view: view.count(DB)) == 39


@pytest.mark.parametrize("page", [0, 1])
@pytest.mark.parametrize("bit", [0, 2, 7, 8, 40, 63])
def test_a_meta_page_that_lies_about_its_commit_does_not_take_the_catalog_back(desk: Desk, page: int, bit: int) -> None:
    catalog = desk.open()
    for number in range(1, 6):
        catalog.apply(PutDb(number, db(f"d{number}")))
    catalog.close()
    data = bytearray(desk.path.read_bytes())
    data[page * 4096 + 144 + bit // 8] ^= 1 << bit % 8
    desk.path.write_bytes(data)
    for mode in ("r", "w"):
        with pytest.raises(CatalogCorrupted, match="neighbours"):
            desk.open(mode)


def test_a_damaged_page_met_while_the_session_is_noted_is_corruption(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.open().close()

    def damaged(*_: object) -> None:
        raise lmdb.PageNotFoundError("mdb_put")

    monkeypatch.setattr("latewood.catalog.rows.RowWriter.put", damaged)
    with pytest.raises(CatalogCorrupted, match="LMDB says"):
        desk.open()
