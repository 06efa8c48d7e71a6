"""Two processes, each with a pool, want the jobs of one catalog: one at a time may write, and each job is done once."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from latewood.catalog import Catalog
from latewood.jobs import JobManager
from tests.jobs.kit import DB, DB_2, KIND, OPTIONS, check_sound, make_databases, states
from tests.patience import SECONDS_MAX

pytestmark = pytest.mark.slow
JOBS: Final = 60
ROOT: Final = Path(__file__).parents[2]
CONTENDER: Final = """
import logging, os, sys, threading
from pathlib import Path
from latewood.catalog import Catalog, CatalogOptions, recover
from latewood.clock import SystemClock
from latewood.errors import Locked
from latewood.jobs import Handlers, JobManager, WorkerPool
logging.disable(logging.CRITICAL)
path, journal = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
say = lambda *words: os.write(journal, (" ".join(map(str, words)) + "\\n").encode())
handlers = Handlers()

@handlers.handler(1024)
def work(context):
    say("b", context.job.job_id, os.getpid())
    context.progress(1, 1)
    say("e", context.job.job_id, os.getpid())

print("ready", flush=True)
sys.stdin.readline()
never, rounds, done = threading.Event(), 0, False
while not done:
    try:
        with Catalog.open(path, CatalogOptions(commit_budget_us=0)) as catalog:
            rounds += 1
            recover(catalog, SystemClock())
            pool = WorkerPool(JobManager(catalog), handlers)
            done = not any(pool.run_next() for _ in range(3))
    except Locked as error:
        say("locked", error.pid, os.getpid())
    never.wait(0.002)
say("rounds", rounds, os.getpid())
"""


def test_two_processes_take_turns_and_each_job_runs_once(tmp_path: Path) -> None:
    path, journal = tmp_path / "catalog.mdb", tmp_path / "journal"
    journal.touch()
    with Catalog.open(path, OPTIONS) as catalog:
        make_databases(catalog)
        manager = JobManager(catalog)
        for number in range(JOBS):
            manager.enqueue(KIND, db_id=(None, DB, DB_2)[number % 3], unique=False)
    command = [sys.executable, "-c", CONTENDER, str(path), str(journal)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    contenders = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) for _ in range(2)
    ]
    for contender in contenders:
        assert contender.stdout
        assert contender.stdout.readline() == b"ready\n"
    for contender in contenders:
        assert contender.stdin
        contender.stdin.write(b"go\n")
        contender.stdin.flush()
    for contender in contenders:
        contender.communicate(timeout=SECONDS_MAX)
        assert contender.returncode == 0
    lines = [line.split() for line in journal.read_text().splitlines()]
    assert Counter(words[1] for words in lines if words[0] == "b") == {str(number + 1): 1 for number in range(JOBS)}
    assert all(int(words[1]) > 0 for words in lines if words[0] == "rounds"), "one of them never had a turn"
    at_work = [words[0] for words in lines if words[0] in "be"]
    assert at_work == ["b", "e"] * JOBS, "two were at work at a time"
    with Catalog.open(path, OPTIONS) as catalog:
        assert set(states(JobManager(catalog)).values()) == {"Completed"}
        check_sound(catalog)
