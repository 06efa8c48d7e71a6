"""The native module's part of a node without memory: a MemoryError, and nothing half done.

Each allocation of the interpreter's in a call is made to fail, alone, and with all those after it.
"""

import struct
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from latewood.errors import Poisoned
from latewood.format.entry import VERSION, Command, encode_command
from latewood.replica.engine import ChangeKind, ConfState, Entry, EntryKind, HardState, Recovered, Snapshot
from latewood.replica.raft_rs import RaftOptions
from tests.forking import in_child
from tests.kernel.packing import U64_MAX
from tests.kernel.starving import refused, starve

pytestmark = pytest.mark.needs("native", "testcapi")

BIG: Final = 1 << 40
"""A number of which the interpreter has no object of its own."""
CLIENT: Final = b"c" * 16
PARTITIONS: Final = (BIG, BIG + 1)
STORED: Final = [(CLIENT, BIG, BIG, [(BIG - 9, BIG, 2, 10)], [(BIG - 20, [(BIG - 9, BIG - 7)])])]
GROUP: Final = SimpleNamespace(
    client_id=CLIENT,
    partitions=[BIG, BIG + 1, BIG],
    request_ids=[BIG + 1, BIG + 2, BIG + 3],
    counts=[1, 2, 1],
    payloads=[b"a", b"b", b"c", b"d"],
)
PLAIN: Final = SimpleNamespace(
    partition=BIG + 9, payload_bytes=100, head_bytes=64, records=9, commands=9, bytes=1 << 16
)
BOUNDS: Final = SimpleNamespace(
    ops=1 << 60, bytes=1 << 60, age_ns=1 << 60, whole_ops=1 << 60, whole_bytes=1 << 60, lag=9
)
ENTRY: Final = b"".join(
    encode_command(Command(partition, BIG + 2 * at - 1, [b"a", b"b"], BIG, CLIENT + struct.pack("<Q", BIG + at)))
    for at in range(1, 4)
    for partition in PARTITIONS
)
PLACED: Final = [(PARTITIONS[at % 2], BIG + at, BIG + at, BIG + at) for at in range(9)]
MEMBERS: Final = ConfState((1,), (2,))
DATA: Final = [b"a", b"b"]
OLD: Final = [Entry(2, 1, EntryKind.NORMAL, b"old")]
OPTIONS: Final = RaftOptions()


def recovered(last: int) -> Recovered:
    """Return a log whose entries are applied and not in memory."""
    return Recovered(HardState(1, 0, last), MEMBERS, 1, [(1, 1)], last, [], last, Snapshot(1, 1, MEMBERS, b"first"))


LOG: Final = recovered(BIG)


class Replica:
    """The tables of a node's partitions, and its engine, which leads itself and a learner that knows nothing yet."""

    change: Any
    """An entry that changes the membership."""

    def __init__(self, kernel: ModuleType) -> None:
        self.kernel: Any = kernel
        self.begin()
        assert self.core.propose_change([(ChangeKind.ADD_LEARNER, 3)], b"", False)  # noqa: FBT003 - as the engine calls it
        (self.change,) = [entry for entry in self.turn(self.core)[1] if entry[2] != EntryKind.NORMAL]
        self.begin()

    def begin(self) -> None:
        self.answers = self.kernel._AnswerTable(1 << 40, 9, 1 << 60)
        self.backlogs = self.kernel._BacklogTable(BOUNDS)
        for partition in PARTITIONS:
            self.answers.restore(partition, STORED)
            self.backlogs.set_next_index(partition, BIG)
            self.backlogs.add(partition, 5, BIG, BIG)
        self.appenders = [self.appender() for _ in PARTITIONS]
        self.doors = dict(zip(PARTITIONS, [(BIG, self.door(one)) for one in self.appenders], strict=True))
        self.placed: list[tuple[int, int, int, int]] = []
        self.core = self.kernel._RaftCore(1, RaftOptions(), recovered(BIG))
        self.core.campaign()
        self.answer = self.talk(self.kernel._RaftCore(2, RaftOptions(), recovered(1)))
        assert self.core.propose(DATA)
        self.begun = self.state()

    def appender(self) -> Any:
        made = self.kernel.Appender(bytearray(1 << 12), None, 0, BIG, 0, 16, 0, 0, 0, U64_MAX, 0)
        made.allow(1 << 12, 1 << 12, 1 << 60)
        return made

    def door(self, appender: Any) -> Any:
        made = self.kernel.Door(lambda *_: -1)
        made.set(appender, has_time=False)
        return made

    def turn(self, core: Any) -> tuple[list[bytes], list[Any]]:
        """Do all that is to be done, and return the messages and what is committed."""
        sent, committed = [], []
        while core.has_ready():
            head, _, (messages, held), (entries, _) = core.ready()
            core.on_persisted(head[0])
            sent += [data for _, _, data in messages + held]
            committed += entries
        return sent, committed

    def talk(self, learner: Any) -> bytes:
        """Carry messages to the learner and back until the leader has to read old entries; return the last answer."""
        answer = b""
        while sent := self.turn(self.core)[0]:
            learner.step(1, sent)
            answers = self.turn(learner)[0]
            self.core.step(2, answers)
            answer = answers[-1]
        return answer

    def state(self) -> tuple[object, ...]:
        """Return what a call must not change if it fails."""
        figures = [self.backlogs.figures(partition) for partition in PARTITIONS]
        return self.backlogs.whole(), figures, self.answers.stored(BIG), self.core.status()[0][1][0]

    def check(self, found: str) -> None:
        written = {key: one.count for key, one in zip(PARTITIONS, self.appenders, strict=True)}
        assert {key: sum(run[2] - run[1] + 1 for run in self.placed if run[0] == key) for key in PARTITIONS} == written
        if found != "MemoryError":
            return
        try:
            assert self.state() == self.begun
        except Poisoned:  # The engine says some things only once; a node without them starts again.
            return
        assert self.answers.begin(BIG, CLIENT, BIG + 1), "the same request may come again"


