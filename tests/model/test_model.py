"""Runs the machines: a log, and a queue, against their models."""

from typing import ClassVar

from hypothesis import settings

from tests.model.log_machine import LogMachine
from tests.model.queue_machine import QueueMachine


class CoarseDiskMachine(LogMachine):
    """A log on a disk that tears writes at 4 KiB."""

    tear_bytes: ClassVar[int] = 4096


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=40)

TestLogOnACoarseDisk = CoarseDiskMachine.TestCase
TestLogOnACoarseDisk.settings = settings(max_examples=30, stateful_step_count=40)

TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=80, stateful_step_count=50)
