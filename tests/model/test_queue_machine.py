"""A queue's readers and its retention do what their model does, whatever happens to them."""

from collections.abc import Iterable
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from latewood import RetentionPolicy
from latewood.queue import Start
from tests.model.effort import search
from tests.model.machine import Machine, cuts, timestamps_ns
from tests.model.pair import Cut, Pair
from tests.model.queue_pair import QueuePair

pytestmark = pytest.mark.slow

names = st.sampled_from(("billing", "etl", "audit"))
policies = st.just(RetentionPolicy()) | st.builds(
    RetentionPolicy,
    max_bytes=st.none() | st.integers(0, 4096),
    max_age_ms=st.none() | st.sampled_from((0, 499, 500, 2_000)),
    ignore_readers_silent_ms=st.none() | st.sampled_from((0, 499, 500, 2_000)),
)


def some_reader(machine: "QueueMachine") -> bool:
    return bool(machine.pair.handles)


class QueueMachine(Machine):
    """Everything that can be done to a queue."""

    pair_type: ClassVar[type[Pair]] = QueuePair
    pair: QueuePair

    def _reader(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.pair.handles)), "reader")

    @rule(
        readers=st.sets(names, min_size=1).map(sorted),
        start=st.sampled_from(("resume", "earliest", "latest")),
        elsewhere=st.booleans(),
    )
    def open_readers(self, readers: list[str], start: Start, elsewhere: bool) -> None:  # noqa: FBT001
        for name in readers:
            self.pair.open_reader(name, start, elsewhere=elsewhere)

    @rule(name=names, data=st.data(), elsewhere=st.booleans())
    def open_reader_at(self, name: str, data: st.DataObject, elsewhere: bool) -> None:  # noqa: FBT001
        sequence = data.draw(st.integers(0, self.pair.model.end + 1), "sequence")
        self.pair.open_reader(name, sequence, elsewhere=elsewhere)

    @precondition(some_reader)
    @rule(data=st.data(), how=st.sampled_from(("next", "poll", "read_arrow", "iterate")), count=st.integers(1, 20))
    def read(self, data: st.DataObject, how: str, count: int) -> None:
        name = self._reader(data)
        match how:
            case "next":
                self.pair.next(name)
            case "poll":
                self.pair.poll(name, count)
            case "read_arrow":
                self.pair.read_arrow(name, count)
            case "iterate":
                self.pair.iterate(name)

    @precondition(some_reader)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.pair.commit(self._reader(data))

    @precondition(some_reader)
    @rule(readers=st.sets(names, min_size=1).map(sorted))
    def catch_up(self, readers: list[str]) -> None:
        self._catch_up(readers)

    def _catch_up(self, readers: Iterable[str]) -> None:
        """Read and commit everything."""
        for name in readers:
            if name in self.pair.handles:  # Committing may be the end of them all.
                self.pair.iterate(name)
                self.pair.commit(name)

    @precondition(some_reader)
    @rule(count=st.integers(1, 6), cut=cuts)
    def catch_up_and_cut_power(self, count: int, cut: Cut) -> None:
        for _ in range(count):
            self.pair.append(104)
        self._catch_up(list(self.pair.handles))
        self.pair.cut_power(cut)

    @precondition(some_reader)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        self.pair.seek(self._reader(data), data.draw(st.integers(0, self.pair.model.end + 1), "sequence"))

    @precondition(some_reader)
    @rule(data=st.data(), timestamp_ns=timestamps_ns)
    def seek_time(self, data: st.DataObject, timestamp_ns: int) -> None:
        self.pair.seek_time(self._reader(data), timestamp_ns)

    @rule(name=names, remove=st.booleans())
    def close_reader(self, name: str, remove: bool) -> None:  # noqa: FBT001
        if name in self.pair.handles:
            self.pair.close_reader(name)
        if remove:
            self.pair.remove_reader(name)

    @rule(readers=st.sets(names).map(sorted), policy=policies, ms=st.sampled_from((0, 1, 600, 3_000)))
    def cleanup(self, readers: list[str], policy: RetentionPolicy, ms: int) -> None:
        """Some readers go on, and leave the others behind; then whatever may go goes."""
        self._catch_up(readers)
        self.pair.clock.advance(ms=ms)
        self.pair.cleanup(policy)


def test_a_queue_does_what_its_model_does(campaign: bool) -> None:  # noqa: FBT001
    search(QueueMachine, campaign=campaign)
