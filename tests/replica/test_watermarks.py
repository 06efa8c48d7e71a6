"""Watermarks: the invariants hold through every history, and bugs that break them show."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.replica.machine import Run
from latewood.replica.native import native
from latewood.replica.watermarks import PartitionProgress, Watermarks

Steps = list[tuple[str, int, int]]
steps = st.lists(
    st.tuples(
        st.sampled_from(["route", "route", "pass", "flush", "apply", "snapshot", "whole", "acks"]),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=60,
)


def route(marks: Watermarks, partition_id: int, index: int, global_index: int, count: int = 1) -> None:
    """Hand one entry, with so many records, to its partition."""
    marks.record_routed(partition_id, [Run(index, index + count - 1, global_index)])
    marks.record_passed(global_index)


class History:
    """Every entry by itself: where it went, and what became of it."""

    def __init__(self, marks: Watermarks) -> None:
        self.marks = marks
        self.marks.record_parent_durable(1_000)
        self.entries: list[tuple[int, int] | None] = []
        """(partition, last index) of the parent entries 1, 2, 3 …"""
        self.flushed, self.applied, self.snapshot = [0, 0, 0], [0, 0, 0], 0
        self.unacknowledged: int | None = None

    def do(self, step: str, key: int, number: int) -> None:
        marks, held = self.marks, self.held(key)
        at = len(self.entries) + 1
        if step == "route":
            self.entries.append((key, held + number))
            route(marks, key, held + 1, at, number)
        elif step == "pass":
            self.entries.append(None)
            marks.record_passed(at)
        elif step == "flush" and held:
            self.flushed[key] = min(self.flushed[key] + number, held)
            marks.record_flushed(key, self.flushed[key])
        elif step == "apply" and held:
            self.applied[key] = min(self.applied[key] + number, held)
            marks.record_applied(key, self.applied[key])
        elif step == "snapshot" and key in marks and self.applied[key] <= self.flushed[key]:
            marks.record_snapshot(key, self.applied[key], marks[key].applied_global)
        elif step == "whole":
            self.snapshot = max(self.snapshot, self.floor())
            marks.record_parent_snapshot(self.floor())
        elif step == "acks":
            self.unacknowledged = number if number < at else None

    def held(self, key: int) -> int:
        return max([entry[1] for entry in self.entries if entry is not None and entry[0] == key], default=0)

    def through(self, key: int) -> int:
        open_ = [at for at, one in enumerate(self.entries, 1) if one and one[0] == key and one[1] > self.applied[key]]
        return min(open_, default=len(self.entries) + 1) - 1

    def floor(self) -> int:
        return min(self.through(key) for key in range(3))

    def may_forget(self, at: int) -> bool:
        one = self.entries[at - 1]
        kept = one is None or (one[1] <= self.applied[one[0]] and one[1] <= self.flushed[one[0]])
        return kept and at <= self.snapshot and not (self.unacknowledged and at >= self.unacknowledged)

    def check(self) -> None:
        marks = self.marks
        for key in range(3):
            assert marks.applied_through(key) == self.through(key), "a barrier would lie"
            if key in marks:
                found = marks[key]
                assert found.snapshot_index <= found.applied_index <= found.durable_index <= found.highest_index
                assert found.applied_index == self.applied[key]
                own = [(at, one[1]) for at, one in enumerate(self.entries, 1) if one and one[0] == key]
                applied = [at for at, last in own if last <= self.applied[key]]
                assert found.applied_global == max(applied, default=0), "durable must not raise applied"
        assert marks.applied_floor() == self.floor()
        top = marks.truncatable_to(self.unacknowledged)
        assert all(self.may_forget(at) for at in range(1, top + 1)), "an entry that is needed would be forgotten"


def live(history: History, story: Steps) -> None:
    for step in story:
        history.do(*step)
        history.check()


@pytest.mark.needs("native")
@given(steps)
def test_watermarks_agree_with_every_entry_by_itself(story: Steps) -> None:
    live(History(Watermarks()), story)


@pytest.mark.needs("native")
@pytest.mark.slow
@given(steps)
def test_truncation_comes_to_the_end_once_all_is_done(story: Steps) -> None:
    history = History(Watermarks())
    live(history, [*story, *[(step, key, 99) for step in ("apply", "flush") for key in range(3)], ("whole", 0, 1)])
    assert history.marks.truncatable_to() == len(history.entries)


@pytest.mark.needs("native")
def test_what_was_flushed_while_more_came_may_be_forgotten() -> None:
    marks = Watermarks()
    marks.record_parent_durable(9)
    for at in (1, 2, 3):
        marks.record_logged([(7, at, at, at)])
        marks.record_passed(at)
    marks.record_flushed(7, 2, 2)
    assert marks.flushed_floor() == 2
    marks.record_flushed(7, 3)
    assert marks.flushed_floor() == 3


# -- planted bugs -----------------------------------------------------------------------------------------


class DurableRaisesApplied(Watermarks):
    """The sketch of old: what is durable counts as applied, globally."""

    def record_routed(self, partition_id: int, runs: Sequence[Run], *, applied: bool = False) -> None:
        super().record_routed(partition_id, runs, applied=applied)
        self._partitions[partition_id].progress.applied_global = runs[-1].global_index


class HalfIsApplied(Watermarks):
    """An entry counts as applied with the first of its records."""

    def record_applied(self, partition_id: int, index: int) -> None:
        super().record_applied(partition_id, index)
        pending = self._partitions[partition_id].pending
        while pending and pending[0].first <= index:
            pending.popleft()


class QuorumIsEnough(Watermarks):
    """Entries that enough nodes have are forgotten, applied here or not."""

    def truncatable_to(self, quorum_pending: int | None = None) -> int:
        return self.routed if quorum_pending is None else quorum_pending - 1


class FlushIsForgotten(Watermarks):
    """A partition's own log may lose what the parent has forgotten."""

    def flushed_floor(self) -> int:
        return self.routed


