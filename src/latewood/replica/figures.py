"""A node in figures: for status, for lists of partitions, and for metrics.  Reads; changes nothing."""

from collections.abc import Iterable, Mapping
from typing import Literal

from latewood.replica.assignment import ByHash
from latewood.replica.core import Core
from latewood.replica.directory import DIRECTORY_PARTITION, DirectoryMachine
from latewood.replica.engine import Role
from latewood.replica.partition import PartitionLogStore
from latewood.replica.replies import NodeProgress, PartitionInfo, StatusReply
from latewood.replica.requests import PARTITION_MAX


def directory_of(core: Core) -> DirectoryMachine | None:
    """Return the machine of the cluster's own partition, if it has one yet."""
    if core.parts.roster.get(DIRECTORY_PARTITION) is None:
        return None
    machine = core.parts.applier.machine(DIRECTORY_PARTITION)
    assert isinstance(machine, DirectoryMachine)
    return machine


def first_sequence(core: Core, partition: PartitionLogStore) -> int:
    """Return the oldest record of a partition that may be read: the same on all nodes, whatever each has dropped."""
    directory, here = directory_of(core), partition.first_index - 1
    return max(here, directory.first_sequence(partition.partition_id, partition.born)) if directory else here


def partition_count(core: Core) -> int:
    """Return how many partitions of users there are: the cluster's own is not counted."""
    return sum(one.partition_id <= PARTITION_MAX for one in core.parts.roster)


def status_of(number: int, core: Core, cluster_id: str, addresses: Mapping[int, str]) -> StatusReply:
    """Return how a node sees itself and the cluster."""
    engine, marks = core.engine.status(), core.parts.watermarks
    whole = core.parts.dispatcher.whole()
    progress = {one.node: one for one in engine.progress}
    conf = core.raft.driver.conf
    nodes = []
    for node in sorted(conf.members):
        role: Literal["voter", "learner"] = "voter" if node in conf.electors else "learner"
        known = progress.get(node)
        match = known.match if known else (core.store.durable_index if node == core.node_id else 0)
        is_active = node == core.node_id or bool(known and known.recent_active)
        nodes.append(NodeProgress(node, role, addresses.get(node, ""), match, is_active))
    return StatusReply(
        number,
        core.node_id,
        cluster_id,
        Role(engine.role).name.lower(),
        core.leader,
        addresses.get(core.leader, ""),
        engine.term,
        engine.commit,
        marks.routed,
        core.store.durable_index,
        marks.applied_floor(),
        core.store.first_index,
        core.store.last_index,
        marks.snapshot_global,
        partition_count(core),
        whole.ops,
        whole.bytes,
        nodes,
    )


def partition_infos(core: Core, wanted: Iterable[int] = ()) -> list[PartitionInfo]:
    """Return the partitions of a node, or some of them."""
    chosen, members = set(wanted), core.raft.driver.conf.voters
    assignment, dispatcher, marks = ByHash(), core.parts.dispatcher, core.parts.watermarks
    infos = []
    for partition in core.parts.roster:
        partition_id = partition.partition_id
        if partition_id > PARTITION_MAX or (chosen and partition_id not in chosen) or partition_id not in marks:
            continue
        progress, load = marks[partition_id], dispatcher.load(partition_id)
        infos.append(
            PartitionInfo(
                partition_id,
                partition.born,
                first_sequence(core, partition),
                partition.next_index - 1,
                progress.durable_index,
                progress.applied_index,
                progress.applied_global,
                progress.snapshot_index,
                load.ops,
                load.bytes,
                assignment.master(partition_id, members) or 0,
                dispatcher.is_throttled(partition_id),
                dispatcher.is_frozen(partition_id),
            )
        )
    return infos
