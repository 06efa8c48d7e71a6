"""The rows of the table: which systems are tried, with which packages, as which user.

A row is one bare Debian system.  Everything that differs between two rows is declared here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INCLUDED: Final = ("python3", "python3-venv", "make", "git", "ca-certificates")
"""What a bare system has beside Debian's smallest set: what the README asks for, and what a `git clone` needs."""

COMMANDS: Final = ("demo", "test")
"""The README's commands, as targets of make.  `setup` runs before them, so that its time is known."""

ROOT: Final = "root"
USER: Final = "latewood"
"""The user whom a row gets that does not run as root."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system to try."""

    name: str
    release: int
    """Of Debian: a key of `SUITES`."""
    packages: tuple[str, ...] = ()
    """Installed by apt beforehand, as the owner of such a machine would have done."""
    user: str = ROOT
    variables: tuple[str, ...] = ()
    """Arguments of every `make`."""


SUITES: Final = {12: "bookworm", 13: "trixie", 14: "forky"}

ROWS: Final = (
    Row("12-bare", 12),
    Row("13-bare", 13),
    Row("13-cargo", 13, packages=("cargo", "gcc", "libc6-dev")),
    Row("14-cargo-java", 14, packages=("cargo", "gcc", "libc6-dev", "openjdk-21-jre-headless")),
    Row("13-install", 13, variables=("NATIVE=install",)),
    Row("12-user", 12, user=USER),
)


class UnknownNameError(ValueError):
    """A row or command was asked for that is not there."""


def chosen_rows(names: str | None) -> list[Row]:
    """Return the rows with these names, separated by commas; all of them for none.

    Raises:
        UnknownNameError: no row has that name.
    """
    wanted = _chosen(names, [row.name for row in ROWS], "row")
    return [row for row in ROWS if row.name in wanted]


def chosen_commands(names: str | None) -> list[str]:
    """Return the commands with these names, separated by commas, in the order of the README; all of them for none.

    Raises:
        UnknownNameError: there is no such command.
    """
    wanted = _chosen(names, COMMANDS, "command")
    return [command for command in COMMANDS if command in wanted]


def _chosen(names: str | None, known: Sequence[str], kind: str) -> set[str]:
    wanted = {name.strip() for name in (names or "").split(",")} - {""}
    unknown = sorted(wanted.difference(known))
    if unknown:
        raise UnknownNameError(f"no {kind} is called {', '.join(unknown)}; there are {', '.join(known)}")
    return wanted or set(known)
