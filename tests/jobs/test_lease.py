"""Who may claim what, and when a lease is dead, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from latewood.catalog.tables import JobKind
from latewood.jobs.lease import Candidate, LeaseState, LeaseWatch, is_heartbeat_due, pick, redated
from tests.jobs.kit import KIND, OTHER

LEASE_MS = 30_000
STEP_MS = 10_000
HOUR_MS = 3_600_000


def lease(heartbeat_at_ms: int = 0, *, attempt: int = 1, lease_ms: int = LEASE_MS) -> LeaseState:
    return LeaseState(7, attempt, heartbeat_at_ms, heartbeat_at_ms + lease_ms)


def test_the_first_candidate_that_is_served_and_may_pass_is_picked() -> None:
    candidates = [Candidate(1, OTHER, None, 0), Candidate(2, KIND, 1, KIND), Candidate(3, KIND, 2, KIND)]
    assert pick(candidates, {KIND}, lambda candidate: candidate.db_id != 1) == 3
    assert pick(candidates, {KIND, OTHER}, lambda _: False) == 1
    assert pick(candidates, set(), lambda _: True) is None


def test_a_repair_is_for_those_who_handle_what_it_repairs() -> None:
    repair = Candidate(1, JobKind.REPAIR, 1, KIND)
    assert repair.is_served({KIND})
    assert not repair.is_served({OTHER, JobKind.REPAIR})


def test_a_silent_lease_dies_after_its_length() -> None:
    watch = LeaseWatch(STEP_MS)
    assert [bool(watch.look(now, [lease()])) for now in (0, 10_000, 20_000, 29_999, 30_000)] == [0, 0, 0, 0, 1]


def test_a_heartbeat_begins_the_silence_anew() -> None:
    watch = LeaseWatch(STEP_MS)
    for now in range(0, 10 * HOUR_MS, STEP_MS):
        assert not watch.look(now, [lease(now - now % 20_000)])


def test_a_jump_forward_counts_as_one_step() -> None:
    watch = LeaseWatch(STEP_MS)
    assert not watch.look(0, [lease()])
    assert not watch.look(HOUR_MS, [lease()])
    assert not watch.look(2 * HOUR_MS, [lease()])
    assert watch.look(3 * HOUR_MS, [lease()])


def test_a_clock_set_back_keeps_no_lease_alive() -> None:
    watch = LeaseWatch(STEP_MS)
    assert not watch.look(HOUR_MS, [lease(HOUR_MS)])
    assert not watch.look(0, [lease(HOUR_MS)])
    assert [bool(watch.look(now, [lease(HOUR_MS)])) for now in (10_000, 20_000, 30_000)] == [0, 0, 1]


def test_a_renewal_after_the_clock_was_set_back_does_not_make_a_lease_longer() -> None:
    watch = LeaseWatch(STEP_MS)
    watch.look(HOUR_MS, [lease(HOUR_MS)])
    renewed = LeaseState(7, 1, 0, HOUR_MS + LEASE_MS)  # The catalog never shortens what it has promised.
    assert [bool(watch.look(now, [renewed])) for now in (0, 10_000, 20_000, 30_000)] == [0, 0, 0, 1]


def test_another_attempt_is_another_lease() -> None:
    watch = LeaseWatch(STEP_MS)
    for now in (0, 10_000, 20_000):
        watch.look(now, [lease()])
    assert not watch.look(30_000, [lease(attempt=2)])


def test_a_lease_that_was_gone_in_between_is_new() -> None:
    watch = LeaseWatch(STEP_MS)
    for now in (0, 10_000, 20_000):
        watch.look(now, [lease()])
    assert not watch.look(29_000, [])
    assert not watch.look(30_000, [lease()])


@given(st.lists(st.integers(-HOUR_MS, HOUR_MS), max_size=60))
def test_however_the_clock_jumps_a_lease_needs_its_length_of_looks_to_die(jumps: list[int]) -> None:
    watch, now = LeaseWatch(STEP_MS), 0
    for looks_before, jump in enumerate(jumps):
        now += jump
        if watch.look(now, [lease()]):
            assert looks_before * STEP_MS >= LEASE_MS
            return


@given(st.integers(-HOUR_MS, HOUR_MS))
def test_a_heartbeat_is_due_after_its_time_and_after_any_jump_back(passed: int) -> None:
    assert is_heartbeat_due(0, passed, STEP_MS) == (passed < 0 or passed >= STEP_MS)


def test_a_retry_keeps_its_pause_when_the_clock_is_set_back() -> None:
    assert redated(not_before_ms=HOUR_MS + 500, updated_at_ms=HOUR_MS, now_ms=0) == 500
    assert redated(not_before_ms=500, updated_at_ms=0, now_ms=100) is None
    assert redated(not_before_ms=500, updated_at_ms=900, now_ms=600) is None
