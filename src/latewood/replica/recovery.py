"""Recovery: a node comes back with the partitions that its parent log says it has.  Forward only.

1. The parent log is opened; what it holds is durable then.  Nothing of it is ever rolled back here.
2. The partitions are opened, and what teardowns left is collected.  One that holds records that the parent log and the
   snapshots do not know of (`agreement`) stops the node before anything is changed or served.
3. The newest whole snapshot gives machines their state, and partitions that it is ahead of their beginning.  One whose
   teardown is committed behind it is not brought back for that: nobody has its records any more.
4. Committed entries behind the parent's base are taken to their partitions again: what is there is verified, what is
   missing is appended.  A partition may have more: entries of which the parent log forgot that they are committed,
   which are verified before, and from then on count as committed, and those up to a snapshot whose installation was cut
   short.
5. Machines go on behind their snapshots, from the partitions' logs.

The same parent log gives the same partitions, however often and wherever it is interrupted.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from latewood.clock import Clock
from latewood.closing import Closing
from latewood.errors import Diverged, NotFoundError, UnavailableError
from latewood.fs import FileSystem
from latewood.log import LogOptions
from latewood.replica.acks import AckTracker
from latewood.replica.agreement import Agreement, entries_between
from latewood.replica.answers import AnswerBook
from latewood.replica.apply import Applier
from latewood.replica.births import Births
from latewood.replica.dispatch import Dispatcher, Following, next_indices
from latewood.replica.entry_store import RECENT_BYTES_MAX, SegmentedLogStore
from latewood.replica.machine import MachineFactory, PartitionEntry, runs_of
from latewood.replica.partition import PartitionLogStore
from latewood.replica.roster import Roster, partition_names
from latewood.replica.routing import Committed, Parts, SegmentedStateMachine, commands_of
from latewood.replica.snapshot import PartitionState, SnapshotReader, snapshots
from latewood.replica.watermarks import PartitionProgress, Watermarks

_REPLAY_BYTES: Final = 1 << 20
"""So much of the parent log is replayed at a time."""
_MAKERS: Final = 8
"""Partitions that are opened side by side, where threads may work in the background at all."""

Pull = Callable[[PartitionState, int], list[PartitionEntry]]
"""Returns some entries of a partition, whose log is its state, from an index on; from a later one if they are gone.

Raises `UnavailableError` if nobody who knows can be reached, and `NotFoundError` if one who has routed the partition's
birth has it no more: it was torn down since.
"""


class NodeLayout(NamedTuple):
    """Where the files of a node are."""

    root: Path

    @property
    def parent(self) -> Path:
        """The parent log."""
        return self.root / "parent"

    @property
    def partitions(self) -> Path:
        """The partitions' logs."""
        return self.root / "partitions"

    @property
    def snapshots(self) -> Path:
        """The snapshots."""
        return self.root / "snapshots"

    @property
    def lock(self) -> Path:
        """The lock of the process that runs the node."""
        return self.root / "node.lock"


class NodeSite(NamedTuple):
    """What a node is opened with."""

    layout: NodeLayout
    fs: FileSystem
    clock: Clock
    factory: MachineFactory
    births: Births
    parent_options: LogOptions | None = None
    partition_options: LogOptions | None = None
    background: bool = False
    recent_bytes_max: int = RECENT_BYTES_MAX


class RecoveredNode(NamedTuple):
    """A node's storage, ready for an engine."""

    store: SegmentedLogStore
    machine: SegmentedStateMachine
    applied: int
    """What the engine may take as applied: all of it was routed."""


