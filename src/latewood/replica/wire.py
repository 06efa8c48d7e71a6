"""What nodes and clients say to each other: frames, and the messages in them.  Bytes ⇄ values; no socket.

A frame is its length, u32 big-endian, and then one message: MessagePack, an array whose first element is the number of
the kind and whose others are the fields in the order below.  A later version may add fields with defaults at an end;
it may not change or remove any.  A kind that is not known, a frame beyond its cap, and bytes that are no message are
`WireError`s: whoever gets one closes the connection, because what follows cannot be trusted to begin at a frame.

The one who connects says `Hello`, the other `Welcome` or `Rejected`; until then a frame has at most
`GREETING_BYTES_MAX`.  After that a node sends `Peer` messages, which have no answer; and both nodes and clients send
requests, each with an `id` of the sender's choice, which comes back in its reply.  Replies come in any order.  Each
request has one, but for an `AppendGroup`: its parts may be answered in several.

A sequence is the record's number in its partition, from 0 on: its partition_log_index is one more.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias, get_args

import msgspec

from latewood.errors import LatewoodError
from latewood.limits import KiB, MiB
from latewood.replica.replies import (
    Appended,
    AppendedGroup,
    Cursor,
    Done,
    Found,
    Members,
    NotLeader,
    PartitionRecords,
    Partitions,
    Reached,
    Readers,
    Records,
    Refused,
    SnapshotChunks,
    StatusReply,
)
from latewood.replica.requests import (
    Acknowledged,
    Append,
    AppendGroup,
    Barrier,
    ChangeMembers,
    FetchRecords,
    FetchSnapshot,
    FindTime,
    GetCursor,
    GetPartitions,
    GetReaders,
    GetStatus,
    Hello,
    Probe,
    RaftMessages,
    Read,
    Rejected,
    Resume,
    SetCursor,
    SnapshotOffer,
    SnapshotOutcome,
    TearDown,
    TransferLeader,
    Welcome,
)

GREETING_BYTES_MAX: Final = 64 * KiB
"""Of a frame before it is known who is there: a stranger cannot make us allocate more."""
FRAME_BYTES_MAX: Final = 32 * MiB
"""Of a frame after that: a batch of messages, each of which may hold one entry beyond its bound."""
_LENGTH: Final = 4


class WireError(LatewoodError):
    """Somebody sent what is no message of ours.  The connection must be closed."""


Greeting: TypeAlias = Hello | Welcome | Rejected
Peer: TypeAlias = RaftMessages | SnapshotOffer | SnapshotOutcome | Acknowledged
Request: TypeAlias = (
    Append
    | AppendGroup
    | Read
    | GetStatus
    | GetPartitions
    | Barrier
    | ChangeMembers
    | TransferLeader
    | TearDown
    | Resume
    | GetCursor
    | SetCursor
    | GetReaders
    | FindTime
    | FetchSnapshot
    | FetchRecords
)
Reply: TypeAlias = (
    Appended
    | AppendedGroup
    | NotLeader
    | Refused
    | Records
    | StatusReply
    | Partitions
    | Reached
    | Members
    | Done
    | Cursor
    | Readers
    | Found
    | SnapshotChunks
    | PartitionRecords
)
Message: TypeAlias = Greeting | Peer | Request | Probe | Reply

REQUEST_KINDS: Final[frozenset[type]] = frozenset(get_args(Request))
PEER_KINDS: Final[frozenset[type]] = frozenset(get_args(Peer))
"""To look a message's type up in: asking for an instance of one of so many types takes longer than decoding it."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


def encode_frame(message: Message) -> bytearray:
    """Return a message as a frame, which is the caller's alone.

    Raises:
        WireError: it is larger than any frame may be.
    """
    buffer = bytearray(_LENGTH)
    _ENCODER.encode_into(message, buffer, _LENGTH)
    length = len(buffer) - _LENGTH
    if length > FRAME_BYTES_MAX:
        reason = f"a message of {length:,} bytes, and a frame has at most {FRAME_BYTES_MAX:,}"
        raise WireError(reason)
    buffer[:_LENGTH] = length.to_bytes(_LENGTH, "big")
    return buffer


def decode_message(raw: bytes | bytearray | memoryview) -> Message:
    """Return the message in a frame's body.

    Raises:
        WireError: it is none.
    """
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = f"a frame holds no message that we know: {error}"
        raise WireError(reason) from None


class FrameBuffer:
    """Cuts what comes from a connection into messages."""

    def __init__(self, bytes_max: int = GREETING_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """The cap of a frame; the owner raises it when it knows who is there."""
        self._parts: list[bytes] = []
        """What has come of a frame that is not whole."""
        self._missing = 0
        """So many bytes must come before it is worth another look."""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take in bytes, and yield the messages that are whole now.

        Raises:
            WireError: a frame is too large, or holds no message.  Nothing can be fed after that.
        """
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:  # Joined once, when all of it is here.
                return
            data = b"".join(self._parts)
            self._parts.clear()
        view, at, end = memoryview(data), 0, len(data)
        while end - at >= _LENGTH:
            length = int.from_bytes(view[at : at + _LENGTH], "big")
            if length > self.bytes_max:
                reason = f"a frame of {length:,} bytes, at most {self.bytes_max:,} are taken here"
                raise WireError(reason)
            stop = at + _LENGTH + length
            if stop > end:
                break
            yield decode_message(view[at + _LENGTH : stop])
            at = stop
        if at < end:
            self._missing = stop - end if end - at >= _LENGTH else 1
            self._parts.append(data[at:])
