"""Admission: what a partition, and all of them together, may have in hand.  No clock: time is handed in.

What is in hand stands in a table of the native module, where a request that nothing speaks against is admitted at once;
whatever speaks against one is judged here.

Asked before an entry goes to Raft, because afterwards it cannot be refused any more: a committed entry is applied, late
or not.  The backlog of a partition begins at admission and shrinks when an entry is *applied*, never earlier.  After
the commit a second guard decides whether an entry is queued in memory or read back from the partition's log later.

A refusal is retryable and names the partition and the limit.  An empty backlog always takes one request, however large,
or it could never be done.

Invariants: the stretches of a backlog are neighbours; the sums over all partitions are the whole's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from latewood.errors import Overloaded
from latewood.format.entry import Action, Command
from latewood.limits import MiB
from latewood.replica.native import native

if TYPE_CHECKING:
    from latewood._native import _BacklogTable

_MS: Final = 1_000_000
_UNBOUNDED: Final = 1 << 62
"""Nothing comes near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be in hand.  None: no bound."""

    ops_max: int | None = 4_096
    """Entries that were admitted and are not applied."""

    bytes_max: int | None = 64 * MiB
    """Their payloads."""

    age_max_ms: int | None = 30_000
    """How long the oldest of them may have waited."""

    lag_max: int | None = None
    """Entries that are committed and not applied; beyond, the partition is throttled until it is at half of that."""


WHOLE: Final = Limits(ops_max=65_536, bytes_max=512 * MiB, age_max_ms=None)
"""The default for all partitions together: a stalled one does not stop the others by its age."""


class Load(NamedTuple):
    """What is in hand."""

    ops: int = 0
    bytes: int = 0
    oldest_ns: int | None = None
    lag: int = 0


class Signal(NamedTuple):
    """A caller's own measure; above its bound nothing is admitted."""

    name: str
    value: int
    bound: int


SignalSource = Callable[[int], Iterable[Signal]]
"""Returns the signals of a partition."""


def refusal(
    partition_id: int | None, load: Load, adds: Load, limits: Limits, now_ns: int, signals: Iterable[Signal] = ()
) -> Overloaded | None:
    """Return why `adds` may not come on top of `load`, or None if it may."""
    if load.ops:
        if limits.ops_max is not None and load.ops + adds.ops > limits.ops_max:
            return Overloaded(partition_id, "queued operations", load.ops + adds.ops, limits.ops_max)
        if limits.bytes_max is not None and load.bytes + adds.bytes > limits.bytes_max:
            return Overloaded(partition_id, "queued bytes", load.bytes + adds.bytes, limits.bytes_max)
    if limits.age_max_ms is not None and load.oldest_ns is not None:
        age_ms = (now_ns - load.oldest_ns) // _MS
        if age_ms > limits.age_max_ms:
            return Overloaded(partition_id, "age of the oldest entry in ms", age_ms, limits.age_max_ms)
    if limits.lag_max is not None and load.lag > limits.lag_max:
        return Overloaded(partition_id, "lag", load.lag, limits.lag_max)
    for name, value, bound in signals:
        if value > bound:
            return Overloaded(partition_id, name, value, bound)
    return None


def chunks(sizes: Sequence[int], ops_max: int, bytes_max: int) -> Iterator[range]:
    """Cut a request into ranges of neighbours, each within both bounds or a single entry.

    Each becomes a command, so that no entry is large.
    """
    start, taken = 0, 0
    for at, size in enumerate(sizes):
        if at > start and (at - start >= ops_max or taken + size > bytes_max):
            yield range(start, at)
            start, taken = at, 0
        taken += size
    if start < len(sizes):
        yield range(start, len(sizes))


class Following(NamedTuple):
    """What a new leader goes on from."""

    indices: Mapping[int, int]
    """The next index of each partition, behind the whole log."""

    ending: frozenset[int] = frozenset()
    """Partitions whose teardown is in the log and has not reached them; their index is that of their next life."""


def next_indices(placed: Mapping[int, int], tail: Iterable[Command]) -> Following:
    """Return what a new leader goes on from.

    `placed` is the highest index that each partition has.  `tail` are the commands of the parent log that the
    partitions have not got yet, *uncommitted ones included*: they may still be committed, and two entries must never
    share an index.
    """
    following = {partition_id: index + 1 for partition_id, index in placed.items()}
    ending: set[int] = set()
    for command in tail:
        if command.action == Action.TEAR_DOWN:
            following[command.partition_id] = 1
            ending.add(command.partition_id)
        else:
            known = following.get(command.partition_id, 1)
            following[command.partition_id] = max(known, command.last_index + 1)
    return Following(following, frozenset(ending))


class _Bounds(NamedTuple):
    """Within these a partition's request is not asked anything."""

    ops: int
    bytes: int
    age_ns: int
    whole_ops: int
    whole_bytes: int
    lag: int | None


