"""Which writes the event loop waits for."""

from latewood.replica.pace import QUICK_S, SMALL_BYTES, TRIALS, Pace


def quick_disk() -> Pace:
    pace = Pace()
    for _ in range(TRIALS):
        assert not pace.is_waited_for(0), "nobody knows yet"
        pace.note(QUICK_S / 2)
    return pace


def test_a_disk_that_was_quick_so_many_times_is_waited_for() -> None:
    assert quick_disk().is_waited_for(SMALL_BYTES)


def test_large_writes_are_a_threads() -> None:
    assert not quick_disk().is_waited_for(SMALL_BYTES + 1)


def test_a_slow_write_sends_the_next_ones_to_a_thread() -> None:
    pace = quick_disk()
    pace.note(QUICK_S)
    for _ in range(TRIALS):
        assert not pace.is_waited_for(0)
        pace.note(0.0)
    assert pace.is_waited_for(0)
