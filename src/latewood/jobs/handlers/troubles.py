"""Troubles: what went wrong with some chunks, so that one that is damaged does not keep a job from all others."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from latewood.errors import LatewoodError

_logger: Final = logging.getLogger(__name__)


class Troubles:
    """Collects errors, and raises the first of them at the end."""

    def __init__(self) -> None:
        self.errors: list[LatewoodError] = []

    @contextmanager
    def met(self, *kinds: type[LatewoodError]) -> Iterator[None]:
        """Keep an error of these kinds for the end."""
        try:
            yield
        except kinds as error:
            _logger.warning("%s: %s", type(error).__name__, error)
            self.errors.append(error)

    def tell(self) -> None:
        """Raise the first error, if there is one."""
        if self.errors:
            error = self.errors[0]
            if len(self.errors) > 1:
                error.add_note(f"and {len(self.errors) - 1} more, which the log names")
            raise error
