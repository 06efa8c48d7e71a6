"""System calls in groups: the native ones and their twins in Python do the same."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from latewood.fs import calls

PURE = SimpleNamespace(pwrite_all=calls._pwrite_all, sync_and_note=calls._sync_and_note)


@pytest.fixture(params=["picked", "pure"])
def twin(request: pytest.FixtureRequest) -> Any:
    return calls if request.param == "picked" else PURE


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[Callable[[str, int], int]]:
    opened = []

    def open_one(name: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        opened.append(os.open(tmp_path / name, flags, 0o600))
        return opened[-1]

    yield open_one
    for descriptor in opened:
        os.close(descriptor)


@pytest.mark.parametrize("head_bytes", [0, 8])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 99, 100, 101, 350])
@pytest.mark.parametrize("offset", [0, 1, 99, 100, 150])
def test_all_of_it_is_written_whatever_the_pieces(
    twin: Any, open_file: Any, length: int, offset: int, head_bytes: int
) -> None:
    descriptor, data = open_file("file"), bytes(range(1, 256)) * 2
    assert twin.pwrite_all(descriptor, memoryview(data)[:length], offset, 100, head_bytes) == 0
    assert os.pread(descriptor, 1000, 0) == (bytes(offset) + data[:length] if length else b"")


def test_the_head_is_written_last(twin: Any, open_file: Any, tmp_path: Path) -> None:
    descriptor = open_file("file")
    (tmp_path / "file").write_bytes(bytes(64))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))
    try:
        assert twin.pwrite_all(descriptor, b"x" * 64, 0, 20, 8) == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.pread(descriptor, 64, 0) == bytes(8) + b"x" * 32 + bytes(24)


def test_a_note_is_written_after_the_sync(twin: Any, open_file: Any) -> None:
    file, note = open_file("file"), open_file("note")
    os.pwrite(note, b"before", 0)
    assert twin.sync_and_note(file, False, note, b"after", True) == (0, 0)  # noqa: FBT003
    assert os.pread(note, 9, 0) == b"aftere"


def test_the_step_that_failed_is_told(twin: Any, open_file: Any) -> None:
    reading, writing = os.pipe()  # A pipe can neither be synced nor written at an offset.
    file, note = open_file("file"), open_file("note")
    os.pwrite(note, b"before", 0)
    read_only = open_file("note", os.O_RDONLY)
    try:
        assert twin.sync_and_note(writing, False, note, b"after", True) == (calls.SYNC, errno.EINVAL)  # noqa: FBT003
        assert os.pread(note, 9, 0) == b"before"
        assert twin.sync_and_note(file, True, read_only, b"after", True) == (calls.NOTE_WRITE, errno.EBADF)  # noqa: FBT003
        assert os.pread(note, 9, 0) == b"before"
    finally:
        os.close(reading)
        os.close(writing)