ADMIT: Final = (GROUP, 0, 0, BIG, VERSION, PLAIN)
CALLS: dict[str, Callable[[Replica], object]] = {
    "answers": lambda on: on.kernel._AnswerTable(BIG, BIG, BIG),
    "note": lambda on: on.answers.note(BIG, CLIENT + bytes(8), BIG, BIG, BIG),
    "note_entry": lambda on: on.answers.note_entry(ENTRY, VERSION),
    "begin": lambda on: on.answers.begin(BIG, CLIENT, 1),
    "find": lambda on: on.answers.find(BIG, CLIENT, BIG - 3),
    "knows": lambda on: on.answers.knows(BIG, CLIENT),
    "client_count": lambda on: on.answers.client_count(BIG),
    "is_full": lambda on: on.answers.is_full(BIG, BIG, 1),
    "stored": lambda on: on.answers.stored(BIG),
    "restore": lambda on: on.answers.restore(BIG, STORED),
    "backlogs": lambda on: on.kernel._BacklogTable(BOUNDS),
    "reserve": lambda on: on.backlogs.reserve(BIG, 1, BIG, BIG),
    "add": lambda on: on.backlogs.add(BIG, 1, BIG, BIG),
    "record_logged": lambda on: on.backlogs.record_logged(PLACED),
    "figures": lambda on: on.backlogs.figures(BIG),
    "flags": lambda on: on.backlogs.flags(BIG),
    "whole": lambda on: on.backlogs.whole(),
    "oldest_ns": lambda on: on.backlogs.oldest_ns(),
    "committed": lambda on: on.backlogs.committed(),
    "split_commands": lambda on: on.kernel.split_commands(ENTRY, VERSION),
    "place_commands": lambda on: on.kernel._place_commands(ENTRY, 0, VERSION, BIG, on.doors, on.placed),
    "fold_placed": lambda on: on.kernel._fold_placed(PLACED, BIG + 7),
    "admit_plain": lambda on: on.kernel._admit_plain(*ADMIT, on.answers, on.backlogs, {(1, b"", 1): 1}, {1: 1}),
    "a core": lambda on: on.kernel._RaftCore(1, OPTIONS, LOG),
    "a core that is refused": lambda on: refused(lambda: on.kernel._RaftCore(0, OPTIONS, LOG)),
    "tick": lambda on: on.core.tick(),
    "step": lambda on: on.core.step(2, [on.answer]),
    "a step that is refused": lambda on: refused(lambda: on.core.step(3, [on.answer])),
    "propose": lambda on: on.core.propose(DATA),
    "propose_change": lambda on: on.core.propose_change([(2, 3)], CLIENT, False),  # noqa: FBT003 - as above
    "apply_change": lambda on: on.core.apply_change(2, on.change[3]),
    "read_index": lambda on: on.core.read_index(CLIENT),
    "ready": lambda on: on.core.ready(),
    "fetches": lambda on: on.core.fetches(),
    "on_fetched": lambda on: on.core.on_fetched(1, OLD),
    "wants_snapshot": lambda on: on.core.wants_snapshot(),
    "set_snapshot": lambda on: on.core.set_snapshot(LOG.snapshot),
    "a compaction that is refused": lambda on: refused(lambda: on.core.compact(2 * BIG)),
    "status": lambda on: on.core.status(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_memory_is_a_memory_error_and_leaves_nothing_half_done(name: str) -> None:
    assert "done" in in_child(lambda: starve(Replica, CALLS[name])) <= {"MemoryError", "done"}


def test_a_leader_that_must_read_old_entries_asks_for_them() -> None:
    """Otherwise the calls above would look at nothing."""
    from latewood import _native  # noqa: PLC0415 - not everywhere

    on = Replica(_native)
    assert on.core.fetches()[0][:2] == (1, 2)
    assert on.core.ready()[1][0]
