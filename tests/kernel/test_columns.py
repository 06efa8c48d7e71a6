"""Columns: only what is asked for, and every checksum whatever that is."""

import mmap
import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latewood.format import keyed
from latewood.kernel import pure
from tests.kernel.packing import EMPTY_STATE, Entry, packed, record_bytes

NAMES = ("TIMESTAMPS", "EXT_IDS", "LENGTHS", "PAYLOADS", "KEYS")
PAIRS = [(b"k", b"value"), (None, b"no key"), (b"", b"an empty key"), (b"only a key", b""), (None, b"")]
LARGE = 1 << 31
RECORDS = [Entry(number, 7, payload) for number, payload in enumerate([b"x" * 100] * 70 + [b"y", b"z" * 9] * 9)]


def made(kernel: ModuleType, buffer: bytes | bytearray, wanted: int, *, keyed: bool = False) -> tuple[Any, ...]:
    return tuple(kernel.columns(buffer, 0, len(buffer), 0, 1 << 20, 1 << 30, wanted, keyed))


def keyed_bytes(kernel: ModuleType, payloads: list[bytes]) -> bytearray:
    return packed(kernel, tuple(Entry(1, 0, payload) for payload in payloads))


def ends(lengths: list[int]) -> bytes:
    places = list(accumulate(lengths, initial=0))
    return struct.pack(f"<{len(places)}i", *places)


@pytest.mark.parametrize("wanted", range(32))
@pytest.mark.parametrize("is_keyed", [False, True])
def test_what_is_not_wanted_is_not_made(kernel: ModuleType, wanted: int, *, is_keyed: bool) -> None:
    buffer = keyed_bytes(kernel, [keyed.encode(*pair) for pair in PAIRS])
    whole, found = (made(kernel, buffer, bits, keyed=is_keyed) for bits in (31, wanted))
    bits = [getattr(kernel, name) for name in NAMES]
    times, ids, lengths, payloads, keys = (bool(wanted & bit) for bit in bits)
    asked = (times, ids, lengths or payloads, payloads, *[keys and is_keyed] * 3)
    assert found == (*whole[:3], *(part if ask else None for ask, part in zip(asked, whole[3:], strict=True)))


@pytest.mark.parametrize("wanted", range(32))
def test_a_damaged_record_is_met_whatever_is_wanted(kernel: ModuleType, wanted: int) -> None:
    buffer = packed(kernel, tuple(RECORDS))
    for index in (0, 1, 2, 5, 31, 32, 69, 70, 87):
        damaged = bytearray(buffer)
        at = sum(record_bytes(len(record.payload)) for record in RECORDS[:index])
        damaged[at + 24] ^= 1
        assert made(kernel, damaged, wanted)[:3] == (index, at, kernel.BAD)


@pytest.fixture
def large() -> Iterator[mmap.mmap]:
    """Yield room for a record that no column holds: zeros that take no memory, whoever only reads them."""
    with mmap.mmap(-1, LARGE + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        yield room


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 1])
def test_a_damaged_length_is_damage_however_large_it_is(native_twin: ModuleType, large: mmap.mmap, before: int) -> None:
    """Native alone: the pure twin would copy 2 GiB to say the same."""
    whole = packed(native_twin, (Entry(1, 2, b"12345678"),) * 2)
    large[: len(whole)] = bytes(whole)
    at = 32 * before
    large[at : at + 4] = LARGE.to_bytes(4, "little")
    found = native_twin.columns(large, 0, len(large), 0, 99, 1 << 40, native_twin.LENGTHS)
    assert found[:3] == (before, at, native_twin.BAD)


@pytest.mark.slow
def test_a_sound_record_that_no_column_holds_is_an_error_of_its_own(native_twin: ModuleType, large: mmap.mmap) -> None:
    with memoryview(large)[8 : 24 + LARGE] as body:
        mark = native_twin.crc32c(body, LARGE)
    large[:8] = struct.pack("<II", LARGE, mark)
    with pytest.raises(OverflowError, match="too large for a column"):
        native_twin.columns(large, 0, len(large), 0, 99, 1 << 40, native_twin.LENGTHS)


def test_lengths_need_no_payload(kernel: ModuleType) -> None:
    lengths = [len(record.payload) for record in RECORDS]
    found = made(kernel, packed(kernel, tuple(RECORDS)), kernel.LENGTHS)
    assert (found[0], *found[3:]) == (len(RECORDS), None, None, ends(lengths), None, None, None, None)


