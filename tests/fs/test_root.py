"""A directory that is held open: what becomes of it when its path leads elsewhere, and who may lock it."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from latewood.errors import ClosedError, ConflictError, DirectoryReplaced, Forked, Locked, NotFoundError
from latewood.fs import FileSystem, PosixFS
from latewood.fs import root as root_module
from latewood.testing import MemFS
from tests.forking import fork


class Place:
    """A disk, and what is done behind its back."""

    def __init__(self, disk: FileSystem, base: Path) -> None:
        self.disk, self.home, self.elsewhere, self.other = disk, base / "home", base / "elsewhere", base / "other"
        disk.make_directory(self.home)
        self.fs = disk.rooted(self.home)

    def put(self, path: Path, data: bytes = b"") -> None:
        file = self.disk.open(path, create=True)
        file.pwrite(data, 0)
        file.close()

    def move_away(self) -> None:
        self.disk.rename(self.home, self.elsewhere)

    def replace(self) -> None:
        self.move_away()
        self.disk.make_directory(self.home)

    def delete(self) -> None:
        self.disk.remove_tree(self.home)

    def make_anew(self) -> None:
        """Real file systems like to give the same inode again."""
        for _ in range(8):
            self.delete()
            self.disk.make_directory(self.home)

    def put_a_file_there(self) -> None:
        self.move_away()
        self.put(self.home)


@pytest.fixture(params=["descriptor", "path", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(root_module, "OPENS_BY_DESCRIPTOR", request.param == "descriptor")
    place = Place(MemFS() if request.param == "memory" else PosixFS(), tmp_path)
    yield place
    place.fs.close()


# -- the check ----------------------------------------------------------------------------------------


def test_a_directory_that_stays_where_it_is_is_found(place: Place) -> None:
    place.fs.check_root()
    place.put(place.home / "a")
    place.fs.make_directory(place.home / "below")
    place.fs.check_root()


@pytest.mark.parametrize("event", ["move_away", "replace", "delete", "make_anew", "put_a_file_there"])
def test_a_directory_that_its_path_does_not_lead_to_is_missed(place: Place, event: str) -> None:
    getattr(place, event)()
    with pytest.raises(DirectoryReplaced) as caught:
        place.fs.check_root()
    assert caught.value.path == place.home
    assert str(place.home) in str(caught.value)


def test_a_directory_that_comes_back_is_found(place: Place) -> None:
    place.move_away()
    place.disk.rename(place.elsewhere, place.home)
    place.fs.check_root()


def test_a_directory_above_may_be_replaced_too(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    fs = PosixFS().rooted(tmp_path / "a" / "b")
    (tmp_path / "a").rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "a")
    with pytest.raises(DirectoryReplaced, match="another directory is there now"):
        fs.check_root()
    fs.close()


def test_a_link_that_is_set_anew_is_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")
    fs = PosixFS().rooted(link)
    fs.check_root()
    link.unlink()
    link.symlink_to("two")
    with pytest.raises(DirectoryReplaced):
        fs.check_root()
    fs.close()


def test_an_error_that_says_nothing_of_the_directory_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = PosixFS().rooted(tmp_path)

    def fail(*_: object, **__: object) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fail)
        with pytest.raises(Exception, match="Input/output error") as caught:
            fs.check_root()
    assert not isinstance(caught.value, DirectoryReplaced)
    fs.close()


def test_before_a_name_changes_the_root_is_looked_for(place: Place) -> None:
    place.put(place.home / "a", b"a")
    fs, home = place.fs, place.home
    place.replace()
    for attempt in (
        lambda: fs.open(home / "b", create=True),
        lambda: fs.make_directory(home / "d"),
        lambda: fs.rename(home / "a", home / "b"),
        lambda: fs.rename_new(home / "a", home / "b"),
        lambda: fs.remove(home / "a"),
        lambda: fs.remove_tree(home / "a"),
        lambda: fs.lock(home / "b"),
    ):
        with pytest.raises(DirectoryReplaced):
            attempt()
    assert place.disk.list(home) == []
    assert place.disk.list(place.elsewhere) == ["a"]


# -- what is below ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["descriptor", "memory"], indirect=True)
def test_whatever_is_done_below_is_done_in_the_directory_that_was_opened(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that is replaced between the look at its path and what is done."""
    monkeypatch.setattr(type(place.fs), "check_root", lambda _: None)
    place.put(place.home / "old", b"old")
    place.replace()
    fs, home = place.fs, place.home
    assert fs.list(home) == ["old"]
    assert list(fs.walk(home)) == [home / "old"]
    assert fs.open(home / "old").pread(9, 0) == b"old"
    fs.make_directory(home / "a" / "b")
    fs.open(home / "a" / "b" / "new", create=True).close()
    fs.sync_directory(home / "a")
    fs.rename(home / "old", home / "a" / "moved")
    fs.rename_new(home / "a" / "b" / "new", home / "new")
    fs.lock(home / "lock").close()
    fs.remove(home / "lock")
    assert [*fs.walk(home)] == [home / "new", home / "a" / "moved"]
    assert fs.exists(home / "new")
    assert fs.is_writable(home)
    fs.remove_tree(home / "a")
    assert place.disk.list(place.home) == []
    assert place.disk.list(place.elsewhere) == ["new"]


