"""A store of which an older copy of a log was restored: what commands say, and that what they advise works."""

import shutil
from pathlib import Path

import pytest

from latewood.runtime import Store
from tests.cli.shell import complaint, ok, row, rows, run
from tests.cli.store_kit import expected, fill, make_store, payloads


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A store whose logs are those of before its second flush."""
    lake = make_store(tmp_path / "lake", archive=True)
    fill(lake, range(20))
    ok("flush", lake, "--wait")
    past = tmp_path / "past"
    shutil.copytree(shards(lake), past)
    fill(lake, range(20, 60))
    ok("flush", lake, "--wait")
    shutil.rmtree(shards(lake))
    shutil.copytree(past, shards(lake))
    return lake


def shards(lake: Path) -> Path:
    return lake / "databases" / "00000001-clicks" / "shards"


def test_every_command_that_writes_says_what_is_wrong_and_what_helps(lake: Path) -> None:
    advice = f"`latewood rebuild --accept-loss {lake / 'clicks'}` keeps what is there under another name"
    assert advice in complaint("append", lake / "clicks", code=4, stdin="x\n")
    assert advice in complaint("seal", lake / "clicks", code=4)
    result = run("flush", lake, "--wait")
    assert result.exit_code == 1
    assert advice in result.stdout


def test_what_is_in_chunks_is_shown_and_then_what_is_missing(lake: Path) -> None:
    result = run("cat", lake / "clicks", "--format", "jsonl")
    assert result.exit_code == 4
    assert "restore the newer copy of" in result.stderr
    assert len(result.stdout.splitlines()) == 60
    assert row("db", "ls", lake)["records"] == 60
    ok("status", lake)


@pytest.mark.parametrize("command", [["info"], ["db", "ls"], ["status"]], ids=" ".join)
def test_what_shows_a_store_says_that_its_logs_are_behind(lake: Path, command: list[str]) -> None:
    result = run(*command, lake / "clicks" if command == ["info"] else lake)
    assert result.exit_code == 0
    assert result.stderr.count("restore the newer copy of") == 2


def test_verify_calls_it_damage(lake: Path) -> None:
    result = run("verify", lake, "--format", "json")
    assert result.exit_code == 4
    assert result.stdout.count("restore the newer copy of") == 2


def test_a_dry_run_and_a_run_without_consent_change_nothing(lake: Path) -> None:
    before = sorted(path.name for path in shards(lake).iterdir())
    for arguments in (["--dry-run"], ["--yes"], ["--dry-run", "--accept-loss"]):
        result = run("rebuild", lake / "clicks", *arguments)
        assert result.exit_code == 4
        assert "nothing was changed; restore the newer copies" in result.stderr
    assert sorted(path.name for path in shards(lake).iterdir()) == before


def test_with_the_loss_accepted_the_store_goes_on(lake: Path) -> None:
    done = rows("rebuild", "--accept-loss", "--yes", lake / "clicks")
    assert [one["shard"] for one in done] == [0, 1]
    assert all(one["log_end"] < one["covered"] == one["first_sequence"] for one in done)
    assert [one["identity"] for one in done] == [row("info", one["kept"])["identity"] for one in done]
    assert payloads(lake) == expected(range(60))
    fill(lake, range(60, 90))
    ok("flush", lake, "--wait")
    ok("verify", lake)
    assert payloads(lake) == expected(range(90))
    ok("cat", done[0]["kept"])
    assert "every log of 'clicks' goes as far as its chunks" in run("rebuild", "--yes", lake / "clicks").stderr


def test_a_newer_copy_that_is_restored_is_enough(lake: Path, tmp_path: Path) -> None:
    shutil.move(shards(lake), tmp_path / "older")
    result = complaint("append", lake / "clicks", code=4, stdin="x\n")
    assert "the log of this shard is not there" in result
    shutil.move(tmp_path / "older", shards(lake))
    assert "ends at" in complaint("append", lake / "clicks", code=4, stdin="x\n")


def test_a_catalog_that_is_made_again_knows_that_the_logs_are_behind(lake: Path) -> None:
    result = run("rebuild", "--catalog", lake, "--yes")
    assert result.exit_code == 4
    assert result.stderr.count("restore the newer copy of") == 2
    ok("rebuild", "--accept-loss", "--yes", lake / "clicks")
    assert payloads(lake) == expected(range(60))
    ok("rebuild", "--catalog", lake, "--yes")


def test_an_older_store_beside_a_newer_archive_is_told_by_the_catalog_that_is_made_again(tmp_path: Path) -> None:
    lake = make_store(tmp_path / "lake", archive=True)
    fill(lake, range(10))
    ok("flush", lake, "--wait")
    shutil.copytree(lake, tmp_path / "past")
    fill(lake, range(10, 40))
    for kind in ("flush", "archive"):
        ok(kind, lake, "--wait")
    shutil.copytree(lake / "attic", tmp_path / "past" / "attic", dirs_exist_ok=True)
    shutil.rmtree(lake)
    (tmp_path / "past").rename(lake)
    result = run("rebuild", "--catalog", lake, "--yes")
    assert result.exit_code == 4
    assert "the store had its records up to" in result.stderr
    ok("rebuild", "--accept-loss", "--yes", lake / "clicks")
    assert payloads(lake) == expected(range(40))
    fill(lake, range(40, 50))
    assert payloads(lake) == expected(range(50))


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    """A store whose catalog is of before its second flush; its logs and chunks are not."""
    lake = make_store(tmp_path / "lake")
    fill(lake, range(20))
    ok("flush", lake, "--wait")
    shutil.copyfile(lake / "catalog.mdb", tmp_path / "older.mdb")
    fill(lake, range(20, 60))
    ok("flush", lake, "--wait")
    with Store.open(lake) as store:
        store.run_job("checkpoint", "clicks")
    fill(lake, range(60, 80))
    shutil.copyfile(tmp_path / "older.mdb", lake / "catalog.mdb")
    return lake


def test_every_command_that_meets_an_older_catalog_names_what_helps(stale: Path) -> None:
    advice = f"`latewood rebuild --catalog {stale}`"
    assert advice in complaint("append", stale / "clicks", code=4, stdin="x\n")
    assert advice in complaint("rebuild", "--accept-loss", "--yes", stale / "clicks", code=4)
    for result in (run("cat", stale / "clicks"), run("tail", stale / "clicks", "--reader", "billing")):
        assert result.exit_code == 4
        assert advice in result.stderr
        assert len(result.stdout.splitlines()) >= 20, "what the catalog knows comes first"
    for result in (run("info", stale / "clicks"), run("status", stale)):
        assert advice in result.stderr
    assert advice in run("verify", stale, "--format", "json").stdout


def test_what_an_older_catalog_is_told_to_do_brings_everything_back(stale: Path) -> None:
    ok("rebuild", "--catalog", stale, "--yes")
    assert payloads(stale) == expected(range(80))
    fill(stale, range(80, 90))
    ok("flush", stale, "--wait")
    ok("verify", stale)
    assert payloads(stale) == expected(range(90))