def test_keys_and_values_are_taken_apart(kernel: ModuleType) -> None:
    buffer = keyed_bytes(kernel, [keyed.encode(*pair) for pair in PAIRS])
    found = made(kernel, buffer, kernel.PAYLOADS | kernel.KEYS, keyed=True)
    values, keys = [value for _, value in PAIRS], [key or b"" for key, _ in PAIRS]
    assert found[5:] == (
        ends([len(value) for value in values]),
        b"".join(values),
        bytes([0b01101]),
        ends([len(key) for key in keys]),
        b"".join(keys),
    )


@pytest.mark.parametrize("wanted", range(32))
@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\2\0\0\0", b"\3\0\0\0a", b"\xff\xff\xff\xffa"])
def test_a_payload_that_is_too_short_for_its_key_ends_the_columns(
    kernel: ModuleType, payload: bytes, wanted: int
) -> None:
    sound = keyed.encode(b"k", b"v")
    buffer = keyed_bytes(kernel, [sound] * 33 + [payload, sound])
    end = 33 * record_bytes(len(sound))
    assert made(kernel, buffer, wanted, keyed=True)[:3] == (33, end, kernel.UNFIT)
    assert made(kernel, buffer[end:], wanted, keyed=True)[:3] == (0, 0, kernel.UNFIT)
    assert made(kernel, buffer, wanted)[0] == 35


def test_an_unknown_column_is_refused(kernel: ModuleType) -> None:
    for wanted in (32, 255, 256, 1 << 63):
        with pytest.raises(ValueError, match="no such column"):
            made(kernel, b"", wanted)
    with pytest.raises(OverflowError):
        made(kernel, b"", -1)


@st.composite
def segments(draw: st.DrawFn) -> tuple[bytes, int]:
    """Draw runs of records of the same length, as fast paths want them, and perhaps some damage."""
    runs = draw(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0, 1, 4, 7, 8, 100, 760, 770])), max_size=6))
    bodies = [keyed.encode(b"k" * (length % 5) or None, bytes(length)) for many, length in runs for _ in range(many)]
    buffer = bytearray(sum(record_bytes(len(body)) for body in bodies) + draw(st.integers(0, 80)))
    writer = pure.Appender(buffer, None, 0, 0, 0, 1, *EMPTY_STATE)
    writer.allow(len(buffer), len(buffer), len(bodies))
    for number, body in enumerate(bodies):
        writer.append(body, number, number)
    for _ in range(draw(st.integers(0, 2)) if buffer else 0):
        buffer[draw(st.integers(0, len(buffer) - 1))] ^= draw(st.integers(1, 255))
    return bytes(buffer), len(bodies)


@given(segment=segments(), wanted=st.integers(0, 31), is_keyed=st.booleans(), data=st.data())
def test_the_twins_make_the_same_columns(
    native_twin: ModuleType, segment: tuple[bytes, int], wanted: int, *, is_keyed: bool, data: st.DataObject
) -> None:
    buffer, count = segment
    limit = data.draw(st.one_of(st.just(len(buffer)), st.integers(0, len(buffer))))
    most = data.draw(st.one_of(st.just(1 << 20), st.integers(0, count + 1)))
    bytes_max = data.draw(st.one_of(st.just(1 << 30), st.integers(0, len(buffer))))
    arguments = (buffer, 0, limit, 0, most, bytes_max, wanted, is_keyed)
    assert native_twin.columns(*arguments) == pure.columns(*arguments)
    assert native_twin.verify(buffer, 0, limit) == pure.verify(buffer, 0, limit)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=20), st.binary(max_size=200)), max_size=100))
@example([(b"key", bytes(100))] * 70)
def test_whatever_was_joined_comes_apart_again(
    native_twin: ModuleType, pairs: list[tuple[bytes | None, bytes]]
) -> None:
    buffer = keyed_bytes(native_twin, [keyed.encode(*pair) for pair in pairs])
    found = made(native_twin, buffer, native_twin.PAYLOADS | native_twin.KEYS, keyed=True)
    count, value_ends, values, validity, key_ends, keys = found[0], *found[5:]
    assert count == len(pairs)
    places, key_places = (list(memoryview(part).cast("i")) for part in (value_ends, key_ends))
    assert [values[a:b] for a, b in pairwise(places)] == [value for _, value in pairs]
    has_key = [bool(validity[index // 8] >> index % 8 & 1) for index in range(count)]
    found_keys = [keys[a:b] if has else None for (a, b), has in zip(pairwise(key_places), has_key, strict=True)]
    assert found_keys == [key for key, _ in pairs]
