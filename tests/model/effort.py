"""How long the machines are run.

In short rounds, each with a seed of its own: within a long one Hypothesis mostly varies what it has tried before.
"""

import random
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

ROUNDS: Final = 8
ROUNDS_CAMPAIGN: Final = 2_000
ROUNDS_PLANTED_MAX: Final = 60
"""So many that a machine that finds a planted bug now still does when its rules have changed."""

_EXAMPLES: Final = 10
_STEPS: Final = 30


def search(machine: type[RuleBasedStateMachine], *, campaign: bool) -> None:
    """Raise what a machine finds.  A campaign begins anywhere, and goes on for hours."""
    first = random.randrange(1 << 60) if campaign else 0
    rounds, steps = (ROUNDS_CAMPAIGN, 2 * _STEPS) if campaign else (ROUNDS, _STEPS)
    for number in range(first, first + rounds):
        _run(machine, number, settings(max_examples=_EXAMPLES, stateful_step_count=steps))


def search_planted(machine: type[RuleBasedStateMachine]) -> None:
    """Raise what a machine finds, as soon as it finds it."""
    brief = settings(
        max_examples=_EXAMPLES, stateful_step_count=_STEPS, report_multiple_bugs=False, phases=[Phase.generate]
    )
    for number in range(ROUNDS_PLANTED_MAX):
        _run(machine, number, brief)


def _run(machine: type[RuleBasedStateMachine], number: int, effort: settings) -> None:
    seeded = seed(number)(type(machine.__name__, (machine,), {}))
    quiet = settings(effort, database=None, derandomize=False, suppress_health_check=list(HealthCheck), deadline=None)
    try:
        run_state_machine_as_test(seeded, settings=quiet)
    except BaseException as error:
        error.add_note(f"found by {machine.__name__} with seed {number}")
        raise
