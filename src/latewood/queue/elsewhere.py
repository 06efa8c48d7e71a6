"""Positions that a program keeps in its own database, beside the effect of the records that it has read.

The log has no file of such a position, so the program stores the mark of the log with it.
"""

from typing import cast

from latewood.errors import AnotherLog, UsageError
from latewood.format.identity import Mark
from latewood.limits import U64_MAX
from latewood.log import Log
from latewood.log.argument import storable
from latewood.log.identity import stranger_reason


def check_position(log: Log, sequence: int, mark: Mark | None) -> None:
    """Do nothing if a position is one of a log.

    Raises:
        AnotherLog: it is of another log, or of records that this one lost or does not have any more.
        UsageError: that is no sequence, or no mark.
    """
    sequence, given = storable(sequence, U64_MAX, "sequence"), cast("object", mark)  # Whatever its type says.
    if given is not None and not isinstance(given, Mark):
        message = f"mark must be a Mark, as log.mark is, not {mark!r}"
        raise UsageError(message)
    end = log.next_sequence
    reason = stranger_reason(log.identity, mark, sequence)
    if reason is None and sequence > end:
        reason = f"the position is {sequence}, and the log ends at {end}: an older copy of it was restored"
    if reason is not None:
        mend = (
            f"if this is the right log, begin anew in it, from sequence {log.first_sequence}; else bring back the log "
            "that the position is of"
        )
        raise AnotherLog(reason, log.path, mend)
