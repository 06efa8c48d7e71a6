"""Machines that hang are told of in the node's log: once when that is noticed, and once when they go on.

Owned by the event loop's thread.
"""

import logging
from typing import Final

from latewood.replica.apply import Applier

_LOOK_TICKS: Final = 10
"""So often a node looks: each look goes through all of its partitions."""

_logger = logging.getLogger(__name__)


class HangWatch:
    """Tells of the machines of one core that hang."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self._ticks = 0
        self._told: dict[int, int] = {}
        """By partition, the entry that its machine hangs at; 0: its snapshot."""

    def tick(self) -> None:
        """Look now and then."""
        self._ticks += 1
        if self._ticks % _LOOK_TICKS == 0:
            self._tell(self._applier.hanging())

    def _tell(self, hanging: dict[int, int]) -> None:
        for partition_id, index in hanging.items():
            if self._told.get(partition_id) != index:
                _logger.error(
                    "the machine of partition %d hangs: it has been at %s for longer than machine_wait_ms; "
                    "the other partitions go on; snapshots wait for it, and the parent log grows",
                    partition_id,
                    _call(index),
                )
        for partition_id, index in self._told.items():
            if partition_id not in hanging and self._applier.has(partition_id):
                _logger.warning("the machine of partition %d goes on: it hung at %s", partition_id, _call(index))
        self._told = hanging


def _call(index: int) -> str:
    return f"entry {index}" if index else "its snapshot"
