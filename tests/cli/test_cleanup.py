from pathlib import Path

import pytest

import latewood
from tests.cli.shell import complaint, ok, row, rows, run


def segment_files(log: Path) -> list[Path]:
    return sorted(log.glob("segments/*/*/*/*.q"))


def test_without_readers_and_policy_nothing_is_deleted(log: Path) -> None:
    before = segment_files(log)
    result = run("cleanup", log, "--yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing to delete" in result.stderr
    assert segment_files(log) == before


def test_what_every_reader_has_passed_is_deleted(log: Path) -> None:
    third = rows("segments", log)[2]
    ok("readers", "seek", log, "slow", "--sequence", str(third["first_sequence"]), "--create")
    ok("readers", "seek", log, "fast", "--latest", "--create")
    result = run("cleanup", log, "--yes")
    assert "kept for reader slow" in result.stderr
    assert rows("segments", log)[0] == third
    assert len(result.stdout.splitlines()) == 2


def test_a_dry_run_says_what_would_go_and_deletes_nothing(log: Path) -> None:
    ok("tail", log, "--reader", "done")
    before = segment_files(log)
    found = rows("cleanup", log, "--dry-run")
    assert [Path(one["path"]) for one in found] == before[:-1]
    assert {one["deleted"] for one in found} == {False}
    assert segment_files(log) == before


def test_a_dry_run_works_beside_a_writer_and_the_real_one_does_not(log: Path) -> None:
    with latewood.open(log):
        assert rows("cleanup", log, "--dry-run", "--max-bytes", "0")
        line = complaint("cleanup", log, "--yes", "--max-bytes", "0", code=5)
    assert line.startswith(f"{log} is being written by process ")


def test_max_bytes_keeps_that_much(log: Path) -> None:
    found = rows("cleanup", log, "--yes", "--max-bytes", "2KiB")
    assert {one["deleted"] for one in found} == {True}
    assert 0 < row("info", log)["sealed_bytes"] <= 2048
    assert not any(Path(one["path"]).exists() for one in found)


def test_max_age_keeps_what_is_young(log: Path) -> None:
    assert rows("cleanup", log, "--yes", "--max-age", "1h") == []
    assert rows("cleanup", log, "--yes", "--max-age", "0s")


def test_a_silent_reader_can_be_ignored(log: Path) -> None:
    ok("readers", "seek", log, "silent", "--earliest", "--create")
    policy = ["--max-bytes", "0"]
    assert rows("cleanup", log, "--yes", *policy) == []
    assert rows("cleanup", log, "--yes", *policy, "--ignore-readers-silent-for", "1h") == []
    assert rows("cleanup", log, "--yes", *policy, "--ignore-readers-silent-for", "0s")
    assert "are gone" in complaint("tail", log, "--reader", "silent", code=1)


def test_without_a_terminal_it_must_be_told_to_go_ahead(log: Path) -> None:
    line = complaint("cleanup", log, "--max-bytes", "0", code=2)
    assert "--yes" in line
    assert "--dry-run" in line


def test_cleanup_makes_no_log(tmp_path: Path) -> None:
    for flag in ("--yes", "--dry-run"):
        complaint("cleanup", tmp_path / "nothing", flag, code=3)
    assert not (tmp_path / "nothing").exists()


def test_a_sealed_segment_can_be_deleted_once_it_is_read(log: Path) -> None:
    ok("tail", log, "--reader", "done")
    last = row("info", log)["active_segment_id"]
    assert row("seal", log) == {"segment_id": last}
    ok("cleanup", log, "--yes")
    (left,) = rows("segments", log)
    assert (left["segment_id"], left["record_count"], left["first_sequence"]) == (last + 1, 0, 100)


def test_an_empty_segment_is_not_sealed(log: Path) -> None:
    ok("seal", log)
    result = run("seal", log, "--format", "jsonl")
    assert (result.exit_code, result.stdout) == (0, '{"segment_id":null}\n')
    assert "no records" in result.stderr


@pytest.mark.parametrize("flag", ["--dry-run", "--yes"])
def test_if_there_is_nothing_to_delete_it_says_why(log: Path, flag: str) -> None:
    assert "nothing to delete: without readers only --max-bytes and --max-age" in run("cleanup", log, flag).stderr
    assert run("cleanup", log, flag, "--max-age", "1h").stderr == "latewood: there is nothing to delete\n"
    ok("readers", "seek", log, "billing", "--earliest", "--create")
    assert "nothing to delete: all of it is kept for reader billing" in run("cleanup", log, flag).stderr


def test_a_log_without_a_sealed_segment_has_nothing_to_delete(tmp_path: Path) -> None:
    ok("init", tmp_path / "log")
    assert "no segment is sealed yet" in run("cleanup", tmp_path / "log", "--dry-run").stderr
