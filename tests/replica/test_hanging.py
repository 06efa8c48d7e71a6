"""What a node says of machines that hang: each hang once, and its end once."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from latewood.replica.hanging import HangWatch

if TYPE_CHECKING:
    from latewood.replica.apply import Applier


class Machines:
    """Stands in for an applier: says which machines hang, and at what."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.gone: set[int] = set()

    def hanging(self) -> dict[int, int]:
        return dict(self.at)

    def has(self, partition_id: int) -> bool:
        return partition_id not in self.gone


def said(caplog: pytest.LogCaptureFixture, machines: Machines, *turns: dict[int, int]) -> list[str]:
    """Return what is said while machines hang in turns, each seen more than once."""
    watch = HangWatch(cast("Applier", cast("Any", machines)))
    for machines.at in turns:
        for _ in range(30):
            watch.tick()
    return [record.getMessage().partition(" for longer")[0] for record in caplog.records]


def test_each_hang_is_told_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, Machines(), {}, {7: 12}, {}, {7: 13}, {7: 0, 8: 1}) == [
        "the machine of partition 7 hangs: it has been at entry 12",
        "the machine of partition 7 goes on: it hung at entry 12",
        "the machine of partition 7 hangs: it has been at entry 13",
        "the machine of partition 7 hangs: it has been at its snapshot",
        "the machine of partition 8 hangs: it has been at entry 1",
    ]


def test_a_machine_whose_partition_was_torn_down_does_not_go_on(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines()
    machines.gone = {7}
    assert len(said(caplog, machines, {7: 12}, {})) == 1
