"""What MemFS adds to a file system: counting, failing, filling up."""

import threading
from pathlib import Path

import pytest

from latewood.errors import DiskFull, ReadOnlyError, StorageError
from latewood.testing import Counts, MemFS

A = Path("/a")
B = Path("/b")


@pytest.fixture
def fs() -> MemFS:
    return MemFS()


def test_the_root_is_the_current_directory(fs: MemFS) -> None:
    fs.open(Path("a"), create=True)
    assert fs.exists(A)
    assert fs.list(Path()) == ["a"]


def test_everything_asked_of_it_is_counted(fs: MemFS) -> None:
    fs.make_directory(Path("/d/e"))
    file = fs.open(A, create=True)
    file.allocate(100)
    file.pwrite(b"abc", 0)
    file.pread(10, 0)
    file.map(50, writable=False)
    file.truncate(10)
    file.sync()
    fs.rename(A, B)
    fs.sync_directory(Path("/"))
    fs.list(Path("/"))
    fs.remove(B)
    assert fs.counts == Counts(
        files_opened=1,
        preads=1,
        bytes_read=10,
        writes=1,
        bytes_written=3,
        maps=1,
        bytes_mapped=50,
        allocations=1,
        truncations=1,
        syncs=1,
        directory_syncs=1,
        directories_made=2,
        renames=1,
        removes=1,
        lists=1,
    )


def test_it_remembers_which_files_were_opened(fs: MemFS) -> None:
    fs.open(B, create=True)
    fs.open(A, create=True)
    fs.open(B)
    assert fs.opened == [B, A, B]


def test_a_file_cannot_outgrow_its_memory_while_it_is_mapped(fs: MemFS) -> None:
    file = fs.open(A, create=True)
    file.allocate(8)
    mapping = file.map(8, writable=True)
    with pytest.raises(StorageError, match="while it is mapped"):
        file.allocate(1 << 20)
    part = mapping.view[:4]
    mapping.close()
    with pytest.raises(StorageError, match="while it is mapped"):
        file.allocate(1 << 20)
    part.release()
    mapping.view.release()
    file.allocate(1 << 20)
    assert file.size() == 1 << 20


def test_a_mapped_file_can_double(fs: MemFS) -> None:
    file = fs.open(A, create=True)
    file.allocate(100_000)
    mapping = file.map(100_000, writable=True)
    file.allocate(200_000)
    mapping.view[5] = 7
    assert file.map(200_000, writable=False).view[5] == 7


def test_a_large_file_costs_nothing_until_it_is_written(fs: MemFS) -> None:
    file = fs.open(A, create=True)
    file.allocate(1 << 30)
    file.pwrite(b"end", (1 << 30) - 3)
    assert file.pread(5, (1 << 30) - 5) == b"\0\0end"


def test_stores_past_a_cut_are_not_seen_after_growing(fs: MemFS) -> None:
    file = fs.open(A, create=True)
    file.allocate(8)
    mapping = file.map(8, writable=True)
    file.truncate(4)
    mapping.view[6] = 1
    file.truncate(8)
    assert file.pread(8, 0) == bytes(8)


def fill(fs: MemFS) -> None:
    file = fs.open(A, create=True)
    file.allocate(8)
    file.map(8, writable=True).close()
    file.pwrite(b"x", 0)
    file.pread(1, 0)
    file.truncate(4)
    file.sync()
    fs.list(Path("/"))
    fs.sync_directory(Path("/"))
    fs.make_directory(Path("/d"))
    fs.lock(Path("/lock")).close()
    fs.rename(A, B)
    fs.remove(B)


@pytest.mark.parametrize(
    ("op", "path"),
    [
        ("open", "a"),
        ("allocate", "a"),
        ("map", "a"),
        ("pwrite", "a"),
        ("pread", "a"),
        ("truncate", "a"),
        ("sync", "a"),
        ("list", "/"),
        ("sync_directory", "/"),
        ("make_directory", "d"),
        ("lock", "lock"),
        ("rename", "a"),
        ("rename", "b"),
        ("remove", "b"),
    ],
)
def test_any_operation_can_be_made_to_fail(fs: MemFS, op: str, path: str) -> None:
    fs.fail(op, path, StorageError("as planned"))
    with pytest.raises(StorageError, match="as planned"):
        fill(fs)
    fs.heal()
    fill(fs)


def test_a_fault_lets_some_pass_and_then_stays(fs: MemFS) -> None:
    fs.fail("sync", "a", OSError(5, "EIO"), after=2)
    file = fs.open(A, create=True)
    file.sync()
    file.sync()
    for _ in range(2):
        with pytest.raises(OSError, match="EIO"):
            file.sync()
    fs.heal()
    file.sync()


def test_a_fault_meets_only_its_path(fs: MemFS) -> None:
    fs.fail("pwrite", "a", StorageError("no"))
    fs.open(B, create=True).pwrite(b"x", 0)


def test_a_failed_operation_changes_nothing(fs: MemFS) -> None:
    file = fs.open(A, create=True)
    fs.fail("pwrite", "a", StorageError("no"))
    with pytest.raises(StorageError):
        file.pwrite(b"x", 0)
    assert file.size() == 0


def test_a_misspelt_operation_cannot_be_planned(fs: MemFS) -> None:
    with pytest.raises(ValueError, match="no operation 'fsync'"):
        fs.fail("fsync", "a", StorageError("no"))


def test_a_full_disk_refuses_growth_and_nothing_else() -> None:
    fs = MemFS(capacity_bytes=100)
    file = fs.open(A, create=True)
    file.allocate(90)
    other = fs.open(B, create=True)
    with pytest.raises(DiskFull):
        other.allocate(11)
    with pytest.raises(DiskFull):
        other.pwrite(b"x" * 11, 0)
    other.pwrite(b"x" * 10, 0)
    other.pwrite(b"", 1000)
    file.pwrite(b"y" * 90, 0)
    assert fs.used_bytes() == 100


def test_removing_a_file_makes_room() -> None:
    fs = MemFS(capacity_bytes=100)
    fs.open(A, create=True).allocate(100)
    fs.remove(A)
    fs.open(B, create=True).allocate(100)


def test_a_read_only_disk_can_be_read(fs: MemFS) -> None:
    fs.open(A, create=True).pwrite(b"abc", 0)
    fs.read_only = True
    assert fs.open(A).pread(3, 0) == b"abc"
    assert not fs.is_writable(Path("/"))
    for attempt in (
        lambda: fs.open(A, write=True),
        lambda: fs.open(B, create=True),
        lambda: fs.remove(A),
        lambda: fs.rename(A, B),
        lambda: fs.make_directory(B),
        lambda: fs.lock(B),
    ):
        with pytest.raises(ReadOnlyError):
            attempt()
    assert fs.list(Path("/")) == ["a"]


def test_threads_that_make_the_same_file_share_it(fs: MemFS) -> None:
    def write(index: int) -> None:
        fs.open(A, create=True).pwrite(bytes([index]), index)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fs.open(A).pread(8, 0) == bytes(range(8))
