"""Many threads, one appender."""

import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.kernel.packing import appender, scan_all

THREADS = 4
ROUNDS = 300


@pytest.fixture(autouse=True)
def _impatient_interpreter() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_all(work: Callable[[int], None]) -> None:
    """Run `work` in every thread at once, and raise what they raise."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def body(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_get_sequences_without_gaps(kernel: ModuleType) -> None:
    buffer = bytearray(THREADS * ROUNDS * 40)
    writer = appender(kernel, buffer)
    taken: list[list[int]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            taken[number].append(writer.append(b"%d %d" % (number, turn), number, turn))

    run_all(work)
    assert sorted(sum(taken, [])) == list(range(100, 100 + THREADS * ROUNDS))  # noqa: RUF017 - four short lists
    assert all(own == sorted(own) for own in taken)
    entries, end, _ = scan_all(kernel, buffer)
    assert (len(entries), end) == (THREADS * ROUNDS, writer.offset)
    for number in range(THREADS):
        mine = [entry.payload for entry in entries if entry.ext_id == number]
        assert mine == [b"%d %d" % (number, turn) for turn in range(ROUNDS)]
        assert [entries[sequence - 100].ext_id for sequence in taken[number]] == [number] * ROUNDS
    assert writer.index() == kernel.index_records(buffer, 0, len(buffer), 1 << 30, 2, 0)


def test_batches_of_threads_are_not_mixed(kernel: ModuleType) -> None:
    buffer = bytearray(THREADS * ROUNDS * 5 * 32)
    writer = appender(kernel, buffer)

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            payloads = [b"%d" % part for part in range(5)]
            assert writer.append_many(payloads, 0, number, turn) == 5

    run_all(work)
    entries, _, _ = scan_all(kernel, buffer)
    assert len(entries) == THREADS * ROUNDS * 5
    for start in range(0, len(entries), 5):
        batch = entries[start : start + 5]
        assert [entry.payload for entry in batch] == [b"0", b"1", b"2", b"3", b"4"]
        assert len({(entry.ext_id, entry.timestamp_ns) for entry in batch}) == 1


def test_together_they_never_pass_the_limits(kernel: ModuleType) -> None:
    buffer = bytearray(64 * 32)
    writer = appender(kernel, buffer)
    writer.allow(33 * 32, 40 * 32, 50)
    counts = [0] * THREADS

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            if turn % 2:
                counts[number] += writer.append(b"x", 0, 1) >= 0
            else:
                counts[number] += writer.append_many([b"x", b"y", b"z"], 0, 0, 1)

    run_all(work)
    assert sum(counts) == writer.count == len(scan_all(kernel, buffer)[0]) == 40
    assert not any(buffer[40 * 32 :])


def test_nothing_is_appended_once_close_has_returned(kernel: ModuleType) -> None:
    for _ in range(20):
        buffer = bytearray(THREADS * ROUNDS * 32)
        writer = appender(kernel, buffer)
        after: list[int] = []

        def work(number: int, *, writer: object = writer, after: list[int] = after) -> None:
            if number == 0:
                writer.close()  # type: ignore[attr-defined] # either twin's appender
                after.append(writer.sequence)  # type: ignore[attr-defined]
            else:
                while writer.append(b"x") >= 0:  # type: ignore[attr-defined]
                    pass

        run_all(work)
        assert after == [writer.sequence]
        assert len(scan_all(kernel, buffer)[0]) == writer.count
