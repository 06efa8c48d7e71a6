"""What we need from a Raft engine, and what the engine needs from a log store: values and two protocols, no more.

The engine decides; it opens no file, sends no byte and reads no clock.  Whoever drives it does, in this order, for
every `Ready` (`driver.py` is the one place where it is written):

1. send `messages` at once;
2. write `snapshot`, then `entries`, then `hard_state` to the store, and sync it if `must_sync`;
3. send `persisted_messages`, and call `on_persisted(number)`;
4. hand `committed` on to the partitions, in order, and call `on_applied` when they have taken them.

Readies are written in the order of their numbers.  Steps 1 and 4 wait for nothing; step 3 waits for this write and
for every one before it, even if this one needs no sync.

Invariant: compacted index <= applied <= commit <= last index, and applied <= persisted.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

NO_NODE: Final = 0
"""No node has this id: the leader while there is none, and the vote that was not given."""


class EntryKind(IntEnum):
    """What an entry is for."""

    NORMAL = 0
    """Ours; one without data is the mark that a new leader puts into the log."""

    CONF_CHANGE = 1
    """A change of membership, by one node."""

    CONF_CHANGE_V2 = 2
    """A change of membership; one without data leaves a joint configuration."""


class Role(IntEnum):
    """What a node is in its term."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


class MessageKind(IntEnum):
    """The kinds of message that a transport treats apart; the others are all alike to it."""

    APPEND = 3
    SNAPSHOT = 7
    HEARTBEAT = 8


class ChangeKind(IntEnum):
    """What a change of membership does with a node."""

    ADD_VOTER = 0
    REMOVE = 1
    ADD_LEARNER = 2


class Entry(NamedTuple):
    """One entry of the parent log."""

    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in an entry
    term: int
    kind: int
    data: bytes


class HardState(NamedTuple):
    """What a node must never forget; a commit alone may be forgotten."""

    term: int = 0
    vote: int = NO_NODE
    commit: int = 0


class ConfState(NamedTuple):
    """Who is a member; `voters_outgoing` is not empty in the middle of a joint change."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False

    @property
    def members(self) -> frozenset[int]:
        """Every node that takes part in any way."""
        return frozenset(self.voters + self.learners + self.voters_outgoing + self.learners_next)

    @property
    def electors(self) -> frozenset[int]:
        """Every node whose vote counts: what a majority is a majority of."""
        return frozenset(self.voters + self.voters_outgoing)


class Snapshot(NamedTuple):
    """The state after `index`.  `data` is small: it names what is streamed beside it."""

    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in an entry
    term: int
    conf: ConfState
    data: bytes


class Message(NamedTuple):
    """One message to a node, in the engine's own encoding."""

    to: int
    kind: int
    data: bytes


class ReadState(NamedTuple):
    """The answer to `read_index`: once `index` is applied, reads for `context` are linearizable."""

    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in an entry
    context: bytes


class Ready(NamedTuple):
    """What is to be done now; see the module for the order."""

    number: int
    role: int
    leader: int
    hard_state: HardState | None
    must_sync: bool
    entries: list[Entry]
    snapshot: Snapshot | None
    messages: list[Message]
    persisted_messages: list[Message]
    committed: list[Entry]
    read_states: list[ReadState]


class Fetch(NamedTuple):
    """Entries that a lagging node needs and that the engine does not hold any more."""

    token: int
    low: int
    high: int
    bytes_max: int


class Progress(NamedTuple):
    """How far one node has come, as its leader knows it."""

    node: int
    match: int
    next: int
    state: str
    recent_active: bool


class Status(NamedTuple):
    """The engine in figures."""

    node: int
    term: int
    vote: int
    commit: int
    applied: int
    persisted: int
    last: int
    first: int
    role: int
    leader: int
    conf: ConfState
    window_first: int
    window_bytes: int
    progress: list[Progress]


class Recovered(NamedTuple):
    """What a log store found when it was opened: all that an engine starts from."""

    hard_state: HardState
    conf: ConfState
    """The members after `conf_index`: the snapshot's, or those of the last change that was stored."""

    conf_index: int
    terms: list[tuple[int, int]]
    """`(index, term)` at the compacted index, then wherever the term changes: enough to know every entry's term."""

    last_index: int
    entries: list[Entry]
    """The end of the log, in memory: at least every entry above `applied`."""

    applied: int
    """Entries up to here need not be handed on again.  At most the commit, and at most `conf_index` if a change of
    membership lies behind that."""

    snapshot: Snapshot | None


