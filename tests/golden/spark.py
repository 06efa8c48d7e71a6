"""The golden checkpoints of Spark: how they were written, and what is in them.

The committed ones, in `v1/spark`, are never written again.  In the folder are

    log, lake                a log, and a store whose database `clicks` is read; some of its records are in chunks
    of-log, of-lake          the checkpoint of a stream of each.  Spark was killed within the last batch: its offsets
                             are stored, its completion is not, so whoever starts the query again repeats that batch
    copy                     a log into which a stream and a `txnId` were written
    cut, lake/…/copies       a log and a database in which the commit of a batch was cut short: the intent is there,
                             its records are there in part, the completion is not

    python -m tests.golden.spark freeze DIRECTORY   all of it and expected.json, in a folder that is not there yet
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import latewood
import latewood.spark
from latewood.fs import PosixFS
from latewood.runtime import Store
from latewood.spark.commits import Batch, Committer
from latewood.spark.commits_files import txn_query
from latewood.spark.staging import StagedFile, StagedName, StagingWriter
from latewood.spark.writing_target import Target, find_target
from latewood.testing import FakeClock
from tests.golden.make import EXPECTED, is_of_a_format
from tests.golden.store import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READER: Final = "etl"
QUERY: Final = "5f0c2c0e-0000-4000-8000-000000000001"
TXN: Final = "2026-03-02/orders"
COLUMNS: Final = "shard,sequence,payload"
_LOCKS: Final = ("catalog.mdb-lock", "catalog.mdb.writer")

Row = tuple[int, int, str]
"""Shard, sequence and payload."""


class Cut(Exception):
    """The process ends here."""


# -- what is read ---------------------------------------------------------------------------------------------------


def write_log(path: Path) -> None:
    """Write twelve records, in two segments."""
    with latewood.open(path, segment_bytes_max=512, clock=FakeClock(), background=False) as log:
        log.append_many([b"record %d" % number for number in range(10)], ext_ids=range(10), durable=True)
        log.roll()
        log.append_many([b"record %d" % number for number in range(10, 12)], ext_ids=range(10, 12), durable=True)


def write_lake(root: Path) -> None:
    """Write twenty records: ten in chunks, of which the log has none any more, and ten in the log."""
    with Store.open(root, mode="w", clock=FakeClock(), catalog_options=CATALOG) as store:
        clicks = store.create_database("clicks", shards=2, segment_bytes_max=1024)
        store.create_database("copies", shards=2, keyed=False, segment_bytes_max=1024)
        keys = [b"user-%d" % (number % 5) for number in range(20)]
        clicks.append_many([b"click %d" % number for number in range(10)], keys[:10], durable=True)
        store.run_job("flush", "clicks", seal=True)
        store.run_job("checkpoint", "clicks")
        clicks.append_many([b"click %d" % number for number in range(10, 20)], keys[10:], durable=True)


def read(spark: "SparkSession", path: Path, checkpoint: Path, **options: Any) -> dict[int, list[Row]]:
    """Run a stream until it has read all that is there; return the rows of each batch."""
    batches: dict[int, list[Row]] = {}

    def take(frame: "DataFrame", batch: int) -> None:
        rows = [(row.shard, row.sequence, bytes(row.payload).decode()) for row in frame.collect()]
        batches[batch] = sorted(rows)

    stream = spark.readStream.format("latewood").options(columns=COLUMNS, reader=READER, **options).load(str(path))
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    writer.trigger(availableNow=True).start().awaitTermination()
    return batches


def forget_completion(checkpoint: Path, batch: int) -> None:
    """Leave a checkpoint as it is when Spark is killed within a batch."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()


# -- what is written ------------------------------------------------------------------------------------------------


