"""A checkpoint is of one log: what is made anew under its name is another one.  Without a JVM."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood.errors import AnotherLog, DataLost, UnsupportedVersion
from latewood.format.identity import Mark
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from latewood.queue.cursor import load_cursor
from latewood.runtime import Store
from latewood.spark import stream
from latewood.spark.offsets import ShardId, StoredOffsets, decode_offsets
from latewood.spark.options import parse_options
from latewood.spark.stream import StreamReader
from latewood.spark.survey import surveyed
from latewood.spark.views import _database_readers
from tests.cli.shell import ok
from tests.spark.query import Query, Row

OLD = 10


def fill(path: Path, word: str, count: int) -> list[Row]:
    """Append to a log, which is made if it is not there; return what came in."""
    with latewood.open(path) as log:
        sequences = log.append_many([f"{word} {number}".encode() for number in range(count)], durable=True)
    return [(sequence, f"{word} {number}".encode()) for number, sequence in enumerate(sequences)]


def remake(path: Path, count: int) -> list[Row]:
    """Delete a log, and make it anew."""
    shutil.rmtree(path)
    return fill(path, "new", count)


def in_database(root: Path, name: str, word: str, count: int) -> list[Row]:
    """Append to a database of one shard, which is made if it is not there; return what came in."""
    with Store.open(root) as store:
        if name not in {record.name for _, record in store.databases()}:
            store.create_database(name, keyed=False)
        database, rows = store.database(name), []
        for number in range(count):
            payload = f"{word} {number}".encode()
            rows.append((database.append(payload, durable=True)[1], payload))
    return rows


@pytest.fixture
def log(tmp_path: Path) -> Path:
    fill(tmp_path / "log", "old", OLD)
    return tmp_path / "log"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    in_database(tmp_path / "lake", "clicks", "old", OLD)
    return tmp_path / "lake"


def marked(text: str) -> StoredOffsets:
    return decode_offsets(json.loads(text))


# -- a log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, OLD, OLD + 3])
@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "running"])
def test_a_log_that_was_made_anew_is_refused(log: Path, count: int, *, stops: bool) -> None:
    query = Query(log)
    assert len(query.run()) == OLD
    if stops:
        query.stop()
    new = remake(log, count)
    with pytest.raises(AnotherLog, match="start the query with a new checkpointLocation"):
        query.run()
    assert Query(log).run() == new


@pytest.mark.parametrize("count", [1, 3, OLD, OLD + 3])
@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "running"])
def test_a_query_that_need_not_fail_reads_all_of_the_new_log(
    log: Path, count: int, caplog: pytest.LogCaptureFixture, *, stops: bool
) -> None:
    query = Query(log, failOnDataLoss="false")
    assert len(query.run()) == OLD
    if stops:
        query.stop()
    new = remake(log, count)
    with caplog.at_level(logging.WARNING):
        assert query.run() == new
    assert "the query goes on at the earliest record" in caplog.text
    more = fill(log, "more", 2)
    query.stop(failOnDataLoss="true")
    assert query.run() == more


def test_the_batch_that_a_query_was_stopped_in_is_refused_if_the_log_is_another(log: Path) -> None:
    query = Query(log)
    query.run()
    fill(log, "old", 5)
    query.begin()
    query.stop()
    new = remake(log, OLD + 5)
    with pytest.raises(AnotherLog, match="the log"):
        query.run()
    query.stop(failOnDataLoss="false")
    assert query.run() == new


def test_the_first_batch_is_refused_if_the_log_is_another(log: Path) -> None:
    """Where it begins is asked for again, of the log that is there now; where it ends was stored."""
    query = Query(log)
    query.begin()
    query.stop()
    new = remake(log, OLD + 5)
    with pytest.raises(AnotherLog, match="the batch that this query was stopped in"):
        query.run()
    query.stop(failOnDataLoss="false")
    assert query.run() == new


def test_tasks_that_were_planned_do_not_read_another_log(log: Path) -> None:
    query = Query(log)
    query.begin()
    (partition,) = query.reader.partitions(query.reader.initialOffset(), json.loads(query.offsets[0]))
    remake(log, OLD)
    with pytest.raises(AnotherLog, match="run the query again"):
        list(query.reader.read(partition))


def test_a_log_that_was_renamed_is_the_same_log(log: Path) -> None:
    query = Query(log)
    query.run()
    query.stop(path=str(log.rename(log.with_name("renamed"))))
    more = fill(log.with_name("renamed"), "more", 3)
    assert query.run() == more


# -- a log that lost records -----------------------------------------------------------------------------------------


def lose_the_end(path: Path) -> int:
    """Lose the newest segment, rebuild the log without it, and return where it ends now."""
    newest = max(path.glob("segments/*/*/*/*.q"))
    newest.unlink()
    report = rebuild(PosixFS(), Layout(path), accept_loss=True)
    assert report.written
    with latewood.open(path) as log:
        return log.next_sequence


@pytest.fixture
def shorter(tmp_path: Path) -> tuple[Query, int, list[Row]]:
    """A query that has read a log to its end; where the log went back to; what took the place of what it lost."""
    path = tmp_path / "log"
    for number in range(3):
        with latewood.open(path) as log:
            log.append_many([f"old {number}".encode()] * OLD, durable=True)
            log.roll()
            log.append_many([b"last"] * number)
    query = Query(path)
    query.run()
    query.stop()
    end = lose_the_end(path)
    new = fill(path, "new", OLD)
    assert new[0][0] == end < decode_offsets(json.loads(query.offsets[-1])).sequences[ShardId("", 0)]
    return query, end, new


def test_a_checkpoint_of_records_that_the_log_lost_is_refused(shorter: tuple[Query, int, list[Row]]) -> None:
    query, end, _ = shorter
    with pytest.raises(AnotherLog, match=f"the log went back to {end} since"):
        query.run()


def test_a_query_that_need_not_fail_goes_on_where_the_loss_began(shorter: tuple[Query, int, list[Row]]) -> None:
    query, _, new = shorter
    query.stop(failOnDataLoss="false")
    assert query.run() == new


def test_a_checkpoint_beyond_the_end_of_an_older_copy_is_refused_with_two_ways_on(log: Path) -> None:
    shutil.copytree(log, log.with_name("copy"))
    fill(log, "old", OLD)
    query = Query(log)
    query.run()
    query.stop()
    shutil.rmtree(log)
    log.with_name("copy").rename(log)
    with pytest.raises(AnotherLog) as caught:
        query.run()
    text = str(caught.value)
    assert f"the position is {2 * OLD}, and the log ends at {OLD}" in text
    assert "start the query with a new checkpointLocation" in text
    assert f"go on at sequence {OLD}, where the log that is here ends, set failOnDataLoss to false" in text
    assert "seek" not in text
    query.stop(failOnDataLoss="false")
    assert query.run() == []
    new = fill(log, "new", 3)
    assert new[0][0] == OLD
    assert query.run() == new


def test_a_checkpoint_beyond_the_end_of_an_older_copy_of_a_store_names_the_database(lake: Path) -> None:
    shutil.copytree(lake, lake.with_name("copy"))
    in_database(lake, "clicks", "old", OLD)
    query = Query(lake / "clicks")
    query.run()
    query.stop()
    shutil.rmtree(lake)
    lake.with_name("copy").rename(lake)
    with pytest.raises(AnotherLog, match=r"not of this log \(shard 0 of 'clicks'\): the position is 20, .* ends at 10"):
        query.run()
    query.stop(failOnDataLoss="false")
    assert query.run() == []
    new = in_database(lake, "clicks", "new", 3)
    assert query.run() == new


def test_a_copy_that_was_restored_and_has_grown_is_refused_in_its_new_life(log: Path) -> None:
    shutil.copytree(log, log.with_name("copy"))
    fill(log, "old", 5)
    query = Query(log)
    query.run()
    shutil.rmtree(log)
    log.with_name("copy").rename(log)
    ok("rebuild", "--new-life", "--yes", log)
    new = fill(log, "new", OLD)
    with pytest.raises(AnotherLog, match=f"the log went back to {OLD} since"):
        query.run()
    query.stop(failOnDataLoss="false")
    assert query.run() == new


def test_a_checkpoint_before_the_loss_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fill(path, "old", OLD)
    query = Query(path)
    query.run()
    with latewood.open(path) as log:
        log.roll()
        log.append(b"lost", durable=True)
    assert lose_the_end(path) == OLD
    new = fill(path, "new", 5)
    assert query.run() == new
    assert query.run() == []


@pytest.fixture
def log_with_gap(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    for number in range(3):
        with latewood.open(path) as log:
            log.append(b"%d" % number, durable=True)
            log.roll()
    sorted(path.glob("segments/*/*/*/*.q"))[1].unlink()
    assert rebuild(PosixFS(), Layout(path), accept_loss=True).written
    return path


def test_a_query_that_need_not_fail_reads_what_is_behind_a_gap(log_with_gap: Path) -> None:
    assert Query(log_with_gap, failOnDataLoss="false").run() == [(0, b"0"), (2, b"2")]


def test_a_query_that_meets_a_gap_is_told_how_to_go_on(log_with_gap: Path) -> None:
    with pytest.raises(DataLost, match="records 1 to 1 are gone") as caught:
        Query(log_with_gap).run()
    assert "failOnDataLoss=false" in "".join(caught.value.__notes__)


# -- version 1 ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_version_1_goes_on_and_names_the_log_from_then_on(log: Path) -> None:
    query = Query(log)
    query.offsets, query.done = ['{"0": 4}', '{"0": 7}'], 1
    assert [sequence for sequence, _ in query.repeat()] == [4, 5, 6]
    assert [sequence for sequence, _ in query.run()] == [7, 8, 9]
    assert marked(query.offsets[-1]).mark(next(iter(marked(query.offsets[-1]).sequences))) is not None
    query.stop()
    remake(log, OLD + 3)
    with pytest.raises(AnotherLog):
        query.run()


def test_a_checkpoint_of_version_1_names_the_log_even_if_there_is_nothing_to_read(log: Path) -> None:
    query = Query(log)
    query.offsets, query.done = ['{"0": 10}'], 1
    assert query.run() == []
    assert marked(query.offsets[-1]).marks
    assert not query.begin(), "the same offsets are the same text"


def test_a_checkpoint_of_a_later_program_is_refused(log: Path) -> None:
    query = Query(log)
    query.offsets, query.done = ['{"version": 3, "shards": {"0": {"sequence": 4}}}'], 1
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        query.run()


# -- databases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False], ids=["store", "database"])
def test_a_database_that_was_made_anew_is_refused(lake: Path, *, whole: bool) -> None:
    in_database(lake, "ticks", "old", 2)
    path = lake if whole else lake / "clicks"
    query = Query(path)
    assert len(query.run()) == OLD + 2 * whole
    with Store.open(lake) as store:
        store.drop("clicks")
    if whole:
        assert query.run() == [], "a database that is gone does not stop the others"
        more = in_database(lake, "ticks", "more", 3)
        assert query.run() == more
    new = in_database(lake, "clicks", "new", OLD + 3)
    with pytest.raises(AnotherLog, match="shard 0 of 'clicks'"):
        query.run()
    query.stop(failOnDataLoss="false")
    assert query.run() == new


def test_a_database_that_appears_is_read_from_its_beginning(lake: Path) -> None:
    query = Query(lake)
    assert len(query.run()) == OLD
    new = in_database(lake, "ticks", "new", 3)
    assert query.run() == new
    assert set(marked(query.offsets[-1]).marks.values()) != {None}


# -- named readers --------------------------------------------------------------------------------------------------


def keep_readers(root: Path, remade: Callable[[], object]) -> None:
    """Make a log or a database anew, and bring the positions of readers over."""
    kept = root.with_name("kept")
    shutil.copytree(root / "readers", kept)
    remade()
    shutil.rmtree(root / "readers", ignore_errors=True)
    kept.rename(root / "readers")


@pytest.fixture
def stranger(log: Path) -> Path:
    """A log whose reader `etl` stands in another one."""
    query = Query(log, reader="etl")
    query.run()
    fill(log, "old", 1)
    query.run()
    query.stop()
    keep_readers(log, lambda: remake(log, OLD + 3))
    return log


def test_a_new_query_is_not_a_reader_that_stands_in_another_log(stranger: Path) -> None:
    with pytest.raises(AnotherLog, match="the position of reader 'etl' is not of this log") as caught:
        Query(stranger, reader="etl").run()
    follow_advice(caught.value)
    assert len(Query(stranger, reader="etl").run()) == OLD + 3


@pytest.mark.parametrize(
    ("options", "first"), [({"startingOffsets": "earliest"}, 0), ({"startingOffsets": '{"0": 5}'}, 5)]
)
def test_a_new_query_that_says_where_it_begins_takes_the_reader_over(
    stranger: Path, options: dict[str, str], first: int
) -> None:
    query = Query(stranger, reader="etl", **options)
    assert [sequence for sequence, _ in query.run()] == list(range(first, OLD + 3))
    fill(stranger, "more", 2)
    query.run()
    query.stop()
    assert cursor_of(stranger) == (OLD + 5, mark_of(stranger))


def test_a_new_query_that_need_not_fail_takes_the_reader_over(stranger: Path) -> None:
    query = Query(stranger, reader="etl", failOnDataLoss="false")
    assert len(query.run()) == OLD + 3
    query.stop()
    assert cursor_of(stranger)[1] == mark_of(stranger)


def test_the_reader_of_a_running_query_goes_over_to_the_log_that_is_there(log: Path) -> None:
    query = Query(log, reader="etl", failOnDataLoss="false")
    query.run()
    new = remake(log, 3)
    assert query.run() == new
    query.stop()
    assert cursor_of(log) == (3, mark_of(log))


def test_a_reader_of_a_database_names_the_logs_of_its_shards(lake: Path) -> None:
    query = Query(lake / "clicks", reader="etl")
    query.run()
    query.stop()
    (database,) = (lake / "databases").iterdir()
    cursor = load_cursor(PosixFS(), database / "readers" / "etl" / "00000.meta")
    assert cursor is not None
    assert (cursor.sequence, cursor.mark) == (OLD, mark_of(database / "shards" / "00000"))


def test_a_new_query_is_not_a_reader_that_stands_in_another_database(lake: Path) -> None:
    query = Query(lake / "clicks", reader="etl")
    query.run()
    query.stop()
    with Store.open(lake) as store:
        store.drop("clicks")
    in_database(lake, "clicks", "new", 3)
    old, new = sorted((lake / "databases").iterdir())
    shutil.copytree(old / "readers" / "etl", new / "readers" / "etl")
    with surveyed(parse_options({"path": str(lake / "clicks")})) as survey:
        (shown,) = _database_readers(survey.shards[0])
    name, _, lag, _, problem = shown
    assert (name, lag, problem is None) == ("etl", None, False), "the view `readers` says so"
    with pytest.raises(AnotherLog, match="the position of reader 'etl'") as caught:
        Query(lake / "clicks", reader="etl").run()
    patient = Query(lake / "clicks", reader="etl", failOnDataLoss="false")
    assert len(patient.run()) == 3
    patient.stop()
    follow_advice(caught.value)
    assert len(Query(lake / "clicks", reader="etl").run()) == 3


def follow_advice(error: AnotherLog) -> None:
    """Run the command that an error names."""
    command = re.search(r"`latewood (readers rm [^`]+)`", str(error))
    assert command is not None
    ok(*command[1].split(), "--yes")


def cursor_of(path: Path) -> tuple[int | None, Mark | None]:
    cursor = load_cursor(PosixFS(), path / "readers" / "etl.meta")
    assert cursor is not None
    return cursor.sequence, cursor.mark


def mark_of(path: Path) -> Mark | None:
    with latewood.open(path, mode="r") as log:
        return log.mark


# -- planted bugs ---------------------------------------------------------------------------------------------------


def stopped_in_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fill(path, "old", OLD)
    query = Query(path)
    query.run()
    fill(path, "old", 5)
    query.begin()
    query.stop()
    remake(path, OLD + 5)
    with pytest.raises(AnotherLog):
        query.repeat()


def of_version_1(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fill(path, "old", OLD)
    query = Query(path)
    query.offsets, query.done = ['{"0": 4}', '{"0": 7}'], 1
    assert [sequence for sequence, _ in query.run()] == [4, 5, 6, 7, 8, 9]


def test_the_scenes_of_the_planted_bugs_play_without_them(tmp_path: Path) -> None:
    stopped_in_a_batch(tmp_path / "one")
    of_version_1(tmp_path / "two")


def test_a_plan_that_does_not_compare_logs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncompared(_: StreamReader, __: Any, stored: StoredOffsets, *___: str) -> dict[Any, int]:
        return stored.sequences

    monkeypatch.setattr(StreamReader, "_stands", uncompared)
    monkeypatch.setattr(StreamReader, "_ends", uncompared)
    with pytest.raises(pytest.fail.Exception):
        stopped_in_a_batch(tmp_path)


def test_offsets_of_version_1_that_are_misread_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def misread(stored: Any) -> StoredOffsets:
        return decode_offsets(stored) if "version" in stored else StoredOffsets({}, {})

    monkeypatch.setattr(stream, "decode_offsets", misread)
    with pytest.raises(AssertionError):
        of_version_1(tmp_path)
