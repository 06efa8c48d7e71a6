"""Checking a catalog: every row is read, in a child process, because a damaged file can kill whoever maps it.

Reports every key and value that cannot be read, with its table, and every row that does not agree with the rows that
it is derived from.  Changes nothing, and works beside a writer.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from latewood.errors import UnsupportedVersion

_TIMEOUT_S: Final = 24 * 3600
_PROBLEMS_MAX: Final = 10_000
"""A file with more is damaged enough."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    table: str
    key: str
    """In hexadecimal."""
    reason: str


class TableCount(msgspec.Struct, frozen=True):
    """How many rows of a table were read."""

    table: str
    rows: int


class Later(msgspec.Struct, frozen=True):
    """A later program wrote it."""

    what: str
    version: int


class CheckReport(msgspec.Struct, frozen=True):
    """What a check found."""

    rows: dict[str, int]
    problems: list[Problem]
    death: str = ""
    """How the child process ended, if not by itself; what it had found until then stands above."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and not self.death

    @property
    def summary(self) -> str:
        """One line about it."""
        if self.is_sound:
            return f"all {sum(self.rows.values()):,} rows are sound"
        died = f"; the process that read it died of {self.death}" if self.death else ""
        return f"{len(self.problems):,} problems were found{died}"


def check_file(path: Path) -> CheckReport:
    """Return what a child process finds in a catalog.

    Raises:
        UnsupportedVersion: a later program wrote the catalog, or a row of it.
    """
    command = [sys.executable, "-m", "latewood.catalog.examine", str(path)]
    result = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 - our own
    rows, problems = dict[str, int](), list[Problem]()
    for item in _items(result.stdout):
        if isinstance(item, Later):
            raise UnsupportedVersion(item.what, item.version, path)
        if isinstance(item, TableCount):
            rows[item.table] = item.rows
        elif len(problems) < _PROBLEMS_MAX:
            problems.append(item)
    return CheckReport(rows, problems, _death(result.returncode, result.stderr))


def _items(output: bytes) -> Iterator[Problem | TableCount | Later]:
    for line in output.splitlines():
        try:
            fields = msgspec.json.decode(line, type=dict[str, str | int])
        except msgspec.DecodeError:  # The child died in the middle of it.
            continue
        if "rows" in fields:
            yield msgspec.convert(fields, TableCount)
        elif "version" in fields:
            yield msgspec.convert(fields, Later)
        else:
            yield msgspec.convert(fields, Problem)


def _death(code: int, stderr: bytes) -> str:
    if code < 0:
        return signal.Signals(-code).name
    return "" if code == 0 else stderr.decode(errors="replace").strip()[-500:] or f"exit code {code}"
