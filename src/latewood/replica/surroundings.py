"""What a core needs from the node around it."""

from collections.abc import Collection, Sequence
from typing import Protocol

from latewood.replica.engine import Message


class Surroundings(Protocol):
    """What a core needs from its node.  Called on the event loop."""

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for records."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Send the engine's messages, or lose them."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """Take note that the core has stopped."""
        ...

    def on_installed(self) -> None:
        """Take note that a snapshot is installed: the core is of no use any more."""
        ...

    def on_applied(self, partition_ids: Collection[int]) -> None:
        """Take note that partitions have moved."""
        ...

    def leader_address(self, node_id: int) -> str:
        """Return where a node can be reached."""
        ...
