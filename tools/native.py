"""How the native module gets built here: with the cargo that is there, with one to be installed, or not at all.

`decide` is pure.  `gather` asks cargo and the package manager.  Only the standard library.
"""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

Version = tuple[int, ...]
UNATTENDED: Final = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l")
"""Keeps packages of Debian and Ubuntu from asking, behind sudo too, which clears the environment."""
_WAIT_S: Final = 120
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Cargo:
    """A cargo of this machine."""

    path: str
    version: Version | None
    """None: it does not run, like that of rustup without a toolchain."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A package manager: how it names its candidate for cargo, and how it installs what the build needs."""

    program: str
    refresh: tuple[str, ...]
    """Loads the lists of packages, for systems that have none yet."""
    candidate: tuple[str, ...]
    """Prints the version of cargo that `install` would bring."""
    pattern: str
    install: tuple[str, ...]


MANAGERS: Final = (
    Manager(
        program="apt-get",
        refresh=("apt-get", "--quiet", "update"),
        candidate=("apt-cache", "policy", "cargo"),
        pattern=r"Candidate: (\S+)",
        install=("apt-get", "--quiet", "--yes", "install", "--no-install-recommends", "cargo", "gcc", "libc6-dev"),
    ),
    Manager(
        program="dnf",
        refresh=("dnf", "--quiet", "makecache"),
        candidate=("dnf", "--quiet", "repoquery", "--latest-limit", "1", "--qf", "%{version}\n", "cargo"),
        pattern=r"^(\S+)",
        install=("dnf", "--quiet", "--assumeyes", "install", "cargo", "gcc"),
    ),
    Manager(
        program="apk",
        refresh=("apk", "--quiet", "update"),
        candidate=("apk", "search", "--exact", "cargo"),
        pattern=r"cargo-(\S+)",
        install=("apk", "--quiet", "add", "cargo", "gcc", "musl-dev"),
    ),
)


class Step(Enum):
    """What comes next for the native module."""

    BUILD = "build"
    INSTALL = "install"
    """Install cargo first; the user asked for it."""
    ASK = "ask"
    """Ask whether to install cargo, on a terminal."""
    PURE = "pure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What there is to decide from."""

    choice: str
    """What the user said: `install`, `0` or nothing."""
    oldest: Version
    """The oldest Rust that the crate builds with: `rust-version` in Cargo.toml."""
    cargo: Version | None
    """None: there is none, or it does not run."""
    manager: str | None
    candidate: Version | None
    may_install: bool
    """Whether this user is root, or has sudo."""
    is_terminal: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about the native module, and why."""

    step: Step
    reason: str


def decide(facts: Facts) -> Decision:
    """Say what comes next.  Pure."""
    if facts.choice == "0":
        return Decision(Step.PURE, "NATIVE=0")
    if facts.cargo is not None and facts.cargo >= facts.oldest:
        return Decision(Step.BUILD, f"cargo {shown(facts.cargo)}")
    wanted = f"cargo {shown(facts.oldest)} or later"
    missing = f"{wanted} is not here" if facts.cargo is None else f"cargo {shown(facts.cargo)} is here, not {wanted}"
    if facts.candidate is None or facts.candidate < facts.oldest:
        offer = f", and {facts.manager} has {shown(facts.candidate)}" if facts.candidate else ""
        remedy = "install one from https://rustup.rs, then run make setup again"
        if facts.manager and facts.candidate is None and facts.may_install and facts.choice != "install":
            remedy = f"make setup NATIVE=install asks {facts.manager} for one, or {remedy}"  # It may have no lists yet.
        return Decision(Step.PURE, f"{missing}{offer}; {remedy}")
    if not facts.may_install:
        return Decision(Step.PURE, f"{missing}; have root run {facts.manager} install cargo gcc, then make setup again")
    if facts.choice != "install" and not facts.is_terminal:
        return Decision(Step.PURE, f"{missing}; make setup NATIVE=install installs it with {facts.manager}")
    step = Step.INSTALL if facts.choice == "install" else Step.ASK
    return Decision(step, f"{missing}; {facts.manager} has {shown(facts.candidate)}")


def gather(root: Path, choice: str, *, is_terminal: bool) -> Facts:
    """Ask cargo and the package manager; with `install`, its lists are loaded first if they have no cargo."""
    oldest = oldest_rust(root)
    cargo = find_cargo(os.environ, oldest)
    version = cargo.version if cargo else None
    has_cargo = version is not None and version >= oldest
    manager = None if has_cargo or choice == "0" else find_manager()
    candidate = ask_candidate(manager) if manager else None
    may_install = os.geteuid() == 0 or shutil.which("sudo") is not None
    if manager and candidate is None and choice == "install" and may_install:
        subprocess.run(as_root(manager.refresh), capture_output=True, check=False)
        candidate = ask_candidate(manager)
    return Facts(
        choice=choice,
        oldest=oldest,
        cargo=version,
        manager=manager.program if manager else None,
        candidate=candidate,
        may_install=may_install,
        is_terminal=is_terminal,
    )


def install_cargo(run: Callable[[Sequence[str]], object]) -> None:
    """Have `run` install what the build needs into the system, as root."""
    manager = find_manager()
    assert manager is not None
    run(as_root(manager.install))


def find_manager() -> Manager | None:
    """Return the package manager of this system, if we know it."""
    return next((manager for manager in MANAGERS if shutil.which(manager.program)), None)


def ask_candidate(manager: Manager) -> Version | None:
    """Return the version of cargo that a package manager would install, or None."""
    try:
        done = subprocess.run(manager.candidate, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_candidate(manager, done.stdout)


def parse_candidate(manager: Manager, text: str) -> Version | None:
    """Find the version in what a package manager printed.  Pure."""
    found = re.search(manager.pattern, text, re.MULTILINE)
    return parse_version(found[1]) if found else None


def as_root(command: Sequence[str]) -> list[str]:
    """Return a command that root runs without being asked anything, by sudo if need be."""
    return [*([] if os.geteuid() == 0 else ["sudo"]), *UNATTENDED, *command]


def find_cargo(environ: Mapping[str, str], oldest: Version) -> Cargo | None:
    """Return the cargo on the PATH or that of rustup, the first that is new enough; else the first that there is."""
    home = Path(environ.get("CARGO_HOME") or Path(environ.get("HOME", "/")) / ".cargo")
    found: list[Cargo] = []
    for places in (environ.get("PATH"), str(home / "bin")):
        path = shutil.which("cargo", path=places)
        if path is None or path in [one.path for one in found]:
            continue
        one = Cargo(path, cargo_version(path))
        if one.version is not None and one.version >= oldest:
            return one
        found.append(one)
    return found[0] if found else None


def cargo_version(cargo: str) -> Version | None:
    """Return what a cargo says, or None if it does not run (rustup without a toolchain)."""
    try:
        done = subprocess.run([cargo, "--version"], capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else parse_version(done.stdout)


def parse_version(text: str) -> Version | None:
    """Return major and minor of the first version in a text.  Pure."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def oldest_rust(root: Path) -> Version:
    """Return `rust-version` of the crate."""
    package = tomllib.loads((root / "native" / "Cargo.toml").read_text())["package"]
    return tuple(int(part) for part in package["rust-version"].split("."))


def sources(root: Path) -> list[Path]:
    """Return the files that the native module is built from."""
    native = root / "native"
    return sorted([*(native / "src").rglob("*.rs"), native / "Cargo.toml", *native.glob("build.rs")])


def shown(version: Version) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))
