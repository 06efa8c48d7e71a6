"""Admission: what a partition, and all of them together, may have in hand.  Pure: time is handed in.

Asked before an entry goes to Raft, because afterwards it cannot be refused any more: a committed entry is applied, late
or not.  The backlog of a partition begins at admission and shrinks when an entry is *applied*, never earlier.  After
the commit a second guard decides whether an entry is queued in memory or read back from the partition's log later.

A refusal is retryable and names the partition and the limit.  An empty backlog always takes one request, however large,
or it could never be done.

Invariants: the stretches of a backlog are neighbours; the sums over all partitions are the whole's.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from latewood.errors import Overloaded
from latewood.format.entry import Action, Command
from latewood.limits import MiB
from latewood.replica.machine import Placed

_MS: Final = 1_000_000


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


class _Stretch(NamedTuple):
    """Entries that were admitted together."""

    first: int
    last: int
    bytes: int
    since_ns: int

    def part(self, first: int, last: int) -> "_Stretch":
        """Return some of it, with that share of its bytes."""
        share = self.bytes * (last - first + 1) // (self.last - self.first + 1)
        return _Stretch(first, last, share, self.since_ns)


_stretch: Final = partial(tuple.__new__, _Stretch)  # a third of the price of its own constructor


@dataclass(slots=True)
class _Backlog:
    stretches: deque[_Stretch] = field(default_factory=deque)
    """Neighbours, oldest first."""
    ops: int = 0
    bytes: int = 0
    next_index: int = 1
    next_life: int | None = None
    """The next index once the partition was torn down, if that is under way: until then nothing is admitted."""
    committed: int = 0
    applied: int = 0
    is_throttled: bool = False
    is_frozen: bool = False

    @property
    def load(self) -> Load:
        oldest_ns = self.stretches[0].since_ns if self.stretches else None
        return Load(self.ops, self.bytes, oldest_ns, max(0, self.committed - self.applied))


class Dispatcher:
    """The backlogs of one node.  Owned by one thread."""

    def __init__(
        self, limits: Limits | None = None, whole: Limits | None = None, signals: SignalSource | None = None
    ) -> None:
        self._limits, self._whole = limits or Limits(), whole or WHOLE
        self._signals = signals
        self._partitions: dict[int, _Backlog] = {}
        self._ops = self._bytes = 0
        # Within these nothing has to be asked for all partitions together.
        looks = self._whole.age_max_ms is not None or signals is not None
        self._ops_bound = -1 if looks else _bound(self._whole.ops_max)
        self._bytes_bound = _bound(self._whole.bytes_max)
        self._age_bound_ns = _bound(self._limits.age_max_ms) * _MS

    # -- before Raft --------------------------------------------------------------------------------------

    def admit(self, partition_id: int, ops: int, size: int, now_ns: int) -> range:
        """Reserve the next indices of a partition for so many payloads, of together `size` bytes.

        Raises:
            Overloaded: a limit would be passed; nothing was reserved.
        """
        first = self.reserve(partition_id, ops, size, now_ns)
        if not first:
            backlog = self._partitions.get(partition_id) or _Backlog()
            self._check(partition_id, backlog, Load(ops, size), now_ns)
            self._partitions[partition_id] = backlog
            first = backlog.next_index
            self._add(backlog, _Stretch(first, first + ops - 1, size, now_ns))
        return range(first, first + ops)

    def reserve(self, partition_id: int, ops: int, size: int, now_ns: int) -> int:
        """Do what `admit` does where nothing speaks against it, and return the first index; else 0, and ask `admit`."""
        backlog = self._partitions.get(partition_id)
        if (
            backlog is None
            or self._ops + ops > self._ops_bound
            or self._bytes + size > self._bytes_bound
            or backlog.is_throttled
            or backlog.is_frozen
            or backlog.next_life is not None
        ):
            return 0
        stretches, first = backlog.stretches, backlog.next_index
        if stretches and (
            backlog.ops + ops > _bound(self._limits.ops_max)
            or backlog.bytes + size > _bound(self._limits.bytes_max)
            or now_ns - stretches[0][3] > self._age_bound_ns
        ):
            return 0
        stretches.append(_stretch((first, first + ops - 1, size, now_ns)))
        backlog.next_index = first + ops
        backlog.ops += ops
        backlog.bytes += size
        self._ops += ops
        self._bytes += size
        return first

    def withdraw(self, partition_id: int, index: int) -> None:
        """Give indices from `index` on back: what they were reserved for never reached Raft."""
        backlog = self._partitions.get(partition_id)
        if backlog is None:  # It was torn down meanwhile.
            return
        while backlog.stretches and backlog.stretches[-1].last >= index:
            dropped = backlog.stretches.pop()
            self._drop(backlog, dropped)
            if dropped.first < index:
                self._add(backlog, dropped.part(dropped.first, index - 1))
        backlog.next_index = min(backlog.next_index, max(index, backlog.committed + 1))

    def end(self, partition_id: int) -> None:
        """Admit nothing for a partition until its teardown, which is being proposed, is committed.

        An entry behind the teardown belongs to the partition's next life, whose indices begin at 1.
        """
        self._partitions.setdefault(partition_id, _Backlog()).next_life = 1

    def lead(self, following: Following) -> None:
        """Begin a term as leader: the next index of each partition is that of `next_indices`.

        What was admitted in an earlier term and is not in the log is gone.
        """
        for partition_id, backlog in self._partitions.items():
            backlog.next_life = None
            last = backlog.committed if partition_id in following.ending else following.indices.get(partition_id, 1) - 1
            self.withdraw(partition_id, max(last, backlog.committed) + 1)
        for partition_id, index in following.indices.items():
            backlog = self._partitions.setdefault(partition_id, _Backlog())
            if partition_id in following.ending:
                backlog.next_life = index
            else:
                backlog.next_index = index

    # -- after the commit ---------------------------------------------------------------------------------

    def record_committed(self, partition_id: int, first: int, last: int, size: int, now_ns: int) -> None:
        """Note entries that were committed, of together `size` bytes, whoever admitted them."""
        backlog = self._partitions.get(partition_id) or self._partitions.setdefault(partition_id, _Backlog())
        known = backlog.stretches[-1].last if backlog.stretches else max(backlog.applied, backlog.next_index - 1)
        if last > known:
            self._add(backlog, _Stretch(max(first, known + 1), last, size, now_ns))
        backlog.committed = max(backlog.committed, last)
        self._judge(backlog)

    def record_applied(self, partition_id: int, index: int) -> None:
        """Note that a partition has applied everything up to `index`: only this shrinks its backlog."""
        backlog = self._partitions.get(partition_id) or self._partitions.setdefault(partition_id, _Backlog())
        stretches = backlog.stretches
        if stretches and stretches[0].last == index:  # Mostly: what was admitted together is applied together.
            self._drop(backlog, stretches.popleft())
        while stretches and stretches[0].first <= index:
            dropped = stretches.popleft()
            self._drop(backlog, dropped)
            if dropped.last > index:
                rest = dropped.part(index + 1, dropped.last)
                stretches.appendleft(rest)
                self._count(backlog, rest)
        backlog.applied = max(backlog.applied, index)
        backlog.committed = max(backlog.committed, index)
        if index >= backlog.next_index:
            backlog.next_index = index + 1
        self._judge(backlog)

    def record_logged(self, placed: Iterable[Placed]) -> None:
        """Note what partitions got whose log is their state, in order: it is committed, and applied."""
        partitions = self._partitions
        for partition_id, first, last, _ in placed:
            backlog = partitions.get(partition_id)
            if backlog is None or last < backlog.committed:
                self.record_applied(partition_id, last)
                continue
            if backlog.stretches:
                admitted_first, admitted_last, size, _ = backlog.stretches[0]
                if admitted_first != first or admitted_last != last:
                    self.record_applied(partition_id, last)
                    continue
                backlog.stretches.popleft()  # Mostly: what was admitted together comes together.
                ops = last - first + 1
                backlog.ops -= ops
                backlog.bytes -= size
                self._ops -= ops
                self._bytes -= size
            backlog.applied = backlog.committed = last
            backlog.is_throttled = False
            if last >= backlog.next_index:
                backlog.next_index = last + 1

    def may_queue(self, queued: Load, adds: Load) -> bool:
        """Say whether committed entries may be held in memory until they are applied.

        If not, the partition's log holds them, and they are read back when their turn comes.
        """
        ops, size = queued.ops + adds.ops, queued.bytes + adds.bytes
        return ops <= _bound(self._limits.ops_max) and size <= _bound(self._limits.bytes_max)

    def freeze(self, partition_id: int, *, frozen: bool) -> None:
        """Refuse everything for a partition, or no more: its worker stalls, or an operator says so."""
        self._partitions.setdefault(partition_id, _Backlog()).is_frozen = frozen

    def forget(self, partition_id: int) -> None:
        """Forget a partition that was torn down; what is in the log behind the teardown keeps its indices."""
        backlog = self._partitions.pop(partition_id, None)
        if backlog:
            self._ops, self._bytes = self._ops - backlog.ops, self._bytes - backlog.bytes
        if backlog and backlog.next_life is not None:
            self._partitions[partition_id] = _Backlog(next_index=backlog.next_life)

    # -- figures ------------------------------------------------------------------------------------------

    def load(self, partition_id: int) -> Load:
        """Return what a partition has in hand."""
        backlog = self._partitions.get(partition_id)
        return backlog.load if backlog else Load()

    def whole(self) -> Load:
        """Return what all partitions have in hand."""
        oldest = (backlog.stretches[0].since_ns for backlog in self._partitions.values() if backlog.stretches)
        return Load(self._ops, self._bytes, min(oldest, default=None))

    def next_index(self, partition_id: int) -> int:
        """Return the index that the next entry of a partition will have."""
        return self._partitions[partition_id].next_index if partition_id in self._partitions else 1

    def is_throttled(self, partition_id: int) -> bool:
        """Say whether a partition lags too much to be given more."""
        return partition_id in self._partitions and self._partitions[partition_id].is_throttled

    def is_frozen(self, partition_id: int) -> bool:
        """Say whether a partition takes nothing at all."""
        return partition_id in self._partitions and self._partitions[partition_id].is_frozen

    def _check(self, partition_id: int, backlog: _Backlog, adds: Load, now_ns: int) -> None:
        whole = Load(self._ops, self._bytes) if self._whole.age_max_ms is None else self.whole()
        signals = self._signals(partition_id) if self._signals else ()
        refused = (
            self._flagged(partition_id, backlog)
            or refusal(partition_id, backlog.load, adds, self._limits, now_ns, signals)
            or refusal(None, whole, adds, self._whole, now_ns)
        )
        if refused:
            raise refused

    def _flagged(self, partition_id: int, backlog: _Backlog) -> Overloaded | None:
        if backlog.next_life is not None:
            return Overloaded(partition_id, "teardowns under way", 1, 0)
        if backlog.is_frozen:
            return Overloaded(partition_id, "frozen", 1, 0)
        if backlog.is_throttled:
            return Overloaded(partition_id, "lag", backlog.load.lag, _bound(self._limits.lag_max) // 2)
        return None

    def _judge(self, backlog: _Backlog) -> None:
        """Throttle a partition that lags too much, until it is at half of that."""
        if self._limits.lag_max is not None:
            bound = self._limits.lag_max // 2 if backlog.is_throttled else self._limits.lag_max
            backlog.is_throttled = backlog.committed - backlog.applied > bound

    def _add(self, backlog: _Backlog, stretch: _Stretch) -> None:
        backlog.stretches.append(stretch)
        backlog.next_index = max(backlog.next_index, stretch.last + 1)
        self._count(backlog, stretch)

    def _count(self, backlog: _Backlog, stretch: _Stretch) -> None:
        ops, size = stretch.last - stretch.first + 1, stretch.bytes
        backlog.ops, backlog.bytes = backlog.ops + ops, backlog.bytes + size
        self._ops, self._bytes = self._ops + ops, self._bytes + size

    def _drop(self, backlog: _Backlog, stretch: _Stretch) -> None:
        ops, size = stretch.last - stretch.first + 1, stretch.bytes
        backlog.ops, backlog.bytes = backlog.ops - ops, backlog.bytes - size
        self._ops, self._bytes = self._ops - ops, self._bytes - size


def _bound(limit: int | None) -> int:
    return (1 << 62) if limit is None else limit
