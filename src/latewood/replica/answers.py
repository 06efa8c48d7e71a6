"""Answers: which requests of which clients a partition has carried out; a repetition is answered, not done again.

Part of a partition's state: folded from its commands in their order, the same on every node, and kept in snapshots.  A
command names its client and the number of the request.  Requests of a client to a partition are numbered; the last
`REQUEST_WINDOW` are remembered, and what is older is refused, never done twice.

A leader asks only when all of its log is folded here, so a request is never in the log twice.  Of a request whose end
was lost with its leader the beginning is known: a repetition appends what is missing.

Clients are bounded too.  One that has been silent for `CLIENT_SILENT_NS`, by the times of the entries, is forgotten: a
client gives up well before that.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from latewood.format.entry import Command
from latewood.limits import LATE_MAX
from latewood.replica.requests import CLIENT_ID_BYTES, REQUEST_WINDOW

CLIENTS_MAX: Final = 1_024
"""Of one partition."""

CLIENT_SILENT_NS: Final = 15 * 60 * 1_000_000_000
"""After so long nobody waits for an answer any more; three times the longest patience of our client."""


_Note: TypeAlias = tuple[bytes, int, int, int]
"""The name of a request, the index of its first record, their number, and when."""

_NAME: Final = struct.Struct(f"<{CLIENT_ID_BYTES}sQ")


def request_name(client_id: bytes, request_id: int) -> bytes:
    """Return what a command says of the request that it is a part of."""
    return _NAME.pack(client_id, request_id)


@dataclass(slots=True)
class _Client:
    highest: int = 0
    last_ns: int = 0
    runs: dict[int, tuple[range, ...]] = field(default_factory=dict)
    """For each request the partition indices of its records, in order."""


class _StoredClient(msgspec.Struct, frozen=True, array_like=True):
    client_id: bytes
    highest: int
    last_ns: int
    runs: list[tuple[int, list[tuple[int, int]]]]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[list[_StoredClient]]] = msgspec.msgpack.Decoder(list[_StoredClient])


class Answers:
    """The answers of one partition.  Its owner guards it."""

    def __init__(self) -> None:
        self._clients: dict[bytes, _Client] = {}
        """The one that was silent longest first."""

    def __len__(self) -> int:
        return len(self._clients)

    def note(self, client_id: bytes, request_id: int, indices: range, timestamp_ns: int) -> None:
        """Note that the records at these indices were appended for a request.  In the order of the entries."""
        clients = self._clients
        client = clients.get(client_id)
        if client is None:
            client = clients[client_id] = _Client()
        elif len(clients) > 1:
            clients[client_id] = clients.pop(client_id)
        client.last_ns = max(client.last_ns, timestamp_ns)
        runs = client.runs
        if request_id > client.highest:  # Mostly: a new request.
            client.highest = request_id
            runs[request_id] = (indices,)
            low = request_id - REQUEST_WINDOW
            while (oldest := next(iter(runs))) <= low:
                del runs[oldest]
        elif request_id > client.highest - REQUEST_WINDOW:
            known = runs.get(request_id, ())
            if known and known[-1].stop == indices.start:
                runs[request_id] = (*known[:-1], range(known[-1].start, indices.stop))
            else:
                runs[request_id] = (*known, indices)
        if len(clients) > 1:
            self._forget(timestamp_ns)

    def find(self, client_id: bytes, request_id: int) -> list[int] | None:
        """Return the indices of the records that a request has appended; None if it is too old to tell."""
        client = self._clients.get(client_id)
        if client is None:
            return []
        if request_id <= client.highest - REQUEST_WINDOW:
            return None
        return [index for run in client.runs.get(request_id, ()) for index in run]

    def is_new(self, client_id: bytes, request_id: int) -> bool:
        """Say whether a request follows all that is known of its client; if not, `find` tells more."""
        client = self._clients.get(client_id)
        return client is not None and request_id > client.highest

    def __contains__(self, client_id: object) -> bool:
        return client_id in self._clients

    def is_full(self, client_id: bytes, now_ns: int, coming: int = 0) -> bool:
        """Say whether a client would have to take the place of one that may still ask; `coming` are on their way."""
        if client_id in self._clients or len(self._clients) + coming < CLIENTS_MAX:
            return False
        return now_ns - next(iter(self._clients.values())).last_ns <= CLIENT_SILENT_NS

    def encode(self) -> bytes:
        """Return all of it, for a snapshot."""
        return _ENCODER.encode(
            [
                _StoredClient(
                    client_id,
                    client.highest,
                    client.last_ns,
                    [(key, [(run.start, run.stop) for run in runs]) for key, runs in client.runs.items()],
                )
                for client_id, client in self._clients.items()
            ]
        )

    @classmethod
    def decode(cls, raw: bytes) -> "Answers":
        """Return what `encode` was given."""
        answers = cls()
        for stored in _DECODER.decode(raw):
            runs = {key: tuple(range(*run) for run in stored_runs) for key, stored_runs in stored.runs}
            answers._clients[stored.client_id] = _Client(stored.highest, stored.last_ns, runs)
        return answers

    def _forget(self, now_ns: int) -> None:
        """Forget clients that have been silent for long, and whoever is beyond the bound: by entries alone."""
        while self._clients:
            client_id, client = next(iter(self._clients.items()))
            if len(self._clients) <= CLIENTS_MAX and now_ns - client.last_ns <= CLIENT_SILENT_NS:
                return
            del self._clients[client_id]


class AnswerBook:
    """The answers of all partitions.  Owned by whoever owns the partitions.

    What is noted is only written down until somebody asks for the partition: followers are asked rarely.
    """

    def __init__(self, through: int = 0) -> None:
        self._through = through
        """Entries up to this global index are in it: of a snapshot, when they are replayed."""
        self._partitions: dict[int, Answers] = {}
        self._late: dict[int, list[_Note]] = {}
        self._late_count = 0

    def __iter__(self) -> Iterator[int]:
        return iter(self._partitions.keys() | self._late.keys())

    def __getitem__(self, partition_id: int) -> Answers:
        """Return the answers of a partition, which may be none."""
        if partition_id in self._late:
            self._take_in(partition_id)
        known = self._partitions.get(partition_id)
        return Answers() if known is None else known

    def restore(self, partition_id: int, pieces: Iterable[bytes]) -> None:
        """Take what a snapshot holds of a partition."""
        if raw := b"".join(pieces):
            self._partitions[partition_id] = Answers.decode(raw)

    def note(self, commands: Iterable[tuple[int, Command]]) -> None:
        """Note committed commands with their global indices, in order; what a snapshot has told of changes nothing."""
        through, late = self._through, self._late
        for global_index, command in commands:
            partition_id, first, payloads, timestamp_ns, request, _ = command
            if global_index <= through or len(request) != _NAME.size:
                continue
            notes = late.get(partition_id)
            if notes is None:
                notes = late[partition_id] = []
            notes.append((request, first, len(payloads), timestamp_ns))
            self._late_count += 1
        if self._late_count > LATE_MAX:
            for partition_id in list(late):
                self._take_in(partition_id)
            self._late_count = 0

    def forget(self, partition_id: int, global_index: int) -> None:
        """Forget a partition that was torn down at an entry."""
        if global_index > self._through:
            self._partitions.pop(partition_id, None)
            self._late.pop(partition_id, None)

    def _take_in(self, partition_id: int) -> None:
        answers = self._partitions.get(partition_id)
        if answers is None:
            answers = self._partitions[partition_id] = Answers()
        for request, first, count, timestamp_ns in self._late.pop(partition_id):
            client_id, request_id = _NAME.unpack(request)
            answers.note(client_id, request_id, range(first, first + count), timestamp_ns)
