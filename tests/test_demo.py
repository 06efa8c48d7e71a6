"""The demo tells its story to the end, loses nothing, and cleans up after itself."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

DEMO: Final = Path(__file__).parents[1] / "examples" / "demo.py"
SVG: Final = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the short demo; return how it ended, and a directory with its picture and its temporary files."""
    directory = tmp_path_factory.mktemp("demo")
    (directory / "temporary").mkdir()
    result = subprocess.run(
        [sys.executable, DEMO, "--short", "--output", directory / "picture"],
        env={**os.environ, "TMPDIR": str(directory / "temporary")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return result, directory


def test_the_demo_loses_nothing(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    result, _ = demo
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^lost +0$", result.stdout, re.MULTILINE)
    assert re.search(r"^writer killed with -9 +2 ", result.stdout, re.MULTILINE)
    assert re.search(r"^read by billing +[0-9,]+ +each once, in order$", result.stdout, re.MULTILINE)


def test_the_demo_says_nothing_on_stderr_without_a_terminal(
    demo: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    assert not demo[0].stderr


def test_the_demo_draws_the_log(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    picture = ET.parse(demo[1] / "picture" / "demo-log.svg")  # noqa: S314 - we have drawn it ourselves
    words = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert "billing: has read everything" in words
    assert any(word.startswith("audit: ") for word in words)
    assert len(list(picture.iter(f"{SVG}rect"))) > 3


def test_the_demo_removes_its_temporary_files(demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert not list((demo[1] / "temporary").iterdir())
