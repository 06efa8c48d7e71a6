"""What the operator of a simulated cluster does about its members: learners first, and never away with the leader."""

from random import Random
from typing import Final

from latewood.replica.engine import ChangeKind, Status
from latewood.replica.membership import has_caught_up

_NODES_MAX: Final = 5
_VOTERS_MIN: Final = 3
"""No node is removed if fewer would be left."""


def choose_changes(random: Random, leader: Status) -> list[tuple[int, int]]:
    """Return the next changes of membership, each `(ChangeKind, node)`; none if all is well as it is."""
    conf = leader.conf
    strangers = [one for one in range(1, _NODES_MAX + 1) if one not in conf.members]
    leaving = [one for one in conf.voters if one != leader.node]
    if conf.learners:
        if not has_caught_up(leader, conf.learners[0]):
            return []
        changes = [(ChangeKind.ADD_VOTER, conf.learners[0])]
        if len(conf.voters) >= _VOTERS_MIN and random.random() < 0.5:  # noqa: PLR2004 - every other time
            changes.append((ChangeKind.REMOVE, random.choice(leaving)))
        return list(changes)
    if strangers and (len(conf.voters) <= _VOTERS_MIN or random.random() < 0.5):  # noqa: PLR2004 - every other time
        return [(ChangeKind.ADD_LEARNER, random.choice(strangers))]
    if len(conf.voters) > _VOTERS_MIN:
        return [(ChangeKind.REMOVE, random.choice(leaving))]
    return []
