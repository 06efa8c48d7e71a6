import shutil
from pathlib import Path
from typing import Any

import pytest

import latewood
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, row, rows, run


@pytest.fixture
def billing(log: Path) -> Path:
    """Return the file of a reader that stands in the middle of the log."""
    ok("readers", "seek", log, "billing", "--sequence", "50", "--create")
    return log / "readers" / "billing.meta"


@pytest.fixture
def stranger(log: Path, tmp_path: Path) -> Path:
    """Return the log with a reader that has read another one."""
    with latewood.open(tmp_path / "other") as other:
        other.append_many([b"x"] * 30)
        other.reader("billing", "latest").close()
    shutil.copytree(tmp_path / "other" / "readers", log / "readers")
    return log


def damage(reader: Path) -> None:
    for offset in (0, 4096):
        flip(reader, offset + 20)


def test_readers_are_listed_with_their_lag(log: Path, billing: Path) -> None:
    assert billing.exists()
    found = row("readers", "ls", log)
    assert (found["name"], found["sequence"], found["lag"], found["problem"]) == ("billing", 50, 50, None)
    assert found["committed_at_ns"] > 10**18
    assert found["behind_ms"] > 10**12


def test_a_reader_that_has_read_all_is_not_behind(log: Path) -> None:
    ok("tail", log, "--reader", "done")
    assert row("readers", "lag", log, "done") == {"name": "done", "lag": 0, "behind_ms": None}


@pytest.mark.parametrize(("lag_max", "code"), [("49", 1), ("50", 0)])
def test_a_lag_above_the_bound_fails(log: Path, billing: Path, lag_max: str, code: int) -> None:
    assert billing.exists()
    assert run("readers", "lag", log, "--max", lag_max).exit_code == code


@pytest.mark.parametrize(
    ("to", "sequence"),
    [
        (["--sequence", "0"], 0),
        (["--sequence", "100"], 100),
        (["--earliest"], 0),
        (["--latest"], 100),
        (["--time", "1970-01-01T00:00:00.000031Z"], 30),
        (["--time", "1h"], 100),
    ],
)
def test_seek_moves_a_reader_for_good(log: Path, billing: Path, to: list[str], sequence: int) -> None:
    assert billing.exists()
    assert row("readers", "seek", log, "billing", *to) == {
        "name": "billing",
        "sequence_before": 50,
        "sequence": sequence,
        "lag": 100 - sequence,
    }
    assert row("readers", "ls", log)["sequence"] == sequence


@pytest.mark.parametrize(
    "to",
    [
        [],
        ["--earliest", "--latest"],
        ["--latest", "--earliest"],
        ["--earliest", "--sequence", "1"],
        ["--latest", "--sequence", "0"],
        ["--time", "1h", "--sequence", "1"],
    ],
)
def test_seek_wants_one_place(log: Path, to: list[str]) -> None:
    assert "give exactly one of" in complaint("readers", "seek", log, "billing", *to, code=2)


def test_seek_goes_no_further_than_the_end(log: Path, billing: Path) -> None:
    assert billing.exists()
    assert "the log, which ends at 100" in complaint("readers", "seek", log, "billing", "--sequence", "101", code=2)
    assert row("readers", "ls", log)["sequence"] == 50


def test_seek_does_not_go_where_nothing_is_left(log: Path) -> None:
    ok("cleanup", log, "--max-bytes", "0", "--yes")
    line = complaint("readers", "seek", log, "billing", "--sequence", "0", "--create", code=1)
    assert "are gone" in line
    assert rows("readers", "ls", log) == []


@pytest.mark.parametrize("command", [["seek", "--latest"], ["lag"], ["rm", "--yes"]], ids=str)
def test_a_reader_that_is_not_there_is_not_found_and_those_that_are_get_named(
    log: Path, billing: Path, command: list[str]
) -> None:
    assert billing.exists()
    name, *flags = command
    line = complaint("readers", name, log, "biling", *flags, code=3)
    assert line == f"there is no reader 'biling' at {log}; it has billing"


def test_a_damaged_reader_is_listed_among_the_others(log: Path, billing: Path) -> None:
    ok("readers", "seek", log, "audit", "--latest", "--create")
    damage(billing)
    result = run("readers", "ls", log)
    assert result.exit_code == 4
    assert len(result.stdout.splitlines()) == 2
    assert f"{billing} at byte " in result.stderr
    assert "`latewood readers seek`" in result.stderr


