"""What callers hand in, checked: whole numbers, times and waits.  Each error says what would have been right."""

from datetime import UTC, datetime
from operator import index
from typing import Any

from latewood.errors import UsageError
from latewood.limits import check_number
from latewood.log.layout import NANOSECONDS


def whole(value: Any, what: str) -> int:
    """Return `value` if it is a whole number.

    Raises:
        UsageError: it is something else.
    """
    try:
        return index(value)
    except TypeError:
        message = f"{what} must be a whole number, not {value!r}"
        raise UsageError(message) from None


def whole_or_none(value: Any, what: str) -> int | None:
    """Return `value` if it is a whole number or None.

    Raises:
        UsageError: it is something else.
    """
    return None if value is None else whole(value, what)


def storable(value: Any, value_max: int, what: str) -> int:
    """Return `value` if it is a whole number from 0 to `value_max`.

    Raises:
        UsageError: it is something else.
    """
    return check_number(whole(value, what), value_max, what)


def sequence_of(value: Any) -> int:
    """Return `value` if it can be a record's sequence.

    Raises:
        UsageError: it is no whole number, or below 0.
    """
    sequence = whole(value, "a sequence")
    if sequence < 0:
        message = f"a sequence is 0 or more, not {sequence}"
        raise UsageError(message)
    return sequence


def nanoseconds(value: Any) -> int:
    """Return a time as nanoseconds since 1970; a datetime that names no zone is in UTC.

    Raises:
        UsageError: it is neither a datetime nor a whole number.
    """
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int(moment.replace(microsecond=0).timestamp()) * NANOSECONDS + moment.microsecond * 1000
    try:
        return index(value)
    except TypeError:
        message = f"a time is a datetime, or whole nanoseconds since 1970, not {value!r}"
        raise UsageError(message) from None


def seconds(value: Any) -> float | None:
    """Return how long to wait: seconds, or None for ever.

    Raises:
        UsageError: it is neither.
    """
    if value is None or (isinstance(value, int | float) and value == value):  # noqa: PLR0124 - NaN is not itself
        return value
    message = f"timeout must be seconds, or None to wait for ever, not {value!r}"
    raise UsageError(message)
