"""Wrong arguments are refused by an error that says what would be right, and before anything happens."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood import BadName, LogOptions, Queue, Reader, RetentionPolicy, UsageError
from tests.log.desk import Desk

NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)

OF_A_LOG: dict[str, tuple[Callable[[Queue, Any], object], str]] = {
    "read": (lambda log, wrong: log.read(wrong), "sequence must be a whole number"),
    "scan from": (lambda log, wrong: list(log.scan(wrong)), "sequence must be a whole number"),
    "scan to": (lambda log, wrong: list(log.scan(0, wrong)), "stop must be a whole number"),
    "arrow from": (lambda log, wrong: log.to_arrow(wrong), "sequence must be a whole number"),
    "arrow to": (lambda log, wrong: log.to_arrow(0, wrong), "stop must be a whole number"),
    "stream": (lambda log, wrong: log.stream(wrong), "sequence must be a whole number"),
    "find_timestamp": (lambda log, wrong: log.find_timestamp(wrong), "nanoseconds since 1970"),
    "set_ext_id": (lambda log, wrong: log.set_ext_id(wrong), "ext_id must be a whole number"),
    "watermark": (
        lambda log, wrong: setattr(log, "coordinator_watermark", wrong),
        "coordinator_watermark must be a whole number",
    ),
    "reader": (lambda log, wrong: log.reader("new", start=wrong), "start must be 'resume', 'earliest'"),
}
OF_A_READER: dict[str, tuple[Callable[[Reader, Any], object], str]] = {
    "poll": (lambda reader, wrong: reader.poll(wrong), "max_records must be a whole number"),
    "poll for": (lambda reader, wrong: reader.poll(timeout=wrong), "timeout must be seconds, or None"),
    "wait": (lambda reader, wrong: reader.wait(wrong), "timeout must be seconds, or None"),
    "read_arrow": (lambda reader, wrong: reader.read_arrow(wrong), "max_records must be a whole number"),
    "seek": (lambda reader, wrong: reader.seek(sequence=wrong), "sequence must be a whole number"),
    "seek time": (lambda reader, wrong: reader.seek(timestamp=wrong), "nanoseconds since 1970"),
}


@pytest.mark.parametrize("wrong", ["1", b"1", [1]], ids=repr)
@pytest.mark.parametrize("call", OF_A_LOG)
def test_a_log_refuses_what_is_of_the_wrong_type(desk: Desk, call: str, wrong: object) -> None:
    log = desk.open()
    log.append_many([b"x"] * 3)
    use, message = OF_A_LOG[call]
    with pytest.raises(UsageError, match=message):
        use(log, wrong)
    assert (log.next_sequence, log.readers()) == (3, [])


@pytest.mark.parametrize("wrong", ["1", b"1", [1], float("nan")], ids=repr)
@pytest.mark.parametrize("call", OF_A_READER)
def test_a_reader_refuses_what_is_of_the_wrong_type(desk: Desk, call: str, wrong: object) -> None:
    log = desk.open()
    log.append_many([b"x"] * 3)
    use, message = OF_A_READER[call]
    with log.reader("r") as reader, pytest.raises(UsageError, match=message):
        use(reader, wrong)


@pytest.mark.parametrize("name", [None, 7, b"r", Path("r")], ids=repr)
def test_a_name_is_a_str(desk: Desk, name: Any) -> None:
    log = desk.open()
    for use in (log.reader, log.remove_reader):
        with pytest.raises(BadName, match="name is a str"):
            use(name)


def test_a_time_may_be_a_datetime(desk: Desk) -> None:
    log = desk.open()
    second_ns = 10**9
    log.append_many([b"x"] * 3, timestamps_ns=[int(NOON.timestamp() + number) * second_ns for number in range(3)])
    assert log.find_timestamp(NOON + dt.timedelta(seconds=1)) == 1
    assert log.find_timestamp((NOON + dt.timedelta(seconds=1)).replace(tzinfo=None)) == 1
    assert log.find_timestamp(NOON + dt.timedelta(seconds=1, microseconds=1)) == 2


@pytest.mark.parametrize("field", ["max_bytes", "max_age_ms", "ignore_readers_silent_ms"])
@pytest.mark.parametrize("wrong", ["10GB", 1.5, True], ids=repr)
def test_a_policy_takes_whole_numbers(field: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"{field} must be a whole number of "):
        RetentionPolicy(**{field: wrong})


@pytest.mark.parametrize("fields", [{"segment_records_max": True}, {"flush_ms": "5"}, {"flush_every_append": "no"}])
def test_options_are_of_their_type(fields: Any) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(fields))} must be "):
        LogOptions(**fields)


@pytest.mark.parametrize("path", ["", "a\0b", None, b"log", 7], ids=repr)
@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_path_names_something(path: Any, mode: Any) -> None:
    with pytest.raises(UsageError, match="path"):
        latewood.open(path, mode=mode)