def recover_node(
    site: NodeSite,
    *,
    pull: Pull | None = None,
    dispatcher: Dispatcher | None = None,
    acks: AckTracker | None = None,
    applier: Applier | None = None,
) -> RecoveredNode:
    """Open a node's storage and bring it forward to what its parent log knows to be committed.

    `pull` is needed only if an installation was cut short that has to fetch records from peers.

    Raises:
        StrayRecord: a partition holds a record that the node did not write.
        StrayLog: a directory of the node holds a log of another partition, node or cluster.
        Diverged: a partition misses what the parent log has forgotten, or holds what that has lost.
        CorruptError: something that was durable is damaged.
        Locked: another process has it.
        UnavailableError: it needs records of peers, and cannot have them now.
    """
    layout, fs, clock = site.layout, site.fs, site.clock
    store = SegmentedLogStore.open(
        layout.parent,
        site.parent_options,
        birth=site.births.parent(),
        fs=fs,
        clock=clock,
        background=site.background,
        recent_bytes_max=site.recent_bytes_max,
    )
    makers = _MAKERS if site.background else 1
    options = site.partition_options
    roster = Roster(layout.partitions, site.births, fs=fs, clock=clock, options=options, makers=makers)
    try:
        _check_base(store, site)
        with ExitStack() as opened:
            readers = [
                opened.enter_context(SnapshotReader.open(fs, layout.snapshots / f"{index}-{term}"))
                for index, term in snapshots(fs, layout.snapshots)
            ]
            agreement = Agreement.of(store, readers)
            _open_roster(site, roster, agreement)
            _remember_commit(store, roster, agreement)
            parts = Parts(
                roster,
                applier or Applier(clock),
                Watermarks(agreement.base_index),
                dispatcher or Dispatcher(),
                acks or AckTracker(store.conf.electors),
                site.factory,
                clock,
            )
            ended = agreement.ended(store.commit_index)
            _begin_partitions(site, parts, agreement.base_index, readers, ended, pull)
        machine = SegmentedStateMachine(parts)
        machine.answers = _answers(site)
        _replay(store, machine, ended)
    except BaseException:
        roster.close()
        store.close()
        raise
    return RecoveredNode(store, machine, store.commit_index)


def following_indices(store: SegmentedLogStore, machine: SegmentedStateMachine) -> Following:
    """Return what a node goes on from that begins to lead, for `Dispatcher.lead`: the whole end of its log counts."""
    placed = {partition.partition_id: partition.next_index - 1 for partition in machine.parts.roster}
    routed = machine.parts.watermarks.routed
    tail = entries_between(store, routed + 1, store.last_index + 1)
    return next_indices(placed, (command for entry in tail for command in commands_of(entry)))


def install_snapshot(node: RecoveredNode, reader: SnapshotReader, pull: Pull) -> None:
    """Bring a node that lags, or is new, to a snapshot that has arrived whole; then it is to be closed and recovered.

    In this order: 1. the snapshot is whole and durable, before this is called; 2. records of partitions whose log is
    their state are fetched, as far as they follow those that are here, and flushed; 3. the parent log begins anew
    behind the snapshot, durably.  Cut before 3 the node is what it was, with partitions that may be ahead; cut after
    it, recovery does what is left.

    Raises:
        Diverged: the snapshot is older than what is committed here, or a partition does not agree with it.
        UnavailableError: peers cannot be reached; nothing of the parent log was changed.
    """
    parts = node.machine.parts
    parts.applier.stop()
    fetch_partitions(parts.roster, reader, pull)
    node.store.install(reader.engine_snapshot())
    node.store.sync()


def fetch_partitions(roster: Roster, reader: SnapshotReader, pull: Pull) -> None:
    """Fetch the records that partitions miss up to a snapshot, where their log is their state: before it is installed.

    Raises:
        Diverged: nobody has them, or a partition does not agree.
    """
    for state in reader.partitions:
        if state.log_is_state:
            _fetch(roster, state, pull, may_replace=False)


def close_node(node: RecoveredNode) -> None:
    """Stop the workers, flush and release everything, whatever some of it raises: else the node would lock itself out.

    Raises:
        LatewoodError: a log could not store its final state; nothing is open any more.
    """
    with Closing() as closing:
        closing(node.machine.parts.applier.stop)
        closing(node.machine.parts.roster.close)
        closing(node.store.close)


# -- the partitions ---------------------------------------------------------------------------------------


def _open_roster(site: NodeSite, roster: Roster, agreement: Agreement) -> None:
    """Open the partitions, and refuse those that hold a record that no entry made."""
    directory = site.layout.partitions
    for partition_id, born in partition_names(site.fs, directory):
        agreement.check_born(site.fs, directory / f"{partition_id}-{born}", partition_id, born)
    roster.open(agreement.is_known)
    for partition in roster:
        agreement.check(partition)


