"""A mark as JSON has it: which log a position is of, in 32 hexadecimal digits, and its life, in 16.  Pure.

Chunks, offsets of Spark and what a sink remembers have it in two fields, `log` and `life`; both are missing, or null,
where the log had no identity yet.
"""

import re
from typing import Final

from latewood.format.identity import IDENTITY_BYTES, Mark

_LIFE_DIGITS: Final = 16
_LOG: Final = re.compile(rf"[0-9a-f]{{{2 * IDENTITY_BYTES}}}")
_LIFE: Final = re.compile(rf"[0-9a-f]{{{_LIFE_DIGITS}}}")


def mark_texts(mark: Mark | None) -> tuple[str | None, str | None]:
    """Return the texts of `log` and `life`."""
    return (None, None) if mark is None else (mark.identity.hex(), f"{mark.life:0{_LIFE_DIGITS}x}")


def parse_mark(log: object, life: object) -> Mark | None:
    """Return what `log` and `life` say; None if neither is there.

    Raises:
        ValueError: they are not what `mark_texts` returns.
    """
    if log is None and life is None:
        return None
    if not (isinstance(log, str) and _LOG.fullmatch(log) and isinstance(life, str) and _LIFE.fullmatch(life)):
        message = f"{log!r} and {life!r} are not the identity of a log and a life of it"
        raise ValueError(message)
    return Mark(bytes.fromhex(log), int(life, 16))