def test_what_is_not_below_is_found_by_its_path(place: Place) -> None:
    place.fs.open(place.other, create=True).close()
    place.fs.rename(place.other, place.home / "a")
    place.fs.sync_directory(place.home.parent)
    assert place.disk.list(place.home) == ["a"]


def test_a_path_that_only_begins_alike_is_not_below(place: Place) -> None:
    neighbour = place.home.with_name(place.home.name + "-2")
    place.disk.make_directory(neighbour)
    assert place.fs.list(neighbour) == []
    place.disk.remove_tree(neighbour)
    assert not place.fs.exists(neighbour)


def test_a_directory_that_is_not_there_is_no_root(place: Place) -> None:
    with pytest.raises(NotFoundError):
        place.disk.rooted(place.other)
    with pytest.raises(NotFoundError):
        place.fs.rooted(place.home / "missing")


def test_a_closed_root_gives_nothing_any_more(tmp_path: Path) -> None:
    fs = PosixFS().rooted(tmp_path)
    file = fs.open(tmp_path / "a", create=True)
    fs.close()
    fs.close()
    with pytest.raises(ClosedError):
        fs.open(tmp_path / "a")
    file.pwrite(b"x", 0)
    file.close()


def test_a_root_is_closed_once_nobody_is_using_it(tmp_path: Path) -> None:
    root = root_module.Root(tmp_path)
    with root as descriptor:
        root.close()
        os.fstat(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


# -- a root below a root ------------------------------------------------------------------------------


def test_a_root_below_shares_what_is_open_and_checks_its_own(place: Place) -> None:
    below = place.home / "below"
    place.disk.make_directory(below)
    inner = place.fs.rooted(below)
    place.disk.rename(below, place.home / "moved")
    place.disk.make_directory(below)
    place.fs.check_root()
    with pytest.raises(DirectoryReplaced) as caught:
        inner.check_root()
    assert caught.value.path == below


def test_a_root_below_is_replaced_with_the_one_above(place: Place) -> None:
    below = place.home / "below"
    place.disk.make_directory(below)
    inner = place.fs.rooted(below)
    place.replace()
    place.disk.make_directory(below)
    with pytest.raises(DirectoryReplaced):
        inner.check_root()


@pytest.mark.needs("proc")
def test_roots_below_one_another_take_one_descriptor(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    fs = PosixFS().rooted(tmp_path)
    inner = [fs.rooted(tmp_path / str(number)) for number in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208
    inner[0].close()
    inner[1].open(tmp_path / "1" / "a", create=True).close()
    fs.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# -- locks --------------------------------------------------------------------------------------------


def test_a_root_is_locked_once(place: Place) -> None:
    lock = place.fs.lock_root(place.home / "lock")
    with pytest.raises(Locked) as caught:
        place.disk.rooted(place.home).lock_root(place.home / "lock")
    assert caught.value.pid == os.getpid()
    lock.close()
    place.disk.rooted(place.home).lock_root(place.home / "lock").close()


def test_the_removal_of_its_lock_file_lets_nobody_in_and_is_noticed(place: Place) -> None:
    lock = place.fs.lock_root(place.home / "lock")
    place.fs.check_root()
    place.disk.remove(place.home / "lock")
    with pytest.raises(DirectoryReplaced, match="lock"):
        place.fs.check_root()
    with pytest.raises(Locked, match="is being written by"):
        place.disk.rooted(place.home).lock_root(place.home / "lock")
    assert place.disk.list(place.home) == []
    lock.close()


def test_a_program_that_knows_the_lock_file_only_is_kept_out(place: Place) -> None:
    lock = place.fs.lock_root(place.home / "lock")
    with pytest.raises(Locked):
        place.disk.lock(place.home / "lock")
    lock.close()
    old = place.disk.lock(place.home / "lock")
    for _ in range(2):  # The first attempt leaves nothing locked.
        with pytest.raises(Locked):
            place.fs.lock_root(place.home / "lock")
    old.close()
    place.fs.lock_root(place.home / "lock").close()


def test_a_lock_file_that_another_took_the_place_of_is_noticed(place: Place) -> None:
    lock = place.fs.lock_root(place.home / "lock")
    place.disk.remove(place.home / "lock")
    place.put(place.home / "lock")
    with pytest.raises(DirectoryReplaced, match="lock"):
        lock.check()
    with pytest.raises(DirectoryReplaced, match="lock"):
        place.fs.check_root()
    lock.close()


def test_a_part_of_a_root_is_locked_without_the_whole(place: Place) -> None:
    first = place.fs.lock_root(place.home / "one", whole=False)
    second = place.disk.rooted(place.home).lock_root(place.home / "two", whole=False)
    first.close()
    second.close()


def test_a_root_below_another_is_locked_by_its_lock_file_alone(place: Place) -> None:
    whole = place.fs.lock_root(place.home / "lock")
    place.disk.make_directory(place.home / "below")
    inner = place.fs.rooted(place.home / "below")
    lock = inner.lock_root(place.home / "below" / "lock")
    place.disk.remove(place.home / "below" / "lock")
    with pytest.raises(DirectoryReplaced):
        inner.check_root()
    place.fs.check_root()
    lock.close()
    whole.close()


def no_directory_locks(number: int, flock: Callable[[int, int], None] = fcntl.flock) -> Callable[[int, int], None]:
    def locked(descriptor: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(number, os.strerror(number))
        flock(descriptor, operation)

    return locked


@pytest.mark.needs("proc")
@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOTSUP, errno.ENOLCK])
def test_where_directories_cannot_be_locked_the_lock_file_is(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_directory_locks(number))
    fs = PosixFS().rooted(tmp_path)
    lock = fs.lock_root(tmp_path / "lock")
    other = PosixFS().rooted(tmp_path)
    with pytest.raises(Locked):
        other.lock_root(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    with pytest.raises(DirectoryReplaced):  # Two may hold a lock now, and the first is told before it goes on.
        fs.check_root()
    lock.close()
    for one in (fs, other):
        one.close()


def test_a_lock_file_that_goes_while_it_is_being_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "lock", fcntl.flock
    times = iter(range(3))

    def removed_meanwhile(descriptor: int, operation: int) -> None:
        if next(times, None) is not None:
            path.unlink()
        flock(descriptor, operation)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", removed_meanwhile)
        lock = PosixFS().lock(path)
    with pytest.raises(Locked):
        PosixFS().lock(path)
    lock.check()
    lock.close()


def test_a_lock_file_that_is_always_gone_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lambda *_: path.unlink())
        with pytest.raises(Exception, match="again and again"):
            PosixFS().lock(path)


# -- a name that is free ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV])
def test_where_a_file_cannot_have_two_names_a_free_one_is_looked_for(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    fs = PosixFS().rooted(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(ConflictError):
        fs.rename_new(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "b"
    fs.rename_new(tmp_path / "a", tmp_path / "c")
    assert fs.list(tmp_path) == ["b", "c"]
    fs.close()


@pytest.mark.parametrize("place", ["descriptor", "path"], indirect=True)
def test_a_name_that_a_file_server_gave_and_is_asked_for_again_is_given(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was lost, the request was sent again, and the answer to that is that the name is taken."""

    def linked_twice(*names: Any, link: Callable[..., None] = os.link, **descriptors: Any) -> None:
        link(*names, **descriptors)
        link(*names, **descriptors)

    place.put(place.home / "a", b"a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", linked_twice)
        place.fs.rename_new(place.home / "a", place.home / "b")
    assert place.disk.list(place.home) == ["b"]


@pytest.mark.parametrize("place", ["descriptor", "path"], indirect=True)
def test_a_link_whose_target_is_gone_takes_a_name_too(place: Place, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("missing")
    place.put(place.home / "a")
    with pytest.raises(ConflictError):
        place.fs.rename_new(place.home / "a", tmp_path / "link")


# -- the current directory ----------------------------------------------------------------------------


def test_a_relative_path_is_made_absolute_and_its_links_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    fs = PosixFS().rooted(Path("link"))
    assert PosixFS().absolute(Path("link")) == tmp_path / "link"
    monkeypatch.chdir("/")
    fs.check_root()
    fs.open(tmp_path / "link" / "a", create=True).close()
    assert (tmp_path / "real" / "a").exists()
    fs.close()


def test_where_the_current_directory_is_gone_a_relative_path_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(NotFoundError):
        PosixFS().absolute(Path("events"))


# -- fork ---------------------------------------------------------------------------------------------


def in_child(check: Callable[[], bool]) -> bool:
    child = fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_lets_go_of_the_root_and_the_parent_keeps_it(tmp_path: Path) -> None:
    fs = PosixFS().rooted(tmp_path)
    lock = fs.lock_root(tmp_path / "lock")
    root = fs._root
    assert root is not None
    with root as descriptor:
        pass

    def lets_go() -> bool:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        with pytest.raises(Forked):
            fs.open(tmp_path / "a", create=True)
        lock.close()
        own = PosixFS().rooted(tmp_path)
        with pytest.raises(Locked):
            own.lock_root(tmp_path / "lock")
        return True

    assert in_child(lets_go)
    with pytest.raises(Locked):
        PosixFS().rooted(tmp_path).lock_root(tmp_path / "lock")
    fs.open(tmp_path / "a", create=True).close()
    lock.close()
    fs.close()


def test_the_lock_of_a_root_ends_with_its_parent_though_a_forked_child_lives_on(tmp_path: Path) -> None:
    awake, done = os.pipe(), os.pipe()
    fs = PosixFS().rooted(tmp_path)
    lock = fs.lock_root(tmp_path / "lock")
    child = fork()
    if child == 0:  # pragma: no cover - another process
        os.write(awake[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(awake[0], 1)
    lock.close()
    fs.close()
    again = PosixFS().rooted(tmp_path)
    again.lock_root(tmp_path / "lock").close()
    again.close()
    os.write(done[1], b".")
    os.waitpid(child, 0)
    for end in (*awake, *done):
        os.close(end)
