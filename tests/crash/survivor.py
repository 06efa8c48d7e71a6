"""What every disk that comes up after a power cut must give: nothing lost, nothing made up, and writable."""

import gc
import itertools
from typing import Final

from latewood import LatewoodError, LogOptions, NotFoundError, Queue, Record
from latewood.log.identity import load_identity
from latewood.log.layout import Layout
from latewood.log.pointer import load_pointer
from latewood.segment import read_header
from latewood.testing import CrashFS, FakeClock
from latewood.testing.node import Inode, Node
from tests.crash.story import BIRTH, ROOT, SMALL, Bounds, Promise, Story

_LATER_BIRTH: Final = b"named afterwards"
"""What a log is called that had no name when the power failed."""
_NEW_RECORDS: Final = 3
"""Appended to each survivor: enough to fill a tiny segment, and to run into whatever was left behind the end."""


class Violation(AssertionError):
    """A survivor broke a promise."""


class Seen:
    """The disks of one scene that were looked at, each with what it owed: the same one needs no second look."""

    def __init__(self) -> None:
        self._states: set[tuple[object, int]] = set()

    def is_new(self, survivor: CrashFS) -> bool:
        """Say whether none was like this one, and remember it."""
        count = len(self._states)
        self._states.add((survivor.note, _fingerprint(survivor.root)))
        return len(self._states) > count


def _fingerprint(node: Node) -> int:
    """Equal trees have equal ones; 64 bits, so for all that tests will see, unequal ones differ."""
    if isinstance(node, Inode):
        return hash(node.content())
    return hash(frozenset((name, _fingerprint(child)) for name, child in node.entries.items()))


_OPENED = itertools.count(1)


def require(truth: bool, *reasons: object) -> None:  # noqa: FBT001 - an assertion, not a mode
    if not truth:
        raise Violation(*reasons)


def look(fs: CrashFS) -> list[Record] | None:
    """What a reader sees that comes before any writer; None if there is no log yet."""
    try:
        with Queue.open(ROOT, mode="r", fs=fs, clock=FakeClock()) as log:
            found = list(log.scan())
            end = log.next_sequence
    except NotFoundError:
        return None
    require(end == (found[-1].sequence + 1 if found else log_start(fs)), "mode r: next_sequence", end, len(found))
    return found


def log_start(fs: CrashFS) -> int:
    with Queue.open(ROOT, mode="r", fs=fs, clock=FakeClock()) as log:
        return log.first_sequence


def open_again(fs: CrashFS, options: LogOptions = SMALL) -> Queue:
    if next(_OPENED) % 100 == 0:  # Logs that are dropped without being closed are cycles, and hold their disks.
        gc.collect()
    return Queue.open(ROOT, options, fs=fs, clock=FakeClock(), background=False, birth=_LATER_BIRTH)


def check(survivor: CrashFS, options: LogOptions = SMALL) -> None:
    """Raise a Violation, or whatever the log raises, unless the survivor keeps the promise in its note."""
    promise = survivor.note
    assert isinstance(promise, Promise)
    before = look(survivor)
    require(before is not None or promise.lost, "the log is gone for those who read")
    if before is not None:
        check_second_copy(survivor)
    log = check_briefly(survivor, options)
    found = list(log.scan())
    require(before is None or before == found, "a reader saw something else than the writer", before, found)
    check_goes_on(survivor, log, promise, options)


def check_briefly(survivor: CrashFS, options: LogOptions = SMALL) -> Queue:
    """Check that the survivor can be opened to write and keeps its promise; return the log."""
    promise = survivor.note
    assert isinstance(promise, Promise)
    log = open_again(survivor, options)
    end = check_records(log, promise)
    check_sidecars(log, promise, end)
    check_identity(log, promise)
    return log


