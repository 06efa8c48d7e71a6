"""What is said: the greeting, messages between nodes, and requests.  Kinds are numbered; see `wire` for the bytes."""

from typing import Final, Literal

import msgspec

from latewood.limits import MiB

VERSION: Final = 1
"""Of all messages together.  Later versions may add fields with defaults at an end."""
REQUEST_WINDOW: Final = 1_024
"""A client never has two requests to a partition in flight whose numbers are so far apart: answers that are older than
this are forgotten, and so is what would recognize a repetition."""
GROUP_REQUESTS_MAX: Final = 4_096
"""Requests in one message: each is looked at before anything else happens in a node."""
CLIENT_ID_BYTES: Final = 16
REQUEST_MAX: Final = (1 << 64) - 1
"""The highest number of a request."""
PARTITION_MAX: Final = (1 << 63) - 1
"""The highest partition of a user; those above are the cluster's own."""


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message; each kind has its number."""


# -- greeting ---------------------------------------------------------------------------------------------


class Hello(WireMessage, frozen=True, tag=1):
    """Who connects.  A node must prove its id with its certificate, where there are certificates."""

    version: int
    cluster_id: str
    """Empty from a client that does not know it: then it takes whatever cluster it meets."""
    role: Literal["peer", "client"]
    node_id: int = 0
    """0 of a client."""
    address: str = ""
    """Where a node can be reached."""


class Welcome(WireMessage, frozen=True, tag=2):
    """Who is connected to."""

    version: int
    cluster_id: str
    node_id: int
    leader: int = 0
    leader_address: str = ""


class Rejected(WireMessage, frozen=True, tag=3):
    """Why there will be no conversation.  The connection is closed after it."""

    reason: str
    is_final: bool = False
    """Whoever asks again is told the same."""


# -- between nodes, without answer ------------------------------------------------------------------------


class RaftMessages(WireMessage, frozen=True, tag=16):
    """Messages of the engine, in its own encoding and order."""

    messages: list[bytes]


class SnapshotOffer(WireMessage, frozen=True, tag=17):
    """The engine's message about a snapshot, and its name.  The receiver fetches the chunks, then steps the message."""

    index: int
    term: int
    message: bytes


class SnapshotOutcome(WireMessage, frozen=True, tag=18):
    """How fetching a snapshot that was offered ended."""

    index: int
    arrived: bool


class Acknowledged(WireMessage, frozen=True, tag=19):
    """Everything of every partition up to a global index is applied here, and durable in the parent log."""

    global_index: int


# -- requests ---------------------------------------------------------------------------------------------


class Append(WireMessage, frozen=True, tag=32):
    """Append records to a partition, each exactly once however often this is sent.

    Requests of one client to one partition have numbers 1, 2, 3 …; a repetition has number and payloads of the first.
    """

    id: int
    partition: int
    client_id: bytes
    request_id: int
    payloads: list[bytes]


class Read(WireMessage, frozen=True, tag=33):
    """Records of a partition from a sequence on.

    Linearizable unless `stale`: then any node answers from what it has.
    """

    id: int
    partition: int
    start: int
    records_max: int = 1_024
    bytes_max: int = 1 * MiB
    stale: bool = False
    wait_ms: int = 0
    """With nothing to read, wait so long for something."""


class GetStatus(WireMessage, frozen=True, tag=34):
    """How this node sees itself and the cluster."""

    id: int


class GetPartitions(WireMessage, frozen=True, tag=35):
    """The partitions of this node, in figures."""

    id: int
    partitions: tuple[int, ...] = ()
    """Only these; none: all."""
    of_leader: bool = False
    """As the leader has them: others do not answer."""


class Barrier(WireMessage, frozen=True, tag=36):
    """Wait until this node has applied everything up to a global index; 0: all that was committed when it is asked."""

    id: int
    target: int
    partitions: list[int]
    timeout_ms: int
    client: str = ""


class ChangeMembers(WireMessage, frozen=True, tag=37):
    """Add a node, first as a learner, or remove one."""

    id: int
    change: Literal["add", "add_learner", "remove"]
    node_id: int
    address: str = ""
    timeout_ms: int = 60_000


class TransferLeader(WireMessage, frozen=True, tag=38):
    """Have another node lead."""

    id: int
    node_id: int
    timeout_ms: int = 10_000


class TearDown(WireMessage, frozen=True, tag=39):
    """Remove a partition with its records, on all nodes."""

    id: int
    partition: int


class Resume(WireMessage, frozen=True, tag=40):
    """Let a paused partition of this node try again."""

    id: int
    partition: int


class GetCursor(WireMessage, frozen=True, tag=41):
    """Where a named reader of a partition stands."""

    id: int
    partition: int
    name: str


class SetCursor(WireMessage, frozen=True, tag=42):
    """Have a named reader stand at a sequence, on all nodes; below 0: forget the reader."""

    id: int
    partition: int
    name: str
    sequence: int
    born: int = 0
    """Of the life of the partition that it has read; 0: it has read nothing."""


class AppendGroup(WireMessage, frozen=True, tag=43):
    """Several requests of one client in one message, mostly to as many partitions.

    Each is a request of its own, with its own number, end and answer; they only travel together.  What they have in
    common stands side by side, which costs less than as many messages in one.
    """

    id: int
    client_id: bytes
    partitions: list[int]
    """Of each request."""
    request_ids: list[int]
    """Of each request."""
    counts: list[int]
    """So many of the payloads belong to each request; none: one to each."""
    payloads: list[bytes]
    """Of all requests, one after another."""

    @property
    def is_whole(self) -> bool:
        """Whether each request has what it needs, nothing is left over, and they are not too many."""
        requests = len(self.partitions)
        if requests > GROUP_REQUESTS_MAX or len(self.request_ids) != requests or len(self.counts) not in (0, requests):
            return False
        if not self.counts:
            return len(self.payloads) == requests
        return min(self.counts) >= 0 and sum(self.counts) == len(self.payloads)


class GetReaders(WireMessage, frozen=True, tag=44):
    """Where all named readers of a partition stand."""

    id: int
    partition: int


class FindTime(WireMessage, frozen=True, tag=45):
    """The first record of a partition at or after a time."""

    id: int
    partition: int
    timestamp_ns: int


class Probe(WireMessage, frozen=True, tag=46):
    """Is anybody there?  The transport answers, whatever the node is doing."""

    id: int


class FetchSnapshot(WireMessage, frozen=True, tag=48):
    """Chunks of a snapshot from one on; only a node may ask."""

    id: int
    index: int
    term: int
    start: int


class FetchRecords(WireMessage, frozen=True, tag=49):
    """Records of a partition of a certain birth from an index on, or from a later one; only a node may ask."""

    id: int
    partition: int
    born: int
    start_index: int
