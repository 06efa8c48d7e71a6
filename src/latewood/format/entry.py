"""What a replica stores in its logs: entries and markers of the parent log, the commands in entries, snapshot chunks.

Every record of the parent log begins with a head, `HEAD_SIZE` bytes:

| offset | size | field    | type | meaning                                                        |
| -----: | ---: | -------- | ---- | -------------------------------------------------------------- |
|      0 |    1 | version  | u8   | 1                                                              |
|      1 |    1 | kind     | u8   | 1: entry, 2: hard state, 3: cut, 4: base, 5: members           |
|      2 |    1 | type     | u8   | of an entry: the engine's kind; of a base: 1 if nothing remains |
|      3 |    1 | flags    | u8   | 0                                                              |
|      4 |    4 | reserved | u32  | 0                                                              |
|      8 |    8 | term     | u64  | Raft term                                                      |
|     16 |    8 | index    | u64  | Raft index; of a hard state: the commit                        |

An entry's data follow.  Of a hard state, this follows, `VOTE_SIZE` bytes:

| offset | size | field | type | meaning                              |
| -----: | ---: | ----- | ---- | ------------------------------------ |
|      0 |    8 | vote  | u64  | the node that got our vote; 0: none  |

Of a base and of members, the membership follows, `MEMBERS_SIZE` bytes and 8 for each node, and then, of a base, the
snapshot's data:

| offset | size | field                 | type | meaning                                       |
| -----: | ---: | --------------------- | ---- | --------------------------------------------- |
|      0 |    2 | voter_count           | u16  | nodes that vote                               |
|      2 |    2 | learner_count         | u16  | nodes that only follow                        |
|      4 |    2 | outgoing_voter_count  | u16  | voters of the old configuration, while joint  |
|      6 |    2 | coming_learner_count  | u16  | voters that will be learners                  |
|      8 |    1 | auto_leave            | u8   | 1: the joint configuration ends by itself     |
|      9 |    7 | reserved              | zeros | 0                                            |

Data of an entry that is ours are commands, one behind another; one that tears a partition down is alone.  Each is
`COMMAND_SIZE` bytes, the name of its request, a u32 of the length of each record, and the records:

| offset | size | field               | type | meaning                                               |
| -----: | ---: | ------------------- | ---- | ----------------------------------------------------- |
|      0 |    1 | version             | u8   | 1                                                     |
|      1 |    1 | action              | u8   | 1: write, 2: tear down the partition                  |
|      2 |    2 | request_bytes       | u16  | bytes that name the request                           |
|      4 |    4 | record_count        | u32  | records that it writes                                |
|      8 |    8 | partition_id        | u64  | the partition it is for                               |
|     16 |    8 | partition_log_index | u64  | number of its first record there: 1, 2, 3 …; 0 of a teardown |
|     24 |    8 | timestamp_ns        | u64  | when its leader took it, nanoseconds since 1970       |
|     32 |    8 | size                | u64  | bytes of the whole command                            |

A pack of entries, for catching up, `PACK_SIZE` bytes; then for each entry a u32 of its length, and its record:

| offset | size | field       | type | meaning                                          |
| -----: | ---: | ----------- | ---- | ------------------------------------------------ |
|      0 |    8 | magic       | [u8] | "LWENTRYP"                                       |
|      8 |    2 | version     | u16  | 1                                                |
|     10 |    2 | reserved    | u16  | 0                                                |
|     12 |    4 | checksum    | u32  | CRC-32C of the whole pack, this field as zero    |
|     16 |    4 | entry_count | u32  | entries that follow                              |
|     20 |    4 | reserved    | u32  | 0                                                |

A snapshot is a log of chunks, each `CHUNK_SIZE` bytes and its data:

| offset | size | field               | type | meaning                                                       |
| -----: | ---: | ------------------- | ---- | ------------------------------------------------------------- |
|      0 |    1 | version             | u8   | 1                                                             |
|      1 |    1 | kind                | u8   | 1: parent, 2: partition, 3: state, 4: end, 5: answers         |
|      2 |    2 | flags               | u16  | of a partition, 1: its log is its state                       |
|      4 |    4 | checksum            | u32  | of the end: CRC-32C of all chunks before it                   |
|      8 |    8 | term                | u64  | of the parent entry that the snapshot stands at               |
|     16 |    8 | index               | u64  | of that entry; the same in all chunks                         |
|     24 |    8 | partition_id        | u64  | the partition; 0 of parent and end                            |
|     32 |    8 | born                | u64  | Raft index of the partition's first write                     |
|     40 |    8 | partition_log_index | u64  | what the partition had applied at `index`                     |
|     48 |    8 | applied_global      | u64  | Raft index of that; of the end: the number of chunks before it |

Little-endian.  The checksum of the record around them covers all but a pack, which travels.
Format: docs/format/entry.md
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.format.checked import Frame
from latewood.kernel import split_commands

HEAD_SIZE: Final = 24
VOTE_SIZE: Final = 8
MEMBERS_SIZE: Final = 16
COMMAND_SIZE: Final = 40
PACK_SIZE: Final = 24
CHUNK_SIZE: Final = 56
VERSION: Final = 1
_PACK_MAGIC: Final = b"LWENTRYP"
_HEAD: Final = struct.Struct("<BBBBIQQ")
_VOTE: Final = struct.Struct("<Q")
_MEMBERS: Final = struct.Struct("<HHHHB7x")
_COMMAND: Final = struct.Struct("<BBHIQQQQ")
_LENGTH: Final = struct.Struct("<I")
_PACK: Final = struct.Struct("<8sHHIII")
_CHUNK: Final = struct.Struct("<BBHIQQQQQQ")
assert (_HEAD.size, _VOTE.size, _MEMBERS.size) == (HEAD_SIZE, VOTE_SIZE, MEMBERS_SIZE)
assert (_COMMAND.size, _PACK.size, _CHUNK.size) == (COMMAND_SIZE, PACK_SIZE, CHUNK_SIZE)


class RecordKind(IntEnum):
    """What a record of the parent log is."""

    ENTRY = 1
    HARD_STATE = 2
    CUT = 3
    """Entries from `index` on are gone: others take their place."""
    BASE = 4
    """Entries up to `index` are in a snapshot."""
    MEMBERS = 5
    """Who is a member since `index`."""


class Action(IntEnum):
    """What a command does."""

    WRITE = 1
    TEAR_DOWN = 2


class ChunkKind(IntEnum):
    """What a chunk of a snapshot holds."""

    PARENT = 1
    PARTITION = 2
    STATE = 3
    END = 4
    ANSWERS = 5
    """Which requests the partition has carried out; behind its state."""


class ParentRecord(NamedTuple):
    """One record of the parent log; `body` is what follows the head."""

    kind: int
    type: int
    term: int
    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in a record
    body: bytes


class Members(NamedTuple):
    """Who is a member: the fields of the engine's configuration, in its order."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False


