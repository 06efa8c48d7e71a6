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


def bundles(proposals: Sequence[bytes], counts: Sequence[int]) -> list[range]:
    """Return which of the proposals, in order, share an entry; one that tears a partition down is alone.

    `counts` says how many commands each of them is.
    """
    found: list[range] = []
    start, size, commands = 0, 0, 0
    for at, (proposal, count) in enumerate(zip(proposals, counts, strict=True)):
        alone = tears_down(proposal)
        is_full = size + len(proposal) > ENTRY_BYTES_MAX or commands + count > ENTRY_COMMANDS_MAX
        if at > start and (alone or is_full):
            found.append(range(start, at))
            start, size, commands = at, 0, 0
        size += ENTRY_BYTES_MAX if alone else len(proposal)
        commands += count
    if start < len(proposals):
        found.append(range(start, len(proposals)))
    return found
