"""A stream's planning process ends without a word."""

import subprocess
import sys
from typing import Final

import pytest

from latewood.spark.farewell import leave_quietly, quiet_hook

_PROGRAM: Final = """
import sys
from types import SimpleNamespace
from latewood.spark.farewell import leave_quietly
sys.modules["__main__"].__spec__ = SimpleNamespace(name=sys.argv[1])
leave_quietly()
raise {"pipe": BrokenPipeError, "other": ValueError}[sys.argv[2]]
"""
_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


@pytest.mark.parametrize(
    ("main", "error", "is_told"),
    [(_RUNNER, "pipe", False), (_RUNNER, "other", True), ("somebody.else", "pipe", True)],
)
def test_only_a_connection_that_is_gone_is_not_told_of(main: str, error: str, *, is_told: bool) -> None:
    command = [sys.executable, "-c", _PROGRAM, main, error]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("Error" in done.stderr) == is_told
    assert done.returncode == 1


def test_a_program_of_the_users_own_is_left_alone() -> None:
    leave_quietly()
    assert sys.excepthook is not quiet_hook
