"""Cutting the power at every step, sampling what is too much, and planting bugs."""

from pathlib import Path

import pytest

from latewood.errors import StorageError
from latewood.testing import CrashFS
from tests.testing.disk import Tree, content, contents_after_cut, durable, names_after_cut, tree

ROOT = Path("/")
A, B = Path("/a"), Path("/b")
SECTORS = 40


@pytest.fixture
def fs() -> CrashFS:
    return CrashFS()


def scatter(fs: CrashFS) -> None:
    """Leave more unsynced sectors than can be enumerated: 3 versions each."""
    durable(fs, A, bytes(512 * SECTORS))
    view = fs.open(A, write=True).map(512 * SECTORS, writable=True).view
    for version in b"xy":
        for sector in range(SECTORS):
            view[sector * 512] = version
            fs.step()


def marks(fs: CrashFS) -> bytes:
    return (content(fs, A) or b"")[::512]


def test_a_sample_holds_nothing_everything_and_each_alone(fs: CrashFS) -> None:
    scatter(fs)
    found = {marks(survivor) for survivor in fs.survivors(limit=10)}
    nothing, everything = bytes(SECTORS), b"y" * SECTORS
    assert {nothing, everything} <= found
    for sector in range(SECTORS):
        for lost in (b"\0", b"x"):
            assert everything[:sector] + lost + everything[sector + 1 :] in found
        for kept in (b"x", b"y"):
            assert nothing[:sector] + kept + nothing[sector + 1 :] in found


def test_a_sample_holds_every_moment(fs: CrashFS) -> None:
    scatter(fs)
    found = {marks(survivor) for survivor in fs.survivors(limit=10)}
    for count in range(SECTORS + 1):
        assert b"x" * count + bytes(SECTORS - count) in found
        assert b"y" * count + b"x" * (SECTORS - count) in found


def test_a_sample_fills_up_with_random_states(fs: CrashFS) -> None:
    scatter(fs)
    assert len(list(fs.survivors(limit=1000))) == 1000


