"""Crash-safe writes of small files: `replace_file` and `DualSlot`."""

from pathlib import Path

import pytest

from latewood.errors import NotFoundError, StorageError
from latewood.fs import DualSlot, FileSystem, PosixFS, replace_file
from latewood.testing import CrashFS, MemFS


@pytest.fixture(params=[PosixFS, MemFS], ids=lambda make: make.__name__)
def fs(request: pytest.FixtureRequest) -> FileSystem:
    fs: FileSystem = request.param()
    return fs


@pytest.fixture
def home(fs: FileSystem, tmp_path: Path) -> Path:
    fs.make_directory(tmp_path / "home")
    return tmp_path / "home"


def content(fs: FileSystem, path: Path) -> bytes | None:
    try:
        file = fs.open(path)
    except NotFoundError:
        return None
    data = file.pread(file.size(), 0)
    file.close()
    return data


# -- replace_file -------------------------------------------------------------------------------------


def test_a_replaced_file_holds_exactly_the_new_bytes(fs: FileSystem, home: Path) -> None:
    replace_file(fs, home / "file", b"a longer text")
    replace_file(fs, home / "file", b"short")
    assert content(fs, home / "file") == b"short"
    assert fs.list(home) == ["file"]


def test_what_a_crash_left_of_an_earlier_attempt_is_written_over(fs: FileSystem, home: Path) -> None:
    rest = fs.open(home / "file.tmp", create=True)
    rest.pwrite(b"a half-written file of another length", 0)
    rest.close()
    replace_file(fs, home / "file", b"new")
    assert content(fs, home / "file") == b"new"
    assert not fs.exists(home / "file.tmp")


def test_a_replacement_that_fails_leaves_the_old_bytes() -> None:
    fs = MemFS()
    replace_file(fs, Path("file"), b"old")
    for operation in ("pwrite", "sync", "rename"):
        fs.fail(operation, ".tmp", StorageError("refused"))
        with pytest.raises(StorageError):
            replace_file(fs, Path("file"), b"new")
        fs.heal()
        assert content(fs, Path("file")) == b"old"


def test_a_power_cut_leaves_the_old_bytes_or_the_new() -> None:
    fs = CrashFS()
    replace_file(fs, Path("file"), b"old" * 400)
    cuts = fs.cuts_during(lambda fs: replace_file(fs, Path("file"), b"new" * 500))
    found = [content(survivor, Path("file")) for _, survivor in cuts]
    assert set(found) == {b"old" * 400, b"new" * 500}
    assert found[-1] == b"new" * 500


# -- DualSlot -----------------------------------------------------------------------------------------


def stored(slots: DualSlot) -> bytes | None:
    current = slots.current()
    return None if current is None else slots.read(current, 1 << 20)


def store(slots: DualSlot, data: bytes) -> None:
    slot = 2 if slots.current() == 1 else 1
    slots.write(slot, [(0, data)], len(data))
    slots.publish(slot)


def test_nothing_is_current_before_the_first_publish(fs: FileSystem, home: Path) -> None:
    slots = DualSlot(fs, home, "thing")
    assert slots.current() is None
    slots.write(1, [(0, b"one")], 3)
    assert slots.current() is None


def test_the_slots_take_turns(fs: FileSystem, home: Path) -> None:
    slots = DualSlot(fs, home, "thing")
    for data in (b"first", b"the second", b"3rd"):
        store(slots, data)
        assert stored(slots) == data
    assert fs.list(home) == ["thing.1", "thing.2", "thing.current"]
    assert content(fs, home / "thing.current") == b"\x01"
    assert content(fs, home / "thing.2") == b"the second"


def test_pieces_land_at_their_offsets_and_the_rest_is_kept(fs: FileSystem, home: Path) -> None:
    slots = DualSlot(fs, home, "thing")
    slots.write(1, [(0, b"abcdefgh")], 8)
    slots.write(1, [(0, b"AB"), (4, b"E")], 6)
    assert slots.read(1, 100) == b"ABcdEf"


def test_no_more_than_one_byte_above_the_limit_is_read(fs: FileSystem, home: Path) -> None:
    slots = DualSlot(fs, home, "thing")
    slots.write(1, [(0, b"abcdefgh")], 8)
    assert slots.read(1, 3) == b"abcd"


def test_a_missing_slot_is_not_found(fs: FileSystem, home: Path) -> None:
    with pytest.raises(NotFoundError):
        DualSlot(fs, home, "thing").read(2, 100)


def test_an_empty_pointer_says_nothing_and_a_strange_one_what_it_says(fs: FileSystem, home: Path) -> None:
    slots = DualSlot(fs, home, "thing")
    pointer = fs.open(slots.pointer_path, create=True)
    assert slots.current() is None
    pointer.pwrite(b"\x07", 0)
    pointer.close()
    assert slots.current() == 7


def test_the_pointer_is_never_truncated() -> None:
    fs = MemFS()
    slots = DualSlot(fs, Path("/"), "thing")
    store(slots, b"first")
    fs.fail("truncate", "thing.current", StorageError("truncated"))
    store(slots, b"second")
    assert stored(slots) == b"second"


def test_a_power_cut_leaves_one_whole_version() -> None:
    fs = CrashFS()
    store(DualSlot(fs, Path("/"), "thing"), b"old" * 400)
    cuts = fs.cuts_during(lambda fs: store(DualSlot(fs, Path("/"), "thing"), b"new" * 500))
    found = [stored(DualSlot(survivor, Path("/"), "thing")) for _, survivor in cuts]
    assert set(found) == {b"old" * 400, b"new" * 500}
    assert found[-1] == b"new" * 500
