"""Small clusters in a bad world: no seed breaks a promise, and every planted bug is found."""

from typing import Final

import pytest

from latewood.testing import simulate as command
from latewood.testing.simulate import Failure, Store, catch, main, simulate
from latewood.testing.simulate_planted import LOG_ONLY, Bug
from latewood.testing.simulate_truth import Truth, Violation
from latewood.testing.simulate_world import Outcome

MODEL_SEEDS: Final = range(200)
LOG_SEEDS: Final = range(40)
PARTS: Final = 10
CAUGHT_MAX: Final = 120
"""Every planted bug is found by a seed below this."""

OURS: Final = [
    Bug.ROLL_BACK_RECOVERY,
    Bug.FORWARD_AT_FSYNC,
    Bug.DOUBLE_APPLY,
    Bug.TRUNCATE_PENDING,
    Bug.TRUNCATE_UNFLUSHED,
    Bug.INDEX_FROM_COMMIT,
    Bug.SNAPSHOT_BEHIND,
    Bug.COMPACT_PAST_SNAPSHOT,
    Bug.DROP_UNDECIDED,
    Bug.TRUST_PARTITIONS,
]
"""Those that lie in logs, partitions and recovery, not in how the engine is driven."""


@pytest.mark.needs("native")
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken(part: int) -> None:
    failures = [run for seed in LOG_SEEDS[part::PARTS] if isinstance(run := simulate(seed), Failure)]
    assert not failures


@pytest.mark.needs("native")
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken_on_a_model_of_a_disk(part: int) -> None:
    runs = [simulate(seed, store="model") for seed in MODEL_SEEDS[part::PARTS]]
    assert not [run for run in runs if isinstance(run, Failure)]


@pytest.mark.needs("native")
@pytest.mark.slow
@pytest.mark.parametrize("bug", OURS)
def test_a_bug_of_ours_is_caught(bug: Bug) -> None:
    assert catch(bug, range(CAUGHT_MAX)) is not None


@pytest.mark.needs("native")
@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in Bug if bug not in LOG_ONLY])
def test_a_planted_bug_is_caught_on_a_model_of_a_disk(bug: Bug) -> None:
    assert catch(bug, range(CAUGHT_MAX), "model") is not None


@pytest.mark.needs("native")
@pytest.mark.slow
@pytest.mark.parametrize("store", ["log", "model"])
@pytest.mark.parametrize("seed", [7, 8])
def test_a_seed_replays_identically(seed: int, store: Store) -> None:
    first = simulate(seed, store=store)
    assert isinstance(first, Outcome)
    assert first == simulate(seed, store=store)
    assert first.trace != 0
    assert first.committed > 0
    assert first.acknowledged > 0


def test_two_leaders_of_one_term_are_noticed() -> None:
    truth = Truth(1)
    truth.lead(1, 5)
    truth.lead(1, 5)
    with pytest.raises(Violation, match="both lead in term 5"):
        truth.lead(2, 5)


@pytest.mark.needs("native")
def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4:6", "--store", "model"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, 0 broken; ")


@pytest.mark.needs("native")
def test_the_command_fails_if_a_planted_bug_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["--store", "model", "--planted", "double_apply"]
    assert main(["--seeds", "1:1", *model]) == 1
    assert "double_apply: MISSED" in capsys.readouterr().out
    assert main(["--seeds", "1:9", *model]) == 0
    assert "double_apply: caught by seed" in capsys.readouterr().out


def test_the_command_fails_if_a_run_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "simulate", lambda seed, **_: Failure(seed, "on purpose"))
    assert main(["--seeds", "7"]) == 1
