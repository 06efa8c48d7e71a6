"""An archive's identity: made once, proved, and held against what a catalog notes."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from latewood.archive.directory import DirectoryTier
from latewood.archive.identity import check_identity, make_identity, read_identity
from latewood.archive.names import IDENTITY_KEY
from latewood.archive.object_store import ObjectStoreTier
from latewood.archive.source import BytesSource, digest_of
from latewood.archive.tier import Tier, find
from latewood.errors import AnotherArchive, CorruptError, UnsupportedVersion
from latewood.fs import PosixFS
from latewood.testing import CrashFS

if TYPE_CHECKING:
    from tests.archive.servers import Server

ONE: Final = bytes(range(16))
TWO: Final = bytes(16)
KEY: Final = "clicks/00000/chunk"
GOLDEN: Final = Path(__file__).with_name("golden") / "identity-v1" / IDENTITY_KEY
NUMBERS: Final = count()


@pytest.fixture(params=["directory", "memory", "moto"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tier]:
    if request.param == "directory":
        yield DirectoryTier(PosixFS(), tmp_path / "attic")
    elif request.param == "memory":
        yield ObjectStoreTier.open("memory:///")
    else:
        server: Server = request.getfixturevalue("moto")
        yield server.tier(f"identity-{next(NUMBERS)}")


def put(tier: Tier, key: str, data: bytes = b"chunk") -> None:
    source = BytesSource(data, Path(key))
    tier.put(key, source, digest_of(source))


def raw(tier: Tier) -> bytes:
    return tier.get(IDENTITY_KEY, 0, tier.head(IDENTITY_KEY).size)


def test_an_identity_is_made_once(tier: Tier) -> None:
    assert read_identity(tier) is None
    assert make_identity(tier, lambda _: ONE) == ONE
    assert make_identity(tier, lambda _: TWO) == ONE, "another store began at the same time"
    assert read_identity(tier) == ONE


def test_it_has_the_bytes_of_the_format_page(tier: Tier) -> None:
    make_identity(tier, lambda _: ONE)
    assert raw(tier) == GOLDEN.read_bytes()


def test_no_list_and_no_sweep_takes_it_for_an_object(tier: Tier) -> None:
    make_identity(tier, lambda _: ONE)
    put(tier, KEY)
    assert [info.key for info in tier.list()] == [KEY]
    assert list(tier.sweep("")) == []
    assert read_identity(tier) == ONE


def test_a_damaged_one_is_told_from_none(tier: Tier) -> None:
    put(tier, IDENTITY_KEY, GOLDEN.read_bytes().replace(b"00", b"01"))
    with pytest.raises(CorruptError, match="checksum"):
        read_identity(tier)


def test_one_cut_anywhere_is_damaged() -> None:
    whole = GOLDEN.read_bytes()
    for size in range(len(whole) - 1):  # The last byte ends the line.
        tier = ObjectStoreTier.open("memory:///")
        put(tier, IDENTITY_KEY, whole[:size])
        with pytest.raises(CorruptError):
            read_identity(tier)


def test_a_later_version_is_no_damage(tier: Tier) -> None:
    put(tier, IDENTITY_KEY, GOLDEN.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(UnsupportedVersion):
        read_identity(tier)


def test_the_noted_archive_is_gone_on_with(tier: Tier) -> None:
    make_identity(tier, lambda _: ONE)
    assert check_identity(tier, ONE, []) == ONE


@pytest.mark.parametrize("found", [None, TWO])
def test_another_archive_than_the_noted_one_is_refused_and_not_changed(tier: Tier, found: bytes | None) -> None:
    if found is not None:
        make_identity(tier, lambda _: found)
    with pytest.raises(AnotherArchive, match=r"(?s)is not the archive of this store.*mounted.*right address") as caught:
        check_identity(tier, ONE, [], random_bytes=lambda _: ONE)
    assert tier.name in str(caught.value)
    assert read_identity(tier) == found


def test_an_archive_without_the_objects_that_rows_name_is_refused(tier: Tier) -> None:
    make_identity(tier, lambda _: ONE)
    with pytest.raises(AnotherArchive, match="none of the objects"):
        check_identity(tier, None, [KEY], random_bytes=lambda _: TWO)


def test_an_older_archive_is_adopted_by_one_of_its_objects(tier: Tier) -> None:
    put(tier, KEY)
    assert check_identity(tier, None, ["clicks/00000/gone", KEY]) is None, "nothing is made by jobs that only look"
    assert check_identity(tier, None, ["clicks/00000/gone", KEY], random_bytes=lambda _: ONE) == ONE
    assert read_identity(tier) == ONE


def test_a_new_store_takes_the_identity_that_is_there(tier: Tier) -> None:
    make_identity(tier, lambda _: ONE)
    assert check_identity(tier, None, [], random_bytes=lambda _: TWO) == ONE


def test_a_directory_is_made_for_a_new_store_unless_its_parent_is_missing(tmp_path: Path) -> None:
    near, far = DirectoryTier(PosixFS(), tmp_path / "attic"), DirectoryTier(PosixFS(), tmp_path / "disk" / "attic")
    assert check_identity(near, None, [], random_bytes=lambda _: ONE) == ONE
    with pytest.raises(AnotherArchive, match="is not there"):
        check_identity(far, None, [], random_bytes=lambda _: ONE)
    assert not (tmp_path / "disk").exists()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    tier = DirectoryTier(PosixFS(), tmp_path / "attic")
    for noted, keys in ((ONE, []), (None, [KEY])):
        with pytest.raises(AnotherArchive, match=f"the archive's directory {tmp_path / 'attic'} is not there"):
            check_identity(tier, noted, keys, random_bytes=lambda _: ONE)
    assert not (tmp_path / "attic").exists()


def test_a_power_cut_leaves_an_identity_whole_or_none() -> None:
    def make(fs: CrashFS) -> None:
        make_identity(DirectoryTier(fs, Path("attic")), lambda _: ONE)
        fs.note = "done"

    cuts = 0
    for _, survivor in CrashFS().cuts_during(make, limit=60):
        tier = DirectoryTier(survivor, Path("attic"))
        found = read_identity(tier)
        assert found == ONE or (found is None and survivor.note != "done")
        assert make_identity(tier, lambda _: TWO) == (found or TWO)
        assert find(tier, IDENTITY_KEY) is not None
        cuts += 1
    assert cuts > 5
