"""Chunks travel between disk and tier, and a cut after any step loses nothing."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from latewood.archive.chunk_reader import ChunkReader
from latewood.archive.directory import DirectoryTier
from latewood.archive.object_store import ObjectStoreTier
from latewood.archive.sink import FILE_STEPS
from latewood.archive.source import Digest, FileSource, digest_of
from latewood.archive.tier import Tier, TierSource, find, verify_object
from latewood.archive.transfer import (
    EVICT_STEPS,
    HYDRATE_STEPS,
    UPLOAD_STEPS,
    RemoteCopy,
    confirm,
    evict,
    hydrate,
    upload,
)
from latewood.errors import ConflictError, CorruptError, DiskFull, NotFoundError, ObjectConflict, UsageError
from latewood.fs import FileSystem
from latewood.testing import MemFS
from tests.archive.records import Yard
from tests.archive.servers import Server

PATH: Final = Path("chunks/one.parquet")
KEY: Final = "clicks/00003/one.parquet"
DATA: Final = bytes(range(256)) * 64
NUMBERS: Final = count()


class Cut(BaseException):
    """The worker dies here."""


def cut_after(step: str) -> Callable[[str], None]:
    def hook(done: str) -> None:
        if done == step:
            raise Cut

    return hook


def written(data: bytes = DATA, fs: FileSystem | None = None, path: Path = PATH) -> tuple[FileSystem, Digest]:
    fs = fs or MemFS()
    fs.make_directory(path.parent)
    file = fs.open(path, create=True)
    file.pwrite(data, 0)
    file.sync()
    file.close()
    fs.sync_directory(path.parent)
    return fs, digest_of(FileSource(fs, path))


def holds(fs: FileSystem, path: Path = PATH) -> bool:
    return fs.exists(path) and digest_of(FileSource(fs, path)) == digest_of(FileSource(written()[0], PATH))


SLOW: Final = [pytest.param(name, marks=pytest.mark.slow) for name in ("moto", "weed")]


@pytest.fixture(params=["memory", "directory", *SLOW])
def tier(request: pytest.FixtureRequest) -> Tier:
    if request.param == "memory":
        return ObjectStoreTier.open("memory:///")
    if request.param == "directory":
        return DirectoryTier(MemFS(), Path("tier"))
    return server_tier(request.getfixturevalue(request.param))


def server_tier(server: Server) -> Tier:
    return server.tier(f"transfer-{next(NUMBERS)}")


def test_there_and_back(tier: Tier) -> None:
    fs, digest = written()
    steps: list[str] = []
    copy = upload(fs, PATH, tier, KEY, digest, steps.append)
    assert steps == list(UPLOAD_STEPS)
    assert copy == RemoteCopy(tier.name, copy.info, digest, verified=True)
    evict(fs, PATH, tier, copy, steps.append)
    assert steps[3:] == list(EVICT_STEPS)
    assert not fs.exists(PATH)
    hydrate(tier, KEY, fs, PATH, digest, hook=steps.append)
    assert steps[6:] == list(HYDRATE_STEPS)
    assert holds(fs)


@pytest.mark.parametrize("step", UPLOAD_STEPS)
def test_an_upload_that_was_cut_is_finished_by_the_next(tier: Tier, step: str) -> None:
    fs, digest = written()
    with pytest.raises(Cut):
        upload(fs, PATH, tier, KEY, digest, cut_after(step))
    assert holds(fs)
    info = find(tier, KEY)
    assert (info is None) == (step == "checked")
    assert upload(fs, PATH, tier, KEY, digest).verified
    assert upload(fs, PATH, tier, KEY, digest).verified
    assert [info.key for info in tier.list()] == [KEY]


@pytest.mark.parametrize("step", HYDRATE_STEPS)
def test_a_hydration_that_was_cut_is_finished_by_the_next(tier: Tier, step: str) -> None:
    fs, digest = written()
    upload(fs, PATH, tier, KEY, digest)
    fs.remove(PATH)
    with pytest.raises(Cut):
        hydrate(tier, KEY, fs, PATH, digest, hook=cut_after(step))
    assert holds(fs) == (step in {"renamed", "durable"})
    hydrate(tier, KEY, fs, PATH, digest)
    assert holds(fs)
    assert fs.list(PATH.parent) == [PATH.name]


@pytest.mark.parametrize("step", EVICT_STEPS)
def test_an_eviction_that_was_cut_is_finished_by_the_next(tier: Tier, step: str) -> None:
    fs, digest = written()
    copy = upload(fs, PATH, tier, KEY, digest)
    with pytest.raises(Cut):
        evict(fs, PATH, tier, copy, cut_after(step))
    verify_object(tier, KEY, digest)
    evict(fs, PATH, tier, copy)
    assert not fs.exists(PATH)


@pytest.mark.parametrize("step", FILE_STEPS)
def test_a_directory_never_shows_half_an_object(step: str) -> None:
    fs, digest = written()
    remote = MemFS()
    dying = DirectoryTier(remote, Path("tier"), hook=cut_after(step))
    with pytest.raises(Cut):
        upload(fs, PATH, dying, KEY, digest)
    tier = DirectoryTier(remote, Path("tier"))
    assert [info.size for info in tier.list()] in ([], [digest.size])
    assert upload(fs, PATH, tier, KEY, digest).verified
    assert [info.key for info in tier.list()] == [KEY]


def test_a_file_that_changed_is_not_uploaded(tier: Tier) -> None:
    fs, digest = written()
    file = fs.open(PATH, write=True)
    file.pwrite(b"\xff", 100)
    file.close()
    with pytest.raises(CorruptError):
        upload(fs, PATH, tier, KEY, digest)
    assert find(tier, KEY) is None


def test_an_object_that_is_another_is_neither_overwritten_nor_taken(tier: Tier) -> None:
    fs, digest = written()
    other, other_digest = written(b"other" * 100)
    upload(other, PATH, tier, KEY, other_digest)
    with pytest.raises(ObjectConflict):
        upload(fs, PATH, tier, KEY, digest)
    empty = MemFS()
    with pytest.raises(CorruptError):
        hydrate(tier, KEY, empty, PATH, digest)
    assert empty.list(PATH.parent) == []
    with pytest.raises(CorruptError):
        confirm(tier, KEY, digest)


def test_half_an_object_is_never_taken_for_a_whole_one() -> None:
    fs, digest = written()
    tier = ObjectStoreTier.open("memory:///")
    half, half_digest = written(DATA[: len(DATA) // 2])
    upload(half, PATH, tier, KEY, half_digest)
    with pytest.raises(ObjectConflict):
        upload(fs, PATH, tier, KEY, digest)
    with pytest.raises(CorruptError):
        confirm(tier, KEY, digest)
    with pytest.raises(CorruptError):
        evict(fs, PATH, tier, RemoteCopy(tier.name, tier.head(KEY), digest, verified=True))
    assert holds(fs)


@pytest.mark.parametrize("why", ["no copy", "not verified", "another tier", "gone"])
def test_nothing_is_evicted_without_proof(why: str) -> None:
    fs, digest = written()
    tier = ObjectStoreTier.open("memory:///")
    copy = upload(fs, PATH, tier, KEY, digest)
    copies = {
        "no copy": None,
        "not verified": copy._replace(verified=False),
        "another tier": copy._replace(tier="s3://elsewhere"),
        "gone": copy,
    }
    if why == "gone":
        tier.delete(KEY)
    with pytest.raises((UsageError, NotFoundError)):
        evict(fs, PATH, tier, copies[why])
    assert holds(fs)


def test_a_file_that_is_there_already_is_left_as_it_is(tier: Tier) -> None:
    fs, digest = written()
    upload(fs, PATH, tier, KEY, digest)
    steps: list[str] = []
    hydrate(tier, KEY, fs, PATH, digest, hook=steps.append)
    assert steps == ["present"]
    other, _ = written(b"other")
    with pytest.raises(ConflictError):
        hydrate(tier, KEY, other, PATH, digest)


def test_a_full_disk_leaves_nothing_half(tier: Tier) -> None:
    fs, digest = written()
    upload(fs, PATH, tier, KEY, digest)
    small = MemFS()
    small.capacity_bytes = 1000
    with pytest.raises(DiskFull):
        hydrate(tier, KEY, small, PATH, digest)
    assert small.list(PATH.parent) == []


def test_a_chunk_is_read_where_it_is(tier: Tier) -> None:
    yard = Yard()
    chunk = yard.one(0, 500)
    key = chunk.name.object_key("clicks")
    upload(yard.fs, chunk.path, tier, key, chunk.digest)
    with ChunkReader(TierSource(tier, key)) as reader:
        assert reader.verify() == chunk.meta
        assert sum(batch.num_rows for batch in reader.batches(400)) == 100
