"""The cluster's own partition: where nodes can be reached, where named readers stand, and what partitions still keep.

A machine like a user's: its entries are replicated, applied in order, and in snapshots.  What it holds is replaced as a
whole with each change, so any thread may look at it.

A leader proposes from where on a partition keeps its records, and what comes of it is decided here, in the order of the
entries and so the same on every node: a reader that came first, or came back, holds what it needs.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from latewood.limits import READER_PREFIX_OWN
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
    born: int = 0
    """The birth of the partition that it read; 0: there was none yet, or an older program did not say."""
    committed_at_ns: int = 0
    """When the leader took the change; the entry says it.  0: an older program did not keep it."""


class LowMark(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A partition, of a certain birth, keeps its records from a sequence on; below 0: the partition is forgotten."""

    partition: int
    born: int
    first_sequence: int
    silent_before_ns: int = 0
    """Readers that have committed nothing since then hold nothing back."""


Change: TypeAlias = NodeAddress | ReaderPosition | LowMark

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
        self.readers: Mapping[tuple[int, str], ReaderPosition] = {}
        self.marks: Mapping[int, LowMark] = {}
        """By partition, as they were decided."""

    def apply(self, entry: PartitionEntry) -> None:
        """Take a change in."""
        change = _DECODER.decode(entry.payload)
        if isinstance(change, ReaderPosition):
            change = msgspec.structs.replace(change, committed_at_ns=entry.timestamp_ns)
        if isinstance(change, LowMark):
            change = self._decided(change)
        self._take(change)

    def snapshot(self) -> Iterable[bytes]:
        """Yield all of it."""
        changes: list[Change] = [NodeAddress(*item) for item in sorted(self.addresses.items())]
        changes += [position for _, position in sorted(self.readers.items())]
        changes += [mark for _, mark in sorted(self.marks.items())]
        yield _ENCODER.encode(changes)

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Become what `snapshot` yielded."""
        self.addresses, self.readers, self.marks = {}, {}, {}
        if raw := b"".join(pieces):
            for change in _STATE.decode(raw):
                self._take(change)

    def wanted(self, partition: int, born: int, silent_before_ns: int = 0) -> int | None:
        """Return the oldest sequence that a named reader of a partition wants; None if there is no reader.

        One that stands in another life of the partition may want anything.
        """
        readers = [one for (key, _), one in self.readers.items() if key == partition]
        active = [one for one in readers if not is_silent(one.name, one.committed_at_ns, silent_before_ns)]
        return min((one.sequence if one.born == born else 0 for one in active), default=None)

    def first_sequence(self, partition: int, born: int) -> int:
        """Return from where on a partition keeps its records, as was decided."""
        mark = self.marks.get(partition)
        return mark.first_sequence if mark and mark.born == born else 0

    def _decided(self, proposed: LowMark) -> LowMark:
        """Return what becomes of a mark: never lower than it was, and not above what a reader wants."""
        known = self.marks.get(proposed.partition)
        if known and known.born > proposed.born:
            return known
        if proposed.first_sequence < 0:
            return proposed
        wanted = self.wanted(proposed.partition, proposed.born, proposed.silent_before_ns)
        first = proposed.first_sequence if wanted is None else min(proposed.first_sequence, wanted)
        before = self.first_sequence(proposed.partition, proposed.born)
        return LowMark(proposed.partition, proposed.born, max(before, first))

    def _take(self, change: Change) -> None:
        match change:
            case NodeAddress():
                kept = {node: address for node, address in self.addresses.items() if node != change.node_id}
                self.addresses = kept | ({change.node_id: change.address} if change.address else {})
            case ReaderPosition():
                key = (change.partition, change.name)
                others = {known: at for known, at in self.readers.items() if known != key}
                self.readers = others | ({key: change} if change.sequence >= 0 else {})
            case LowMark():
                rest = {key: mark for key, mark in self.marks.items() if key != change.partition}
                self.marks = rest | ({change.partition: change} if change.first_sequence >= 0 else {})


def is_silent(name: str, committed_at_ns: int, silent_before_ns: int) -> bool:
    """Say whether a reader holds nothing back, because it has committed nothing since then; ours always do."""
    return 0 < committed_at_ns < silent_before_ns and not name.startswith(READER_PREFIX_OWN)
