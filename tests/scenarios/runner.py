"""Scenario files: rules as text that can be read, run, and written anew.

A file is paragraphs with a blank line between them.  One of `#` lines alone is prose.  Any other is a case:

    # What it shows.
    command name=value
    more input
    ----
    what comes out

The first word picks the command.  A value is a number with an optional unit, or a sum of such: `16MiB+8`, `2h-1ns`.
A field that the command does not ask for is an error, so that a slip of the pen cannot make a case pass.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

REWRITE: Final = "LATEWOOD_REWRITE_SCENARIOS"
HINT: Final = f"If what comes out is right, {REWRITE}=1 pytest tests/scenarios writes it into the file; read the diff."

_RULE: Final = "----"
_UNITS: Final = {
    "": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "ns": 1,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM: Final = re.compile(r"([+-]?)([0-9]+)([A-Za-z]*)")


class ScenarioError(Exception):
    """A case that cannot be run, whatever comes out of it."""


class Line:
    """One line of input: bare words, and fields by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = [word for word in text.split() if "=" not in word]
        pairs = [word.partition("=") for word in text.split() if "=" in word]
        self._fields = {name: value for name, _, value in pairs}
        self._unused = set(self._fields)
        if len(pairs) > len(self._fields):
            raise ScenarioError(f"a field is given twice: {text}")

    def number(self, name: str, default: int | None = None) -> int:
        """Return a field; times are in nanoseconds."""
        found = self.optional(name)
        if found is None and default is None:
            raise ScenarioError(f"{name}= is missing: {self.text}")
        return found if found is not None else default or 0

    def optional(self, name: str) -> int | None:
        """Return a field, or None if it is not given."""
        self._unused.discard(name)
        return number(self._fields[name]) if name in self._fields else None

    def check_all_used(self) -> None:
        """Raise if there is a field that nobody asked for."""
        if self._unused:
            raise ScenarioError(f"no such field: {', '.join(sorted(self._unused))}: {self.text}")

    def over(self, other: "Line") -> "Line":
        """Return the line that has the fields of both; where both have one, this one's counts."""
        fields = other._fields | self._fields
        return Line(" ".join([*other.words, *(f"{name}={value}" for name, value in fields.items())]))


Command = Callable[[list[Line]], list[str]]
"""Takes the lines of input, that of the command first, and returns what comes out."""


class Case(NamedTuple):
    """One case, with the lines of the file that it stands in, counted from 0."""

    start: int
    rule: int
    stop: int
    title: str
    input: list[str]
    expected: list[str]


def number(text: str) -> int:
    """Return the value of a sum of numbers with units."""
    terms = list(_TERM.finditer(text))
    if "".join(term[0] for term in terms) != text or not terms or any(term[3] not in _UNITS for term in terms):
        raise ScenarioError(f"not a number: {text!r}")
    return sum(int(term[1] + term[2]) * _UNITS[term[3]] for term in terms)


def cases(text: str) -> list[Case]:
    """Return the cases of a file."""
    numbered = list(enumerate(text.splitlines()))
    paragraphs = [list(group) for filled, group in groupby(numbered, lambda item: bool(item[1].strip())) if filled]
    found = [_case(paragraph[0][0], [line for _, line in paragraph]) for paragraph in paragraphs]
    return [case for case in found if case]


def _case(start: int, lines: list[str]) -> Case | None:
    remarks = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    if len(remarks) == len(lines):
        return None
    if lines.count(_RULE) != 1:
        raise ScenarioError(f"line {start + 1}: a case has one line {_RULE}, this one {lines.count(_RULE)}")
    rule = lines.index(_RULE)
    given = [line for line in lines[:rule] if not line.startswith("#")]
    if not given:
        raise ScenarioError(f"line {start + 1}: a case without input")
    return Case(start, start + rule, start + len(lines), " ".join(remarks), given, lines[rule + 1 :])


def outcome(case: Case, commands: Mapping[str, Command]) -> list[str]:
    """Run a case and return what comes out."""
    try:
        lines = [Line(text) for text in case.input]
        return _command(lines[0], commands)(lines)
    except ScenarioError as error:
        error.add_note(f"in the case at line {case.start + 1}")
        raise


def _command(line: Line, commands: Mapping[str, Command]) -> Command:
    name = line.words[0] if line.words else ""
    if name not in commands:
        raise ScenarioError(f"no such command: {name!r}")
    return commands[name]


def failures(text: str, commands: Mapping[str, Command]) -> list[str]:
    """Run every case of a file; return what is wrong, a text for each case that is not as expected."""
    found = []
    for case in cases(text):
        actual = outcome(case, commands)
        if actual != case.expected:
            diff = list(difflib.ndiff(case.expected, actual))
            found.append("\n".join([f"line {case.start + 1}: {case.title}", *case.input, _RULE, *diff]))
    return found


def rewritten(text: str, commands: Mapping[str, Command]) -> str:
    """Return the file with what comes out in the place of what was expected, and all else as it was."""
    lines = text.splitlines()
    for case in reversed(cases(text)):
        lines[case.rule + 1 : case.stop] = outcome(case, commands)
    return "".join(f"{line}\n" for line in lines)


def run(path: Path, commands: Mapping[str, Command], environment: Mapping[str, str]) -> None:
    """Check a file, or write it anew if the environment asks for that."""
    text = path.read_text()
    if environment.get(REWRITE) == "1":
        path.write_text(rewritten(text, commands))
        return
    found = failures(text, commands)
    assert not found, "\n\n".join([f"{path.name}: {len(found)} cases are not as expected", *found, HINT])
