"""Committing: batches in, one durable LMDB transaction out.

The batches of a group are applied in order within one transaction.  If an operation of one cannot be applied, the
transaction is given up and the group applied anew, each batch in a transaction of its own within it, so that a bad one
takes nothing with it.  A full map grows; a full disk is tried again a few times; what is worse poisons the environment.

Used by the writer thread alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import lmdb

from latewood.catalog.changes import append_changes
from latewood.catalog.env import LMDBEnv
from latewood.catalog.failures import is_fatal, is_no_room, translated
from latewood.catalog.generations import Watermarks
from latewood.catalog.ops import Op
from latewood.catalog.rows import RowReader, RowWriter
from latewood.catalog.tables.generation import GENERATION, Component, GenerationRecord, WaiterSnapshot
from latewood.clock import Clock
from latewood.errors import LatewoodError, Poisoned, UnavailableError
from latewood.limits import CATALOG_RETRIES_MAX

_logger: Final = logging.getLogger(__name__)
_MS: Final = 1_000_000
_NONE: Final[Mapping[int, int]] = MappingProxyType({})
_PAUSE_S: Final = 0.01


class CommitReceipt(NamedTuple):
    """Proof that a batch is durable."""

    generation: int
    """The catalog's generation with this batch in it."""
    generations: Mapping[int, int]
    """Every component that this batch, or one before it in the same commit, raised: its generation after the batch."""


class Batch:
    """Operations that are committed all or none, and what became of them."""

    __slots__ = ("error", "ops", "raised", "receipt")

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.error: BaseException | None = None
        self.raised: Mapping[int, int] = _NONE
        self.receipt: CommitReceipt | None = None


def stored_generations(rows: RowReader) -> dict[int, int]:
    """Return every component's generation as it is stored."""
    return {component: record.current_generation for component, record in rows.scan(GENERATION)}


class _BadBatchError(Exception):
    """An operation could not be applied."""


