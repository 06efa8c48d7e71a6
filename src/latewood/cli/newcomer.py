"""What a node's peers know of it, before it begins anew: one that lost its files must not promise everything twice."""

from typing import Final

from latewood.errors import LatewoodError, UsageError
from latewood.replica.client.connecting import connect
from latewood.replica.config import NodeConfig
from latewood.replica.founding import replacement
from latewood.replica.replies import StatusReply
from latewood.replica.tls import client_context

_ASKING_MS: Final = 2_000


def check_may_join(config: NodeConfig) -> None:
    """Refuse to begin anew as a node that votes already, as far as the others can be asked.

    Raises:
        UsageError: it does: it would vote as if it had never promised anything.
    """
    node_id = config.node_id
    if any(one.node_id == node_id and one.role == "voter" for reply in _told(config) for one in reply.nodes):
        message = f"node {node_id} votes already, and {config.data} knows nothing of that: {replacement(config)}"
        raise UsageError(message)


def check_may_found(config: NodeConfig) -> None:
    """Refuse to begin as a first member of a cluster that has records, as far as the others can be asked.

    Raises:
        UsageError: it has: this node could lead with a majority of nodes that have none of them.
    """
    if any(reply.partition_count for reply in _told(config)):
        message = (
            f"cluster {config.cluster_id!r} has records already, and {config.data} knows nothing of them: "
            f"{replacement(config)}"
        )
        raise UsageError(message)


def _told(config: NodeConfig) -> list[StatusReply]:
    """Return what the others say; nobody, if they are not there: nobody counts on this node then, either."""
    found, tls = list[StatusReply](), client_context(config.tls) if config.tls else None
    for node_id, address in config.peers.items():
        if node_id != config.node_id:
            try:
                with connect([address], tls=tls, cluster_id=config.cluster_id, timeout_ms=_ASKING_MS) as client:
                    found.append(client.status(address))
            except LatewoodError:
                continue
    return found
