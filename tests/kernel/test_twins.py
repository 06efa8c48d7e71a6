"""The twins do the same: the same bytes, the same answers, the same errors."""

import inspect
from array import array
from types import ModuleType
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from latewood import kernel as picked
from latewood.kernel import pure
from latewood.kernel.pure_sums import Sums
from tests.kernel.packing import EMPTY_STATE, I64_MAX, U64_MAX, record_bytes

SIZE = 2048

u64 = st.one_of(st.integers(0, 5), st.integers(0, U64_MAX))
times = st.one_of(st.integers(0, 5), st.integers(0, I64_MAX), st.integers(-1, 2**64))
payloads = st.one_of(st.binary(max_size=40), st.binary(max_size=10).map(bytearray), st.sampled_from(["text", None]))
mostly_bytes = st.lists(st.one_of(st.binary(max_size=20), st.binary(max_size=300), payloads), max_size=8)


def columns_of(items: list[Any]) -> tuple[bytes, bytes]:
    parts = [bytes(item) for item in items if isinstance(item, bytes | bytearray)]
    ends = array("i", [0])
    for part in parts:
        ends.append(ends[-1] + len(part))
    return b"".join(parts), ends.tobytes()


def outcome(call: Any, *arguments: Any) -> Any:
    """Return what a call returns, or the type of what it raises."""
    try:
        return call(*arguments)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error)


append = st.tuples(st.just("append"), payloads, st.integers(-1, 2**64), times)
append_many = st.tuples(st.just("append_many"), mostly_bytes, st.integers(-1, 9), st.integers(0, U64_MAX), times)
append_each = st.tuples(st.just("append_each"), mostly_bytes, st.lists(u64, max_size=9), st.lists(u64, max_size=9))
append_columns = st.tuples(st.just("append_columns"), mostly_bytes, st.integers(-1, 9), st.integers(-1, 9))
allow = st.tuples(st.just("allow"), st.integers(-8, SIZE + 8), st.integers(-8, SIZE + 8), st.integers(-1, 30))
close = st.sampled_from([("close",), ("release",)])
steps = st.lists(st.one_of(append, append_many, append_each, append_columns, append, append_many, allow), max_size=25)


def take(writer: Any, step: tuple[Any, ...]) -> Any:
    """Do one step."""
    name, *rest = step
    if name == "append_each":
        items, ids, stamps = rest
        return outcome(writer.append_many, items, 0, array("Q", ids), array("Q", stamps))
    if name == "append_columns":
        items, start, stop = rest
        data, ends = columns_of(items)
        return outcome(writer.append_columns, data, ends, False, start, stop, 5, 6)  # noqa: FBT003
    return outcome(getattr(writer, name), *rest)


