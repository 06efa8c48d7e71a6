"""What an attempt at a job comes to.  Pure."""

import traceback
from enum import Enum, auto
from typing import Final

from latewood.catalog.tables import JobError
from latewood.errors import (
    CorruptError,
    DataLost,
    JobCancelled,
    JobFailed,
    JobStopped,
    KeyNotFound,
    LeaseLost,
    UnsupportedVersion,
    UsageError,
)
from latewood.limits import JOB_ERROR_CHARS_MAX

_HOPELESS: Final = (JobFailed, UsageError, CorruptError, UnsupportedVersion, DataLost, KeyNotFound)
"""Errors that another attempt meets again: somebody must act first."""


class Outcome(Enum):
    """What became of an attempt."""

    COMPLETED = auto()
    RETRIED = auto()
    """It failed, and waits for its next attempt; or that was the last one."""
    FAILED = auto()
    """It failed for good."""
    CANCELLED = auto()
    RELEASED = auto()
    """The pool stops: the job waits for another worker, and no attempt is lost."""
    LOST = auto()
    """The lease went to another; nothing that this attempt did since counts."""
    LEFT = auto()
    """The catalog cannot be written: the lease runs out by itself."""


def judge(error: BaseException, *, is_cancelled: bool, is_stopping: bool) -> Outcome:
    """Return what the error that a handler raised makes of its attempt.

    JobCancelled and JobStopped count only from whom they are true of: else they are failures like others.
    """
    match error:
        case LeaseLost():
            return Outcome.LOST
        case JobCancelled() if is_cancelled:
            return Outcome.CANCELLED
        case JobStopped() if is_stopping:
            return Outcome.RELEASED
        case _:
            return Outcome.FAILED if isinstance(error, _HOPELESS) else Outcome.RETRIED


def snapshot(error: BaseException, at_ms: int, attempt: int) -> JobError:
    """Return what is kept of an error: its end is what tells most."""
    return JobError(
        at_ms=at_ms,
        attempt=attempt,
        kind=type(error).__name__,
        message=_storable(_message(error))[:JOB_ERROR_CHARS_MAX],
        traceback=_storable("".join(traceback.format_exception(error)))[-JOB_ERROR_CHARS_MAX:],
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a handler's own class, which must not take the worker along
        return f"its text cannot be made: {type(broken).__name__}"


def _storable(text: str) -> str:
    """Return a text without what is no character: a file name that is no UTF-8 has such."""
    return text.encode(errors="backslashreplace").decode()
