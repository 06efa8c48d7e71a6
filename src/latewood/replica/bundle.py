"""Which commands share an entry of the parent log: those that are proposed in one turn, within bounds.  Pure.

An entry costs Raft, the parent log and every node the same, whatever is in it; so what comes together goes together.
"""

from collections.abc import Sequence
from typing import Final

from latewood.format.entry import tears_down
from latewood.limits import KiB

ENTRY_BYTES_MAX: Final = 256 * KiB
"""Of an entry, beyond its first command: a message is not much larger."""
ENTRY_RECORDS_MAX: Final = 4_096
"""Of one command."""
ENTRY_COMMANDS_MAX: Final = 256
"""Bounds how long one entry takes to route, if each of them is for a partition that has to be made."""


def bundles(commands: Sequence[bytes]) -> list[range]:
    """Return which of the commands, in order, share an entry; one that tears a partition down is alone."""
    found: list[range] = []
    start, size = 0, 0
    for at, command in enumerate(commands):
        alone = tears_down(command)
        is_full = size + len(command) > ENTRY_BYTES_MAX or at - start >= ENTRY_COMMANDS_MAX
        if at > start and (alone or is_full):
            found.append(range(start, at))
            start, size = at, 0
        size += ENTRY_BYTES_MAX if alone else len(command)
    if start < len(commands):
        found.append(range(start, len(commands)))
    return found
