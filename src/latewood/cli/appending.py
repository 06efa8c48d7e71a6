"""The loop behind `latewood append`: from standard input into a log.

A record is acknowledged when it is durable, never sooner.  While the input goes on that is at most `FLUSH_DELAY_S`
after the record was read; records that arrive together share a flush.
"""

import time
from contextlib import suppress
from typing import Final

from latewood.cli.batch import Batch, decode_json, decode_lines
from latewood.cli.interruption import Interruption
from latewood.cli.output import write_bytes
from latewood.cli.source import LineSource
from latewood.errors import LatewoodError, RecordTooLarge, UnavailableError
from latewood.queue import Queue

FLUSH_DELAY_S: Final = 0.05
_JSON_GROWTH: Final = 6
"""A byte of a payload takes at most so many in JSON: `\\u0000`."""


class Appending:
    """One run, and what it has done so far."""

    def __init__(self, log: Queue, interruption: Interruption, *, is_json: bool, ext_id: int, ack: bool) -> None:
        self._log, self._interruption, self._ack = log, interruption, ack
        line_bytes_max = log.options.segment_bytes_max * (_JSON_GROWTH if is_json else 1)
        self._source = LineSource(line_bytes_max)
        self._is_json, self._ext_id = is_json, ext_id
        self._lines = 0
        self._first = self._acknowledged = log.next_sequence
        self._due_at: float | None = None

    def run(self, *, durable: bool) -> None:
        """Append until the input ends.  With `durable`, flush before every further read.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; what was read is durable.
            UsageError: a line is no record; those before it are durable.
            BrokenPipeError: nobody reads the acknowledgements.
        """
        try:
            while not self._source.ended:
                self._step(0.0 if durable else FLUSH_DELAY_S)
        except BaseException:
            with suppress(LatewoodError, BrokenPipeError):  # The first error is the one to tell.
                self._acknowledge()
            raise
        self._acknowledge()

    def summary(self) -> str:
        """Return how many records there were."""
        durable, written = self._acknowledged - self._first, self._log.next_sequence - self._acknowledged
        text = "nothing was appended"
        if durable:
            text = f"{durable:,} appended and durable, sequences {self._first} to {self._acknowledged - 1}"
        return f"{text}; {written:,} more are written, and not known to be durable" if written else text

    def _step(self, delay_s: float) -> None:
        """Take what has arrived, or wait for it as long as nothing else is due."""
        patience_s = None if self._due_at is None else max(0.0, self._due_at - time.monotonic())
        with self._interruption.allowed():
            ready = self._source.wait(patience_s)
        if ready:
            self._append(self._source.read())
            if self._due_at is None and self._log.next_sequence > self._acknowledged:
                self._due_at = time.monotonic() + delay_s
        if self._due_at is not None and time.monotonic() >= self._due_at:
            self._acknowledge()

    def _append(self, lines: list[bytes]) -> None:
        batch = decode_json(lines) if self._is_json else decode_lines(lines, self._ext_id)
        if batch.payloads:
            begun = self._log.next_sequence
            try:
                self._log.append_many(batch.payloads, ext_ids=batch.ext_ids, timestamps_ns=batch.timestamps_ns)
            except RecordTooLarge:
                self._append_singly(batch)
            except UnavailableError as error:
                self._say_where_to_resume(error, batch, self._log.next_sequence - begun)
                raise
        if batch.failure:
            self._blame(batch.failure, batch.numbers[-1])
            raise batch.failure
        self._lines += len(lines)

    def _append_singly(self, batch: Batch) -> None:
        """Append those before the record that does not fit, and say which one it is."""
        for payload, ext_id, timestamp_ns, number in batch.rows():
            try:
                self._log.append(payload, ext_id=ext_id, timestamp_ns=timestamp_ns)
            except RecordTooLarge as error:
                self._blame(error, number)
                raise

    def _say_where_to_resume(self, error: LatewoodError, batch: Batch, appended: int) -> None:
        """Say which line is the first that was not appended, in place of how many of this batch were."""
        error.__notes__ = []
        if appended < len(batch.numbers):
            line = self._lines + batch.numbers[appended] + 1
            error.add_note(f"line {line} of the input is the first that was not appended: resume there")

    def _blame(self, error: LatewoodError, number: int) -> None:
        error.add_note(f"this is line {self._lines + number + 1}; those before it were appended, none after it")

    def _acknowledge(self) -> None:
        """Make everything durable, then say so."""
        self._due_at = None
        self._log.flush()
        first, self._acknowledged = self._acknowledged, self._log.durable_sequence
        if self._ack and self._acknowledged > first:
            write_bytes("".join(f"{sequence}\n" for sequence in range(first, self._acknowledged)).encode())
