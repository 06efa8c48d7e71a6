"""Closing: how something with many parts is closed, when closing a part may fail.

Every part is closed, whatever the others raise.  Then one error is raised: an interrupt, else `Poisoned`, because
records are in doubt, else the first.  The others are in its notes.  For `close_behind` the first one is what the `with`
block raised.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from latewood.errors import DirectoryReplaced, Poisoned

NOTES_MAX: Final = 16
"""Failures that the notes of the raised error have in full.  More would flood a log: a database has many shards."""


class Closing:
    """Takes steps, as `closing(step)` within `with Closing() as closing`, and raises what failed after the last."""

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
    """Close at the end of a `with` block.  The `error` that it raised goes on, unless closing raises a graver one."""
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
    if _is_told(error, other):
        return
    error.add_note(f"{how} {type(other).__name__}: {other}")
    for note in getattr(other, "__notes__", []):
        error.add_note(note)


def _is_told(error: BaseException, other: BaseException) -> bool:
    """Say whether both are of a directory that was replaced: a store, its catalog and each shard meet the same."""
    return isinstance(error, DirectoryReplaced) and isinstance(other, DirectoryReplaced)


def _rank(error: BaseException) -> int:
    if not isinstance(error, Exception):
        return 0
    return 1 if isinstance(error, Poisoned) else 2
