"""Readers whose positions are of another log than the one at the path, or of a life that it never had."""

import pickle
from collections.abc import Callable
from typing import NamedTuple

import pytest

from latewood import AnotherLog, Queue, ReaderAhead
from latewood.format.cursor import SIZE_1, decode_file
from latewood.log.layout import Layout
from latewood.log.rebuild import begin_life, rebuild
from latewood.queue.cursor import cursor_path, load_cursor
from latewood.queue.listing import list_readers
from latewood.queue.verify import verify_queue
from tests.format.codecs import BIRTH
from tests.format.version_1 import downgrade
from tests.log.desk import ROOT, Desk, payloads

READ = 7
NEW = 10
PATH = cursor_path(ROOT / "readers", "r")


def put(desk: Desk, raw: bytes) -> None:
    """Put a reader's file in its place, as from a copy."""
    desk.fs.make_directory(PATH.parent)
    file = desk.fs.open(PATH, create=True)
    file.truncate(0)
    file.pwrite(raw, 0)
    file.close()


@pytest.fixture
def elsewhere() -> bytes:
    """The file of a reader that has read 7 records of another log."""
    with Desk() as other:
        log = other.open()
        log.append_many([b"old"] * READ)
        log.reader("r", "latest").close()
        return other.raw(PATH)


@pytest.fixture
def anew(desk: Desk, elsewhere: bytes) -> Desk:
    """A log that was deleted and made anew, has 10 records since, and the reader of the old one."""
    with desk.open() as log:
        log.append_many([b"new %d" % number for number in range(NEW)])
        log.roll()
    put(desk, elsewhere)
    return desk


def test_a_reader_of_a_log_that_was_deleted_and_made_anew_skips_nothing_in_silence(anew: Desk) -> None:
    for log in (anew.open(), anew.open_to_read()):
        with pytest.raises(AnotherLog, match=r"the position is of the log [0-9a-f]{32}, and this one is") as caught:
            log.reader("r")
        assert caught.value.path == PATH
        assert "`latewood readers seek q r --earliest`" in str(caught.value)


def test_a_reader_of_another_log_that_is_beyond_the_end_is_a_stranger_too(desk: Desk, elsewhere: bytes) -> None:
    put(desk, elsewhere)
    log = desk.open()
    log.append(b"new")
    with pytest.raises(AnotherLog):
        log.reader("r")
    assert desk.raw(PATH) == elsewhere


def test_what_the_error_says_begins_anew_and_is_remembered(anew: Desk) -> None:
    log = anew.open()
    with log.reader("r", start="earliest") as reader:
        assert [record.payload for record in reader] == payloads(log)
        reader.commit()
    with log.reader("r") as reader:
        assert reader.sequence == NEW
    cursor = load_cursor(anew.fs, PATH)
    assert cursor is not None
    assert cursor.mark == log.mark


@pytest.mark.parametrize("start", ["earliest", "latest", 0, READ])
def test_any_start_but_resume_sets_a_stranger_anew(anew: Desk, start: str | int) -> None:
    log = anew.open()
    log.reader("r", start=start).close()  # type: ignore[arg-type]
    with log.reader("r") as reader:
        assert reader.sequence == {"earliest": 0, "latest": NEW}.get(str(start), start)


@pytest.mark.parametrize("look", [Queue.readers, Queue.cleanup, Queue.retention_plan])
def test_nothing_is_deleted_while_a_reader_is_a_stranger(anew: Desk, look: Callable[[Queue], object]) -> None:
    log = anew.open()
    with pytest.raises(AnotherLog):
        look(log)
    log.reader("r", start="latest").close()
    look(log)


def test_a_stranger_is_listed_and_found(anew: Desk) -> None:
    (status,) = list_readers(anew.open_to_read())
    assert (status.sequence, status.lag) == (READ, None)
    assert "the position is of the log" in str(status.problem)
    (finding,) = verify_queue(anew.fs, Layout(ROOT)).findings
    assert (finding.severity, finding.path) == ("damage", PATH)
    assert "latewood readers seek q r --earliest" in finding.remedy


def test_the_error_survives_a_pickle(anew: Desk) -> None:
    with pytest.raises(AnotherLog) as caught:
        anew.open().reader("r")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (str(copy), copy.path, copy.mend) == (str(caught.value), PATH, caught.value.mend)


# -- lives --------------------------------------------------------------------------------------------


def rebuilt_without_its_end(desk: Desk, kept: int = READ) -> None:
    """Rebuild a log that lost a segment at its end: records from `kept` on are gone."""
    lost = desk.segment_paths()[-1]
    desk.fs.remove(lost)
    desk.fs.remove(desk.layout.checkpoint)
    report = rebuild(desk.fs, desk.layout, accept_loss=True)
    assert report.written
    assert desk.open_to_read().next_sequence == kept


class Rebuilt(NamedTuple):
    """A log of 12 records that lost its last 5, and the files of readers from before."""

    desk: Desk
    files: dict[int, bytes]

    def grown(self, count: int) -> Queue:
        """Append records in the place of those that were lost."""
        log = self.desk.open()
        log.append_many([b"new"] * count)
        return log


