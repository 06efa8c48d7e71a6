"""Writing as a leader: a request becomes commands, once, and is answered when they are committed.

Mostly one; a large request is cut, so that no entry is large.

A request that is on its way, or was carried out before, is recognized and not done again.  The indices of its records
are reserved before Raft sees them.  Owned by the event loop's thread, and by it only while the partitions are its own.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from latewood.clock import Clock
from latewood.errors import Overloaded
from latewood.format.entry import COMMAND_SIZE, VERSION, Action, Command, encode_command
from latewood.replica.answers import CLIENTS_MAX, request_name
from latewood.replica.bundle import ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, ENTRY_RECORDS_MAX
from latewood.replica.dispatch import chunks
from latewood.replica.grouping import GroupReplies
from latewood.replica.native import native
from latewood.replica.pending import Answering, Key, Pending, PendingGroup, Proposed
from latewood.replica.replies import NotLeader, Refused
from latewood.replica.requests import CLIENT_ID_BYTES, PARTITION_MAX, REQUEST_MAX, AppendGroup
from latewood.replica.routing import SegmentedStateMachine

_HEAD_BYTES: Final = COMMAND_SIZE + len(request_name(bytes(CLIENT_ID_BYTES), 0))


class WriteRequest(NamedTuple):
    """What somebody wants appended."""

    partition: int
    client_id: bytes
    request_id: int
    payloads: Sequence[bytes]


class _PlainBounds(NamedTuple):
    """What a request that is handled together with others may hold, and an entry of such."""

    payload_bytes: int
    """Of all payloads of a request."""
    partition: int = PARTITION_MAX
    head_bytes: int = _HEAD_BYTES
    """Of a command, beside its payloads and their lengths."""
    records: int = ENTRY_RECORDS_MAX
    commands: int = ENTRY_COMMANDS_MAX
    bytes: int = ENTRY_BYTES_MAX


class Writer:
    """The requests of one term.  See the module for its thread."""

    def __init__(
        self,
        machine: SegmentedStateMachine,
        clock: Clock,
        propose: Callable[[bytes, Proposed, int], None],
        payload_bytes_max: int,
    ) -> None:
        """`propose` is given commands, who waits for them, and how many they are."""
        self._machine, self._clock, self._propose = machine, clock, propose
        self._admit_plain = native("_admit_plain")
        self._payload_bytes_max = payload_bytes_max
        self._bounds = _PlainBounds(payload_bytes=min(payload_bytes_max, ENTRY_BYTES_MAX))
        self._pending: dict[Key, Pending] = {}
        self._groups: dict[PendingGroup, None] = {}
        self._tearing_down: dict[int, Pending] = {}
        self._settled: list[Proposed] = []
        """Answered, and not yet known to the partitions: a repetition must still be recognized."""

    def append_named(self, request: WriteRequest, answering: Answering) -> None:
        """Append to a partition that somebody outside of the cluster names; our own are beyond those."""
        if 0 <= request.partition <= PARTITION_MAX:
            self.append(request, answering)
        else:
            reason = f"partitions have numbers from 0 to {PARTITION_MAX}, not {request.partition}"
            answering(Refused(0, "usage", reason, retryable=False, partition=request.partition))

    def append(self, request: WriteRequest, answering: Answering) -> None:
        """Append a request's records, or tell at once why not, or what became of it before."""
        partition, client_id, request_id, payloads = request
        if len(client_id) != CLIENT_ID_BYTES or not 1 <= request_id <= REQUEST_MAX:
            reason = f"a client has an id of {CLIENT_ID_BYTES} bytes, and its requests have numbers from 1 on"
            answering(Refused(0, "usage", reason, retryable=False, partition=partition))
            return
        key, answers = (partition, client_id, request_id), self._machine.answers
        is_new = key not in self._pending and answers.begin(*key)
        if not is_new and self._joins(key, answering):
            return
        known = [] if is_new else answers.find(*key)
        if known and len(known) >= len(payloads):  # Whatever is to be said against it, it was done.
            answering(known)
            return
        refused = self._refusal(request, known)
        if refused or (not known and not payloads):
            answering(refused or [])
            return
        assert known is not None
        now_ns = self._clock.now_ns()
        if not is_new and answers.is_full(partition, client_id, now_ns, self._coming(partition)):
            answering(overloaded(Overloaded(partition, "clients", CLIENTS_MAX + 1, CLIENTS_MAX)))
            return
        rest = payloads[len(known) :] if known else payloads
        self._append_new(key, rest, now_ns, answering, known)

    def append_group(self, group: AppendGroup, replies: GroupReplies) -> None:
        """Append requests of one client: the plain ones together, all others as `append`."""
        place, start, now_ns = 0, 0, self._clock.now_ns()
        while place < len(group.partitions):
            data, firsts, start = self._admit(group, place, start, now_ns)
            if firsts:
                pending = PendingGroup(group, place, firsts, replies)
                self._groups[pending] = None
                self._propose(data, pending, len(firsts))
                place += len(firsts)
            else:
                stop = start + (group.counts[place] if group.counts else 1)
                own = group.partitions[place], group.client_id, group.request_ids[place], group.payloads[start:stop]
                self.append_named(WriteRequest(*own), partial(replies.answer, place))
                place, start = place + 1, stop

    def _admit(self, group: AppendGroup, place: int, start: int, now_ns: int) -> tuple[bytes, list[int], int]:
        """Admit plain requests from a place on, as many as fit one entry.

        Returns their commands, the first index of each, and where the payloads of the next request start.
        """
        machine = self._machine
        answers, backlogs = machine.answers.table, machine.parts.dispatcher.table
        admitted: tuple[bytes, list[int], int] = self._admit_plain(
            group, place, start, now_ns, VERSION, self._bounds, answers, backlogs, self._pending, self._tearing_down
        )
        return admitted

    def _append_new(
        self, key: Key, payloads: Sequence[bytes], now_ns: int, answering: Answering, known: Sequence[int]
    ) -> None:
        """Propose what is new of a request: as one command, or several if it is large."""
        partition, client_id, request_id = key
        count, sizes = len(payloads), list(map(len, payloads))
        size = sum(sizes)
        try:
            indices = self._machine.parts.dispatcher.admit(partition, count, size, now_ns)
        except Overloaded as error:
            answering(overloaded(error))
            return
        is_small = size <= ENTRY_BYTES_MAX and count <= ENTRY_RECORDS_MAX
        parts = [range(count)] if is_small else list(chunks(sizes, ENTRY_RECORDS_MAX, ENTRY_BYTES_MAX))
        pending = Pending(key, [*known, *indices], len(parts), indices[0], [answering])
        self._pending[key] = pending
        name = request_name(client_id, request_id)
        for part in parts:
            records = payloads[part.start : part.stop]
            self._propose(encode_command(Command(partition, indices[part.start], records, now_ns, name)), pending, 1)

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
        self._propose(
            encode_command(Command(partition, 0, (), self._clock.now_ns(), action=Action.TEAR_DOWN)), pending, 1
        )

    def settle(self, done: Iterable[tuple[Proposed, int]]) -> None:
        """Take note of entries that are committed; call `forget_settled` when the partitions have them."""
        self._settled += [proposed for proposed, _ in done if proposed.committed()]

    def forget_settled(self) -> None:
        """Forget what was answered: the partitions know of it by now."""
        for proposed in self._settled:
            self._forget(proposed)
        self._settled.clear()

    def lose(self, lost: Iterable[Proposed]) -> None:
        """Tell those of whose entries nobody knows what will become."""
        reason = "the leader changed, or stopped, while this was on its way; the same request again tells"
        self.refuse(lost, Refused(0, "unknown", reason, retryable=True))

    def refuse(self, refused: Iterable[Proposed], answer: NotLeader | Refused) -> None:
        """Tell those whose entries the engine did not take."""
        for proposed in reversed({id(one): one for one in refused}.values()):
            self._forget(proposed)
            for partition, first in proposed.reserved():
                self._machine.parts.dispatcher.withdraw(partition, first)
            proposed.fail(answer)

    def _joins(self, key: Key, answering: Answering) -> bool:
        """Answer a request that is on its way with the first of it; say whether it is."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.join(answering)
            return True
        return any(group.join(key, answering) for group in self._groups)

    def _coming(self, partition: int) -> int:
        """Return how many clients that a partition does not know are on their way to it; 0 if it has room for all."""
        answers = self._machine.answers
        if answers.client_count(partition) + len(self._pending) < CLIENTS_MAX:
            return 0
        return len({key[1] for key in self._pending if key[0] == partition and not answers.knows(partition, key[1])})

    def _forget(self, proposed: Proposed) -> None:
        if isinstance(proposed, Pending):
            self._pending.pop(proposed.key, None)
            if not proposed.first_index:
                self._tearing_down.pop(proposed.key[0], None)
        elif isinstance(proposed, PendingGroup):
            self._groups.pop(proposed, None)

    def _refusal(self, request: WriteRequest, known: list[int] | None) -> Refused | None:
        partition, _, request_id, payloads = request
        if known is None:
            reason = f"request {request_id} is too old: nobody knows any more whether it was carried out"
            return Refused(0, "too_old", reason, retryable=False, partition=partition)
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
