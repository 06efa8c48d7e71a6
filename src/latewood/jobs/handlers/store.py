"""The handlers of a store's jobs, by kind.  Each begins by removing what jobs that broke off have left."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from latewood.archive.sink import Hook, no_hook
from latewood.catalog.tables import JobKind
from latewood.jobs.handlers import archive, checkpoint, compact, evict, flush, hydrate, rekey, repair, retain, verify
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.orphans import sweep
from latewood.jobs.handlers.registry import Handler, Handlers, Result
from latewood.jobs.handlers.site import StoreSite
from latewood.tasks.engine import Engine

Run: TypeAlias = Callable[[Attempt], Result]

RUNS: Final[Mapping[int, Run]] = {
    JobKind.FLUSH: flush.flush,
    JobKind.CHECKPOINT: checkpoint.checkpoint,
    JobKind.COMPACT: compact.compact,
    JobKind.ARCHIVE: archive.archive,
    JobKind.EVICT: evict.evict,
    JobKind.VERIFY: verify.verify,
    hydrate.HYDRATE: hydrate.hydrate,
    retain.RETAIN: retain.retain,
    repair.MEND: repair.mend,
    rekey.REKEY: rekey.rekey,
}
"""What does jobs of a kind."""

STEPS: Final[Mapping[int, tuple[str, ...]]] = {
    JobKind.FLUSH: flush.STEPS,
    JobKind.CHECKPOINT: checkpoint.STEPS,
    JobKind.COMPACT: compact.STEPS,
    JobKind.ARCHIVE: archive.STEPS,
    JobKind.EVICT: evict.STEPS,
    JobKind.VERIFY: verify.STEPS,
    hydrate.HYDRATE: hydrate.STEPS,
    retain.RETAIN: retain.STEPS,
    repair.MEND: repair.STEPS,
    rekey.REKEY: rekey.STEPS,
}
"""The steps that jobs of a kind can be cut at, beside `remove orphan`, which all have."""


def store_handlers(site: StoreSite, steps: Hook = no_hook, engine: Engine | None = None) -> Handlers:
    """Return the handlers of a store's jobs; `steps` is called with the name of each step, and may end it there.

    `engine` does their work on files, as far as that can be cut into tasks; None: the thread that runs the job.
    """
    handlers = Handlers()
    for kind, run in RUNS.items():
        repair = _handler(site, _nothing, steps, engine)
        handlers.register(kind, _handler(site, run, steps, engine), repair=repair)
    return handlers


def _handler(site: StoreSite, run: Run, steps: Hook, engine: Engine | None) -> Handler:
    def handle(context: JobContext) -> Result:
        attempt = Attempt(context, site, steps, engine)
        sweep(attempt)
        return run(attempt)

    return handle


def _nothing(attempt: Attempt) -> Result:
    """Mend what a job that broke off has left: the sweep before this was all of it."""
    attempt.context.check()
    return None
