"""What is known of an append that was cut into several requests: values that `OutcomeUnknown` carries.  Pure.

A part is known, or was sent without an answer, or was certainly not written.  With that, `resolve` brings the whole to
its end without writing anything twice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from latewood.errors import OutcomeUnknown, UsageError
from latewood.replica.requests import Append

if TYPE_CHECKING:
    import asyncio


class SentPart(NamedTuple):
    """The share of one call in a request whose answer is missing."""

    request: Append
    start: int
    stop: int
    until: float
    """Of the event loop's clock: no repetition may be sent after that, it could be taken for something new."""


class KnownPart(NamedTuple):
    """Records that are written."""

    sequences: tuple[int, ...]


class UnsentPart(NamedTuple):
    """Records that are certainly not written."""

    partition: int
    payloads: list[bytes]


Part: TypeAlias = SentPart | KnownPart | UnsentPart


def gathered(partition: int, ended: Sequence[tuple[list[bytes], "asyncio.Future[list[int]] | None"]]) -> list[int]:
    """Return the sequences of all parts, which were sent one after another until one failed.

    Raises:
        OutcomeUnknown: not all are written, and some may be.
        LatewoodError: none is, or one is not fit to be.
    """
    parts = [_part(partition, payloads, future) for payloads, future in ended]
    written = [sequence for part in parts if isinstance(part, KnownPart) for sequence in part.sequences]
    error = next((error for _, future in ended if future and (error := future.exception())), None)
    if error is None:
        return written
    if isinstance(error, UsageError) and written:
        error.add_note(f"the first {len(written)} records of this call were written")
    if isinstance(error, UsageError) or (not written and not isinstance(error, OutcomeUnknown)):
        raise error
    count = sum(len(payloads) for payloads, _ in ended)
    why = error.reason if isinstance(error, OutcomeUnknown) else str(error)
    kind = type(error) if isinstance(error, OutcomeUnknown) else OutcomeUnknown
    raise kind(f"{len(written)} of {count} records are known to be written: {why}", tuple(parts))


def _part(partition: int, payloads: list[bytes], future: "asyncio.Future[list[int]] | None") -> Part:
    error = future.exception() if future else None
    if future is not None and error is None:
        return KnownPart(tuple(future.result()))
    if isinstance(error, OutcomeUnknown):
        (part,) = error.parts
        assert isinstance(part, SentPart)
        return part
    return UnsentPart(partition, payloads)
