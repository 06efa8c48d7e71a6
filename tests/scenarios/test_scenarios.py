"""Runs the scenario files, and sees to it that a wrong one fails."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.scenarios.rules import COMMANDS
from tests.scenarios.runner import REWRITE, Line, ScenarioError, cases, failures, number, rewritten, run

FILES: Final = sorted(Path(__file__).parent.glob("*_rules.txt"))

RIGHT: Final = """\
# Prose.

# The oldest goes first.
plan max_bytes=100
segment 0 last=9
segment 1 last=19
----
retire 0

# An exact fit.
fits segment=512
payload=424
----
payload=424: fits
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_rules_are_as_the_file_says(path: Path) -> None:
    run(path, COMMANDS, os.environ)


def test_every_command_has_a_case() -> None:
    used = {case.input[0].split()[0] for path in FILES for case in cases(path.read_text())}
    assert used == COMMANDS.keys()


# -- a wrong file -----------------------------------------------------------------------------------------


def test_right_expectations_pass() -> None:
    assert failures(RIGHT, COMMANDS) == []


def test_a_wrong_expectation_is_shown_beside_what_came_out() -> None:
    (failure,) = failures(RIGHT.replace("retire 0", "retire 1"), COMMANDS)
    assert failure.startswith("line 3: The oldest goes first.\nplan max_bytes=100\n")
    assert "\n- retire 1\n" in failure
    assert "\n+ retire 0\n" in failure


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("retire 0\n", ""), ("retire 0\n", "retire 0\nheld by nobody\n"), ("424: fits", "424: fits "), ("fits\n", "")],
)
def test_a_line_too_few_or_too_many_or_not_quite_the_same_is_wrong(right: str, wrong: str) -> None:
    assert len(failures(RIGHT.replace(right, wrong), COMMANDS)) >= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_case_of_a_file_fails_once_its_expectation_is_wrong(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    for case in cases(text):
        lines[case.rule + 1] += " not"
    assert len(failures("\n".join(lines), COMMANDS)) == len(cases(text))


def test_a_failing_file_says_how_to_write_it_anew(tmp_path: Path) -> None:
    path = tmp_path / "planted.txt"
    path.write_text(RIGHT.replace("retire 0", "retire 1"))
    with pytest.raises(AssertionError, match=f"planted.txt: 1 cases(?s:.*){REWRITE}=1 pytest tests/scenarios"):
        run(path, COMMANDS, {})


# -- writing it anew --------------------------------------------------------------------------------------


def test_a_wrong_file_is_mended_when_the_environment_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "planted.txt"
    path.write_text(RIGHT.replace("retire 0", "retire 1\nand more").replace("payload=424: fits\n", ""))
    run(path, COMMANDS, {REWRITE: "1"})
    assert path.read_text() == RIGHT


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_right_file_is_left_as_it_is(path: Path) -> None:
    assert rewritten(path.read_text(), COMMANDS) == path.read_text()


# -- slips of the pen -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("plan\nretire nothing", "has one line ----, this one 0"),
        ("plan\n----\nretire nothing\n----", "has one line ----, this one 2"),
        ("# Nothing.\n----\nretire nothing", "a case without input"),
        ("plans\n----\nx", "no such command: 'plans'"),
        ("max_bytes=1\n----\nx", "no such command: ''"),
        ("plan max_byte=1\n----\nx", "no such field: max_byte"),
        ("plan\nsegment 0 last=1 size=2\n----\nx", "no such field: size"),
        ("plan\nsegment 0\n----\nx", "last= is missing"),
        ("plan\nreaders a at=1\n----\nx", "neither segment nor reader"),
        ("fits segment=512\npayload=1 payloads=2\n----\nx", "no such field: payloads"),
        ("fits segment=512 payload=1 payload=2\n----\nx", "given twice"),
        ("fits segment=512\npayload=1 KB\n----\nx", "no bare word: KB"),
        ("fits segment=512 payload=1KB\n----\nx", "not a number: '1KB'"),
    ],
)
def test_a_slip_of_the_pen_is_an_error_and_not_a_case(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        failures(text, COMMANDS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("64", 64),
        ("1MiB+64", 1_048_640),
        ("2KiB-8", 2040),
        ("-1ms", -1_000_000),
        ("2h+1ns", 7_200 * 10**9 + 1),
    ],
)
def test_a_number_is_a_sum_with_units(text: str, value: int) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["", "MiB", "1 MiB", "1.5MiB", "1MiB*2", "x"])
def test_anything_else_is_no_number(text: str) -> None:
    with pytest.raises(ScenarioError, match="not a number"):
        number(text)


def test_a_row_goes_before_the_line_of_its_command() -> None:
    line = Line("payload=1").over(Line("fits payload=2 segment=512"))
    assert (line.number("payload"), line.number("segment")) == (1, 512)
