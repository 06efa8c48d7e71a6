"""Scenario files: a comment that says what is shown, the input, `----`, and what comes out."""

from pathlib import Path
from typing import Final, NamedTuple

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class Scenario(NamedTuple):
    """One block of a file."""

    title: str
    input: list[list[str]]
    """Each line as its words."""
    expected: list[str]

    def __str__(self) -> str:
        return self.title


def scenarios(path: Path) -> list[Scenario]:
    """Return the scenarios of a file; what stands before the first one is an introduction."""
    _, *blocks = path.read_text().split("\n# ")
    return [_scenario(block) for block in blocks]


def milliseconds(duration: str) -> int:
    """Return `90s`, `5m` or `2h` in milliseconds."""
    unit = duration.lstrip("0123456789")
    return int(duration.removesuffix(unit)) * _UNITS_MS[unit]


def _scenario(block: str) -> Scenario:
    given, _, expected = block.strip().partition("\n----\n")
    title, *lines = given.splitlines()
    return Scenario(title, [line.split() for line in lines], expected.splitlines())
