"""What `latewood bench` measures: how long records take, one by one, in batches, durable, and read back."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import latewood
from latewood.queue import Queue

_BATCH_RECORDS: Final = 1000
_SCAN_BYTES_MAX: Final = 256 * 1024 * 1024
"""What a scan reads lies in the page cache, and a small machine must hold it."""

Work = Callable[[Queue, bytes], Iterator[int]]
"""Works for ever, and yields how many records each step took."""


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
    """Read what a first step, which nobody counts, has written."""
    count = max(_BATCH_RECORDS, min(500_000, _SCAN_BYTES_MAX // max(len(payload), 1)))
    for _ in range(count // _BATCH_RECORDS):
        log.append_many([payload] * _BATCH_RECORDS)
    yield 0
    while True:
        yield sum(1 for _ in log.scan())
