"""What a power cut does to the bytes and the length of a file."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.errors import StorageError
from latewood.testing import CrashFS
from tests.testing.disk import content, contents_after_cut, durable

A = Path("/a")
OLD = b"o" * 512
NEW = b"n" * 512
NEWER = b"r" * 512
ZERO = bytes(512)


@pytest.fixture
def fs() -> CrashFS:
    return CrashFS()


def test_what_is_synced_stays(fs: CrashFS) -> None:
    durable(fs, A, b"kept")
    assert contents_after_cut(fs, A) == {b"kept"}


def test_what_is_written_and_not_synced_may_stay_or_go(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    fs.open(A, write=True).pwrite(NEW, 0)
    assert contents_after_cut(fs, A) == {OLD, NEW}


def test_a_store_through_a_mapping_may_stay_or_go(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    fs.open(A, write=True).map(512, writable=True).view[:] = NEW
    assert contents_after_cut(fs, A) == {OLD, NEW}


def test_a_store_through_a_mapping_of_a_survivor_may_stay_or_go(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    survivor = fs.after_power_cut()
    survivor.open(A, write=True).map(512, writable=True).view[:] = NEW
    assert contents_after_cut(survivor, A) == {OLD, NEW}


def test_a_survivors_file_can_grow(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    survivor = fs.after_power_cut()
    survivor.open(A, write=True).allocate(100_000)
    assert contents_after_cut(survivor, A) == {OLD, OLD.ljust(100_000, b"\0")}


def test_a_synced_store_through_a_mapping_stays(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    file = fs.open(A, write=True)
    file.map(512, writable=True).view[:] = NEW
    file.sync()
    assert contents_after_cut(fs, A) == {NEW}


def test_a_write_tears_between_sectors(fs: CrashFS) -> None:
    durable(fs, A, OLD * 2)
    fs.open(A, write=True).pwrite(NEW * 2, 0)
    assert contents_after_cut(fs, A) == {OLD + OLD, OLD + NEW, NEW + OLD, NEW + NEW}


def test_a_write_does_not_tear_within_a_sector(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    fs.open(A, write=True).pwrite(b"xyz", 100)
    assert contents_after_cut(fs, A) == {OLD, OLD[:100] + b"xyz" + OLD[103:]}


def test_a_write_across_a_boundary_tears_there(fs: CrashFS) -> None:
    durable(fs, A, ZERO * 2)
    fs.open(A, write=True).pwrite(b"xy", 511)
    states = contents_after_cut(fs, A)
    assert {state[511:513] for state in states if state} == {b"\0\0", b"x\0", b"\0y", b"xy"}


def test_a_disk_of_large_sectors_tears_less() -> None:
    fs = CrashFS(tear_bytes=4096)
    durable(fs, A, bytes(8192))
    fs.open(A, write=True).pwrite(b"n" * 8192, 0)
    assert len(contents_after_cut(fs, A)) == 4


def test_other_sector_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="tear_bytes is 1000"):
        CrashFS(tear_bytes=1000)


def test_any_version_at_a_step_boundary_may_be_on_disk(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    view = fs.open(A, write=True).map(512, writable=True).view
    view[:] = NEW
    fs.step()
    view[:] = NEWER
    assert contents_after_cut(fs, A) == {OLD, NEW, NEWER}


def test_what_is_overwritten_within_a_step_is_never_on_disk(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    view = fs.open(A, write=True).map(512, writable=True).view
    view[:] = NEW
    view[:] = NEWER
    assert contents_after_cut(fs, A) == {OLD, NEWER}


def test_a_write_elsewhere_is_a_step_boundary(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    durable(fs, Path("/other"))
    view = fs.open(A, write=True).map(512, writable=True).view
    view[:] = NEW
    fs.open(Path("/other"), write=True).pwrite(b"x", 0)
    view[:] = NEWER
    assert contents_after_cut(fs, A) == {OLD, NEW, NEWER}


def test_syncing_one_file_does_not_sync_another(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    durable(fs, Path("/other"))
    fs.open(A, write=True).pwrite(NEW, 0)
    fs.open(Path("/other"), write=True).sync()
    assert contents_after_cut(fs, A) == {OLD, NEW}


def test_syncing_a_directory_does_not_sync_its_files(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    fs.open(A, write=True).pwrite(NEW, 0)
    fs.sync_directory(A.parent)
    assert contents_after_cut(fs, A) == {OLD, NEW}


def test_a_sync_through_another_handle_counts(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    fs.open(A, write=True).pwrite(NEW, 0)
    fs.open(A).sync()
    assert contents_after_cut(fs, A) == {NEW}


def test_length_and_data_are_lost_apart(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    fs.open(A, write=True).pwrite(NEW, 512)
    assert contents_after_cut(fs, A) == {OLD, OLD + ZERO, OLD + NEW}
    assert len(list(fs.survivors())) == 3


def test_an_allocation_may_be_lost_and_brings_only_zeros(fs: CrashFS) -> None:
    durable(fs, A, b"abc")
    fs.open(A, write=True).allocate(2000)
    assert contents_after_cut(fs, A) == {b"abc", b"abc".ljust(2000, b"\0")}


def test_an_unsynced_cut_may_be_undone(fs: CrashFS) -> None:
    durable(fs, A, OLD * 2)
    fs.open(A, write=True).truncate(512)
    assert contents_after_cut(fs, A) == {OLD * 2, OLD}


def test_a_cut_within_a_sector_may_leave_the_old_length_over_zeros(fs: CrashFS) -> None:
    durable(fs, A, b"abcd")
    fs.open(A, write=True).truncate(2)
    assert contents_after_cut(fs, A) == {b"abcd", b"ab", b"ab\0\0"}


def test_what_was_cut_may_come_back_when_the_file_grows_again(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    file = fs.open(A, write=True)
    file.truncate(0)
    file.allocate(512)
    assert contents_after_cut(fs, A) == {OLD, b"", ZERO}


def test_a_synced_cut_stays(fs: CrashFS) -> None:
    durable(fs, A, OLD * 2)
    file = fs.open(A, write=True)
    file.truncate(512)
    file.sync()
    file.allocate(1024)
    assert contents_after_cut(fs, A) == {OLD, OLD + ZERO}


def test_a_sector_that_changes_back_has_no_state_twice(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    file = fs.open(A, write=True)
    file.pwrite(NEW, 0)
    file.pwrite(OLD, 0)
    assert contents_after_cut(fs, A) == {OLD, NEW}
    assert len(list(fs.survivors())) == 2


def test_the_number_of_states_is_the_product_of_the_versions(fs: CrashFS) -> None:
    durable(fs, A, OLD * 3)
    file = fs.open(A, write=True)
    for version in (NEW, NEWER):
        file.pwrite(version * 2, 0)
    file.pwrite(NEW, 1024)
    assert len(list(fs.survivors(limit=18))) == 3 * 3 * 2


def fail_a_sync(fs: CrashFS) -> None:
    fs.fail("sync", "a", StorageError("EIO"))
    with pytest.raises(StorageError):
        fs.open(A).sync()
    fs.heal()


def test_a_sync_after_a_failed_one_saves_nothing_of_what_that_lost(fs: CrashFS) -> None:
    durable(fs, A, OLD * 2)
    file = fs.open(A, write=True)
    file.pwrite(NEW, 0)
    fail_a_sync(fs)
    file.pwrite(NEW, 512)
    file.sync()
    assert contents_after_cut(fs, A) == {OLD + NEW, NEW + NEW}
    assert content(fs, A) == NEW + NEW


def test_writing_again_what_a_failed_sync_lost_saves_it(fs: CrashFS) -> None:
    durable(fs, A, OLD * 2)
    file = fs.open(A, write=True)
    file.pwrite(NEW * 2, 0)
    fail_a_sync(fs)
    file.pwrite(NEW, 0)
    file.sync()
    assert contents_after_cut(fs, A) == {NEW + OLD, NEW + NEW}


def test_storing_over_what_a_failed_sync_lost_saves_it(fs: CrashFS) -> None:
    durable(fs, A, OLD)
    file = fs.open(A, write=True)
    view = file.map(512, writable=True).view
    view[:] = NEW
    fail_a_sync(fs)
    view[:] = NEWER
    file.sync()
    assert contents_after_cut(fs, A) == {NEWER}


def test_a_cut_of_what_a_failed_sync_lost_is_kept(fs: CrashFS) -> None:
    durable(fs, A, OLD * 2)
    file = fs.open(A, write=True)
    file.pwrite(NEW * 2, 0)
    fail_a_sync(fs)
    file.truncate(700)
    file.sync()
    assert contents_after_cut(fs, A) == {OLD + (NEW[:188]), NEW + (NEW[:188])}


def test_a_disk_may_be_kind_about_failed_syncs(fs: CrashFS) -> None:
    fs.failed_sync_drops = False
    durable(fs, A, OLD)
    file = fs.open(A, write=True)
    file.pwrite(NEW, 0)
    fail_a_sync(fs)
    file.sync()
    assert contents_after_cut(fs, A) == {NEW}


operations = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1200), st.integers(1, 600)),
    st.tuples(st.just("truncate"), st.integers(0, 1500), st.just(0)),
    st.tuples(st.just("sync"), st.just(0), st.just(0)),
)


def legal_contents(seen: list[bytes]) -> set[bytes]:
    """By brute force: any length that was seen, and under it each sector as it was when it was there."""
    sectors = -(-max(len(state) for state in seen) // 512)
    versions = []
    for index in range(sectors):
        at = slice(index * 512, index * 512 + 512)
        first = seen[0][at].ljust(512, b"\0")
        versions.append({first} | {state[at].ljust(512, b"\0") for state in seen if len(state) > at.start})
    wholes = [b"".join(whole) for whole in itertools.product(*versions)]
    return {whole[: len(state)] for whole in wholes for state in seen}


@pytest.mark.slow
@given(st.lists(operations, max_size=6))
@settings(max_examples=300)
def test_the_states_are_those_of_a_simple_model(steps: list[tuple[str, int, int]]) -> None:
    fs = CrashFS()
    durable(fs, A, b"s" * 700)
    file = fs.open(A, write=True)
    seen = [b"s" * 700]
    for number, (kind, first, second) in enumerate(steps):
        if kind == "write":
            file.pwrite(bytes([65 + number]) * second, first)
        elif kind == "truncate":
            file.truncate(first)
        else:
            file.sync()
            seen.clear()
        seen.append(file.pread(9999, 0))
    assert contents_after_cut(fs, A, limit=1_000_000) == legal_contents(seen)
