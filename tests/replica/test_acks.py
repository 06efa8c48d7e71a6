"""Acknowledgements, quorums and masters."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import UsageError
from latewood.replica.acks import AckTracker
from latewood.replica.assignment import ByHash, Disabled, Fixed
from latewood.replica.engine import ConfState
from latewood.replica.machine import Run
from latewood.replica.quorum import Majority, Quorum, Threshold, quorum_index

quorums = st.one_of(st.just(Majority()), st.builds(Threshold, st.integers(1, 4)))


@given(quorums, st.dictionaries(st.integers(1, 6), st.integers(0, 9)), st.sets(st.integers(1, 6), min_size=1))
def test_a_quorum_index_is_the_highest_that_enough_members_have(
    quorum: Quorum, acknowledged: dict[int, int], members: set[int]
) -> None:
    found = quorum_index(quorum, acknowledged, members)

    def have(index: int) -> list[int]:
        return [node for node in members if acknowledged.get(node, 0) >= index]

    assert not found or quorum.is_reached(have(found), members)
    assert not any(quorum.is_reached(have(index), members) for index in range(found + 1, 10))


@pytest.mark.needs("native")
@given(
    quorums,
    st.lists(st.tuples(st.sampled_from(["land", "ack"]), st.integers(0, 1), st.integers(1, 3), st.integers(1, 8))),
)
def test_what_is_pending_is_what_landed_and_is_not_reached(
    quorum: Quorum, steps: list[tuple[str, int, int, int]]
) -> None:
    tracker, landed = AckTracker([1, 2, 3], quorum), [list[Run](), list[Run]()]
    acknowledged: list[dict[int, int]] = [{}, {}]
    global_index = 0
    for step, key, node, index in steps:
        if step == "land":
            global_index += 1
            first = landed[key][-1].last + 1 if landed[key] else 1
            landed[key].append(Run(first, first + index % 3, global_index))
            tracker.landed(key, [landed[key][-1]])
            tracker.landed(key, landed[key])
        else:
            acknowledged[key][node] = max(acknowledged[key].get(node, 0), index)
            tracker.acknowledge(node, key, index)
        expected = list[int]()
        for one in (0, 1):
            reached = quorum_index(quorum, acknowledged[one], [1, 2, 3])
            assert tracker.quorum_index(one) == reached
            pending = [run.global_index for run in landed[one] if run.last > reached]
            assert tracker.pending_global(one) == (pending[0] if pending else None)
            expected += pending
        assert tracker.pending_global_min() == min(expected, default=None)


@pytest.mark.needs("native")
def test_what_was_reached_stays_reached_when_members_change() -> None:
    tracker = AckTracker([1, 2, 3])
    tracker.landed(7, [Run(1, 1, 11), Run(2, 2, 12)])
    tracker.acknowledge(1, 7, 1)
    tracker.acknowledge(2, 7, 1)
    assert tracker.is_reached(7, 1)
    tracker.set_members([1, 2, 3, 4, 5])
    assert tracker.is_reached(7, 1)
    assert tracker.pending_global(7) == 12
    tracker.acknowledge(1, 7, 2)
    tracker.set_members([1])
    assert tracker.pending_global_min() is None
    tracker.forget(7)
    assert tracker.quorum_index(7) == 0


@pytest.mark.needs("native")
def test_nodes_without_a_vote_make_no_majority() -> None:
    conf = ConfState(voters=(1, 2), learners=(4, 5, 6), voters_outgoing=(2, 3), learners_next=(3,))
    assert conf.electors == {1, 2, 3}
    tracker = AckTracker(conf.electors)
    tracker.landed(7, [Run(1, 1, 11)])
    for node in (4, 5, 6, 1):
        tracker.acknowledge_through(node, 11)
    assert not tracker.is_reached(7, 1), "three learners and one voter are no majority of three voters"
    tracker.acknowledge_through(2, 11)
    assert tracker.is_reached(7, 1)


@pytest.mark.needs("native")
@given(st.lists(st.tuples(st.sampled_from(["write", "write", "tear down", "hear"]), st.integers(1, 2), st.integers(0))))
def test_a_late_acknowledgement_never_counts_for_the_next_life_of_a_partition(
    steps: list[tuple[str, int, int]],
) -> None:
    """It carries no birth, and needs none: it is a global index, and a life's entries are all above the one before."""
    tracker, life, top, claimed = AckTracker([1, 2]), list[int](), 0, {1: 0, 2: 0}
    for step, node, late in steps:
        if step == "hear":
            at = late % (top + 1)  # Of any time: a node has passed all that was before.
            claimed[node] = max(claimed[node], at)
            tracker.acknowledge_through(node, at)
        else:
            top += 1
            life = [*life, top] if step == "write" else []
            tracker.landed(7, [Run(len(life), len(life), top)]) if life else tracker.forget(7)
        assert tracker.quorum_index(7) <= sum(at <= min(claimed.values()) for at in life)


@pytest.mark.needs("native")
def test_what_enough_nodes_have_by_the_time_that_somebody_looks_was_never_pending() -> None:
    tracker = AckTracker([1, 2, 3])
    tracker.landed_late([(7, 1, 1, 11), (8, 1, 3, 12), (7, 2, 2, 13)])
    tracker.acknowledge_through(1, 12)
    tracker.acknowledge_through(2, 13)
    assert (tracker.quorum_index(7), tracker.quorum_index(8)) == (1, 3)
    assert tracker.pending_global_min() == 13
    tracker.acknowledge_through(3, 13)
    assert tracker.pending_global_min() is None
    assert tracker.quorum_index(7) == 2


def test_every_two_majorities_meet() -> None:
    for count in range(1, 8):
        members = range(count)
        enough = [
            set(group)
            for size in range(count + 1)
            for group in combinations(members, size)
            if Majority().is_reached(group, members)
        ]
        assert all(one & other for one in enough for other in enough)


def test_a_threshold_below_one_is_refused() -> None:
    with pytest.raises(UsageError):
        Threshold(0)


def test_masters_are_spread_and_move_only_when_they_must() -> None:
    members, policy = [1, 2, 3, 4], ByHash()
    before = {key: policy.master(key, members) for key in range(1_000)}
    shares = [sum(master == node for master in before.values()) for node in members]
    assert min(shares) > 180
    after = {key: policy.master(key, [1, 2, 3]) for key in range(1_000)}
    assert all(after[key] == before[key] for key in before if before[key] != 4)
    assert policy.master(5, reversed(members)) == before[5]
    assert policy.master(5, []) is None


def test_a_master_by_hash_is_the_same_for_ever() -> None:
    assert [ByHash().master(key, [1, 2, 3]) for key in range(12)] == [1, 3, 1, 3, 1, 1, 3, 2, 2, 3, 3, 2]


def test_masters_may_be_written_down_or_left_out() -> None:
    fixed = Fixed({1: 2, 2: 9})
    assert [fixed.master(key, [1, 2]) for key in (1, 2, 3)] == [2, None, None]
    assert Disabled().master(1, [1, 2]) is None
