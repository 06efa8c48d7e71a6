"""The parent log: appended, overwritten, looked up, compacted, and rebuilt from itself."""

import threading
from pathlib import Path

import pytest

from latewood.errors import (
    CorruptError,
    DiskFull,
    Diverged,
    EntryMissing,
    Poisoned,
    RecordTooLarge,
    UnsupportedVersion,
    UsageError,
)
from latewood.format.entry import decode_pack
from latewood.format.identity import Owner
from latewood.log import Log, LogOptions
from latewood.replica.engine import ConfState, EntryKind, HardState
from latewood.replica.markers import ANCHOR_ENTRIES
from latewood.testing import MemFS
from tests.replica.parent import CONF, ROOT, SMALL, entries, entry, everything, indices, open_store, snapshot_at


def test_a_fresh_store_begins_at_one() -> None:
    with open_store(MemFS()) as store:
        found = store.recover()
        assert (store.first_index, store.last_index, store.durable_index) == (1, 0, 0)
        assert (found.terms, found.entries, found.applied, found.snapshot) == ([(0, 0)], [], 0, None)


def test_entries_are_durable_only_after_a_sync() -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 4))
        assert (store.last_index, store.durable_index) == (3, 0)
        store.sync()
        assert store.durable_index == 3


def test_a_conflicting_end_is_overwritten_and_lowers_the_durable_index() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 6))
        store.sync()
        store.append(entries(3, 5, term=2))
        assert (store.last_index, store.durable_index) == (4, 2)
        expected = entries(1, 3) + entries(3, 5, term=2)
        assert everything(store) == expected
    with open_store(fs) as store:
        assert everything(store) == expected
        assert [store.term(index) for index in range(1, 5)] == [1, 1, 2, 2]


def test_a_sync_that_was_overtaken_by_a_cut_makes_nothing_of_the_new_end_durable() -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 6))
        store._syncing_index = 5  # as while another thread syncs
        store.append(entries(3, 4, term=2))
        assert store._syncing_index == 2


def test_what_is_committed_is_never_overwritten() -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 6))
        store.set_hard_state(HardState(1, 1, 3))
        with pytest.raises(Diverged, match="would overwrite"):
            store.append(entries(3, 4, term=2))
        store.append(entries(4, 5, term=2))
        assert store.last_index == 4


@pytest.mark.parametrize(
    "wrong",
    [
        [entry(5)],
        [entry(3), entry(5)],
        [entry(3, term=5), entry(4, term=4)],
        [entry(3, term=0)],
    ],
)
def test_entries_that_cannot_follow_are_refused_and_nothing_is_written(
    wrong: list[tuple[int, int, int, bytes]],
) -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 3))
        before = store._log.next_sequence
        with pytest.raises(UsageError):
            store.append(wrong)  # type: ignore[arg-type]
        assert store._log.next_sequence == before


def test_a_term_is_noted_in_front_of_the_first_entry_that_has_it() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 3, term=4))
        assert store.hard_state == HardState(4, 0, 0)
    with open_store(fs) as store:
        assert store.recover().hard_state.term == 4


def test_the_hard_state_comes_back() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 4))
        store.set_hard_state(HardState(3, 2, 2))
        store.set_hard_state(HardState(3, 2, 2))
        assert store._log.next_sequence == 5, "the same state is not written twice"
    with open_store(fs) as store:
        assert store.recover().hard_state == HardState(3, 2, 2)


@pytest.mark.parametrize(("state", "written"), [(HardState(1, 1, 2), 5), (HardState(1, 1, 1), 4)])
def test_entries_bring_their_hard_state_along(state: HardState, written: int) -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 3), HardState(1, 1, 1))
        before = store._log.next_sequence
        store.append(entries(3, 7), state)
        assert store._log.next_sequence - before == written, "one that is known is not written"
        assert store.hard_state == state
    with open_store(fs) as store:
        assert store.recover().hard_state == state
        assert indices(everything(store)) == [1, 2, 3, 4, 5, 6]


def test_the_hard_state_stands_behind_the_entries_and_behind_what_names_their_term() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 6), HardState(1, 1, 0))
        store.append(entries(3, 5, term=4), HardState(4, 2, 3))
        assert (store.hard_state, store.last_index) == (HardState(4, 2, 3), 4)
        store.append([], HardState(5, 3, 3))
    with open_store(fs) as store:
        assert store.recover().hard_state == HardState(5, 3, 3)
        assert [store.term(index) for index in range(1, 5)] == [1, 1, 4, 4]


def test_a_commit_beyond_the_end_is_taken_back_to_the_end() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 3))
        store.set_hard_state(HardState(1, 1, 9))
    with open_store(fs) as store:
        assert store.recover().hard_state.commit == 2


def test_old_entries_come_from_the_disk() -> None:
    with open_store(MemFS(), recent_bytes_max=30) as store:
        for index in range(1, 3 * ANCHOR_ENTRIES, 5):
            store.append(entries(index, index + 5))
            store.set_hard_state(HardState(1, 1, index))
        assert store._recent.first_index is not None
        assert store._recent.first_index > store.last_index - 10
        assert indices(store.read(1, 4, 1 << 20)) == [1, 2, 3]
        assert indices(store.read(200, 210, 1 << 20)) == list(range(200, 210))
        assert store.read(200, 202, 1 << 20) == entries(200, 202)


