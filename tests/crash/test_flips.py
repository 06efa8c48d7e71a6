"""Every bit of every file of a small log is flipped, and every file is cut at every length and grown.

Whoever opens the log then gets exactly what was written, or an error of ours; never other records, never a reader at
a place that it had not committed, and never a traceback.  What a killed writer had not made durable may end sooner.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pytest

from latewood import LatewoodError, LogOptions, Queue, Record
from latewood.format import cursor
from latewood.format.record import SIZE as RECORD_SIZE
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.queue.verify import verify_queue
from latewood.testing import FakeClock, MemFS
from latewood.testing.node import Directory, Inode

ROOT: Final = Path("/q")
OPTIONS: Final = LogOptions(segment_bytes_max=512, index_interval=2)
READER: Final = "billing"
COMMITS: Final = (3, 5, 9)
STEP: Final = 4
"""Of the payloads, one bit in so many; of blank bytes, which nothing reads, one in `STEP_BLANK`."""
STEP_BLANK: Final = 61
OUT_OF_DATE: Final = {b"\1": ("manifest.2", "wake"), b"\2": ("manifest.1", "wake")}
"""The files of which nobody reads what they hold, by the byte in `manifest.current`."""
GROWTH: Final = (b"\0", b"\x01", b"\xff" * 8, bytes(600), b"\xa5" * 600)
REPORTED_MAX: Final = 10

Mode = Literal["a", "r"]
Files = dict[Path, bytes]


class Original(NamedTuple):
    """A log as it was left."""

    files: Files
    records: list[Record]
    positions: frozenset[int]
    """What the reader's two slots hold."""
    active: Path
    durable_count: int
    durable_end: int
    """From this byte of the open segment on nothing was promised to last."""


class Mutation(NamedTuple):
    """A change of one file."""

    path: Path
    what: str
    at: int
    """The first byte that is not as it was."""
    content: bytes


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery says what it cuts or ignores; thousands of times here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# -- the logs -------------------------------------------------------------------------------------------


def payload_of(sequence: int) -> bytes:
    return b"%d " % sequence * (3 + sequence * 5 % 13)


def open_log(fs: FileSystem, mode: Mode = "a") -> Queue:
    return Queue.open(ROOT, OPTIONS, mode=mode, fs=fs, clock=FakeClock(), background=False)


def append(log: Queue, count: int) -> None:
    for sequence in range(log.next_sequence, log.next_sequence + count):
        log.append(payload_of(sequence), ext_id=sequence % 3, timestamp_ns=1_000 + sequence)


def write(log: Queue, *, is_killed: bool) -> None:
    """Fill two segments and begin a third, with a reader that commits three times."""
    append(log, 5)
    log.coordinator_watermark = 77
    with log.reader(READER, start=COMMITS[0]) as reader:
        log.roll()
        append(log, 4)
        for sequence in COMMITS[1:]:
            reader.seek(sequence=sequence)
            reader.commit()
    log.roll()
    append(log, 4)
    log.flush()
    if is_killed:
        append(log, 3)


def original(*, is_killed: bool) -> Original:
    fs = MemFS()
    log = open_log(fs)
    write(log, is_killed=is_killed)
    assert log.stats().segment_count == 3, "two sealed, one open"
    durable_end = log._writer.durability._durable_tail.offset
    durable_count, records = log.durable_sequence, list(log.scan())
    active = log._layout.absolute(log._manifest().active.path)
    if not is_killed:
        log.close()
    files = {path: fs._inode_at(path).content() for path in fs.walk(ROOT)}
    return Original(files, records, frozenset(COMMITS[1:]), active, durable_count, durable_end)


LOGS: Final = {"closed": original(is_killed=False), "killed": original(is_killed=True)}


def disk_of(files: Files) -> MemFS:
    """Make a disk with these files; their bytes are shared until somebody writes."""
    fs = MemFS()
    for path, content in files.items():
        directory = fs.root
        for name in path.parts[1:-1]:
            found = directory.entries.setdefault(name, Directory())
            assert isinstance(found, Directory)
            directory = found
        directory.entries[path.name] = Inode(content)
    return fs


# -- what may be done to them -----------------------------------------------------------------------------


def is_blank(path: Path, content: bytes, at: int) -> bool:
    """Say whether a byte is one of those that fill a file up."""
    return content[at] == 0 and path.suffix in (".q", ".meta")


def vital_bytes(log: Original, path: Path) -> set[int]:
    """Return the bytes of a file of which every bit is flipped: all but payloads, blanks and what is out of date."""
    content = log.files[path]
    if path.name in OUT_OF_DATE[log.files[ROOT / "manifest.current"]]:
        return set()
    if path.parent.name == "readers" and path.suffix == ".meta":
        return {at for start in cursor.SLOT_OFFSETS for at in range(start, start + cursor.SIZE)}
    if path.suffix != ".q":
        return set(range(len(content)))
    vital, at = set(range(HEADER_SIZE)), HEADER_SIZE
    for record in records_in(log, path):
        vital |= set(range(at, at + RECORD_SIZE))
        at += record_bytes(len(record.payload))
    # Seal and footer; in the open segment, where the next record would be.
    return vital | set(range(at, at + RECORD_SIZE if path == log.active else len(content)))


def records_in(log: Original, path: Path) -> list[Record]:
    bounds = {"0": (0, 5), "1": (5, 9), "2": (9, len(log.records))}[path.stem[-1]]
    return log.records[slice(*bounds)]


