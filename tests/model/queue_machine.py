"""Readers and retention against a dictionary of positions, on a log that crashes."""

from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from latewood import DataLost, Reader, RetentionPolicy
from latewood.log.listing import list_segments
from latewood.testing import CrashFS
from tests.model.log_machine import LogMachine, picks

NAMES: Final = ["a", "b", "c"]
SILENT_MS: Final = 50

names = st.sampled_from(NAMES)


class QueueMachine(LogMachine):
    """Adds readers that read, commit, seek and are removed, and a retention that follows them."""

    def __init__(self) -> None:
        self.committed: dict[str, int] = {}
        self.committed_at: dict[str, int] = {}
        self.reading: dict[str, Reader] = {}
        self.position: dict[str, int] = {}
        super().__init__()

    # -- readers --------------------------------------------------------------------------------------

    @rule(name=names, start=st.sampled_from(["resume", "earliest", "latest"]), elsewhere=st.booleans())
    def open_reader(self, name: str, start: str, *, elsewhere: bool) -> None:
        """Open a reader, in this process or as another would."""
        if name in self.reading:
            return
        known = self.committed.get(name)
        reader = (self.opened("r") if elsewhere else self.log).reader(name, start=start)  # type: ignore[arg-type]
        places = {"resume": self.first if known is None else known, "earliest": self.first, "latest": len(self.lines)}
        self.reading[name], self.position[name] = reader, places[start]
        if start != "resume" or known is None:
            self.remember(name)

    def remember(self, name: str) -> None:
        self.committed[name], self.committed_at[name] = self.position[name], self.clock.now_ns()
        self.durable = max(self.durable, self.position[name])

    @rule(name=names, count=st.integers(1, 5))
    def read(self, name: str, count: int) -> None:
        if name not in self.reading:
            return
        at = self.position[name]
        if at < self.first:
            self.expect_data_lost(name, at)
            return
        found = [record.payload for record in self.reading[name].poll(max_records=count)]
        assert found == [line.payload for line in self.lines[at : at + len(found)]]
        assert found or at == len(self.lines)
        self.position[name] += len(found)

    def expect_data_lost(self, name: str, at: int) -> None:
        """A reader left behind is told of the gap; it may first read on in a segment that it has open."""
        reader = self.reading[name]
        with pytest.raises(DataLost) as caught:
            list(reader)
        assert at <= caught.value.start < caught.value.stop == self.first
        reader.seek(sequence=caught.value.stop)
        self.position[name] = self.first

    @rule(name=names)
    def commit(self, name: str) -> None:
        if name in self.reading and self.position[name] >= self.first:
            self.reading[name].commit()
            self.remember(name)
            assert self.reading[name].committed_sequence == self.committed[name]

    @rule(name=names, place=st.integers(0, 60))
    def seek(self, name: str, place: int) -> None:
        if name in self.reading:
            place = min(max(place, self.first), len(self.lines))
            self.reading[name].seek(sequence=place)
            self.position[name] = place

    @rule(name=names)
    def close_reader(self, name: str) -> None:
        if name in self.reading:
            self.reading.pop(name).close()
            del self.position[name]

    @rule(name=names)
    def remove_reader(self, name: str) -> None:
        if name in self.committed and name not in self.reading:
            self.log.remove_reader(name)
            del self.committed[name], self.committed_at[name]

    # -- retention ------------------------------------------------------------------------------------

    @rule(ms=st.integers(1, 40))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms=ms)

    @rule(ignore_silent=st.booleans(), dry_run=st.booleans())
    def cleanup(self, *, ignore_silent: bool, dry_run: bool) -> None:
        self.log.retention = RetentionPolicy(ignore_readers_silent_ms=SILENT_MS if ignore_silent else None)
        expected = self.deletable(ignore_silent=ignore_silent)
        assert self.log.cleanup(dry_run=dry_run) == [segment_id for segment_id, _ in expected]
        if expected and not dry_run:
            self.first = expected[-1][1]

    def deletable(self, *, ignore_silent: bool) -> list[tuple[int, int]]:
        """Id and end of the segments that every reader that counts has passed."""
        now_ns = self.clock.now_ns()
        counting = [
            at
            for name, at in self.committed.items()
            if not ignore_silent or now_ns - self.committed_at[name] <= SILENT_MS * 1_000_000
        ]
        sealed = [info for info in list_segments(self.log) if info.state == "sealed"]
        ends = [(info.segment_id, info.first_sequence + info.record_count) for info in sealed]
        return [(segment_id, end) for segment_id, end in ends if counting and end <= min(counting)]

    @precondition(lambda self: self.committed)
    @rule(pick=picks)
    def lose_power_during_a_cleanup(self, pick: int) -> None:
        self.log.retention = RetentionPolicy()
        expected = self.deletable(ignore_silent=False)
        before = self.first
        self.interrupt(pick, self.log.cleanup)
        assert self.log.first_sequence in {before, expected[-1][1] if expected else before}
        self.first = self.log.first_sequence

    @rule(pick=picks, name=names)
    def lose_power_during_a_commit(self, pick: int, name: str) -> None:
        if name not in self.reading or self.position[name] < self.first:
            return
        before, after = self.committed[name], self.position[name]
        self.interrupt(pick, self.reading[name].commit)
        self.committed[name] = {info.name: info.sequence for info in self.log.readers()}[name]
        assert self.committed[name] in {before, after}
        self.committed_at[name] = {info.name: info.committed_at_ns for info in self.log.readers()}[name]

    @invariant()
    def the_readers_are_where_they_committed(self) -> None:
        assert {info.name: info.sequence for info in self.log.readers()} == self.committed

    @invariant()
    def no_reader_is_ahead_of_what_is_durable(self) -> None:
        assert all(at <= self.durable for at in self.committed.values())

    @invariant()
    def open_readers_know_their_place(self) -> None:
        assert {name: reader.sequence for name, reader in self.reading.items()} == self.position

    def recover(self, fs: CrashFS, at_least: int) -> None:
        """Open what a crash left; every reader died with its process, and its position did not."""
        self.reading.clear()
        self.position.clear()
        fs._locks.clear()
        super().recover(fs, at_least)