def test_a_read_is_bounded_by_bytes_but_returns_one() -> None:
    with open_store(MemFS()) as store:
        store.append([entry(index, data=bytes(10)) for index in range(1, 6)])
        assert indices(store.read(1, 6, 25)) == [1, 2]
        assert indices(store.read(1, 6, 0)) == [1]
        assert store.read(6, 9, 100) == []


def test_a_read_of_an_overwritten_stretch_finds_what_counts() -> None:
    with open_store(MemFS(), recent_bytes_max=1) as store:
        store.append(entries(1, 9))
        store.append(entries(5, 8, term=2))
        store.append(entries(3, 4, term=3))
        store.append(entries(4, 9, term=4))
        expected = entries(1, 3) + entries(3, 4, term=3) + entries(4, 9, term=4)
        assert everything(store) == expected
        assert [store.read(index, index + 1, 1)[0] for index in range(1, 9)] == expected


def test_readers_beside_a_writer_see_only_entries_that_counted() -> None:
    """Several threads read while one appends and overwrites; every entry belongs to some state of the log."""
    store, stop = open_store(MemFS(), recent_bytes_max=64, options=LogOptions(segment_bytes_max=4096)), False
    wrong: list[object] = []

    def look() -> None:
        while not stop:
            found = store.read(1, 1 << 30, 1 << 20)
            terms = [one.term for one in found]
            if indices(found) != list(range(1, len(found) + 1)) or terms != sorted(terms):
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    store.append(entries(1, 30))
    for term in range(2, 40):
        store.append(entries(30 - term % 20, 40, term=term))
    stop = True
    for thread in threads:
        thread.join()
    assert not wrong
    store.close()


def test_compaction_forgets_the_head_and_removes_its_segments() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 41))
        store.set_hard_state(HardState(1, 2, 40))
        store.sync()
        before = len(list(fs.walk(ROOT / "segments")))
        store.compact(snapshot_at(30, data=b"where"))
        assert store.first_index == 31
        assert len(list(fs.walk(ROOT / "segments"))) < before
        assert store.read(30, 32, 100) == []
        assert store.term(30) == 1
        with pytest.raises(EntryMissing):
            store.term(29)
    with open_store(fs) as store:
        assert everything(store) == entries(31, 41)
        found = store.recover()
        assert found.snapshot == snapshot_at(30, data=b"where")
        assert (found.hard_state, found.conf, found.conf_index) == (HardState(1, 2, 40), CONF, 30)
        assert found.terms == [(30, 1)]


def test_compaction_of_everything_leaves_a_log_that_goes_on() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 41))
        store.set_hard_state(HardState(1, 2, 40))
        store.sync()
        store.compact(snapshot_at(40))
        store.append(entries(41, 43))
    with open_store(fs) as store:
        assert everything(store) == entries(41, 43)


def test_a_membership_since_the_base_outlives_compaction() -> None:
    fs, later = (
        MemFS(),
        ConfState(voters=(1, 2), learners=(3,), voters_outgoing=(4,), learners_next=(5,), auto_leave=True),
    )
    with open_store(fs) as store:
        store.append([*entries(1, 5), entry(5, kind=EntryKind.CONF_CHANGE), *entries(6, 41)])
        store.set_conf(5, later)
        store.set_hard_state(HardState(1, 2, 40))
        store.sync()
        store.compact(snapshot_at(3))
        store.append(entries(41, 81))
        store.sync()
        store.set_hard_state(HardState(1, 2, 80))
        store.sync()
        store.compact(snapshot_at(4))
    with open_store(fs) as store:
        found = store.recover(applied=30)
        assert (found.conf, found.conf_index, found.applied) == (later, 5, 30)


def test_recovery_applies_again_what_changed_the_membership_unrecorded() -> None:
    with open_store(MemFS()) as store:
        store.append([*entries(1, 5), entry(5, kind=EntryKind.CONF_CHANGE), *entries(6, 9)])
        store.set_hard_state(HardState(1, 1, 8))
        assert store.recover(applied=8).applied == 0
        store.set_conf(5, CONF)
        assert store.recover(applied=8).applied == 8
        assert store.recover(applied=99).applied == 8, "never beyond the commit"


def test_only_what_is_durable_is_compacted_and_it_counts_as_committed() -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 9))
        store.set_hard_state(HardState(1, 1, 6))
        with pytest.raises(UsageError, match="durable up to 0"):
            store.compact(snapshot_at(5))
        store.sync()
        with pytest.raises(UsageError):
            store.compact(snapshot_at(9))
        with pytest.raises(UsageError):
            store.compact(snapshot_at(5, term=2))
        store.compact(snapshot_at(5))
        store.compact(snapshot_at(4))
        assert (store.first_index, store.hard_state.commit) == (6, 6)
        store.compact(snapshot_at(7))
        assert (store.first_index, store.hard_state.commit) == (8, 7)


