"""Answers: which requests of which clients a partition has carried out; a repetition is answered, not done again.

Part of a partition's state: folded from its commands in their order, the same on every node, and kept in snapshots.  A
command names its client and the number of the request.  Requests of a client to a partition are numbered; the last
`REQUEST_WINDOW` are remembered, and what is older is refused, never done twice.

A leader asks only when all of its log is folded here, so a request is never in the log twice.  Of a request whose end
was lost with its leader the beginning is known: a repetition appends what is missing.

Clients are bounded too.  One that has been silent for `CLIENT_SILENT_NS`, by the times of the entries, is forgotten: a
client gives up well before that.

The table itself is native: every command is noted on every node.  What comes in order takes no room: a thousand
requests of one record each, with nobody's between them, are one stretch.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from latewood.errors import CorruptError
from latewood.format.entry import VERSION, Command
from latewood.replica.native import native
from latewood.replica.requests import CLIENT_ID_BYTES, REQUEST_WINDOW

if TYPE_CHECKING:
    from latewood._native import _AnswerTable

CLIENTS_MAX: Final = 1_024
"""Of one partition."""

CLIENT_SILENT_NS: Final = 15 * 60 * 1_000_000_000
"""After so long nobody waits for an answer any more; three times the longest patience of our client."""

_NAME: Final = struct.Struct(f"<{CLIENT_ID_BYTES}sQ")


def request_name(client_id: bytes, request_id: int) -> bytes:
    """Return what a command says of the request that it is a part of."""
    return _NAME.pack(client_id, request_id)


class _StoredClient(msgspec.Struct, frozen=True, array_like=True):
    client_id: bytes
    highest: int
    last_ns: int
    stretches: list[tuple[int, int, int, int]]
    """(request, start, each, count): so many requests, of so many neighbouring records each, from that index on."""
    odd: list[tuple[int, list[tuple[int, int]]]]
    """Requests that came late or in pieces, and where each begins and ends; they count, whatever a stretch says."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[list[_StoredClient]]] = msgspec.msgpack.Decoder(list[_StoredClient])


class AnswerBook:
    """The answers of all partitions.  Owned by whoever owns the partitions."""

    def __init__(self, through: int = 0) -> None:
        self._through = through
        """Entries up to this global index are in it: of a snapshot, when they are replayed."""
        self.table: Final[_AnswerTable] = native("_AnswerTable")(REQUEST_WINDOW, CLIENTS_MAX, CLIENT_SILENT_NS)
        table = self.table
        self.begin = table.begin
        """`begin(partition_id, client_id, request_id)`: whether that follows all that its client has begun or done.

        It has begun then.  Of a client that the partition does not know that cannot be said.
        """
        self.find = table.find
        """`find(partition_id, client_id, request_id)`: the indices that it has appended; None if it is too old."""
        self.knows = table.knows
        """`knows(partition_id, client_id)`: whether a partition knows a client."""
        self.client_count = table.client_count
        """`client_count(partition_id)`: how many clients it knows."""

    def is_full(self, partition_id: int, client_id: bytes, now_ns: int, coming: int = 0) -> bool:
        """Say whether a client would have to take the place of one that may still ask; `coming` are on their way."""
        return not self.knows(partition_id, client_id) and self.table.is_full(partition_id, now_ns, coming)

    def note(self, commands: Iterable[tuple[int, Command]]) -> None:
        """Note committed commands with their global indices, in order; what a snapshot has told of changes nothing."""
        for global_index, (partition_id, first, payloads, timestamp_ns, request, _) in commands:
            if global_index > self._through:
                self.table.note(partition_id, request, first, len(payloads), timestamp_ns)

    def note_entry(self, global_index: int, data: bytes) -> None:
        """Note all commands of a committed entry, as `note`."""
        if global_index > self._through:
            self.table.note_entry(data, VERSION)

    def forget(self, partition_id: int, global_index: int) -> None:
        """Forget a partition that was torn down at an entry."""
        if global_index > self._through:
            self.table.forget(partition_id)

    def encode(self, partition_id: int) -> bytes:
        """Return all that is known in a partition, for a snapshot."""
        return _ENCODER.encode(self.table.stored(partition_id))

    def restore(self, partition_id: int, pieces: Iterable[bytes], path: Path = Path("answers")) -> None:
        """Take what a snapshot holds of a partition; `path` names the snapshot in errors.

        Raises:
            CorruptError: that is something else.
        """
        if raw := b"".join(pieces):
            try:
                stored = _DECODER.decode(raw)
            except msgspec.MsgspecError as error:
                reason = f"the answers of partition {partition_id} cannot be read: {error}"
                raise CorruptError(reason, path, 0) from None
            self.table.restore(partition_id, [msgspec.structs.astuple(one) for one in stored])
