"""The parent log: the engine's `LogStore`, in one `Log`.

Entries, hard states, cuts, bases and memberships are records of one log, so what is durable is always a prefix of what
was written, and recovery needs nothing but the log.  Nothing is ever changed in place: a conflicting end is overwritten
by a cut and the entries that follow it.

Threads: one writes, which is everything but `read`, `term`, `pack` and the figures; those may be called by others, and
wait for no disk while another writes.

Invariants: base_index <= durable_index <= last_index; no committed entry is ever cut; what is retired lies before the
base and before the latest marker of every kind.   Order of writes: docs/crash-safety.md, "replica".
"""

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from latewood.clock import Clock
from latewood.errors import DataLost, Diverged, EntryMissing, Poisoned, UsageError
from latewood.format.entry import (
    ParentRecord,
    RecordKind,
    decode_pack,
    decode_record,
    encode_entry,
    encode_pack,
    encode_record,
)
from latewood.format.identity import Owner
from latewood.fs import FileSystem, PosixFS
from latewood.limits import MiB
from latewood.log import Log, LogOptions
from latewood.log.head import retire_before, sweep_head
from latewood.replica.births import check_birth
from latewood.replica.engine import NO_NODE, ConfState, Entry, HardState, Recovered, Snapshot
from latewood.replica.markers import (
    ParentState,
    base_record,
    cut_record,
    entry_of,
    entry_record,
    hard_state_record,
    members_record,
    record_of_ours,
)
from latewood.replica.recent import RecentEntries

RECENT_BYTES_MAX: Final = 16 * MiB
"""Entries kept in memory: nodes that keep up are served from here."""

_READ_RETRIES_MAX: Final = 8
"""How often a read begins again because the end of the log was overwritten under it."""


_READ_ANCHORS_MAX: Final = 64
"""Stretches of the log that one read goes through; the caller asks again for what follows."""


