"""Lines from standard input, as they come.

A program that reads a pipe line by line waits for ever while half a buffer is still to come.  Here whatever has
arrived is handed on at once, and waiting has an end, so that the caller can make durable what it has.
"""

import io
import os
import select
import sys
from typing import Final

_READ_BYTES: Final = 1024 * 1024


class LineSource:
    """The lines of stdin, in batches."""

    def __init__(self, line_bytes_max: int) -> None:
        """Read stdin; a line of more than `line_bytes_max` is cut there, for the log to refuse it."""
        self._line_bytes_max = line_bytes_max
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._stream = sys.stdin.buffer
        try:
            self._descriptor: int | None = self._stream.fileno()
        except io.UnsupportedOperation:  # Not a file, but a value in memory.
            self._descriptor = None
        self.ended = False

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something can be read, at most this long (None: for ever); return whether it can."""
        return self._descriptor is None or bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def read(self) -> list[bytes]:
        """Return the lines that are complete, without their newline; at the end also one that has none."""
        data = self._read()
        if not data:
            self.ended = True
            return self._take_rest() if self._rest else []
        first, newline, behind = data.partition(b"\n")
        self._rest.append(first)
        self._rest_bytes += len(first)
        if not newline:
            return self._take_rest() if self._rest_bytes > self._line_bytes_max else []
        *lines, rest = [*self._take_rest(), *behind.split(b"\n")]
        if rest:
            self._rest, self._rest_bytes = [rest], len(rest)
        return lines

    def _read(self) -> bytes:
        return self._stream.read(_READ_BYTES) if self._descriptor is None else os.read(self._descriptor, _READ_BYTES)

    def _take_rest(self) -> list[bytes]:
        line = b"".join(self._rest)
        self._rest, self._rest_bytes = [], 0
        return [line]
