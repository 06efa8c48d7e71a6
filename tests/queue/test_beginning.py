"""A reader that begins while others clean up: it stands at a record that is there, or says which are not."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from latewood import DataLost, Locked, Queue, Reader
from latewood.errors import DirectoryReplaced
from latewood.fs import FileSystem, Lock
from latewood.queue.cursor import store_cursor
from latewood.queue.holding import retention_held
from tests.log.desk import Desk
from tests.queue.test_reader import NOON, filled, sequences


def cleaned_up_between(log: Queue, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Have somebody clean up whenever a reader has chosen where to begin; return what each of them deleted."""
    deleted: list[list[int]] = []
    choose = Reader._sequence_at

    def choose_and_clean(reader: Reader, start: Any) -> int:
        sequence = choose(reader, start)
        with suppress(Locked):
            deleted.append(log.cleanup())
        return sequence

    monkeypatch.setattr(Reader, "_sequence_at", choose_and_clean)
    monkeypatch.setattr("latewood.queue.holding._TRIES_MAX", 1)
    return deleted


@pytest.mark.parametrize("start", ["resume", "earliest", NOON])
def test_a_new_reader_begins_at_the_oldest_record_that_cleaning_up_leaves(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    log = filled(desk)
    log.reader("done", start="latest").close()
    deleted = cleaned_up_between(log, monkeypatch)
    with log.reader("new", start=start) as reader:
        first = log.first_sequence
        assert (first > 0) == any(deleted)
        assert sequences(reader) == list(range(first, 50))
    assert {info.name: info.sequence for info in log.readers()}["new"] == first
    assert log.cleanup() == [], "a reader stands there"


def test_a_new_reader_that_cannot_commit_begins_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with Desk() as desk:
        log = filled(desk)
        log.reader("done", start="latest").close()
        deleted = cleaned_up_between(log, monkeypatch)
        monkeypatch.setattr(Queue, "_reader_lock", lambda _log, _name: None)
        with log.reader("new") as reader:
            assert any(deleted)
            assert sequences(reader) == list(range(log.first_sequence, 50))


def test_a_reader_that_asks_for_a_record_that_goes_meanwhile_is_told_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(desk)
    log.reader("done", start="latest").close()
    cleaned_up_between(log, monkeypatch)
    with pytest.raises(DataLost):
        log.reader("new", start=0)
    assert [info.name for info in log.readers()] == ["done"]


@pytest.mark.parametrize("start", ["resume", "earliest", "latest", 20, NOON])
def test_nobody_cleans_up_while_a_reader_that_begins_stores_its_position(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    log = filled(desk)
    log.reader("done", start="latest").close()
    monkeypatch.setattr("latewood.queue.holding._TRIES_MAX", 1)
    seen = []

    def store_and_look(*arguments: Any) -> Any:
        with pytest.raises(Locked, match="cleaning"):
            log.cleanup()
        seen.append(arguments)
        return store_cursor(*arguments)

    monkeypatch.setattr("latewood.queue.reader.store_cursor", store_and_look)
    log.reader("new", start=start).close()
    assert len(seen) == 1


@contextmanager
def retention_held_by_two(fs: FileSystem, root: Path) -> Iterator[Lock]:
    """As `retention_held`; then the lock's file is removed, so that another program may hold retention too."""
    with retention_held(fs, root) as lock:
        fs.remove(root / "retention.lock")
        yield lock


def begin(log: Queue) -> None:
    log.reader("new", start="earliest")


def move_back(log: Queue) -> None:
    with log.reader("done", start="resume") as reader:
        reader.seek(sequence=0)
        reader.commit()


@pytest.mark.parametrize("act", [begin, move_back, Queue.cleanup])
def test_where_the_lock_of_retention_was_removed_nothing_is_stored_or_deleted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, act: Callable[[Queue], object]
) -> None:
    log = filled(desk)
    log.reader("done", start="latest").close()
    monkeypatch.setattr("latewood.queue.reader.retention_held", retention_held_by_two)
    monkeypatch.setattr("latewood.queue.queue.retention_held", retention_held_by_two)
    with pytest.raises(DirectoryReplaced, match=re.escape("retention.lock")):
        act(log)
    assert log.first_sequence == 0
    assert [(info.name, info.sequence) for info in log.readers()] == [("done", 50)]
