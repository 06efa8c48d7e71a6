"""A need that is not met leaves tests out in one line, unless LATEWOOD_REQUIRE asks for it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import needs

ROOT: Final = Path(__file__).parents[1]
CONFTEST: Final = """
import pytest
from tests import needs

needs.NEEDS["native"] = needs.Need(lambda _: "it is not built", "build it")
needs.NEEDS["proc"] = needs.Need(lambda _: "", "mount it")


@pytest.fixture
def native_twin():
    raise AssertionError("no fixture is made for a test that is left out")
"""
TESTS: Final = """
import pytest

@pytest.mark.needs("native")
@pytest.mark.parametrize("number", range(3))
def test_marked(number):
    assert False

def test_fixture(native_twin):
    pass

@pytest.mark.parametrize("kernel", [pytest.param("native", marks=pytest.mark.needs("native")), "pure"])
def test_parameter(kernel):
    assert kernel == "pure"

@pytest.mark.needs("proc")
def test_met():
    pass
"""
LEFT_OUT: Final = "native: 5 tests left out: it is not built; build it"


def run(
    directory: Path, *arguments: str, tests: str = TESTS, require: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests in a project of their own."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LATEWOOD_"))}
    environment["PYTHONPATH"] = str(ROOT)
    if require is not None:
        environment[needs.VARIABLE] = require
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.needs", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_a_need_that_is_not_met_leaves_its_tests_out_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert re.findall("^.*left out: .*$", done.stdout, re.MULTILINE) == [LEFT_OUT]
    assert "2 passed, 5 skipped" in done.stdout


def test_a_skip_that_is_no_need_is_listed_with_its_reason(tmp_path: Path) -> None:
    done = run(tmp_path, tests="import pytest\n\n\ndef test_it():\n    pytest.skip('for fun')\n")
    assert "for fun: 1 test left out" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_a_required_need_that_is_not_met_ends_the_run_before_the_first_test(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run(tmp_path, *arguments, require="proc,native")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "LATEWOOD_REQUIRE: native: it is not built; build it" in done.stderr
    assert "proc" not in done.stderr
    assert "passed" not in done.stdout


def test_required_needs_that_are_met_change_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, require=" proc, ")
    assert done.returncode == pytest.ExitCode.OK
    assert LEFT_OUT in done.stdout


def test_a_required_need_that_there_is_not_ends_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, require="proc,nativ")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "LATEWOOD_REQUIRE: there is no need 'nativ', only native, java, " in done.stderr


def test_a_mark_with_a_need_that_there_is_not_is_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, tests='import pytest\n\n\n@pytest.mark.needs("nativ")\ndef test_it():\n    pass\n')
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "there is no need 'nativ', only native, java, " in done.stdout


def test_every_skip_is_declared_as_a_need() -> None:
    words = re.compile(r"\b(pytest\.(importor)?skip\(|mark\.skip|unittest\.skip|SkipTest)")
    here = {Path(__file__), Path(needs.__file__)}
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path not in here]
    assert not [path for path in paths if words.search(path.read_text())]
