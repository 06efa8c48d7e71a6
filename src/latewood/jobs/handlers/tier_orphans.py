"""Unfinished files in a tier, left by uploads that were killed.

The tier knows by itself who is at work there, since it may be that of several stores; a job only says where to look.
"""

from typing import Final

from latewood.archive.names import shard_prefix
from latewood.catalog.tables import JobKind
from latewood.jobs.handlers.attempt import Attempt

_KINDS: Final = (JobKind.ARCHIVE, JobKind.MEND, JobKind.RETAIN)
"""Jobs that upload, or that remove what goes: all others leave the tier in peace."""


def sweep_tier(attempt: Attempt) -> list[str]:
    """Have the tier remove what is left of uploads of the database that were killed; return the names."""
    tier = attempt.db.tier
    if tier is None or attempt.context.job.gate_kind not in _KINDS:
        return []
    prefixes = ["", *(shard_prefix(attempt.db.record.name, shard) for shard in attempt.shards)]
    return [name for prefix in prefixes for name in tier.sweep(prefix, attempt.step)]
