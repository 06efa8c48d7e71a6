"""The demo of a cluster tells its story to the end, loses nothing, and cleans up after itself."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

DEMO: Final = Path(__file__).parents[1] / "examples" / "cluster.py"


def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, DEMO, "--short"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "is killed with -9" in result.stdout
    assert re.search(r"^lost +0$", result.stdout, re.MULTILINE)
    assert re.search(r"^nodes alike +yes$", result.stdout, re.MULTILINE)
    assert not list(tmp_path.iterdir())