def check_second_copy(survivor: CrashFS) -> None:
    """Check that a log does not lose its name with its manifest; the copy may know a life that never began."""
    with Queue.open(ROOT, mode="r", fs=survivor, clock=FakeClock()) as log:
        identity, copy = log.identity, load_identity(survivor, Layout(ROOT))
    if identity is not None:
        is_same = copy is not None and copy.identity == identity.identity
        require(is_same, "second copy of the identity", identity, copy)


def check_identity(log: Queue, promise: Promise) -> None:
    """Check which log it is, and the cohorts of its segments."""
    require(log.identity is not None, "a log without a name is open to append")
    assert log.identity is not None
    names = [BIRTH] if promise.named else [BIRTH, _LATER_BIRTH]
    require(log.identity.identity in names, "identity", log.identity, names)
    entries = log._manifest().entries
    for index in range(len(entries)):
        file = log.file_system.open(ROOT / entries[index].path)
        cohort = read_header(file).ext_id
        file.close()
        require(entries[index].ext_id == cohort, "cohort of a sealed segment", entries[index], cohort)


def check_records(log: Queue, promise: Promise) -> int:
    """Check the records against the promise; return where they end."""
    first, end = log.first_sequence, log.next_sequence
    require(first in promise.first, "first sequence", first, promise.first)
    require(end in promise.end, "end of the log", end, promise.end)
    require(list(log.scan()) == promise.records(first, end), "records differ")
    require(log.durable_sequence == end, "what was recovered is durable", log.durable_sequence, end)
    return end


def check_sidecars(log: Queue, promise: Promise, end: int) -> None:
    """Check readers, cohort and watermark."""
    writer = log._writer
    require(writer.segment.header.ext_id in promise.cohorts, "cohort", writer.segment.header.ext_id, promise.cohorts)
    require(log.coordinator_watermark in promise.watermark, "watermark", log.coordinator_watermark, promise.watermark)
    entries = log._manifest().entries
    pointer = load_pointer(log.file_system, Layout(ROOT))
    if len(entries):
        require(pointer is not None and pointer.segment_id == entries[-1].segment_id, "current.sealed", pointer)
        require(
            pointer is not None and pointer.coordinator_watermark == log.coordinator_watermark, "watermark", pointer
        )
    found = {info.name: info.sequence for info in log.readers()}
    for name, bounds in promise.readers:
        require(name in found or bounds.low < 0, "reader lost", name)
        if name in found:
            require(found[name] in bounds, "reader", name, found[name], bounds)
            require(found[name] <= end, "reader ahead of the log", name, found[name], end)
            check_reader(log, promise, name, found[name])
    require(set(found) <= {name for name, _ in promise.readers}, "a reader that nobody made", found)


def check_reader(log: Queue, promise: Promise, name: str, sequence: int) -> None:
    with log.reader(name) as reader:
        expected = promise.records(sequence, log.next_sequence)
        require(list(reader) == expected, "a reader sees something else", name, sequence)


def check_goes_on(fs: CrashFS, log: Queue, promise: Promise, options: LogOptions) -> None:
    """Append to the survivor, flush, cut the power again: the old records, the new ones, and no ghost behind them."""
    first, end = log.first_sequence, log.next_sequence
    promise = promise.but(lives=(*promise.lives, end))
    for one in promise.records(end, end + _NEW_RECORDS):
        log.append(one.payload, ext_id=one.ext_id, timestamp_ns=one.timestamp_ns)
    log.flush()
    again = open_again(fs.after_power_cut(), options)
    found = list(again.scan())
    require(again.first_sequence == first, "first sequence after another cut")
    require(found == promise.records(first, end + _NEW_RECORDS), "records after another cut", end, found[end - first :])
    again.close()


def violation(survivor: CrashFS, options: LogOptions = SMALL) -> Exception | None:
    """What is wrong with a survivor, if anything is: a broken promise, a refusal, or a traceback."""
    try:
        check(survivor, options)
    except (Violation, LatewoodError, ValueError, IndexError, KeyError, BufferError) as error:
        return error
    return None


__all__ = ["Bounds", "Seen", "Story", "Violation", "check", "look", "open_again", "require", "violation"]
