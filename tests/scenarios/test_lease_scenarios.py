"""What the file says of leases is so."""

from pathlib import Path
from typing import Final

import pytest

from latewood.jobs.lease import LeaseState, LeaseWatch
from tests.scenarios.script import Scenario, scenarios

FILE: Final = Path(__file__).with_name("leases.txt")
LEASE_MS: Final = 30_000
STEP_MS: Final = 10_000


@pytest.mark.parametrize("scenario", scenarios(FILE), ids=str)
def test_a_lease_lives_as_the_scenario_says(scenario: Scenario) -> None:
    watch = LeaseWatch(STEP_MS)
    found = []
    for command, at, *fields in scenario.input:
        assert command == "look"
        chosen = dict(field.split("=") for field in fields)
        beat_ms = int(chosen["beat"]) * 1000
        lease = LeaseState(1, int(chosen.get("attempt", 1)), beat_ms, beat_ms + LEASE_MS)
        found.append("dead" if watch.look(int(at) * 1000, [lease]) else "alive")
    assert [" ".join(found)] == scenario.expected
