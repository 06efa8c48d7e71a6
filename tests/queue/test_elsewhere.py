"""Positions that a program keeps itself come with the mark of their log, and are refused where they do not belong."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import latewood
from latewood import AnotherLog, Mark, Store, UsageError
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.rebuild import begin_life
from tests.log.desk import Desk

KEPT = 7
NEW = 10


def taken() -> tuple[int, Mark]:
    """A position that was taken in a log which was deleted since."""
    with Desk() as other:
        log = other.open()
        log.append_many([b"old"] * KEPT)
        assert log.mark is not None
        return log.next_sequence, log.mark


def test_a_position_of_a_log_that_was_deleted_and_made_anew_skips_nothing_in_silence(desk: Desk) -> None:
    sequence, mark = taken()
    log = desk.open()
    log.append_many([b"new %d" % number for number in range(NEW)])
    with pytest.raises(AnotherLog, match="begin anew in it, from sequence 0") as caught:
        log.check_position(sequence, mark)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own
    with log.reader("r") as reader:
        with pytest.raises(AnotherLog):
            reader.seek(sequence=sequence, mark=mark)
        assert reader.sequence == 0, "the reader has not moved"
        reader.seek(sequence=log.first_sequence)  # What the error says.
        assert len(list(reader)) == NEW


def test_a_position_of_this_log_is_gone_to(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"%d" % number for number in range(NEW)])
    with log.reader("r") as reader:
        reader.seek(sequence=KEPT, mark=log.mark)
        assert [record.payload for record in reader] == [b"7", b"8", b"9"]
    log.check_position(NEW, log.mark)
    log.check_position(NEW, None)


def test_a_position_beyond_the_end_is_of_a_later_state_of_the_log(desk: Desk) -> None:
    log = desk.open()
    log.append(b"x")
    with pytest.raises(AnotherLog, match="the position is 2, and the log ends at 1"):
        log.check_position(2, log.mark)


def test_a_position_beyond_where_a_new_life_began_is_refused_though_the_log_has_grown_past_it(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with latewood.open(path) as log:
        log.append_many([b"x"] * KEPT)
        mark = log.mark
    begin_life(PosixFS(), Layout(path))
    with latewood.open(path) as log:
        log.append_many([b"x"] * NEW)
        log.check_position(KEPT, mark)
        with pytest.raises(AnotherLog, match="the log went back to 7"):
            log.check_position(KEPT + 1, mark)


@pytest.mark.parametrize(("sequence", "mark"), [(-1, None), ("5", None), (0, b"x" * 16), (0, ("a", 1)), (0, "mark")])
def test_what_is_no_position_is_refused(desk: Desk, sequence: Any, mark: Any) -> None:
    log = desk.open()
    with pytest.raises(UsageError):
        log.check_position(sequence, mark)


def test_a_mark_without_a_sequence_is_refused(desk: Desk) -> None:
    log = desk.open()
    log.append(b"x")
    with log.reader("r") as reader, pytest.raises(UsageError, match="give it with sequence"):
        reader.seek(timestamp=0, mark=log.mark)


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1))
def test_a_mark_survives_its_text(identity: bytes, life: int) -> None:
    mark = Mark(identity, life)
    assert Mark.from_text(mark.text) == mark
    assert len(mark.text) == 49


@pytest.mark.parametrize("text", ["", "x", "0" * 49, "0" * 32 + "-" + "0" * 15, "A" * 32 + "-" + "0" * 16, None, 5])
def test_a_text_that_is_no_mark_is_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="is not the text of a mark"):
        Mark.from_text(text)


def test_positions_of_a_database_that_was_dropped_and_made_anew_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "lake") as store:
        old = store.create_database("clicks", shards=2)
        old.append_many([b"old"] * 4)
        marks, positions = old.marks(), {shard.shard: shard.next_sequence for shard in old.stats()}
        old.check_positions(positions, marks)
        store.drop("clicks")
        new = store.create_database("clicks", shards=2)
        new.append_many([b"new"] * 20)
        with pytest.raises(AnotherLog):
            new.check_positions(positions, marks)
        with pytest.raises(UsageError, match="no shard 2"):
            new.check_positions({2: 0}, marks)
