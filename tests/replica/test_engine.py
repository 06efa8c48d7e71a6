"""The engine's promises, on the real one: what goes in, what comes out, and in which order."""

from collections import deque
from pathlib import Path

import pytest

from latewood.errors import Poisoned, UsageError
from latewood.replica.driver import Driver, Proposals, Write
from latewood.replica.engine import (
    ChangeKind,
    ConfState,
    Entry,
    EntryKind,
    HardState,
    Message,
    MessageKind,
    Recovered,
    Role,
    Snapshot,
)
from latewood.replica.membership import has_caught_up
from latewood.replica.raft_rs import RaftOptions, RaftRsEngine, forgotten, missing


def founding(*voters: int) -> Recovered:
    conf = ConfState(voters)
    return Recovered(HardState(1, 0, 1), conf, 1, [(1, 1)], 1, [], 1, Snapshot(1, 1, conf, b"first"))


NOBODY = Recovered(HardState(), ConfState(), 0, [(0, 0)], 0, [], 0, None)


class Member:
    """An engine whose disk and network never fail."""

    def __init__(self, node: int, recovered: Recovered, options: RaftOptions | None = None) -> None:
        self.outbox: deque[Message] = deque()
        self.handed_on: list[Entry] = []
        self.log: dict[int, Entry] = {entry.index: entry for entry in recovered.entries}
        self.reads: list[tuple[int, bytes]] = []
        self.installed: list[Snapshot] = []
        self.is_slow = False
        self.writing: list[Write] = []
        self.engine = RaftRsEngine(node, recovered, options)
        self.driver = Driver(
            self.engine,
            recovered=recovered,
            send=self.outbox.extend,
            hand_on=self.handed_on.extend,
            on_reads=self.reads.extend,
        )

    def turn(self) -> list[Write]:
        writes = self.driver.take()
        while self.driver.hand_on():
            writes += self.driver.take()
        return writes

    def pump(self) -> None:
        while writes := self.turn():
            if self.is_slow:
                self.writing += writes
                return
            for write in writes:
                self.log |= {entry.index: entry for entry in write.entries}
                self.installed += [write.snapshot] if write.snapshot else []
            self.driver.written(len(writes))
        for fetch in self.driver.fetches():
            self.engine.on_fetched(fetch.token, [self.log[index] for index in range(fetch.low, fetch.high)][:3])
            self.pump()


class Cluster(dict[int, Member]):
    def run(self, *without: int) -> None:
        """Carry messages until there are none."""
        busy = True
        while busy:
            busy = False
            for node, member in self.items():
                member.pump()
                while member.outbox:
                    busy = True
                    message = member.outbox.popleft()
                    if message.to in self and not {node, message.to} & set(without):
                        self[message.to].engine.step(node, [message.data])
                        if message.kind == MessageKind.SNAPSHOT:
                            member.engine.report_snapshot(message.to, arrived=True)

    def data(self, node: int) -> list[bytes]:
        return [entry.data for entry in self[node].handed_on if entry.data and entry.kind == EntryKind.NORMAL]


def led(options: RaftOptions | None = None) -> Cluster:
    """Return three nodes, of which 1 leads."""
    cluster = Cluster({node: Member(node, founding(1, 2, 3), options) for node in (1, 2, 3)})
    cluster[1].engine.campaign()
    cluster.run()
    assert cluster[1].driver.role == Role.LEADER
    return cluster


@pytest.mark.needs("native")
def test_what_a_leader_proposes_is_committed_everywhere_in_order() -> None:
    cluster = led()
    first = cluster[1].engine.propose([b"a", b"b"])
    cluster[1].engine.propose([b"c"])
    cluster.run()
    cluster[1].engine.tick()
    cluster.run()
    assert first == 3
    assert cluster.data(1) == cluster.data(2) == cluster.data(3) == [b"a", b"b", b"c"]


@pytest.mark.needs("native")
def test_a_follower_proposes_nothing() -> None:
    cluster = led()
    assert cluster[2].engine.propose([b"a"]) == 0
    assert cluster[2].engine.propose_change([(ChangeKind.ADD_LEARNER, 4)]) == 0


@pytest.mark.needs("native")
def test_a_node_that_forgot_what_it_acknowledged_says_so_when_the_leader_knows() -> None:
    cluster = led()
    cluster[1].engine.propose([b"a"])
    cluster.run()
    cluster[2] = Member(2, founding(1, 2, 3))
    cluster[1].engine.tick()
    cluster[1].engine.tick()
    with pytest.raises(Poisoned) as broken:
        cluster.run()
    found = forgotten(broken.value, Path("parent"))
    assert found is not None
    assert "it has entry 3, and its parent log ends with entry 1" in found.reason
    assert forgotten(Poisoned("a sync failed"), Path("parent")) is None


