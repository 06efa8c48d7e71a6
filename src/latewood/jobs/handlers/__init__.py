"""What jobs are done by: the registry, what a handler is given, and the handlers that come along."""

from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.registry import Handler, Handlers, Result
from latewood.jobs.handlers.upkeep import check_catalog, prune_catalog, upkeep_handlers

__all__ = ["Handler", "Handlers", "JobContext", "Result", "check_catalog", "prune_catalog", "upkeep_handlers"]
