"""The manifest as a whole."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, LatewoodError, ManifestCorrupted, UnsupportedVersion
from latewood.format.entries import EntryTable, SegmentEntry
from latewood.format.identity import BLOCK_SIZE, LIFE_SIZE, LogIdentity, block_bytes
from latewood.format.manifest import (
    ACTIVE_SIZE,
    HEADER_SIZE,
    STATE_SIZE,
    ActiveSegment,
    Manifest,
    decode,
    encode,
    encode_front,
)
from latewood.kernel import crc32c
from tests.format.codecs import IDENTITY, identities, u32, u64

SLOT = Path("events/manifest.2")
VERSION_BITS = range(32, 64)

paths = st.from_regex(r"segments/([a-z0-9éß]{1,4}/){0,3}[0-9]{9,10}\.q", fullmatch=True)
actives = st.builds(ActiveSegment, u32, u64, u64, paths)


def manifest(entries: int = 2) -> Manifest:
    table = EntryTable.empty(SLOT)
    for number in range(entries):
        path = f"segments/2026/03/02/{number:09}.q"
        table = table.append(SegmentEntry(number * 10, number * 10 + 9, 4096, number * 3, number * 5, path))
    active = ActiveSegment(entries, 128, 1, f"segments/2026/03/02/{entries:09}.q")
    return Manifest(entries + 1, entries * 10 + 1, active, table, 77, IDENTITY)


def listed(manifest: Manifest) -> list[SegmentEntry]:
    return [manifest.entries[index] for index in range(len(manifest.entries))]


@given(u64, u64, actives, st.integers(0, 20), u64, identities)
def test_a_manifest_survives_the_round_trip(
    generation: int, next_sequence: int, active: ActiveSegment, count: int, watermark: int, identity: LogIdentity
) -> None:
    before = Manifest(generation, next_sequence, active, manifest(count).entries, watermark, identity)
    after = decode(encode(before), SLOT)
    assert after._replace(entries=before.entries) == before
    assert listed(after) == listed(before)


def test_the_bytes_of_a_manifest_are_those_of_version_2() -> None:
    golden = (
        "514d4654 02000000 0b00000000000000 01000000 722894c7 0200000000000000"
        "4d00000000000000 6964656e74697479206f66206f616b73 01 02 000000000000"
        "6964656e74697479 0000000000000000 ce0a000000000000 3c00000000000000"
        "01000000 8000000000000000 0100000000000000 1f00"
        + b"segments/2026/03/02/000000001.q".hex()
        + "0000000000000000 0900000000000000 0010000000000000 0000000000000000 00000000 1f00"
        + b"segments/2026/03/02/000000000.q".hex()
    )
    assert encode(manifest(1)) == bytes.fromhex(golden)


VERSION_1: Final = bytes.fromhex(
    "514d4654 01000000 0b00000000000000 01000000 22bf1636 0200000000000000"
    "01000000 8000000000000000 0100000000000000 1f00"
    + b"segments/2026/03/02/000000001.q".hex()
    + "0000000000000000 0900000000000000 0010000000000000 1f00"
    + b"segments/2026/03/02/000000000.q".hex()
)


def test_a_manifest_of_version_1_is_read_and_has_no_identity() -> None:
    found = decode(VERSION_1, SLOT)
    assert found[:3] == manifest(1)[:3]
    assert (found.coordinator_watermark, found.identity) == (0, None)
    assert listed(found) == listed(manifest(1))
    assert found.entries.is_version_1


def test_a_manifest_of_version_1_is_corrupt_when_it_is_cut_or_a_bit_of_it_flips() -> None:
    for length in range(len(VERSION_1)):
        with pytest.raises(ManifestCorrupted):
            decode(VERSION_1[:length], SLOT)
    for bit in range(8 * len(VERSION_1)):
        flipped = bytearray(VERSION_1)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((UnsupportedVersion, ManifestCorrupted) if bit in VERSION_BITS else ManifestCorrupted):
            decode(bytes(flipped), SLOT)


@pytest.mark.parametrize("change", [{"owner": 3}, {"lives": ()}])
def test_an_identity_that_there_is_not_is_corrupt_though_the_checksum_is_right(change: dict[str, Any]) -> None:
    with pytest.raises(ManifestCorrupted, match="an identity with"):
        decode(encode(manifest()._replace(identity=IDENTITY._replace(**change))), SLOT)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "segments/../../000000001.q",
        "segments/2026/03/02/x.q",
        "segments/./000000001.q",
        "segments/000000001.q\n",
    ],
)
def test_a_path_that_no_log_gives_is_corrupt_though_the_checksum_is_right(path: str) -> None:
    whole = manifest()
    with pytest.raises(ManifestCorrupted, match="is not the path of a segment"):
        decode(encode(whole._replace(active=whole.active._replace(path=path))), SLOT)
    entries = whole.entries.append(SegmentEntry(20, 29, 4096, 0, 0, path))
    decoded = decode(encode(whole._replace(entries=entries)), SLOT)
    with pytest.raises(ManifestCorrupted, match="is not the path of a segment"):
        _ = decoded.entries[-1]


@given(st.integers(0, 5), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=9))))
def test_no_manifest_with_a_right_checksum_raises_anything_but_our_errors(
    count: int, changes: list[tuple[float, bytes]]
) -> None:
    raw = bytearray(encode(manifest(count)))
    for where, new in changes:
        at = 8 + int(where * (len(raw) - 8))
        raw[at : at + len(new)] = new
    with suppress(LatewoodError):
        found = decode(signed(bytes(raw)), SLOT)
        for index in range(min(len(found.entries), 9)):
            assert found.entries[index].segment_id >= 0
        found.entries.index_of_sequence(5)


def signed(raw: bytes) -> bytes:
    """Return a manifest of version 2 with the checksum that it should have, as far as its lengths can be believed."""
    active = HEADER_SIZE + STATE_SIZE + block_bytes(raw, HEADER_SIZE + STATE_SIZE)
    path_bytes = int.from_bytes(raw[active + ACTIVE_SIZE - 2 : active + ACTIVE_SIZE], "little")
    front = active + ACTIVE_SIZE + path_bytes
    checksum = crc32c(raw[:20] + bytes(4) + raw[24:front], crc32c(raw[front:]))
    return raw[:20] + checksum.to_bytes(4, "little") + raw[24:]


def test_a_torn_manifest_is_corrupt_at_each_length() -> None:
    raw = encode(manifest())
    for length in range(len(raw)):
        with pytest.raises(ManifestCorrupted) as caught:
            decode(raw[:length], SLOT)
        assert caught.value.path == SLOT
        assert "latewood rebuild" in str(caught.value)


def test_a_manifest_with_more_behind_it_is_corrupt() -> None:
    with pytest.raises(ManifestCorrupted):
        decode(encode(manifest()) + b"\0", SLOT)


def test_every_flip_of_one_bit_is_detected() -> None:
    raw = encode(manifest())
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        expected = (UnsupportedVersion, ManifestCorrupted) if bit in VERSION_BITS else ManifestCorrupted
        with pytest.raises(expected):
            decode(bytes(flipped), SLOT)


@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_an_unknown_version_is_not_corruption(version: int) -> None:
    raw = encode(manifest())
    with pytest.raises(UnsupportedVersion) as caught:
        decode(raw[:4] + version.to_bytes(4, "little") + bytes(len(raw) - 8), SLOT)
    assert not isinstance(caught.value, CorruptError)
    assert caught.value.version == version


def test_another_magic_is_corrupt() -> None:
    with pytest.raises(ManifestCorrupted, match="no manifest here"):
        decode(b"QMFX" + encode(manifest())[4:], SLOT)


def test_the_front_is_all_that_stands_before_the_entries() -> None:
    whole = manifest()
    front = encode_front(whole)
    assert encode(whole) == front + whole.entries.raw()
    identity_bytes = BLOCK_SIZE + 2 * LIFE_SIZE
    assert len(front) == HEADER_SIZE + STATE_SIZE + identity_bytes + ACTIVE_SIZE + len(whole.active.path)


def test_the_log_begins_with_its_oldest_entry_or_with_the_active_segment() -> None:
    assert manifest(2).first_sequence == 0
    assert manifest(2).active_base == 20
    nothing_sealed = manifest(2)._replace(entries=EntryTable.empty(SLOT))
    assert nothing_sealed.first_sequence == 20


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_errors(raw: bytes) -> None:
    for attempt in (raw, b"QMFT\1\0\0\0" + raw, b"QMFT\2\0\0\0" + raw):
        with pytest.raises(LatewoodError):
            decode(attempt, SLOT)
