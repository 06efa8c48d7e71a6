"""A process that enqueues and runs jobs is killed with SIGKILL, at any moment, again and again.

No job that was acknowledged is lost, no two attempts are at work on one job or behind one gate, no gate stays closed,
no generation goes back, and in the end every job is done.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pytest

from latewood.catalog import Catalog, recover
from latewood.catalog.check import Problem
from latewood.catalog.examine import examine
from latewood.catalog.tables import CHUNK, InFlight
from latewood.clock import SystemClock
from latewood.errors import NotFoundError
from latewood.jobs import JobManager, WorkerPool
from tests.crash import job_scribe
from tests.crash.job_scribe import JOURNAL, NAME, OPTIONS
from tests.jobs.kit import KIND, make_databases
from tests.patience import SECONDS_MAX, wait_until

CYCLES: Final = 15
CYCLES_CAMPAIGN: Final = 1_000
SEED: Final = 1_969

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["latewood", "tests.crash.scribe", "tests.crash.job_scribe"])


class Witness:
    """What the journal says, and what the catalog must hold."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.generations: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        self.attempts: dict[int, int] = {}
        self.deaths: Counter[str] = Counter()
        self._read = 0

    def journal(self) -> list[list[str]]:
        """Return the lines that were not yet read."""
        path = self.directory / JOURNAL
        data = path.read_bytes()[self._read :] if path.exists() else b""
        self._read += len(data)
        return [line.split() for line in data.decode().splitlines()]

    def hear(self) -> None:
        """Follow one life of the program."""
        at_work: dict[tuple[str, ...], str] = {}
        for what, *words in self.journal():
            match what:
                case "q":
                    self.acknowledged.add(int(words[0]))
                case "b":
                    self._begin(at_work, *words)
                case "e":
                    del at_work[_place(*words)]
        self.deaths["at work" if at_work else "between jobs"] += 1

    def _begin(self, at_work: dict[tuple[str, ...], str], job_id: str, attempt: str, *gate: str) -> None:
        place = _place(job_id, attempt, *gate)
        assert place not in at_work, f"job {job_id} begins while {at_work[place]} is at work"
        at_work[place] = job_id
        assert int(attempt) > self.attempts.get(int(job_id), 0), f"job {job_id} is at work twice at one attempt"
        self.attempts[int(job_id)] = int(attempt)

    def check(self) -> None:
        """Look at the catalog as the dead left it."""
        try:
            catalog = Catalog.open(self.directory / NAME, mode="r")
        except NotFoundError:
            assert not self.acknowledged
            return
        with catalog:
            problems = catalog._env.read(lambda rows: [one for one in examine(rows) if isinstance(one, Problem)])
            assert not problems
            generations = catalog.read(lambda view: {key: one.current_generation for key, one in view.generations()})
            jobs = dict(catalog.scan_jobs())
        assert all(generations.get(key, 0) >= before for key, before in self.generations.items()), (
            "a generation went back"
        )
        self.generations = generations
        assert self.acknowledged <= jobs.keys(), f"jobs are lost: {sorted(self.acknowledged - jobs.keys())}"
        gates = [
            (job.db_id, job.gate_kind) for job in jobs.values() if isinstance(job.state, InFlight) and job.is_gated
        ]
        assert len(gates) == len(set(gates)), "two are in flight behind one gate"
        assert all(jobs[job_id].attempts >= attempt for job_id, attempt in self.attempts.items())

    def check_end(self) -> None:
        """Look at the catalog after everything has been run."""
        with Catalog.open(self.directory / NAME, mode="r") as catalog:
            jobs = [job for _, job in catalog.scan_jobs()]
            chunks = {key.chunk_id for key, _ in catalog.scan(CHUNK)}
            stuck = [(key, gate) for key, gate in catalog.read(lambda view: list(view.gates())) if not gate.is_open]
        unfinished = [job for job in jobs if not job.is_finished]
        assert not stuck, unfinished
        assert not unfinished
        for job in jobs:
            ended = type(job.state).__name__
            assert ended == "Completed" or (job.last_error and job.last_error.kind == "Superseded"), job
            if ended == "Completed" and job.repairs_job_id is None:
                assert job.job_id in chunks, "it is completed, and its result is not there"


def _place(job_id: str, attempt: str, db_id: str, gate_kind: str) -> tuple[str, ...]:
    del attempt
    return ("job", job_id) if db_id == "None" else ("gate", db_id, gate_kind)