@pytest.fixture
def rebuilt(desk: Desk) -> Rebuilt:
    files = {}
    with desk.open(birth=BIRTH) as log:
        log.append_many([b"old"] * READ)
        log.roll()
        log.append_many([b"lost"] * 5)
        for sequence in (6, 7, 8, 12):
            log.reader("r", sequence).close()
            files[sequence] = desk.raw(PATH)
    desk.fs.remove(PATH)
    rebuilt_without_its_end(desk)
    return Rebuilt(desk, files)


@pytest.mark.parametrize("sequence", [6, 7])
def test_a_reader_of_what_a_rebuild_kept_goes_on(rebuilt: Rebuilt, sequence: int) -> None:
    rebuilt.grown(13).close()
    put(rebuilt.desk, rebuilt.files[sequence])
    log = rebuilt.desk.open()
    with log.reader("r") as reader:
        assert reader.sequence == sequence
        reader.commit()
    cursor = load_cursor(rebuilt.desk.fs, PATH)
    assert cursor is not None
    assert cursor.mark == log.mark


@pytest.mark.parametrize("sequence", [8, 12])
def test_a_reader_of_what_a_rebuild_lost_is_told_where_though_the_log_has_grown_past_it(
    rebuilt: Rebuilt, sequence: int
) -> None:
    rebuilt.grown(13).close()
    put(rebuilt.desk, rebuilt.files[sequence])
    for _ in range(2):
        log = rebuilt.desk.open()
        with pytest.raises(ReaderAhead) as caught:
            log.reader("r")
        assert (caught.value.start, caught.value.stop) == (READ, sequence)
        log.close()


def test_a_reader_that_is_beyond_the_end_is_marked_with_where_a_rebuild_went_back_to(rebuilt: Rebuilt) -> None:
    rebuilt.grown(2).close()
    put(rebuilt.desk, rebuilt.files[12])
    log = rebuilt.grown(13)
    with pytest.raises(ReaderAhead) as caught:
        log.reader("r")
    assert (caught.value.start, caught.value.stop) == (READ, 12)


def test_a_reader_of_a_life_that_the_log_never_had_is_a_stranger(desk: Desk) -> None:
    """The log is rebuilt, read, and then replaced by a copy from before the rebuild, of as many records."""
    with desk.open(birth=BIRTH) as log:
        log.append_many([b"x"] * NEW)
    rebuild(desk.fs, desk.layout)
    desk.open().reader("r", READ).close()
    raw = desk.raw(PATH)
    with Desk() as older:
        with older.open(birth=BIRTH) as log:
            log.append_many([b"x"] * NEW)
        put(older, raw)
        with pytest.raises(AnotherLog, match="which this copy of it never had"):
            older.open().reader("r")


def test_a_copy_that_was_put_in_place_by_hand_is_told_from_the_log_it_was_copied_from(desk: Desk) -> None:
    """It grows past the reader before anybody looks: the new life, begun when it was restored, shows it."""
    with desk.open(birth=BIRTH) as log:
        log.append_many([b"old"] * NEW)
        log.reader("r", NEW).close()
    raw = desk.raw(PATH)
    with Desk() as copy:
        with copy.open(birth=BIRTH) as log:
            log.append_many([b"old"] * READ)
        identity = begin_life(copy.fs, copy.layout)
        assert identity is not None
        assert [life.start_sequence for life in identity.lives] == [0, READ]
        with copy.open() as log:
            assert log.identity == identity
            log.append_many([b"new"] * NEW)
        put(copy, raw)
        with pytest.raises(ReaderAhead) as caught:
            copy.open().reader("r")
        assert (caught.value.start, caught.value.stop) == (READ, NEW)


def test_a_reader_that_is_open_while_the_log_is_rebuilt_commits_nothing_and_goes_on_when_opened_again(
    desk: Desk,
) -> None:
    with desk.open() as log:
        log.append_many([b"x"] * NEW)
    beside = desk.open_to_read()
    reader = beside.reader("r")
    reader.poll(3)
    reader.commit()
    reader.poll(3)
    rebuild(desk.fs, desk.layout)
    with pytest.raises(AnotherLog, match="while this reader was open; nothing was committed: open the log again"):
        reader.commit()
    beside.close()
    with desk.open_to_read() as log, log.reader("r") as again:
        assert again.sequence == 3
        again.commit()


# -- older programs -----------------------------------------------------------------------------------


def test_a_position_of_version_1_belongs_and_gets_a_mark_with_the_next_commit(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"x"] * NEW)
        log.reader("r", 3).close()
    downgrade(desk.fs, ROOT)
    log = desk.open()
    with log.reader("r") as reader:
        assert reader.sequence == 3
        reader.poll(1)
        reader.commit()
    found = decode_file(desk.raw(PATH), PATH)
    assert (found.sequence, found.mark) == (4, log.mark)


def test_in_a_log_of_version_1_that_is_only_read_positions_stay_of_version_1(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"x"] * NEW)
    downgrade(desk.fs, ROOT)
    beside = desk.open_to_read()
    with beside.reader("r", 3) as reader:
        reader.poll(1)
        reader.commit()
        assert decode_file(desk.raw(PATH), PATH).mark is None
        assert not any(desk.raw(PATH)[SIZE_1:4096])
        desk.open().close()  # Now it is of version 2.
        reader.poll(1)
        reader.commit()
    found = decode_file(desk.raw(PATH), PATH)
    assert (found.sequence, found.mark) == (5, desk.open_to_read().mark)