def test_a_damaged_reader_stops_deletion(log: Path, billing: Path) -> None:
    damage(billing)
    assert complaint("cleanup", log, "--max-bytes", "0", "--yes", code=4).startswith(str(billing))


def test_seek_mends_a_damaged_reader(log: Path, billing: Path) -> None:
    damage(billing)
    found = row("readers", "seek", log, "billing", "--sequence", "7")
    assert (found["sequence_before"], found["sequence"]) == (None, 7)
    assert row("readers", "ls", log)["sequence"] == 7


def test_rm_forgets_a_reader(log: Path, billing: Path) -> None:
    result = run("readers", "rm", log, "billing", "--dry-run")
    assert result.stderr == "latewood: would remove reader 'billing' (at 50, lag 50)\n"
    assert billing.exists()
    assert "--yes" in complaint("readers", "rm", log, "billing", code=2)
    assert billing.exists()
    ok("readers", "rm", log, "billing", "--yes")
    assert not billing.exists()


def test_rm_forgets_a_damaged_reader(log: Path, billing: Path) -> None:
    damage(billing)
    assert "(damaged)" in run("readers", "rm", log, "billing", "--yes").stderr
    assert rows("readers", "ls", log) == []


@pytest.mark.parametrize("command", [["rm", "--yes"], ["seek", "--latest"]], ids=str)
def test_a_reader_that_is_open_elsewhere_is_left_alone(log: Path, billing: Path, command: list[Any]) -> None:
    assert billing.exists()
    name, *flags = command
    with latewood.open(log, mode="r") as opened, opened.reader("billing"):
        assert "is open in process" in complaint("readers", name, log, "billing", *flags, code=5)


def test_readers_alone_shows_its_commands(log: Path) -> None:
    assert log.exists()
    result = run("readers")
    assert "seek" in result.output
    assert result.exit_code in (0, 2)


def test_a_reader_that_the_log_went_back_behind_is_told_how_to_go_on(log: Path, log_template: Path) -> None:
    ok("append", log, stdin="more\n" * 50)
    ok("tail", log, "--reader", "billing")
    shutil.copytree(log / "readers", log.parent / "readers")
    shutil.rmtree(log)
    shutil.copytree(log_template, log)
    shutil.copytree(log.parent / "readers", log / "readers")
    appended = run("append", log, stdin="new\n" * 80)
    assert appended.exit_code == 0
    assert "warning: " in appended.stderr
    line = complaint("tail", log, "--reader", "billing", code=4)
    assert "the reader stands at 150, and the log went back to 100" in line
    listed = run("readers", "ls", log)
    assert listed.exit_code == 4
    assert f"`latewood readers seek {log} billing --sequence 100`" in listed.stderr
    ok("readers", "seek", log, "billing", "--sequence", "100")
    assert ok("tail", log, "--reader", "billing", "--raw") == "new\n" * 80
    assert run("verify", log).exit_code == 0


def test_the_group_alone_shows_its_help_as_it_is() -> None:
    result = run("readers")
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: latewood readers [OPTIONS] COMMAND")
    assert "\n  seek  Move the reader" in result.stderr


# -- readers of another log ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ls", "lag"])
def test_a_reader_of_another_log_is_shown_with_what_to_do(stranger: Path, command: str) -> None:
    result = run("readers", command, stranger, "--format", "jsonl")
    assert result.exit_code == 4
    assert '"lag":null' in result.stdout.replace(" ", "")
    (line,) = result.stderr.splitlines()
    assert "the position is of the log " in line
    assert f"`latewood readers seek {stranger} billing --earliest`" in line


def test_a_reader_of_another_log_is_mended_as_the_message_says(stranger: Path) -> None:
    assert "the position is of the log" in complaint("cleanup", stranger, "--yes", code=4)
    ok("readers", "seek", stranger, "billing", "--earliest")
    assert row("readers", "lag", stranger)["lag"] == 100
    ok("cleanup", stranger, "--yes")


def test_a_reader_of_another_log_can_be_removed(stranger: Path) -> None:
    result = run("readers", "rm", stranger, "billing", "--yes")
    assert result.exit_code == 0
    assert "removed reader 'billing' (at 30 of another log)" in result.stderr
