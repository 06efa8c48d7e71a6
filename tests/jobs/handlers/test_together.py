"""All jobs at the same time, in threads: no decision about chunks crosses another, and nothing is lost."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from latewood.catalog.tables import FailedPermanent, JobKind
from latewood.errors import UniqueJobAlreadyPending
from latewood.jobs import JobOptions, WorkerPool
from latewood.jobs.backoff import Backoff
from latewood.jobs.handlers.hydrate import HYDRATE
from latewood.jobs.handlers.repair import MEND
from latewood.jobs.handlers.retain import RETAIN
from latewood.jobs.handlers.store import store_handlers
from latewood.jobs.manager import JobManager
from tests.jobs.handlers.lake import DB, Lake

KINDS: list[tuple[int, dict[str, Any]]] = [
    (JobKind.FLUSH, {"seal": True}),
    (JobKind.FLUSH, {}),
    (JobKind.CHECKPOINT, {}),
    (JobKind.COMPACT, {"grace_ms": 0}),
    (JobKind.ARCHIVE, {}),
    (JobKind.EVICT, {"now": True}),
    (HYDRATE, {}),
    (RETAIN, {}),
    (JobKind.VERIFY, {}),
    (MEND, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_run_together_lose_nothing_and_leave_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Lake(tmp_path / "lake") as lake:
        backoff = Backoff(first_ms=1, max_ms=2)
        manager = JobManager(lake.catalog, JobOptions(backoff=backoff, poll_ms=5), clock=lake.clock)
        with WorkerPool(manager, store_handlers(lake), workers=4) as pool:
            for _ in range(60):
                lake.append(chance.randrange(12))
                for kind, payload in chance.sample(KINDS, 5):
                    with suppress(UniqueJobAlreadyPending):
                        manager.enqueue(kind, payload, db_id=DB, attempts_max=20)
                lake.clock.advance(ms=1)
                if chance.random() < 0.3:
                    pool.wait_until_idle()
            lake.clock.advance(ms=1000)
            pool.wait_until_idle()
        for kind, payload in KINDS:
            lake.run(kind, payload)
        failed = [job.last_error for job in lake.manager.jobs() if isinstance(job.state, FailedPermanent)]
        assert failed == []
        lake.check()
        lake.check_no_orphan()
