"""Checkpoint: what is in chunks that verify may leave the log.

The reader `latewood-flush` of each shard's log stands at the first record that no verified chunk has.  This job proves
the chunks behind it, one after the other and without a gap, moves it on, and lets the log retire what every reader has
passed.  Order: docs/crash-safety.md
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from msgspec.structs import replace

from latewood.catalog import CatalogView, Op, RequireRecord
from latewood.catalog.ops import PutWalState
from latewood.catalog.tables import WAL_STATE, Component, WalStateKey, WalStateRecord
from latewood.errors import ConflictError, LeaseLost
from latewood.jobs.handlers.attempt import COMMITS_MAX, Attempt
from latewood.jobs.handlers.chunks import Row, has_file, has_verified_object, live_rows
from latewood.jobs.handlers.proof import local_trouble
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.repair import mending
from latewood.jobs.handlers.site import FLUSH_READER
from latewood.queue import Queue
from latewood.types import ChunkId

STEPS: Final = ("move reader", "clean log", "note checkpoint")


def checkpoint(attempt: Attempt) -> Result:
    """Let verified records leave the logs, and enqueue a repair for chunks that are not what they should be."""
    generation, states, rows = attempt.context.read(lambda view: _snapshot(view, attempt))
    broken: list[ChunkId] = []
    for shard in attempt.shards:
        log, state = attempt.db.log(shard), states.get(shard, WalStateRecord())
        end, bad = _verified_end(attempt, live_rows(rows, shard), log.first_sequence, state.last_applied_sequence)
        broken += bad
        release_log(attempt, log, end)
        if not bad:
            _note(attempt, shard, generation)
        attempt.context.progress(shard + 1, len(attempt.shards))
    return mending(attempt, broken)


def release_log(attempt: Attempt, log: Queue, end: int | None = None) -> None:
    """Let the log go up to `end`, as far as its other readers do; None: as far as it was let go before."""
    known = {reader.name: reader.sequence for reader in log.readers()}.get(FLUSH_READER)
    first = log.first_sequence
    target = max(first, end or 0, known or 0)
    attempt.step("move reader")
    # Committed again even where it stands: a policy that ignores silent readers must never find this one silent.
    with closing(log.reader(FLUSH_READER, start=target)):
        attempt.step("clean log")
        log.cleanup()


def verified_end(
    rows: Sequence[Row], log_first: int, last_applied: int, is_sound: "dict[ChunkId, bool]"
) -> int:
    """Return up to where the live chunks of a shard, in order, have what the log has, whole and without a gap.  Pure."""
    at = max(log_first, rows[0].record.sequence_min) if rows else max(log_first, last_applied)
    for row in rows:
        record = row.record
        if record.sequence_max < at:
            continue
        if record.sequence_min > at or not is_sound[row.chunk_id]:
            break
        at = record.sequence_max + 1
    return min(at, max(last_applied, log_first))


def _verified_end(
    attempt: Attempt, rows: Sequence[Row], log_first: int, last_applied: int
) -> tuple[int, list[ChunkId]]:
    behind = [row for row in rows if row.record.sequence_max >= log_first]
    is_sound = {row.chunk_id: _is_proved(attempt, row) for row in behind}
    bad = [chunk_id for chunk_id, sound in is_sound.items() if not sound]
    return verified_end(rows, log_first, last_applied, {**dict.fromkeys((row.chunk_id for row in rows), True), **is_sound}), bad


def _is_proved(attempt: Attempt, row: Row) -> bool:
    attempt.context.check()
    if has_verified_object(row.record):
        return True
    return has_file(row.record) and local_trouble(attempt, row.record) is None


def _snapshot(view: CatalogView, attempt: Attempt) -> tuple[int, dict[int, WalStateRecord], list[Row]]:
    states = {key.shard: state for key, state in view.wal_states(attempt.db_id)}
    rows = [Row(key.chunk_id, record) for key, record in view.chunks(attempt.db_id)]
    return view.generation(Component.CHUNKS), states, rows


def _note(attempt: Attempt, shard: int, generation: int) -> None:
    """Note in the shard's row up to which generation its chunks are proved."""
    key = WalStateKey(attempt.db_id, shard)
    for _ in range(COMMITS_MAX):
        state = attempt.context.read(lambda view: view.wal_state(*key))
        if state is None or state.last_checkpoint_generation >= generation:
            return
        attempt.step("note checkpoint")
        txn = attempt.context.begin_write()
        changed = replace(state, last_checkpoint_generation=generation, updated_at_ms=attempt.now_ms())
        ops: list[Op] = [RequireRecord(WAL_STATE, key, state), PutWalState(key, changed)]
        txn.extend(ops)
        try:
            attempt.context.commit(txn)
        except LeaseLost:
            raise
        except ConflictError:
            continue
        return
    raise ConflictError(f"the state of shard {shard} keeps changing")
