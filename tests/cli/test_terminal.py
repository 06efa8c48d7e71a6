"""What a person sees: tables, colour, questions and progress."""

import re
from pathlib import Path

import pytest

from tests.cli.shell import CTRL_C, ok, on_terminal, row, rows

pytestmark = pytest.mark.slow
BOLD = "\x1b[1m"
CTRL_D = "\x04"
QUESTION = "[y/N]: "


def test_a_terminal_gets_a_table(log: Path) -> None:
    code, shown = on_terminal("info", log, hide=["rich"])
    assert code == 0
    assert shown == ok("info", log, "--format", "table")


def test_a_terminal_gets_records_as_a_table(log: Path) -> None:
    code, shown = on_terminal("tail", log, "-n", "2")
    assert code == 0
    assert shown == ok("tail", log, "-n", "2", "--format", "table")


@pytest.mark.needs("rich")
@pytest.mark.parametrize("command", ["info", "segments"])
def test_rich_draws_where_it_is_installed(log: Path, command: str) -> None:
    code, shown = on_terminal(command, log)
    assert code == 0
    assert BOLD in shown
    assert " KiB" in shown


def test_without_rich_there_is_plain_text(log: Path) -> None:
    code, shown = on_terminal("segments", log, hide=["rich"])
    assert code == 0
    assert shown == ok("segments", log, "--format", "table")


@pytest.mark.parametrize(("width", "missing"), [(80, ["path", "created at"]), (90, ["path"]), (200, [])])
@pytest.mark.parametrize("hide", [["rich"], []], ids=str)
def test_segments_fit_a_narrow_terminal(log: Path, width: int, missing: list[str], hide: list[str]) -> None:
    code, shown = on_terminal("segments", log, hide=hide, columns=width)
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert len(lines) == row("info", log)["segment_count"] + 1
    assert max(len(line.rstrip()) for line in lines) <= width
    assert [name for name in ("path", "created at") if name not in lines[0]] == missing


def test_the_format_can_be_chosen_on_a_terminal_too(log: Path) -> None:
    code, shown = on_terminal("segments", log, "--format", "jsonl")
    assert code == 0
    assert shown == ok("segments", log, "--format", "jsonl")


def test_a_person_types_lines_and_ends_with_ctrl_d(log: Path) -> None:
    code, shown = on_terminal("append", log, typed=f"hello\nworld\n{CTRL_D}", after="")
    assert code == 0
    assert "2 appended and durable, sequences 100 to 101" in shown
    assert [record["payload"] for record in rows("tail", log, "-n", "2")] == ["hello", "world"]


@pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, 1), ("n\n", 1, None), ("\n", 1, None)])
def test_cleanup_asks_before_it_deletes(log: Path, typed: str, code: int, left: int | None) -> None:
    before = row("info", log)["segment_count"]
    found, shown = on_terminal("cleanup", log, "--max-bytes", "0", typed=typed, after=QUESTION)
    assert found == code
    assert f"Delete {before - 1} segments with " in shown
    assert "[y/N]" in shown
    assert row("info", log)["segment_count"] == (left or before)


@pytest.mark.parametrize("typed", [CTRL_C, CTRL_D], ids=["ctrl-c", "ctrl-d"])
def test_a_question_can_be_left(log: Path, typed: str) -> None:
    before = row("info", log)["segment_count"]
    code, shown = on_terminal("cleanup", log, "--max-bytes", "0", typed=typed, after=QUESTION)
    assert code == 130
    assert shown.rpartition(QUESTION)[2].strip() in ("", "^C", "^C^C")
    assert row("info", log)["segment_count"] == before


def test_cleanup_does_not_ask_when_it_is_told_not_to(log: Path) -> None:
    code, shown = on_terminal("cleanup", log, "--max-bytes", "0", "--yes")
    assert code == 0
    assert "[y/N]" not in shown
    assert row("info", log)["segment_count"] == 1


def test_removing_a_reader_is_asked_about(log: Path) -> None:
    ok("readers", "seek", log, "billing", "--earliest", "--create")
    assert on_terminal("readers", "rm", log, "billing", typed="n\n", after=QUESTION)[0] == 1
    assert len(rows("readers", "ls", log)) == 1
    assert on_terminal("readers", "rm", log, "billing", typed="y\n", after=QUESTION)[0] == 0
    assert rows("readers", "ls", log) == []


def test_rebuilding_is_asked_about_and_shows_progress(log: Path) -> None:
    (log / "manifest.current").unlink()
    code, shown = on_terminal("rebuild", log, typed="n\n", after=QUESTION)
    assert code == 1
    assert "rebuild: 1 of " in shown
    assert "Replace the manifest by one of " in shown
    assert "nothing was written" in shown
    assert on_terminal("rebuild", log, typed="y\n", after=QUESTION)[0] == 0
    assert row("verify", log)["is_sound"]


def test_verify_shows_progress_and_cleans_up_after_it(log: Path) -> None:
    code, shown = on_terminal("verify", log, hide=["rich"])
    assert code == 0
    assert "\r\x1b[Kverify: 1 of " in shown
    assert shown.rpartition("\r\x1b[K")[2].startswith("path ")
