import json
from pathlib import Path

import pytest

import latewood
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, row, rows, run


@pytest.mark.parametrize("flags", [[], ["--deep"]])
def test_a_sound_log_is_sound(log: Path, flags: list[str]) -> None:
    found = row("verify", log, *flags)
    assert found["is_sound"]
    assert found["findings"] == []
    assert found["records_checked"] == 100


def test_a_log_that_is_being_written_can_be_verified(log: Path) -> None:
    with latewood.open(log) as opened:
        opened.append(b"more")
        assert row("verify", log, "--deep")["records_checked"] == 101


def test_a_flipped_payload_is_found_deep_down_by_file_and_byte(log: Path, sealed: Path) -> None:
    flip(sealed, 64 + 24)
    assert row("verify", log)["is_sound"]
    result = run("verify", log, "--deep")
    assert result.exit_code == 4
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["severity"], finding["path"], finding["offset"]) == ("damage", str(sealed), 64)
    assert f"latewood: {sealed} at byte 64: " in result.stderr


def test_a_durable_record_that_is_gone_from_the_open_segment_is_damage(log: Path) -> None:
    segment = max(log.glob("segments/*/*/*/*.q"))
    data = bytearray(segment.read_bytes())
    data[104:144] = bytes(40)
    segment.write_bytes(data)
    result = run("verify", log)
    assert result.exit_code == 4
    assert f"{segment} at byte 104: a durable record is damaged" in result.stderr


def test_an_open_segment_without_a_header_is_damage(log: Path) -> None:
    segment = max(log.glob("segments/*/*/*/*.q"))
    segment.write_bytes(segment.read_bytes()[:40])
    assert run("verify", log).exit_code == 4
    for command in ("cat", "info", "append"):
        assert complaint(command, log, code=4, stdin="a\n").startswith(f"{segment} at byte ")


def test_a_missing_open_segment_is_corruption(log: Path) -> None:
    segment = max(log.glob("segments/*/*/*/*.q"))
    segment.unlink()
    for command in ("cat", "tail", "info", "segments", "append", "seal"):
        assert complaint(command, log, code=4, stdin="a\n").startswith(
            f"{segment} at byte 0: the active segment is missing"
        )
    assert run("verify", log).exit_code == 4


def test_damage_is_said_in_every_format(log: Path, sealed: Path) -> None:
    sealed.unlink()
    for name in ("table", "json", "jsonl", "csv"):
        result = run("verify", log, "--format", name)
        assert result.exit_code == 4
        assert str(sealed) in result.stdout
        assert str(sealed) in result.stderr


def test_a_warning_is_no_damage(log: Path) -> None:
    (log / "segments" / "current.sealed").unlink()
    found = row("verify", log)
    assert found["is_sound"]
    assert [finding["severity"] for finding in found["findings"]] == ["warning"]


@pytest.mark.parametrize(
    "command", [["info"], ["cat"], ["tail"], ["segments"], ["append"], ["seal"], ["init"]], ids=str
)
def test_a_corrupt_manifest_stops_every_command_and_names_the_cure(log: Path, command: list[str]) -> None:
    slot = log / f"manifest.{(log / 'manifest.current').read_bytes()[0]}"
    flip(slot, 10)
    line = complaint(*command, log, code=4, stdin="a\n")
    assert line.startswith(f"{slot} at byte ")
    assert "`latewood rebuild`" in line


def test_a_corrupt_manifest_is_rebuilt(log: Path) -> None:
    before = ok("cat", log)
    (log / "manifest.current").unlink()
    assert run("verify", log).exit_code == 4
    look = run("rebuild", log, "--dry-run")
    assert look.exit_code == 0
    assert json.loads(look.stdout)["written"] is False
    assert run("verify", log).exit_code == 4
    assert "--yes" in complaint("rebuild", log, code=2)
    done = run("rebuild", log, "--yes")
    assert done.exit_code == 0
    assert "`latewood verify --deep`" in done.stderr
    assert json.loads(done.stdout)["problems"] == []
    assert row("verify", log, "--deep")["is_sound"]
    assert ok("cat", log) == before


def test_a_missing_segment_needs_consent(log: Path) -> None:
    second = sorted(log.glob("segments/*/*/*/*.q"))[1]
    second.unlink()
    (log / "manifest.current").unlink()
    result = run("rebuild", log, "--yes")
    assert result.exit_code == 4
    assert "are missing before it" in result.stderr
    assert "--accept-loss" in result.stderr
    assert len(json.loads(result.stdout)["problems"]) == 1
    assert run("rebuild", log, "--dry-run", "--accept-loss").exit_code == 4
    assert run("rebuild", log, "--yes", "--accept-loss").exit_code == 0
    assert ok("tail", log, "-n", "1", "--raw") == "record 99\n"


@pytest.mark.parametrize("lost", ["manifest.current", "index.meta", None])
def test_a_missing_newest_segment_needs_consent_as_long_as_anything_remembers_it(log: Path, lost: str | None) -> None:
    newest = max(log.glob("segments/*/*/*/*.q"))
    first = rows("segments", log)[-1]["first_sequence"]
    newest.unlink()
    if lost:
        (log / lost).unlink()
    for flag in ("--dry-run", "--yes"):
        result = run("rebuild", log, flag)
        assert result.exit_code == 4
        assert f"records {first} to 99, which were durable, are missing" in result.stderr
    assert run("rebuild", log, "--yes", "--accept-loss").exit_code == 0


def test_a_torn_tail_needs_no_consent(log: Path) -> None:
    newest = max(log.glob("segments/*/*/*/*.q"))
    end = row("info", log)["active_bytes"]
    flip(newest, end + 4)
    (log / "manifest.current").unlink()
    assert run("rebuild", log, "--yes").exit_code == 0
    ok("append", log, stdin="more\n")
    assert ok("tail", log, "-n", "2", "--raw") == "record 99\nmore\n"


def test_a_log_that_is_being_written_is_not_rebuilt(log: Path) -> None:
    with latewood.open(log):
        assert "is being written by process" in complaint("rebuild", log, "--yes", code=5)


def test_there_must_be_something_to_rebuild_from(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no segments" in complaint("rebuild", tmp_path / "empty", "--dry-run", code=3)


def test_rebuild_makes_nothing_where_nothing_is(tmp_path: Path) -> None:
    complaint("rebuild", tmp_path / "nothing", "--yes", code=3)
    assert not (tmp_path / "nothing").exists()