class Dispatcher:
    """The backlogs of one node.  Owned by one thread.

    They are kept in a native table: every record goes through it.
    """

    def __init__(
        self, limits: Limits | None = None, whole: Limits | None = None, signals: SignalSource | None = None
    ) -> None:
        self._limits, self._whole = limits or Limits(), whole or WHOLE
        self._signals = signals
        age_ms = self._limits.age_max_ms
        looks = self._whole.age_max_ms is not None or signals is not None  # Then there is always something to ask.
        bounds = _Bounds(
            _bound(self._limits.ops_max),
            _bound(self._limits.bytes_max),
            _bound(None if age_ms is None else age_ms * _MS),
            0 if looks else _bound(self._whole.ops_max),
            _bound(self._whole.bytes_max),
            None if self._limits.lag_max is None else _bound(self._limits.lag_max),
        )
        self.table: Final[_BacklogTable] = native("_BacklogTable")(bounds)
        self.record_committed = self.table.record_committed
        """`record_committed(partition_id, first, last, size, now_ns)`: entries are committed, whoever admitted them."""
        self.record_applied = self.table.record_applied
        """`record_applied(partition_id, index)`: a partition has applied everything up to there.

        Only this shrinks its backlog.
        """
        self.record_logged = self.table.record_logged
        """`record_logged(placed)`: what partitions got whose log is their state, in order: it is applied."""
        self.withdraw = self.table.withdraw
        """`withdraw(partition_id, index)`: give indices from there on back; what they are for never reached Raft."""
        self.forget = self.table.forget
        """`forget(partition_id)`: it was torn down; what is in the log behind the teardown keeps its indices."""

    def admit(self, partition_id: int, ops: int, size: int, now_ns: int) -> range:
        """Reserve the next indices of a partition for so many payloads, of together `size` bytes.

        Raises:
            Overloaded: a limit would be passed; nothing was reserved.
        """
        first = self.table.reserve(partition_id, ops, size, now_ns)
        if not first:
            self._check(partition_id, Load(ops, size), now_ns)
            first = self.table.add(partition_id, ops, size, now_ns)
        return range(first, first + ops)

    def end(self, partition_id: int) -> None:
        """Admit nothing for a partition until its teardown, which is being proposed, is committed.

        An entry behind the teardown belongs to the partition's next life, whose indices begin at 1.
        """
        self.table.set_next_life(partition_id, 1)

    def lead(self, following: Following) -> None:
        """Begin a term as leader: the next index of each partition is that of `next_indices`.

        What was admitted in an earlier term and is not in the log is gone.
        """
        for partition_id, committed in self.table.committed():
            self.table.set_next_life(partition_id, None)
            last = committed if partition_id in following.ending else following.indices.get(partition_id, 1) - 1
            self.withdraw(partition_id, max(last, committed) + 1)
        for partition_id, index in following.indices.items():
            if partition_id in following.ending:
                self.table.set_next_life(partition_id, index)
            else:
                self.table.set_next_index(partition_id, index)

    def may_queue(self, queued: Load, adds: Load) -> bool:
        """Say whether committed entries may be held in memory until they are applied.

        If not, the partition's log holds them, and they are read back when their turn comes.
        """
        ops, size = queued.ops + adds.ops, queued.bytes + adds.bytes
        return ops <= _bound(self._limits.ops_max) and size <= _bound(self._limits.bytes_max)

    def freeze(self, partition_id: int, *, frozen: bool) -> None:
        """Refuse everything for a partition, or no more: its worker stalls, or an operator says so."""
        self.table.set_frozen(partition_id, frozen)

    # -- figures ------------------------------------------------------------------------------------------

    def load(self, partition_id: int) -> Load:
        """Return what a partition has in hand."""
        figures = self.table.figures(partition_id)
        return Load(*figures[:4]) if figures else Load()

    def whole(self) -> Load:
        """Return what all partitions have in hand."""
        return Load(*self.table.whole(), self.table.oldest_ns())

    def next_index(self, partition_id: int) -> int:
        """Return the index that the next entry of a partition will have."""
        figures = self.table.figures(partition_id)
        return figures[4] if figures else 1

    def is_throttled(self, partition_id: int) -> bool:
        """Say whether a partition lags too much to be given more."""
        return self.table.flags(partition_id)[0]

    def is_frozen(self, partition_id: int) -> bool:
        """Say whether a partition takes nothing at all."""
        return self.table.flags(partition_id)[1]

    def _check(self, partition_id: int, adds: Load, now_ns: int) -> None:
        whole = Load(*self.table.whole()) if self._whole.age_max_ms is None else self.whole()
        signals = self._signals(partition_id) if self._signals else ()
        load = self.load(partition_id)
        refused = (
            self._flagged(partition_id, load)
            or refusal(partition_id, load, adds, self._limits, now_ns, signals)
            or refusal(None, whole, adds, self._whole, now_ns)
        )
        if refused:
            raise refused

    def _flagged(self, partition_id: int, load: Load) -> Overloaded | None:
        figures, (is_throttled, is_frozen) = self.table.figures(partition_id), self.table.flags(partition_id)
        if figures and figures[5] is not None:
            return Overloaded(partition_id, "teardowns under way", 1, 0)
        if is_frozen:
            return Overloaded(partition_id, "frozen", 1, 0)
        if is_throttled:
            return Overloaded(partition_id, "lag", load.lag, _bound(self._limits.lag_max) // 2)
        return None


def _bound(limit: int | None) -> int:
    """Return a limit as a number that the table can hold."""
    return _UNBOUNDED if limit is None else min(limit, _UNBOUNDED)
