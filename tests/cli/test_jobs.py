"""`latewood jobs`: what it shows, and what it does."""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from latewood.catalog import Catalog, Lease
from latewood.catalog.tables import JobError
from latewood.jobs import CATALOG_CHECK, JobManager
from tests.cli.shell import complaint, ok, on_terminal, process, row, rows, run
from tests.jobs.kit import DB, KIND, OTHER, make_databases

ERROR = JobError(at_ms=0, attempt=1, kind="OSError", message="the disk\nis gone", traceback="Traceback …")
HANDLERS = """
import threading
from latewood.errors import JobFailed
from latewood.jobs import Handlers
handlers = Handlers()

@handlers.handler(1024)
def work(context):
    for done in range(3):
        context.progress(done + 1, 3)

@handlers.handler(1025)
def fail(context):
    raise JobFailed("never")

@handlers.handler(1026)
def hang(context):
    print("hangs", flush=True)
    context.wait(600_000)

no_handlers = 7
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a catalog with a job that failed (1), one that waits (2) and one that another process left (3)."""
    found = tmp_path / "catalog.mdb"
    with Catalog.open(found) as catalog:
        make_databases(catalog)
        manager = JobManager(catalog)
        manager.enqueue(OTHER, {"a": 1})
        manager.claim("w", (OTHER,))
        manager.fail(1, Lease("w", 1), ERROR, for_good=True)
        manager.enqueue(KIND)
        manager.enqueue(KIND, db_id=DB, priority=1)
        manager.claim("w", (KIND,))
    return found


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.delitem(sys.modules, "my_handlers", raising=False)
    return "my_handlers:handlers"


def states(path: Path) -> dict[int, str]:
    return {one["job_id"]: one["state"] for one in rows("jobs", "ls", path)}


def test_ls_lists_jobs_and_can_be_asked_for_some(path: Path) -> None:
    assert states(path) == {1: "failed", 2: "pending", 3: "in-flight"}
    assert [one["job_id"] for one in rows("jobs", "ls", path, "--state", "failed", "--state", "pending")] == [1, 2]
    assert [one["job_id"] for one in rows("jobs", "ls", path, "--kind", str(OTHER))] == [1]
    assert [one["job_id"] for one in rows("jobs", "ls", path.parent, "--db", "1")] == [3]
    assert [one["job_id"] for one in rows("jobs", "ls", path, "--last", "2")] == [2, 3]
    assert "no kind of job 'x'" in complaint("jobs", "ls", path, "--kind", "x", code=2)
    assert "OSError: the disk" in ok("jobs", "ls", path, "--format", "table")


def test_show_shows_a_job_with_its_error(path: Path) -> None:
    found = row("jobs", "show", path, "1")
    assert (found["state"], found["payload"], found["error"]) == ("failed", {"a": 1}, "OSError: the disk\nis gone")
    assert found["traceback"].startswith("Traceback")
    assert row("jobs", "show", path, "3")["worker"] == "w"
    assert "there is no job 99" in complaint("jobs", "show", path, "99", code=3)


def test_retry_lets_a_failed_job_wait_again(path: Path) -> None:
    assert row("jobs", "retry", path, "1")["state"] == "pending"
    assert states(path)[1] == "pending"
    assert "only one that failed" in complaint("jobs", "retry", path, "2", code=1)
    complaint("jobs", "retry", path, "99", code=3)


def test_cancel_calls_jobs_off(path: Path) -> None:
    assert [one["state"] for one in rows("jobs", "cancel", path, "2", "3")] == ["cancelled", "in-flight"]
    assert row("jobs", "show", path, "3")["cancel_requested"] is True


@pytest.mark.parametrize("command", [["ls"], ["show", "1"], ["run"], ["retry", "1"], ["cancel", "1"], ["watch"]])
def test_no_catalog_is_not_found_and_none_is_made(tmp_path: Path, command: list[str]) -> None:
    complaint("jobs", command[0], tmp_path, *command[1:], code=3)
    assert list(tmp_path.iterdir()) == []


def test_run_repairs_runs_and_leaves_what_it_has_no_handler_for(path: Path, module: str) -> None:
    with Catalog.open(path) as catalog:
        JobManager(catalog).enqueue(2000)
    result = run("jobs", "run", path, "--handlers", module, "--format", "jsonl")
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["kind"], one["outcome"], one["state"]) for one in found] == [
        ("repair", "completed", "completed"),
        ("1024", "completed", "completed"),
        ("1024", "completed", "completed"),
    ]
    assert "1 compensated" in result.stderr
    assert "1 2000 (no handler)" in result.stderr
    assert row("jobs", "show", path, "2")["done"] == 3


