"""A world for simulated nodes: its own time, a bad network, power cuts, slow disks, clients and operators.

Everything that happens is decided by the seed, so a seed that fails fails again.  A run is a time of trouble, then
one of peace, in which the cluster must find itself again: then every promise is checked.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Final
from zlib import crc32

from latewood.errors import UnavailableError
from latewood.replica.engine import ChangeKind, ConfState, Entry, Message, Snapshot
from latewood.replica.machine import PartitionEntry
from latewood.replica.snapshot import PartitionState
from latewood.testing.simulate_climate import Climate
from latewood.testing.simulate_node import ELECTION_TICKS, Node
from latewood.testing.simulate_operator import choose_changes
from latewood.testing.simulate_planted import Bug
from latewood.testing.simulate_storage import Item, Storage, Surroundings
from latewood.testing.simulate_truth import Truth, Violation

_TICK_MS: Final = 20
_TROUBLE_MS: Final = 4_000
_PEACE_MS: Final = 12_000
"""Far more than the cluster needs: a run that comes to the end of it is stuck."""

_PEACE_STEP_MS: Final = 250
_FIRST: Final = 1
"""The index of the snapshot that every founding node starts behind: a node that joins later needs that snapshot."""

_REQUESTS_AT_ONCE: Final = (1, 1, 1, 2, 3)
_RECORDS_AT_ONCE: Final = (1, 1, 1, 2, 4)
"""What of a time goes to Raft with one entry."""

_CONTEST_DELAY_MS: Final = 60
"""In a contest messages are late but not lost: one that asks for a vote may find a node that has just come up again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One clean run, in figures; two runs of a seed have the same."""

    seed: int
    committed: int
    acknowledged: int
    crashes: int
    terms: int
    trace: int


MakeStorage = Callable[[int, Surroundings, ConfState | None, int], Storage]
"""Makes the storage of a node: a founding one, with the members and the index that it begins behind, or a new one."""


class World:
    """One run.  What has no underscore is for its nodes."""

    def __init__(self, seed: int, bug: Bug | None, make_storage: MakeStorage) -> None:
        self.seed, self.bug, self._make_storage = seed, bug, make_storage
        self.random = Random(seed)  # noqa: S311 - a seed must give the same run again
        self._housekeeping = Random(~seed)  # noqa: S311 - as above
        self.truth = Truth(_FIRST + 1)
        self.climate = Climate.draw(self.random)
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = self._operations = self._crashes = self._trace = 0
        self._cuts: set[tuple[int, int]] = set()
        self._slow: set[int] = set()
        self.is_peace = False
        self._contest_end_ms = 0
        members = tuple(range(1, self.climate.nodes + 1))
        self.nodes = {node: Node(node, self, make_storage(node, self, ConfState(members), _FIRST)) for node in members}

    def run(self) -> Outcome:
        """Live through it.

        Raises:
            Violation: a promise was broken.
        """
        for node in list(self.nodes.values()):
            self._begin(node)
        self._after(self.climate.client_ms, self._client)
        self._after(self.climate.chaos_ms, self._chaos)
        self._after(10, self._work)
        self._run_until(_TROUBLE_MS)
        self._make_peace()
        self._check_end()
        terms = self.truth.entries[-1].term if self.truth.entries else 0
        return Outcome(self.seed, len(self.truth.entries), len(self.truth.acked), self._crashes, terms, self._trace)

    # -- what nodes ask for -------------------------------------------------------------------------------

    def send(self, sender: int, message: Message) -> None:
        """Let a message travel: it may be lost, doubled, late, or be overtaken."""
        if not self._is_lost(sender, message.to):
            self._travel(sender, message)
            if not self.is_peace and self.chance(self.climate.duplicate):
                self._travel(sender, message)

    def send_snapshot(self, sender: int, message: Message, snapshot: Snapshot) -> None:
        """Let what a snapshot names travel, piece by piece, and then the message: it may break off anywhere."""
        chunks = self.nodes[sender].storage.offers(snapshot)
        self._after_on(sender, self._delay(), lambda node: self._send_chunks(node, message, snapshot, chunks))

    def pull(self, node: int, partition: PartitionState, low: int) -> list[PartitionEntry]:
        """Ask the others for records, in any order."""
        others = [one for one in self.nodes.values() if one.is_up and one.node != node]
        self.random.shuffle(others)
        for other in others:
            if (node, other.node) not in self._cuts and (other.node, node) not in self._cuts:
                found = other.storage.records(partition, low)
                if found is not None:
                    return found
        raise UnavailableError(f"nobody with partition {partition.partition_id} can be reached")

    def restart_later(self, node: Node) -> None:
        """Have a node come up again that has stopped by itself."""
        self._after(self._delay(), lambda: None if node.is_up else self._begin(node))

    def write_later(self, node: Node) -> None:
        """Let the disk take its time."""
        slowness = 20 if node.node in self._slow else 1
        usual = self.random.randint(0, 1 if self.is_peace else self.climate.disk_ms_max)
        self._after_on(node.node, 1 + usual * slowness, self._disk_done)

    def fetch_later(self, node: Node, token: int, entries: list[Entry]) -> None:
        """Let the disk take its time."""
        fails = not self.is_peace and self.chance(0.1)
        self._after_on(node.node, self._delay(), lambda one: one.fetched(token, [] if fails else entries))

    def chance(self, share: float) -> bool:
        """Say yes in this share of the cases."""
        return self.random.random() < share

    def housekeeps(self, share: float) -> bool:
        """Say yes in this share of the cases; apart, so that all else happens as it would without it."""
        return self._housekeeping.random() < share

    def choose(self, items: Sequence[Item]) -> Item:
        """Pick one, apart as `housekeeps`."""
        return self._housekeeping.choice(items)

    def note(self, *values: int) -> None:
        """Make values part of the trace."""
        self._trace = crc32(repr((self.now_ms, values)).encode(), self._trace)

    # -- time ---------------------------------------------------------------------------------------------

    def _after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._event_count, action))

    def _after_on(self, node: int, delay_ms: int, action: Callable[[Node], None]) -> None:
        """Do something on a node, if it has not crashed by then."""
        one = self.nodes[node]
        incarnation = one.incarnation

        def act() -> None:
            if one.is_up and one.incarnation == incarnation:
                action(one)

        self._after(delay_ms, act)

    def _run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = end_ms

    def _delay(self) -> int:
        is_contest = self.now_ms < self._contest_end_ms
        worst = 2 if self.is_peace else _CONTEST_DELAY_MS if is_contest else self.climate.delay_ms_max
        usual = self.random.randint(1, worst)
        return usual * 5 if self.chance(0.02) else usual

    def _is_lost(self, sender: int, to: int) -> bool:
        is_bad = not self.is_peace and self.now_ms >= self._contest_end_ms
        return (sender, to) in self._cuts or (is_bad and self.chance(self.climate.drop))

    def _travel(self, sender: int, message: Message) -> None:
        self._after(self._delay(), lambda: self._deliver(sender, message))

    def _deliver(self, sender: int, message: Message) -> None:
        node = self.nodes.get(message.to)
        if node is not None and node.is_up:
            self.note(sender, message.to, message.kind, crc32(message.data))
            node.receive(sender, message.data)

    def _send_chunks(self, node: Node, message: Message, snapshot: Snapshot, chunks: list[bytes]) -> None:
        """Send some chunks of a snapshot; the message behind the last, and word of how it ended to the sender."""
        to = self.nodes.get(message.to)
        lost = self._is_lost(node.node, message.to)
        missing = len(chunks)
        if to is not None and to.is_up and chunks and not lost:
            missing = to.storage.receive(snapshot, chunks)
            self.note(node.node, message.to, snapshot.index, missing)
            if 0 < missing < len(chunks):
                self._after_on(node.node, self._delay(), lambda one: self._send_chunks(one, message, snapshot, chunks))
                return
        if not missing:
            self.send(node.node, message)
        node.engine.report_snapshot(message.to, arrived=not missing)
        node.pump()

    def _disk_done(self, node: Node) -> None:
        node.disk_done()
        share = 0.5 if self.now_ms < self._contest_end_ms else self.climate.crash_after_vote
        if node.voted and node.is_up and self.chance(share):
            self._crash_in_trouble(node)

    # -- what goes on ---------------------------------------------------------------------------------------

    def _begin(self, node: Node) -> None:
        try:
            node.start()
        except UnavailableError:  # It cannot get what it needs from others: it tries again.
            self._after(self._delay() + _PEACE_STEP_MS, lambda: None if node.is_up else self._begin(node))
            return
        self.note(node.node, node.handed_on)
        self._after_on(node.node, self.random.randint(1, _TICK_MS), self._tick)
        node.pump()

    def _tick(self, node: Node) -> None:
        self._after_on(node.node, _TICK_MS + self.random.randint(-3, 3), self._tick)
        node.tick()

    def _work(self) -> None:
        self._after(10, self._work)
        for node in self.nodes.values():
            if node.is_up:
                node.work()
                self._acknowledge(node)

    def _acknowledge(self, node: Node) -> None:
        """Tell another how far a node is; word of it may be late."""
        other, at = self.random.choice(list(self.nodes.values())), node.storage.progress()
        if other.is_up and other is not node and (node.node, other.node) not in self._cuts:
            late_ms = self._housekeeping.randint(1, 2 if self.is_peace else self.climate.delay_ms_max)
            self._after_on(other.node, late_ms, lambda one: one.storage.acknowledge(node.node, at))

    def _client(self) -> None:
        self._after(self.random.randint(1, 100 if self.is_peace else 2 * self.climate.client_ms), self._client)
        leaders = [node for node in self.nodes.values() if node.is_leader]
        if leaders:
            node = self.random.choice(leaders)
            if self.chance(0.02):
                node.tear_down(self.random.randint(1, self.climate.partitions))
            node.propose([self._request() for _ in range(self.random.choice(_REQUESTS_AT_ONCE))])
            if self.chance(0.1):
                node.read()
            if self.housekeeps(0.05):
                self.truth.let_go(self._housekeeping.randint(1, self.climate.partitions), self._housekeeping.random())

    def _request(self) -> tuple[int, list[int]]:
        """Return a partition, and operations for it."""
        first, self._operations = self._operations + 1, self._operations + self.random.choice(_RECORDS_AT_ONCE)
        return self.random.randint(1, self.climate.partitions), list(range(first, self._operations + 1))

    def _chaos(self) -> None:
        if self.is_peace:
            return
        self._after(self.random.randint(1, 2 * self.climate.chaos_ms), self._chaos)
        node = self.random.choice(list(self.nodes.values()))
        if not node.is_up:
            self._begin(node)
            return
        troubles = (
            (8, self._crash),
            (1, self._black_out),
            (6, self._cut),
            (4, self._mend),
            (2, self._slow_down),
            (2, self._transfer),
            (5, self._change),
            (8, self._compact),
            (6, self._contest),
        )
        weights, actions = zip(*troubles, strict=True)
        self.random.choices(actions, weights)[0](node)

    def _crash(self, node: Node) -> None:
        self._crashes += 1
        self.note(node.node, self._crashes)
        node.crash()
        if (
            self.chance(0.5) or self.now_ms < self._contest_end_ms
        ):  # a short outage: what it forgot matters most while the others still act
            self._after(self.random.randint(1, 30), lambda: None if node.is_up else self._begin(node))

    def _cut(self, node: Node) -> None:
        others = [other for other in self.nodes if other != node.node]
        both_ways = self.chance(0.5)
        for other in others if self.chance(0.3) else [self.random.choice(others)]:
            self._cuts.add((node.node, other))
            if both_ways:
                self._cuts.add((other, node.node))

    def _mend(self, _node: Node) -> None:
        self._cuts.clear()
        self._slow.clear()

    def _slow_down(self, node: Node) -> None:
        self._slow.add(node.node)

    def _transfer(self, node: Node) -> None:
        if node.is_leader:
            node.engine.transfer_leader(self.random.choice(list(self.nodes)))
            node.pump()

    def _compact(self, node: Node) -> None:
        node.compact()
        if self.chance(0.3):  # what was forgotten too early is missed only by one that must come up without it
            self._after_on(node.node, self.random.randint(1, 20), self._crash_in_trouble)

    def _crash_in_trouble(self, node: Node) -> None:
        if not self.is_peace:
            self._crash(node)

    def _black_out(self, _node: Node) -> None:
        """Have all nodes lose power at once: nobody has what another lost."""
        for node in [one for one in self.nodes.values() if one.is_up]:
            self._crash(node)

    def _contest(self, node: Node) -> None:
        """Have the leader fail for a moment, and two others stand for election at once, who do not hear of each other.

        Whoever gives a vote to both makes two leaders of one term.
        """
        leaders = [one for one in self.nodes.values() if one.is_leader]
        if not leaders:
            return
        self._mend(node)
        silence_ms = (ELECTION_TICKS + 1) * _TICK_MS
        self._contest_end_ms = self.now_ms + 2 * silence_ms
        for one in [*self.nodes.values()]:
            if not one.is_up:
                self._begin(one)
            elif one in leaders:
                self._crash(one)
        rivals = [one.node for one in self.nodes.values() if one.is_up]
        chosen = self.random.sample(rivals, min(2, len(rivals)))
        self._cuts |= set(permutations(chosen, 2))
        for rival in chosen:
            self._after_on(rival, silence_ms + self.random.randint(0, 30), self._campaign)

    def _campaign(self, node: Node) -> None:
        node.engine.campaign()
        node.pump()

    def _change(self, node: Node) -> None:
        """Change the membership, as an operator would."""
        leaders = [one for one in self.nodes.values() if one.is_leader]
        changes = choose_changes(self.random, leaders[0].engine.status()) if leaders else []
        for kind, joining in changes:
            if kind == ChangeKind.ADD_LEARNER:
                self._join(joining)
        if changes and leaders[0].engine.propose_change(changes, joint=self.chance(0.3)):
            self.note(node.node, *(number for change in changes for number in change))
            leaders[0].pump()

    def _join(self, node: int) -> None:
        if node not in self.nodes:
            self.nodes[node] = Node(node, self, self._make_storage(node, self, None, 0))
            self._begin(self.nodes[node])

    # -- the end --------------------------------------------------------------------------------------------

    def _make_peace(self) -> None:
        self.is_peace = True
        self._cuts.clear()
        self._slow.clear()
        for node in self.nodes.values():
            if not node.is_up:
                self._begin(node)
        while self.now_ms < _TROUBLE_MS + _PEACE_MS:
            self._run_until(self.now_ms + _PEACE_STEP_MS)
            if self._is_whole():
                return
        raise Violation("the cluster does not find itself again")

    def _members(self) -> list[Node]:
        """Return the members by what the leader of the highest term says; none if nobody leads."""
        leaders = [node for node in self.nodes.values() if node.is_leader]
        if not leaders:
            return []
        conf = max(leaders, key=lambda node: node.driver.term).driver.conf
        return [self.nodes[one] for one in sorted(conf.members)]

    def _is_whole(self) -> bool:
        """Say whether somebody leads, something was acknowledged lately, and all members have about caught up."""
        members = self._members()
        last = _FIRST + len(self.truth.entries)
        fresh = self.truth.acked and max(self.truth.acked) > self._operations - 20
        return bool(members) and bool(fresh) and all(node.handed_on > last - 20 for node in members)

    def _check_end(self) -> None:
        for operation, index in self.truth.acked.items():
            if self.truth.index_of.get(operation) != index:
                raise Violation(f"operation {operation} was acknowledged at {index} and is not there")
        for node in self._members():
            node.storage.check_whole(node.handed_on)
