"""What `latewood bench` measures: how long records take, one by one, in batches, durable, and read back."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import latewood
from latewood.format.record import SIZE as HEADER_SIZE
from latewood.fs.disk import scratch_directory
from latewood.limits import MiB
from latewood.log.layout import NANOSECONDS
from latewood.queue import Queue

_BATCH_RECORDS: Final = 1000
_SCAN_RECORDS: Final = 100_000
_WRITTEN_BYTES_MAX: Final = 256 * MiB
"""One row writes about this much at most: it must fit a small disk, and what is scanned the page cache."""

Work = Callable[[Queue, bytes], Iterator[int]]
"""Works for ever, and yields how many records each step dealt with; the first step is not counted."""


class Result(NamedTuple):
    """One row."""

    measurement: str
    records: int
    ns_per_record: float
    records_per_s: int
    payload_mb_per_s: float


def _append_singly(log: Queue, payload: bytes) -> Iterator[int]:
    while True:
        for _ in range(_BATCH_RECORDS):
            log.append(payload)
        yield _BATCH_RECORDS


def _append_batches(log: Queue, payload: bytes) -> Iterator[int]:
    payloads = [payload] * _BATCH_RECORDS
    while True:
        yield len(log.append_many(payloads))


def _append_durably(log: Queue, payload: bytes) -> Iterator[int]:
    while True:
        log.append(payload, durable=True)
        yield 1


def _append_batches_durably(log: Queue, payload: bytes) -> Iterator[int]:
    payloads = [payload] * _BATCH_RECORDS
    while True:
        yield len(log.append_many(payloads, durable=True))


def _scan(log: Queue, payload: bytes) -> Iterator[int]:
    count = max(_BATCH_RECORDS, min(_SCAN_RECORDS, _WRITTEN_BYTES_MAX // max(len(payload), 1)))
    for _ in range(count // _BATCH_RECORDS):
        log.append_many([payload] * _BATCH_RECORDS)
    yield 0
    while True:
        yield sum(1 for _ in log.scan())


MEASUREMENTS: Final[dict[str, Work]] = {
    "append, one by one": _append_singly,
    f"append, batches of {_BATCH_RECORDS:,}": _append_batches,
    "append durably, one by one": _append_durably,
    f"append durably, batches of {_BATCH_RECORDS:,}": _append_batches_durably,
    "scan": _scan,
}


def measure(name: str, directory: Path, payload_bytes: int, seconds: float) -> Result:
    """Measure one row in a new log in `directory`, which is removed."""
    with scratch_directory(directory) as scratch, latewood.open(scratch / "log") as log:
        records, elapsed_ns = _run(MEASUREMENTS[name](log, bytes(payload_bytes)), payload_bytes, seconds)
    rate = records / elapsed_ns * NANOSECONDS
    return Result(name, records, round(elapsed_ns / records, 1), round(rate), round(rate * payload_bytes / 1e6, 1))


def _run(steps: Iterator[int], payload_bytes: int, seconds: float) -> tuple[int, int]:
    """Return how many records were dealt with, and the nanoseconds that took."""
    next(steps)
    records, begun_ns = 0, time.perf_counter_ns()
    while True:
        records += next(steps)
        elapsed_ns = time.perf_counter_ns() - begun_ns
        if elapsed_ns >= seconds * NANOSECONDS or records * (payload_bytes + HEADER_SIZE) >= _WRITTEN_BYTES_MAX:
            return records, elapsed_ns
