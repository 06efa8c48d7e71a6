"""`latewood db` and `latewood config`: databases come, change and go; settings are shown with their origin."""

from pathlib import Path

import pytest

from latewood.runtime import Store
from tests.cli.shell import complaint, ok, on_terminal, row, rows, run
from tests.cli.store_kit import expected, fill, make_store, payloads


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_store(tmp_path / "lake")


def test_create_makes_the_store_too(tmp_path: Path) -> None:
    result = run("db", "create", tmp_path / "lake", "clicks", "--shards", "3")
    assert (result.exit_code, result.stderr) == (
        0,
        f"latewood: made database 'clicks' with 3 shards in {tmp_path / 'lake'}\n",
    )
    found = row("db", "ls", tmp_path / "lake")
    assert (found["database"], found["status"], found["shards"], found["keyed"]) == ("clicks", "active", 3, True)


def test_a_second_one_of_the_name_is_not_made(lake: Path) -> None:
    assert "there is a database 'clicks'" in complaint("db", "create", lake, "clicks", code=1)
    assert run("db", "create", lake, "clicks", "--if-missing").exit_code == 0


def test_options_are_kept(lake: Path) -> None:
    options = ["--no-keys", "--segment-bytes", "1MiB", "--chunk-bytes", "2MiB", "--retain-age", "7d", "--grace", "1s"]
    ok("db", "create", lake, "plain", *options)
    found = row("db", "info", lake / "plain")
    assert found["keyed"] is False
    assert (found["segment_bytes_max"], found["chunk_bytes"]) == (1 << 20, 2 << 20)
    assert (found["retention_max_age_ms"], found["grace_ms"]) == (604_800_000, 1000)
    assert [shard["shard"] for shard in found["shards"]] == [0]


@pytest.mark.parametrize("name", ["Clicks", "a b", ""])
def test_a_name_that_is_none_is_refused(lake: Path, name: str) -> None:
    complaint("db", "create", lake, name, code=2)


def test_a_directory_of_something_else_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert "notes.txt" in complaint("db", "create", tmp_path, "clicks", code=2)


def test_ls_and_info_count_what_is_there(lake: Path) -> None:
    fill(lake, range(20))
    assert row("db", "ls", lake)["records"] == 20
    assert sum(shard["next_sequence"] for shard in row("db", "info", lake / "clicks")["shards"]) == 20
    assert "clicks" in ok("db", "ls", lake, "--format", "table")
    assert "shard" in ok("db", "info", lake / "clicks", "--format", "table")


@pytest.mark.parametrize("command", [["info"], ["drain"], ["activate"], ["drop", "--yes"], ["fork", "new"]])
def test_what_is_not_there_is_not_found(tmp_path: Path, lake: Path, command: list[str]) -> None:
    line = complaint("db", command[0], lake / "none", *command[1:], code=3)
    assert line.startswith(f"there is no database 'none'; {lake} has clicks; ")
    assert "there is no store" in complaint("db", command[0], tmp_path / "sea" / "none", *command[1:], code=3)
    assert not (tmp_path / "sea").exists()


def test_a_drained_database_takes_no_records_until_it_is_activated(lake: Path) -> None:
    ok("db", "drain", lake / "clicks")
    assert row("db", "ls", lake)["status"] == "draining"
    result = run("append", lake / "clicks", stdin="x\n")
    assert result.exit_code == 1
    assert "is being drained" in result.stderr
    ok("db", "activate", lake / "clicks")
    ok("append", lake / "clicks", stdin="x\n")


def test_drop_frees_the_name_and_purge_the_disk(lake: Path) -> None:
    fill(lake, range(5))
    directory = Path(row("db", "info", lake / "clicks")["path"])
    assert "would drop database 'clicks' with 5 records" in run("db", "drop", lake / "clicks", "--dry-run").stderr
    assert "--yes" in complaint("db", "drop", lake / "clicks", code=2)
    ok("db", "drop", lake / "clicks", "--yes")
    assert rows("db", "ls", lake) == []
    assert directory.exists()
    ok("db", "create", lake, "clicks")
    assert row("db", "purge", lake, "--dry-run") == {"database": "clicks", "db_id": 1, "purged": False}
    assert directory.exists()
    assert row("db", "purge", lake, "--yes") == {"database": "clicks", "db_id": 1, "purged": True}
    assert not directory.exists()
    assert row("db", "ls", lake)["records"] == 0


def test_drop_asks(lake: Path) -> None:
    code, shown = on_terminal("db", "drop", lake / "clicks", typed="n\n", after="?")
    assert (code, "nothing was dropped" in shown) == (1, True)
    assert row("db", "ls", lake)["status"] == "active"


def test_a_fork_has_what_the_chunks_have_and_goes_its_own_way(lake: Path) -> None:
    fill(lake, range(30))
    ok("flush", lake, "--wait")
    fill(lake, range(30, 40))
    assert "the 30 records" in run("db", "fork", lake / "clicks", "again").stderr
    fill(lake, range(100, 105), "again")
    assert payloads(lake, "again") == expected([*range(30), *range(100, 105)])
    assert payloads(lake) == expected(range(40))


# -- settings -----------------------------------------------------------------------------------------------


def test_config_shows_each_value_and_where_it_came_from(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake / "latewood.toml").write_text('[archive]\nurl = "attic"\n[jobs]\nworkers = 3\n')
    monkeypatch.setenv("LATEWOOD_JOBS_WORKERS", "5")
    found = {one["key"]: (one["value"], one["origin"]) for one in rows("config", "show", lake)}
    assert found["archive.url"] == ("attic", str(lake / "latewood.toml"))
    assert found["jobs.workers"] == (5, "environment: LATEWOOD_JOBS_WORKERS")
    assert found["jobs.lease_ms"] == (30_000, "default")
    assert len(rows("config", "show", lake, "--set-only")) == 2
    assert "jobs.workers" in ok("config", "show", lake, "--format", "table")


def test_config_shows_no_secret(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake / "latewood.toml").write_text('[archive.settings]\naws_secret_access_key = "topsecret"\n')
    monkeypatch.setenv("LATEWOOD_ARCHIVE_SETTINGS__AWS_ACCESS_KEY_ID", "AKIASECRET")
    for output_format in ("table", "json", "jsonl", "csv"):
        text = ok("config", "show", lake, "--format", output_format)
        assert "topsecret" not in text
        assert "AKIASECRET" not in text
        assert "set" in text


def test_a_wrong_setting_is_one_line_that_names_the_file(lake: Path) -> None:
    (lake / "latewood.toml").write_text("[jobs]\nworker = 3\n")
    for command in (["config", "show"], ["db", "ls"], ["status"], ["work", "--once"]):
        line = complaint(*command[:2], lake, code=2) if command[0] != "work" else complaint("work", lake, code=2)
        assert line.startswith(f"{lake / 'latewood.toml'}: there is no setting 'jobs.worker'; perhaps you meant")


def test_databases_are_made_as_the_settings_say(lake: Path) -> None:
    (lake / "latewood.toml").write_text('[database]\nkeyed = false\nchunk_bytes = "1MiB"\n')
    ok("db", "create", lake, "plain")
    ok("db", "create", lake, "keyed", "--keyed")
    assert [(one["database"], one["keyed"]) for one in rows("db", "ls", lake)] == [
        ("clicks", True),
        ("plain", False),
        ("keyed", True),
    ]
    with Store.open(lake, mode="r") as store:
        assert store.database("keyed").record.options.chunk_bytes == 1 << 20
