"""The door: to the appender if there is one and it has room, else to whoever makes room."""

from types import ModuleType
from typing import Any

import pytest

from tests.kernel.packing import Entry, appender, scan_all


def slow(calls: list[tuple[Any, ...]]) -> Any:
    """Return a slow path that notes its calls."""

    def note(*arguments: Any) -> int:
        calls.append(arguments)
        return 1000 + len(calls)

    return note


def test_a_door_without_an_appender_takes_the_slow_way(kernel: ModuleType) -> None:
    calls: list[tuple[Any, ...]] = []
    door = kernel.Door(slow(calls))
    assert door.append(b"x") == 1001
    assert door.append(b"y", ext_id=5, timestamp_ns=6, durable=True) == 1002
    assert calls == [(b"x", 0, None, False), (b"y", 5, 6, True)]


def test_a_door_leads_to_its_appender(kernel: ModuleType) -> None:
    calls: list[tuple[Any, ...]] = []
    buffer = bytearray(256)
    door = kernel.Door(slow(calls))
    door.set(appender(kernel, buffer))
    assert [door.append(b"x", ext_id=5, timestamp_ns=6), door.append(b"y", timestamp_ns=7)] == [100, 101]
    assert scan_all(kernel, buffer)[0] == [Entry(6, 5, b"x"), Entry(7, 0, b"y")]
    assert not calls


def test_a_full_appender_and_a_durable_append_take_the_slow_way(kernel: ModuleType) -> None:
    calls: list[tuple[Any, ...]] = []
    buffer = bytearray(32)
    door = kernel.Door(slow(calls))
    door.set(appender(kernel, buffer))
    assert door.append(b"x", durable=True) == 1001
    assert not any(buffer)
    assert door.append(b"x", timestamp_ns=1) == 100
    assert door.append(b"y", timestamp_ns=2) == 1002
    door.set(None)
    assert door.append(b"z") == 1003
    assert [call[0] for call in calls] == [b"x", b"y", b"z"]


def test_a_door_follows_from_segment_to_segment(kernel: ModuleType) -> None:
    first, second = bytearray(32), bytearray(32)

    def make_room(*arguments: Any) -> int:
        following = appender(kernel, second)
        door.set(following)
        return int(following.append(*arguments[:3]))

    door = kernel.Door(make_room)
    door.set(appender(kernel, first))
    append = door.append
    assert [append(b"a", timestamp_ns=1), append(b"b", timestamp_ns=2)] == [100, 100]
    assert [scan_all(kernel, buffer)[0] for buffer in (first, second)] == [[Entry(1, 0, b"a")], [Entry(2, 0, b"b")]]


def test_errors_come_through_the_door(kernel: ModuleType) -> None:
    def fail(*_: Any) -> int:
        raise LookupError("no room")

    door = kernel.Door(fail)
    with pytest.raises(LookupError, match="no room"):
        door.append(b"x")
    door.set(appender(kernel, bytearray(64)))
    with pytest.raises(TypeError):
        door.append("text")
    with pytest.raises(TypeError):
        door.append(b"x", 5)


def test_a_door_that_cannot_tell_the_time_leads_to_its_appender_only_with_one(kernel: ModuleType) -> None:
    calls: list[tuple[Any, ...]] = []
    buffer = bytearray(64)
    door = kernel.Door(slow(calls))
    door.set(appender(kernel, buffer), has_time=False)
    assert [door.append(b"x"), door.append(b"y", timestamp_ns=7)] == [1001, 100]
    assert scan_all(kernel, buffer)[0] == [Entry(7, 0, b"y")]
    door.set(appender(kernel, bytearray(64)))
    assert door.append(b"z") == 100
    assert len(calls) == 1


def test_a_timestamp_out_of_range_is_left_to_the_slow_way(kernel: ModuleType) -> None:
    calls: list[tuple[Any, ...]] = []
    buffer = bytearray(64)
    door = kernel.Door(slow(calls))
    door.set(appender(kernel, buffer))
    assert door.append(b"x", timestamp_ns=2**63) == 1001
    assert calls == [(b"x", 0, 2**63, False)]
    assert not any(buffer)


@pytest.mark.parametrize("wrap", [list, tuple, iter])
def test_largest_is_the_greatest_length(kernel: ModuleType, wrap: Any) -> None:
    payloads = [b"a", bytearray(b"four"), memoryview(bytearray(6)).cast("H"), b""]
    assert kernel.largest(wrap(payloads)) == 6
    assert kernel.largest(wrap([])) == 0


@pytest.mark.parametrize("payloads", [[b"a", "text"], [None], 5])
def test_largest_wants_bytes_likes(kernel: ModuleType, payloads: Any) -> None:
    with pytest.raises(TypeError):
        kernel.largest(payloads)
