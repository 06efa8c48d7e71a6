"""What `make fresh` starts leaves nothing behind: real namespaces, so only where root may make them."""

import os
from pathlib import Path
from typing import Final

import pytest

from tools.fresh.confinement import TIMED_OUT, run

SECONDS_MAX: Final = 60.0
"""How long a program of a test may take; one that ends early is not waited for."""


pytestmark = pytest.mark.needs("confinement")


def confined(script: str, seconds_max: float = SECONDS_MAX) -> tuple[int, bytes]:
    """Run a script; its output ends only when every process that could write to it is dead."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output, os.fdopen(writing, "wb") as log:
        code = run(["sh", "-c", script], environment={"PATH": os.defpath}, log=log, seconds_max=seconds_max)
        log.close()
        return code, output.read()


def test_the_exit_code_is_the_program_s() -> None:
    assert confined("echo said; exit 3") == (3, b"said\n")


def test_a_process_left_in_the_background_dies_with_the_program() -> None:
    assert confined("setsid sleep 1000 & echo started") == (0, b"started\n")


def test_a_program_that_takes_too_long_is_killed_with_its_children() -> None:
    code, _output_that_ended = confined("trap '' TERM INT; setsid sleep 1000 & sleep 1000; true", seconds_max=0.2)
    assert code == TIMED_OUT


def test_a_mount_is_seen_by_the_program_alone(tmp_path: Path) -> None:
    script = f"mount -t tmpfs tmpfs '{tmp_path}' && touch '{tmp_path}/seen' && ls '{tmp_path}'"
    assert confined(script) == (0, b"seen\n")
    assert list(tmp_path.iterdir()) == []
