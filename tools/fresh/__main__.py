"""`python -m tools.fresh`: run the README's commands in new minimal Debian systems, and print one table.

Each row is a system made by debootstrap, with a fresh clone of what is committed here.  Needs root.  Which rows there
are: tools/fresh/rows.py.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from tools.fresh.bases import BuildError, base_of
from tools.fresh.confinement import PROGRAMS
from tools.fresh.environment import environment_of
from tools.fresh.rows import COMMANDS, ROOT, ROWS, SUITES, Row, UnknownNameError, chosen_commands, chosen_rows
from tools.fresh.sources import read_mirror
from tools.fresh.table import as_json, markdown
from tools.fresh.trial import Outcome, Trial

_REPOSITORY: Final = Path(__file__).parents[2]
_APT: Final = Path("/etc/apt")
_TAIL_LINES: Final = 30
_FREE_BYTES_MIN: Final = 16 << 30
"""A row with cargo takes 6 GiB before its tests, which write some more; the bare systems take 2."""

_UNUSABLE: Final = 2
_INTERRUPTED: Final = 130


def main() -> int:
    """Run every row and print the table; return 1 if a row failed, 2 if none can run here."""
    arguments = _arguments()
    try:
        rows, commands = chosen_rows(arguments.rows), chosen_commands(arguments.commands)
    except UnknownNameError as error:
        return _refuse(str(error))
    mirror = arguments.mirror or os.environ.get("FRESH_MIRROR") or read_mirror(_APT)
    problem = _problem(arguments.cache, mirror)
    if problem or not mirror:
        return _refuse(problem)
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # A shell has background jobs ignore the first.
        signal.signal(ending, _interrupt)
    facts = _machine_facts()
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(_run_all(rows, commands, mirror, arguments.cache, keep=arguments.keep))
    except BuildError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        _say("\ninterrupted\n")
        return _INTERRUPTED
    finally:  # An hour of rows is worth showing, whatever became of the next one.
        if outcomes:
            print((as_json if arguments.format == "json" else markdown)(outcomes, facts))
    return int(any(outcome.failures for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(prog="make fresh", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", metavar="NAME,...", help=f"of {', '.join(row.name for row in ROWS)}; default: all")
    parser.add_argument("--commands", metavar="NAME,...", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--mirror", metavar="URL", help="of Debian; default: FRESH_MIRROR, or the one of apt here")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=caches / "latewood-fresh",
        help="of bare systems; default: %(default)s",
    )
    parser.add_argument("--keep", action="store_true", help="keep the system of each row, to look into it")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    return parser.parse_args()


def _problem(cache: Path, mirror: str | None) -> str:
    """Return in one line what keeps the rows from running here; empty: nothing does."""
    if os.geteuid() != 0:
        return "needs root, to make systems and to enter them: sudo make fresh"
    missing = [program for program in ("debootstrap", "git", "cp", "rm", *PROGRAMS) if not shutil.which(program)]
    if missing:
        return f"needs {', '.join(missing)}; for debootstrap: apt-get install debootstrap"
    if not mirror:
        return f"{_APT} names no mirror of Debian: give one as FRESH_MIRROR"
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    return f"needs {_FREE_BYTES_MIN >> 30} GiB free in {cache}" if free < _FREE_BYTES_MIN else ""


def _run_all(
    rows: Sequence[Row], commands: Sequence[str], mirror: str, cache: Path, *, keep: bool
) -> Iterator[Outcome]:
    """Run one row after another, and yield what became of each."""
    work = _work_directory(cache)
    _say(f"logs are in {work}\n")
    if _git("status", "--porcelain"):
        _say("what is not committed is not tried\n")
    bundle = work / "source.bundle"
    _git("bundle", "create", "--quiet", str(bundle), "HEAD")
    bases = {release: _base(release, cache, mirror, work) for release in sorted({row.release for row in rows})}
    for row in rows:
        outcome = Trial(row, work, os.environ, _say).run(bases[row.release], bundle, commands, keep=keep)
        if outcome.failures:
            _show_end(outcome)
        yield outcome


def _work_directory(cache: Path) -> Path:
    """Make the directory of this run; beside the bare systems, so that copies can share blocks with them."""
    runs = cache / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs))
    work.chmod(0o755)  # Users other than root go through it to their home.
    return work


def _base(release: int, cache: Path, mirror: str, work: Path) -> Path:
    started = time.monotonic()
    _say(f"{f'Debian {release}':14} {'base':9}")
    environment = environment_of(ROOT, "/root", os.environ)
    base = base_of(SUITES[release], cache, mirror, environment, work / f"{SUITES[release]}.log")
    _say(f"{time.monotonic() - started:7.1f} s\n")
    return base


def _show_end(outcome: Outcome) -> None:
    lines = outcome.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    _say("".join(f"  {line}\n" for line in lines))
    _say(f"{outcome.row.name} failed, {', '.join(outcome.failures)}: {outcome.log}\n")


def _machine_facts() -> Mapping[str, str | int]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"commit": _git("rev-parse", "--short", "HEAD"), "cores": os.cpu_count() or 0, "GiB": memory >> 30}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _refuse(problem: str) -> int:
    _say(f"fresh: {problem}\n")
    return _UNUSABLE


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
