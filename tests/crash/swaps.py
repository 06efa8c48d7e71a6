"""Logs that are deleted, replaced and rebuilt behind a reader's back, and what the reader must see then.

Each swap leaves a log in which a reader, whose position was taken before, would skip records if it just went on.  It
must see every record, or be told.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from latewood import AnotherLog, Queue, ReaderAhead
from latewood.log.layout import Layout
from latewood.log.rebuild import begin_life, rebuild
from latewood.queue.cursor import cursor_path
from latewood.testing import FakeClock, MemFS
from tests.crash.survivor import require

ROOT: Final = Path("/q")
LAYOUT: Final = Layout(ROOT)
CURSOR: Final = cursor_path(LAYOUT.readers, "billing")
READ: Final = 7
"""Where the reader stands."""
KEPT: Final = 4
"""Records from before that the log has, where it has any."""


def opened(fs: MemFS) -> Queue:
    return Queue.open(ROOT, fs=fs, clock=FakeClock(), background=False, birth=b"identity of oaks")


def raw(fs: MemFS, path: Path) -> bytes:
    file = fs.open(path)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def put(fs: MemFS, path: Path, data: bytes) -> None:
    fs.make_directory(path.parent)
    file = fs.open(path, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def read_log(fs: MemFS) -> bytes:
    """Write a log of two segments whose reader has read all, and return the reader's file."""
    with opened(fs) as log:
        log.append_many([b"old"] * KEPT)
        log.roll()
        log.append_many([b"old"] * (READ - KEPT))
        log.reader("billing", "latest").close()
    return raw(fs, CURSOR)


def grown(fs: MemFS, count: int = 10) -> None:
    """Grow the log past where the reader stood, before anybody looks at the reader."""
    with opened(fs) as log:
        log.append_many([b"new"] * count)


def check_reader(fs: MemFS, position: bytes, start: int) -> None:
    """Check that the reader sees every record from `start` on, or is told that it cannot go on."""
    put(fs, CURSOR, position)
    with opened(fs) as log:
        expected = list(log.scan(start))
        try:
            reader = log.reader("billing")
        except (AnotherLog, ReaderAhead):
            return
        require(list(reader) == expected, "the reader skipped records in silence", start, reader.committed_sequence)


def deleted_and_made_anew() -> None:
    """Have another log under the same path."""
    position = read_log(MemFS())
    anew = MemFS()
    Queue.open(ROOT, fs=anew, clock=FakeClock(), background=False).close()
    grown(anew)
    check_reader(anew, position, 0)


def rebuilt_without_its_end() -> None:
    """Lose the last segment, and the manifest."""
    fs = MemFS()
    position = read_log(fs)
    fs.remove(CURSOR)
    *_, last = sorted(path for path in fs.walk(LAYOUT.segments) if path.suffix == ".q")
    fs.remove(last)
    fs.remove(LAYOUT.checkpoint)
    require(rebuild(fs, LAYOUT, accept_loss=True).written, "nothing was rebuilt")
    grown(fs)
    check_reader(fs, position, KEPT)


def replaced_by_an_older_copy() -> None:
    """Put a copy in the log's place, and say so."""
    position = read_log(MemFS())
    older = MemFS()
    with opened(older) as log:
        log.append_many([b"old"] * KEPT)
    begin_life(older, LAYOUT)
    grown(older)
    check_reader(older, position, KEPT)


def rebuilt_without_a_manifest() -> None:
    """Lose the manifest alone: the reader is where it was, and must not be turned away."""
    fs = MemFS()
    position = read_log(fs)
    for path in [path for path in fs.walk(ROOT) if path.name.startswith("manifest.")]:
        fs.remove(path)
    require(rebuild(fs, LAYOUT).written, "nothing was rebuilt")
    grown(fs)
    put(fs, CURSOR, position)
    with opened(fs) as log:
        require(len(list(log.reader("billing"))) == len(list(log.scan(READ))), "the reader lost its place")


SWAPS: Final[dict[str, Callable[[], None]]] = {
    "deleted and made anew": deleted_and_made_anew,
    "rebuilt without its end": rebuilt_without_its_end,
    "replaced by an older copy": replaced_by_an_older_copy,
    "rebuilt without a manifest": rebuilt_without_a_manifest,
}
