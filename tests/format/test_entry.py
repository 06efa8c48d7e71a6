"""Entries, markers, commands, packs and chunks: there and back, torn, and as they were written first."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, LatewoodError, UnsupportedVersion
from latewood.format import entry as codec
from latewood.format.entry import Action, Chunk, ChunkKind, Command, Members, ParentRecord, RecordKind

PATH = Path("node/parent")
u64 = st.integers(0, 2**64 - 1)
nodes = st.lists(u64, max_size=3).map(tuple)
records = st.builds(ParentRecord, st.sampled_from(RecordKind), st.integers(0, 255), u64, u64, st.binary(max_size=40))
payloads = st.lists(st.binary(max_size=20), max_size=4)
commands = st.builds(Command, u64, u64, payloads, u64, st.binary(max_size=20), st.sampled_from(Action))
memberships = st.builds(Members, nodes, nodes, nodes, nodes, st.booleans())
chunks = st.builds(
    Chunk,
    st.sampled_from(ChunkKind),
    *[u64] * 6,
    flags=st.integers(0, 2**16 - 1),
    checksum=st.integers(0, 2**32 - 1),
    data=st.binary(max_size=40),
)

RECORD = ParentRecord(RecordKind.ENTRY, 1, 5, 9, b"data")
COMMAND = Command(7, 3, [b"oak"], 1_772_452_800_000_000_000, b"me/4")
CHUNK = Chunk(ChunkKind.PARTITION, 2, 40, 7, 3, 20, 39, flags=1, checksum=6, data=b"x")
MEMBERS = Members((1, 2, 3), (4,), (), (), auto_leave=True)


@given(records)
def test_a_record_survives_the_round_trip(record: ParentRecord) -> None:
    assert codec.decode_record(codec.encode_record(record), PATH, 0) == record


@given(st.lists(commands, max_size=4))
def test_commands_survive_the_round_trip(found: list[Command]) -> None:
    assert codec.decode_commands(b"".join(map(codec.encode_command, found))) == found


@given(memberships, st.binary(max_size=9))
def test_a_membership_survives_the_round_trip(members: Members, rest: bytes) -> None:
    assert codec.decode_members(codec.encode_members(members) + rest, PATH, 0) == (members, rest)


@given(chunks)
def test_a_chunk_survives_the_round_trip(chunk: Chunk) -> None:
    assert codec.decode_chunk(codec.encode_chunk(chunk), PATH, 0) == chunk


@given(st.lists(records.map(lambda record: record._replace(kind=RecordKind.ENTRY)), max_size=4))
def test_a_pack_survives_the_round_trip(found: list[ParentRecord]) -> None:
    assert codec.decode_pack(codec.encode_pack(map(codec.encode_record, found))) == found


def test_the_bytes_are_those_of_version_1() -> None:
    assert codec.encode_record(RECORD) == bytes.fromhex(
        "01 01 01 00 00000000 0500000000000000 0900000000000000 64617461"
    )
    assert codec.encode_vote(3) == bytes.fromhex("0300000000000000")
    assert codec.encode_command(COMMAND) == bytes.fromhex(
        "01 01 0400 01000000 0700000000000000 0300000000000000 008025456e049918 3300000000000000 "
        "6d652f34 03000000 6f616b"
    )
    assert codec.encode_members(MEMBERS) == bytes.fromhex(
        "0300 0100 0000 0000 01 00000000000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000"
    )
    assert codec.encode_chunk(CHUNK) == bytes.fromhex(
        "01 02 0100 06000000 0200000000000000 2800000000000000 0700000000000000 0300000000000000 "
        "1400000000000000 2700000000000000 78"
    )
    assert codec.encode_pack([codec.encode_record(RECORD)]) == bytes.fromhex(
        "4c57454e54525950 0100 0000 5e1cd91c 01000000 00000000 1c000000 "
        "01 01 01 00 00000000 0500000000000000 0900000000000000 64617461"
    )


def test_what_is_cut_short_is_corrupt() -> None:
    for length in range(codec.HEAD_SIZE):
        with pytest.raises(CorruptError):
            codec.decode_record(codec.encode_record(RECORD)[:length], PATH, 0)
    raw = codec.encode_command(COMMAND)
    for length in range(1, len(raw)):
        with pytest.raises(CorruptError):
            codec.decode_commands(raw[:length])
        with pytest.raises(CorruptError):
            codec.decode_commands(raw + raw[:length])
    for place in (2, 4, 32):  # The name, the number of records, and the size, each one more than there is.
        with pytest.raises(CorruptError):
            codec.decode_commands(raw[:place] + bytes([raw[place] + 1]) + raw[place + 1 :])
    for length in range(codec.CHUNK_SIZE):
        with pytest.raises(CorruptError):
            codec.decode_chunk(codec.encode_chunk(CHUNK)[:length], PATH, 0)
    for length in range(len(codec.encode_members(MEMBERS))):
        with pytest.raises(CorruptError):
            codec.decode_members(codec.encode_members(MEMBERS)[:length], PATH, 0)
    for length in (0, 7, 9):
        with pytest.raises(CorruptError):
            codec.decode_vote(bytes(length), PATH, 0)


def test_an_unknown_version_is_not_corruption() -> None:
    with pytest.raises(UnsupportedVersion):
        codec.decode_record(b"\2" + bytes(50), PATH, 0)
    with pytest.raises(UnsupportedVersion):
        codec.decode_commands(b"\2" + bytes(50))
    with pytest.raises(UnsupportedVersion):
        codec.decode_chunk(b"\2" + bytes(80), PATH, 0)


def test_unknown_kinds_are_corrupt() -> None:
    with pytest.raises(CorruptError, match="kind 6"):
        codec.decode_record(b"\1\6" + bytes(50), PATH, 0)
    with pytest.raises(CorruptError, match="action"):
        codec.decode_commands(b"\1\3" + codec.encode_command(COMMAND)[2:])
    with pytest.raises(CorruptError, match="kind 9"):
        codec.decode_chunk(b"\1\x09" + bytes(80), PATH, 0)


def test_a_pack_holds_entries_and_as_many_as_it_says() -> None:
    marker = codec.encode_record(RECORD._replace(kind=RecordKind.CUT))
    with pytest.raises(CorruptError, match="announces"):
        codec.decode_pack(codec.encode_pack([marker]))
    with pytest.raises(CorruptError, match="cut short"):
        codec.decode_pack(codec.encode_pack([])[:10])


@given(st.binary(max_size=120))
def test_no_bytes_raise_anything_but_our_errors(raw: bytes) -> None:
    for attempt in (raw, b"\1\1" + raw, b"\1\2" + raw, b"LWENTRYP\1\0" + raw):
        for decode in (
            lambda data: codec.decode_record(data, PATH, 0),
            codec.decode_commands,
            lambda data: codec.decode_chunk(data, PATH, 0),
            lambda data: codec.decode_members(data, PATH, 0),
            codec.decode_pack,
        ):
            try:
                decode(attempt)
            except LatewoodError:
                continue
