"""Changes of membership and of leadership, step by step: a node comes as a learner, and votes when it has caught up.

One change at a time; the engine refuses a second while one is on its way.  Every step can be asked for again: what was
done is found done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from latewood.errors import UnavailableError, UsageError, WaitExpired
from latewood.replica.core import Core
from latewood.replica.directory import Change, NodeAddress
from latewood.replica.engine import ChangeKind, Role, Status
from latewood.replica.replies import Done, Members
from latewood.replica.requests import ChangeMembers, TransferLeader
from latewood.replica.wire import Reply

_LOOK_S: Final = 0.02
_LAG_MAX: Final = 16
"""A learner that lacks fewer entries than this may vote: it has the rest at once."""


async def change_members(
    core: Core, request: ChangeMembers, tell_all: Callable[[Change], Awaitable[Reply | None]]
) -> Reply:
    """Add or remove a node, and return who is a member then.

    Raises:
        UsageError: it makes no sense.
        WaitExpired: it took too long; what was done stays done.
        UnavailableError: this node led no more, or another change is on its way.
    """
    if not core.is_leading:
        return msgspec.structs.replace(core.not_leader(), id=request.id)
    node_id = request.node_id
    try:
        async with asyncio.timeout(max(0.001, request.timeout_ms / 1_000)):
            if request.change == "remove":
                await _remove(core, node_id)
            else:
                refused = await _add(core, request, tell_all)
                if refused is not None:
                    return msgspec.structs.replace(refused, id=request.id)
    except TimeoutError:
        message = f"node {node_id}: {request.change} is not finished; ask for it again to go on"
        raise WaitExpired(message) from None
    conf = core.raft.driver.conf
    return Members(request.id, list(conf.voters), list(conf.learners))


async def transfer_leader(core: Core, request: TransferLeader) -> Reply:
    """Have another node lead.

    Raises:
        UsageError: that node does not vote.
        WaitExpired: it did not come to that.
    """
    if core.leader == request.node_id:
        return Done(request.id)
    if not core.is_leading:
        return msgspec.structs.replace(core.not_leader(), id=request.id)
    if request.node_id not in core.raft.driver.conf.voters:
        raise UsageError(f"node {request.node_id} does not vote, so it cannot lead")
    core.raft.act(lambda: core.engine.transfer_leader(request.node_id))
    try:
        async with asyncio.timeout(max(0.001, request.timeout_ms / 1_000)):
            while core.leader != request.node_id:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        message = f"node {request.node_id} did not take over within {request.timeout_ms:,} ms"
        raise WaitExpired(message) from None
    return Done(request.id)


async def _add(
    core: Core, request: ChangeMembers, tell_all: Callable[[Change], Awaitable[Reply | None]]
) -> Reply | None:
    node_id, conf = request.node_id, core.raft.driver.conf
    if node_id < 1:
        raise UsageError(f"nodes have numbers from 1 on, not {node_id}")
    if request.change != "add" and node_id in conf.voters:
        raise UsageError(f"node {node_id} votes already: remove it, and then add it as a learner")
    if request.address:
        refused = await tell_all(NodeAddress(node_id, request.address))
        if refused is not None:
            return refused
    elif node_id not in conf.members:
        raise UsageError("a new node needs an address")
    if node_id not in conf.members:
        await _change(core, ChangeKind.ADD_LEARNER, node_id, lambda: node_id in core.raft.driver.conf.learners)
    if request.change == "add" and node_id not in core.raft.driver.conf.voters:
        while not has_caught_up(core.engine.status(), node_id):
            _check_leads(core)
            await asyncio.sleep(_LOOK_S)
        await _change(core, ChangeKind.ADD_VOTER, node_id, lambda: node_id in core.raft.driver.conf.voters)
    return None


async def _remove(core: Core, node_id: int) -> None:
    conf = core.raft.driver.conf
    if node_id not in conf.members:
        return
    if conf.voters == (node_id,):
        raise UsageError(f"node {node_id} is the last one that votes")
    await _change(core, ChangeKind.REMOVE, node_id, lambda: node_id not in core.raft.driver.conf.members)


async def _change(core: Core, kind: ChangeKind, node_id: int, is_done: Callable[[], bool]) -> None:
    """Propose one change, and return when it is in force here."""
    proposed: list[int] = []
    core.raft.act(lambda: proposed.append(core.engine.propose_change([(kind, node_id)])))
    if not proposed or not proposed[0]:
        raise UnavailableError("another change of membership is on its way; try again when it is done")
    while not is_done():
        _check_leads(core)
        await asyncio.sleep(_LOOK_S)


def has_caught_up(status: Status, node_id: int) -> bool:
    """Say whether a learner may vote, as its leader knows: it lacks little, and it knows something at all.

    A node whose log is empty votes for nobody, so one that counts must never be in that state.
    """
    known = [one.match for one in status.progress if one.node == node_id]
    return any(match and match + _LAG_MAX >= status.last for match in known)


def _check_leads(core: Core) -> None:
    if core.raft.driver.role != Role.LEADER:
        raise UnavailableError("this node leads no more; ask the new leader, what was done stays done")
