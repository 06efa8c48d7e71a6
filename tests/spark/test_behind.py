"""A shard whose log ends before its chunks do, as Spark meets it.  Planning and committing need no JVM."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from latewood.archive.names import parse_file_name
from latewood.errors import CatalogBehind, LogBehind
from latewood.fs import PosixFS
from latewood.runtime import Store
from latewood.spark import views
from latewood.spark.commits import Committer
from latewood.spark.options import parse_options
from latewood.spark.pieces import ShardReader
from latewood.spark.ranges import batch_ranges
from latewood.spark.survey import surveyed
from latewood.spark.writing_target import find_target
from tests.spark.conftest import flush


@pytest.fixture
def behind(lake: Path) -> Path:
    """The lake whose second shard of `clicks` has lost its log."""
    with Store.open(lake) as store:
        flush(store, "clicks")
    shutil.rmtree(lake / "databases" / "00000001-clicks" / "shards" / "00001")
    return lake


def planned(lake: Path, **options: str) -> dict[int, list[tuple[int, int]]]:
    chosen = parse_options({"path": str(lake / "clicks"), **options})
    with surveyed(chosen) as survey:
        return {shard.number: list(spans) for shard, spans in batch_ranges(survey, chosen).items()}


def ends(lake: Path) -> list[int]:
    with surveyed(parse_options({"path": str(lake / "clicks")})) as survey:
        return [shard.end() for shard in survey.shards]


def test_a_query_of_all_that_is_there_says_what_is_lost(behind: Path) -> None:
    with pytest.raises(LogBehind, match="00001: the log of this shard is not there"):
        planned(behind)
    with pytest.raises(LogBehind):
        planned(behind, startingOffsets="latest")


def test_what_is_in_chunks_is_read(behind: Path) -> None:
    first, second = ends(behind)
    bounds = json.dumps({"0": first, "1": second})
    assert planned(behind, endingOffsets=bounds) == {0: [(0, first)], 1: [(0, second)]}
    with pytest.raises(LogBehind):
        planned(behind, endingOffsets=json.dumps({"0": first, "1": second + 1}))
    assert planned(behind, failOnDataLoss="false")[1] == [(0, second)]
    with Store.open(behind, mode="r") as store:
        generation = str(store.generation)
    assert planned(behind, asOfGeneration=generation)[1] == [(0, second)]
    with surveyed(parse_options({"path": str(behind / "clicks")})) as survey:
        shard = survey.shards[1]
        with ShardReader(shard.source) as reader:
            batches = list(reader.batches(0, second, shard.chunks, ["sequence"]))
        assert sum(batch.num_rows for batch in batches) == second


def test_where_readers_stand_is_shown_though_a_log_is_gone(behind: Path) -> None:
    first, second = ends(behind)
    with Store.open(behind) as store, store.database("clicks").reader("billing", {0: first, 1: second - 1}) as reader:
        reader.commit()
    options = parse_options({"path": str(behind / "clicks"), "view": "readers"})
    with surveyed(options) as survey:
        rows = [(row["shard"], row["sequence"], row["lag"], row["problem"]) for row in views._readers(survey, options)]
    assert rows == [(0, first, 0, None), (1, second - 1, 1, None)]


def test_a_stream_is_refused(behind: Path) -> None:
    with surveyed(parse_options({"path": str(behind / "clicks")})) as survey, pytest.raises(LogBehind):
        _ = survey.shards[1].log.durable_sequence


def test_a_sink_makes_no_log_where_one_was(behind: Path) -> None:
    target = find_target(PosixFS(), str(behind / "clicks"))
    assert target.covered == tuple(ends(behind))
    committer = Committer(PosixFS(), target)
    with pytest.raises(LogBehind), committer._opened_logs([0, 1]):
        pass
    assert not target.logs[1].exists()
    with committer._opened_logs([0]) as logs:
        assert logs[0].next_sequence == target.covered[0]


def test_a_sink_appends_to_no_older_copy_of_a_log(lake: Path, tmp_path: Path) -> None:
    shards = lake / "databases" / "00000001-clicks" / "shards"
    shutil.copytree(shards, tmp_path / "past")
    with Store.open(lake) as store:
        flush(store, "clicks")
    target = find_target(PosixFS(), str(lake / "clicks"))
    shutil.rmtree(shards)
    shutil.copytree(tmp_path / "past", shards)
    with pytest.raises(LogBehind), Committer(PosixFS(), target)._opened_logs([0, 1]):
        pass


def test_an_older_catalog_and_log_beside_a_newer_chunk_are_met_by_queries_and_sinks(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, past := tmp_path / "past")
    with Store.open(lake) as store:
        flush(store, "clicks")
    chunks = Path("databases", "00000001-clicks", "chunks")
    shutil.rmtree(past / chunks, ignore_errors=True)
    shutil.copytree(lake / chunks, past / chunks)
    shutil.rmtree(lake)
    past.rename(lake)
    names = [name for path in (lake / chunks).iterdir() if (name := parse_file_name(path.name)) is not None]
    for shard in (0, 1):  # The log is older than the chunk.
        name = max(name for name in names if name.shard == shard)
        beyond = name._replace(sequence_min=name.sequence_max + 1, sequence_max=name.sequence_max + 9, token="0" * 32)
        shutil.copyfile(lake / chunks / name.file_name, lake / chunks / beyond.file_name)
    with pytest.raises(LogBehind, match="no row of the catalog names it"):
        planned(lake)
    target = find_target(PosixFS(), str(lake / "clicks"))
    with pytest.raises(LogBehind), Committer(PosixFS(), target)._opened_logs([0, 1]):
        pass


@pytest.fixture
def exchanged(lake: Path) -> Path:
    """The lake whose shards of `clicks` have each other's log; no record of them was ever in a chunk."""
    shards = lake / "databases" / "00000001-clicks" / "shards"
    (shards / "00000").rename(shards / "aside")
    (shards / "00001").rename(shards / "00000")
    (shards / "aside").rename(shards / "00001")
    return lake


