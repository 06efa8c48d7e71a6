"""`wal_state`: how far each shard of a database has come.

Key, `KEY_SIZE` bytes, big-endian:

| offset | size | field | type  | meaning         |
| -----: | ---: | ----- | ----- | --------------- |
|      0 |    8 | db_id | u64   | the database    |
|      8 |    2 | shard | u16   | the shard       |
|     10 |    2 | pad   | zeros | written as 0, 0 |

Value, version 1: `WalStateRecord`.  `flush_gate_state` mirrors the gate for jobs of kind FLUSH, for whoever looks at
one shard; the truth about all gates is table `job_gate`.  Format: docs/format/catalog.md
"""

from typing import Any, Final, NamedTuple

import msgspec

from latewood.catalog.tables.record import Record, Table, TupleKey

KEY_SIZE: Final = 12
VERSION: Final = 1


class WalStateKey(NamedTuple):
    """One shard of one database."""

    db_id: int
    shard: int


class FlushGateState(Record, frozen=True, kw_only=True):
    """Who holds the flush gate of this shard's database."""

    active_job_id: int | None = None
    last_success_at_ms: int | None = None
    errored_since_ms: int | None = None


class WalStateRecord(Record, frozen=True, kw_only=True):
    """What is sealed, applied and checkpointed of one shard."""

    last_sealed_segment: int | None = None
    """None: no segment is sealed yet."""
    last_applied_sequence: int = 0
    """Every record below it is in a chunk: the `lsn` of the shard."""
    last_checkpoint_generation: int = 0
    restart_epoch: int = 0
    flush_gate_state: FlushGateState = FlushGateState()
    updated_at_ms: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of records that neither chunks nor the log have, as their loss was accepted: first sequence, and end."""


def _from_version_0(body: bytes) -> WalStateRecord:
    """Version 0 was a map without gate and time; segment 0 stood for none as well."""
    old: dict[str, Any] = msgspec.msgpack.decode(body)
    return WalStateRecord(
        last_sealed_segment=old["last_sealed_segment"] or None,
        last_applied_sequence=old["last_applied_lsn"],
        last_checkpoint_generation=old["last_checkpoint_generation"],
        restart_epoch=old["restart_epoch"],
    )


WAL_STATE: Final = Table(
    "wal_state",
    3,
    TupleKey(">QHxx", WalStateKey),
    WalStateRecord,
    version=VERSION,
    older={0: _from_version_0},
)
