"""What the records of a parent log add up to: which entries count, where they stand, and what the markers say.

Pure: records in, values out.  The store that writes and the recovery that reads fold the same records with the same
code, so that both know the same.

Where an entry stands is kept for one entry in `ANCHOR_ENTRIES`, and for the first after every cut: from an anchor on,
the first record with an index is the one that counts.

A log whose head was retired is folded from the middle: what its first records build on is gone.  So a fold knows
whether it knows the base, and whether it knows the end.  A base tells the base alone, an entry or a cut tells the end
alone; only the beginning of the log, or a base that clears, tells both.  When all is read, the base must be known.

Invariants: base_index <= last_index; terms never fall; an index that was cut is found behind the cut, never before it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.format.entry import (
    Members,
    ParentRecord,
    RecordKind,
    decode_members,
    decode_record,
    decode_vote,
    encode_members,
    encode_vote,
)
from latewood.kernel import Record
from latewood.replica.engine import ConfState, Entry, EntryKind, HardState, Snapshot

ANCHOR_ENTRIES: Final = 128
"""A look-up on disk passes fewer entries than this; an anchor takes 16 bytes."""

CLEARS: Final = 1
"""The type of a base behind which nothing of the old log counts."""


class ParentState:
    """The fold over a parent log.  Owned by its store."""

    def __init__(self, path: Path, *, from_beginning: bool = True) -> None:
        """Begin with the first record of a log, or with the first that is left of one whose head was retired."""
        self._path = path
        self.base_index = 0
        """Entries up to here are in a snapshot."""
        self.last_index = 0
        self.hard_state = HardState()
        self.conf, self.conf_index = ConfState(), 0
        self.snapshot: Snapshot | None = None
        self.changes: list[int] = []
        """Indices of the entries that change the membership."""
        self._terms: list[tuple[int, int]] = [(0, 0)]
        self._anchor_indices, self._anchor_sequences = array("Q"), array("Q")
        self._wants_anchor = True
        self._knows_base = from_beginning
        """Whether `base_index` is what was compacted, or only where the fold began."""
        self._knows_end = from_beginning
        """Whether `last_index` is the newest entry: a base alone says nothing of the entries that stand before it."""
        self._marks: dict[int, int] = {}
        """Where the latest marker of a kind stands."""

    # -- look-ups ---------------------------------------------------------------------------------------

    def term(self, index: int) -> int | None:
        """Return the term of an entry, or of the base; None if it is not here."""
        if not self.base_index <= index <= self.last_index:
            return None
        return self._terms[bisect_right(self._terms, index, key=lambda run: run[0]) - 1][1]

    def terms(self) -> list[tuple[int, int]]:
        """Return `(index, term)` at the base, then wherever the term changes."""
        return list(self._terms)

    def anchors(self, low: int, count_max: int) -> list[tuple[int, int]]:
        """Return `(index, sequence)` of the anchor of `low` and of some after it.

        From such a sequence on, up to the index of the next anchor, the first record with an index is the entry that
        counts.
        """
        start = bisect_right(self._anchor_indices, low) - 1
        stop = start + count_max
        return list(zip(self._anchor_indices[start:stop], self._anchor_sequences[start:stop], strict=True))

    def pin(self, sequence: int) -> None:
        """Know that the first entry stands exactly at `sequence`."""
        self._anchor_indices[0], self._anchor_sequences[0] = self.base_index + 1, sequence

    def needed_sequence(self, end: int) -> int:
        """Return the first sequence that recovery needs; `end` if it needs none."""
        first_entry = self._anchor_sequences[0] if self.last_index > self.base_index else end
        return min([first_entry, *self._marks.values()]) if self.snapshot else 0

    # -- the fold ---------------------------------------------------------------------------------------

    def add(self, record: ParentRecord, sequence: int) -> None:
        """Take in the record that stands at `sequence`.

        Raises:
            CorruptError: it cannot follow those before it.
        """
        if record.kind == RecordKind.ENTRY:
            self._add_entry(record.index, record.term, record.type, sequence)
        elif record.kind == RecordKind.CUT:
            self._cut(record.index, sequence)
        elif record.kind == RecordKind.HARD_STATE:
            vote = decode_vote(record.body, self._path, sequence)
            self.hard_state = HardState(record.term, vote, record.index)
            self._marks[RecordKind.HARD_STATE] = sequence
        else:
            self._add_members(record, sequence)

    def add_entries(self, entries: Iterable[Entry], sequence: int) -> None:
        """Take in entries whose records stand at `sequence` and behind it.

        Raises:
            CorruptError: they cannot follow what is there.
        """
        for place, (index, term, kind, _) in enumerate(entries, sequence):
            self._add_entry(index, term, kind, place)

    def check_whole(self) -> None:
        """Raise if the records do not say where the log begins.

        Raises:
            CorruptError: the base before its first entry is missing.
        """
        if not self._knows_base:
            reason = f"the parent log begins at entry {self.base_index + 1}, without the base before it"
            raise CorruptError(reason, self._path, 0)

    def _add_entry(self, index: int, term: int, kind: int, sequence: int) -> None:
        self._learn_end(index - 1)
        if index != self.last_index + 1 or term < self._terms[-1][1]:
            last = f"{self.last_index} of term {self._terms[-1][1]}"
            raise self._corrupt(f"holds entry {index} of term {term}, which cannot follow entry {last}", sequence)
        if self._wants_anchor or index - self._anchor_indices[-1] >= ANCHOR_ENTRIES:
            self._anchor_indices.append(index)
            self._anchor_sequences.append(sequence)
            self._wants_anchor = False
        if term != self._terms[-1][1]:
            self._terms.append((index, term))
        if kind != EntryKind.NORMAL:
            self.changes.append(index)
        self.last_index = index

    def _cut(self, index: int, sequence: int) -> None:
        if self._knows_base and index <= self.base_index:
            raise self._corrupt(f"cuts entry {index}, and the base is {self.base_index}", sequence)
        if index <= self.base_index:  # What is left of the log began behind the cut.
            base = self.snapshot  # An older one, perhaps, of which `_rebase` could make nothing: now it can.
            if base is not None and base.index == index - 1:
                self._root(base.index, base.term, knows_base=True)
            else:
                self._root(index - 1, 0, knows_base=False)
        self._learn_end(index - 1)
        if index > self.last_index + 1:
            raise self._corrupt(f"cuts entry {index}, and the last is {self.last_index}", sequence)
        self.last_index = index - 1
        self._drop_from(index)
        self._wants_anchor = True

    def _learn_end(self, index: int) -> None:
        """Know that the newest entry was `index`, if that was not known: entries up to it may have been retired."""
        if not self._knows_end and index != self.base_index:
            self._root(index, 0, knows_base=False)
        self._knows_end = True

    def _drop_from(self, index: int) -> None:
        while self._anchor_indices and self._anchor_indices[-1] >= index:
            self._anchor_indices.pop()
            self._anchor_sequences.pop()
        while len(self._terms) > 1 and self._terms[-1][0] >= index:
            self._terms.pop()
        while self.changes and self.changes[-1] >= index:
            self.changes.pop()

    def _add_members(self, record: ParentRecord, sequence: int) -> None:
        members, data = decode_members(record.body, self._path, sequence)
        if record.kind == RecordKind.BASE:
            self._rebase(record, sequence)
            self.snapshot = Snapshot(record.index, record.term, ConfState(*members), data)
            self._marks[RecordKind.BASE] = sequence
            if record.type != CLEARS and self.conf_index > record.index:
                return  # The membership changed since; that marker follows again, behind this one.
        self.conf, self.conf_index = ConfState(*members), record.index
        self._marks[RecordKind.MEMBERS] = sequence

    def _rebase(self, record: ParentRecord, sequence: int) -> None:
        index = record.index
        if record.type == CLEARS or not self._knows_end:
            self._root(index, record.term, knows_base=True)
            self._knows_end = record.type == CLEARS
            return
        if index > self.last_index or (self._knows_base and index < self.base_index):
            raise self._corrupt(f"is a base at {index}, outside of {self.base_index} to {self.last_index}", sequence)
        if index < self.base_index:
            return  # An older one, whose entries were retired since.
        if index == self.last_index:  # No anchor is left either: those before it may be retired.
            self._root(index, record.term, knows_base=True)
            return
        self._forget_to(index)
        self._terms[0] = (index, record.term)
        if len(self._terms) > 1 and self._terms[1][1] == record.term:  # What was left of the log began behind the base.
            del self._terms[1]
        self.base_index, self._knows_base = index, True

    def _forget_to(self, index: int) -> None:
        """Drop what speaks of entries up to `index` alone."""
        keep = max(0, bisect_right(self._anchor_indices, index + 1) - 1)
        del self._anchor_indices[:keep], self._anchor_sequences[:keep]
        del self._terms[: bisect_right(self._terms, index, key=lambda run: run[0]) - 1]
        self.changes = [change for change in self.changes if change > index]

    def _root(self, index: int, term: int, *, knows_base: bool) -> None:
        """Begin anew behind an index."""
        self._knows_base = knows_base
        self.base_index = self.last_index = index
        self._terms = [(index, term)]
        self.changes = []
        self._anchor_indices, self._anchor_sequences = array("Q"), array("Q")
        self._wants_anchor = True

    def _corrupt(self, reason: str, sequence: int) -> CorruptError:
        return CorruptError(f"record {sequence} {reason}", self._path, sequence)


def hard_state_record(state: HardState) -> ParentRecord:
    """Return the marker of a hard state."""
    return ParentRecord(RecordKind.HARD_STATE, 0, state.term, state.commit, encode_vote(state.vote))


def cut_record(index: int, term: int) -> ParentRecord:
    """Return the marker that entries from `index` on are gone, for others of `term`."""
    return ParentRecord(RecordKind.CUT, 0, term, index, b"")


def base_record(snapshot: Snapshot, *, clears: bool) -> ParentRecord:
    """Return the marker that entries up to a snapshot's index are in it."""
    body = encode_members(Members(*snapshot.conf)) + snapshot.data
    return ParentRecord(RecordKind.BASE, CLEARS if clears else 0, snapshot.term, snapshot.index, body)


