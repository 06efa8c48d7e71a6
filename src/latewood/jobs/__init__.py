"""Durable work: jobs in the catalog, leases, and a pool of workers that runs handlers."""

from latewood.jobs.backoff import Backoff
from latewood.jobs.bell import Bell, ThreadBell
from latewood.jobs.handlers import Handler, Handlers, JobContext, Result, upkeep_handlers
from latewood.jobs.kinds import CATALOG_CHECK, CATALOG_PRUNE, kind_name, kind_of
from latewood.jobs.lease import LeaseState, LeaseWatch
from latewood.jobs.manager import JobManager
from latewood.jobs.options import JobOptions, JobRetention
from latewood.jobs.outcome import Outcome
from latewood.jobs.retention import Pruned, prune
from latewood.jobs.worker import WorkerPool

__all__ = [
    "CATALOG_CHECK",
    "CATALOG_PRUNE",
    "Backoff",
    "Bell",
    "Handler",
    "Handlers",
    "JobContext",
    "JobManager",
    "JobOptions",
    "JobRetention",
    "LeaseState",
    "LeaseWatch",
    "Outcome",
    "Pruned",
    "Result",
    "ThreadBell",
    "WorkerPool",
    "kind_name",
    "kind_of",
    "prune",
    "upkeep_handlers",
]
