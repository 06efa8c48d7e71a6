"""The cluster's own partition: where nodes can be reached, and where named readers stand.

A machine like a user's: its entries are replicated, applied in order, and in snapshots.  What it holds is replaced as a
whole with each change, so any thread may look at it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from latewood.replica.machine import PartitionEntry

DIRECTORY_PARTITION: Final = (1 << 64) - 1


class NodeAddress(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Where a node can be reached; nowhere, if the address is empty."""

    node_id: int
    address: str


class ReaderPosition(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Where a named reader of a partition stands; below 0: it is forgotten."""

    partition: int
    name: str
    sequence: int


Change: TypeAlias = NodeAddress | ReaderPosition

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Change]] = msgspec.msgpack.Decoder(Change)
_STATE: Final[msgspec.msgpack.Decoder[list[Change]]] = msgspec.msgpack.Decoder(list[Change])


def encode_change(change: Change) -> bytes:
    """Return a change as a payload."""
    return _ENCODER.encode(change)


class DirectoryMachine:
    """The state of that partition."""

    log_is_state = False

    def __init__(self) -> None:
        self.addresses: Mapping[int, str] = {}
        self.readers: Mapping[tuple[int, str], int] = {}

    def apply(self, entry: PartitionEntry) -> None:
        """Take a change in."""
        self._take(_DECODER.decode(entry.payload))

    def snapshot(self) -> Iterable[bytes]:
        """Yield all of it."""
        changes: list[Change] = [NodeAddress(*item) for item in sorted(self.addresses.items())]
        changes += [ReaderPosition(*key, at) for key, at in sorted(self.readers.items())]
        yield _ENCODER.encode(changes)

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Become what `snapshot` yielded."""
        self.addresses, self.readers = {}, {}
        if raw := b"".join(pieces):
            for change in _STATE.decode(raw):
                self._take(change)

    def _take(self, change: Change) -> None:
        match change:
            case NodeAddress():
                kept = {node: address for node, address in self.addresses.items() if node != change.node_id}
                self.addresses = kept | ({change.node_id: change.address} if change.address else {})
            case ReaderPosition():
                key = (change.partition, change.name)
                others = {known: at for known, at in self.readers.items() if known != key}
                self.readers = others | ({key: change.sequence} if change.sequence >= 0 else {})
