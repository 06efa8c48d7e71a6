"""An object is taken for the one that was verified only if its tier says so, or if its bytes do."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from latewood.archive.directory import DirectoryTier
from latewood.archive.object_store import ObjectStoreTier
from latewood.archive.source import BytesSource, digest_of
from latewood.archive.tier import ObjectInfo, Tier, confirm_object, verify_object
from latewood.catalog.tables import ChunkKey, LocalAndRemote
from latewood.errors import CorruptError, NotFoundError, UsageError
from latewood.fs import PosixFS
from latewood.jobs.handlers.chunks import object_of
from latewood.testing import MemFS
from tests.runtime.pond import Pond, directory_tier

if TYPE_CHECKING:
    from tests.archive.servers import Server

KEY = "clicks/00003/chunk.parquet"
DATA = b"what was archived"
NUMBERS = count()


class Watched:
    """A tier that tells how often it was read from."""

    def __init__(self, tier: Tier) -> None:
        self._tier, self.reads = tier, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tier, name)

    def get(self, key: str, offset: int, length: int) -> bytes:
        self.reads += 1
        return self._tier.get(key, offset, length)

    def replace(self, data: bytes) -> None:
        """Put other bytes under the key, as another program would."""
        self._tier.delete(KEY)
        source = BytesSource(data, Path("memory"))
        self._tier.put(KEY, source, digest_of(source))


@pytest.fixture(
    params=[
        "directory",
        "directory in memory",
        "file",
        "memory",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("moto", "moto in parts", "weed", "weed in parts")),
    ]
)
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    match request.param:
        case "directory":
            yield Watched(DirectoryTier(PosixFS(), tmp_path / "tier"))
        case "directory in memory":
            yield Watched(DirectoryTier(MemFS(), Path("tier")))
        case "file":
            yield Watched(ObjectStoreTier.open((tmp_path / "tier").as_uri()))
        case "memory":
            yield Watched(ObjectStoreTier.open("memory:///"))
        case name:
            server: Server = request.getfixturevalue(name.partition(" ")[0])
            is_large, prefix = name.endswith("in parts"), f"confirm-{next(NUMBERS)}"
            yield Watched(server.tier(prefix, create_bytes_max=1) if is_large else server.tier(prefix))


def verified(tier: Watched) -> ObjectInfo:
    source = BytesSource(DATA, Path("memory"))
    tier.put(KEY, source, digest_of(source))
    info = verify_object(tier, KEY, digest_of(source))
    tier.reads = 0
    return info


DIGEST = digest_of(BytesSource(DATA, Path("memory")))


def test_an_object_that_nobody_touched_is_not_read_again(tier: Watched) -> None:
    info = verified(tier)
    assert info.etag
    assert confirm_object(tier, info, DIGEST) == info
    assert tier.reads == 0
    assert confirm_object(tier, info, None) == info


def test_other_bytes_of_the_same_size_are_found(tier: Watched) -> None:
    info = verified(tier)
    tier.replace(DATA[::-1])
    with pytest.raises(CorruptError):
        confirm_object(tier, info, DIGEST)


def test_the_same_bytes_under_another_tag_are_read_back_and_believed(tier: Watched) -> None:
    info = verified(tier)
    for known in (info._replace(etag="another"), info._replace(etag=None)):
        assert confirm_object(tier, known, DIGEST) == info
        assert tier.reads == 1
        tier.reads = 0


def test_another_version_is_read_back(tier: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    info = verified(tier)
    head = tier.head
    monkeypatch.setattr(tier, "head", lambda key: head(key)._replace(version_id="2"), raising=False)
    assert confirm_object(tier, info._replace(version_id="2"), DIGEST).version_id == "2"
    assert tier.reads == 0
    assert confirm_object(tier, info._replace(version_id="1"), DIGEST).version_id == "2"
    assert tier.reads == 1


def test_without_a_tag_and_a_checksum_nothing_is_proved(tier: Watched) -> None:
    info = verified(tier)
    with pytest.raises(UsageError, match="no checksum"):
        confirm_object(tier, info._replace(etag=None), None)


def test_an_object_that_is_gone_or_cut_is_told(tier: Watched) -> None:
    info = verified(tier)
    tier.replace(DATA[:-1])
    with pytest.raises(CorruptError, match=r"16 bytes, not 17"):
        confirm_object(tier, info, DIGEST)
    tier.delete(KEY)
    with pytest.raises(NotFoundError):
        confirm_object(tier, info, DIGEST)


def test_a_store_keeps_a_file_whose_object_in_a_bucket_was_replaced(tmp_path: Path, moto: "Server") -> None:
    tier = moto.tier(f"confirm-{next(NUMBERS)}")
    with Pond(tmp_path, tier=tier) as lake:
        lake.create(shards=1)
        lake.fill(30)
        lake.run("flush")
        lake.run("archive")
        (record,) = lake.live()
        key = lake.site.object_key(record)
        other = BytesSource(tier.get(key, 0, record.size_bytes)[::-1], Path(key))
        tier.delete(key)
        tier.put(key, other, digest_of(other))
        lake.run("evict")
        assert lake.site.chunk_path(record).exists()
        lake.check()
        lake.run("evict")
        assert not lake.site.chunk_path(record).exists(), "it was repaired meanwhile"
        lake.check()


@pytest.mark.parametrize("is_again", [False, True], ids=["other bytes", "the same bytes"])
def test_a_newer_version_in_a_bucket_that_keeps_versions_is_read_back(
    tmp_path: Path,
    moto: "Server",
    is_again: bool,  # noqa: FBT001 - a case
) -> None:
    tier = moto.tier(f"confirm-{next(NUMBERS)}", bucket=f"versions-{next(NUMBERS)}", versioned=True)
    with Pond(tmp_path, tier=tier) as lake:
        lake.create(shards=1)
        lake.fill(30)
        lake.run("flush")
        lake.run("archive")
        (record,) = lake.live()
        named = object_of(record)
        assert named is not None
        assert named.version_id
        data = tier.get(named.key, 0, record.size_bytes)
        source = BytesSource(data if is_again else data[::-1], Path(named.key))
        tier.delete(named.key)
        tier.put(named.key, source, digest_of(source))
        lake.run("evict")
        (record,) = lake.live()
        now = object_of(record)
        assert now is not None
        assert now.version_id != named.version_id
        assert lake.site.chunk_path(record).exists() is not is_again
        lake.check()
        lake.run("evict")
        assert not lake.site.chunk_path(record).exists()
        lake.check()


def test_a_file_whose_row_has_no_tag_goes_once_its_object_was_read_back(tmp_path: Path) -> None:
    """As the row of an older program has none, and of a tier that told none."""
    tier = Watched(directory_tier(tmp_path / "remote"))
    with Pond(tmp_path, tier=tier) as lake:
        lake.create(shards=1)
        lake.fill(30)
        lake.run("flush")
        lake.run("archive")
        (row,) = lake.rows()
        residency = row.record.residency
        assert isinstance(residency, LocalAndRemote)
        bare = replace(residency, object=replace(residency.object, etag=None, version_id=None))
        txn = lake.store.catalog.begin_write()
        txn.upsert_chunk(ChunkKey(lake.db.db_id, row.chunk_id), replace(row.record, residency=bare))
        txn.commit()
        tier.reads = 0
        path = tmp_path / "remote" / residency.object.key
        whole = path.read_bytes()
        path.write_bytes(whole[::-1])
        lake.enqueue("evict")
        lake.settle()
        assert tier.reads
        assert lake.site.chunk_path(row.record).exists()
        lake.check()


def test_a_file_of_a_directory_that_is_written_over_in_place_is_found(tmp_path: Path) -> None:
    tier = Watched(DirectoryTier(PosixFS(), tmp_path / "tier"))
    info = verified(tier)
    path = tmp_path / "tier" / KEY
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # The clock of a file system is coarse.
        path.write_bytes(DATA[::-1])
    with pytest.raises(CorruptError):
        confirm_object(tier, info, DIGEST)
