"""A tier in a directory: what a put that was killed has left goes, and what another is at work on stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import pytest

from latewood.archive.directory import DirectoryTier
from latewood.archive.names import temporary_name, token_of_lock
from latewood.archive.source import BytesSource, digest_of
from latewood.errors import StorageError
from latewood.fs import PosixFS
from latewood.testing import MemFS
from tests.patience import SECONDS_MAX

KEY: Final = "clicks/00003/chunk.parquet"
PREFIX: Final = "clicks/00003/"
SOURCE: Final = BytesSource(bytes(5000), Path("memory"))
DIGEST: Final = digest_of(SOURCE)
TOKEN: Final = "ab" * 16


class LocklessFS(PosixFS):
    """A mount that has no locks."""

    def lock(self, path: Path) -> NoReturn:
        super().lock(path).close()  # It made the file before it asked for the lock.
        raise StorageError(f"{path}: No locks available")


def killed_at(root: Path, step: str) -> None:
    """Have a process put an object, and kill it after a step."""
    script = f"""
import os, signal
from pathlib import Path
from latewood.archive.directory import DirectoryTier
from latewood.archive.source import BytesSource, digest_of
from latewood.fs import PosixFS
source = BytesSource(bytes(5000), Path("memory"))
hook = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == {step!r} else None
DirectoryTier(PosixFS(), Path({str(root)!r}), hook=hook).put({KEY!r}, source, digest_of(source))
"""
    result = subprocess.run([sys.executable, "-c", script], check=False, timeout=SECONDS_MAX)
    assert result.returncode == -signal.SIGKILL


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root / PREFIX))  # noqa: PTH208 - names are what is compared


@pytest.mark.parametrize("step", ["written", "synced", "renamed", "durable"])
def test_what_a_killed_put_left_goes_with_the_next_sweep(tmp_path: Path, step: str) -> None:
    killed_at(tmp_path, step)
    is_there = step in {"renamed", "durable"}
    assert len(names(tmp_path)) == 2, "the file, finished or not, and its lock"
    tier, steps = DirectoryTier(PosixFS(), tmp_path), list[str]()
    assert len(tier.sweep(PREFIX, steps.append)) == len(steps) == 1
    assert names(tmp_path) == (["chunk.parquet"] if is_there else [])
    assert [info.key for info in tier.list()] == ([KEY] if is_there else [])
    assert tier.sweep(PREFIX) == []
    tier.put(KEY, SOURCE, DIGEST)
    assert names(tmp_path) == ["chunk.parquet"]


@pytest.mark.parametrize("make", [PosixFS, MemFS])
def test_what_another_is_at_work_on_stays(tmp_path: Path, make: Callable[[], PosixFS | MemFS]) -> None:
    fs, seen = make(), list[str]()

    def look(step: str) -> None:
        assert DirectoryTier(fs, tmp_path).sweep(PREFIX) == []
        assert list(DirectoryTier(fs, tmp_path).list()) == [] or step in {"renamed", "durable"}
        seen.append(step)

    DirectoryTier(fs, tmp_path, hook=look).put(KEY, SOURCE, DIGEST)
    assert seen == ["written", "synced", "renamed", "durable"]
    assert fs.list(tmp_path / PREFIX) == ["chunk.parquet"]


def test_a_put_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(step: str) -> None:
        raise ValueError(step)

    with pytest.raises(ValueError, match="written"):
        DirectoryTier(PosixFS(), tmp_path, hook=fail).put(KEY, SOURCE, DIGEST)
    assert names(tmp_path) == []


def test_an_unfinished_file_of_an_older_program_goes_too(tmp_path: Path) -> None:
    tier = DirectoryTier(PosixFS(), tmp_path)
    tier.put(KEY, SOURCE, DIGEST)
    (tmp_path / PREFIX / temporary_name(TOKEN)).write_bytes(b"half")
    (tmp_path / PREFIX / "notes.txt").write_bytes(b"not ours")
    assert tier.sweep(PREFIX) == [temporary_name(TOKEN)]
    assert names(tmp_path) == ["chunk.parquet", "notes.txt"]


def test_where_there_are_no_locks_objects_are_put_and_nothing_is_swept(tmp_path: Path) -> None:
    tier = DirectoryTier(LocklessFS(), tmp_path)
    tier.put(KEY, SOURCE, DIGEST)
    assert names(tmp_path) == ["chunk.parquet"]
    (tmp_path / PREFIX / temporary_name(TOKEN)).write_bytes(b"half")
    assert tier.sweep(PREFIX) == []
    assert not [name for name in names(tmp_path) if token_of_lock(name)]


def test_a_sweep_of_nothing_finds_nothing(tmp_path: Path) -> None:
    assert DirectoryTier(PosixFS(), tmp_path).sweep(PREFIX) == []


def test_a_put_that_holds_no_lock_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unlocked:
        def close(self) -> None:
            pass

    monkeypatch.setattr(MemFS, "lock", lambda *_: Unlocked())
    with pytest.raises(AssertionError):
        test_what_another_is_at_work_on_stays(tmp_path, MemFS)
