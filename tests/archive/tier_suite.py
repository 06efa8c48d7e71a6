"""What every tier must do.  A test module that imports `TierSuite` gives it a `tier` fixture: an empty one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.archive.source import BytesSource, Digest, digest_of, pieces
from latewood.archive.tier import Tier, TierSource, check_key, find, verify_object
from latewood.errors import CorruptError, NotFoundError, ObjectConflict, UsageError

KEY = "clicks/00003/chunk.parquet"


def put(tier: Tier, data: bytes, key: str = KEY) -> Digest:
    source = BytesSource(data, Path("memory"))
    digest = digest_of(source)
    info = tier.put(key, source, digest)
    assert (info.key, info.size) == (key, len(data))
    return digest


class TierSuite:
    """One class, every tier."""

    @pytest.mark.parametrize("size", [0, 1, 70_000, 9 * 1024 * 1024])
    def test_what_is_put_can_be_got(self, tier: Tier, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        digest = put(tier, data)
        assert verify_object(tier, KEY, digest).size == size
        assert b"".join(pieces(TierSource(tier, KEY))) == data

    def test_any_range_can_be_got(self, tier: Tier) -> None:
        data = bytes(range(250)) * 4
        put(tier, data)
        ranges = [(0, 1), (0, 1000), (999, 1), (123, 456), (500, 0)]
        assert [tier.get(KEY, at, length) for at, length in ranges] == [data[at : at + n] for at, n in ranges]

    @pytest.mark.parametrize("offset", [990, 1000, 5000])
    def test_a_range_beyond_the_end_is_an_error(self, tier: Tier, offset: int) -> None:
        put(tier, bytes(1000))
        with pytest.raises(CorruptError):
            tier.get(KEY, offset, 20)

    def test_putting_the_same_again_is_a_success(self, tier: Tier) -> None:
        digest = put(tier, b"same")
        assert put(tier, b"same") == digest
        assert verify_object(tier, KEY, digest).size == 4

    @pytest.mark.parametrize("other", [b"other", b"diff"])
    def test_other_bytes_under_the_same_key_are_a_conflict(self, tier: Tier, other: bytes) -> None:
        digest = put(tier, b"same")
        with pytest.raises(ObjectConflict):
            put(tier, other)
        verify_object(tier, KEY, digest)

    def test_of_many_who_put_at_once_one_wins(self, tier: Tier) -> None:
        contents = [b"%d" % number * 1000 for number in range(6)]

        def attempt(data: bytes) -> bytes | None:
            try:
                put(tier, data)
            except ObjectConflict:
                return None
            return data

        with ThreadPoolExecutor(6) as pool:
            won = [data for data in pool.map(attempt, contents) if data is not None]
        assert [tier.get(KEY, 0, 1000)] == won

    def test_a_source_that_is_not_what_it_should_be_is_not_put(self, tier: Tier) -> None:
        with pytest.raises(CorruptError):
            tier.put(KEY, BytesSource(b"changed", Path("memory")), digest_of(BytesSource(b"correct", Path("memory"))))
        assert find(tier, KEY) is None

    def test_what_is_not_there_is_not_found(self, tier: Tier) -> None:
        with pytest.raises(NotFoundError):
            tier.head(KEY)
        with pytest.raises(NotFoundError):
            tier.get(KEY, 0, 1)
        with pytest.raises(NotFoundError):
            TierSource(tier, KEY)
        assert find(tier, KEY) is None

    def test_a_deleted_object_is_gone_and_deleting_again_is_fine(self, tier: Tier) -> None:
        put(tier, b"short-lived")
        tier.delete(KEY)
        assert find(tier, KEY) is None
        tier.delete(KEY)
        put(tier, b"another")

    def test_a_wrong_digest_is_found_by_reading_back(self, tier: Tier) -> None:
        digest = put(tier, b"content")
        with pytest.raises(CorruptError):
            verify_object(tier, KEY, digest._replace(checksum=digest.checksum ^ 1))
        with pytest.raises(CorruptError):
            verify_object(tier, KEY, digest._replace(size=6))

    def test_listing_shows_what_is_under_a_prefix(self, tier: Tier) -> None:
        keys = ["a/00000/x.parquet", "a/00001/y.parquet", "ab/00000/z.parquet"]
        for number, key in enumerate(keys):
            put(tier, bytes(number), key)
        assert sorted((info.key, info.size) for info in tier.list()) == [(key, n) for n, key in enumerate(keys)]
        assert sorted(info.key for info in tier.list("a/")) == keys[:2]
        assert [info.key for info in tier.list("a/00001/")] == keys[1:2]
        assert list(tier.list("nothing/")) == []

    def test_names_that_not_every_tier_knows_are_refused(self, tier: Tier) -> None:
        for key in ["", "/a", "a/", "../a", "a/../b", "a//b", "a b", "a\0", "x" * 600, "ä", ".hidden"]:
            with pytest.raises(UsageError):
                put(tier, b"x", key)
        for prefix in ["a", "/", "../", "a//"]:
            with pytest.raises(UsageError):
                list(tier.list(prefix))


@given(st.text(max_size=20))
@settings(max_examples=300)
def test_a_key_that_is_allowed_stays_within_its_tier(text: str) -> None:
    try:
        check_key(text)
    except UsageError:
        return
    assert ".." not in text.split("/")
    assert all(text.split("/"))
