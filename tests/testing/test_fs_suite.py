"""What every file system does alike: the real disk is the measure of those in memory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.errors import ConflictError, Locked, NotFoundError, StorageError
from latewood.fs import root
from latewood.fs.base import FileSystem
from latewood.fs.posix import PosixFS
from latewood.testing import CrashFS, MemFS


def _posix(home: Path) -> FileSystem:
    del home
    return PosixFS()


def _rooted_posix(home: Path) -> FileSystem:
    return PosixFS().rooted(home)


def _posix_by_path(home: Path) -> FileSystem:
    return PosixFS().rooted(home)


def _memory(home: Path) -> FileSystem:
    del home
    return MemFS()


def _rooted_memory(home: Path) -> FileSystem:
    disk = MemFS()
    disk.make_directory(home)
    return disk.rooted(home)


def _crash(home: Path) -> FileSystem:
    del home
    return CrashFS()


@pytest.fixture(
    params=[_posix, _rooted_posix, _posix_by_path, _memory, _rooted_memory, _crash],
    ids=["PosixFS", "PosixFS-rooted", "PosixFS-by-path", "MemFS", "MemFS-rooted", "CrashFS"],
)
def fs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileSystem]:
    monkeypatch.setattr(root, "OPENS_BY_DESCRIPTOR", request.param is not _posix_by_path)
    fs: FileSystem = request.param(tmp_path)
    yield fs
    fs.close()


@pytest.fixture
def home(fs: FileSystem, tmp_path: Path) -> Path:
    home = tmp_path / "home"
    fs.make_directory(home)
    return home


def put(fs: FileSystem, path: Path, data: bytes) -> None:
    file = fs.open(path, create=True)
    file.pwrite(data, 0)
    file.close()


def get(fs: FileSystem, path: Path) -> bytes:
    file = fs.open(path)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def test_a_file_holds_what_was_written(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"hello")
    assert get(fs, home / "a") == b"hello"


def test_a_write_past_the_end_leaves_zeros_between(fs: FileSystem, home: Path) -> None:
    file = fs.open(home / "a", create=True)
    file.pwrite(b"x", 3)
    assert file.pread(9, 0) == b"\0\0\0x"
    file.close()


def test_an_empty_write_past_the_end_does_not_grow_the_file(fs: FileSystem, home: Path) -> None:
    file = fs.open(home / "a", create=True)
    file.pwrite(b"", 10)
    assert file.size() == 0
    file.close()


@pytest.mark.parametrize(("length", "offset", "expected"), [(2, 1, b"bc"), (9, 2, b"c"), (1, 3, b""), (1, 99, b"")])
def test_a_read_is_short_only_at_the_end(fs: FileSystem, home: Path, length: int, offset: int, expected: bytes) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a")
    assert file.pread(length, offset) == expected
    file.close()


def test_opening_again_keeps_the_content(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    put(fs, home / "a", b"x")
    assert get(fs, home / "a") == b"xbc"


def test_a_missing_file_is_not_found(fs: FileSystem, home: Path) -> None:
    for attempt in (fs.open, fs.remove, fs.sync_directory):
        with pytest.raises(NotFoundError):
            attempt(home / "missing")
    with pytest.raises(NotFoundError):
        fs.open(home / "missing", write=True)
    with pytest.raises(NotFoundError):
        fs.rename(home / "missing", home / "b")


def test_a_file_in_a_missing_directory_cannot_be_made(fs: FileSystem, home: Path) -> None:
    with pytest.raises(NotFoundError):
        fs.open(home / "missing" / "a", create=True)


def test_a_file_that_is_closed_or_only_read_cannot_be_written(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a")
    with pytest.raises(StorageError):
        file.pwrite(b"x", 0)
    file.close()
    file.close()
    with pytest.raises(StorageError):
        file.pread(1, 0)


def test_allocate_grows_with_zeros_and_never_shrinks(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a", write=True)
    file.allocate(5)
    file.allocate(2)
    assert file.pread(9, 0) == b"abc\0\0"
    file.close()


def test_what_truncate_cuts_comes_back_as_zeros(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abcd")
    file = fs.open(home / "a", write=True)
    file.truncate(1)
    file.truncate(3)
    assert file.pread(9, 0) == b"a\0\0"
    file.close()


def test_mappings_reads_and_writes_share_the_bytes(fs: FileSystem, home: Path) -> None:
    file = fs.open(home / "a", create=True)
    file.allocate(8)
    writer, reader = file.map(8, writable=True), file.map(4, writable=False)
    writer.view[0:2] = b"st"
    file.pwrite(b"w", 2)
    assert bytes(reader.view) == file.pread(4, 0) == b"stw\0"
    for thing in (writer, reader, file):
        thing.close()


def test_a_mapping_to_read_refuses_stores(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a")
    mapping = file.map(3, writable=False)
    with pytest.raises(TypeError):
        mapping.view[0] = 1
    mapping.close()
    file.close()


def test_more_than_the_file_cannot_be_mapped(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a")
    with pytest.raises(ValueError, match=r"."):
        file.map(4, writable=False)
    file.close()


def test_a_mapping_outlives_its_file_but_not_its_close(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a", write=True)
    mapping = file.map(3, writable=True)
    file.close()
    mapping.view[0:1] = b"x"
    assert get(fs, home / "a") == b"xbc"
    mapping.close()
    with pytest.raises(ValueError, match="released"):
        mapping.view[0]


def test_a_slice_of_a_mapping_outlives_its_close(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a")
    mapping = file.map(3, writable=False)
    part = mapping.view[1:]
    mapping.close()
    file.close()
    assert bytes(part) == b"bc"


def test_a_removed_file_lives_on_where_it_is_open(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a", write=True)
    mapping = file.map(3, writable=True)
    fs.remove(home / "a")
    put(fs, home / "a", b"new")
    mapping.view[0:1] = b"x"
    assert file.pread(3, 0) == b"xbc"
    assert get(fs, home / "a") == b"new"
    mapping.close()
    file.close()


def test_a_file_that_was_renamed_over_lives_on_where_it_is_open(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"old")
    put(fs, home / "b", b"new")
    file = fs.open(home / "a")
    fs.rename(home / "b", home / "a")
    assert file.pread(3, 0) == b"old"
    assert get(fs, home / "a") == b"new"
    assert fs.list(home) == ["a"]
    file.close()


def test_a_file_gets_a_name_that_is_free(fs: FileSystem, home: Path) -> None:
    fs.make_directory(home / "d")
    put(fs, home / "a", b"abc")
    fs.rename_new(home / "a", home / "d" / "b")
    assert get(fs, home / "d" / "b") == b"abc"
    assert fs.list(home) == ["d"]


def test_a_file_gets_no_name_that_another_has(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    put(fs, home / "b", b"kept")
    with pytest.raises(ConflictError, match="is there already"):
        fs.rename_new(home / "a", home / "b")
    assert (get(fs, home / "a"), get(fs, home / "b")) == (b"abc", b"kept")


def test_a_file_that_is_not_there_gets_no_new_name(fs: FileSystem, home: Path) -> None:
    with pytest.raises(NotFoundError):
        fs.rename_new(home / "missing", home / "b")
    assert fs.list(home) == []


def test_a_file_can_move_to_another_directory(fs: FileSystem, home: Path) -> None:
    fs.make_directory(home / "d")
    put(fs, home / "a", b"abc")
    fs.rename(home / "a", home / "d" / "b")
    assert get(fs, home / "d" / "b") == b"abc"
    assert not fs.exists(home / "a")


def test_a_directory_is_not_a_file(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"")
    with pytest.raises(NotFoundError):
        fs.make_directory(home / "a")
    with pytest.raises(StorageError):
        fs.rename(home / "a", home)
    with pytest.raises(StorageError):
        fs.open(home, write=True)


def test_make_directory_makes_the_parents_and_may_be_repeated(fs: FileSystem, home: Path) -> None:
    fs.make_directory(home / "b" / "c")
    fs.make_directory(home / "b" / "c")
    assert fs.list(home) == ["b"]
    assert fs.list(home / "b") == ["c"]


def test_list_is_sorted_and_empty_where_there_is_no_directory(fs: FileSystem, home: Path) -> None:
    put(fs, home / "b", b"")
    put(fs, home / "a", b"")
    assert fs.list(home) == ["a", "b"]
    assert fs.list(home / "missing") == []


def test_walk_yields_the_files_of_a_directory_before_those_below(fs: FileSystem, home: Path) -> None:
    fs.make_directory(home / "a" / "deep")
    for name in ("z", "b", "a/y", "a/deep/x"):
        put(fs, home / name, b"")
    assert list(fs.walk(home)) == [home / name for name in ("b", "z", "a/y", "a/deep/x")]
    assert list(fs.walk(home / "missing")) == []


def test_only_a_directory_that_is_there_is_writable(fs: FileSystem, home: Path) -> None:
    assert fs.is_writable(home)
    assert not fs.is_writable(home / "missing")


def test_syncing_is_harmless(fs: FileSystem, home: Path) -> None:
    put(fs, home / "a", b"abc")
    file = fs.open(home / "a", write=True)
    file.sync()
    fs.sync_directory(home)
    assert file.pread(3, 0) == b"abc"
    file.close()


def test_a_lock_is_held_once_and_can_be_taken_again(fs: FileSystem, home: Path) -> None:
    lock = fs.lock(home / "lock")
    with pytest.raises(Locked) as caught:
        fs.lock(home / "lock")
    assert caught.value.pid == os.getpid()
    assert fs.exists(home / "lock")
    lock.close()
    fs.lock(home / "lock").close()


def test_closing_a_lock_twice_does_not_free_the_next_holders(fs: FileSystem, home: Path) -> None:
    first = fs.lock(home / "lock")
    first.close()
    second = fs.lock(home / "lock")
    first.close()
    with pytest.raises(Locked):
        fs.lock(home / "lock")
    second.close()


# -- a file that is locked ----------------------------------------------------------------------------


def test_a_file_is_locked_once_and_until_it_is_closed(fs: FileSystem, home: Path) -> None:
    first, second = (fs.open(home / "a", create=True) for _ in range(2))
    first.lock()
    for _ in range(2):
        with pytest.raises(Locked):
            second.lock()
    second.close()
    third = fs.open(home / "a", write=True)
    with pytest.raises(Locked):
        third.lock()
    first.close()
    third.lock()
    first.close()
    with pytest.raises(Locked):
        fs.open(home / "a", write=True).lock()
    third.close()


def test_a_file_that_is_locked_is_read_and_written_as_before(fs: FileSystem, home: Path) -> None:
    locked = fs.open(home / "a", create=True)
    locked.lock()
    other = fs.open(home / "a", write=True)
    other.pwrite(b"abc", 0)
    assert locked.pread(9, 0) == other.pread(9, 0) == b"abc"
    locked.truncate(1)
    assert other.size() == 1
    for file in (locked, other):
        file.close()
