"""The machine of a simulated user."""

from collections.abc import Iterable

from latewood.replica.machine import PartitionEntry
from latewood.testing.simulate_planted import Bug
from latewood.testing.simulate_storage import Surroundings
from latewood.testing.simulate_truth import operation_in


class RememberingMachine:
    """A user's machine: it remembers every operation, and stumbles at times."""

    log_is_state = False

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.operations: list[int] = []

    def apply(self, entry: PartitionEntry) -> None:
        """Remember an operation."""
        if not self._world.is_peace and self._world.chance(0.05):
            raise RuntimeError("this machine stumbles")
        self.operations.append(operation_in(entry.payload))

    def snapshot(self) -> Iterable[bytes]:
        """Yield all operations."""
        kept = self.operations[: -1 if self._world.bug is Bug.SNAPSHOT_BEHIND else None]
        return [operation.to_bytes(8, "little") for operation in kept]

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Remember these."""
        state = b"".join(pieces)
        self.operations = [operation_in(state[at : at + 8]) for at in range(0, len(state), 8)]