class LogStore(Protocol):
    """The parent log on disk.  One thread writes; `read` may be called by another at the same time."""

    def recover(self) -> Recovered:
        """Return what is durable."""
        ...

    def append(self, entries: Sequence[Entry], hard_state: HardState | None = None) -> None:
        """Write entries, in place of whatever lies at their indices and behind, and then the hard state."""
        ...

    def set_hard_state(self, state: HardState) -> None:
        """Write the hard state, behind the entries that it may speak of."""
        ...

    def set_conf(self, index: int, conf: ConfState) -> None:
        """Write who is a member since the entry at `index`."""
        ...

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew behind a snapshot that came from the leader: the log before it is gone."""
        ...

    def sync(self) -> None:
        """Make all that was written durable.  If that fails, the node must stop."""
        ...

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries from `low`, below `high`, at least one and about `bytes_max`; none if they are gone."""
        ...

    def compact(self, snapshot: Snapshot) -> None:
        """Let go of all entries up to the snapshot's index; it is what a node that needs them gets instead."""
        ...


class Engine(Protocol):
    """Raft.  Owned by one thread.  After `Poisoned` it is of no use: start it anew from the store."""

    def tick(self) -> None:
        """Let one unit of time pass."""
        ...

    def tell_commit(self) -> None:
        """As the leader, tell the others how far is committed: they hear of it with the next entries anyway."""
        ...

    def step(self, sender: int, messages: Sequence[bytes]) -> None:
        """Take in messages of one node, whose id the transport vouches for.

        Raises:
            UsageError: one is not from there, not for us, or no message; those before it were taken in.
        """
        ...

    def propose(self, data: Sequence[bytes]) -> int:
        """Append entries, all or none, and return the index of the first; 0 if we do not lead or too much waits."""
        ...

    def propose_change(self, changes: Sequence[tuple[int, int]], context: bytes = b"", *, joint: bool = False) -> int:
        """Propose `(ChangeKind, node)` changes of membership; return the index, 0 if we do not lead or one waits.

        With several changes, or `joint`, the cluster passes through a joint configuration and leaves it by itself.
        """
        ...

    def apply_change(self, entry: Entry) -> ConfState:
        """Make a committed change of membership take effect, and return who is a member now."""
        ...

    def read_index(self, context: bytes) -> None:
        """Ask for a linearizable read; the answer comes as a `ReadState`, or never."""
        ...

    def has_ready(self) -> bool:
        """Say whether there is anything to do."""
        ...

    def ready(self) -> Ready:
        """Take what is to be done."""
        ...

    def on_persisted(self, number: int) -> None:
        """Say that this ready, and all before it, are durable."""
        ...

    def on_applied(self, index: int) -> None:
        """Say that committed entries up to `index` were handed on."""
        ...

    def fetches(self) -> list[Fetch]:
        """Take the requests for old entries; each must be answered."""
        ...

    def on_fetched(self, token: int, entries: Sequence[Entry]) -> None:
        """Answer one; without entries they could not be read."""
        ...

    def wants_snapshot(self) -> int:
        """Return the least index of a snapshot that some node waits for; 0 if none does.

        It must be taken after the last change of membership: a node ignores one that does not know it.
        """
        ...

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Have a snapshot ready for nodes that are too far behind."""
        ...

    def compact(self, index: int) -> None:
        """Forget entries up to `index`: the store has let go of them."""
        ...

    def report_unreachable(self, node: int) -> None:
        """Say that the last messages to a node were lost."""
        ...

    def report_snapshot(self, node: int, *, arrived: bool) -> None:
        """Say how sending a snapshot ended.  Without this the node gets nothing any more."""
        ...

    def transfer_leader(self, node: int) -> None:
        """Ask a node to take over."""
        ...

    def campaign(self) -> None:
        """Stand for election now."""
        ...

    def status(self) -> Status:
        """Return figures."""
        ...