class AppliedSkips(Watermarks):
    """An idle partition counts as applied only up to its own last entry."""

    def applied_through(self, partition_id: int) -> int:
        return self[partition_id].applied_global if partition_id in self else self.routed


STORY: Steps = [
    ("route", 0, 1),
    ("route", 1, 1),
    ("apply", 0, 1),
    ("apply", 1, 1),
    ("whole", 0, 1),
    ("flush", 1, 1),
    ("route", 0, 1),
    ("apply", 0, 1),
    ("route", 1, 1),
    ("route", 2, 3),
    ("apply", 2, 2),
]


@pytest.mark.needs("native")
@pytest.mark.parametrize(
    "planted", [DurableRaisesApplied, HalfIsApplied, QuorumIsEnough, FlushIsForgotten, AppliedSkips]
)
def test_a_planted_bug_shows(planted: Callable[[], Watermarks]) -> None:
    live(History(Watermarks()), STORY)
    with pytest.raises(AssertionError):
        live(History(planted()), STORY)


@pytest.mark.parametrize(
    "fields",
    [
        {"applied_index": 1},
        {"highest_index": 2, "durable_index": 3},
        {"highest_index": 2, "durable_index": 2, "applied_index": 1, "snapshot_index": 2, "flushed_index": 2},
        {"highest_index": 2, "durable_index": 1, "flushed_index": 2},
        {"highest_global": 1, "durable_global": 2},
        {"highest_global": 9, "durable_global": 5, "applied_global": 6},
        {"highest_index": 5, "durable_index": 5, "applied_index": 5, "snapshot_index": 4, "flushed_index": 3},
    ],
)
def test_a_progress_that_cannot_be_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        PartitionProgress(**fields)


@pytest.mark.needs("native")
def test_what_happens_out_of_order_is_refused() -> None:
    marks = Watermarks()
    with pytest.raises(AssertionError):
        route(marks, 1, 1, 1)
    marks = Watermarks()
    marks.record_parent_durable(5)
    route(marks, 1, 1, 1)
    with pytest.raises(AssertionError):
        route(marks, 1, 3, 2)
    with pytest.raises(AssertionError):
        marks.record_applied(1, 2)
    with pytest.raises(AssertionError):
        marks.record_parent_snapshot(1)
    marks.record_applied(1, 1)
    with pytest.raises(AssertionError):
        marks.record_parent_durable(0)


@pytest.mark.needs("native")
def test_a_partition_that_is_forgotten_holds_nothing_back() -> None:
    marks = Watermarks()
    marks.record_parent_durable(5)
    route(marks, 1, 1, 1)
    route(marks, 2, 1, 2)
    assert marks.partitions == [1, 2]
    marks.record_applied(2, 1)
    marks.forget(1)
    assert marks.applied_floor() == 2


@pytest.mark.needs("native")
@given(st.lists(st.tuples(st.integers(0, 1 << 63), st.integers(1, 9)), max_size=40), st.integers(0, 40))
def test_what_is_folded_stays_in_the_order_in_which_it_came(placed: list[tuple[int, int]], through: int) -> None:
    """A story that is told again goes the same way."""
    runs = [(key, first, first + 1, entry) for entry, (key, first) in enumerate(placed, 1)]
    folded, rest = native("_fold_placed")(runs, through)
    done: dict[int, tuple[int, int, int, int]] = {}
    for key, first, last, entry in runs[:through]:
        begin = done.setdefault(key, (first, last, entry, entry))
        done[key] = (begin[0], last, begin[2], entry)
    assert (list(folded.items()), rest) == (list(done.items()), runs[through:])
