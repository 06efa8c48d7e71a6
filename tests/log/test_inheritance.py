"""A log goes on with the segment size and the index interval that it has, unless others are given."""

import pytest

import latewood
from latewood import LogOptions
from latewood.limits import MiB
from tests.log.desk import ROOT, Desk


@pytest.fixture
def made(desk: Desk) -> Desk:
    with latewood.open(ROOT, fs=desk.fs, segment_bytes_max=1000, index_interval=7) as log:
        log.append(b"x")
    return desk


@pytest.mark.parametrize("options", [None, LogOptions(), LogOptions(flush_ms=5)], ids=repr)
def test_a_log_keeps_the_shape_of_its_segments(made: Desk, options: LogOptions | None) -> None:
    with latewood.open(ROOT, options, fs=made.fs) as log:
        assert (log.options.segment_bytes_max, log.options.index_interval) == (1000, 7)
        assert log.options.flush_ms == (options.flush_ms if options else None)
        log.roll()
    assert (made.header(1).max_size, made.header(1).index_interval) == (1000, 7)


def test_options_by_name_leave_the_others_as_they_are(made: Desk) -> None:
    with latewood.open(ROOT, fs=made.fs, flush_ms=5, index_interval=9) as log:
        log.roll()
    assert (made.header(1).max_size, made.header(1).index_interval) == (1000, 9)


@pytest.mark.parametrize("options", [LogOptions(segment_bytes_max=64 * MiB), LogOptions(segment_bytes_max=2000)])
def test_an_option_that_is_given_wins_also_if_it_is_the_default(made: Desk, options: LogOptions) -> None:
    with latewood.open(ROOT, options, fs=made.fs) as log:
        log.roll()
    assert (made.header(1).max_size, made.header(1).index_interval) == (options.segment_bytes_max, 7)


def test_a_new_log_has_the_defaults(desk: Desk) -> None:
    with latewood.open(ROOT, fs=desk.fs) as log:
        assert log.options == LogOptions()
        assert desk.header(0).max_size == LogOptions().segment_bytes_max