def _remember_commit(store: SegmentedLogStore, roster: Roster, agreement: Agreement) -> None:
    """Know again that entries are committed that partitions hold, which a stop may have the parent log forget.

    Otherwise a leader that lacks them, elected by a node that has lost what it acknowledged, could overwrite them.
    """
    agreement.check_equal(store, store.commit_index + 1, roster)
    proven = agreement.proven_index(roster)
    if proven > store.commit_index:
        store.keep_commit(proven)


def _begin_partitions(
    site: NodeSite,
    parts: Parts,
    base: int,
    readers: list[SnapshotReader],
    ended: dict[int, int],
    pull: Pull | None,
) -> None:
    """Give every partition its machine, with the state of the newest snapshot that it is not behind."""
    for partition_id, index in ended.items():
        parts.roster.tear_down(partition_id, index)
    installed = [reader for reader in readers if reader.index <= base]
    if installed:
        _bring_to_base(parts.roster, installed[-1], ended, pull)
    for partition in parts.roster:
        _begin(site, parts, partition, _usable(readers, partition))


def _answers(site: NodeSite) -> AnswerBook:
    """Return what the newest snapshot says that was answered; entries behind it add to that when they are replayed."""
    found = snapshots(site.fs, site.layout.snapshots)
    if not found:
        return AnswerBook()
    path = site.layout.snapshots / f"{found[-1][0]}-{found[-1][1]}"
    with SnapshotReader.open(site.fs, path) as reader:
        book = AnswerBook(reader.index)
        for state in reader.partitions:
            book.restore(state.partition_id, reader.answers(state), path)
    return book


def _bring_to_base(roster: Roster, reader: SnapshotReader, ended: dict[int, int], pull: Pull | None) -> None:
    """Have the partitions of the snapshot that the parent log begins behind, and no older ones.

    A log that is its partition's state goes on where it ends; any other may begin behind the snapshot.
    """
    born = {state.partition_id: state.born for state in reader.partitions}
    roster.keep_only(born | {one.partition_id: one.born for one in roster if one.born > reader.index})
    for state in reader.partitions:
        known = roster.get(state.partition_id)
        if state.partition_id in ended or (known and known.next_index > state.partition_log_index):
            continue
        if not state.log_is_state or not state.partition_log_index:
            roster.begin_at(state.partition_id, state.born, state.partition_log_index + 1)
        elif pull:
            _fetch(roster, state, pull, may_replace=True)
        else:
            here = known.next_index - 1 if known else 0
            reason = f"partition {state.partition_id} has {here} of {state.partition_log_index} entries"
            raise Diverged(reason, known.path if known else Path("partitions"), here)


def _usable(
    readers: list[SnapshotReader], partition: PartitionLogStore
) -> tuple[SnapshotReader, PartitionState] | None:
    """Return the newest snapshot whose state a partition's log can follow."""
    for reader in reversed(readers):
        for state in reader.partitions:
            if (state.partition_id, state.born) == (partition.partition_id, partition.born):
                follows = partition.first_index <= state.partition_log_index + 1 <= partition.next_index
                if follows or (state.log_is_state and state.partition_log_index < partition.next_index):
                    return reader, state
    return None


