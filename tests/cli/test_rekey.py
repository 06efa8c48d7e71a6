"""`latewood rekey`: a key is changed, chunks follow, and the old key is shown to be needless."""

from pathlib import Path

import pytest

from tests.cli.shell import complaint, ok, row, rows, run
from tests.cli.store_kit import expected, fill, make_store, payloads

KEYS = {"k1": "01" * 32, "k2": "02" * 32}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_keys(monkeypatch, "k1", "k2")
    root = make_store(tmp_path / "lake", "--key-id", "k1", "--grace", "0ms", archive=True)
    fill(root, range(20))
    ok("flush", root, "--wait")
    ok("archive", root, "--wait")
    return root


def use_keys(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setenv("LATEWOOD_ENCRYPTION_KEY_ENVIRONMENT", "TEST_KEYS")
    monkeypatch.setenv("TEST_KEYS", ",".join(f"{name}:{KEYS[name]}" for name in names))


def keys(root: Path) -> dict[str | None, tuple[bool, int, int]]:
    return {
        one["key_id"]: (one["is_current"], one["live_chunks"], one["replaced_chunks"])
        for one in row("status", root)["keys"]
    }


def test_a_key_is_rotated_until_the_old_one_is_needless(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys(lake) == {"k1": (True, 2, 0)}
    (job,) = rows("rekey", lake, "clicks", "--key-id", "k2", "--wait")
    assert (job["kind"], job["state"]) == ("rekey", "completed")
    assert keys(lake) == {"k2": (True, 2, 0), "k1": (False, 0, 2)}
    assert {chunk["key_id"] for chunk in rows("chunks", "ls", lake)} == {"k2"}
    assert row("db", "info", lake / "clicks")["key_id"] == "k2"
    ok("archive", lake, "--wait")
    ok("retain", lake, "--wait", "--yes")
    assert keys(lake) == {"k2": (True, 2, 0)}
    use_keys(monkeypatch, "k2")
    assert payloads(lake) == expected(range(20))
    ok("verify", lake)


def test_without_a_key_id_the_set_one_is_used(lake: Path) -> None:
    ok("rekey", lake, "clicks", "--key-id", "k2")
    ok("work", lake, "--once")
    fill(lake, range(20, 30))
    ok("flush", lake, "--wait")
    assert keys(lake)["k2"][1] == 4
    ok("rekey", lake, "--wait")
    assert payloads(lake) == expected(range(30))


def test_encryption_ends_with_plain(lake: Path) -> None:
    ok("rekey", lake / "clicks", "--plain", "--wait")
    assert keys(lake) == {None: (True, 2, 0), "k1": (False, 0, 2)}
    assert payloads(lake) == expected(range(20))
    ok("verify", lake)


def test_a_store_without_keys_shows_none(tmp_path: Path) -> None:
    root = make_store(tmp_path / "lake")
    fill(root, range(3))
    ok("flush", root, "--wait")
    assert row("status", root)["keys"] == []


def test_a_key_that_is_not_given_changes_nothing(lake: Path) -> None:
    assert "key 'k3' is not among those given: k1, k2" in complaint("rekey", lake, "clicks", "--key-id", "k3", code=3)
    assert keys(lake) == {"k1": (True, 2, 0)}


def test_the_databases_of_a_new_key_are_named(lake: Path) -> None:
    assert "name the databases" in complaint("rekey", lake, "--key-id", "k2", code=2)
    assert "not both" in complaint("rekey", lake, "clicks", "--key-id", "k2", "--plain", code=2)
    assert keys(lake) == {"k1": (True, 2, 0)}


def test_a_lost_old_key_fails_the_job_by_name(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ok("rekey", lake, "clicks", "--key-id", "k2")
    use_keys(monkeypatch, "k2")
    result = run("rekey", lake, "--wait", "--format", "jsonl")
    assert result.exit_code == 1
    assert "key 'k1' is not among those given" in result.stdout
