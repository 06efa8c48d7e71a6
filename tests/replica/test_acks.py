"""Acknowledgements, quorums and masters."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import UsageError
from latewood.replica.acks import AckTracker
from latewood.replica.assignment import ByHash, Disabled, Fixed
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


@given(
    quorums,
    st.lists(st.tuples(st.sampled_from(["land", "ack"]), st.integers(0, 1), st.integers(1, 3), st.integers(1, 8))),
)
def test_what_is_pending_is_what_landed_and_is_not_reached(
    quorum: Quorum, steps: list[tuple[str, int, int, int]]
) -> None:
    tracker, landed = AckTracker([1, 2, 3], quorum), [list[tuple[int, int]](), list[tuple[int, int]]()]
    acknowledged: list[dict[int, int]] = [{}, {}]
    global_index = 0
    for step, key, node, index in steps:
        if step == "land":
            global_index += 1
            landed[key].append((len(landed[key]) + 1, global_index))
            tracker.landed(key, [landed[key][-1]])
            tracker.landed(key, landed[key])
        else:
            acknowledged[key][node] = max(acknowledged[key].get(node, 0), index)
            tracker.acknowledge(node, key, index)
        expected = list[int]()
        for one in (0, 1):
            reached = quorum_index(quorum, acknowledged[one], [1, 2, 3])
            assert tracker.quorum_index(one) == reached
            pending = [at for number, at in landed[one] if number > reached]
            assert tracker.pending_global(one) == (pending[0] if pending else None)
            expected += pending
        assert tracker.pending_global_min() == min(expected, default=None)


def test_what_was_reached_stays_reached_when_members_change() -> None:
    tracker = AckTracker([1, 2, 3])
    tracker.landed(7, [(1, 11), (2, 12)])
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