@pytest.mark.needs("native")
def test_a_leader_that_lacks_committed_entries_says_so_when_a_node_has_them() -> None:
    cluster = led()
    for data in (b"a", b"b"):
        cluster[1].engine.propose([data])
        cluster.run()
    cluster[1].engine.tick()
    cluster.run()
    assert missing(cluster[1].engine.status(), Path("parent")) is None
    for node in (1, 3):
        cluster[node] = Member(node, founding(1, 2, 3)._replace(hard_state=HardState(2, 0, 1)))
    cluster[1].engine.campaign()
    cluster.run(2)
    assert missing(cluster[1].engine.status(), Path("parent")) is None
    for _ in range(5):
        cluster[1].engine.tick()
        cluster.run()
    found = missing(cluster[1].engine.status(), Path("parent"))
    assert found is not None
    assert "node 2 has entries up to 4 that are committed, and the parent log of this leader ends with entry 2" in str(
        found
    )


@pytest.mark.needs("native")
def test_proposals_are_refused_while_too_much_waits_for_a_quorum() -> None:
    cluster = led(RaftOptions(uncommitted_bytes_max=1000, message_bytes_max=1000))
    engine = cluster[1].engine
    assert engine.propose([bytes(900)])
    assert engine.propose([bytes(900)]) == 0
    cluster.run()
    assert engine.propose([bytes(900)])


@pytest.mark.needs("native")
def test_messages_fit_a_frame_however_much_is_proposed_at_once() -> None:
    cluster = led()
    records = [bytes([number]) * (1 << 20) for number in range(12)]
    for record in records:
        assert cluster[1].engine.propose([record])
    cluster[1].pump()
    sizes = [len(message.data) for message in cluster[1].outbox if message.to == 2]
    assert len(sizes) > 1
    assert max(sizes) < 5 << 20
    cluster.run()
    cluster[1].engine.tick()
    cluster.run()
    assert cluster.data(1) == cluster.data(2) == cluster.data(3) == records


@pytest.mark.needs("native")
def test_a_node_that_lost_all_it_knew_elects_nobody_who_lacks_what_it_acknowledged() -> None:
    cluster = led()
    cluster[1].engine.propose([b"acknowledged by 1 and 3"])
    cluster.run(2)
    assert cluster.data(1)
    cluster[1] = Member(1, NOBODY)
    for _ in range(100):
        cluster[2].engine.tick()
        cluster.run(3)
    assert cluster[2].driver.role != Role.LEADER
    for _ in range(100):
        cluster[3].engine.tick()
        cluster.run()
    assert cluster[3].driver.role == Role.LEADER
    assert cluster.data(1) == cluster.data(2) == [b"acknowledged by 1 and 3"]


@pytest.mark.needs("native")
def test_a_learner_that_knows_nothing_has_not_caught_up_however_young_the_cluster_is() -> None:
    cluster = led()
    cluster[4] = Member(4, NOBODY)
    assert cluster[1].engine.propose_change([(ChangeKind.ADD_LEARNER, 4)], joint=False)
    cluster.run(4)
    leader = cluster[1]
    assert not has_caught_up(leader.engine.status(), 4)
    leader.engine.set_snapshot(Snapshot(3, leader.engine.status().term, leader.driver.conf, b"state"))
    for _ in range(20):
        leader.engine.tick()
        cluster.run()
    assert has_caught_up(cluster[1].engine.status(), 4)


@pytest.mark.needs("native")
def test_a_follower_answers_only_when_its_write_is_durable() -> None:
    cluster = led()
    cluster[1].engine.propose([b"a"])
    cluster[1].pump()
    (append,) = [message for message in cluster[1].outbox if message.to == 2]
    follower = cluster[2]
    follower.engine.step(1, [append.data])
    (write,) = follower.turn()
    assert [entry.data for entry in write.entries] == [b"a"]
    assert write.must_sync
    assert not follower.outbox
    follower.engine.step(1, [append.data])  # It comes twice: the answer must not overtake the write either.
    (second,) = follower.turn()
    assert second.is_empty
    assert not follower.outbox
    follower.driver.written(2)
    assert [message.to for message in follower.outbox] == [1, 1]


@pytest.mark.needs("native")
def test_a_commit_is_written_with_what_comes_next() -> None:
    cluster = led()
    cluster.run()
    leader = cluster[1]
    leader.engine.propose([b"a"])
    leader.pump()
    append = next(message for message in leader.outbox if message.to == 2)
    cluster[2].engine.step(1, [append.data])
    cluster[2].pump()
    leader.engine.step(2, [cluster[2].outbox[-1].data])
    assert leader.turn() == []  # Node 2 has it: it is committed, and that alone is no reason to write.
    assert cluster.data(1) == [b"a"]
    leader.engine.propose([b"b"])
    (write,) = leader.turn()
    assert write.hard_state is not None
    assert write.hard_state.commit == leader.handed_on[-1].index


