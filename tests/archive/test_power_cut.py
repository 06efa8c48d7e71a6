"""A power cut at any step: a chunk, an object in a directory and a hydrated file are whole or not there."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from latewood.archive.chunk_reader import open_chunk
from latewood.archive.directory import DirectoryTier
from latewood.archive.names import parse_file_name
from latewood.archive.object_store import ObjectStoreTier
from latewood.archive.source import BytesSource, Digest, FileSource, digest_of
from latewood.archive.tier import Tier
from latewood.archive.transfer import evict, hydrate, upload
from latewood.errors import CorruptError
from latewood.testing import CrashFS
from tests.archive.records import Yard, batches_of

DATA: Final = bytes(range(256)) * 12
SOURCE: Final = BytesSource(DATA, Path("memory"))
DIGEST: Final = digest_of(SOURCE)
PATH: Final = Path("chunks/one.parquet")
KEY: Final = "clicks/one.parquet"


def write_chunk(fs: CrashFS) -> None:
    Yard(fs, random_bytes=secrets.token_bytes).write(batches_of(0, 60))
    fs.note = "done"


def check_chunk(fs: CrashFS) -> None:
    directory = Yard().site.directory
    names = [name for name in fs.list(directory) if parse_file_name(name)]
    assert names or fs.note != "done"
    for name in names:
        with open_chunk(fs, directory / name) as reader:
            assert reader.verify().row_count == 60


def put_object(fs: CrashFS) -> None:
    DirectoryTier(fs, Path("tier")).put(KEY, SOURCE, DIGEST)
    fs.note = "done"


def check_object(fs: CrashFS) -> None:
    tier = DirectoryTier(fs, Path("tier"))
    found = [digest_in(fs, Path("tier", info.key)) for info in tier.list()]
    assert found == [DIGEST] or (found == [] and fs.note != "done")


def archive() -> Tier:
    tier = ObjectStoreTier.open("memory:///")
    tier.put(KEY, SOURCE, DIGEST)
    return tier


def hydrate_file(fs: CrashFS) -> None:
    hydrate(archive(), KEY, fs, PATH, DIGEST)
    fs.note = "done"


def check_file(fs: CrashFS) -> None:
    assert fs.exists(PATH) or fs.note != "done"
    assert not fs.exists(PATH) or digest_in(fs, PATH) == DIGEST


def digest_in(fs: CrashFS, path: Path) -> Digest:
    return digest_of(FileSource(fs, path))


SCENES: Final = {
    "chunk": (write_chunk, check_chunk),
    "object": (put_object, check_object),
    "hydrated": (hydrate_file, check_file),
}
Scene = tuple[Callable[[CrashFS], None], Callable[[CrashFS], None]]


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_power_cut_at_any_step_shows_nothing_half(scene: Scene) -> None:
    action, check = scene
    count = 0
    for _, survivor in CrashFS().cuts_during(action, limit=60):
        check(survivor)
        action(survivor)
        check(survivor)
        count += 1
    assert count > 20


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("forgotten", [".tmp", "directory"])
def test_a_sync_that_is_forgotten_is_found(scene: Scene, forgotten: str) -> None:
    action, check = scene
    fs = CrashFS()
    for suffix in [".tmp"] if forgotten == ".tmp" else ["chunks", "clicks"]:
        fs.ignore_sync(suffix)
    survivors = [survivor for _, survivor in fs.cuts_during(action, limit=60)]
    assert not all(is_sound(check, survivor) for survivor in survivors)


def is_sound(check: Callable[[CrashFS], None], survivor: CrashFS) -> bool:
    try:
        check(survivor)
    except (AssertionError, CorruptError):
        return False
    return True


def test_an_eviction_never_takes_the_last_copy() -> None:
    fs = CrashFS()
    tier = ObjectStoreTier.open("memory:///")
    hydrate_file(fs)
    copy = upload(fs, PATH, tier, KEY, DIGEST)
    for _, survivor in fs.cuts_during(lambda fs: evict(fs, PATH, tier, copy)):
        assert not survivor.exists(PATH) or digest_in(survivor, PATH) == DIGEST
        evict(survivor, PATH, tier, copy)
        assert not survivor.exists(PATH)
    assert tier.head(KEY).size == DIGEST.size
