"""The commands that only look: info, segments, inspect, and every format of theirs."""

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood.log.listing import list_segments
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, row, rows, run

LISTS = [["segments"], ["readers", "ls"], ["readers", "lag"]]
THINGS = [["info"], ["verify"]]


def test_info_counts_records_segments_and_readers(log: Path) -> None:
    ok("readers", "seek", log, "billing", "--latest", "--create")
    found = row("info", log)
    assert found["record_count"] == found["next_sequence"] == found["durable_sequence"] == 100
    assert found["first_sequence"] == 0
    assert found["segment_count"] == len(list(log.glob("segments/*/*/*/*.q")))
    assert (found["first_timestamp_ns"], found["last_timestamp_ns"]) == (1000, 100_000)
    assert found["segment_bytes_max"] == 1024
    assert found["readers"] == ["billing"]
    assert found["kernel"] in ("native", "pure")


def test_info_of_an_empty_log_has_no_times(tmp_path: Path) -> None:
    ok("init", tmp_path / "log")
    found = row("info", tmp_path / "log")
    assert (found["record_count"], found["first_timestamp_ns"], found["readers"]) == (0, None, [])


def test_segments_are_neighbours(log: Path) -> None:
    found = rows("segments", log)
    assert [one["segment_id"] for one in found] == list(range(len(found)))
    assert {one["state"] for one in found[:-1]} == {"sealed"}
    assert found[-1]["state"] == "open"
    for before, after in pairwise(found):
        assert before["first_sequence"] + before["record_count"] == after["first_sequence"]
        assert before["size_bytes"] == Path(before["path"]).stat().st_size
        assert before["sealed_at_ns"] == after["created_at_ns"]
    assert sum(one["record_count"] for one in found) == 100
    assert found[0]["first_timestamp_ns"] == 1000


def test_segments_are_listed_beside_a_writer(log: Path) -> None:
    with latewood.open(log) as opened:
        opened.append(b"more")
        assert sum(one["record_count"] for one in rows("segments", log)) == 101


def test_segments_that_come_and_go_meanwhile_leave_no_gap(log: Path) -> None:
    with latewood.open(log) as writer, latewood.open(log, mode="r") as opened:
        listing = list_segments(opened)
        found = [next(listing)]
        writer.retention = latewood.RetentionPolicy(max_bytes=2100)
        retired = writer.cleanup()
        writer.seal()
        writer.append(b"more")
        found += listing
    assert retired
    assert [one.segment_id for one in found] == [0, *range(retired[-1] + 1, found[-1].segment_id + 1)]
    assert [one.state for one in found[-2:]] == ["sealed", "open"]
    assert found[-1].first_sequence == 100


def test_a_missing_segment_is_corruption_by_name(log: Path, sealed: Path) -> None:
    sealed.unlink()
    assert str(sealed) in complaint("segments", log, code=4)


def test_inspect_shows_a_sealed_segment(sealed: Path) -> None:
    found = row("inspect", sealed)
    assert (found["state"], found["is_sound"], found["segment_id"]) == ("sealed", True, 0)
    assert found["record_count"] == (found["last_timestamp_ns"] - found["first_timestamp_ns"]) // 1000 + 1


def test_inspect_shows_an_open_segment(log: Path) -> None:
    found = row("inspect", max(log.glob("segments/*/*/*/*.q")))
    assert (found["state"], found["is_sound"]) == ("open", True)
    assert found["record_count"] > 0
    assert "sealed_at_ns" not in found


def test_inspect_looks_at_records_when_it_is_told_to(sealed: Path) -> None:
    flip(sealed, 64 + 24)
    assert row("inspect", sealed)["is_sound"]
    result = run("inspect", sealed, "--deep")
    assert result.exit_code == 4
    assert f"{sealed} at byte 64: " in result.stderr
    assert json.loads(result.stdout)["problem_offset"] == 64


@pytest.mark.parametrize("offset", [0, 16, -1, -100])
def test_inspect_says_where_a_segment_is_not_sound(sealed: Path, offset: int) -> None:
    flip(sealed, offset)
    result = run("inspect", sealed)
    assert result.exit_code == 4
    assert not json.loads(result.stdout)["is_sound"]


