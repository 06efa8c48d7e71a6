"""Readers that had read more than their log has, because an older copy of it was restored."""

import logging
import pickle
import struct
from collections.abc import Callable

import pytest

from latewood import CorruptError, Locked, Queue, ReaderAhead
from latewood.format.cursor import SIZE, SLOT_OFFSETS
from latewood.log.layout import Layout
from latewood.queue.listing import list_readers
from latewood.queue.verify import verify_queue
from tests.format.codecs import BIRTH
from tests.log.desk import ROOT, Desk, payloads

READ = 50
KEPT = 20


def restore(desk: Desk, kept: int = KEPT) -> None:
    """Put an older copy of the log in the place of the one there, but for its readers."""
    with Desk() as older:
        log = older.open(birth=BIRTH)
        log.append_many([b"old %d" % number for number in range(kept)])
        log.close()
        files = {path: older.raw(path) for path in older.fs.walk(ROOT)}
    for path in list(desk.fs.walk(ROOT)):
        if path.parent != desk.layout.readers:
            desk.fs.remove(path)
    for path, data in files.items():
        desk.fs.make_directory(path.parent)
        file = desk.fs.open(path, create=True)
        file.pwrite(data, 0)
        file.close()


@pytest.fixture
def restored(desk: Desk) -> Desk:
    """A log of 20 records with a reader that stands at 50, and one that stands at 10."""
    log = desk.open(birth=BIRTH)
    log.append_many([b"old %d" % number for number in range(READ)])
    log.reader("r", start="latest").close()
    log.reader("early", start=10).close()
    log.close()
    restore(desk)
    return desk


def grow(desk: Desk) -> Queue:
    log = desk.open()
    log.append_many([b"new %d" % number for number in range(READ)])
    return log


def test_a_reader_is_told_before_the_log_grows(restored: Desk) -> None:
    log = restored.open_to_read()
    with pytest.raises(ReaderAhead) as caught:
        log.reader("r")
    assert (caught.value.start, caught.value.stop) == (KEPT, READ)


def test_a_reader_is_told_after_the_log_has_grown_past_it(restored: Desk) -> None:
    log = grow(restored)
    for opened in (log, restored.open_to_read()):
        with pytest.raises(ReaderAhead, match=r"readers seek q r --sequence 20.*reader\('r', start=20\)") as caught:
            opened.reader("r")
        assert (caught.value.start, caught.value.stop) == (KEPT, READ)


def test_a_reader_is_told_however_often_the_log_is_opened(restored: Desk) -> None:
    for _ in range(3):
        grow(restored).close()
    raw = restored.raw(restored.layout.readers / "r.meta")
    with pytest.raises(ReaderAhead, match="stands at 50, and the log went back to 20"):
        restored.open().reader("r")
    assert restored.raw(restored.layout.readers / "r.meta") == raw


def test_the_start_that_the_error_names_skips_nothing(restored: Desk) -> None:
    log = grow(restored)
    with log.reader("r", start=KEPT) as reader:
        assert [record.payload for record in reader] == payloads(log, KEPT)
        reader.commit()
    with log.reader("r") as reader:
        assert reader.sequence == log.next_sequence
    assert [info.lag for info in log.readers()] == [KEPT + READ - 10, 0]


@pytest.mark.parametrize("start", ["earliest", "latest", 0, KEPT + READ])
def test_any_start_but_resume_sets_the_reader_anew(restored: Desk, start: str | int) -> None:
    log = grow(restored)
    with log.reader("r", start=start) as reader:  # type: ignore[arg-type]
        assert reader.committed_sequence == reader.sequence
    log.reader("r").close()


def test_a_log_that_went_back_twice_went_back_to_the_earlier_end(restored: Desk) -> None:
    grow(restored).close()
    restore(restored, 5)
    with pytest.raises(ReaderAhead, match="stands at 50, and the log went back to 5;"):
        grow(restored).reader("r")


def test_a_reader_within_the_log_is_left_alone(restored: Desk) -> None:
    raw = restored.raw(restored.layout.readers / "early.meta")
    log = grow(restored)
    assert restored.raw(restored.layout.readers / "early.meta") == raw
    with log.reader("early") as reader:
        assert reader.sequence == 10


def test_opening_to_append_warns_of_it_once(restored: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "latewood"):
        restored.open().close()
        restored.open().close()
    (warning,) = caplog.messages
    assert "r.meta: the reader stands at 50, and the log went back to 20; " in warning


@pytest.mark.parametrize("look", [Queue.readers, Queue.cleanup, Queue.retention_plan])
def test_nothing_is_deleted_while_a_reader_is_ahead(restored: Desk, look: Callable[[Queue], object]) -> None:
    log = grow(restored)
    with pytest.raises(CorruptError, match="went back to 20"):
        look(log)
    log.reader("r", start="latest").close()
    look(log)


def test_it_is_listed_and_found_before_and_after_the_log_has_grown(restored: Desk) -> None:
    for lag in (0, READ):
        _, status = list_readers(restored.open_to_read())
        assert (status.sequence, status.lag) == (READ, lag)
        assert "went back to 20" in str(status.problem)
        (finding,) = verify_queue(restored.fs, Layout(ROOT)).findings
        assert (finding.severity, finding.path.name) == ("damage", "r.meta")
        assert "--sequence 20" in finding.remedy
        grow(restored).close()


def test_a_log_is_not_opened_while_somebody_reads_what_it_was(restored: Desk) -> None:
    lock = restored.fs.lock(restored.layout.readers / "r.lock")
    with pytest.raises(Locked, match="reader 'r'"):
        restored.open()
    lock.close()
    restored.open()


def test_a_position_of_an_older_program_is_marked_too(restored: Desk) -> None:
    file = restored.fs.open(restored.layout.readers / "r.meta", write=True)
    file.truncate(0)
    file.pwrite(struct.pack("<QQ", 0, 3000), 0)
    file.close()
    with pytest.raises(ReaderAhead, match="went back to 20"):
        grow(restored).reader("r")


def test_a_damaged_reader_does_not_keep_the_log_from_opening(restored: Desk) -> None:
    for at in SLOT_OFFSETS:
        restored.overwrite(restored.layout.readers / "r.meta", b"\xff" * SIZE, at)
    with pytest.raises(CorruptError, match="cursor"):
        grow(restored).reader("r")


def test_the_error_survives_a_pickle() -> None:
    error = ReaderAhead(ROOT / "readers" / "r.meta", 1, 5)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(copy), copy.start, copy.stop) == (str(error), 1, 5)