class Command(NamedTuple):
    """What an entry asks of one partition: to write records that are neighbours, or to go."""

    partition_id: int
    partition_log_index: int
    """Of the first record."""
    payloads: Sequence[bytes]
    timestamp_ns: int = 0
    request: bytes = b""
    """What names the client's request, so that a repetition is recognized."""
    action: int = Action.WRITE

    @property
    def last_index(self) -> int:
        """Of the last record."""
        return self.partition_log_index + len(self.payloads) - 1


class Chunk(NamedTuple):
    """One piece of a snapshot."""

    kind: int
    term: int
    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in a record
    partition_id: int = 0
    born: int = 0
    partition_log_index: int = 0
    applied_global: int = 0
    flags: int = 0
    checksum: int = 0
    data: bytes = b""


def encode_record(record: ParentRecord) -> bytes:
    """Return a record's bytes."""
    return _HEAD.pack(VERSION, record.kind, record.type, 0, 0, record.term, record.index) + record.body


def encode_entry(index: int, term: int, kind: int, data: bytes) -> bytes:
    """Return the record of an entry: as `encode_record`, for those that are many."""
    return _HEAD.pack(VERSION, RecordKind.ENTRY, kind, 0, 0, term, index) + data


def decode_record(raw: bytes, path: Path, offset: int) -> ParentRecord:
    """Return the record in `raw`; `path` and `offset` name it in errors.

    Raises:
        CorruptError: it is cut short, or of no kind.
        UnsupportedVersion: a later program wrote it.
    """
    _check(raw, HEAD_SIZE, "parent record", path, offset)
    _, kind, type_, _, _, term, index = _HEAD.unpack_from(raw)
    if kind not in _KINDS:
        reason = f"a parent record of kind {kind}"
        raise CorruptError(reason, path, offset)
    return ParentRecord(kind, type_, term, index, raw[HEAD_SIZE:])


def encode_vote(vote: int) -> bytes:
    """Return the body of a hard state."""
    return _VOTE.pack(vote)


def decode_vote(body: bytes, path: Path, offset: int) -> int:
    """Return the vote in the body of a hard state.

    Raises:
        CorruptError: it is not 8 bytes long.
    """
    if len(body) != VOTE_SIZE:
        raise CorruptError("a hard state is cut short", path, offset)
    return int.from_bytes(body, "little")


def encode_members(members: Members) -> bytes:
    """Return the bytes of a membership."""
    groups = members[:4]
    ids = [node for group in groups for node in group]
    return _MEMBERS.pack(*map(len, groups), members.auto_leave) + struct.pack(f"<{len(ids)}Q", *ids)


def decode_members(body: bytes, path: Path, offset: int) -> tuple[Members, bytes]:
    """Return the membership in front of `body`, and what follows it.

    Raises:
        CorruptError: it is cut short.
    """
    if len(body) < MEMBERS_SIZE:
        raise CorruptError("a membership is cut short", path, offset)
    *counts, auto_leave = _MEMBERS.unpack_from(body)
    end = MEMBERS_SIZE + 8 * sum(counts)
    if len(body) < end:
        raise CorruptError("a membership is cut short", path, offset)
    ids = iter(struct.unpack_from(f"<{sum(counts)}Q", body, MEMBERS_SIZE))
    groups = [tuple(next(ids) for _ in range(count)) for count in counts]
    return Members(groups[0], groups[1], groups[2], groups[3], bool(auto_leave)), body[end:]