class SegmentedLogStore:
    """The parent log on disk.  See the module for its threads; use it as a context manager, or call `close`."""

    def __init__(self, log: Log, recent_bytes_max: int) -> None:
        """Hold the parts; `SegmentedLogStore.open` is what opens a store."""
        self._log = log
        self._lock = threading.Lock()
        """Guards what follows.  Never held over a write, a read or a sync."""
        self._state = ParentState(log.path, from_beginning=log.first_sequence == 0)
        self._recent = RecentEntries(recent_bytes_max)
        self._durable_index = 0
        self._durable_commit = 0
        self._syncing_index = 0
        self._epoch = 0
        """Grows when entries are cut or forgotten: what is read from disk meanwhile is read again."""
        self._retires_at_sync = False
        self._failure: BaseException | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: LogOptions | None = None,
        *,
        birth: bytes | None = None,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        background: bool = True,
        recent_bytes_max: int = RECENT_BYTES_MAX,
    ) -> Self:
        """Open the parent log in a directory, making it if it is not there; finish what a crash interrupted.

        `birth` is its identity, in a cluster.

        Raises:
            StrayLog: another log is there.
            CorruptError: something that was durable is damaged.
            UnsupportedVersion: a later program wrote it.
            Locked: another process has it.
        """
        if birth is not None:
            check_birth(fs or PosixFS(), Path(path), birth, "the parent log of this node")
        owner = Owner.NODE
        log = Log.open(path, options, fs=fs, clock=clock, background=background, owner=owner, birth=birth)
        try:
            store = cls(log, recent_bytes_max)
            store._rebuild()
            sweep_head(log)
            store._retire()
        except BaseException:
            log.close()
            raise
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- figures ----------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """Its directory."""
        return self._log.path

    @property
    def first_index(self) -> int:
        """The oldest entry that is here, or the next if none is."""
        return self._state.base_index + 1

    @property
    def last_index(self) -> int:
        """The newest entry; the base if there is none."""
        return self._state.last_index

    @property
    def durable_index(self) -> int:
        """Every entry up to here is durable.  Falls only when a conflicting end is overwritten."""
        return self._durable_index

    @property
    def hard_state(self) -> HardState:
        """The hard state that was written last."""
        return self._state.hard_state

    @property
    def commit_index(self) -> int:
        """Every entry up to here is committed, as far as this log knows."""
        return self._sound_hard_state().commit

    @property
    def conf(self) -> ConfState:
        """Who is a member, as far as that was written."""
        return self._state.conf

    @property
    def snapshot(self) -> Snapshot | None:
        """What the log begins behind, if it does not begin at 1."""
        return self._state.snapshot

    def term(self, index: int) -> int:
        """Return an entry's term, or the base's, without touching the disk.

        Raises:
            EntryMissing: it is not here.
        """
        with self._lock:
            found = self._state.term(index)
        if found is None:
            raise EntryMissing(index, self.first_index, self.last_index)
        return found

    # -- what the engine's driver calls -------------------------------------------------------------------

    def recover(self, applied: int | None = None) -> Recovered:
        """Return what the log holds; all of it is durable if this is called first.

        `applied` is how far the partitions have come; by default, the base.
        """
        state = self._state
        hard_state = self._sound_hard_state()
        at = min(max(state.base_index if applied is None else applied, state.base_index), hard_state.commit)
        if any(state.conf_index < change <= at for change in state.changes):
            at = state.conf_index
        first = self._recent.first_index
        low = at + 1 if first is None else min(first, at + 1)
        entries = self.read_all(low, state.last_index + 1)
        terms = state.terms()
        return Recovered(hard_state, state.conf, state.conf_index, terms, state.last_index, entries, at, state.snapshot)

    def append(self, entries: Sequence[Entry], hard_state: HardState | None = None) -> None:
        """Write entries, in place of whatever lies at their indices and behind, and then the hard state: one batch.

        If they are of a term that no hard state has named yet, one that does is written in front of them.

        Raises:
            Diverged: they would overwrite what is committed or compacted; nothing was written.
            UsageError: they do not follow each other, or leave a gap; nothing was written.
            RecordTooLarge: one never fits; nothing was written.
            DiskFull, Poisoned: the store must be opened again.
        """
        if not entries:
            if hard_state:
                self.set_hard_state(hard_state)
            return
        state, first = self._state, entries[0]
        self._check_may_append(entries)
        markers: list[ParentRecord] = []
        if entries[-1].term > state.hard_state.term:
            markers.append(hard_state_record(HardState(entries[-1].term, NO_NODE, state.hard_state.commit)))
        if first.index <= state.last_index:
            markers.append(cut_record(first.index, first.term))
        behind = [hard_state_record(hard_state)] if hard_state and (markers or hard_state != state.hard_state) else []
        self._write(markers, entries, behind)

    def set_hard_state(self, state: HardState) -> None:
        """Write the hard state, behind the entries that it may speak of."""
        if state != self._state.hard_state:
            self._write([hard_state_record(state)])

    def keep_commit(self, index: int) -> None:
        """Make it durable that entries up to `index` are committed: before something is done that cannot be undone.

        Raises:
            Poisoned: that failed; the node must stop.
        """
        term, vote, commit = self._state.hard_state
        if index > self._durable_commit:
            self.set_hard_state(HardState(term, vote, max(commit, index)))
            self.sync()

    def set_conf(self, index: int, conf: ConfState) -> None:
        """Write who is a member since the entry at `index`."""
        self._write([members_record(index, conf, self._state.term(index) or 0)])

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew behind a snapshot that came from the leader: the log before it is gone.

        Raises:
            Diverged: it lies before what is committed here.
        """
        if snapshot.index < max(self._state.hard_state.commit, self._state.base_index):
            reason = f"a snapshot at {snapshot.index} would undo entries up to {self._state.hard_state.commit}"
            raise Diverged(reason, self.path, 0)
        self._write([base_record(snapshot, clears=True), hard_state_record(self._state.hard_state)])
        self._retires_at_sync = True

    def sync(self) -> None:
        """Make all that was written durable.

        Raises:
            Poisoned: that failed, now or before: the node must stop.
        """
        self._check_sound()
        commit = self._state.hard_state.commit
        with self._lock:
            self._syncing_index = self._state.last_index
        self._log.flush()
        self._durable_commit = commit
        with self._lock:
            self._durable_index = max(self._durable_index, self._syncing_index)
        if self._retires_at_sync:
            self._retires_at_sync = False
            self._retire()

    def compact(self, snapshot: Snapshot) -> None:
        """Let go of all entries up to a snapshot's index.  Durable on return; whole segments leave the disk.

        Raises:
            UsageError: the snapshot is not of what is durable here; nothing was written.
        """
        state = self._state
        if snapshot.index <= state.base_index:
            return
        durable = self._durable_index
        if snapshot.index > durable or state.term(snapshot.index) != snapshot.term:
            message = (
                f"a snapshot at {snapshot.index} of term {snapshot.term} is not of what is durable up to {durable}"
            )
            raise UsageError(message)
        term, vote, commit = state.hard_state  # A snapshot holds what is committed; the news may not be written yet.
        hard_state = HardState(term, vote, max(commit, snapshot.index))
        markers = [base_record(snapshot, clears=False), hard_state_record(hard_state)]
        if state.conf_index > snapshot.index:
            markers.append(members_record(state.conf_index, state.conf, state.term(state.conf_index) or 0))
        self._write(markers)
        self.sync()
        self._retire()

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries from `low`, below `high`, at least one and about `bytes_max`; none if they are gone.

        Recent ones come from memory; for older ones the calling thread reads the disk.
        """
        for _ in range(_READ_RETRIES_MAX):
            with self._lock:
                epoch, high = self._epoch, min(high, self._state.last_index + 1)
                if not self._state.base_index < low < high:
                    return []
                first = self._recent.first_index
                if first is not None and first <= low:
                    return _bounded(self._recent.range(low, high), bytes_max)
                anchors = self._state.anchors(low, _READ_ANCHORS_MAX)
            try:
                found = _bounded((entry for _, entry in self._from_disk(anchors, low, high)), bytes_max)
            except DataLost:  # It was compacted meanwhile.
                found = []
            with self._lock:
                if epoch == self._epoch:
                    return found
        return []

    # -- catching up --------------------------------------------------------------------------------------

    def read_all(self, low: int, high: int) -> list[Entry]:
        """Return all entries from `low`, below `high`, however large.

        Raises:
            EntryMissing: one is not here.
        """
        found: list[Entry] = []
        while low + len(found) < high:
            more = self.read(low + len(found), high, RECENT_BYTES_MAX)
            if not more:
                raise EntryMissing(low + len(found), self.first_index, self.last_index)
            found += more
        return found

    def pack(self, low: int, high: int, bytes_max: int = RECENT_BYTES_MAX) -> bytes:
        """Return entries from `low`, below `high`, as one checked piece of bytes, of about `bytes_max`.

        Raises:
            EntryMissing: they are not here.
        """
        entries = self.read(low, high, bytes_max)
        if not entries:
            raise EntryMissing(low, self.first_index, self.last_index)
        return encode_pack(encode_record(entry_record(entry)) for entry in entries)

    def apply_pack(self, raw: bytes) -> list[Entry]:
        """Write what is new of a pack's entries, and return that; written, not durable.

        Raises:
            CorruptError: the pack is damaged; nothing was written.
            Diverged, UsageError: as `append`.
        """
        entries = [entry_of(record) for record in decode_pack(raw)]
        fresh = [entry for entry in entries if self._state.term(entry.index) != entry.term]
        fresh = [entry for entry in entries if fresh and entry.index >= max(fresh[0].index, self.first_index)]
        self.append(fresh)
        return fresh

    def close(self) -> None:
        """Flush and release the log.  Closing twice is fine."""
        self._log.close()

    # -- inside -------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        state, path = self._state, self.path
        for record in self._log.scan():
            parent = record_of_ours(record, path)
            state.add(parent, record.sequence)
            self._remember(parent)
        state.check_whole()
        self._durable_index = state.last_index  # Opening a log to write makes what it found durable.

    def _sound_hard_state(self) -> HardState:
        """Return the hard state, made to agree with the entries: a power cut may keep one without the other.

        Neither was acknowledged then: a commit beyond the end is only news of what others have, and one before the
        base is older than the snapshot.
        """
        state = self._state
        term, vote, commit = state.hard_state
        last_term = state.terms()[-1][1]
        if last_term > term:
            term, vote = last_term, NO_NODE
        return HardState(term, vote, max(min(commit, state.last_index), state.base_index))

    def _check_may_append(self, entries: Sequence[Entry]) -> None:
        state, first = self._state, entries[0]
        expected = range(first.index, first.index + len(entries))
        gapless = all(entry.index == index for entry, index in zip(entries, expected, strict=True))
        if not gapless or first.index > state.last_index + 1:
            message = f"entries {first.index} to {entries[-1].index} do not follow entry {state.last_index}"
            raise UsageError(message)
        # A cut below the commit would take back what was acknowledged: no crash and no peer may cause that.
        kept = max(state.base_index, min(state.hard_state.commit, state.last_index))
        if first.index <= kept:
            reason = f"entry {first.index} of term {first.term} would overwrite entries up to {kept}, which count"
            raise Diverged(reason, self.path, 0)
        before = state.term(first.index - 1) or 0
        terms = [before, *(entry.term for entry in entries)]
        if any(later < earlier for earlier, later in pairwise(terms)):
            message = f"the terms of entries {first.index} to {entries[-1].index} fall"
            raise UsageError(message)

    def _write(
        self, markers: list[ParentRecord], entries: Sequence[Entry] = (), behind: Sequence[ParentRecord] = ()
    ) -> None:
        """Append markers, then entries, then what stands behind them, as one batch; then know of them."""
        self._check_sound()
        payloads = [encode_entry(*entry) for entry in entries]
        indices = [entry.index for entry in entries]
        if markers or behind:
            payloads = [*map(encode_record, markers), *payloads, *map(encode_record, behind)]
            indices = [*(record.index for record in markers), *indices, *(record.index for record in behind)]
        end = self._log.next_sequence
        try:
            self._log.append_many(payloads, ext_ids=indices)
        except BaseException as error:
            if self._log_has_moved(end):  # A part of the batch may be there; only recovery can tell.
                self._failure = error
            raise
        with self._lock:
            self._know(markers, end)
            self._state.add_entries(entries, end + len(markers))
            for entry in entries:
                self._recent.add(entry)
            self._know(behind, end + len(markers) + len(entries))

    def _know(self, records: Sequence[ParentRecord], start: int) -> None:
        """Take note of markers that stand in the log from a sequence on."""
        for sequence, record in enumerate(records, start):
            self._state.add(record, sequence)
            self._remember(record)

    def _log_has_moved(self, end: int) -> bool:
        try:
            return self._log.next_sequence != end
        except Exception:  # noqa: BLE001 - whatever it is, nobody can tell what was written
            return True

    def _remember(self, record: ParentRecord) -> None:
        """Keep the recent entries and the durable index as a record leaves them."""
        if record.kind == RecordKind.ENTRY:
            self._recent.add(entry_of(record))
        elif record.kind == RecordKind.CUT:
            self._recent.cut(record.index)
            self._lower_durable(record.index - 1)
        elif record.kind == RecordKind.BASE:
            self._recent.forget_to(record.index)
            self._recent.cut(self._state.last_index + 1)
            self._lower_durable(self._state.last_index)

    def _lower_durable(self, index: int) -> None:
        self._epoch += 1
        self._durable_index = min(self._durable_index, index)
        self._syncing_index = min(self._syncing_index, index)

    def _retire(self) -> None:
        """Drop the segments that recovery does not need."""
        state = self._state
        if state.snapshot is None:
            return
        if state.last_index > state.base_index:
            first = state.base_index + 1
            exact = next(self._from_disk(state.anchors(first, 1), first, first + 1))[0]
            with self._lock:
                state.pin(exact)
        retire_before(self._log, state.needed_sequence(self._log.durable_sequence))

    def _from_disk(self, anchors: list[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, Entry]]:
        """Yield sequence and entry from `low` on, stretch by stretch: an overwritten end stands between two of them."""
        stops = [index for index, _ in anchors[1:]] + [high if len(anchors) < _READ_ANCHORS_MAX else anchors[-1][0] + 1]
        for (start, sequence), stop in zip(anchors, stops, strict=True):
            yield from self._stretch(sequence, max(low, start), min(stop, high))

    def _stretch(self, sequence: int, low: int, high: int) -> Iterator[tuple[int, Entry]]:
        wanted = low
        for record in self._log.scan(sequence) if low < high else ():
            parent = decode_record(record.payload, self.path, record.sequence)
            if parent.kind == RecordKind.ENTRY and parent.index == wanted:
                yield record.sequence, entry_of(parent)
                wanted += 1
                if wanted >= high:
                    return

    def _check_sound(self) -> None:
        if self._failure is not None:
            message = f"the parent log stopped writing because of this: {self._failure}; open it again"
            raise Poisoned(message) from self._failure


def _bounded(entries: Iterator[Entry], bytes_max: int) -> list[Entry]:
    """Take entries until they are about `bytes_max`, at least one."""
    found, size = list[Entry](), 0
    for entry in entries:
        size += len(entry.data)
        if found and size > bytes_max:
            break
        found.append(entry)
    return found
