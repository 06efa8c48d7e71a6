"""Ctrl-C at every moment of a call: the log goes on, keeps what it acknowledged, and leaves nothing locked."""

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood import Queue, Reader, Record
from latewood.interrupts import Uninterrupted
from tests.interrupts import as_usual, interrupted, moments
from tests.runtime.disk import quick_disk

# Where a finalizer runs, of whatever object, Python swallows the interrupt, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MOMENTS_MAX = 80
"""Of each call.  What one sample passes over the next may meet: the stride is no divisor of anything."""
PAYLOADS = [b"%d" % number for number in range(60)]
"""So many are packed elsewhere, and written."""


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    with as_usual():
        yield


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with quick_disk(tmp_path) as path:
        yield path


def in_thread(work: Callable[[], Any]) -> Any:
    """Do it in another thread, which no lock of this one may keep out."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "it hangs, or has failed"
    return found[0]


def append(log: Queue, payloads: list[bytes], **options: Any) -> list[tuple[int, bytes]]:
    return list(zip(log.append_many(payloads, **options), payloads, strict=True))


def flush(log: Queue, _: Reader) -> None:
    log.append(b"z")
    log.flush()


def roll(log: Queue, _: Reader) -> None:
    log.append(b"z")
    log.roll()


def set_ext_id(log: Queue, _: Reader) -> None:
    log.append(b"z")
    log.set_ext_id(log.next_sequence)


def commit(log: Queue, reader: Reader) -> None:
    log.append(b"z")
    reader.poll(10)
    reader.commit()


def clean_up(log: Queue, reader: Reader) -> None:
    roll(log, reader)
    reader.seek(sequence=log.next_sequence)
    log.cleanup()


CALLS: dict[str, Callable[[Queue, Reader], list[tuple[int, bytes]] | None]] = {
    "append": lambda log, _: [(log.append(b"x" * 1000), b"x" * 1000)],  # Every fourth rolls.
    "durable append": lambda log, _: [(log.append(b"y", durable=True), b"y")],
    "append_many": lambda log, _: append(log, PAYLOADS),
    "append_many of a few": lambda log, _: append(log, PAYLOADS[:6], durable=True),
    "flush": flush,
    "roll": roll,
    "set_ext_id": set_ext_id,
    "commit": commit,
    "cleanup": clean_up,
}


@pytest.mark.parametrize("options", [{}, {"flush_ms": 1}], ids=["plain", "flush_ms"])
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_moment_leaves_a_log_that_goes_on(
    directory: Path, name: str, options: dict[str, Any]
) -> None:
    call, kept, cuts = CALLS[name], dict[int, bytes](), 0
    with latewood.open(directory / "log", segment_bytes_max=4096, **options) as log, log.reader("r") as reader:
        for at in moments(lambda: call(log, reader), MOMENTS_MAX):
            was_cut, appended = interrupted(lambda: call(log, reader), at)
            cuts += was_cut
            kept.update(appended or [])
            sequence = in_thread(lambda: log.append(b"probe", durable=True))
            kept[sequence] = b"probe"
            assert log.durable_sequence == sequence + 1
        reader.commit()
        assert cuts
    with latewood.open(directory / "log") as again, again.reader("r"):
        found = {record.sequence: record.payload for record in again.scan()}
        assert {s: payload for s, payload in kept.items() if s >= again.first_sequence} == {
            s: found.get(s) for s in kept if s >= again.first_sequence
        }


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_reader_skips_no_record_and_repeats_none_whenever_it_is_interrupted(directory: Path, size: int) -> None:
    with latewood.open(directory / "log", segment_bytes_max=4096) as log, log.reader("r") as reader:
        numbers = count()

        def read() -> list[Record]:
            log.append_many([b"%d" % next(numbers) for _ in range(20)])
            return reader.poll(size)

        every = moments(read, MOMENTS_MAX)
        wanted = reader.sequence
        for at in every:
            _, records = interrupted(read, at)
            for sequence in [record.sequence for record in [*(records or []), *reader]]:
                assert sequence == wanted
                wanted += 1
        assert wanted == log.next_sequence


def test_a_reader_of_columns_that_is_interrupted_reads_them_again(directory: Path) -> None:
    with latewood.open(directory / "log", segment_bytes_max=4096) as log, log.reader("r") as reader:

        def read() -> Any:
            log.append_many(PAYLOADS)
            return reader.read_arrow()

        every = moments(read, MOMENTS_MAX)
        wanted = reader.sequence
        for at in every:
            _, batch = interrupted(read, at)
            columns = batch["sequence"].to_pylist() if batch else []
            for sequence in [*columns, *(record.sequence for record in reader)]:
                assert sequence == wanted
                wanted += 1
        assert wanted == log.next_sequence


def test_a_log_and_a_reader_whose_opening_or_closing_is_interrupted_can_be_opened_again(directory: Path) -> None:
    opened: list[Queue | Reader] = []

    def use() -> None:
        opened.append(log := latewood.open(directory / "log", segment_bytes_max=4096))
        opened.append(reader := log.reader("r"))
        reader.close()
        log.close()

    for number, at in enumerate(moments(use, 2 * MOMENTS_MAX)):
        interrupted(use, at)
        for thing in opened:  # An interrupt may come as their closing begins.
            thing.close()
        with latewood.open(directory / "log") as log, log.reader("r"):
            assert log.append(b"more") == number


def test_an_interrupt_acts_at_the_end_of_what_must_not_be_cut() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():  # noqa: PT012 - when it is raised is what is tested
        signal.raise_signal(signal.SIGINT)
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
        steps.append("done")
    assert steps == ["done"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_runs_at_the_end_too() -> None:
    seen: list[str] = []
    signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
    with Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        seen.append("done")
    assert seen == ["done", "handled"]


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
