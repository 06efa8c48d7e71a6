"""Whether this node is still a member: one that was removed hears no more from the others, so it asks them.

A node that was down when it was removed never learns of it from its log, and one that learns of it hears nothing after.
Only a leader's word counts: whoever lags may not know yet that a node was added.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from latewood.errors import UnavailableError
from latewood.replica.config import NodeConfig
from latewood.replica.core import Core
from latewood.replica.replies import StatusReply
from latewood.replica.requests import GetStatus
from latewood.replica.wire import Reply, Request

_LOOK_TICKS: Final = 20
"""So often a node asks that hears of no leader, or finds itself not among the members."""
_ANSWER_S: Final = 2.0

_logger = logging.getLogger(__name__)


class Standing:
    """What a node knows of its own membership."""

    def __init__(
        self,
        config: NodeConfig,
        ask: Callable[[int, Request, float], Awaitable[Reply]],
        others: Callable[[], Sequence[int]],
    ) -> None:
        """`ask` has another node answer, `others` are those who can be asked."""
        self._config, self._ask, self._others = config, ask, others
        self._ticks = 0
        self._looking: asyncio.Task[None] | None = None
        self.is_out = False
        """A leader has said that this node is no member."""

    def tick(self, core: Core) -> None:
        """Look now and then, while there is a reason to."""
        driver = core.raft.driver
        if not may_be_out(self._config.node_id, driver.conf.members, driver.leader):
            if self.is_out:
                _logger.info("node %d is a member again", self._config.node_id)
            self.is_out, self._ticks = False, 0
            return
        self._ticks += 1
        if self._ticks % _LOOK_TICKS == 0 and self._looking is None and not self.is_out:
            self._looking = asyncio.get_running_loop().create_task(self._look(driver.term), name="standing")

    def close(self) -> None:
        """Ask nobody any more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self, term: int) -> None:
        try:
            for node in self._others():
                try:
                    reply = await self._ask(node, GetStatus(0), _ANSWER_S)
                except UnavailableError:
                    continue
                if isinstance(reply, StatusReply) and says_out(self._config.node_id, term, reply):
                    self.is_out = True
                    _logger.warning("%s", farewell(self._config))
                    return
        finally:
            self._looking = None


def may_be_out(node_id: int, members: Collection[int], leader: int) -> bool:
    """Say whether a node has reason to ask: its log has members, and not itself, or nobody leads it.

    One without members was never told of any: it waits to be taken in.
    """
    return bool(members) and (leader == 0 or node_id not in members)


def says_out(node_id: int, term: int, reply: StatusReply) -> bool:
    """Say whether a reply proves that a node is no member: it is of a leader, and not of one that was before ours."""
    return reply.role == "leader" and reply.term >= term and all(one.node_id != node_id for one in reply.nodes)


def farewell(config: NodeConfig) -> str:
    """Return what a node that was removed has to say."""
    node_id = config.node_id
    return (
        f"node {node_id} is no longer a member of cluster {config.cluster_id!r}: it was removed, and gets nothing any "
        f"more; stop it, and keep or delete its files in {config.data}; or take it back with "
        f"`latewood cluster add CLUSTER {node_id} {config.advertise}`"
    )
