"""A query that writes batches into a log or database, without Spark: staged by hand, committed, looked at."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from latewood import LogOptions
from latewood.fs import FileSystem
from latewood.queue import open_queue
from latewood.spark.commits import Batch, Committer
from latewood.spark.staging import Hook, StagedFile, StagedName, StagingWriter
from latewood.spark.writing_target import Target
from latewood.testing import FakeClock

Row = tuple[int, bytes]
"""A shard, and a payload."""

ROLLING: Final = LogOptions(segment_bytes_max=512)
"""So small that a few records roll."""

QUERY: Final = "5f0c2c0e-0000-4000-8000-000000000001"
_tokens = count()


def no_hook(step: str) -> None:
    del step


def make_target(fs: FileSystem, shards: int = 2, root: Path = Path("/q"), options: LogOptions = ROLLING) -> Target:
    logs = tuple(root / "shards" / f"{shard:05}" for shard in range(shards))
    for path in logs:
        open_queue(path, options, fs=fs, clock=FakeClock(), background=False).close()
    return Target(root=root, logs=logs, options=options)


def stage_file(
    fs: FileSystem,
    target: Target,
    batch: Batch,
    partition: int,
    rows: Sequence[Row],
    *,
    hook: Hook = no_hook,
    made_ms: int = 0,
    **columns: Any,
) -> StagedFile:
    """Write one task's file, a frame for each run of rows of one shard."""
    token = f"{next(_tokens):08x}"
    name = StagedName(made_ms, batch.query, batch.number, partition, 0, token)
    writer = StagingWriter(fs, target.staging, name, hook)
    for shard in sorted({shard for shard, _ in rows}):
        chosen = [index for index, row in enumerate(rows) if row[0] == shard]
        arrays = {"payload": pa.array([rows[index][1] for index in chosen], pa.binary())}
        for column, values in columns.items():
            kind = pa.int64() if column == "timestamp" else pa.uint64()
            arrays[column] = pa.array([values[index] for index in chosen], kind)
        writer.add(shard, pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))
    return writer.finish()


def rows_of(word: str, each: int = 6, shards: int = 2) -> list[list[Row]]:
    """Rows of two tasks, `each` for every shard; `word` begins every payload."""
    return [
        [
            (shard, f"{word}-p{partition}-s{shard}-{number}".encode())
            for number in range(each)
            for shard in range(shards)
        ]
        for partition in range(2)
    ]


def stage(fs: FileSystem, target: Target, batch: Batch, tasks: Sequence[Sequence[Row]]) -> list[StagedFile]:
    return [stage_file(fs, target, batch, partition, rows) for partition, rows in enumerate(tasks)]


def expected(tasks: Sequence[Sequence[Row]], shard: int) -> list[bytes]:
    return [payload for rows in tasks for at, payload in rows if at == shard]


def committer(fs: FileSystem, target: Target, **options: Any) -> Committer:
    options.setdefault("clock", FakeClock())
    return Committer(fs, target, sleep=lambda _: None, lock_timeout_ms=50, **options)


def logged(fs: FileSystem, target: Target) -> list[list[bytes]]:
    """Every shard's payloads."""
    found = []
    for path in target.logs:
        with open_queue(path, fs=fs, mode="r") as log:
            found.append([record.payload for record in log.scan()])
    return found
