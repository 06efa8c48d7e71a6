"""How bad a simulated run is."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Climate:
    """How bad a run is: drawn once, from its seed."""

    nodes: int
    partitions: int
    drop: float
    duplicate: float
    delay_ms_max: int
    disk_ms_max: int
    chaos_ms: int
    client_ms: int
    crash_after_vote: float
    apply_share: float

    @classmethod
    def draw(cls, random: Random) -> "Climate":
        """Draw one."""
        return cls(
            nodes=random.choice((3, 3, 3, 5)),
            partitions=random.randint(1, 5),
            drop=random.choice((0.0, 0.02, 0.1, 0.25)),
            duplicate=random.choice((0.0, 0.02, 0.2)),
            delay_ms_max=random.choice((2, 10, 60, 200)),
            disk_ms_max=random.choice((1, 5, 30, 100)),
            chaos_ms=random.choice((40, 100, 250)),
            client_ms=random.choice((5, 15, 40)),
            crash_after_vote=random.choice((0.0, 0.2, 0.6)),
            apply_share=random.choice((0.02, 0.2, 0.8)),
        )
