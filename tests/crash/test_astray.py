"""A damaged length leads nobody astray.

Whoever looks for a record hops from one to the next by their lengths.  All records here have the same size, so that
a hop that is too long lands on another record, sound in itself, and only those that were hopped over can tell.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from latewood import LatewoodError, LogOptions, Queue, Record
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE
from latewood.fs import File
from latewood.testing import FakeClock, MemFS

ROOT: Final = Path("/q")
OPTIONS: Final = LogOptions(segment_bytes_max=4096, index_interval=8)
COUNT: Final = 40
PAYLOAD_BYTES: Final = 8
LENGTH_BITS: Final = 32


def a_record(sequence: int) -> Record:
    return Record(sequence, 1_000 + sequence, 0, b"%08d" % sequence)


def a_log(*, is_sealed: bool) -> tuple[MemFS, Path]:
    """Return a disk with a log of one segment with records, and that segment."""
    fs = MemFS()
    with Queue.open(ROOT, OPTIONS, fs=fs, clock=FakeClock(), background=False) as log:
        for sequence in range(COUNT):
            log.append(a_record(sequence).payload, timestamp_ns=a_record(sequence).timestamp_ns)
        if is_sealed:
            log.roll()
    (path,) = (path for path in fs.walk(ROOT) if path.name == "000000000.q")
    return fs, path


def read(log: Queue, sequence: int) -> bool:
    return log.read(sequence) == a_record(sequence)


def scan(log: Queue, sequence: int) -> bool:
    return list(log.scan(sequence)) == [a_record(number) for number in range(sequence, COUNT)]


def find(log: Queue, sequence: int) -> bool:
    return log.find_timestamp(a_record(sequence).timestamp_ns) == sequence


def begin_a_reader(log: Queue, sequence: int) -> bool:
    with log.reader(f"from-{sequence}", start=sequence) as reader:
        return reader.next() == a_record(sequence)


LOOKS: Final = [read, scan, find, begin_a_reader]


def flipped_lengths(file: File) -> Iterator[int]:
    """Flip each bit of the length of every third record, and flip it back."""
    for ordinal in range(0, COUNT, 3):
        at = HEADER_SIZE + ordinal * record_bytes(PAYLOAD_BYTES)
        right = file.pread(4, at)
        for bit in range(LENGTH_BITS):
            file.pwrite((int.from_bytes(right, "little") ^ 1 << bit).to_bytes(4, "little"), at)
            yield ordinal
            file.pwrite(right, at)


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "open"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_flipped_length_is_noticed_or_harmless(look: Callable[[Queue, int], bool], is_sealed: bool) -> None:  # noqa: FBT001
    fs, path = a_log(is_sealed=is_sealed)
    refused = 0
    for ordinal in flipped_lengths(fs.open(path, write=True)):
        for sequence in range(0, COUNT, 7):
            with Queue.open(ROOT, mode="r", fs=fs, clock=FakeClock()) as log:
                try:
                    assert look(log, sequence), f"looking for {sequence}, with a wrong length at {ordinal}"
                except LatewoodError:
                    refused += 1
    assert refused
