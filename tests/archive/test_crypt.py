"""What is encrypted comes back whole, at any place; and nothing that was touched does."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.archive import crypt
from latewood.archive.crypt import DecryptingSource, EncryptingSink, decode_header, encode_header
from latewood.archive.keys import KeyRing
from latewood.archive.source import BytesSource, pieces
from latewood.errors import CorruptError, KeyNotFound, UnsupportedVersion, UsageError
from tests.archive.records import KEYS, SECRETS
from tests.meta import format_tables

FRAME: Final = 256
STEP: Final = FRAME + crypt.TAG_BYTES
PATH: Final = Path("chunk")
PLAIN: Final = bytes(range(256)) * 4 + b"and a tail"


class Buffer:
    """A sink in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        self.data += data
        return len(data)


def encrypted(plain: bytes, keys: KeyRing = KEYS, parts: int = 100) -> bytes:
    buffer = Buffer()
    sink = EncryptingSink(buffer, keys, FRAME)
    for at in range(0, len(plain), parts):
        sink.write(plain[at : at + parts])
    sink.finish()
    return bytes(buffer.data)


def decrypted(raw: bytes, keys: KeyRing = KEYS) -> bytes:
    return b"".join(pieces(DecryptingSource(BytesSource(raw, PATH), keys), 100))


def frames(raw: bytes) -> list[bytes]:
    return [raw[at : at + STEP] for at in range(crypt.HEADER_SIZE, len(raw), STEP)]


def joined(raw: bytes, changed: list[bytes]) -> bytes:
    return raw[: crypt.HEADER_SIZE] + b"".join(changed)


@given(st.binary(max_size=3 * FRAME), st.integers(1, 2 * FRAME))
def test_what_is_encrypted_comes_back(plain: bytes, parts: int) -> None:
    raw = encrypted(plain, parts=parts)
    assert decrypted(raw) == plain
    assert DecryptingSource(BytesSource(raw, PATH), KEYS).size == len(plain)


@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 2 * FRAME + 1])
def test_lengths_around_a_frame_come_back(size: int) -> None:
    raw = encrypted(bytes(size))
    assert decrypted(raw) == bytes(size)
    assert len(frames(raw)) == max(1, -(-size // FRAME))


@given(st.integers(0, len(PLAIN)), st.integers(0, len(PLAIN)))
def test_any_range_can_be_read(start: int, stop: int) -> None:
    source = DecryptingSource(BytesSource(encrypted(PLAIN), PATH), KEYS)
    low, high = sorted((start, stop))
    assert source.read(low, high - low) == PLAIN[low:high]


def test_a_read_beyond_the_end_is_an_error() -> None:
    source = DecryptingSource(BytesSource(encrypted(PLAIN), PATH), KEYS)
    with pytest.raises(CorruptError):
        source.read(len(PLAIN) - 1, 2)


def test_every_flipped_bit_is_found() -> None:
    raw = encrypted(PLAIN)
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1 << at % 8
        with pytest.raises((CorruptError, UnsupportedVersion)) as caught:
            decrypted(bytes(changed))
        assert caught.type is CorruptError or 8 <= at < 10


def test_every_cut_is_found() -> None:
    raw = encrypted(PLAIN)
    for size in range(len(raw)):
        with pytest.raises(CorruptError):
            decrypted(raw[:size])


def test_a_cut_is_found_before_anything_is_read() -> None:
    raw = encrypted(PLAIN)
    with pytest.raises(CorruptError):
        DecryptingSource(BytesSource(raw[: crypt.HEADER_SIZE + 2 * STEP], PATH), KEYS)


def test_frames_that_changed_places_are_found() -> None:
    raw = encrypted(PLAIN)
    parts = frames(raw)
    for one in range(len(parts)):
        for other in range(one):
            swapped = parts.copy()
            swapped[one], swapped[other] = swapped[other], swapped[one]
            with pytest.raises(CorruptError):
                decrypted(joined(raw, swapped))


def test_frames_that_are_missing_repeated_or_added_are_found() -> None:
    raw = encrypted(PLAIN)
    parts = frames(raw)
    for number in range(len(parts)):
        with pytest.raises(CorruptError):
            decrypted(joined(raw, parts[:number] + parts[number + 1 :]))
        with pytest.raises(CorruptError):
            decrypted(joined(raw, parts[: number + 1] + parts[number:]))
    with pytest.raises(CorruptError):
        decrypted(raw + parts[0])
    with pytest.raises(CorruptError):
        decrypted(raw + b"\0")


def test_frames_of_another_file_under_the_same_key_are_found() -> None:
    one, other = encrypted(PLAIN), encrypted(PLAIN)
    for number in range(len(frames(one))):
        spliced = frames(one)
        spliced[number] = frames(other)[number]
        with pytest.raises(CorruptError):
            decrypted(joined(one, spliced))


def test_the_same_bytes_never_look_the_same_twice() -> None:
    assert encrypted(PLAIN)[crypt.HEADER_SIZE :] != encrypted(PLAIN)[crypt.HEADER_SIZE :]


def test_old_keys_decrypt_and_the_current_one_encrypts() -> None:
    before, after = KeyRing(SECRETS, "old"), KeyRing(SECRETS, "new")
    raw = encrypted(PLAIN, before)
    assert decrypted(raw, after) == PLAIN
    assert decode_header(raw, PATH).key_id == "old"
    assert decode_header(encrypted(PLAIN, after), PATH).key_id == "new"


def test_a_missing_key_and_a_wrong_one_are_told_from_damage() -> None:
    raw = encrypted(PLAIN, KeyRing(SECRETS, "old"))
    with pytest.raises(KeyNotFound, match="'old' is not among"):
        decrypted(raw, KeyRing({"new": SECRETS["new"]}, "new"))
    with pytest.raises(KeyNotFound, match="is not the one"):
        decrypted(raw, KeyRing({"old": b"?" * 32}, "old"))


@pytest.mark.slow
@given(
    st.builds(
        crypt.CryptHeader,
        st.integers(256, 1 << 24),
        st.binary(min_size=8, max_size=8),
        st.binary(min_size=32, max_size=32),
        st.binary(min_size=8, max_size=8),
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", fullmatch=True),
    )
)
def test_a_header_survives_the_round_trip(header: crypt.CryptHeader) -> None:
    assert decode_header(encode_header(header), PATH) == header


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_no_bytes_make_the_reader_stumble(data: bytes) -> None:
    for raw in (data, crypt.MAGIC + data, encode_header(decode_header(encrypted(b""), PATH)) + data):
        with pytest.raises((CorruptError, UnsupportedVersion)):
            decrypted(raw)


@pytest.mark.parametrize("frame_bytes", [0, 255, 1 << 25, 0xFFFF_FFFF])
def test_frames_out_of_bounds_are_refused_before_they_are_allocated(frame_bytes: int) -> None:
    header = decode_header(encrypted(b""), PATH)._replace(frame_bytes=frame_bytes)
    with pytest.raises(CorruptError):
        decrypted(encode_header(header) + bytes(100))
    with pytest.raises(UsageError):
        EncryptingSink(Buffer(), KEYS, frame_bytes)


def test_a_later_version_is_no_damage() -> None:
    raw = bytearray(encrypted(PLAIN))
    raw[8] = 2
    with pytest.raises(UnsupportedVersion):
        decrypted(bytes(raw))


def test_the_table_of_the_header_adds_up() -> None:
    assert format_tables.problems(crypt.__doc__ or "", {"HEADER_SIZE": crypt.HEADER_SIZE}) == []