def test_a_sample_is_the_same_for_the_same_seed(fs: CrashFS) -> None:
    scatter(fs)
    first, again, other = ([marks(survivor) for survivor in fs.survivors(500, seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_no_state_is_given_twice(fs: CrashFS) -> None:
    scatter(fs)
    found = [marks(survivor) for survivor in fs.survivors(limit=1000)]
    assert len(found) == len(set(found))


def test_data_alone_is_tried_with_its_name_and_length(fs: CrashFS) -> None:
    fs.open(A, create=True).pwrite(b"x" * 512 * SECTORS, 0)
    found = contents_after_cut(fs, A, limit=10)
    for sector in range(SECTORS):
        assert (bytes(512 * sector) + b"x" * 512).ljust(512 * SECTORS, b"\0") in found


def test_a_power_cut_can_lose_all_that_is_not_synced(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    fs.open(A, write=True).pwrite(b"new", 0)
    fs.open(B, create=True)
    assert tree(fs.after_power_cut()) == {("/a", b"old")}


def test_a_survivor_is_durable_and_can_be_cut_again(fs: CrashFS) -> None:
    durable(fs, A, b"1")
    fs.open(A, write=True).pwrite(b"2", 0)
    for survivor in fs.survivors():
        (same,) = survivor.survivors()
        assert tree(same) == tree(survivor)
        survivor.open(A, write=True).pwrite(b"3", 0)
        before = marks(same)
        assert contents_after_cut(survivor, A) == {before, b"3"}


def test_a_survivor_shares_nothing_with_the_disk_it_came_from(fs: CrashFS) -> None:
    durable(fs, A, b"1")
    first, second = fs.after_power_cut(), fs.after_power_cut()
    first.open(A, write=True).pwrite(b"2", 0)
    first.open(B, create=True)
    assert tree(fs) == tree(second) == {("/a", b"1")}


def test_a_cut_shows_the_moment_it_was_asked_for(fs: CrashFS) -> None:
    durable(fs, A, b"1")
    survivors = fs.survivors()
    fs.open(A, write=True).pwrite(b"2", 0)
    fs.remove(A)
    assert [tree(survivor) for survivor in survivors] == [{("/a", b"1")}]


def replace(fs: CrashFS) -> None:
    """Replace a file in the right order."""
    file = fs.open(B, create=True)
    file.pwrite(b"new", 0)
    file.sync()
    fs.rename(B, A)
    fs.sync_directory(ROOT)


REPLACE_STEPS = ["create /b", "pwrite /b", "sync /b", "rename /b -> /a", "sync_directory /"]


def test_every_operation_that_changes_the_disk_is_a_step(fs: CrashFS) -> None:
    steps: list[str] = []
    durable(fs, A, b"old")
    fs.on_step = lambda _, step: steps.append(step)
    replace(fs)
    content(fs, A)
    assert steps == REPLACE_STEPS


def test_a_callback_can_look_at_the_survivors_of_its_step(fs: CrashFS) -> None:
    seen: list[set[bytes | None]] = []
    durable(fs, A, b"old")
    fs.on_step = lambda disk, _: seen.append(contents_after_cut(disk, A))
    replace(fs)
    assert seen == [{b"old"}, {b"old"}, {b"old"}, {b"old", b"new"}, {b"new"}]


def test_stores_before_an_operation_are_a_step_of_their_own(fs: CrashFS) -> None:
    steps: list[str] = []
    durable(fs, A, b"old")
    file = fs.open(A, write=True)
    mapping = file.map(3, writable=True)
    fs.on_step = lambda _, step: steps.append(step)
    mapping.view[0] = 0
    file.sync()
    file.sync()
    assert steps == ["stores before sync /a", "sync /a", "sync /a"]


def test_a_failed_operation_is_no_step(fs: CrashFS) -> None:
    steps: list[str] = []
    durable(fs, A, b"old")
    fs.fail("sync", "b", StorageError("no"))
    fs.on_step = lambda _, step: steps.append(step)
    with pytest.raises(StorageError):
        replace(fs)
    assert steps == ["create /b", "pwrite /b"]


def states_during(fs: CrashFS, limit: int = 200) -> list[tuple[str, Tree]]:
    return [(step, tree(survivor)) for step, survivor in fs.cuts_during(replace, limit=limit)]


def test_an_ordered_replacement_is_safe_at_every_step(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    found = states_during(fs)
    assert {dict(state)["/a"] for _, state in found} == {b"old", b"new"}
    assert [step for step, state in found if dict(state)["/a"] == b"new"] == ["rename /b -> /a"]


def test_cuts_name_the_first_step_that_may_leave_a_state(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    old = ("/a", b"old")
    assert [(step, sorted(state)) for step, state in states_during(fs)] == [
        ("start", [old]),
        ("create /b", [old, ("/b", b"")]),
        ("pwrite /b", [old, ("/b", b"\0\0\0")]),
        ("pwrite /b", [old, ("/b", b"new")]),
        ("rename /b -> /a", [("/a", b"new")]),
    ]


def test_each_step_gives_at_most_the_limit(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    steps = [step for step, _ in states_during(fs, limit=1)]
    assert len(steps) == len(set(steps))


def test_stores_after_the_last_operation_are_cut_too(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    view = fs.open(A, write=True).map(3, writable=True).view

    def store(_: CrashFS) -> None:
        view[:] = b"new"

    assert [(step, marks(survivor)) for step, survivor in fs.cuts_during(store)] == [("start", b"o"), ("end", b"n")]


def test_a_note_keeps_equal_disks_before_and_after_it_apart(fs: CrashFS) -> None:
    durable(fs, A, b"old")

    def acknowledge_too_soon(disk: CrashFS) -> None:
        disk.open(A, write=True).pwrite(b"new", 0)
        disk.note = "acknowledged"

    found = {(survivor.note, content(survivor, A)) for _, survivor in fs.cuts_during(acknowledge_too_soon)}
    assert found == {(None, b"old"), (None, b"new"), ("acknowledged", b"old"), ("acknowledged", b"new")}


def test_the_file_system_goes_on_after_its_cuts(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    fs.cuts_during(replace)
    assert tree(fs) == {("/a", b"new")}


def test_an_action_that_fails_says_so_and_is_watched_no_longer(fs: CrashFS) -> None:
    fs.fail("open", "b", StorageError("no"))
    with pytest.raises(StorageError):
        fs.cuts_during(replace)
    assert fs._watchers == []


def test_sync_points_are_listed_by_name(fs: CrashFS) -> None:
    fs.make_directory(Path("/d"))
    durable(fs, A, b"old")
    fs.sync_calls.clear()
    fs.make_directory(Path("/d/e"))
    replace(fs)
    assert fs.sync_calls == ["make_directory /d/e", "sync /b", "sync_directory /"]


@pytest.mark.parametrize(
    ("ignored", "found"),
    [
        ("sync /b", {b"", b"\0\0\0", b"new"}),
        ("/b", {b"", b"\0\0\0", b"new"}),
        ("sync_directory /", {b"old", b"new"}),
    ],
)
def test_dropping_any_sync_is_found_out(fs: CrashFS, ignored: str, found: set[bytes]) -> None:
    durable(fs, A, b"old")
    fs.ignore_sync(ignored)
    replace(fs)
    assert contents_after_cut(fs, A) >= found


def test_an_ignored_sync_is_listed_and_a_later_one_makes_up_for_it(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    file = fs.open(A, write=True)
    fs.sync_calls.clear()
    fs.ignore_sync("a", skip=1)
    for data, expected in ((b"1__", {b"1__"}), (b"2__", {b"1__", b"2__"}), (b"3__", {b"3__"})):
        file.pwrite(data, 0)
        file.sync()
        assert contents_after_cut(fs, A) == expected
    assert fs.sync_calls == ["sync /a"] * 3


def test_the_room_on_a_disk_survives_it() -> None:
    fs = CrashFS(capacity_bytes=10, tear_bytes=4096)
    survivor = fs.after_power_cut()
    assert (survivor.capacity_bytes, survivor.tear_bytes) == (10, 4096)


def test_planted_bugs_and_faults_do_not_survive(fs: CrashFS) -> None:
    fs.ignore_sync("")
    fs.fail("open", "", StorageError("no"))
    survivor = fs.after_power_cut()
    durable(survivor, A, b"x")
    assert names_after_cut(survivor) == {("/a",)}
