"""Commands that enqueue jobs of a store, run them, and show what is there."""

import json
from pathlib import Path

import pytest

from latewood.runtime import Store
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, on_terminal, row, rows, run
from tests.cli.store_kit import expected, fill, job_states, make_store, payloads, residencies

JOBS = ("flush", "compact", "archive", "hydrate", "evict", "retain")
CONFIRMED = ("evict", "retain")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a store with an archive and 50 records."""
    root = make_store(tmp_path / "lake", archive=True)
    fill(root, range(50))
    return root


def confirmed(command: str) -> list[str]:
    return [command, "--yes"] if command in CONFIRMED else [command]


def test_records_go_through_every_tier_and_are_read_from_each(lake: Path) -> None:
    found = rows("flush", lake, "--wait")
    assert job_states(found) == [("flush", "clicks", "completed"), ("checkpoint", "clicks", "completed")]
    assert residencies(lake) == {"local"}
    assert payloads(lake) == expected(range(50))
    ok("archive", lake / "clicks", "--wait")
    assert residencies(lake) == {"local+remote"}
    ok("evict", lake, "clicks", "--wait", "--yes")
    assert residencies(lake) == {"remote"}
    assert payloads(lake) == expected(range(50))
    assert row("db", "ls", lake)["local_bytes"] == 0
    ok("hydrate", lake, "--wait")
    assert residencies(lake) == {"local+remote"}
    assert payloads(lake) == expected(range(50))


def test_without_wait_jobs_wait_for_a_worker(lake: Path) -> None:
    assert job_states(rows("flush", lake)) == [("flush", "clicks", "pending"), ("checkpoint", "clicks", "pending")]
    assert rows("chunks", "ls", lake) == []
    result = run("flush", lake, "--keep-log", "--format", "jsonl")
    assert "waits already: job 1" in result.stderr
    assert json.loads(result.stdout)["job_id"] == 1
    found = rows("work", lake, "--once")
    assert [one["outcome"] for one in found] == ["completed", "completed"]
    assert len(rows("chunks", "ls", lake)) == 2


@pytest.mark.parametrize("command", JOBS)
def test_every_job_is_of_all_databases_or_of_those_named(lake: Path, command: str) -> None:
    ok("db", "create", lake, "views")
    ok("db", "create", lake, "likes")
    call, rest = confirmed(command)[0], confirmed(command)[1:]
    assert [one["database"] for one in rows(call, lake, "views", "likes", "--wait", *rest)][:2] == ["views", "likes"]
    assert {one["database"] for one in rows(call, lake, "--wait", *rest)} == {"clicks", "views", "likes"}
    assert {one["database"] for one in rows(call, lake / "likes", "--wait", *rest)} == {"likes"}
    assert "there is no database 'none'" in complaint(call, lake, "none", *rest, code=3)
    assert "there is no store" in complaint(call, lake.parent / "sea", *rest, code=3)


@pytest.mark.parametrize("command", ["archive", "evict", "hydrate"])
def test_without_an_archive_there_is_nothing_to_enqueue(tmp_path: Path, command: str) -> None:
    lake = make_store(tmp_path / "lake")
    line = complaint(confirmed(command)[0], lake, *confirmed(command)[1:], code=2)
    assert line == f"the store has no archive; set archive.url in {lake / 'latewood.toml'}, or LATEWOOD_ARCHIVE_URL"
    assert rows("jobs", "ls", lake) == []


def test_the_archive_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_store(tmp_path / "lake")
    fill(lake, range(5))
    monkeypatch.setenv("LATEWOOD_ARCHIVE_URL", str(tmp_path / "attic"))
    ok("flush", lake, "--wait")
    ok("archive", lake, "--wait")
    assert len(list((tmp_path / "attic").rglob("*.parquet"))) == len(rows("chunks", "ls", lake)) > 0


def test_flush_can_leave_open_segments_and_the_log_alone(lake: Path) -> None:
    rows("flush", lake, "--wait", "--sealed-only")
    assert rows("chunks", "ls", lake) == []
    assert [one["kind"] for one in rows("flush", lake, "--wait", "--keep-log")] == ["flush"]
    assert {shard["log_first_sequence"] for shard in row("db", "info", lake / "clicks")["shards"]} == {0}
    rows("flush", lake, "--wait")
    assert all(shard["log_first_sequence"] for shard in row("db", "info", lake / "clicks")["shards"])


def test_compact_makes_one_of_many(lake: Path) -> None:
    for start in range(50, 80, 10):
        ok("flush", lake, "--wait")
        fill(lake, range(start, start + 10))
    ok("flush", lake, "--wait")
    before = len(rows("chunks", "ls", lake))
    ok("compact", lake, "--wait")
    assert len(rows("chunks", "ls", lake)) == 2 < before
    assert len(rows("chunks", "ls", lake, "--all")) > 2
    assert len(rows("chunks", "ls", lake, "--shard", "1")) == 1
    assert payloads(lake) == expected(range(80))


def test_evict_and_retain_look_first(tmp_path: Path) -> None:
    lake = make_store(tmp_path / "lake", "--retain-bytes", "1", archive=True)
    fill(lake, range(50))
    ok("flush", lake, "--wait")
    assert rows("evict", lake, "--dry-run") == []  # Nothing is archived, so nothing may go.
    ok("archive", lake, "--wait")
    assert [one["chunk_id"] for one in rows("evict", lake, "--dry-run")] == [1, 2]
    assert rows("evict", lake, "--dry-run", "--due-only") == []
    assert [one["chunk_id"] for one in rows("retain", lake, "--dry-run")] == [1, 2]
    assert "--yes" in complaint("evict", lake, code=2)
    assert "--yes" in complaint("retain", lake, code=2)
    assert residencies(lake) == {"local+remote"}
    ok("retain", lake, "--yes", "--wait")
    assert rows("chunks", "ls", lake) == []
    assert payloads(lake) == []


def test_retain_keeps_what_a_reader_wants(tmp_path: Path) -> None:
    lake = make_store(tmp_path / "lake", "--retain-bytes", "1")
    fill(lake, range(50))
    ok("readers", "seek", lake / "clicks", "etl", "--earliest", "--create")
    ok("flush", lake, "--wait")
    assert rows("retain", lake, "--dry-run") == []
    ok("retain", lake, "--yes", "--wait")
    assert payloads(lake) == expected(range(50))


@pytest.mark.slow
def test_evict_asks(lake: Path) -> None:
    ok("flush", lake, "--wait")
    ok("archive", lake, "--wait")
    code, shown = on_terminal("evict", lake, "--wait", typed="n\n", after="?")
    assert (code, "Remove the local files of 2 chunks" in shown, "nothing was removed" in shown) == (1, True, True)
    code, _ = on_terminal("evict", lake, "--wait", typed="y\n", after="?")
    assert (code, residencies(lake)) == (0, {"remote"})


def test_a_job_that_fails_is_told(lake: Path) -> None:
    ok("flush", lake, "--wait")
    (chunk,) = lake.glob("databases/*/chunks/00000-*.parquet")
    flip(chunk, 100)
    result = run("archive", lake, "--wait", "--format", "jsonl")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["state"] == "failed"
    assert chunk.name in found["error"]


# -- what is there ------------------------------------------------------------------------------------------


def test_chunks_inspect_shows_row_and_footer(lake: Path) -> None:
    ok("flush", lake, "--wait")
    found = row("chunks", "inspect", lake / "clicks", "1", "--deep")
    assert found["row_count"] == found["sequence_max"] + 1
    assert (found["residency"], found["is_verified"], found["row_groups"]) == ("local", True, 1)
    assert "there is no" not in ok("chunks", "inspect", lake / "clicks", "1", "--format", "table")
    assert "has no chunk 99" in complaint("chunks", "inspect", lake / "clicks", "99", code=3)
    (chunk,) = lake.glob("databases/*/chunks/00000-*.parquet")
    flip(chunk, 100)
    assert chunk.name in complaint("chunks", "inspect", lake / "clicks", "1", "--deep", code=4)


def test_status_is_one_screen(lake: Path) -> None:
    ok("flush", lake, "--wait")
    ok("archive", lake, "--wait")
    rows("tail", lake / "clicks", "--reader", "etl")
    fill(lake, range(50, 53))
    rows("flush", lake)
    found = row("status", lake)
    assert (found["writer_pid"], found["archive"], found["jobs_by_state"]["pending"]) == (None, "attic", 2)
    assert [(one["database"], one["records"]) for one in found["databases"]] == [("clicks", 53)]
    assert sum(one["next_sequence"] for one in found["shards"]) == 53
    assert [(one["reader"], one["lag"]) for one in found["readers"]] == [("etl", 3)]
    assert [(one["tier"], one["chunks"]) for one in found["tiers"]] == [
        ("local", 2),
        ((lake / "attic").as_uri(), 2),
    ]
    assert [(one["kind"], one["state"]) for one in found["jobs"]] == [("flush", "pending"), ("checkpoint", "pending")]
    text = ok("status", lake, "--format", "table")
    assert [line for line in text.splitlines() if line.isupper()] == ["DATABASES", "SHARDS", "READERS", "TIERS", "JOBS"]
    assert ok("status", lake, "--format", "csv").startswith("database,")
    assert "there is no store" in complaint("status", lake.parent / "sea", code=3)


def test_status_of_an_empty_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "lake"):
        pass
    assert row("status", tmp_path / "lake")["databases"] == []
    assert "DATABASES" not in ok("status", tmp_path / "lake", "--format", "table")
    assert rows("flush", tmp_path / "lake", "--wait") == []


# -- damage -------------------------------------------------------------------------------------------------


def test_verify_looks_at_every_tier(lake: Path) -> None:
    ok("flush", lake, "--wait")
    ok("archive", lake, "--wait")
    fill(lake, range(50, 60))
    found = row("verify", lake)
    assert found["is_sound"]
    assert (found["files_checked"], found["objects_checked"], found["records_checked"]) == (2, 2, 10)
    assert row("verify", lake / "clicks")["databases"] == ["clicks"]


def test_verify_finds_and_repairs_what_has_another_copy(lake: Path) -> None:
    ok("flush", lake, "--wait")
    ok("archive", lake, "--wait")
    (chunk,) = lake.glob("databases/*/chunks/00000-*.parquet")
    flip(chunk, 100)
    result = run("verify", lake, "--format", "jsonl")
    assert result.exit_code == 4
    (finding,) = json.loads(result.stdout)["findings"]
    assert finding["where"].endswith(chunk.name)
    assert "completed" in result.stderr
    assert row("verify", lake)["is_sound"]
    assert payloads(lake) == expected(range(50))


def test_a_lost_catalog_is_made_again(lake: Path) -> None:
    ok("flush", lake, "--wait")
    ok("archive", lake, "--wait")
    fill(lake, range(50, 60))
    (lake / "catalog.mdb").write_bytes(b"not a catalog at all" * 500)
    assert run("status", lake).exit_code == 4
    assert "--yes" in complaint("rebuild", "--catalog", lake, code=2)
    assert row("rebuild", "--catalog", lake, "--dry-run")["chunks"] == 2
    assert run("status", lake).exit_code == 4
    found = row("rebuild", "--catalog", lake, "--yes")
    assert (found["name"], found["chunks"], found["gaps"], found["problems"]) == ("clicks", 2, [], [])
    assert payloads(lake) == expected(range(60))
    assert len(list(lake.glob("catalog.mdb.*.old"))) == 1
    assert not list(lake.glob("catalog.mdb.new*"))
    assert "this is about a store" in complaint("rebuild", "--catalog", lake / "none", "--yes", code=3)


def test_verify_says_what_it_mended_and_what_it_could_not(lake: Path) -> None:
    for command in ("flush", "archive"):
        ok(command, lake, "--wait")
    first, second = sorted((lake / "attic").rglob("*.parquet"))
    first.unlink()
    second.unlink()
    (file,) = lake.rglob(f"chunks/{second.name}")
    file.unlink()
    result = run("verify", lake, "--format", "jsonl")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["mended"]) == (4, 1)
    assert f"damaged: {found['damaged']}; mended: 1 chunk;" in result.stderr


def test_a_chunk_that_is_nowhere_is_damage_that_is_named(lake: Path) -> None:
    for command in ("flush", "archive"):
        ok(command, lake, "--wait")
    chunk = rows("chunks", "ls", lake)[0]
    for path in lake.rglob(chunk["file_name"]):
        path.unlink()
    line = complaint("cat", lake / "clicks", code=4)
    assert chunk["file_name"] in line
    assert f"database 'clicks' has records 0 to {chunk['sequence_max']} of shard {chunk['shard']} in this chunk" in line
    assert "its file and its object" in line
    assert "run `latewood verify`" in line
    assert complaint("cat", lake / "clicks", "--since", "1h", code=4) == line


def test_archive_tells_of_chunks_in_another_archive(lake: Path) -> None:
    for command in ("flush", "archive"):
        assert "another" not in run(command, lake, "--wait").stderr
    (lake / "latewood.toml").write_text('[archive]\nurl = "cellar"\n')
    result = run("archive", lake, "--wait")
    assert result.exit_code == 0
    assert f"2 chunks were archived to {(lake / 'attic').as_uri()}, and the archive is" in result.stderr
    assert (lake / "cellar").as_uri() in result.stderr


def test_a_generation_that_has_not_come_is_refused(lake: Path) -> None:
    ok("flush", lake, "--wait")
    present = row("status", lake)["generation"]
    assert len(rows("cat", lake / "clicks", "--as-of", str(present))) == 50
    line = complaint("cat", lake / "clicks", "--as-of", "999", code=2)
    assert line == f"generation 999 has not come yet; the chunks are at {present}"


def test_a_database_with_an_unknown_key_is_not_made(lake: Path) -> None:
    assert "'zzz'" in complaint("db", "create", lake, "secrets", "--key-id", "zzz", code=3)
    assert [one["database"] for one in rows("db", "ls", lake)] == ["clicks"]