def cycle(witness: Witness, chance: random.Random) -> None:
    """Let the program live for a moment."""
    before = _size(witness.directory / JOURNAL)
    process: Any = _processes.Process(
        target=job_scribe.work_until_killed, args=(witness.directory, chance.getrandbits(32)), daemon=True
    )
    process.start()
    if chance.random() < 0.8:  # Else it may die while it opens the catalog, or recovers it.
        wait_until(lambda: _size(witness.directory / JOURNAL) > before or not process.is_alive())
    process.join(chance.random() * 0.05)
    process.kill()
    process.join(SECONDS_MAX)
    assert process.exitcode == -signal.SIGKILL, process.exitcode


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_killed_at_any_moment_no_job_is_lost_doubled_or_stuck(tmp_path: Path, *, campaign: bool) -> None:
    witness, chance = Witness(tmp_path), random.Random(os.urandom(8) if campaign else SEED)
    cycles = CYCLES_CAMPAIGN if campaign else CYCLES
    for number in range(6 * cycles):
        if number >= cycles and len(witness.acknowledged) > CYCLES:
            break  # On a busy machine the program gets less done before it is killed: then it is killed more often.
        cycle(witness, chance)
        witness.hear()
        witness.check()
    process: Any = _processes.Process(target=job_scribe.work_until_idle, args=(tmp_path,), daemon=True)
    process.start()
    process.join(5 * SECONDS_MAX)
    assert process.exitcode == 0
    witness.hear()
    witness.check()
    witness.check_end()
    assert len(witness.acknowledged) > CYCLES, "it lived too shortly to prove anything"
    print(f"{len(witness.acknowledged):,} jobs, {sum(witness.attempts.values()):,} attempts, {dict(witness.deaths)}")


# -- the disk is full -------------------------------------------------------------------------------------------

FULL: Final = """
import logging, resource, sys
from pathlib import Path
from latewood.catalog import Catalog, CatalogOptions
from latewood.errors import DiskFull
from latewood.jobs import Handlers, JobManager, JobOptions, Outcome, WorkerPool
from tests.jobs.kit import KIND, make_databases, DB
logging.disable(logging.CRITICAL)
path = Path(sys.argv[1])
catalog = Catalog.open(path, CatalogOptions(commit_budget_us=0))
make_databases(catalog)
manager = JobManager(catalog)
working = manager.enqueue(KIND, db_id=DB, priority=0)
promised = [working]
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

def fill(context):
    if context.lease.attempt == 1 and not context.payload:
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 16384, hard))
        try:
            while True:
                promised.append(manager.enqueue(KIND, {"x": "y" * 2000}))
        except DiskFull:
            print("full", len(promised))

handlers = Handlers()
handlers.register(KIND, fill)
pool = WorkerPool(manager, handlers)
outcomes = [pool.run_next()]
assert outcomes[0] in (Outcome.COMPLETED, Outcome.LEFT), outcomes
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
left = outcomes[0] is Outcome.LEFT
if left:
    (lease,) = manager.leases()
    manager.break_off(lease)
while (outcome := pool.run_next()) is not None:
    assert outcome is Outcome.COMPLETED, outcome
found = {job.job_id: type(job.state).__name__ for job in manager.jobs()}
assert set(promised) <= found.keys(), "a job is lost"
assert set(found.values()) == {"Completed"}, found
assert len(found) == len(promised) + left, "a job that was refused is there"
catalog.close()
print("sound", len(found))
"""


def test_a_full_disk_loses_no_job_and_leaves_no_gate_stuck(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / NAME)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "full" in result.stdout
    assert "sound" in result.stdout


# -- a process that sleeps through its lease --------------------------------------------------------------------


def test_a_process_that_was_stopped_loses_no_job_to_itself(tmp_path: Path) -> None:
    process: Any = _processes.Process(target=job_scribe.work_until_killed, args=(tmp_path, 7), daemon=True)
    process.start()
    witness = Witness(tmp_path)
    wait_until(lambda: _size(tmp_path / JOURNAL) > 500)
    os.kill(process.pid, signal.SIGSTOP)
    process.join(2 * job_scribe.JOB_OPTIONS.lease_ms / 1000)
    before = _size(tmp_path / JOURNAL)
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: _size(tmp_path / JOURNAL) > before + 500)
    process.kill()
    process.join(SECONDS_MAX)
    witness.hear()
    witness.check()
    with Catalog.open(tmp_path / NAME, mode="r") as catalog:
        repairs = [job for _, job in catalog.scan_jobs() if job.repairs_job_id is not None]
    assert not repairs, "a lease was taken from a worker that lived"


# -- what the witness would see ---------------------------------------------------------------------------------


def test_the_witness_notices_what_it_is_there_for(tmp_path: Path) -> None:
    with Catalog.open(tmp_path / NAME, OPTIONS) as catalog:
        make_databases(catalog)
        recover(catalog, SystemClock())
        manager = JobManager(catalog)
        with WorkerPool(manager, job_scribe.handlers_of(job_scribe.Journal(tmp_path))):
            manager.enqueue(KIND)
    witness = Witness(tmp_path)
    witness.hear()
    witness.check()
    witness.acknowledged.add(99_999)
    with pytest.raises(AssertionError, match="lost"):
        witness.check()
    for lines in (["b 1 1 1 1024", "b 2 1 1 1024"], ["b 900 2 None 0", "e 900 2 None 0", "b 900 2 None 0"]):
        with (tmp_path / JOURNAL).open("a") as journal:
            journal.write("\n".join(lines) + "\n")
        with pytest.raises(AssertionError, match=r"begins while|twice"):
            witness.hear()
