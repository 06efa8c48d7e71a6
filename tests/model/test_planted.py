"""The machines find bugs that are planted for them: a search that finds nothing proves nothing otherwise."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from latewood import Log
from latewood.log import recovery
from latewood.queue import retention
from latewood.segment import file_bytes
from tests.model.effort import search_planted
from tests.model.machine import Machine
from tests.model.test_log_machine import LogMachine
from tests.model.test_queue_machine import QueueMachine

pytestmark = pytest.mark.slow


def leave_garbage() -> Any:
    """Recovery leaves what follows a torn tail, and the next records run into it."""
    return mock.patch.object(recovery, "nonzero_end", lambda _view, start, _stop: start)


def trust_memory() -> Any:
    """Recovery takes for durable what it only finds in memory."""
    cut = recovery._cut

    def skip(file: Any, header: Any, start: int, end: int, garbage_end: int) -> None:
        if garbage_end > end or file.size() < file_bytes(header.max_size, header.index_interval):
            cut(file, header, start, end, garbage_end)

    return mock.patch.object(recovery, "_cut", skip)


def commit_ahead() -> Any:
    """A reader commits records that are not durable."""
    return mock.patch.object(Log, "make_durable", return_value=None)


def overlook_a_reader() -> Any:
    """Retention does not see the slowest reader, if there are several."""

    def plan(segments: Any, sealed_bytes: int, readers: list[retention.ReaderState], *rest: Any) -> retention.Plan:
        others = sorted(readers, key=lambda reader: reader.sequence)[1:]
        return retention.plan(segments, sealed_bytes, others or readers, *rest)

    return mock.patch("latewood.queue.queue.plan", plan)


@pytest.mark.parametrize(
    ("machine", "plant"),
    [
        (LogMachine, leave_garbage),
        (LogMachine, trust_memory),
        (QueueMachine, commit_ahead),
        (QueueMachine, overlook_a_reader),
    ],
    ids=["leave garbage", "trust memory", "commit ahead", "overlook a reader"],
)
def test_a_machine_finds_a_bug_that_is_planted(machine: type[Machine], plant: Callable[[], Any]) -> None:
    with plant(), pytest.raises(AssertionError):
        search_planted(machine)