def test_run_says_that_a_job_failed(path: Path, module: str) -> None:
    ok("jobs", "retry", path, "1")
    result = run("jobs", "run", path, "--handlers", module, "--format", "table")
    assert result.exit_code == 1
    assert "JobFailed: never" in result.stdout
    assert states(path)[1] == "failed"


def test_what_is_built_in_really_does_something(path: Path) -> None:
    result = run("jobs", "run", path, "--enqueue", "catalog-check", "--enqueue", "catalog-prune", "--format", "jsonl")
    assert result.exit_code == 0, result.output
    assert {json.loads(line)["kind"] for line in result.stdout.splitlines()} == {"catalog-check", "catalog-prune"}
    (check,) = rows("jobs", "ls", path, "--kind", str(CATALOG_CHECK))
    assert check["done"] == check["total"] > 10


@pytest.mark.parametrize("source", ["my_handlers:no_handlers", "my_handlers:nothing", "no_such_module:x", "x", ":x"])
def test_handlers_that_are_none_are_refused(path: Path, module: str, source: str) -> None:
    del module
    assert "--handlers" in complaint("jobs", "run", path, "--handlers", source, code=2)


def test_a_second_writer_is_told_who_the_first_is(path: Path, module: str) -> None:
    with Catalog.open(path) as catalog:
        JobManager(catalog).enqueue(1026, priority=0)
    with process("jobs", "run", path, "--handlers", module, "--format", "jsonl") as first:
        assert first.line() == "hangs"
        for command in (["run"], ["retry", "1"], ["cancel", "2"]):
            line = complaint("jobs", command[0], path, *command[1:], code=5)
            assert f"process {first.popen.pid}" in line
        assert states(path)[1] == "failed", "looking works beside it"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_gives_jobs_back(path: Path, module: str, signal_number: signal.Signals) -> None:
    with Catalog.open(path) as catalog:
        job_id = JobManager(catalog).enqueue(1026, db_id=DB, priority=0, attempts_max=1)
    with process("jobs", "run", path, "--handlers", module, "--format", "jsonl", "--workers", "1") as first:
        assert first.line() == "hangs"
        os.kill(first.popen.pid, signal_number)
        assert first.end() == 130
        assert next(json.loads(line)["outcome"] for line in first.rest()) == "released"
    found = row("jobs", "show", path, str(job_id))
    assert (found["state"], found["attempts"], found["attempts_max"]) == ("pending", 1, 2)


def test_watch_follows_jobs_in_another_process_until_they_are_done(path: Path, module: str) -> None:
    with process("jobs", "watch", path, "--format", "jsonl") as watch:
        first = [json.loads(line) for line in watch.lines(2)]
        assert {one["job_id"]: one["state"] for one in first} == {2: "pending", 3: "in-flight"}
        ok("jobs", "run", path, "--handlers", module)
        lines = [json.loads(line) for line in watch.rest()]
        assert watch.end() == 0
    last = {one["job_id"]: one["state"] for one in lines}
    assert (last[2], last[3], set(last.values())) == ("completed", "completed", {"completed"})
    assert all(before != after for before, after in pairwise(lines))


def test_watch_of_a_finished_job_says_how_it_ended(path: Path) -> None:
    result = run("jobs", "watch", path, "1", "--format", "csv")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) >= 2
    assert json.loads(run("jobs", "watch", path, "1", "--format", "json").stdout)[0]["state"] == "failed"
    assert "there is no job 99" in complaint("jobs", "watch", path, "99", code=3)


@pytest.mark.slow
def test_a_terminal_is_drawn_over_while_jobs_are_watched(path: Path, module: str) -> None:
    with process("jobs", "watch", path, "2", "3", "--format", "jsonl") as watch:
        watch.lines(2)
        ok("jobs", "run", path, "--handlers", module)
        watch.rest()
    code, shown = on_terminal("jobs", "watch", path, "2")
    assert code == 0
    assert "completed" in shown
    code, shown = on_terminal("jobs", "ls", path, columns=60)
    assert code == 0
    assert "job id" in shown


def test_prune_asks_tells_and_forgets(path: Path, module: str) -> None:
    ok("jobs", "run", path, "--handlers", module)
    assert row("jobs", "prune", path, "--keep", "1", "--dry-run")["jobs"] == 3
    assert "--yes" in complaint("jobs", "prune", path, "--keep", "1", code=2)
    assert len(states(path)) == 4
    found = row("jobs", "prune", path, "--keep", "1", "--yes")
    assert (found["jobs"], found["kept"], found["deleted"]) == (3, 1, True)
    assert len(states(path)) == 1
    assert row("jobs", "prune", path, "--max-age", "0s", "--yes")["kept"] == 0


def test_starting_the_command_line_does_not_import_lmdb() -> None:
    script = (
        "import sys; from latewood.cli.main import program\n"
        "try: program.main(['--help'])\n"
        "finally: assert 'lmdb' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "jobs" in result.stdout
