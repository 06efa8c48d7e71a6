"""Runner: one attempt at one job, and the one commit that says what came of it."""

import logging
from collections.abc import Callable
from typing import Final

from latewood.errors import ClosedError, LatewoodError, LeaseLost, UnavailableError
from latewood.jobs.bell import Bell
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.registry import Handlers
from latewood.jobs.kinds import kind_name
from latewood.jobs.manager import JobManager
from latewood.jobs.outcome import Outcome, judge, snapshot

_logger: Final = logging.getLogger(__name__)
_PAUSES_S: Final = (0.05, 0.2, 1.0)
"""Between attempts to note an outcome while the catalog is full or busy; then the lease is left to run out."""


class Runner:
    """Runs handlers.  Has no state of its own: any thread may use it."""

    def __init__(self, manager: JobManager, handlers: Handlers, bell: Bell) -> None:
        self._manager, self._handlers, self._bell = manager, handlers, bell

    def attempt(self, context: JobContext) -> Outcome:
        """Run a job's handler, note durably what came of it, and return that.

        Errors of the handler end here.  What is no Exception (the process is being ended) goes through: the lease runs
        out, as if the process had died.
        """
        job_id, lease = context.job.job_id, context.lease
        try:
            ops = self._handlers.of(context.job)(context) or ()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the top of a handler: it is stored with the job
            return self._note_failure(context, error)
        try:
            return self._note(context, Outcome.COMPLETED, lambda: self._manager.finish(job_id, lease, ops))
        except LatewoodError as error:  # What the handler wants changed cannot be changed.
            return self._note_failure(context, error)

    def _note_failure(self, context: JobContext, error: BaseException) -> Outcome:
        manager, job_id, lease = self._manager, context.job.job_id, context.lease
        outcome = judge(error, is_cancelled=context.cancelled, is_stopping=context.stopping)
        error_kept = snapshot(error, manager.now_ms(), lease.attempt)
        match outcome:
            case Outcome.LOST:
                return self._told(context, outcome, error)
            case Outcome.CANCELLED:
                return self._note(context, outcome, lambda: manager.abort(job_id, lease))
            case Outcome.RELEASED:
                return self._note(context, outcome, lambda: manager.release(job_id, lease, error_kept))
            case _:
                for_good = outcome is Outcome.FAILED
                self._told(context, outcome, error)
                return self._note(context, outcome, lambda: manager.fail(job_id, lease, error_kept, for_good=for_good))

    def _note(self, context: JobContext, outcome: Outcome, commit: Callable[[], None]) -> Outcome:
        """Return the outcome once it is durable, or what it is instead."""
        for pause_s in (*_PAUSES_S, 0.0):
            try:
                commit()
            except LeaseLost as error:
                return self._told(context, Outcome.LOST, error)
            except ClosedError as error:
                return self._told(context, Outcome.LEFT, error)
            except UnavailableError as error:
                self._told(context, Outcome.LEFT, error)
                self._bell.wait(self._bell.count(), pause_s)
            else:
                return outcome
        return Outcome.LEFT

    @staticmethod
    def _told(context: JobContext, outcome: Outcome, error: BaseException) -> Outcome:
        _logger.warning(
            "job %d (%s), attempt %d: %s: %s: %s",
            context.job.job_id,
            kind_name(context.job.kind),
            context.lease.attempt,
            outcome.name.lower(),
            type(error).__name__,
            error,
        )
        return outcome
