"""Disks of simulated nodes: a parent log and partitions that lose what is not synced.

What survives a power cut is all that was synced, and any beginning of what was written since: that is what
`latewood.log` promises, whose own tests go through every cut of a real disk.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import takewhile
from random import Random
from typing import TypeAlias

from latewood.format.entry import Command
from latewood.replica.engine import NO_NODE, ConfState, Entry, HardState, Recovered, Snapshot
from latewood.testing.simulate_truth import Placed, Violation, operation_in

_Record: TypeAlias = Entry | HardState | tuple[int, ConfState] | tuple[str, Snapshot]


class ModelStore:
    """A `LogStore` in memory."""

    def __init__(self, first: Snapshot | None) -> None:
        self._records: list[_Record] = []
        self._durable = self._syncing = 0
        self._clear()
        if first:
            self.install(first)
            self.set_hard_state(HardState(first.term, NO_NODE, first.index))
        self.sync()
        self.settle()

    def _clear(self) -> None:
        self.base_index, self.base_term = 0, 0
        self.entries: list[Entry] = []
        self.hard_state = HardState()
        self.conf, self.conf_index = ConfState(), 0
        self.snapshot: Snapshot | None = None

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self.base_index + len(self.entries)

    def term(self, index: int) -> int:
        """Return an entry's term."""
        return self.base_term if index == self.base_index else self.entries[index - self.base_index - 1].term

    def append(self, entries: Sequence[Entry], hard_state: HardState | None = None) -> None:
        """Write entries, and then the hard state."""
        self._write(entries)
        if hard_state:
            self.set_hard_state(hard_state)

    def set_hard_state(self, state: HardState) -> None:
        """Write the hard state."""
        self._write([state])

    def set_conf(self, index: int, conf: ConfState) -> None:
        """Write who is a member."""
        self._write([(index, conf)])

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew behind a snapshot."""
        self._write([("install", snapshot)])

    def compact(self, snapshot: Snapshot) -> None:
        """Let go of entries up to the snapshot's index, durably."""
        self._write([("compact", snapshot)])
        self.sync()
        self.settle()

    def sync(self) -> None:
        """Begin to make all durable; `settle` ends it."""
        self._syncing = len(self._records)

    def settle(self) -> None:
        """End the sync."""
        self._durable = max(self._durable, self._syncing)

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries."""
        if low <= self.base_index:
            return []
        found = self.entries[low - self.base_index - 1 : high - self.base_index - 1]
        return found[: max(1, bytes_max // 64)]

    def lose_power(self, random: Random) -> None:
        """Keep what is synced, and a random beginning of the rest."""
        kept = random.randint(self._durable, len(self._records))
        del self._records[kept:]
        self._durable = self._syncing = kept
        records, self._records = self._records, []
        self._clear()
        self._write(records)

    def cut(self, index: int) -> None:
        """Drop entries from `index` on: no store does this by itself, a planted bug does."""
        self._records = [one for one in self._records if not (isinstance(one, Entry) and one.index >= index)]
        del self.entries[max(0, index - self.base_index - 1) :]
        self._durable = self._syncing = len(self._records)
        self.hard_state = self.hard_state._replace(commit=min(self.hard_state.commit, self.last_index))
        self._write([self.hard_state])

    def recover(self) -> Recovered:
        """Return what is there."""
        term, vote, commit = self.hard_state
        # A cut between entries and the hard state behind them leaves the newer term only in the entries.
        if (newest := self.term(self.last_index)) > term:
            term, vote = newest, NO_NODE
        terms = [(self.base_index, self.base_term)]
        for entry in self.entries:
            if entry.term != terms[-1][1]:
                terms.append((entry.index, entry.term))
        return Recovered(
            HardState(term, vote, max(commit, self.base_index)),
            self.conf,
            self.conf_index,
            terms,
            self.last_index,
            list(self.entries),
            self.base_index,
            self.snapshot,
        )

    def _write(self, records: Iterable[_Record]) -> None:
        for record in records:
            self._records.append(record)
            if isinstance(record, Entry):
                del self.entries[record.index - self.base_index - 1 :]
                self.entries.append(record)
            elif isinstance(record, HardState):
                self.hard_state = record
            elif isinstance(record[0], int):
                self.conf_index, self.conf = record
            else:
                self._begin(*record)

    def _begin(self, how: str, snapshot: Snapshot) -> None:
        keeps = how == "compact" and snapshot.index <= self.last_index
        self.entries = self.entries[snapshot.index - self.base_index :] if keeps else []
        self.base_index, self.base_term, self.snapshot = snapshot.index, snapshot.term, snapshot
        if self.conf_index < snapshot.index or how == "install":
            self.conf, self.conf_index = snapshot.conf, snapshot.index


class ModelPartition:
    """One partition of one node: its log, and a state machine that remembers what it applied.

    Invariant: checkpointed <= applied <= durable <= placed.
    """

    def __init__(self) -> None:
        self.placed: list[Placed] = []
        self.durable = 0
        self.state: list[int] = []
        self.applied = 0
        self.checkpoint: tuple[list[int], int] = ([], 0)

    @property
    def born(self) -> int:
        """The parent index of its first record."""
        return self.placed[0].index if self.placed else 0

    def place(self, command: Command, index: int, *, verifies: bool = True) -> None:
        """Put committed records in their places, or find them there already."""
        for at, payload in enumerate(command.payloads, command.partition_log_index):
            placed = Placed(operation_in(payload), index)
            if at > len(self.placed) + 1:
                raise Violation(f"record {at} of partition {command.partition_id} comes after {len(self.placed)}")
            if at == len(self.placed) + 1:
                self.placed.append(placed)
            elif verifies and self.placed[at - 1] != placed:
                raise Violation(f"another record stands at {at} of {command} of entry {index}")

    def sync(self) -> None:
        """Make the log durable."""
        self.durable = len(self.placed)

    def apply(self) -> bool:
        """Apply the next durable record; say whether there was one."""
        if self.applied >= self.durable:
            return False
        self.state.append(self.placed[self.applied].operation)
        self.applied += 1
        return True

    def finish(self) -> None:
        """Sync and apply all that there is."""
        self.sync()
        while self.apply():
            pass

    def save(self, *, with_index: bool = True) -> None:
        """Make the state durable, with how far it got."""
        self.checkpoint = (list(self.state), self.applied if with_index else self.checkpoint[1])

    def lose_power(self, random: Random) -> None:
        """Keep what is durable, and a random beginning of the rest."""
        del self.placed[random.randint(self.durable, len(self.placed)) :]
        self.durable = len(self.placed)
        state, self.applied = self.checkpoint
        self.state = list(state)

    def required_index(self, handed_on: int) -> int:
        """Return up to where the parent log is not needed for this partition any more."""
        saved = self.checkpoint[1]
        # After a cut in the middle of an install, a partition may be ahead of its node.
        return min(handed_on, self.placed[saved].index - 1) if saved < len(self.placed) else handed_on

    def check(self) -> None:
        """Check the watermarks, and that the state is what the log makes of it."""
        if not self.checkpoint[1] <= self.applied <= self.durable <= len(self.placed):
            raise Violation(f"checkpoint {self.checkpoint[1]}, applied {self.applied}, durable {self.durable}, "
                            f"placed {len(self.placed)} are out of order")  # fmt: skip
        if self.state != [one.operation for one in self.placed[: self.applied]]:
            raise Violation("a state machine did not apply every record once")


def pack_partitions(partitions: dict[int, ModelPartition], index: int) -> bytes:
    """Return what partitions hold up to a parent index, as a snapshot's data."""
    kept = {key: list(takewhile(lambda one: one.index <= index, part.placed)) for key, part in partitions.items()}
    return zlib.compress(json.dumps(kept).encode())


def unpack_partitions(data: bytes) -> dict[int, ModelPartition]:
    """Return the partitions of a snapshot, durable and applied."""
    partitions: dict[int, ModelPartition] = {}
    for key, placed in json.loads(zlib.decompress(data)).items():
        partition = partitions[int(key)] = ModelPartition()
        partition.placed = [Placed(*one) for one in placed]
        partition.finish()
        partition.save()
    return partitions
