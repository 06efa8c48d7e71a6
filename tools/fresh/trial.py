"""One row: a bare system is copied, gets its packages and the source, and runs the commands.

A phase that fails ends the row, except for a command: the next command is tried all the same.
"""

import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tools.fresh.confinement import TIMED_OUT, run_inside
from tools.fresh.environment import bundle_of, environment_of
from tools.fresh.facts import ASK, Facts, brought, parse
from tools.fresh.rows import ROOT, Row
from tools.fresh.tally import Tally, tally
from tools.fresh.trees import copy_tree, furnish, remove_tree

SECONDS_MAX: Final = {
    "packages": 1800.0,
    "user": 60.0,
    "source": 300.0,
    "setup": 3600.0,
    "demo": 1800.0,
    "test": 7200.0,
}
"""When a phase is given up: three times and more what it takes on two cores, with a slow network."""

_ASK_SECONDS_MAX: Final = 60.0
_BUNDLE: Final = "var/tmp/latewood.bundle"
_SETUP_LOG: Final = ".venv/setup.log"
_INSTALL: Final = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends"
_CLONE: Final = "git -c advice.detachedHead=false -c init.defaultBranch=main clone --quiet"
_ADD_USER: Final = "useradd --create-home --shell /bin/bash"


class Phase(NamedTuple):
    """One command that ran in the system."""

    name: str
    seconds: float
    exit_code: int


@dataclass(slots=True)
class Outcome:
    """What became of a row, so far."""

    row: Row
    log: Path
    before: Facts = field(default_factory=Facts)
    brought: list[str] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    tests: Tally = field(default_factory=Tally)

    @property
    def failures(self) -> list[str]:
        """What went wrong, in order; empty: nothing did."""
        codes = ((phase.name, phase.exit_code) for phase in self.phases if phase.exit_code)
        return [f"{name}: {'out of time' if code == TIMED_OUT else f'exit {code}'}" for name, code in codes]


class Trial:
    """Runs one row.  It owns the row's tree and its log, which hold all that the row wrote."""

    def __init__(self, row: Row, work: Path, machine: Mapping[str, str], say: Callable[[str], object]) -> None:
        self._row = row
        self._root = work / row.name
        self._home = "/root" if row.user == ROOT else f"/home/{row.user}"
        self._machine = machine
        self._say = say
        self._outcome = Outcome(row, work / f"{row.name}.log")

    def run(self, base: Path, bundle: Path, commands: Sequence[str], *, keep: bool) -> Outcome:
        """Run the phases, whatever they end with, and remove the tree unless it is to be kept."""
        try:
            with self._timed("copy"):
                copy_tree(base, self._root)
            if self._prepare(bundle) and self._set_up():
                for command in commands:
                    output = self._phase(command, self._make(command))
                    if command == "test":
                        self._outcome.tests = tally(output)
        finally:
            if not keep:
                remove_tree(self._root)
        return self._outcome

    def _prepare(self, bundle: Path) -> bool:
        """Bring the packages, the user and the source of the row; return whether all are there."""
        row = self._row
        if row.packages:
            self._phase("packages", f"{_INSTALL} {shlex.join(row.packages)}", user=ROOT)
        if row.user != ROOT:
            self._phase("user", f"{_ADD_USER} {row.user}", user=ROOT)
        if not self._outcome.failures:
            shutil.copyfile(bundle, self._root / _BUNDLE)
            self._phase("source", f"{_CLONE} /{_BUNDLE} ~/latewood")
        return not self._outcome.failures

    def _set_up(self) -> bool:
        self._outcome.before = self._facts()
        self._phase("setup", self._make("setup"))
        source = self._root / self._home.lstrip("/") / "latewood"
        self._keep(source / _SETUP_LOG)
        self._outcome.brought = brought(self._outcome.before, self._facts(), source)
        return not self._outcome.failures

    def _keep(self, log: Path) -> None:
        """Add a log that a command wrote to that of the row."""
        if log.is_file():
            with self._outcome.log.open("ab") as whole:
                whole.write(f"\n# {log.name}\n".encode() + log.read_bytes())

    def _facts(self) -> Facts:
        return parse(self._logged(ASK, self._row.user, _ASK_SECONDS_MAX)[1])

    def _make(self, target: str) -> str:
        return f"cd ~/latewood && make {shlex.join([target, *self._row.variables])}"

    def _phase(self, name: str, script: str, user: str = "") -> str:
        """Run a script as one phase of the row and return its output."""
        started = time.monotonic()
        with self._timed(name):
            code, output = self._logged(script, user or self._row.user, SECONDS_MAX[name])
        self._outcome.phases.append(Phase(name, time.monotonic() - started, code))
        return output

    def _logged(self, script: str, user: str, seconds_max: float) -> tuple[int, str]:
        """Run a script in the system; its output is appended to the log, and returned with its exit code."""
        furnish(self._root, bundle_of(self._machine))
        home = "/root" if user == ROOT else self._home
        with self._outcome.log.open("ab") as log:
            log.write(f"\n$ {script.splitlines()[0]}\n".encode())
            log.flush()
            start = log.tell()
            code = run_inside(
                self._root,
                ["sh", "-c", script],
                user=user,
                environment=environment_of(user, home, self._machine),
                log=log,
                seconds_max=seconds_max,
            )
        with self._outcome.log.open("rb") as log:
            log.seek(start)
            return code, log.read().decode(errors="replace")

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Say on one line which phase runs, and how long it took."""
        started = time.monotonic()
        self._say(f"{self._row.name:14} {phase:9}")
        try:
            yield
        finally:
            self._say(f"{time.monotonic() - started:7.1f} s\n")