def _begin(
    site: NodeSite, parts: Parts, partition: PartitionLogStore, found: tuple[SnapshotReader, PartitionState] | None
) -> None:
    """Put a partition to work behind its snapshot."""
    user = site.factory(partition.partition_id)
    if found and found[1].log_is_state and not user.log_is_state:
        found = None  # It was a log, and has a machine now: that snapshot holds no state, and all is applied anew.
    highest = partition.next_index - 1
    usable = found[1] if found else None
    if not user.log_is_state:
        user.restore(found[0].state(found[1]) if found else ())
    kept = usable.partition_log_index if usable else 0
    applied = highest if user.log_is_state else kept
    if partition.first_index > applied + 1:
        reason = f"entries up to {partition.first_index - 1} are gone, and no snapshot holds them"
        raise Diverged(f"partition {partition.partition_id}: {reason}", partition.path, applied)
    unapplied_bytes = 0

    def unapplied() -> Iterator[PartitionEntry]:
        nonlocal unapplied_bytes
        for entry in partition.read(applied + 1, highest + 1):
            unapplied_bytes += len(entry.payload)
            yield entry

    pending = runs_of(unapplied())
    last = partition.last()
    kept_global = usable.applied_global if usable else 0
    highest_global = last.global_index if last else kept_global
    if last and highest_global < kept_global:
        raise partition.stray(f"came with entry {highest_global}, behind those of entry {kept_global}", last.index)
    progress = PartitionProgress(
        highest_index=highest,
        highest_global=highest_global,
        durable_index=highest,
        durable_global=highest_global,
        flushed_index=highest,
        applied_index=applied,
        applied_global=highest_global if user.log_is_state else kept_global,
        snapshot_index=kept,
        snapshot_global=kept_global,
    )
    parts.watermarks.open(partition.partition_id, progress, pending)
    parts.dispatcher.record_applied(partition.partition_id, applied)
    if pending:
        now_ns = site.clock.now_ns()
        parts.dispatcher.record_committed(partition.partition_id, applied + 1, highest, unapplied_bytes, now_ns)
    parts.applier.open(partition, user, applied)


def _fetch(roster: Roster, state: PartitionState, pull: Pull, *, may_replace: bool) -> None:
    """Fetch what a partition misses up to a snapshot, and make it durable.

    If peers have dropped what follows here, the partition begins anew behind that: only once the parent log begins at
    the snapshot, because until then it may hold entries for the old one.
    """
    known = roster.get(state.partition_id)
    if known and known.born != state.born and not may_replace:
        return
    partition = roster.begin_at(state.partition_id, state.born, 1)
    if partition.next_index <= state.partition_log_index and not _ends_as_elsewhere(partition, state, pull):
        partition = roster.begin_anew(partition)
    while partition.next_index <= state.partition_log_index:
        entries = _pulled(state, partition.next_index, pull)
        first = entries[0].index if entries else state.partition_log_index + 1
        if first > partition.next_index:
            if not may_replace:
                break
            partition = roster.begin_at(state.partition_id, state.born, first)
        partition.place(entries)
    partition.flush()


def _ends_as_elsewhere(partition: PartitionLogStore, state: PartitionState, pull: Pull) -> bool:
    """Say whether the last record of a partition, which no entry of the parent log vouches for, is that of other nodes.

    If they do not have it any more, the answer is yes: nothing speaks against it.
    """
    last = partition.last()
    if last is None:
        return True
    entries = _pulled(state, last.index, pull)
    return not entries or entries[0].index != last.index or entries[0] == last


def _pulled(state: PartitionState, low: int, pull: Pull) -> list[PartitionEntry]:
    """Return some entries from `low` on, up to the snapshot; none if nobody has them any more.

    The partition was torn down since, or retention has dropped all that the snapshot knows.
    """
    try:
        found = pull(state, low)
    except NotFoundError:
        return []
    if not found:
        message = (
            f"nobody has entries of partition {state.partition_id} from {low} on; try again, or begin this node anew"
        )
        raise UnavailableError(message)
    return [one for one in found if one.index <= state.partition_log_index]


# -- the parent log ---------------------------------------------------------------------------------------


def _check_base(store: SegmentedLogStore, site: NodeSite) -> None:
    """Refuse a parent log without the snapshot that it begins behind: partitions may have lost what only that holds.

    Raises:
        Diverged: it is not there.
    """
    name = store.snapshot.data.decode() if store.snapshot else ""  # A founding node begins behind nothing at all.
    if name and not site.fs.exists(site.layout.snapshots / name):
        reason = f"the parent log begins behind entry {store.first_index - 1}, and the snapshot of that is gone"
        raise Diverged(reason, site.layout.snapshots / name, 0)


def _replay(store: SegmentedLogStore, machine: SegmentedStateMachine, ended: dict[int, int]) -> None:
    """Take committed entries to the partitions again; those of partitions that were torn down since are for nobody."""
    low, commit = store.first_index, store.commit_index
    while low <= commit:
        entries = store.read(low, commit + 1, _REPLAY_BYTES)
        machine.route(map(Committed, entries), store.durable_index, ended)
        low = entries[-1].index + 1
