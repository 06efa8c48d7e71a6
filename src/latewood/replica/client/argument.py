"""What callers of a client hand in, checked before anything is sent; each error says what would be right.  Pure.

A node closes the connection on what it cannot decode, so it must not come to that.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

from latewood.errors import UsageError
from latewood.limits import U64_MAX
from latewood.log.argument import sequence_of, storable
from latewood.replica.requests import PARTITION_MAX

_NODE_MAX: Final = (1 << 63) - 1


def partition_number(value: Any) -> int:
    """Return `value` if it can be a partition's number.

    Raises:
        UsageError: it is no whole number from 0 on.
    """
    return _number(value, PARTITION_MAX, "a partition")


def partition_numbers(values: Any) -> tuple[int, ...]:
    """Return the numbers of partitions.

    Raises:
        UsageError: it is no list of them.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        message = f"partitions are given as a list of their numbers, as in [7, 8], not {values!r}"
        raise UsageError(message)
    return tuple(partition_number(value) for value in values)


def node_number(value: Any) -> int:
    """Return `value` if it can be a node's id.

    Raises:
        UsageError: it is no whole number from 1 on.
    """
    number = _number(value, _NODE_MAX, "the id of a node")
    if not number:
        raise UsageError("the id of a node is 1 or more, not 0")
    return number


def global_index(value: Any) -> int:
    """Return `value` if it can be a global index, or 0.

    Raises:
        UsageError: it can be neither.
    """
    return _number(value, U64_MAX, "a global index")


def record_sequence(value: Any) -> int:
    """Return `value` if it can be a record's sequence, and travel in a message.

    Raises:
        UsageError: it cannot.
    """
    return storable(sequence_of(value), U64_MAX, "a sequence")


def wait_seconds(value: Any) -> float:
    """Return how long to wait: seconds, and not for ever.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    message = f"timeout must be seconds, as in 1.5, not {value!r}"
    raise UsageError(message)


def _number(value: Any, value_max: int, what: str) -> int:
    if isinstance(value, bool):  # It is an int to Python, and a mistake of the caller.
        message = f"{what} must be a whole number, not {value!r}"
        raise UsageError(message)
    return storable(value, value_max, what)
