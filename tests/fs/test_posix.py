"""What only the real disk has: modes, errno, and locks between processes."""

import errno
import fcntl
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.errors import DiskFull, LatewoodError, Locked, NotFoundError, ReadOnlyError, StorageError, TooManyFiles
from latewood.fs import PosixFS
from latewood.fs.file import PosixFile
from tests.forking import fork

FS = PosixFS()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may grow past 64 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("open_umask")
def test_files_and_directories_are_for_their_owner_alone(tmp_path: Path) -> None:
    FS.make_directory(tmp_path / "a" / "b")
    FS.open(tmp_path / "a" / "file", create=True).close()
    FS.lock(tmp_path / "a" / "lock").close()
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "file") == mode(tmp_path / "a" / "lock") == 0o600


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o644)
    FS.open(path, create=True).close()
    assert mode(path) == 0o644


@pytest.mark.usefixtures("small_files")
def test_a_file_that_may_not_grow_is_a_full_disk_and_the_error_names_it(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "file", create=True)
    with pytest.raises(DiskFull, match="ulimit -f") as caught:
        file.allocate(1 << 20)
    assert str(tmp_path / "file") in str(caught.value)
    with pytest.raises(DiskFull):
        file.pwrite(b"x", 1 << 20)
    file.close()


def test_a_file_in_the_place_of_a_directory_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotFoundError):
        FS.open(tmp_path / "file" / "below", create=True)
    with pytest.raises(NotFoundError, match="is a file, not a directory"):
        FS.make_directory(tmp_path / "file" / "below")


def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        FS.open(tmp_path, write=True)


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StorageError):
        FS.open(tmp_path / "loop")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, DiskFull),
        (errno.ENOENT, NotFoundError),
        (errno.ENOTDIR, NotFoundError),
        (errno.EROFS, ReadOnlyError),
        (errno.EACCES, ReadOnlyError),
        (errno.EPERM, ReadOnlyError),
        (errno.EIO, StorageError),
        (errno.EMFILE, TooManyFiles),
    ],
)
def test_an_error_is_sorted_by_what_the_caller_does_next(
    number: int, expected: type[LatewoodError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(expected, match=re.escape(os.strerror(number))) as caught:
        FS.open(Path("events/file"))
    assert type(caught.value) is expected
    assert "events/file" in str(caught.value)


def test_a_directory_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert FS.list(tmp_path / "missing") == []
    assert list(FS.walk(tmp_path / "missing")) == []
    assert not FS.is_writable(tmp_path / "missing")


def test_a_mapping_keeps_its_bytes_after_the_file_was_cut_away(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "file", create=True)
    file.pwrite(b"abcd" * 1024, 0)
    mapping = file.map(4096, writable=False)
    FS.remove(tmp_path / "file")
    file.close()
    assert bytes(mapping.view[:4]) == b"abcd"
    mapping.close()


def test_a_smaller_size_is_synced_with_all_its_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda _: calls.append("fdatasync"))
    file = FS.open(tmp_path / "file", create=True)
    file.pwrite(b"abcd", 0)
    file.sync()
    file.truncate(2)
    file.sync()
    file.sync()
    file.close()
    assert calls == ["fdatasync", "fsync", "fdatasync"]


def test_a_failed_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    file = FS.open(tmp_path / "file", create=True)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        file.sync()
    file.close()


# -- locks between processes --------------------------------------------------------------------------

HOLD = """
import sys, pathlib
from latewood.fs import PosixFS
lock = PosixFS().lock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds `tmp_path / "lock"` until it is told to end."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lock_of_another_process_names_that_process(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(Locked) as caught:
        FS.lock(tmp_path / "lock")
    assert caught.value.pid == holder.pid
    assert str(holder.pid) in str(caught.value)


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    holder.kill()
    holder.wait()
    FS.lock(tmp_path / "lock").close()


def test_a_lock_is_held_though_the_disk_has_no_room_to_say_by_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "pwrite", full)
        lock = FS.lock(tmp_path / "lock")
    with pytest.raises(Locked, match="another process"):
        FS.lock(tmp_path / "lock")
    lock.close()
    FS.lock(tmp_path / "lock").close()


def test_a_lock_file_that_names_nobody_is_locked_by_nobody_in_particular(tmp_path: Path) -> None:
    lock = FS.lock(tmp_path / "lock")
    (tmp_path / "lock").write_bytes(b"\0" * 20)
    with pytest.raises(Locked, match="another process") as caught:
        FS.lock(tmp_path / "lock")
    assert caught.value.pid == 0
    lock.close()


def test_a_forked_child_neither_holds_nor_frees_its_parents_lock(tmp_path: Path) -> None:
    lock = FS.lock(tmp_path / "lock")
    child = fork()
    if child == 0:  # pragma: no cover - another process
        lock.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(Locked):
        FS.lock(tmp_path / "lock")
    lock.close()


def test_a_forked_child_neither_holds_nor_frees_its_parents_locked_file(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "file", create=True)
    file.lock()
    awake, done = os.pipe(), os.pipe()
    child = fork()
    if child == 0:  # pragma: no cover - another process
        file.close()
        os.write(awake[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(awake[0], 1)
    second = FS.open(tmp_path / "file", write=True)
    with pytest.raises(Locked):
        second.lock()
    file.close()
    second.lock()
    second.close()
    os.write(done[1], b".")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*awake, *done):
        os.close(end)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_of_files_none_is_taken(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    for _ in range(2):
        file = FS.open(tmp_path / "file", create=True)
        file.lock()
        file.pwrite(b"x", 0)
        file.close()


def test_a_lock_is_held_though_the_number_of_its_process_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise StorageError("an input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "pwrite", failing)
        lock = FS.lock(tmp_path / "lock")
    with pytest.raises(Locked):
        FS.lock(tmp_path / "lock")
    lock.close()
    FS.lock(tmp_path / "lock").close()


def test_a_lock_that_cannot_be_given_up_ends_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = fcntl.flock

    def failing(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        take(descriptor, operation)

    fs = FS.rooted(tmp_path)
    lock = fs.lock_root(tmp_path / "lock")
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", failing)
        with pytest.raises(StorageError, match=re.escape(os.strerror(errno.EIO))):
            lock.close()
    fs.close()
    again = FS.rooted(tmp_path)
    again.lock_root(tmp_path / "lock").close()
    again.close()


def test_a_locked_file_that_cannot_be_unlocked_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = FS.open(tmp_path / "file", create=True)
    file.lock()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", failing)
        with pytest.raises(StorageError):
            file.close()
    again = FS.open(tmp_path / "file", write=True)
    again.lock()
    again.close()


def test_where_the_platform_has_no_locks_of_open_files_none_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    for _ in range(2):
        file = FS.open(tmp_path / "file", create=True)
        file.lock()
        file.close()


def test_a_lock_ends_with_its_parent_though_a_forked_child_lives_on(tmp_path: Path) -> None:
    awake, done = os.pipe(), os.pipe()
    lock = FS.lock(tmp_path / "lock")
    child = fork()
    if child == 0:  # pragma: no cover - another process
        os.write(awake[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(awake[0], 1)
    lock.close()
    FS.lock(tmp_path / "lock").close()
    os.write(done[1], b".")
    os.waitpid(child, 0)
    for end in (*awake, *done):
        os.close(end)