def members_record(index: int, conf: ConfState, term: int) -> ParentRecord:
    """Return the marker of who is a member since `index`."""
    return ParentRecord(RecordKind.MEMBERS, 0, term, index, encode_members(Members(*conf)))


def entry_record(entry: Entry) -> ParentRecord:
    """Return the record of an entry."""
    return ParentRecord(RecordKind.ENTRY, entry.kind, entry.term, entry.index, entry.data)


def entry_of(record: ParentRecord) -> Entry:
    """Return the entry in a record."""
    return Entry(record.index, record.term, record.type, record.body)


def record_of_ours(record: Record, path: Path) -> ParentRecord:
    """Return what a record of a parent log says, if the node wrote it: then its `ext_id` is the index in it.

    Raises:
        CorruptError: the node did not write it, or it is damaged.
        UnsupportedVersion: a later program wrote it, or none that knows of nodes.
    """
    stray = f"record {record.sequence} is not as a node writes it: another program appended it"
    try:
        parent = decode_record(record.payload, path, record.sequence)
    except UnsupportedVersion as error:
        error.add_note(f"if no later Latewood ever ran this node, {stray}, and the node must be replaced")
        raise
    except CorruptError as error:
        raise CorruptError(f"{stray} ({error.reason})", path, record.sequence) from None
    if parent.index != record.ext_id:
        raise CorruptError(stray, path, record.sequence)
    return parent