def test_inspect_of_a_segment_of_another_version_does_not_call_it_damaged(sealed: Path) -> None:
    flip(sealed, 8)
    assert "upgrade" in complaint("inspect", sealed, code=1)


def test_inspect_of_nothing_is_not_found(tmp_path: Path) -> None:
    assert "nothing.q" in complaint("inspect", tmp_path / "nothing.q", code=3)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("notes.txt", "a file of another kind"),
        ("manifest.1", "a slot of the manifest"),
        ("manifest.current", "the manifest's pointer"),
        ("index.meta", "the checkpoint"),
        ("segments/current.sealed", "the pointer to the latest sealed segment"),
        ("writer.lock", "a lock"),
        ("readers/billing.meta", "a reader's position: `latewood readers ls`"),
        ("", "a log: `latewood info` shows it"),
        ("segments", "a directory"),
    ],
)
def test_inspect_of_another_file_says_what_that_is(log: Path, name: str, role: str) -> None:
    ok("readers", "seek", log, "billing", "--latest", "--create")
    (log / "notes.txt").write_text("hello")
    assert f"{log / name} is not a segment but {role}" in complaint("inspect", log / name, code=2)


def test_inspect_knows_a_segment_by_its_first_bytes_too(sealed: Path) -> None:
    copy = sealed.rename(sealed.with_name("copy"))
    assert row("inspect", copy)["is_sound"]


def test_info_tells_what_is_written_from_what_is_allocated(log: Path) -> None:
    with latewood.open(log, segment_bytes_max=64 * 1024) as opened:
        opened.append(b"x" * 2000)
        files = sum(path.stat().st_size for path in log.glob("segments/**/*.q"))
        found = row("info", log)
    assert found["size_bytes"] == found["sealed_bytes"] + found["active_bytes"]
    assert found["allocated_bytes"] == files > 64 * 1024 > found["size_bytes"]


def by_csv(text: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_a_list_says_the_same_in_every_format(log: Path, command: list[str]) -> None:
    for name in ("billing", "audit"):
        ok("readers", "seek", log, name, "--earliest", "--create")
    lines = rows(*command, log)
    if "behind_ms" in lines[0]:
        lines = [{**line, "behind_ms": None} for line in lines]
    array = [
        {**one, "behind_ms": None} if "behind_ms" in one else one
        for one in json.loads(ok(*command, log, "--format", "json"))
    ]
    assert array == lines
    found = by_csv(ok(*command, log, "--format", "csv"))
    assert [list(one) for one in found] == [list(one) for one in lines]
    assert [one[next(iter(one))] for one in found] == [str(one[next(iter(one))]) for one in lines]
    table = ok(*command, log, "--format", "table").splitlines()
    assert len(table) == len(lines) + 1


@pytest.mark.parametrize("command", THINGS, ids=" ".join)
def test_a_thing_says_the_same_in_every_format(log: Path, command: list[str]) -> None:
    line = row(*command, log)
    assert json.loads(ok(*command, log, "--format", "json")) == line
    assert ok(*command, log, "--format", "json").count("\n") > 5
    table = ok(*command, log, "--format", "table")
    assert table.startswith(f"path  {' ' * (table.index(str(log)) - 6)}{log}\n")


def test_a_thing_in_csv_is_a_heading_and_a_row(log: Path) -> None:
    (found,) = by_csv(ok("info", log, "--format", "csv"))
    assert found["record_count"] == "100"
    assert found["path"] == str(log)


def test_no_rows_leave_the_heading(log: Path) -> None:
    assert ok("readers", "ls", log, "--format", "csv").startswith("name,sequence,lag")
    assert ok("readers", "ls", log, "--format", "table").startswith("name  sequence  lag")
    assert json.loads(ok("readers", "ls", log, "--format", "json")) == []
    assert ok("readers", "ls", log, "--format", "jsonl") == ""


def test_a_table_has_units_that_people_read(log: Path) -> None:
    heading, first, *_ = ok("segments", log, "--format", "table").splitlines()
    assert heading.split()[:4] == ["segment", "id", "state", "first"]
    assert " KiB  20" in first
    assert "Z  " in first