@pytest.mark.needs("native")
def test_a_leader_commits_nothing_on_its_own_word() -> None:
    cluster = led()
    cluster[1].engine.propose([b"a"])
    cluster.run(2, 3)
    assert cluster.data(1) == []


@pytest.mark.needs("native")
def test_a_node_that_lags_gets_old_entries_from_the_disk() -> None:
    cluster = led(RaftOptions(window_bytes_max=0, message_bytes_max=100))
    for number in range(40):
        cluster[1].engine.propose([bytes([number])])
        cluster.run(3)
    assert cluster[1].engine.status().window_first > 20
    for _ in range(20):
        cluster[1].engine.tick()
        cluster.run()
    assert cluster.data(3) == cluster.data(1)
    assert len(cluster.data(3)) == 40
    assert not cluster[3].installed


@pytest.mark.needs("native")
def test_a_node_that_lags_too_far_gets_a_snapshot() -> None:
    cluster = led()
    for number in range(10):
        cluster[1].engine.propose([bytes([number])])
        cluster.run(3)
    leader = cluster[1]
    leader.engine.set_snapshot(Snapshot(8, leader.engine.status().term, leader.driver.conf, b"state"))
    leader.engine.compact(8)
    for _ in range(20):
        leader.engine.tick()
        cluster.run()
    (snapshot,) = cluster[3].installed
    assert (snapshot.index, snapshot.data) == (8, b"state")
    assert cluster.data(3) == cluster.data(1)[6:]
    assert cluster[3].engine.status().first == 9


@pytest.mark.needs("native")
def test_a_node_does_not_stand_for_election_while_it_installs_a_snapshot() -> None:
    cluster = led()
    for number in range(10):
        cluster[1].engine.propose([bytes([number])])
        cluster.run(3)
    leader, follower = cluster[1], cluster[3]
    leader.engine.set_snapshot(Snapshot(8, leader.engine.status().term, leader.driver.conf, b"state"))
    leader.engine.compact(8)
    follower.is_slow = True
    for _ in range(5):
        leader.engine.tick()
        cluster.run()
    assert [write.snapshot is not None for write in follower.writing][:1] == [True]
    follower.engine.campaign()
    for _ in range(50):
        follower.engine.tick()
    follower.is_slow = False
    follower.driver.written(len(follower.writing))
    assert follower.driver.role == Role.FOLLOWER
    assert follower.engine.status().applied == 8


@pytest.mark.needs("native")
def test_a_snapshot_from_before_a_node_became_a_member_is_not_sent_to_it() -> None:
    cluster = led()
    leader = cluster[1]
    cluster[4] = Member(4, NOBODY)
    assert leader.engine.propose_change([(ChangeKind.ADD_LEARNER, 4)])
    for _ in range(5):
        cluster.run()
        leader.engine.tick()
    assert leader.driver.conf.learners == (4,)
    assert not cluster[4].installed
    assert leader.engine.wants_snapshot() > 1
    status = leader.engine.status()
    leader.engine.set_snapshot(Snapshot(status.applied, status.term, leader.driver.conf, b"new"))
    for _ in range(5):
        leader.engine.tick()
        cluster.run()
    assert [snapshot.data for snapshot in cluster[4].installed] == [b"new"]
    assert leader.engine.wants_snapshot() == 0


@pytest.mark.needs("native")
def test_several_changes_pass_through_a_joint_configuration_and_out_of_it() -> None:
    cluster = led()
    assert cluster[1].engine.propose_change([(ChangeKind.ADD_LEARNER, 2), (ChangeKind.ADD_LEARNER, 3)])
    assert cluster[1].engine.propose_change([(ChangeKind.REMOVE, 3)]) == 0  # One is under way.
    cluster.run()
    assert cluster[1].driver.conf.voters_outgoing == (1, 2, 3)
    for _ in range(3):
        cluster[1].engine.tick()
        cluster.run()
    assert cluster[1].driver.conf == ConfState((1,), (2, 3))


@pytest.mark.needs("native")
def test_a_leader_that_is_removed_steps_down() -> None:
    cluster = led()
    assert cluster[1].engine.propose_change([(ChangeKind.REMOVE, 1)])
    cluster.run()
    assert cluster[1].driver.role == Role.FOLLOWER
    for _ in range(40):  # Two election timeouts at most; the others still trust the old leader at first.
        for node in (2, 3):
            cluster[node].engine.tick()
            cluster.run()
    leader = cluster[2].driver.leader
    assert leader in (2, 3)
    assert cluster[leader].engine.propose([b"on"])
    cluster.run()
    assert cluster.data(leader) == [b"on"]