def flips(log: Original, path: Path, *, every: bool) -> Iterator[Mutation]:
    content, vital = log.files[path], vital_bytes(log, path)
    for bit in range(8 * len(content)):
        at = bit // 8
        step = 1 if every or at in vital else STEP_BLANK if is_blank(path, content, at) else STEP
        if bit % step == 0:
            flipped = bytes([content[at] ^ 1 << bit % 8])
            yield Mutation(path, f"bit {bit % 8} of byte {at}", at, content[:at] + flipped + content[at + 1 :])


def cuts(log: Original, path: Path) -> Iterator[Mutation]:
    content = log.files[path]
    for length in range(len(content)):
        yield Mutation(path, f"cut to {length}", length, content[:length])


def growths(log: Original, path: Path) -> Iterator[Mutation]:
    content = log.files[path]
    for more in (*GROWTH, content):
        yield Mutation(path, f"grown by {len(more)}: {more[:4].hex()}", len(content), content + more)


# -- what must come of it ---------------------------------------------------------------------------------


def check(log: Original, mutation: Mutation, mode: Mode) -> bool:
    """Open a mutated log; return whether it was refused."""
    fs = disk_of({**log.files, mutation.path: mutation.content})
    is_loose = mutation.path == log.active and mutation.at >= log.durable_end
    least = log.durable_count if is_loose else len(log.records)
    try:
        with open_log(fs, mode) as opened:
            count = check_content(log, opened, least)
            if mode == "a":
                append(opened, 1)
    except LatewoodError:
        return True
    if mode == "a":
        check_went_on(log, fs, count)
    return False


def check_content(log: Original, opened: Queue, least: int) -> int:
    """Check records and reader; return how many records there are."""
    found = list(opened.scan())
    assert found == log.records[: len(found)], "other records"
    assert len(found) >= least, "records are missing, and nobody said so"
    assert opened.next_sequence == len(found)
    with opened.reader(READER) as reader:
        position = reader.sequence
        assert position in log.positions
        assert list(reader) == found[position:]
    return len(found)


def check_went_on(log: Original, fs: MemFS, count: int) -> None:
    """Check that what was appended stands behind what was there, and that no damage is left that a reader meets."""
    with open_log(fs, "r") as opened:
        found = list(opened.scan())
    assert found[:count] == log.records[:count]
    assert [record.payload for record in found[count:]] == [payload_of(count)]


def check_all(log: Original, mutations: Iterable[Mutation], mode: Mode) -> None:
    """Check every mutation, and say of all that went wrong what it was."""
    wrong = []
    for mutation in mutations:
        try:
            check(log, mutation, mode)
        except Exception as error:  # noqa: BLE001 - whatever it is, it should not have been raised
            wrong.append(f"{mutation.path}, {mutation.what}: {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} in all:\n" + "\n".join(wrong[:REPORTED_MAX])


def parts(log: Original) -> list[Path]:
    """Return the files of a log that no log before it has exactly like that."""
    known = LOGS["closed"].files if log is not LOGS["closed"] else {}
    return sorted(path for path, content in log.files.items() if known.get(path) != content)


of_every_file = pytest.mark.parametrize(
    ("log", "path"),
    [pytest.param(log, path, id=f"{name}-{path.name}") for name, log in LOGS.items() for path in parts(log)],
)
in_every_mode = pytest.mark.parametrize("mode", ["a", "r"])


@of_every_file
@in_every_mode
def test_a_flipped_bit_is_noticed_or_harmless(log: Original, path: Path, mode: Mode, campaign: bool) -> None:  # noqa: FBT001
    check_all(log, flips(log, path, every=campaign), mode)


@of_every_file
@in_every_mode
def test_a_file_that_is_cut_is_noticed_or_harmless(log: Original, path: Path, mode: Mode) -> None:
    check_all(log, cuts(log, path), mode)


@of_every_file
@in_every_mode
def test_a_file_that_grew_is_noticed_or_harmless(log: Original, path: Path, mode: Mode) -> None:
    check_all(log, growths(log, path), mode)


@of_every_file
def test_verify_has_no_traceback_and_finds_what_is_refused(log: Original, path: Path) -> None:
    every = [*flips(log, path, every=False), *cuts(log, path)][:: STEP * STEP]
    for mutation in every:
        fs = disk_of({**log.files, mutation.path: mutation.content})
        try:
            is_sound = verify_queue(fs, Layout(ROOT), deep=True).is_sound
        except LatewoodError:
            is_sound = False
        assert not (is_sound and check(log, mutation, "a")), f"{path}, {mutation.what}: refused, and called sound"


def test_the_logs_are_what_the_tests_take_them_for() -> None:
    for log in LOGS.values():
        for mode in ("a", "r"):
            untouched = Mutation(log.active, "nothing", 0, log.files[log.active])
            assert not check(log, untouched, mode), "refused, and nothing was done to it"
    names = {path.name for path in LOGS["closed"].files}
    assert {"manifest.1", "manifest.2", "manifest.current", "index.meta", "current.sealed", "billing.meta"} < names


def test_damage_to_what_was_durable_is_refused() -> None:
    """Not only harmless: a payload, a header and a manifest are each missed."""
    log = LOGS["closed"]
    for path in (log.active, *(path for path in parts(log) if path.suffix == ".q")):
        at = HEADER_SIZE + RECORD_SIZE
        content = log.files[path]
        flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        assert check(log, Mutation(path, "first payload", at, flipped), "a")
        assert check(log, Mutation(path, "first payload", at, flipped), "r")
