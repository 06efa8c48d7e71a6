"""What the source reads, option by option: planned and read in this process, without a JVM."""

from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood.errors import DataLost, LatewoodError
from latewood.runtime import Store
from latewood.spark.source import LatewoodSource
from tests.spark.conftest import flush


def tasks(path: Path, **options: Any) -> tuple[Any, list[Any]]:
    """The reader of a query, and its tasks."""
    given = {name.lower(): str(value) for name, value in options.items()} | {"path": str(path)}
    source = LatewoodSource(given)
    reader = source.reader(source.schema())
    return reader, list(reader.partitions())


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    """All that a query reads."""
    reader, planned = tasks(path, **options)
    return [row for task in planned for batch in reader.read(task) for row in batch.to_pylist()]


def sequences(path: Path, **options: Any) -> list[int]:
    return [row["sequence"] for row in rows(path, **options)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"0": 990}'}, range(990, 1000)),
        ({"endingOffsets": '{"0": 10}'}, range(10)),
        ({"startingOffsets": '{"0": 500}', "endingOffsets": '{"0": 510}'}, range(500, 510)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"startingTimestamp": "2001-09-09T01:46:40.995Z"}, range(995, 1000)),
        ({"endingTimestamp": "1000000000005"}, range(5)),
        ({"startingOffsets": '{"0": 2000}', "failOnDataLoss": "false"}, range(0)),
        ({"ranges": '[["", 0, 3, 5], ["", 0, 700, 702]]'}, [3, 4, 700, 701]),
        ({"minPartitions": "5", "columns": "sequence"}, range(1000)),
    ],
)
def test_options_say_which_records(events: Path, options: dict[str, str], expected: range | list[int]) -> None:
    assert sequences(events, **options) == list(expected)


def test_segments_are_cut_into_tasks(events: Path) -> None:
    assert len(tasks(events)[1]) == 1
    assert len(tasks(events, minPartitions=7)[1]) >= 7
    assert len(tasks(events, targetPartitionBytes="1k")[1]) > 20


@pytest.mark.parametrize(
    "columns", [["payload"], ["length", "sequence"], ["shard"], ["timestamp", "ext_id"], ["sequence"], ["key"]]
)
def test_only_the_columns_that_are_asked_for_are_read(lake: Path, columns: list[str]) -> None:
    chosen = rows(lake / "clicks", columns=",".join(columns))
    assert list(chosen[0]) == columns
    assert chosen == [{name: row[name] for name in columns} for row in rows(lake / "clicks")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfset": "1"}, "perhaps you meant startingOffsets; the options are view, columns,"),
        ({"columns": "sequence,value"}, "there is no column 'value'; the columns are shard, sequence, timestamp,"),
        ({"startingOffsets": '{"4": 1}'}, "startingOffsets names shard 4, which is not there"),
        ({"endingOffsets": '{"0": 5000}'}, "endingOffsets of shard 0 is 5000, and its log ends at 1000"),
        ({"asOfGeneration": "1"}, "asOfGeneration is for databases and stores"),
        ({"view": "jobs"}, "view=jobs is for databases and stores"),
    ],
)
def test_a_bad_option_is_one_clear_error(events: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(LatewoodError) as caught:
        rows(events, **options)
    assert message in str(caught.value)


def test_records_that_retention_took_fail_the_query_unless_told(events: Path) -> None:
    with latewood.open(events) as log, log.reader("all") as reader:
        for _ in range(500):
            reader.next()
        reader.commit()
        log.cleanup()
        first = log.first_sequence
    assert 0 < first <= 500
    with pytest.raises(DataLost) as caught:
        rows(events, startingOffsets='{"0": 3}')
    assert (caught.value.start, caught.value.stop) == (3, first)
    assert "failOnDataLoss" in caught.value.__notes__[0]
    assert sequences(events, startingOffsets='{"0": 3}', failOnDataLoss=False) == list(range(first, 1000))
    assert sequences(events) == list(range(first, 1000))


def test_a_generation_is_a_state_of_the_past(lake: Path) -> None:
    with Store.open(lake) as store:
        before = store.generation
        flush(store, "clicks")
        assert store.generation > before
    assert len(rows(lake / "clicks", asOfGeneration=before)) == 400
    assert len(rows(lake / "clicks")) == 600
    with pytest.raises(LatewoodError, match="generation 99 has not come yet"):
        rows(lake / "clicks", asOfGeneration=99)


def test_a_databases_own_directory_is_another_name_for_it(lake: Path) -> None:
    assert len(rows(lake / "databases" / "00000001-clicks")) == 600
    assert len(rows(lake / "databases" / "00000001-clicks" / "shards" / "00000", columns="key")) == 258 - 172


def test_a_log_in_the_way_of_a_database_does_not_hide_it(lake: Path, tmp_path: Path) -> None:
    before = len(rows(lake / "clicks"))
    with latewood.open(tmp_path / "stray") as log:
        log.append(b"stray")
    (tmp_path / "stray").rename(lake / "clicks")
    assert len(rows(lake / "clicks")) == before > 1


def test_a_fork_reads_the_chunks_that_it_shares(lake: Path) -> None:
    with Store.open(lake) as store:
        store.fork("clicks", "copy").append(b"only here", durable=True)
    assert len(rows(lake / "copy")) == 401


def test_a_writer_goes_on_while_a_query_is_planned(events: Path) -> None:
    reader, planned = tasks(events)
    with latewood.open(events) as log:
        log.append_many([b"later"] * 10)
    assert sum(batch.num_rows for task in planned for batch in reader.read(task)) == 1000
