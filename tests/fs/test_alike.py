"""The disk in memory does what the real one does, whatever is asked of it in whatever order.

Operation by operation this is checked in tests/testing/test_fs_suite.py; here a random walk looks for an order of
them in which the two come apart.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from latewood.errors import LatewoodError
from latewood.fs import FileSystem, PosixFS
from latewood.testing import MemFS

NAMES = ["a", "b", "d/a", "d/e/a"]
names = st.sampled_from(NAMES)
sizes = st.sampled_from([0, 1, 3, 100, 4096, 5000])


def outcome(action: Callable[[FileSystem], object], fs: FileSystem) -> object:
    """What came back, or the kind of error."""
    try:
        return action(fs)
    except LatewoodError as error:
        return type(error)


class Alike(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="latewood-alike-"))
        self.disks: list[FileSystem] = [PosixFS(), MemFS()]
        self.same(lambda fs: fs.make_directory(self.home))

    def teardown(self) -> None:
        shutil.rmtree(self.home)

    def same(self, action: Callable[[FileSystem], object]) -> None:
        real, memory = (outcome(action, fs) for fs in self.disks)
        assert real == memory

    @rule(name=names, data=st.binary(max_size=50), offset=sizes, create=st.booleans())
    def write(self, name: str, data: bytes, offset: int, *, create: bool) -> None:
        def action(fs: FileSystem) -> None:
            file = fs.open(self.home / name, write=True, create=create)
            file.pwrite(data, offset)
            file.close()

        self.same(action)

    @rule(name=names, length=sizes.filter(bool), offset=sizes)  # reading nothing of a directory is no error to POSIX
    def read(self, name: str, length: int, offset: int) -> None:
        def action(fs: FileSystem) -> tuple[int, bytes]:
            file = fs.open(self.home / name)
            try:
                return file.size(), file.pread(length, offset)
            finally:
                file.close()

        self.same(action)

    @rule(name=names, size=sizes.filter(bool), grow=st.booleans())
    def resize(self, name: str, size: int, *, grow: bool) -> None:
        def action(fs: FileSystem) -> int:
            file = fs.open(self.home / name, write=True)
            try:
                file.allocate(size) if grow else file.truncate(size)
                file.sync()
                return file.size()
            finally:
                file.close()

        self.same(action)

    @rule(name=names, value=st.integers(0, 255))
    def store_through_a_mapping(self, name: str, value: int) -> None:
        def action(fs: FileSystem) -> bytes | None:
            file = fs.open(self.home / name, write=True)
            try:
                if not file.size():
                    return None
                mapping = file.map(file.size(), writable=True)
                mapping.view[-1] = value
                mapping.close()
                return file.pread(10, 0)
            finally:
                file.close()

        self.same(action)

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        self.same(lambda fs: fs.rename(self.home / old, self.home / new))

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.same(lambda fs: fs.remove(self.home / name))

    @rule(name=st.sampled_from(["d", "d/e", "a"]))
    def make_directory(self, name: str) -> None:
        self.same(lambda fs: fs.make_directory(self.home / name))

    @invariant()
    def the_names_are_the_same(self) -> None:
        self.same(lambda fs: list(fs.walk(self.home)))
        self.same(lambda fs: [fs.list(self.home / name) for name in ("", "d", "d/e", "missing")])
        self.same(lambda fs: [fs.exists(self.home / name) for name in NAMES])


Alike.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestAlike = pytest.mark.slow(Alike.TestCase)