@pytest.mark.needs("native")
def test_a_change_that_was_stored_before_a_restart_is_not_applied_again() -> None:
    cluster = led()
    index = cluster[1].engine.propose_change([(ChangeKind.ADD_LEARNER, 4)], joint=True)
    cluster.run()
    log, conf = [cluster[1].log[at] for at in sorted(cluster[1].log)], cluster[1].driver.conf
    last = log[-1]
    terms = [(1, 1), (2, last.term)]
    again = Recovered(HardState(last.term, 1, last.index), conf, last.index, terms, last.index, log, 1, None)
    member = Member(1, again)
    member.pump()
    assert [entry.index for entry in member.handed_on] == [entry.index for entry in log]
    assert index in [entry.index for entry in log]
    assert member.driver.conf == conf


@pytest.mark.needs("native")
def test_a_read_index_tells_where_a_linearizable_read_stands() -> None:
    cluster = led()
    cluster[1].engine.propose([b"a"])
    cluster.run()
    cluster[2].engine.read_index(b"mine")
    cluster.run()
    assert cluster[2].reads == [(3, b"mine")]


@pytest.mark.needs("native")
def test_leadership_can_be_handed_over() -> None:
    cluster = led()
    cluster[1].engine.transfer_leader(3)
    cluster.run()
    assert [cluster[node].driver.role for node in (1, 2, 3)] == [Role.FOLLOWER, Role.FOLLOWER, Role.LEADER]
    assert cluster[1].driver.leader == 3


@pytest.mark.needs("native")
@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x08"])
def test_bytes_that_are_no_message_are_refused_and_harm_nothing(data: bytes) -> None:
    cluster = led()
    with pytest.raises(UsageError):
        cluster[1].engine.step(2, [data])
    assert cluster[1].engine.propose([b"a"])


@pytest.mark.needs("native")
def test_a_message_in_the_name_of_another_node_is_refused() -> None:
    cluster = led()
    cluster[1].engine.propose([b"a"])
    cluster[1].pump()
    message = cluster[1].outbox[0]
    with pytest.raises(UsageError, match="came from node 3"):
        cluster[message.to].engine.step(3, [message.data])
    with pytest.raises(UsageError, match="to node"):
        cluster[5 - message.to].engine.step(1, [message.data])


@pytest.mark.needs("native")
def test_an_engine_that_broke_stays_broken() -> None:
    engine = RaftRsEngine(1, founding(1))
    with pytest.raises(Poisoned, match="applied"):
        engine.on_applied(99)
    with pytest.raises(Poisoned, match="broke before"):
        engine.tick()


@pytest.mark.needs("native")
@pytest.mark.parametrize(
    ("recovered", "reason"),
    [
        (founding(1)._replace(terms=[]), "term"),
        (founding(1)._replace(last_index=5), "missing"),
        (founding(1)._replace(entries=[Entry(3, 1, 0, b"")], last_index=3), "missing"),
        (founding(1)._replace(entries=[Entry(2, 7, 0, b"")], last_index=2), "another term"),
        (founding(1)._replace(hard_state=HardState(1, 0, 9)), "range"),
        (founding(1)._replace(entries=[Entry(2, 1, 9, b"")], last_index=2), "unknown kind"),
    ],
)
def test_what_contradicts_itself_is_not_started_from(recovered: Recovered, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        RaftRsEngine(1, recovered)


@pytest.mark.needs("native")
def test_options_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(UsageError, match="election"):
        RaftRsEngine(1, founding(1), RaftOptions(election_ticks=1, heartbeat_ticks=2))


def test_an_entry_is_known_by_index_and_term() -> None:
    proposals: Proposals[str] = Proposals()
    assert proposals.add(5, 2, ["a", "b", "cc"]) == []
    assert proposals.add(7, 3, ["d"]) == ["c", "c"]
    done, lost = proposals.settle([Entry(5, 2, 0, b""), Entry(6, 3, 0, b"")])
    assert (done, lost) == ([("a", 5)], ["b"])
    assert proposals.settle([Entry(9, 3, 0, b"")]) == ([], ["d"])
    assert len(proposals) == 0


def test_a_write_without_anything_to_write_is_empty() -> None:
    assert Write(1, None, [], None, [], must_sync=False, messages=[Message(2, 4, b"")]).is_empty
    assert not Write(1, None, [], HardState(1, 1, 1), [], must_sync=True, messages=[]).is_empty