def test_a_query_reads_no_log_of_another_shard_as_this_ones(exchanged: Path) -> None:
    with pytest.raises(LogBehind, match=r"00000: the log that is there is [0-9a-f]{32}"):
        planned(exchanged)


def test_a_sink_appends_to_no_log_of_another_shard(exchanged: Path) -> None:
    committer = Committer(PosixFS(), find_target(PosixFS(), str(exchanged / "clicks")))
    with pytest.raises(LogBehind, match="the log that is there is"), committer._opened_logs([0, 1]):
        pass


def test_a_sink_gives_logs_of_an_older_program_the_identities_that_their_database_notes(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "v1" / "store" / "closed"
    lake = Path(shutil.copytree(golden, tmp_path / "v1")) / "lake"
    with Store.open(lake) as store:
        noted = store.database("clicks").record  # Its logs are not opened, and so not upgraded.
    with Committer(PosixFS(), find_target(PosixFS(), str(lake / "clicks")))._opened_logs([0, 1]) as logs:
        found = [log.mark.identity for log in logs.values() if log.mark]
    assert found == [noted.log_identity(0), noted.log_identity(1)]
    with Store.open(lake) as store:
        store.database("clicks").append(b"by the store", b"key", durable=True)


def test_an_older_catalog_beside_newer_logs_and_chunks_is_met_by_queries_and_sinks(lake: Path, tmp_path: Path) -> None:
    with Store.open(lake) as store:
        flush(store, "clicks")
    ends_then = ends(lake)
    shutil.copyfile(lake / "catalog.mdb", tmp_path / "older.mdb")
    with Store.open(lake) as store:
        database = store.database("clicks")
        database.append_many([b"new"] * 50, [b"%d" % number for number in range(50)])
        flush(store, "clicks")
        store.run_job("checkpoint", "clicks")
    target = find_target(PosixFS(), str(lake / "clicks"))
    with Committer(PosixFS(), replace(target, covered=(0, 0)))._opened_logs([0, 1]):
        pass  # Beside a writer the target is older than the catalog, and the catalog is asked again.
    shutil.copyfile(tmp_path / "older.mdb", lake / "catalog.mdb")
    with pytest.raises(CatalogBehind, match="`latewood rebuild --catalog"):
        planned(lake)
    bounds = json.dumps({"0": ends_then[0], "1": ends_then[1]})
    assert planned(lake, endingOffsets=bounds) == {0: [(0, ends_then[0])], 1: [(0, ends_then[1])]}
    target = find_target(PosixFS(), str(lake / "clicks"))
    with pytest.raises(CatalogBehind), Committer(PosixFS(), target)._opened_logs([0, 1]):
        pass