class Committer:
    """Turns groups of batches into durable transactions."""

    def __init__(
        self,
        env: LMDBEnv,
        clock: Clock,
        watermarks: Watermarks,
        *,
        changes_max: int,
        snapshots: Callable[[int], tuple[WaiterSnapshot, ...]],
        pause: Callable[[float], object],
        check_root: Callable[[], None],
    ) -> None:
        self._env, self._clock, self._watermarks, self._check_root = env, clock, watermarks, check_root
        self._changes_max, self._snapshots, self._pause = changes_max, snapshots, pause
        self._is_certain = True
        """Whether the watermarks are those on the disk."""

    def commit(self, group: Sequence[Batch]) -> None:
        """Make a group durable: each batch then has its receipt, or its error.

        Raises:
            Poisoned: the environment must not be written any more; batches without a receipt are in doubt.
            DirectoryReplaced: so it is, because the catalog's path leads to another file or directory now.
        """
        retries, is_isolated, live = 0, False, group
        while live:
            try:
                self._try(live, is_isolated=is_isolated)
            except _BadBatchError:
                is_isolated = True
            except lmdb.MapFullError as error:
                if not self._grown(live, error):
                    return
            except lmdb.Error as error:
                retries += 1
                if not self._may_retry(live, error, retries):
                    return
            except Exception as error:
                if not self._is_certain:  # It may be durable, and nobody knows.
                    raise
                self._fail_alone(live, error)
                return
            else:
                return
            live = [batch for batch in group if batch.error is None]

    def _try(self, live: Sequence[Batch], *, is_isolated: bool) -> None:
        if not self._is_certain:
            self._look_again()
        if not any(batch.ops for batch in live):
            self._answer(live, self._watermarks[Component.CATALOG])
            return
        txn = self._env.begin()
        try:
            rows = RowWriter(txn, self._env.handles, self._env.path)
            apply = self._apply_alone if is_isolated else self._apply
            for batch in live:
                apply(rows, batch)
            sound = live if not is_isolated else [batch for batch in live if batch.error is None]
            generation = self._watermarks[Component.CATALOG] + 1
            self._finish(rows, generation)
        except BaseException:
            self._env.end(txn)
            raise
        if not sound:
            self._env.end(txn)
            return
        self._is_certain = False
        self._env.commit(txn)
        self._check_root()
        rows.bumped[Component.CATALOG] = generation
        self._watermarks.advance(rows.bumped)
        self._is_certain = True
        self._answer(sound, generation)

    def _look_again(self) -> None:
        """Read the generations anew: an interrupt, or an error, came just when a commit may have succeeded."""
        self._watermarks.advance(self._env.read(stored_generations))
        self._is_certain = True

    @staticmethod
    def _apply(rows: RowWriter, batch: Batch) -> None:
        """Apply one batch.  What a bad one did so far stays in the transaction, which must be given up."""
        try:
            for op in batch.ops:
                op.apply(rows)
        except lmdb.Error:
            raise
        except Exception as error:
            raise _BadBatchError from error
        batch.raised = dict(rows.bumped) if rows.bumped else _NONE

    def _apply_alone(self, rows: RowWriter, batch: Batch) -> None:
        """Apply one batch in a transaction of its own, which a bad one is given up with."""
        child: Any = self._env.begin_within(rows.txn)
        own = RowWriter(child, self._env.handles, self._env.path)
        own.bumped = dict(rows.bumped)
        try:
            for op in batch.ops:
                op.apply(own)
        except lmdb.Error:
            child.abort()
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever sent the batch, and is raised there
            child.abort()
            batch.error = error
            return
        child.commit()
        rows.bumped = own.bumped
        rows.changes += own.changes
        rows.is_logging = own.is_logging
        batch.raised = dict(own.bumped) if own.bumped else _NONE

    def _finish(self, rows: RowWriter, generation: int) -> None:
        append_changes(rows, generation, self._changes_max)
        at_ms = self._clock.now_ns() // _MS
        for component, current in {**rows.bumped, Component.CATALOG: generation}.items():
            record = GenerationRecord(
                current_generation=current,
                last_committed_at_ms=at_ms,
                blocked_waiters=self._snapshots(component),
            )
            rows.put(GENERATION, component, record)

    @staticmethod
    def _answer(sound: Sequence[Batch], generation: int) -> None:
        plain = CommitReceipt(generation, _NONE)
        for batch in sound:
            batch.receipt = CommitReceipt(generation, batch.raised) if batch.raised else plain

    def _grown(self, live: Sequence[Batch], error: lmdb.MapFullError) -> bool:
        """Say whether there is room now; else each batch has been tried alone, and those too large have failed."""
        if self._env.may_grow:
            if self._env.grow(patient=True):
                return True
            problem: LatewoodError = UnavailableError("the catalog must grow, but a reader of this process stays in it")
            problem.__cause__ = error
        else:
            problem = translated(error, self._env.path)
        self._fail_alone(live, problem)
        return False

    def _fail_alone(self, live: Sequence[Batch], error: Exception) -> None:
        """Fail a batch with an error; several are first tried one by one, so that only those fail that have to."""
        if len(live) == 1:
            live[0].error = error
        else:
            for batch in live:
                self.commit([batch])

    def _may_retry(self, live: Sequence[Batch], error: lmdb.Error, retries: int) -> bool:
        """Pause if another try makes sense, else fail the batches; raise if the environment is done for."""
        if is_fatal(error):
            message = f"{self._env.path}: {error}; what was not acknowledged is in doubt: reopen the catalog"
            raise Poisoned(message) from error
        if is_no_room(error) and retries <= CATALOG_RETRIES_MAX:
            _logger.warning("%s: %s; try %d of %d", self._env.path, error, retries, CATALOG_RETRIES_MAX)
            self._pause(_PAUSE_S * 2**retries)
            return True
        if is_no_room(error):  # Of all alike: one by one each of them would be tried as often.
            for batch in live:
                batch.error = translated(error, self._env.path)
        else:
            self._fail_alone(live, translated(error, self._env.path))
        return False
