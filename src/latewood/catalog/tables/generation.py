"""`generation_watermarks`: how often each component has committed.

Key, `KEY_SIZE` bytes, big-endian:

| offset | size | field     | type | meaning        |
| -----: | ---: | --------- | ---- | -------------- |
|      0 |    4 | component | u32  | the component  |

Value, version 1: `GenerationRecord`.  Waiters in it are a picture of the moment of a commit, for inspection: nothing
is restored from them.  Format: docs/format/catalog.md
"""

from enum import IntEnum
from typing import Final

from latewood.catalog.tables.record import NumberKey, Record, Table

KEY_SIZE: Final = 4
VERSION: Final = 1


class Component(IntEnum):
    """Who counts generations.  Programs may use numbers of their own from CUSTOM on."""

    CATALOG = 0
    """Goes up by one with every durable commit, by itself."""
    WAL = 1
    JOBS = 2
    CHUNKS = 3
    REPLICA = 4
    JOB_IDS = 16
    """The largest job id reserved so far."""
    DB_IDS = 17
    CHUNK_IDS = 18
    WAITER_IDS = 19
    CUSTOM = 1024


class WaiterSnapshot(Record, frozen=True, kw_only=True):
    """Somebody who waited at the moment of a commit."""

    waiter_id: int
    target_generation: int
    deadline_ms: int | None


class GenerationRecord(Record, frozen=True, kw_only=True):
    """One component's counter."""

    current_generation: int
    last_committed_at_ms: int
    blocked_waiters: tuple[WaiterSnapshot, ...] = ()


GENERATION: Final = Table(
    "generation_watermarks", 10, NumberKey("I"), GenerationRecord, version=VERSION, is_logged=False
)
