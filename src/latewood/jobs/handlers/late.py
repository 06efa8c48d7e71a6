"""The handlers of a store's jobs, loaded with the first job that is run.

They need Arrow, which takes longer to load than most programs that only append, or look, take altogether.
"""

from collections.abc import Callable
from typing import Final

from latewood.catalog.tables import JobKind
from latewood.forking import no_fork
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.registry import Handlers, Result
from latewood.jobs.handlers.site import StoreSite
from latewood.tasks.engine import Engine

STORE_KINDS: Final = (
    JobKind.FLUSH,
    JobKind.CHECKPOINT,
    JobKind.COMPACT,
    JobKind.ARCHIVE,
    JobKind.EVICT,
    JobKind.VERIFY,
    JobKind.HYDRATE,
    JobKind.RETAIN,
    JobKind.MEND,
    JobKind.REKEY,
)
"""The kinds that `latewood.jobs.handlers.store` has handlers for."""


def late_handlers(site: StoreSite, engine: Callable[[], Engine | None] = lambda: None) -> Handlers:
    """Return the same as `store_handlers`, without loading it; each job that begins asks for its engine."""

    def handle(context: JobContext) -> Result:
        with no_fork():
            from latewood.jobs.handlers.store import store_handlers  # noqa: PLC0415 - that is what this is for

        return store_handlers(site, engine=engine()).of(context.job)(context)

    handlers = Handlers()
    for kind in STORE_KINDS:
        handlers.register(kind, handle, repair=handle)
    return handlers
