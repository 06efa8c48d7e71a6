"""What is answered.  Each reply has the `id` of its request; see `wire` for the bytes."""

from typing import Literal

from latewood.replica.requests import WireMessage

Code = Literal[
    "overloaded",
    "unknown",
    "unavailable",
    "expired",
    "too_old",
    "too_large",
    "not_found",
    "data_lost",
    "usage",
    "failed",
]
"""Why a request was refused.  `unknown`: it may have been carried out; the same request again tells, without harm."""


class Appended(WireMessage, frozen=True, tag=64):
    """The records are committed: a majority has them on disk."""

    id: int
    runs: list[tuple[int, int]]
    """Their sequences in order, as runs of neighbours: the first, and how many."""

    @property
    def sequences(self) -> list[int]:
        """All of them."""
        return [sequence for start, count in self.runs for sequence in range(start, start + count)]


class NotLeader(WireMessage, frozen=True, tag=65):
    """Ask the leader; node 0: nobody knows one now.  Nothing was done."""

    id: int
    leader: int
    address: str = ""


class Refused(WireMessage, frozen=True, tag=66):
    """It was not done, or, with the code `unknown`, perhaps it was."""

    id: int
    code: Code
    reason: str
    retryable: bool
    partition: int | None = None
    limit: str = ""
    value: int = 0
    bound: int = 0


class WireRecord(WireMessage, frozen=True):
    """One record on its way to a client."""

    sequence: int
    timestamp_ns: int
    ext_id: int
    """Its global index in the parent log."""
    payload: bytes


class Records(WireMessage, frozen=True, tag=67):
    """Some records; none if there are none."""

    id: int
    records: list[WireRecord]
    first_sequence: int
    """The oldest that the node has."""
    next_sequence: int
    """The number that the next record will get, as far as the node knows."""
    born: int = 0
    """The entry of the Raft log with the partition's first record, which tells one life of it from another; 0: none."""


class NodeProgress(WireMessage, frozen=True):
    """One node, as its leader knows it."""

    node_id: int
    """Who it is."""
    role: Literal["voter", "learner"]
    """Whether it votes."""
    address: str
    """Where it can be reached."""
    match: int = 0
    """It has entries of the Raft log up to here, as the leader knows."""
    is_active: bool = False
    """The leader has heard of it lately; each node says so of itself."""


class StatusReply(WireMessage, frozen=True, tag=68):
    """A node in figures."""

    id: int
    node_id: int
    """Who answers."""
    cluster_id: str
    """What the cluster is called."""
    role: str
    """`leader`, `follower`, `candidate` or `pre_candidate`."""
    leader: int
    """Who leads, as far as this node knows; 0: nobody."""
    leader_address: str
    """Where that is."""
    term: int
    """The term of that."""
    committed: int
    """Entries of the Raft log up to here are committed."""
    routed: int
    """Entries up to here have come to their partitions."""
    durable: int
    """Entries up to here are durable on this node."""
    applied: int
    """Entries up to here are applied in every partition."""
    first_index: int
    """The oldest entry that is kept."""
    last_index: int
    """The newest entry."""
    snapshot_index: int
    """The newest snapshot stands here."""
    partition_count: int
    """How many partitions of users there are."""
    queued_ops: int
    """Records that were taken and are not applied."""
    queued_bytes: int
    """Their payloads."""
    nodes: list[NodeProgress]
    """The members, as this node knows them."""


class PartitionInfo(WireMessage, frozen=True):
    """One partition in figures."""

    partition: int
    """Its number."""
    born: int
    """The entry of the Raft log with its first record: one that was torn down and written anew has another."""
    first_sequence: int
    """The oldest record that may be read."""
    next_sequence: int
    """The number that the next record will get."""
    durable_index: int
    """So many records, counted from 1, are durable on this node."""
    applied_index: int
    """So many are applied."""
    applied_global: int
    """The entry of the Raft log that was applied last."""
    snapshot_index: int
    """So many are in the newest snapshot."""
    queued_ops: int
    """Records that were taken and are not applied."""
    queued_bytes: int
    """Their payloads."""
    master: int
    """The node that is to do what one node does for a partition; 0: none."""
    is_throttled: bool
    """It takes nothing, because it lags."""
    is_frozen: bool
    """It takes nothing, because it is paused: its machine failed again and again."""


class Partitions(WireMessage, frozen=True, tag=69):
    """Partitions in figures."""

    id: int
    partitions: list[PartitionInfo]


class Reached(WireMessage, frozen=True, tag=70):
    """The barrier's target was reached."""

    id: int
    global_index: int


class Members(WireMessage, frozen=True, tag=71):
    """Who is a member now."""

    id: int
    voters: list[int]
    """Those who vote."""
    learners: list[int]
    """Those who only get everything."""


class Done(WireMessage, frozen=True, tag=72):
    """It was done."""

    id: int


class Cursor(WireMessage, frozen=True, tag=73):
    """Where a reader stands; below 0: there is no such reader."""

    id: int
    sequence: int


class AppendedGroup(WireMessage, frozen=True, tag=74):
    """How some requests of a group ended.  Others follow under the same id: none waits for another.

    The `id` of an answer is the place of its request in the group.
    """

    id: int
    answers: list[Appended | NotLeader | Refused]
    places: list[int]
    """Of requests that were carried out and whose records are neighbours: mostly, and there is no more to say."""
    sequences: list[int]
    """The first of each of those."""


class Readers(WireMessage, frozen=True, tag=75):
    """Where the readers of a partition stand, by name."""

    id: int
    readers: list[tuple[str, int]]
    next_sequence: int
    """The number that the next record will get."""


class Found(WireMessage, frozen=True, tag=76):
    """A record's sequence; that of the next to be appended, if there is none."""

    id: int
    sequence: int


class SnapshotChunks(WireMessage, frozen=True, tag=80):
    """Chunks, the first with the number that was asked for."""

    id: int
    chunks: list[bytes]


class PartitionRecords(WireMessage, frozen=True, tag=81):
    """(index, global index, timestamp, payload) of records."""

    id: int
    records: list[tuple[int, int, int, bytes]]
