"""Durability: flush, flush policies, checkpoints, group commit, and what a failed sync does."""

import asyncio
import threading
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood import ClosedError, Poisoned, RecordTooLarge, StorageError
from latewood.format.checkpoint import Checkpoint
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE
from latewood.limits import CHECKPOINT_BYTES, RESERVE_BYTES, MiB
from latewood.testing import CrashFS, FakeClock, MemFS
from latewood.testing.node import Inode
from tests.log.desk import ROOT, Desk, payloads
from tests.patience import wait_until

ONE: Final = record_bytes(1)


class GatedFS(MemFS):
    """A disk whose syncs of segments wait for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.segment_syncs = 0

    def sync_file(self, path: Path, inode: Inode) -> None:
        if path.suffix == ".q":
            self.segment_syncs += 1
            self.begun.set()
            assert self.gate.wait(60)
        super().sync_file(path, inode)


def survivors(fs: CrashFS) -> list[bytes]:
    """The payloads after the power cut that loses all it can."""
    with Desk(fs.after_power_cut()) as desk:
        return payloads(desk.open())


# -- flush --------------------------------------------------------------------------------------------


def test_what_is_flushed_is_durable_and_what_is_not_may_be_lost() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append_many([b"a", b"b"])
        assert log.durable_sequence == 0
        log.flush()
        assert log.durable_sequence == 2
        log.append(b"c")
        assert (log.durable_sequence, log.next_sequence) == (2, 3)
        assert survivors(fs) == [b"a", b"b"]


def test_a_reader_knows_of_what_was_durable_before_it_asked_though_the_log_has_rolled_since_it_looked() -> None:
    with Desk() as desk:
        log = desk.open()
        log.append(b"a", durable=True)
        view = latewood.open(ROOT, mode="r", fs=desk.fs).view()
        log.append(b"b", durable=True)
        log.roll()
        log.append(b"c", durable=True)
        log.append(b"d")
        assert view.durable() == 3


def test_a_durable_append_is_durable_on_return_with_all_before_it() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append(b"a")
        log.append(b"b", durable=True)
        assert survivors(fs) == [b"a", b"b"]
        log.append_many([b"c", b"d"], durable=True)
        assert log.durable_sequence == 4
        assert survivors(fs) == [b"a", b"b", b"c", b"d"]


def test_closing_flushes() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        desk.open().append(b"a")
    assert survivors(fs) == [b"a"]


def test_a_roll_makes_everything_before_it_durable() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append(b"a")
        log.roll()
        assert log.durable_sequence == 1
        assert survivors(fs) == [b"a"]


def test_a_flush_with_nothing_new_syncs_nothing(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", durable=True)
    before = desk.fs.counts.syncs
    log.flush()
    log.append_many([], durable=True)
    assert desk.fs.counts.syncs == before


def test_a_flush_leaves_a_checkpoint(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a", b"b", b"c"], ext_ids=[5, 3, 4], timestamps_ns=[20, 30, 10])
    log.flush()
    end = HEADER_SIZE + 3 * ONE
    assert desk.checkpoint() == Checkpoint(0, end, 4096, 3, 20, 10, 30, 3, 5, 3)
    log.roll()
    log.append(b"d", timestamp_ns=15)
    log.flush()
    checkpoint = desk.checkpoint()
    assert (checkpoint.segment_id, checkpoint.write_offset) == (1, HEADER_SIZE + ONE)
    assert (checkpoint.durable_sequence, checkpoint.record_count, checkpoint.max_timestamp) == (4, 1, 30)


# -- policies -----------------------------------------------------------------------------------------


def test_without_a_policy_nothing_is_flushed_by_itself(desk: Desk) -> None:
    log = desk.open()
    before = desk.fs.counts.syncs
    for _ in range(50):
        log.append(b"a")
    desk.clock.advance(seconds=1_000)
    log._writer.housekeep()
    assert log.durable_sequence == 0
    # The first append of an opened log makes its reservation durable, and nothing else does.
    assert desk.fs.counts.syncs - before <= 2


def test_every_append_is_flushed_where_that_is_the_policy() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open(flush_every_append=True)
        log.append(b"a")
        assert log.durable_sequence == 1
        log.append_many([b"b", b"c"])
        assert log.durable_sequence == 3
        assert survivors(fs) == [b"a", b"b", b"c"]


def test_so_many_bytes_are_flushed_where_that_is_the_policy(desk: Desk) -> None:
    log = desk.open(flush_bytes=3 * ONE)
    durable = []
    for _ in range(7):
        log.append(b"x")
        durable.append(log.durable_sequence)
    assert durable == [0, 0, 3, 3, 3, 6, 6]
    log.append_many([b"x"] * 4)
    assert log.durable_sequence == 11


def test_appends_are_flushed_in_time_where_that_is_the_policy(desk: Desk) -> None:
    log = desk.open(flush_ms=50)
    assert log._writer.housekeep() is None
    log.append(b"a")
    desk.clock.advance(ms=20)
    log.append(b"b")
    assert log._writer.housekeep() == pytest.approx(0.03)
    assert log.durable_sequence == 0
    desk.clock.advance(ms=30)
    assert log._writer.housekeep() is None
    assert log.durable_sequence == 2
    log.append(b"c")
    assert log._writer.housekeep() == pytest.approx(0.05)


def test_the_background_thread_flushes_in_time() -> None:
    with latewood.open(ROOT, fs=MemFS(), segment_bytes_max=4096, flush_ms=1) as log:
        log.append(b"a")
        wait_until(lambda: log.durable_sequence == 1)


def test_the_background_thread_rolls_a_segment_that_is_old_enough() -> None:
    with latewood.open(ROOT, fs=MemFS(), segment_bytes_max=4096, segment_age_max_ms=1) as log:
        log.append(b"a")
        wait_until(lambda: log.stats().segment_count == 2)


# -- checkpoints bound recovery -----------------------------------------------------------------------


def test_appends_never_run_further_ahead_of_a_checkpoint_than_what_is_reserved(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=32 * MiB)
    for _ in range(20):
        log.append(bytes(MiB))
        checkpoint = desk.checkpoint()
        offset = log.stats().active_bytes
        assert checkpoint.write_offset <= offset <= checkpoint.reserved_end
        assert checkpoint.reserved_end - checkpoint.write_offset <= RESERVE_BYTES
    log.append_many([bytes(MiB)] * 10)
    checkpoint = desk.checkpoint()
    assert log.stats().active_bytes <= checkpoint.reserved_end <= checkpoint.write_offset + RESERVE_BYTES


def test_a_checkpoint_is_due_in_the_background_after_so_many_bytes(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=32 * MiB)
    log.append(bytes(CHECKPOINT_BYTES // 2))
    log._writer.housekeep()
    assert log.durable_sequence == 0
    log.append(bytes(CHECKPOINT_BYTES // 2))
    log._writer.housekeep()
    assert log.durable_sequence == 2
    assert desk.checkpoint().write_offset == log.stats().active_bytes


def test_a_record_larger_than_the_usual_reservation_is_taken(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=32 * MiB)
    large = bytes(RESERVE_BYTES + MiB)
    assert log.append(large) == 0
    assert log.append_many([b"x", large]) == range(1, 3)
    desk.kill()
    assert [len(payload) for payload in payloads(desk.open())] == [len(large), 1, len(large)]


# -- a sync that fails --------------------------------------------------------------------------------


def test_a_failed_sync_stops_the_writer_for_good(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", durable=True)
    log.append(b"b")
    desk.fs.fail("sync", ".q", StorageError("input/output error"))
    with pytest.raises(Poisoned, match="input/output error"):
        log.flush()
    desk.fs.heal()  # It would work now, and would only pretend: the pages are gone.
    before = desk.fs.counts.syncs
    for attempt in (
        log.flush,
        log.roll,
        lambda: log.append(b"c"),
        lambda: log.append(b"c", durable=True),
        lambda: log.append_many([b"c"]),
        lambda: log.set_ext_id(4),
        lambda: asyncio.run(log.append_async(b"c")),
        log._writer.housekeep,
    ):
        with pytest.raises(Poisoned, match="input/output error"):
            attempt()
    assert desk.fs.counts.syncs == before
    assert log.durable_sequence == 1
    assert payloads(log) == [b"a", b"b"]
    log.close()
    log = desk.open()
    assert log.append(b"c") == 2


@pytest.mark.parametrize("durable", [True, False])
def test_a_failed_sync_is_told_to_whoever_asked_for_durability(desk: Desk, *, durable: bool) -> None:
    log = desk.open(flush_every_append=not durable)
    log.append(b"a")
    desk.fs.fail("sync", ".q", StorageError("input/output error"))
    with pytest.raises(Poisoned):
        log.append(b"b", durable=durable)
    with pytest.raises(Poisoned):
        log.append_many([b"b"], durable=durable)


def test_a_failed_checkpoint_stops_the_writer_too(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    desk.fs.fail("pwrite", "index.meta", StorageError("input/output error"))
    with pytest.raises(Poisoned):
        log.flush()
    with pytest.raises(Poisoned):
        log.append(b"b")


def test_the_failure_of_a_flush_reaches_footer_and_pointer_of_the_next_seal_and_no_other(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", durable=True)
    log.append(b"b")
    desk.fs.fail("sync", ".q", StorageError("input/output error"))
    with pytest.raises(Poisoned):
        log.flush()
    desk.fs.heal()
    log.close()
    assert desk.checkpoint().flush_failure_flag
    log = desk.open()
    log.roll()
    pointer = desk.raw(desk.layout.sealed_pointer)
    assert desk.footer(0).flush_failure_flag
    assert pointer[10] == 1
    log.append(b"c")
    log.roll()
    assert not desk.footer(1).flush_failure_flag
    assert desk.raw(desk.layout.sealed_pointer)[10] == 0


def test_closing_tells_of_a_flush_that_fails(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    desk.fs.fail("sync", ".q", StorageError("input/output error"))
    with pytest.raises(Poisoned):
        log.close()
    desk.fs.heal()
    assert payloads(desk.open()) == [b"a"]


# -- group commit -------------------------------------------------------------------------------------


def test_concurrent_durable_appends_of_threads_share_a_sync() -> None:
    fs = GatedFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append(b"first", durable=True)
        fs.segment_syncs = 0
        fs.gate.clear()
        fs.begun.clear()
        threads = [threading.Thread(target=lambda: log.append(b"x", durable=True)) for _ in range(9)]
        threads[0].start()
        assert fs.begun.wait(60)
        for thread in threads[1:]:
            thread.start()
        wait_until(lambda: log.next_sequence == 10)
        fs.gate.set()
        for thread in threads:
            thread.join()
        assert log.durable_sequence == 10
        assert fs.segment_syncs == 2


@pytest.mark.parametrize("clock", [None, FakeClock()], ids=["system clock", "fake clock"])
def test_concurrent_producers_of_an_event_loop_share_a_sync(clock: FakeClock | None) -> None:
    fs = GatedFS()
    with latewood.open(ROOT, fs=fs, clock=clock, segment_bytes_max=4096, background=False) as log:
        log.append(b"first", durable=True)
        fs.segment_syncs = 0

        async def produce() -> list[int]:
            fs.gate.clear()
            tasks = [asyncio.create_task(log.append_async(b"x")) for _ in range(64)]
            await asyncio.to_thread(wait_until, lambda: log.next_sequence == 65)
            assert not any(task.done() for task in tasks)
            fs.gate.set()
            return await asyncio.gather(*tasks)

        assert sorted(asyncio.run(produce())) == list(range(1, 65))
        assert log.durable_sequence == 65
        assert fs.segment_syncs <= 2


def test_an_awaited_append_is_durable() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()

        async def produce() -> None:
            assert await log.append_async(b"a", ext_id=3, timestamp_ns=9) == 0
            assert survivors(fs) == [b"a"]

        asyncio.run(produce())
        record = log.read(0)
        assert (record.ext_id, record.timestamp_ns) == (3, 9)


def test_awaited_appends_go_on_over_segments_in_their_order(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    batch = [str(number).encode() for number in range(100)]

    async def produce() -> list[int]:
        return await asyncio.gather(*(log.append_async(payload) for payload in batch))

    sequences = asyncio.run(produce())
    assert sorted(sequences) == list(range(100))
    assert [log.read(sequence).payload for sequence in sequences] == batch
    assert log.durable_sequence == 100


def test_an_event_loop_after_another_can_append_too(desk: Desk) -> None:
    log = desk.open()
    assert asyncio.run(log.append_async(b"a")) == 0
    assert asyncio.run(log.append_async(b"b")) == 1


def test_an_awaited_append_that_cannot_be_is_refused_like_any_other(desk: Desk) -> None:
    log = desk.open()
    with pytest.raises(RecordTooLarge):
        asyncio.run(log.append_async(bytes(5000)))
    with pytest.raises(latewood.UsageError):
        asyncio.run(log.append_async(b"x", timestamp_ns=2**63))
    assert asyncio.run(log.append_async(b"a")) == 0
    log.close()
    with pytest.raises(ClosedError):
        asyncio.run(log.append_async(b"b"))


def test_a_cancelled_producer_leaves_the_others_to_be_served() -> None:
    fs = GatedFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append(b"first", durable=True)

        async def produce() -> tuple[bool, int]:
            fs.gate.clear()
            impatient, patient = (asyncio.create_task(log.append_async(b"x")) for _ in range(2))
            await asyncio.to_thread(wait_until, lambda: log.next_sequence == 3)
            impatient.cancel()
            await asyncio.wait([impatient])
            fs.gate.set()
            return impatient.cancelled(), await patient

        assert asyncio.run(produce()) == (True, 2)
        assert log.durable_sequence == 3
