"""Closing: the end of something that has many parts, each of which may fail to end well.

Every part is closed, whatever others raise.  One error is raised in the end: an interrupt, else one that says that
records are in doubt, else the first; the others are in its notes.  So it is with what a `with` block raised, which came
before whatever closing met.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from latewood.errors import Poisoned

NOTES_MAX: Final = 16
"""Failures that are told in full beside the one that is raised: a database may have thousands of shards."""


class Closing:
    """Takes the steps of an end, as `closing(step)` within `with Closing() as closing`, and raises behind the last."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def __call__(self, step: Callable[[], object]) -> None:
        """Take a step; what it raises is raised at the end of the block."""
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - also an interrupt: what is left open would stay locked
            self._errors.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        errors = self._errors if error is None else [*self._errors, error]
        if not errors:
            return
        gravest = min(errors, key=_rank)  # Of those that are equal it is the first.
        others = [other for other in errors if other is not gravest]
        for other in others[:NOTES_MAX]:
            _note(gravest, "closing went on, and met", other)
        if len(others) > NOTES_MAX:
            gravest.add_note(f"and {len(others) - NOTES_MAX} more failures")
        if gravest is not error:
            raise gravest


def close_behind(close: Callable[[], object], error: BaseException | None) -> None:
    """Close at the end of a `with` block, which raised `error`; that goes on, unless closing meets something graver."""
    try:
        close()
    except BaseException as met:
        if error is None:
            raise
        if _rank(met) < _rank(error):
            met.add_note(f"before it was closed there was {type(error).__name__}: {error}")
            raise
        _note(error, "closing it met", met)


def _note(error: BaseException, how: str, other: BaseException) -> None:
    error.add_note(f"{how} {type(other).__name__}: {other}")
    for note in getattr(other, "__notes__", []):
        error.add_note(note)


def _rank(error: BaseException) -> int:
    if not isinstance(error, Exception):
        return 0
    return 1 if isinstance(error, Poisoned) else 2
