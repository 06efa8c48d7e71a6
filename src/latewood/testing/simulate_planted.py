"""Bugs to plant, so that we know that the simulation would find them.

Each is a mistake that is easily made in a shell around an engine, and that loses, changes or repeats data.
"""

from enum import Enum

from latewood.replica.driver import Driver, Write


class Bug(Enum):
    """What may be planted; the value says what goes wrong."""

    SEND_BEFORE_FSYNC = "answers leave before what they promise is durable"
    HELD_MESSAGE_OVERTAKES = "answers of a ready without writes overtake the writes before it"
    SYNC_DOES_NOTHING = "a sync returns before anything is on disk"
    FORGOTTEN_VOTE = "a restarted node does not know that it has voted"
    ROLL_BACK_RECOVERY = "recovery drops parent entries that a partition has not got yet"
    FORWARD_AT_FSYNC = "entries reach partitions when they are durable, not when they are committed"
    DOUBLE_APPLY = "a state is saved without how far it got, so records are applied again"
    TRUNCATE_PENDING = "the parent log is compacted past entries that a partition has not applied"
    ACK_AT_APPEND = "a client is told of its success when the leader alone has the entry"
    ACK_WITHOUT_TERM = "a client is told of its success when any entry is committed at its index"
    INDEX_FROM_COMMIT = "a new leader numbers records without looking at its uncommitted entries"
    SNAPSHOT_BEHIND = "a snapshot says that it stands at an index that its partitions have not reached"


class PlantedDriver(Driver):
    """A driver with a mistake."""

    bug: Bug | None = None

    def _take(self) -> Write:
        write = super()._take()
        early = self.bug is Bug.SEND_BEFORE_FSYNC or (self.bug is Bug.HELD_MESSAGE_OVERTAKES and write.is_empty)
        if not early:
            return write
        self._send(write.messages)
        return write._replace(messages=[])
