"""Warnings of the library as lines of the program: each once, and in a server that runs for long once in a while."""

import logging

import pytest

from latewood.cli.log_lines import _AGAIN_S, _TEXTS_MAX, _Lines, warnings_as_lines


def warn(lines: logging.Handler, text: str, at: float) -> None:
    record = logging.LogRecord("latewood.log", logging.WARNING, __file__, 1, text, None, None)
    record.created = at
    lines.handle(record)


def test_a_warning_is_said_once_and_again_when_it_comes_up_later(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines(logging.WARNING)
    for at in (0.0, 1.0, _AGAIN_S - 1, _AGAIN_S, _AGAIN_S + 1):
        warn(lines, "the disk is full", at)
    warn(lines, "another", 1.0)
    assert capsys.readouterr().err.splitlines() == [
        "latewood: warning: the disk is full",
        "latewood: warning: the disk is full",
        "latewood: warning: another",
    ]


def test_only_so_many_texts_are_remembered() -> None:
    lines = _Lines(logging.WARNING)
    for number in range(3 * _TEXTS_MAX):
        warn(lines, f"warning {number}", 0.0)
    assert len(lines._said) == _TEXTS_MAX


def test_the_program_stops_listening_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("latewood.log")
    with warnings_as_lines():
        logger.warning("heard")
    logger.warning("not heard by us")
    assert capsys.readouterr().err.count("latewood: warning: ") == 1
