"""A log in a process that runs out of memory: MemoryError, never a panic, an abort or a hang, and nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.low_memory import ROOMS, WORK
from tests.runtime.disk import quick_disk

SECONDS_MAX = 300


@pytest.mark.needs("proc")
@pytest.mark.parametrize("work", WORK)
def test_a_process_without_memory_gets_an_error_that_it_can_catch_and_loses_nothing(tmp_path: Path, work: str) -> None:
    with quick_disk(tmp_path) as directory:
        done = subprocess.run(
            [sys.executable, "-m", "tests.log.low_memory", directory, work],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "RUST_BACKTRACE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
    assert not done.returncode, done.stderr
    outcomes = [line.split(", ", 2)[2] for line in done.stdout.splitlines()]
    assert len(outcomes) == len(ROOMS), done.stderr
    assert set(outcomes) <= {"MemoryError, usable", "MemoryError, poisoned", "done, usable"}, done.stdout + done.stderr
    assert outcomes[0].startswith("MemoryError"), "there was memory"
    assert outcomes[-1] == "done, usable", "there was none"
