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


class NodeProgress(WireMessage, frozen=True):
    """One node, as its leader knows it."""

    node_id: int
    role: Literal["voter", "learner"]
    address: str
    match: int = 0
    is_active: bool = False


class StatusReply(WireMessage, frozen=True, tag=68):
    """A node in figures."""

    id: int
    node_id: int
    cluster_id: str
    role: str
    leader: int
    leader_address: str
    term: int
    committed: int
    routed: int
    durable: int
    applied: int
    first_index: int
    last_index: int
    snapshot_index: int
    partition_count: int
    queued_ops: int
    queued_bytes: int
    nodes: list[NodeProgress]


class PartitionInfo(WireMessage, frozen=True):
    """One partition in figures."""

    partition: int
    born: int
    first_sequence: int
    next_sequence: int
    durable_index: int
    applied_index: int
    applied_global: int
    snapshot_index: int
    queued_ops: int
    queued_bytes: int
    master: int
    is_throttled: bool
    is_frozen: bool


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
    learners: list[int]


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
