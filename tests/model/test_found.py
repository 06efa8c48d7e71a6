"""Bugs that the machines, or the writing of their model, have brought to light: one sentence each."""

from latewood import LogOptions
from tests.model.pair import Pair
from tests.model.queue_pair import QueuePair

SMALL = LogOptions(segment_bytes_max=1024, index_interval=2)


def test_a_segment_that_an_append_began_grows_old_even_if_nothing_more_is_appended() -> None:
    pair = Pair(LogOptions(segment_bytes_max=512, segment_age_max_ms=1_000))
    for _ in range(4):
        pair.append(104)
    assert pair.model.stops == [3]
    pair.clock.advance(ms=1_000)
    pair.housekeep()
    pair.check()


def test_a_segment_that_a_batch_began_grows_old_even_if_nothing_more_is_appended() -> None:
    pair = Pair(LogOptions(segment_bytes_max=512, segment_age_max_ms=1_000))
    pair.append_many([9] * 28)
    pair.clock.advance(ms=1_000)
    pair.housekeep()
    pair.check()


def test_a_segment_does_not_grow_old_from_an_append_that_was_refused() -> None:
    pair = Pair(LogOptions(segment_bytes_max=512, segment_age_max_ms=1_000))
    pair.append(600)
    pair.clock.advance(ms=1_000)
    assert pair.log._writer.housekeep() is None, "nothing is due, so the background thread may sleep"
    pair.append(8)
    pair.append(8)
    pair.check()


def test_a_record_that_fits_the_open_segment_is_appended_whatever_the_next_one_could_hold() -> None:
    pair = Pair(LogOptions(segment_bytes_max=2048))
    pair.append(8)
    pair.reopen(LogOptions(segment_bytes_max=512))
    pair.append(600)
    pair.check()
    assert pair.model.end == 2


def test_a_reader_can_be_opened_again_after_a_sync_that_failed() -> None:
    pair = QueuePair(SMALL)
    pair.break_disk("sync_directory", "readers")
    pair.open_reader("billing")
    pair.clear_up()
    pair.open_reader("billing")
    pair.check()


def test_a_reader_elsewhere_does_not_pass_what_the_writer_failed_to_sync() -> None:
    pair = QueuePair(SMALL)
    pair.append(40)
    pair.flush()
    pair.append(40)
    pair.break_disk("sync", ".q")
    pair.flush()
    pair.clear_up()
    pair.open_reader("billing", "latest", elsewhere=True)
    pair.cut_power()
    pair.check()
