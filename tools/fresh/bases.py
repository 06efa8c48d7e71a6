"""The bare systems: made by debootstrap once for each suite, and kept in a cache.

A cached system is never entered or changed: rows run in copies.
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.fresh.confinement import run
from tools.fresh.rows import INCLUDED
from tools.fresh.sources import apt_settings
from tools.fresh.trees import remove_tree

_SECONDS_MAX: Final = 1800.0
"""A minute on a fast network; a slow mirror may take this long."""

_SCRIPTS: Final = Path(os.environ.get("DEBOOTSTRAP_DIR", "/usr/share/debootstrap")) / "scripts"
_SCRIPT_OF_THE_NEWEST: Final = "sid"
"""Debian's own name for its newest suite: its script makes those, too, that are newer than debootstrap."""


class BuildError(RuntimeError):
    """Debootstrap failed."""


def base_of(suite: str, cache: Path, mirror: str, environment: Mapping[str, str], log: Path) -> Path:
    """Return the bare system of a suite, made now if the cache has none.

    Raises:
        BuildError: it could not be made.
    """
    base = cache / suite
    if base.is_dir():
        return base
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{suite}.unfinished-", dir=cache))
    try:
        _build(suite, unfinished, mirror, environment, log)
        if not base.is_dir():  # Another run was faster.
            unfinished.rename(base)
    finally:
        remove_tree(unfinished)
    return base


def debootstrap(suite: str, target: Path, mirror: str, scripts: Path = _SCRIPTS) -> list[str]:
    """Return the command that makes a bare system."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(INCLUDED)}", suite, str(target), mirror]
    if (scripts / suite).exists():
        return command
    return [*command, str(scripts / _SCRIPT_OF_THE_NEWEST)]


def _build(suite: str, target: Path, mirror: str, environment: Mapping[str, str], log: Path) -> None:
    target.chmod(0o755)
    with log.open("ab") as output:
        code = run(debootstrap(suite, target, mirror), environment=environment, log=output, seconds_max=_SECONDS_MAX)
    if code:
        raise BuildError(f"debootstrap of {suite} failed with exit code {code}, see {log}")
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    (target / "etc/apt/apt.conf.d/99machine").write_text(apt_settings(dump))
    _forget_downloads(target)


def _forget_downloads(target: Path) -> None:
    """Remove apt's lists and packages, as images of containers do: old lists name packages that are gone by now."""
    for folder in ("var/lib/apt/lists", "var/cache/apt/archives"):
        for path in (target / folder).iterdir():
            if path.is_file() and path.name != "lock":
                path.unlink()
