"""The engine on tikv/raft-rs, through `latewood._native`.

Turns the core's plain tuples into our values.  Decides nothing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latewood.errors import Diverged
from latewood.limits import MiB
from latewood.replica.engine import (
    ConfState,
    Entry,
    Fetch,
    HardState,
    Message,
    Progress,
    ReadState,
    Ready,
    Recovered,
    Snapshot,
    Status,
)
from latewood.replica.native import native

if TYPE_CHECKING:
    from latewood._native import _ConfValue, _RaftCore

_entry: Final = partial(tuple.__new__, Entry)  # half the price of Entry._make, and there are many
_message: Final = partial(tuple.__new__, Message)


_FORGOT: Final = re.compile(r"to_commit (\d+) is out of range \[last_index (\d+)\]")
"""What raft-rs says when it panics because the leader knows more of this node than there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftOptions:
    """How the engine behaves.  Pre-vote and check-quorum are always on."""

    election_ticks: int = 10
    """Without a word of the leader for so long, a node stands for election."""

    heartbeat_ticks: int = 1
    """How often a leader says that it is there."""

    election_ticks_min: int = 0
    """The least of the random election timeout; 0: `election_ticks`."""

    election_ticks_max: int = 0
    """One more than the longest; 0: twice `election_ticks`.  One more than the least makes it fixed, for tests."""

    message_bytes_max: int = 1 * MiB
    """Entries in one message, beyond its first."""

    messages_in_flight_max: int = 256
    """Messages to one node that are not answered yet."""

    uncommitted_bytes_max: int = 64 * MiB
    """Proposals are refused while more than this waits for a quorum."""

    committed_bytes_max: int = 4 * MiB
    """Committed entries that one ready hands out, beyond the first: bounds how long applying keeps the engine."""

    window_bytes_max: int = 32 * MiB
    """Applied entries kept in memory for nodes that lag a little; the rest is fetched from the disk."""

    priority: int = 0
    """A node does not vote for one of lower priority, all else being equal."""


class RaftRsEngine:
    """One node's Raft.  Owned by one thread.  An `Engine`."""

    def __init__(self, node: int, recovered: Recovered, options: RaftOptions | None = None) -> None:
        """Start from what the log store recovered.

        Raises:
            UsageError: the options, or what was recovered, contradict themselves.
            NotFoundError: the native module is not built.
        """
        self.node = node
        core: _RaftCore = native("_RaftCore")(node, options or RaftOptions(), recovered)
        self._core = core

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._core.tick()

    def tell_commit(self) -> None:
        """As the leader, tell the others how far is committed."""
        self._core.tell_commit()

    def step(self, sender: int, messages: Sequence[bytes]) -> None:
        """Take in messages of one node."""
        self._core.step(sender, messages)

    def propose(self, data: Sequence[bytes]) -> int:
        """Append entries, all or none, and return the index of the first; 0 if they were refused."""
        return self._core.propose(data)

    def propose_change(self, changes: Sequence[tuple[int, int]], context: bytes = b"", *, joint: bool = False) -> int:
        """Propose changes of membership and return the index; 0 if they were refused."""
        return self._core.propose_change(changes, context, joint)

    def apply_change(self, entry: Entry) -> ConfState:
        """Make a committed change of membership take effect, and return who is a member now."""
        return _conf(self._core.apply_change(entry.kind, entry.data))

    def read_index(self, context: bytes) -> None:
        """Ask for a linearizable read."""
        self._core.read_index(context)

    def has_ready(self) -> bool:
        """Say whether there is anything to do."""
        return self._core.has_ready()

    def ready(self) -> Ready:
        """Take what is to be done."""
        head, (entries, snapshot), (messages, held), (committed, reads) = self._core.ready()
        number, role, leader, hard_state, must_sync = head
        return Ready(
            number,
            role,
            leader,
            None if hard_state is None else HardState(*hard_state),
            must_sync,
            list(map(_entry, entries)),
            None if snapshot is None else Snapshot(snapshot[0], snapshot[1], _conf(snapshot[2]), snapshot[3]),
            list(map(_message, messages)),
            list(map(_message, held)),
            list(map(_entry, committed)),
            [ReadState(*read) for read in reads],
        )

    def on_persisted(self, number: int) -> None:
        """Say that this ready, and all before it, are durable."""
        self._core.on_persisted(number)

    def on_applied(self, index: int) -> None:
        """Say that committed entries up to `index` were handed on."""
        self._core.on_applied(index)

    def fetches(self) -> list[Fetch]:
        """Take the requests for old entries."""
        found = self._core.fetches()
        return [Fetch(*fetch) for fetch in found] if found else []

    def on_fetched(self, token: int, entries: Sequence[Entry]) -> None:
        """Answer one request."""
        self._core.on_fetched(token, entries)

    def wants_snapshot(self) -> int:
        """Return the least index of a snapshot that some node waits for; 0 if none does."""
        return self._core.wants_snapshot()

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Have a snapshot ready for nodes that are too far behind."""
        self._core.set_snapshot(snapshot)

    def compact(self, index: int) -> None:
        """Forget entries up to `index`."""
        self._core.compact(index)

    def report_unreachable(self, node: int) -> None:
        """Say that the last messages to a node were lost."""
        self._core.report_unreachable(node)

    def report_snapshot(self, node: int, *, arrived: bool) -> None:
        """Say how sending a snapshot ended."""
        self._core.report_snapshot(node, arrived)

    def transfer_leader(self, node: int) -> None:
        """Ask a node to take over."""
        self._core.transfer_leader(node)

    def campaign(self) -> None:
        """Stand for election now."""
        self._core.campaign()

    def status(self) -> Status:
        """Return figures."""
        (counts, place, memory), progress = self._core.status()
        last, first, role, leader, conf = place
        return Status(*counts, last, first, role, leader, _conf(conf), *memory, [Progress(*one) for one in progress])


def forgotten(error: BaseException, path: Path) -> Diverged | None:
    """Return the error that says that this node forgot what it had acknowledged, if that is what broke the engine.

    No crash does that.  `path` is the parent log's.
    """
    found = _FORGOT.search(str(error))
    if found is None:
        return None
    told, last = map(int, found.groups())
    reason = (
        f"the leader knows of this node that it has entry {told}, and its parent log ends with entry {last}: an older "
        f"copy of its files was put back, or its disk has lost what it had synced"
    )
    return Diverged(reason, path, last)


def missing(status: Status, path: Path) -> Diverged | None:
    """Return the error that says that a leader lacks entries that are committed, if another node has such.

    Then the nodes that elected it have forgotten what they had acknowledged.  `path` is the parent log's.
    """
    ahead = max(status.progress, key=lambda one: one.match, default=None)
    if ahead is None or ahead.match <= status.last:
        return None
    reason = (
        f"node {ahead.node} has entries up to {ahead.match} that are committed, and the parent log of this leader ends "
        f"with entry {status.last}: an older copy of a node's files was put back, and what was acknowledged since is "
        f"lost but for node {ahead.node}: keep the files of that"
    )
    return Diverged(reason, path, status.last)


def _conf(value: "_ConfValue") -> ConfState:
    voters, learners, outgoing, following, auto_leave = value
    return ConfState(_nodes(voters), _nodes(learners), _nodes(outgoing), _nodes(following), auto_leave)


def _nodes(nodes: Iterable[Any]) -> tuple[int, ...]:
    return tuple(nodes)
