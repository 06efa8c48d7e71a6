"""A mark as JSON has it: which log a position is of, in 32 hexadecimal digits, and its life, in 16.  Pure.

Chunks, offsets of Spark and what a sink remembers have it in two fields, `log` and `life`; both are missing, or null,
where the log had no identity yet.
"""

from contextlib import suppress

from latewood.errors import UsageError
from latewood.format.identity import Mark


def mark_texts(mark: Mark | None) -> tuple[str | None, str | None]:
    """Return the texts of `log` and `life`."""
    if mark is None:
        return None, None
    log, _, life = mark.text.partition("-")
    return log, life


def parse_mark(log: object, life: object) -> Mark | None:
    """Return what `log` and `life` say; None if neither is there.

    Raises:
        ValueError: they are not what `mark_texts` returns.
    """
    if log is None and life is None:
        return None
    if isinstance(log, str) and isinstance(life, str):
        with suppress(UsageError):
            return Mark.from_text(f"{log}-{life}")
    message = f"{log!r} and {life!r} are not the identity of a log and a life of it"
    raise ValueError(message)