def staged(target: Target, batch: Batch, partition: int, rows: dict[int, Sequence[str]]) -> StagedFile:
    """Write the file of one task; `rows` are the payloads of each shard."""
    name = StagedName(0, batch.query, batch.number, partition, 0, f"{partition:08x}")
    writer = StagingWriter(PosixFS(), target.staging, name, lambda _: None)
    for shard, payloads in rows.items():
        arrays = [pa.array([text.encode() for text in payloads], pa.binary())]
        writer.add(shard, pa.RecordBatch.from_arrays(arrays, ["payload"]))
    return writer.finish()


def rows_of(batch: int, partition: int, shards: int) -> dict[int, Sequence[str]]:
    """Return what a task of a batch writes."""
    return {
        shard: [f"batch {batch} task {partition} shard {shard} row {row}" for row in range(3)]
        for shard in range(shards)
    }


def commit(path: Path, batch: Batch, *, cut_at: int | None = None) -> None:
    """Write a batch of two tasks; the process ends with the append of so many frames."""
    target = find_target(PosixFS(), str(path))
    appended = 0

    def step(name: str) -> None:
        nonlocal appended
        appended += name == "appended"
        if appended == cut_at:
            raise Cut

    files = [
        staged(target, batch, partition, rows_of(batch.number, partition, len(target.logs))) for partition in (0, 1)
    ]
    committer = Committer(PosixFS(), target, clock=FakeClock(), hook=step)
    committer.commit(batch, files)


def payloads(path: Path) -> list[list[str]]:
    """Return the payloads in each log of a target."""
    found = []
    for log_path in find_target(PosixFS(), str(path)).logs:
        with latewood.open(log_path, mode="r") as log:
            found.append([record.payload.decode() for record in log.scan()])
    return found


def write_cut(path: Path, *, cut_at: int) -> None:
    """Write one batch, and another one whose commit is cut short behind so many frames."""
    commit(path, Batch(QUERY, "stream", 0))
    try:
        commit(path, Batch(QUERY, "stream", 1), cut_at=cut_at)
    except Cut:
        return
    raise AssertionError("the commit was not cut short")


# -- freezing -------------------------------------------------------------------------------------------------------


def write(home: Path, spark: "SparkSession") -> dict[str, Any]:
    """Write everything, and return what is in it."""
    shown: dict[str, Any] = {}
    write_log(home / "log")
    write_lake(home / "lake")
    for name, path, limit in (("log", home / "log", 4), ("lake", home / "lake" / "clicks", 8)):
        checkpoint = home / f"of-{name}"
        batches = read(spark, path, checkpoint, maxOffsetsPerTrigger=limit)
        last = max(batches)
        forget_completion(checkpoint, last)
        offsets = [json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]) for batch in batches]
        shown[name] = {"batches": batches, "offsets": offsets}
    for name in ("copy", "cut"):
        latewood.open(home / name, segment_bytes_max=2048, clock=FakeClock(), background=False).close()
    commit(home / "copy", Batch(QUERY, "stream", 0))
    commit(home / "copy", Batch(txn_query(TXN), "txn", 0))
    write_cut(home / "cut", cut_at=1)
    write_cut(home / "lake" / "copies", cut_at=3)
    shown |= {
        name: payloads(home / path) for name, path in (("copy", "copy"), ("cut", "cut"), ("copies", "lake/copies"))
    }
    return shown


def freeze(directory: Path) -> None:
    """Write the folder of a new version."""
    directory.mkdir(parents=True)  # It is an error if it is there: what is frozen stays.
    spark = latewood.spark.session("latewood-golden", spark_log_level="ERROR")
    with TemporaryDirectory() as scratch:
        home = Path(scratch)
        shown = write(home, spark)
        for path in home.rglob("*"):
            if path.is_file() and is_of_a_format(path) and path.name not in _LOCKS:
                (directory / path.relative_to(home)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, directory / path.relative_to(home))
    (directory / EXPECTED).write_text(json.dumps(shown, indent=1) + "\n")
    spark.stop()


def main(arguments: list[str]) -> None:
    match arguments:
        case ["freeze", directory]:
            freeze(Path(directory))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
