"""A program that runs one of a store's jobs, and kills itself before a step of it."""

import logging
import os
import signal
from pathlib import Path

from latewood.testing import FakeClock
from tests.archive.servers import Server
from tests.runtime.pond import Pond


def run_until_step(home: Path, endpoint: str, prefix: str, now_ns: int, job: tuple[str, str, int]) -> None:
    """Run a job of a kind, up to the step of this name, when it comes the time that is told."""
    logging.disable(logging.CRITICAL)
    kind, step, times = job
    left = [times]

    def steps(name: str) -> None:
        if name == step:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    pond = Pond(home, tier=Server(endpoint, None).tier(prefix), clock=FakeClock(now_ns), steps=steps)  # type: ignore[arg-type]
    pond.enqueue(kind)
    pond.settle()
    os._exit(0)
