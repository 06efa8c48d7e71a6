"""`latewood catalog`: what it shows, and what it finds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from latewood.catalog import Catalog
from latewood.jobs import JobManager
from tests.cli.shell import complaint, ok, row, rows, run
from tests.jobs.kit import DB, KIND, OTHER, make_databases


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a catalog with two databases, three jobs, one of them at work, and a cursor."""
    found = tmp_path / "catalog.mdb"
    with Catalog.open(found) as catalog:
        make_databases(catalog)
        catalog.feed.create("mirror")
        manager = JobManager(catalog)
        manager.enqueue(KIND, {"a": 1}, db_id=DB)
        manager.claim("w", (KIND,))
        manager.enqueue(KIND, db_id=DB)
        manager.enqueue(OTHER)
    return found


def test_info_shows_a_catalog_in_figures(path: Path) -> None:
    found = row("catalog", "info", path)
    assert (found["databases"], found["jobs"], found["jobs_pending"], found["jobs_in_flight"]) == (2, 3, 2, 1)
    assert (found["gates_closed"], found["was_closed"], found["cursors"]) == (1, True, ["mirror"])
    assert found["used_bytes"] > 0
    assert "map " in ok("catalog", "info", path, "--format", "table")


def test_a_store_is_as_good_as_its_catalog(path: Path) -> None:
    assert row("catalog", "info", path.parent)["jobs"] == 3


def test_tables_lists_all_of_them(path: Path) -> None:
    counts = {found["table"]: found["rows"] for found in rows("catalog", "tables", path)}
    assert (counts["db"], counts["job_queue"], counts["job_live"], counts["job_pending_index"]) == (2, 3, 3, 1)


def test_dump_names_every_field(path: Path) -> None:
    found = rows("catalog", "dump", path, "job_queue")
    assert [one["key"] for one in found] == [1, 2, 3]
    assert found[0]["record"]["payload"] == {"a": 1}
    assert (found[0]["record"]["state"]["is"], found[0]["record"]["state"]["worker_id"]) == ("InFlight", "w")
    (gate,) = rows("catalog", "dump", path, "job_gate")
    assert gate["key"] == {"db_id": DB, "kind": KIND}
    assert {one["table"] for one in rows("catalog", "dump", path)} >= {"db", "job_queue", "runtime_state"}
    assert len(rows("catalog", "dump", path, "--limit", "1", "job_queue")) == 1


def test_dump_has_one_line_for_each_row_in_every_format(path: Path) -> None:
    assert len(ok("catalog", "dump", path, "db", "--format", "csv").splitlines()) == 3
    assert len(ok("catalog", "dump", path, "db", "--format", "table").splitlines()) == 3
    assert len(json.loads(ok("catalog", "dump", path, "db", "--format", "json"))) == 2


def test_a_table_that_is_not_there_is_not_found(path: Path) -> None:
    assert "no table 'jobs'" in complaint("catalog", "dump", path, "jobs", code=3)


@pytest.mark.parametrize("command", ["info", "tables", "dump", "check", "changes"])
def test_no_catalog_is_not_found_and_none_is_made(tmp_path: Path, command: str) -> None:
    assert "there is no catalog at" in complaint("catalog", command, tmp_path / "x.mdb", code=3)
    complaint("catalog", command, tmp_path, code=3)
    assert list(tmp_path.iterdir()) == []


def test_a_sound_catalog_is_found_sound(path: Path) -> None:
    assert row("catalog", "check", path)["is_sound"] is True


def test_damage_is_found(path: Path) -> None:
    data = path.read_bytes()
    where = data.rindex(b"\xa1a\x01")  # the payload of job 1, in whichever page has it last
    for place in [where] if data.count(b"\xa1a\x01") == 1 else range(len(data)):
        if data[place : place + 3] == b"\xa1a\x01":
            path.write_bytes(data := data[: place + 2] + b"\x02" + data[place + 3 :])
    result = run("catalog", "check", path)
    assert result.exit_code == 4
    assert "checksum" in result.stdout
    assert run("catalog", "dump", path, "job_queue").exit_code == 4


def test_changes_are_told_by_generation_and_to_each_cursor_its_own(path: Path) -> None:
    found = rows("catalog", "changes", path)
    jobs = [one for one in found if one["table"] == "job_queue"]
    assert [one["key"] for one in jobs] == [1, 1, 2, 3]
    assert {one["change"] for one in jobs} == {"put"}
    assert [one["generation"] for one in found] == sorted(one["generation"] for one in found)
    assert len(rows("catalog", "changes", path, "--cursor", "mirror", "--limit", "2")) == 2
    with Catalog.open(path) as catalog:
        catalog.acknowledge("mirror", catalog.generation())
    assert not [one for one in rows("catalog", "changes", path, "--cursor", "mirror") if one["table"] == "job_queue"]
    assert "no cursor 'other'" in complaint("catalog", "changes", path, "--cursor", "other", code=3)


def test_a_catalog_can_be_looked_at_beside_its_writer(path: Path) -> None:
    script = "import sys; from latewood.catalog import Catalog; c = Catalog.open(sys.argv[1]); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout
        writer.stdout.readline()
        assert row("catalog", "info", path)["writer_pid"] == writer.pid
        assert row("catalog", "check", path)["is_sound"] is True
        writer.communicate(b"\n")