def test_an_installed_snapshot_replaces_the_log() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 30))
        store.install(snapshot_at(100, term=7))
        assert (store.first_index, store.last_index) == (101, 100)
        store.append(entries(101, 103, term=7))
        store.set_hard_state(HardState(7, 0, 101))
        store.sync()
        assert store.durable_index == 102
    with open_store(fs) as store:
        found = store.recover()
        assert found.entries == entries(101, 103, term=7)
        assert found.terms == [(100, 7)]
        assert found.hard_state == HardState(7, 0, 101)


def test_a_snapshot_never_undoes_what_is_committed() -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 30))
        store.set_hard_state(HardState(1, 1, 20))
        with pytest.raises(Diverged):
            store.install(snapshot_at(10))


def test_a_pack_carries_entries_to_another_node_and_may_come_twice() -> None:
    with open_store(MemFS()) as leader, open_store(MemFS()) as follower:
        leader.append(entries(1, 4) + entries(4, 9, term=3))
        follower.append(entries(1, 7))
        raw = leader.pack(2, 9)
        assert indices(follower.apply_pack(raw)) == [4, 5, 6, 7, 8]
        assert everything(follower) == everything(leader)
        assert follower.apply_pack(raw) == []
        with pytest.raises(EntryMissing):
            leader.pack(9, 12)


def test_every_flipped_bit_of_a_pack_is_noticed() -> None:
    with open_store(MemFS()) as leader, open_store(MemFS()) as follower:
        leader.append(entries(1, 3))
        raw = leader.pack(1, 3)
        for at in range(len(raw)):
            bad = bytearray(raw)
            bad[at] ^= 4
            with pytest.raises((CorruptError, UnsupportedVersion)):
                decode_pack(bytes(bad))
            with pytest.raises(CorruptError):
                decode_pack(raw[:at])
        assert follower.last_index == 0


def test_a_parent_log_without_its_head_is_refused() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 60))
    with Log.open(ROOT, SMALL, fs=fs, background=False, owner=Owner.NODE) as log:
        log._writer.retire(log._manifest().entries[1].segment_id)
    with pytest.raises(CorruptError, match="without the base"):
        open_store(fs)


def test_a_record_that_is_none_of_ours_is_refused() -> None:
    fs = MemFS()
    with Log.open(ROOT, SMALL, fs=fs, background=False) as log:
        log.append(b"\x01\x09" + bytes(30))
    with pytest.raises(CorruptError, match="kind 9"):
        open_store(fs)


def test_a_gap_in_the_entries_is_refused() -> None:
    fs = MemFS()
    with open_store(fs) as store:
        store.append(entries(1, 3))
        store._state.last_index = 5
        store.append(entries(6, 7))
    with pytest.raises(CorruptError, match="cannot follow"):
        open_store(fs)


def test_an_entry_that_never_fits_changes_nothing() -> None:
    with open_store(MemFS()) as store:
        store.append(entries(1, 3))
        with pytest.raises(RecordTooLarge):
            store.append([entry(3, data=bytes(4096))])
        store.append(entries(3, 5))
        assert indices(everything(store)) == [1, 2, 3, 4]


def test_a_batch_that_was_written_in_part_stops_the_store() -> None:
    fs = MemFS()
    store = open_store(fs)
    store.append(entries(1, 3))
    fs.fail("allocate", "next.q", DiskFull("no room"))
    with pytest.raises(DiskFull):
        store.append(entries(3, 60))
    with pytest.raises(Poisoned):
        store.append(entries(3, 4))
    fs.heal()
    store.close()
    with open_store(fs) as store:
        assert indices(everything(store)) == list(range(1, store.last_index + 1))
        assert 2 <= store.last_index < 60


def test_a_failed_sync_stops_the_store() -> None:
    fs = MemFS()
    store = open_store(fs)
    store.append(entries(1, 3))
    fs.fail("sync", ".q", OSError("the disk is gone"))
    with pytest.raises(Exception, match="the disk is gone"):
        store.sync()
    assert store.durable_index == 0


def test_a_store_is_a_plain_log_on_disk(tmp_path: Path) -> None:
    from latewood.replica.entry_store import SegmentedLogStore  # noqa: PLC0415 - the one test on a real disk

    with SegmentedLogStore.open(tmp_path / "parent") as store:
        store.append(entries(1, 1000))
        store.sync()
    with Log.open(tmp_path / "parent", mode="r") as log:
        assert [record.ext_id for record in log.scan(1)] == list(range(1, 1000))


def test_a_base_from_before_the_retired_head_does_no_harm() -> None:
    """The head that is left begins behind an older base; found by the model."""
    fs = MemFS()
    with open_store(fs) as store:
        for low in range(1, 100, 20):
            store.append(entries(low, low + 20))
            store.set_hard_state(HardState(1, 1, low + 19))
            store.sync()
            store.compact(snapshot_at(max(1, low - 2)))
    with open_store(fs) as store:
        assert (store.first_index, store.last_index) == (80, 100)
