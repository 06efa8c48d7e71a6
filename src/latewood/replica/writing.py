"""Writing as a leader: a request becomes commands, once, and is answered when they are committed.

Mostly one; a large request is cut, so that no entry is large.

A request that is on its way, or was carried out before, is recognized and not done again.  The indices of its records
are reserved before Raft sees them.  Owned by the event loop's thread, and by it only while the partitions are its own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from latewood.clock import Clock
from latewood.errors import Overloaded
from latewood.format.entry import Action, Command, encode_command
from latewood.replica.answers import CLIENTS_MAX, Answers, request_name
from latewood.replica.bundle import ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX
from latewood.replica.dispatch import chunks
from latewood.replica.replies import NotLeader, Refused
from latewood.replica.requests import CLIENT_ID_BYTES
from latewood.replica.routing import SegmentedStateMachine

Answer: TypeAlias = list[int] | NotLeader | Refused
"""The indices of the records, or why there are none."""

Answering: TypeAlias = Callable[[Answer], None]

_Key: TypeAlias = tuple[int, bytes, int]
"""Partition, client and number of a request."""


class WriteRequest(NamedTuple):
    """What somebody wants appended."""

    partition: int
    client_id: bytes
    request_id: int
    payloads: Sequence[bytes]


@dataclass(slots=True)
class Pending:
    """A request on its way through Raft."""

    key: _Key
    indices: list[int]
    missing: int
    """Commands that are not committed yet."""
    first_index: int
    """The first that was reserved for it; 0 of a teardown."""
    answerings: list[Answering] = field(default_factory=list)

    def join(self, answering: Answering) -> None:
        """Answer a repetition with the first, or at once if that was answered and only the partitions do not know."""
        if self.missing:
            self.answerings.append(answering)
        else:
            answering(self.indices)

    def answer(self, answer: Answer) -> None:
        """Tell everybody who asked."""
        for answering in self.answerings:
            answering(answer)


class Writer:
    """The requests of one term.  See the module for its thread."""

    def __init__(
        self,
        machine: SegmentedStateMachine,
        clock: Clock,
        propose: Callable[[bytes, Pending], None],
        payload_bytes_max: int,
    ) -> None:
        self._machine, self._clock, self._propose = machine, clock, propose
        self._payload_bytes_max = payload_bytes_max
        self._single_bytes_max = min(payload_bytes_max, ENTRY_BYTES_MAX)
        self._pending: dict[_Key, Pending] = {}
        self._tearing_down: dict[int, Pending] = {}
        self._settled: list[Pending] = []
        """Answered, and not yet known to the partitions: a repetition must still be recognized."""

    def append(self, request: WriteRequest, answering: Answering) -> None:
        """Append a request's records, or tell at once why not, or what became of it before."""
        partition, client_id, request_id, payloads = request
        key = (partition, client_id, request_id)
        pending = self._pending.get(key)
        if pending is not None:
            pending.join(answering)
            return
        answers = self._machine.answers[partition]
        if len(payloads) == 1 and answers.is_new(client_id, request_id):  # Mostly, if there are many partitions.
            size = len(payloads[0])
            if size <= self._single_bytes_max and partition not in self._tearing_down:
                self._append_new(key, payloads, size, answering)
                return
        known = answers.find(client_id, request_id)
        if known and len(known) >= len(payloads):  # Whatever is to be said against it, it was done.
            answering(known)
            return
        refused = self._refusal(request, known)
        if refused or (not known and not payloads):
            answering(refused or [])
            return
        assert known is not None
        now_ns = self._clock.now_ns()
        if answers.is_full(client_id, now_ns, self._coming(partition, answers)):
            answering(overloaded(Overloaded(partition, "clients", CLIENTS_MAX + 1, CLIENTS_MAX)))
            return
        rest = payloads[len(known) :] if known else payloads
        sizes = [len(payload) for payload in rest]
        size = sum(sizes)
        if size <= ENTRY_BYTES_MAX and len(rest) <= ENTRY_RECORDS_MAX:
            self._append_new(key, rest, size, answering, known)
            return
        pending = self._admit(key, len(rest), size, now_ns, answering, known)
        if pending is not None:
            parts = list(chunks(sizes, ENTRY_RECORDS_MAX, ENTRY_BYTES_MAX))
            self._propose_parts(pending, rest, parts, now_ns)

    def _propose_parts(self, pending: Pending, payloads: Sequence[bytes], parts: list[range], now_ns: int) -> None:
        """Propose a large request, as several commands."""
        (partition, client_id, request_id), first = pending.key, pending.first_index
        name = request_name(client_id, request_id)
        pending.missing = len(parts)
        for part in parts:
            records = payloads[part.start : part.stop]
            self._propose(encode_command(Command(partition, first + part.start, records, now_ns, name)), pending)

    def _append_new(
        self, key: _Key, payloads: Sequence[bytes], size: int, answering: Answering, known: Sequence[int] = ()
    ) -> None:
        """Propose what is new of a request, as one command."""
        partition, client_id, request_id = key
        now_ns = self._clock.now_ns()
        pending = self._admit(key, len(payloads), size, now_ns, answering, known)
        if pending is not None:
            name = request_name(client_id, request_id)
            self._propose(encode_command(Command(partition, pending.first_index, payloads, now_ns, name)), pending)

    def _admit(
        self, key: _Key, ops: int, size: int, now_ns: int, answering: Answering, known: Sequence[int]
    ) -> Pending | None:
        """Reserve indices for what is new of a request, or say why not."""
        try:
            indices = self._machine.parts.dispatcher.admit(key[0], ops, size, now_ns)
        except Overloaded as error:
            answering(overloaded(error))
            return None
        pending = self._pending[key] = Pending(key, [*known, *indices], 1, indices[0], [answering])
        return pending

    def tear_down(self, partition: int, answering: Answering) -> None:
        """Remove a partition.  Until that is done it takes no records: theirs would be numbers of the old one."""
        if self._machine.parts.roster.get(partition) is None:
            answering(Refused(0, "not_found", f"there is no partition {partition}", retryable=False))
            return
        under_way = self._tearing_down.get(partition)
        if under_way is not None:
            under_way.join(answering)
            return
        pending = self._tearing_down[partition] = Pending((partition, b"", 0), [], 1, 0, [answering])
        self._propose(encode_command(Command(partition, 0, (), self._clock.now_ns(), action=Action.TEAR_DOWN)), pending)

    def settle(self, done: Iterable[tuple[Pending, int]]) -> None:
        """Take note of entries that are committed; call `forget_settled` when the partitions have them."""
        for pending, _ in done:
            pending.missing -= 1
            if not pending.missing:
                pending.answer(pending.indices)
                self._settled.append(pending)

    def forget_settled(self) -> None:
        """Forget what was answered: the partitions know of it by now."""
        for pending in self._settled:
            self._forget(pending)
        self._settled.clear()

    def lose(self, lost: Iterable[Pending]) -> None:
        """Tell those of whose entries nobody knows what will become."""
        reason = "the leader changed, or stopped, while this was on its way; the same request again tells"
        unknown = Refused(0, "unknown", reason, retryable=True)
        for pending in {id(one): one for one in lost}.values():
            self._forget(pending)
            self._withdraw(pending)
            pending.answer(unknown)

    def refuse(self, refused: Iterable[Pending], answer: NotLeader | Refused) -> None:
        """Tell those whose entries the engine did not take."""
        for pending in reversed({id(one): one for one in refused}.values()):
            self._forget(pending)
            self._withdraw(pending)
            pending.answer(answer)

    def _coming(self, partition: int, answers: Answers) -> int:
        """Return how many clients that a partition does not know are on their way to it; 0 if it has room for all."""
        if len(answers) + len(self._pending) < CLIENTS_MAX:
            return 0
        return len({key[1] for key in self._pending if key[0] == partition and key[1] not in answers})

    def _withdraw(self, pending: Pending) -> None:
        if pending.first_index:
            self._machine.parts.dispatcher.withdraw(pending.key[0], pending.first_index)

    def _forget(self, pending: Pending) -> None:
        self._pending.pop(pending.key, None)
        if not pending.first_index:
            self._tearing_down.pop(pending.key[0], None)

    def _refusal(self, request: WriteRequest, known: list[int] | None) -> Refused | None:
        partition, client_id, request_id, payloads = request
        if known is None:
            reason = f"request {request_id} is too old: nobody knows any more whether it was carried out"
            return Refused(0, "too_old", reason, retryable=False, partition=partition)
        if len(client_id) != CLIENT_ID_BYTES or request_id < 1:
            reason = f"a client has an id of {CLIENT_ID_BYTES} bytes, and its requests have numbers from 1 on"
            return Refused(0, "usage", reason, retryable=False, partition=partition)
        largest = max(map(len, payloads), default=0)
        if largest > self._payload_bytes_max:
            reason = f"a payload of {largest:,} bytes, at most {self._payload_bytes_max:,} are taken here"
            bound = self._payload_bytes_max
            return Refused(0, "too_large", reason, retryable=False, partition=partition, value=largest, bound=bound)
        if partition in self._tearing_down:
            reason = f"partition {partition} is being removed"
            return Refused(0, "unavailable", reason, retryable=True, partition=partition)
        return None


def overloaded(error: Overloaded) -> Refused:
    """Return the refusal that tells of a limit."""
    return Refused(
        0,
        "overloaded",
        str(error),
        retryable=True,
        partition=error.partition_id,
        limit=error.limit,
        value=error.value,
        bound=error.bound,
    )
