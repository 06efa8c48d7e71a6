"""The campaign of faults on real processes, in short; and that it says so when something is wrong."""

import json
from pathlib import Path

import pytest

from tests.replica import campaign
from tests.replica.checking import WrongError

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]


def test_a_short_campaign_breaks_no_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    totals = tmp_path / "totals.json"
    faults = "kill-leader,cut-leader,flip-partition,fill-disk"
    flags = ["--operations", "1", "--rounds", "4", "--seed", "5", "--faults", faults, "--totals", str(totals)]
    flags += ["--writers", "2", "--batch", "5"]
    assert campaign.main(flags) == 0, capsys.readouterr().out
    found = json.loads(totals.read_text())
    assert sorted(found["faults"]) == sorted(faults.split(","))
    assert found["operations"] > 0
    assert not found["failures"]
    before = totals.read_text()
    assert campaign.main(flags) == 0, "there is nothing left to do"
    assert totals.read_text() == before


def test_a_broken_promise_is_counted_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise WrongError("it was lost")

    monkeypatch.setattr(campaign, "play", broken)
    totals = tmp_path / "totals.json"
    assert campaign.main(["--operations", "1", "--seed", "3", "--totals", str(totals)]) == 1
    assert "seed 3: WrongError: it was lost" in capsys.readouterr().out
    found = json.loads(totals.read_text())
    assert (found["operations"], len(found["failures"])) == (0, 1)
