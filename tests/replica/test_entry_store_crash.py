"""The power fails at every step of a parent log's life; what was synced is there, in the terms it was synced in."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from latewood.errors import CorruptError
from latewood.log.head import retire_before
from latewood.replica import entry_store
from latewood.replica.engine import Entry, HardState, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.markers import base_record, hard_state_record
from latewood.testing import CrashFS
from tests.replica.parent import entries, everything, open_store, snapshot_at

LIMIT = 12


class Promise(NamedTuple):
    """What a node may have told others, and so must still have."""

    entries: tuple[Entry, ...] = ()
    hard_state: HardState = HardState()
    last_base: int = 0


class Story:
    """A store, and what it owes after each step."""

    def __init__(self, fs: CrashFS) -> None:
        self.fs, self.store = fs, open_store(fs, recent_bytes_max=64)
        fs.note = Promise()

    @property
    def promise(self) -> Promise:
        found = self.fs.note
        assert isinstance(found, Promise)
        return found

    def append(self, new: list[Entry]) -> None:
        kept = tuple(one for one in self.promise.entries if one.index < new[0].index)
        self.fs.note = self.promise._replace(entries=kept)
        self.store.append(new)

    def sync(self, hard_state: HardState, new: list[Entry] | None = None) -> None:
        """Have a hard state durable, and new entries with it, in one batch."""
        if new:
            kept = tuple(one for one in self.promise.entries if one.index < new[0].index)
            self.fs.note = self.promise._replace(entries=kept)
            self.store.append(new, hard_state)
        else:
            self.store.set_hard_state(hard_state)
        self.store.sync()
        self.fs.note = self.promise._replace(entries=tuple(everything(self.store)), hard_state=hard_state)

    def compact(self, snapshot: Snapshot) -> None:
        kept = tuple(one for one in self.promise.entries if one.index > snapshot.index)
        self.fs.note = self.promise._replace(entries=kept)
        self.store.compact(snapshot)
        self.fs.note = self.promise._replace(last_base=snapshot.index)

    def install(self, snapshot: Snapshot) -> None:
        self.fs.note = self.promise._replace(entries=())
        self.store.install(snapshot)
        self.store.sync()
        self.fs.note = self.promise._replace(last_base=snapshot.index)


def plain(story: Story) -> None:
    story.append(entries(1, 4))
    story.sync(HardState(1, 2, 1))
    story.append(entries(4, 8))
    story.sync(HardState(1, 2, 5))


def overwrite(story: Story) -> None:
    story.append(entries(1, 6))
    story.sync(HardState(1, 2, 2))
    story.append(entries(4, 9, term=2))
    story.sync(HardState(2, 3, 6))


def compaction(story: Story) -> None:
    story.append(entries(1, 10))
    story.append(entries(10, 20))
    story.sync(HardState(1, 1, 18))
    story.compact(snapshot_at(19, data=b"here"))
    story.append(entries(20, 24, term=2))
    story.sync(HardState(2, 0, 22))
    story.compact(snapshot_at(21, term=2))


def installation(story: Story) -> None:
    story.append(entries(1, 8))
    story.sync(HardState(1, 1, 3))
    story.install(snapshot_at(50, term=4))
    story.append(entries(51, 54, term=4))
    story.sync(HardState(4, 0, 52))


def together(story: Story) -> None:
    story.sync(HardState(1, 2, 1), entries(1, 4))
    story.sync(HardState(1, 2, 3), entries(4, 8))
    story.sync(HardState(3, 1, 5), entries(6, 9, term=3))
    story.sync(HardState(4, 2, 6))


def vote(story: Story) -> None:
    story.sync(HardState(5, 2, 0))
    story.append(entries(1, 3, term=5))
    story.sync(HardState(6, 3, 0))


def check(survivor: CrashFS) -> SegmentedLogStore:
    promise = survivor.note
    assert isinstance(promise, Promise)
    store = open_store(survivor, recent_bytes_max=64)
    found = store.recover()
    held = {one.index: one for one in everything(store)}
    for one in promise.entries:
        if one.index >= store.first_index:
            assert held.get(one.index) == one, f"entry {one.index} was acknowledged"
    highest = max([one.index for one in promise.entries], default=0)
    assert found.last_index >= highest
    base = found.snapshot.index if found.snapshot else 0
    assert base >= promise.last_base
    assert found.hard_state.term >= promise.hard_state.term
    if found.hard_state.term == promise.hard_state.term:
        assert found.hard_state.vote == promise.hard_state.vote, "a vote that was cast is kept"
    assert base <= found.hard_state.commit <= found.last_index
    assert found.hard_state.commit >= min(promise.hard_state.commit, found.last_index)
    assert store.durable_index == store.last_index
    return store


def check_goes_on(survivor: CrashFS) -> None:
    """Append to a survivor and cut the power again."""
    store = check(survivor)
    new = entries(store.last_index + 1, store.last_index + 4, term=9)
    store.append(new)
    store.set_hard_state(HardState(9, 1, store.last_index))
    store.sync()
    again = open_store(survivor.after_power_cut())
    assert everything(again)[-3:] == new
    assert again.recover().hard_state == HardState(9, 1, store.last_index)


@pytest.mark.slow
@pytest.mark.parametrize("tear_bytes", [512, 4096])
@pytest.mark.parametrize("tell", [plain, overwrite, compaction, installation, together, vote])
def test_a_power_cut_loses_nothing_that_was_synced(tell: Callable[[Story], None], tear_bytes: int) -> None:
    fs, count = CrashFS(tear_bytes=tear_bytes), 0
    for number, (step, survivor) in enumerate(fs.cuts_during(lambda disk: tell(Story(disk)), LIMIT)):
        if not isinstance(survivor.note, Promise):
            continue  # before the log was made
        count += 1
        try:
            (check_goes_on if number % 7 == 0 else check)(survivor)
        except Exception as error:
            error.add_note(f"after a cut at {step!r}, owing {survivor.note}")
            raise
    assert count > 20


@pytest.mark.parametrize("planted", ["no sync", "a forgotten vote", "a retirement before the base is durable"])
def test_a_planted_bug_shows(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if planted == "no sync":
        monkeypatch.setattr("latewood.log.Log.flush", lambda _: None)
    elif planted == "a forgotten vote":
        real = hard_state_record
        monkeypatch.setattr(entry_store, "hard_state_record", lambda state: real(state._replace(vote=0)))
    else:
        monkeypatch.setattr(SegmentedLogStore, "compact", _compact_in_haste)
    with pytest.raises((AssertionError, CorruptError)):  # noqa: PT012 - the cuts are made in the loop's head
        for _, survivor in CrashFS().cuts_during(lambda disk: compaction(Story(disk)), LIMIT):
            if isinstance(survivor.note, Promise):
                check(survivor)


def _compact_in_haste(store: SegmentedLogStore, snapshot: Snapshot) -> None:
    store._write([base_record(snapshot, clears=False), hard_state_record(store.hard_state)])
    retire_before(store._log, store._state.needed_sequence(store._log.next_sequence))
    store.sync()
