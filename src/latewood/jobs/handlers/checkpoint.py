"""Checkpoint: what is in chunks that verify may leave the log.

The reader `latewood-flush` of each shard's log stands at the first record that no verified chunk has.  This job proves
the chunks behind it, one after the other and without a gap, moves it on, and lets the log retire what every reader has
passed.  Order: docs/crash-safety.md
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from msgspec.structs import replace

from latewood.catalog import CatalogView, Op, RequireRecord
from latewood.catalog.ops import PutWalState
from latewood.catalog.tables import WAL_STATE, ChunkRecord, Component, WalStateKey, WalStateRecord
from latewood.errors import ConflictError, JobFailed, LeaseLost, Locked
from latewood.jobs.handlers.attempt import COMMITS_MAX, Attempt
from latewood.jobs.handlers.chunks import Row, has_file, has_verified_object, live_rows
from latewood.jobs.handlers.mending import mending
from latewood.jobs.handlers.proof import Looked, look_of, looked_at_all
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.site import FLUSH_READER
from latewood.queue import Queue
from latewood.tasks.proof import ChunkLook
from latewood.types import ChunkId

STEPS: Final = ("move reader", "clean log", "note checkpoint")
_TRIES_MAX: Final = 50
_PAUSE_MS: Final = 20
"""The reader is held for milliseconds; a second means that somebody else uses its name."""


def checkpoint(attempt: Attempt) -> Result:
    """Let verified records leave the logs, and enqueue a repair for chunks that are not what they should be."""
    generation, states, rows = attempt.context.read(lambda view: _snapshot(view, attempt))
    firsts = {shard: attempt.db.log(shard).first_sequence for shard in attempt.shards}
    broken: list[ChunkId] = []
    for shard in attempt.shards:
        log, last_applied = attempt.db.log(shard), states.get(shard, WalStateRecord()).last_applied_sequence
        own = live_rows(rows, shard)
        with closing(_Proofs(attempt, [row for row in own if row.record.sequence_max >= firsts[shard]])) as proofs:
            end = verified_end(own, firsts[shard], last_applied, proofs.is_sound)
        broken += proofs.broken
        release_log(attempt, log, end)
        if end >= last_applied:
            _note(attempt, shard, generation)
        attempt.context.progress(shard + 1, len(attempt.shards))
    return mending(attempt, broken)


class _Proofs:
    """Looks at the chunks of a shard, in order and some ahead of whoever asks, as far as the engine likes."""

    def __init__(self, attempt: Attempt, rows: Sequence[Row]) -> None:
        self._looked = looked_at_all(attempt, [row.chunk_id for row in rows], partial(_look_of, attempt))
        self._known: dict[ChunkId, Looked] = {}
        self.broken: list[ChunkId] = []
        """Those that were asked about and are not what they should be."""

    def is_sound(self, row: Row) -> bool:
        """Say whether a chunk is proved; not if it is not live any more."""
        while row.chunk_id not in self._known:
            looked = next(self._looked, None)
            if looked is None:
                return False
            self._known[looked.chunk_id] = looked
        is_proved = _is_proved(self._known[row.chunk_id])
        if not is_proved:
            self.broken.append(row.chunk_id)
        return is_proved

    def close(self) -> None:
        """Call off what nobody will ask about."""
        self._looked.close()


def release_log(attempt: Attempt, log: Queue, end: int | None = None) -> None:
    """Let the log go up to `end`, as far as its other readers do; None: as far as it was let go before."""
    attempt.step("move reader")
    for _ in range(_TRIES_MAX):
        try:
            _move_reader(log, end or 0)
        except Locked:  # Another job lets go of the same log at this moment.
            attempt.context.wait(_PAUSE_MS)
        else:
            break
    else:
        _move_reader(log, end or 0)
    attempt.step("clean log")
    log.cleanup()


def _move_reader(log: Queue, end: int) -> None:
    known = {reader.name: reader.sequence for reader in log.readers()}.get(FLUSH_READER, 0)
    # Committed again even where it stands: a policy that ignores silent readers must never find this one silent.
    log.reader(FLUSH_READER, start=max(log.first_sequence, end, known)).close()


def verified_end(rows: Sequence[Row], log_first: int, last_applied: int, is_sound: Callable[[Row], bool]) -> int:
    """Return up to where a shard's live chunks, in order, have what its log has, sound and without a gap.

    Chunks that lie before the log are not asked about, nor those behind the first that is not sound.
    """
    at = max(log_first, rows[0].record.sequence_min if rows else last_applied)
    for row in rows:
        record = row.record
        if record.sequence_max < at:
            continue
        if record.sequence_min > at or not is_sound(row):
            break
        at = record.sequence_max + 1
    return min(at, max(last_applied, log_first))


def _look_of(attempt: Attempt, chunk_id: ChunkId, record: ChunkRecord) -> ChunkLook:
    """Return a look at a chunk's file; one whose object was read back needs none."""
    look = look_of(attempt, chunk_id, record)._replace(key=None)
    return look._replace(file=None, size_bytes=0) if has_verified_object(record) else look


def _is_proved(looked: Looked) -> bool:
    if has_verified_object(looked.record):
        return True
    if looked.seen.unreadable is not None:
        raise JobFailed(f"{looked.record.file_name} cannot be read: {looked.seen.unreadable}")
    return has_file(looked.record) and looked.seen.local is None


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
