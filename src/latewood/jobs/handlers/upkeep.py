"""The handlers that come with the catalog: check it, and prune it.

Both are idempotent: one reads only, the other forgets what a second look would find gone.
"""

from collections.abc import Sequence
from dataclasses import fields

from latewood.catalog import Op, check_file
from latewood.errors import JobFailed
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.registry import Handlers, Result
from latewood.jobs.kinds import CATALOG_CHECK, CATALOG_PRUNE
from latewood.jobs.options import JobRetention
from latewood.jobs.retention import prune


def check_catalog(context: JobContext) -> Result:
    """Read every row of the catalog, in a child process.

    Raises:
        JobFailed: something in it is damaged; the message says how much, `latewood catalog check` what.
    """
    report = check_file(context.manager.catalog.path)
    if not report.is_sound:
        first = f"; first {report.problems[0].table}: {report.problems[0].reason}" if report.problems else ""
        message = f"{report.summary}{first}; run `latewood catalog check`"
        raise JobFailed(message)
    rows = sum(report.rows.values())
    context.progress(rows, rows)
    return None


def prune_catalog(context: JobContext) -> Result:
    """Forget finished jobs and changes, as the fields of JobRetention in the payload say; else by its defaults."""
    chosen = {
        field.name: context.payload[field.name] for field in fields(JobRetention) if field.name in context.payload
    }

    def commit(ops: Sequence[Op]) -> None:
        txn = context.begin_write()
        txn.extend(ops)
        context.commit(txn)

    prune(
        context.manager.catalog,
        JobRetention(**chosen),
        context.manager.now_ms(),
        commit=commit,
        progress=context.progress,
    )
    return None


def upkeep_handlers() -> Handlers:
    """Return the handlers that every catalog has."""
    handlers = Handlers()
    handlers.register(CATALOG_CHECK, check_catalog)
    handlers.register(CATALOG_PRUNE, prune_catalog)
    return handlers
