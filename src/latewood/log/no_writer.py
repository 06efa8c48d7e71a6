"""What a log that was opened to read has in place of a writer."""

from typing import Any, Final

from latewood.errors import ReadOnlyError
from latewood.log.writer import Writer

_OPENED_TO_READ: Final = "the log was opened with mode='r'; open it without to append"


class NoWriter(Writer):
    """Refuses everything but to be closed."""

    def __init__(self) -> None:
        """There is nothing to hold."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("close", "is_closed", "__class__"):
            return object.__getattribute__(self, name)
        raise ReadOnlyError(_OPENED_TO_READ)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ReadOnlyError(_OPENED_TO_READ)

    @property
    def is_closed(self) -> bool:
        """Nothing was ever open."""
        return True

    def close(self) -> None:
        """Nothing to flush."""
