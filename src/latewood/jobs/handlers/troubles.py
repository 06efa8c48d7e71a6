"""Troubles: what went wrong with some chunks, so that one that is damaged does not keep a job from all others.

What went wrong with a chunk whose row has changed meanwhile is no trouble: another job has moved, replaced or retired
it, and rows change before files and objects do.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from latewood.errors import LatewoodError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row

_logger: Final = logging.getLogger(__name__)


class Troubles:
    """Collects errors, and raises the first of them at the end."""

    def __init__(self, attempt: Attempt, *kinds: type[LatewoodError]) -> None:
        """Errors of other kinds end the job at once."""
        self._attempt, self._kinds = attempt, kinds
        self.errors: list[LatewoodError] = []

    @contextmanager
    def met_with(self, rows: Sequence[Row]) -> Iterator[None]:
        """Keep an error of these kinds for the end, unless one of the rows that it is about has changed."""
        try:
            yield
        except self._kinds as error:
            if all(self._attempt.row(row.chunk_id) == row.record for row in rows):
                _logger.warning("%s: %s", type(error).__name__, error)
                self.errors.append(error)

    def tell(self) -> None:
        """Raise the first error, if there is one."""
        if self.errors:
            error = self.errors[0]
            if len(self.errors) > 1:
                error.add_note(f"and {len(self.errors) - 1} more, which the log names")
            raise error
