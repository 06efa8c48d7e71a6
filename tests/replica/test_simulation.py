"""Small clusters in a bad world: no seed breaks a promise, and every planted bug is found."""

from typing import Final

import pytest

from latewood.testing import simulate as command
from latewood.testing.simulate import Failure, catch, main, simulate
from latewood.testing.simulate_planted import Bug
from latewood.testing.simulate_world import Outcome

pytest.importorskip("latewood._native")

SEEDS: Final = range(300)
PARTS: Final = 10
CAUGHT_MAX: Final = 150
"""Every planted bug is found by a seed below this."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken(part: int) -> None:
    failures = [run for run in map(simulate, SEEDS[part::PARTS]) if isinstance(run, Failure)]
    assert not failures


@pytest.mark.slow
@pytest.mark.parametrize("bug", Bug)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert catch(bug, range(CAUGHT_MAX)) is not None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_replays_identically(seed: int) -> None:
    first = simulate(seed)
    assert isinstance(first, Outcome)
    assert first == simulate(seed)
    assert first.committed > 0
    assert first.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_promise_is_broken_on_the_real_store(part: int) -> None:
    runs = [simulate(seed, store="log") for seed in range(16)[part::4]]
    assert not [run for run in runs if isinstance(run, Failure)]


def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4:6"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, 0 broken; ")


def test_the_command_fails_if_a_planted_bug_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1:1", "--planted", "double_apply"]) == 1
    assert "double_apply: MISSED" in capsys.readouterr().out
    assert main(["--seeds", "1:2", "--planted", "double_apply"]) == 0
    assert "double_apply: caught by seed 1" in capsys.readouterr().out


def test_the_command_fails_if_a_run_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "simulate", lambda seed, **_: Failure(seed, "on purpose"))
    assert main(["--seeds", "7"]) == 1
