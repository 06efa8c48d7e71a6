import csv
import io
import json
from pathlib import Path

import pytest

import latewood
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, rows, run


def sequences(*arguments: str | Path) -> list[int]:
    return [record["sequence"] for record in rows(*arguments)]


def test_cat_prints_everything_from_the_oldest_on(log: Path) -> None:
    found = rows("cat", log)
    assert [record["payload"] for record in found] == [f"record {number}" for number in range(100)]
    assert found[0] == {"sequence": 0, "timestamp_ns": 1000, "ext_id": 0, "payload": "record 0"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--start", "97"], [97, 98, 99]),
        (["--stop", "2"], [0, 1]),
        (["--start", "5", "--stop", "7"], [5, 6]),
        (["--start", "7", "--stop", "5"], []),
        (["--start", "100"], []),
        (["--start", "5000"], []),
        (["--stop", "0"], []),
        (["--since", "1970-01-01T00:00:00.000098Z"], [97, 98, 99]),
        (["--since", "0000000098001"], [98, 99]),
        (["--since", "1h"], []),
        (["--since", "1970-01-01", "--stop", "1"], [0]),
    ],
)
def test_a_range_is_printed(log: Path, arguments: list[str], expected: list[int]) -> None:
    assert sequences("cat", log, *arguments) == expected


def test_start_and_since_exclude_each_other(log: Path) -> None:
    assert "exclude" in complaint("cat", log, "--start", "1", "--since", "1h", code=2)


def test_raw_writes_payloads_and_newlines_and_nothing_else(log: Path) -> None:
    ok("append", log, stdin=b"\xff\x00\n\n\xc3\xa9\n")
    assert run("cat", log, "--raw", "--start", "99").stdout_bytes == b"record 99\n\xff\x00\n\n\xc3\xa9\n"


def test_raw_and_format_exclude_each_other(log: Path) -> None:
    assert "exclude" in complaint("cat", log, "--raw", "--format", "csv", code=2)


def test_json_is_one_array(log: Path) -> None:
    assert json.loads(ok("cat", log, "--format", "json")) == rows("cat", log)
    assert json.loads(ok("cat", log, "--format", "json", "--stop", "0")) == []


def test_csv_has_a_column_for_text_and_one_for_base64(log: Path) -> None:
    ok("append", log, stdin=b'say "a, b"\n\xff\n')
    found = list(csv.DictReader(io.StringIO(ok("cat", log, "--format", "csv", "--start", "100"))))
    assert [(one["payload"], one["payload_base64"]) for one in found] == [('say "a, b"', ""), ("", "/w==")]
    assert found[0]["sequence"] == "100"


def test_a_table_is_aligned_and_cannot_command_the_terminal(log: Path) -> None:
    ok("append", log, stdin=b"\x1b[2J\n\xff\n")
    lines = ok("cat", log, "--format", "table", "--start", "98").splitlines()
    assert lines[0].split() == ["sequence", "timestamp", "ext", "id", "payload"]
    assert lines[1].endswith("1970-01-01T00:00:00.000Z         0  record 98")
    assert lines[3].endswith("  \\x1b[2J")
    assert lines[4].endswith("  base64:/w==")
    start = lines[0].index("payload")
    assert {line[start - 2 : start] for line in lines} == {"  "}


def test_an_empty_log_prints_nothing(tmp_path: Path) -> None:
    ok("init", tmp_path / "log")
    assert ok("cat", tmp_path / "log") == ""


def test_records_that_were_retired_are_named_with_where_to_go_on(log: Path) -> None:
    ok("cleanup", log, "--max-bytes", "0", "--yes")
    with latewood.open(log, mode="r") as opened:
        first = opened.first_sequence
    line = complaint("cat", log, "--start", "0", code=1)
    assert f"records 0 to {first - 1} are gone" in line
    assert f"`--start {first}`" in line
    assert sequences("cat", log, "--start", str(first)) == list(range(first, 100))


def test_a_damaged_record_ends_it_with_file_and_byte(log: Path, sealed: Path) -> None:
    flip(sealed, 64 + 24)
    line = complaint("cat", log, code=4)
    assert line.startswith(f"{sealed} at byte 64: ")
    assert "`latewood verify`" in line


def test_what_is_sound_before_the_damage_is_printed(log: Path, sealed: Path) -> None:
    flip(sealed, 64 + 32 + 24)
    result = run("cat", log)
    assert result.exit_code == 4
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == [0]
    assert f"{sealed} at byte 96: " in result.stderr


def test_a_log_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for command in ("cat", "tail", "info", "segments", "seal", "verify"):
        assert str(tmp_path / "nothing") in complaint(command, tmp_path / "nothing", code=3)
    assert not (tmp_path / "nothing").exists()


def test_a_start_below_zero_is_a_usage_error(log: Path) -> None:
    assert "--start" in complaint("cat", log, "--start", "-1", code=2)