def encode_command(command: Command) -> bytes:
    """Return a command's bytes: an entry's data, or a part of them."""
    partition_id, partition_log_index, payloads, timestamp_ns, request, action = command
    count = len(payloads)
    if count == 1:  # Mostly, if there are many partitions.
        records = payloads[0]
        lengths = _LENGTH.pack(len(records))
    else:
        records = b"".join(payloads)
        lengths = struct.pack(f"<{count}I", *map(len, payloads))
    size = COMMAND_SIZE + len(request) + len(lengths) + len(records)
    head = _COMMAND.pack(VERSION, action, len(request), count, partition_id, partition_log_index, timestamp_ns, size)
    return head + request + lengths + records


def decode_commands(data: bytes, path: Path = Path("entry"), offset: int = 0) -> list[Command]:
    """Return the commands in an entry's data, which are copied.

    Raises:
        CorruptError: they are cut short, or ask for something that we do not know.
        UnsupportedVersion: a later program wrote them.
    """
    commands, end = split_commands(data, VERSION)
    if end < len(data):
        if data[end] != VERSION:
            raise UnsupportedVersion("command", data[end], path)
        raise CorruptError("a command that is cut short, or has an unknown action", path, offset)
    return list(map(_command, commands))


def command_bytes(data: bytes, start: int) -> int:
    """Return how many bytes the command that begins at `start` takes."""
    return int.from_bytes(data[start + 32 : start + COMMAND_SIZE], "little")


def tears_down(data: bytes) -> bool:
    """Say whether an entry's data are a command that tears a partition down: a look, where all are looked at."""
    return len(data) >= COMMAND_SIZE and data[1] == Action.TEAR_DOWN


def encode_pack(records: Iterable[bytes]) -> bytes:
    """Return encoded entries as one pack, with a checksum over all of it."""
    pieces = list(records)
    framed = b"".join(len(piece).to_bytes(4, "little") + piece for piece in pieces)
    raw = _PACK.pack(_PACK_MAGIC, VERSION, 0, 0, len(pieces), 0) + framed
    return _pack_frame(len(raw)).sign(raw)


def decode_pack(raw: bytes, path: Path = Path("pack")) -> list[ParentRecord]:
    """Return the entries of a pack.

    Raises:
        CorruptError: it is damaged, cut short, or holds something else than entries.
        UnsupportedVersion: a later program made it.
    """
    _pack_frame(max(len(raw), PACK_SIZE)).check(raw, path)
    entry_count = _PACK.unpack_from(raw)[4]
    records = [decode_record(piece, path, at) for at, piece in _pieces(raw, path)]
    if len(records) != entry_count or any(record.kind != RecordKind.ENTRY for record in records):
        raise CorruptError("a pack does not hold the entries that it announces", path, 0)
    return records


def encode_chunk(chunk: Chunk) -> bytes:
    """Return a chunk's bytes."""
    head = _CHUNK.pack(
        VERSION,
        chunk.kind,
        chunk.flags,
        chunk.checksum,
        chunk.term,
        chunk.index,
        chunk.partition_id,
        chunk.born,
        chunk.partition_log_index,
        chunk.applied_global,
    )
    return head + chunk.data


def decode_chunk(raw: bytes, path: Path, offset: int) -> Chunk:
    """Return the chunk in `raw`.

    Raises:
        CorruptError: it is cut short, or of no kind.
        UnsupportedVersion: a later program wrote it.
    """
    _check(raw, CHUNK_SIZE, "snapshot chunk", path, offset)
    _, kind, flags, checksum, term, index, partition_id, born, at, applied_global = _CHUNK.unpack_from(raw)
    if kind not in _CHUNK_KINDS:
        reason = f"a snapshot chunk of kind {kind}"
        raise CorruptError(reason, path, offset)
    return Chunk(
        kind, term, index, partition_id, born, at, applied_global, flags=flags, checksum=checksum, data=raw[CHUNK_SIZE:]
    )


_KINDS: Final = frozenset(RecordKind)
_CHUNK_KINDS: Final = frozenset(ChunkKind)
_command: Final = partial(tuple.__new__, Command)  # half the price of Command._make, and there are many


def _pack_frame(size: int) -> Frame:
    return Frame("pack of entries", _PACK_MAGIC, VERSION, 8, 2, 12, size)


def _pieces(raw: bytes, path: Path) -> Iterator[tuple[int, bytes]]:
    at = PACK_SIZE
    while at < len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4], "little")
        if end > len(raw):
            raise CorruptError("an entry of a pack is cut short", path, at)
        yield at, raw[at + 4 : end]
        at = end


def _check(raw: bytes, size: int, what: str, path: Path, offset: int) -> None:
    if raw and raw[0] != VERSION:
        raise UnsupportedVersion(what, raw[0], path)
    if len(raw) < size:
        reason = f"a {what} of {len(raw)} bytes, at least {size}"
        raise CorruptError(reason, path, offset)
