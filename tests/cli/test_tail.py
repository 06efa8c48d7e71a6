from pathlib import Path

import pytest

import latewood
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, row, rows


def sequences(*arguments: str | Path) -> list[int]:
    return [record["sequence"] for record in rows(*arguments)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], range(90, 100)), (["-n", "3"], range(97, 100)), (["-n", "0"], range(0)), (["-n", "5000"], range(100))],
)
def test_tail_prints_the_last_records(log: Path, arguments: list[str], expected: range) -> None:
    assert sequences("tail", log, *arguments) == list(expected)


def test_tail_of_a_cleaned_log_begins_where_the_log_does(log: Path) -> None:
    ok("cleanup", log, "--max-bytes", "0", "--yes")
    with latewood.open(log, mode="r") as opened:
        assert sequences("tail", log, "-n", "5000") == list(range(opened.first_sequence, 100))


def test_tail_knows_raw(log: Path) -> None:
    assert ok("tail", log, "--raw", "-n", "1") == "record 99\n"


def test_a_new_reader_begins_with_the_oldest_record_and_goes_on_where_it_stopped(log: Path) -> None:
    assert sequences("tail", log, "--reader", "billing") == list(range(100))
    assert sequences("tail", log, "--reader", "billing") == []
    ok("append", log, stdin="more\n")
    assert sequences("tail", log, "--reader", "billing") == [100]
    assert row("readers", "ls", log)["sequence"] == 101


def test_a_reader_is_not_told_how_many(log: Path) -> None:
    assert "`latewood readers seek`" in complaint("tail", log, "--reader", "billing", "-n", "3", code=2)


def test_a_reader_that_is_open_elsewhere_is_locked(log: Path) -> None:
    with latewood.open(log, mode="r") as opened, opened.reader("billing"):
        line = complaint("tail", log, "--reader", "billing", code=5)
    assert line.startswith("reader 'billing' is open in process ")


def test_a_name_that_cannot_be_a_file_is_a_usage_error(log: Path) -> None:
    assert "reader name '../up'" in complaint("tail", log, "--reader", "../up", code=2)


def test_a_damaged_reader_is_corruption(log: Path) -> None:
    ok("tail", log, "--reader", "billing")
    path = log / "readers" / "billing.meta"
    for offset in (0, 4096):
        flip(path, offset + 20)
    assert complaint("tail", log, "--reader", "billing", code=4).startswith(f"{path} at byte ")
