"""What the files say of quorums, admission and watermarks is so."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.scenarios.replica_rules import COMMANDS
from tests.scenarios.runner import cases, failures, run

HERE: Final = Path(__file__).parent
FILES: Final = [
    pytest.param(HERE / "admission.txt", marks=pytest.mark.needs("native")),
    HERE / "quorum.txt",
    pytest.param(HERE / "watermarks.txt", marks=pytest.mark.needs("native")),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_rules_are_as_the_file_says(path: Path) -> None:
    run(path, COMMANDS, os.environ)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_wrong_expectation_is_found(path: Path) -> None:
    """Every line of every case counts: a number more in any of them fails."""
    text = path.read_text()
    for case in cases(text):
        for at in range(case.rule + 1, case.stop):
            lines = text.splitlines()
            lines[at] += "0"
            assert len(failures("\n".join(lines) + "\n", COMMANDS)) == 1
