"""Every tier that needs no server passes the suite; so does a quick S3 server, and, marked slow, a real one."""

from itertools import count
from pathlib import Path
from typing import Final

import pytest

from latewood.archive.directory import DirectoryTier
from latewood.archive.object_store import ObjectStoreOptions, ObjectStoreTier
from latewood.archive.opening import open_tier
from latewood.archive.tier import Tier
from latewood.errors import UsageError
from latewood.fs import PosixFS
from latewood.testing import MemFS
from tests.archive.servers import Server
from tests.archive.tier_suite import TierSuite, test_a_key_that_is_allowed_stays_within_its_tier

__all__ = ["test_a_key_that_is_allowed_stays_within_its_tier"]

NUMBERS: Final = count()
SMALL: Final = 6 * 1024 * 1024


class TestDirectory(TierSuite):
    @pytest.fixture
    def tier(self, tmp_path: Path) -> Tier:
        return DirectoryTier(PosixFS(), tmp_path / "tier")


class TestDirectoryInMemory(TierSuite):
    @pytest.fixture
    def tier(self) -> Tier:
        return DirectoryTier(MemFS(), Path("tier"))


class TestMemory(TierSuite):
    @pytest.fixture
    def tier(self) -> Tier:
        return ObjectStoreTier.open("memory:///")


class TestMemoryInParts(TierSuite):
    @pytest.fixture
    def tier(self) -> Tier:
        return ObjectStoreTier.open("memory:///", ObjectStoreOptions(create_bytes_max=SMALL))


class TestFile(TierSuite):
    @pytest.fixture
    def tier(self, tmp_path: Path) -> Tier:
        return ObjectStoreTier.open((tmp_path / "tier").as_uri())


class TestMoto(TierSuite):
    @pytest.fixture
    def tier(self, moto: Server) -> Tier:
        return moto.tier(f"{next(NUMBERS)}")


@pytest.mark.slow
class TestMotoInParts(TierSuite):
    @pytest.fixture
    def tier(self, moto: Server) -> Tier:
        return moto.tier(f"{next(NUMBERS)}", create_bytes_max=SMALL)


@pytest.mark.slow
class TestSeaweed(TierSuite):
    @pytest.fixture
    def tier(self, weed: Server) -> Tier:
        return weed.tier(f"{next(NUMBERS)}")


@pytest.mark.slow
class TestSeaweedInParts(TierSuite):
    @pytest.fixture
    def tier(self, weed: Server) -> Tier:
        return weed.tier(f"{next(NUMBERS)}", create_bytes_max=SMALL)


def test_a_path_and_a_file_url_are_directories_that_sync(tmp_path: Path) -> None:
    by_path, by_url = open_tier(str(tmp_path), PosixFS()), open_tier(tmp_path.as_uri(), PosixFS())
    assert isinstance(by_path, DirectoryTier)
    assert isinstance(by_url, DirectoryTier)
    assert by_path.name == by_url.name == tmp_path.as_uri()
    assert isinstance(open_tier("memory:///", PosixFS()), ObjectStoreTier)


@pytest.mark.parametrize("url", ["", "ftp://host/x", "file://host/x", "http://host/x", "s3://key:secret@bucket/x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_tier(url, PosixFS())
    assert "secret@" not in str(caught.value)