@given(steps, st.lists(close, max_size=1), st.integers(1, 5), st.integers(0, 9))
@example([("append_many", [b"x" * 100] * 8, 0, 0, 1)] * 5, [], 3, 0)
def test_the_same_steps_write_the_same_bytes(
    twins: tuple[ModuleType, ModuleType],
    before: list[tuple[Any, ...]],
    end: list[tuple[Any, ...]],
    interval: int,
    count: int,
) -> None:
    buffers = [bytearray(SIZE), bytearray(SIZE)]
    numbers = EMPTY_STATE if count == 0 else (1, 2, 3, 4, 5)
    writers = [
        kernel.Appender(buffer, None, 16, 7, count, interval, *numbers)
        for kernel, buffer in zip(twins, buffers, strict=True)
    ]
    for step in [("allow", SIZE, SIZE - 8, 25), *before, *end, ("append", b"", 0, 0)]:
        first, second = (take(writer, step) for writer in writers)
        assert first == second, step
        assert writers[0].state() == writers[1].state()
        assert writers[0].index() == writers[1].index()
    assert buffers[0] == buffers[1]
    assert twins[0].verify(buffers[0], 16, SIZE)[0] == writers[0].count - count


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Draw a buffer with records in it, and perhaps some damage."""
    bodies = draw(st.lists(st.binary(max_size=60), max_size=10))
    buffer = bytearray(sum(record_bytes(len(body)) for body in bodies) + draw(st.integers(0, 80)))
    writer = pure.Appender(buffer, None, 0, 0, 0, 1, *EMPTY_STATE)
    writer.allow(len(buffer), len(buffer), 99)
    for body in bodies:
        writer.append(body, draw(st.integers(0, U64_MAX)), draw(st.integers(0, 9)))
    for _ in range(draw(st.integers(0, 3)) if buffer else 0):
        buffer[draw(st.integers(0, len(buffer) - 1))] = draw(st.integers(0, 255))
    return bytes(buffer)


@given(segments(), st.data())
def test_the_same_bytes_read_the_same(twins: tuple[ModuleType, ModuleType], buffer: bytes, data: st.DataObject) -> None:
    offset = data.draw(st.one_of(st.just(0), st.integers(0, len(buffer) // 8).map(lambda at: at * 8)))
    limit = data.draw(st.one_of(st.just(len(buffer)), st.integers(0, len(buffer))))
    most, bytes_max, number = (data.draw(st.integers(0, 12)), data.draw(st.integers(0, 200)), data.draw(u64))
    calls: list[tuple[str, tuple[int, ...]]] = [
        ("scan", (offset, limit, 3, most, bytes_max)),
        ("columns", (offset, limit, 3, most, bytes_max)),
        ("verify", (offset, limit)),
        ("skip", (offset, limit, most)),
        ("index_records", (offset, limit, most, 1 + most % 3, number)),
        ("find_timestamp", (offset, limit, number)),
        ("find_record", (min(offset + most % 8, len(buffer)), limit)),
        ("nonzero_end", (min(offset + most % 8, len(buffer)), limit)),
    ]
    for name, arguments in calls:
        first, second = (getattr(kernel, name)(buffer, *arguments) for kernel in twins)
        assert first == second, (name, arguments)


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_the_same_bytes_have_the_same_checksum(native_twin: ModuleType, data: bytes, seed: int) -> None:
    assert native_twin.crc32c(data, seed) == pure.crc32c(data, seed)


@given(st.integers(0, 99_999), st.integers(0, 99_999), st.integers(0, 2**32 - 1), st.integers(0, 9000))
def test_a_stretch_has_the_checksum_of_its_bytes(start: int, stop: int, seed: int, origin: int) -> None:
    start, stop = sorted((max(start, origin), max(stop, origin)))
    data = bytes(range(256)) * 391
    assert Sums(memoryview(data), origin, len(data)).crc(seed, start, stop) == pure.crc32c(data[start:stop], seed)


def public_names(module: ModuleType) -> set[str]:
    return {name for name in dir(module) if not name.startswith("_")}


def test_the_twins_have_the_same_names(native_twin: ModuleType) -> None:
    assert set(pure.__all__) == set(picked.__all__)
    assert public_names(native_twin) - {"pwrite_all", "sync_and_note"} == set(picked.__all__)  # These are for `fs`.
    for kind in ("Appender", "Door"):
        assert public_names(getattr(native_twin, kind)) == public_names(getattr(pure, kind))


def test_the_twins_have_the_same_constants(native_twin: ModuleType) -> None:
    for index, name in enumerate(("MORE", "EMPTY", "SEALED", "BAD", "END")):
        assert getattr(native_twin, name) == getattr(pure, name) == index
    assert (native_twin.NAME, pure.NAME) == ("native", "pure")


def test_the_twins_take_the_same_arguments(twins: tuple[ModuleType, ModuleType]) -> None:
    functions = [name for name in picked.__all__ if inspect.isfunction(getattr(pure, name))]
    assert len(functions) > 10
    for name in functions:
        first, second = (inspect.signature(getattr(kernel, name)).parameters for kernel in twins)
        assert list(first) == list(second), name
        assert [p.default for p in first.values()] == [p.default for p in second.values()], name
    for name in ("allow", "append", "append_many", "append_columns", "close", "release", "state", "index"):
        first, second = (inspect.signature(getattr(kernel.Appender, name)).parameters for kernel in twins)
        assert list(first) == list(second), name
