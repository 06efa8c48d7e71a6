"""The loop behind `latewood append`: from standard input into a log, or a database.

A record is acknowledged when it is durable, never sooner.  While the input goes on that is at most `FLUSH_DELAY_S`
after the record was read; records that arrive together share a flush.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from latewood.cli.batch import Batch
from latewood.cli.interruption import Interruption
from latewood.cli.output import write_bytes
from latewood.cli.source import LineSource
from latewood.errors import LatewoodError, RecordTooLarge, UnavailableError
from latewood.log.roll import check_payload
from latewood.queue import Queue

FLUSH_DELAY_S: Final = 0.05
_JSON_GROWTH: Final = 6
"""A byte of a payload takes at most so many in JSON: `\\u0000`."""


class Sink(Protocol):
    """Where records go."""

    segment_bytes_max: int
    is_ordered: bool
    """Whether a batch that was cut short has its first records in, and none of the others."""

    @property
    def written(self) -> int:
        """How many records were appended."""
        ...

    @property
    def durable(self) -> int:
        """How many of them are durable."""
        ...

    def append(self, batch: Batch) -> None:
        """Append all of them; nothing of it if one of them is too large."""
        ...

    def stored_bytes(self, batch: Batch, index: int) -> int:
        """Return the length of what is stored of one record."""
        ...

    def flush(self) -> str:
        """Make everything durable, and return a line for each record that became so."""
        ...

    def place(self) -> str:
        """Return where the durable ones are."""
        ...


class LogSink:
    """A log."""

    is_ordered = True

    def __init__(self, log: Queue) -> None:
        self._log = log
        self.segment_bytes_max = log.options.segment_bytes_max
        self._first = self._acknowledged = log.next_sequence

    @property
    def written(self) -> int:
        """How many records were appended."""
        return self._log.next_sequence - self._first

    @property
    def durable(self) -> int:
        """How many of them are durable."""
        return self._acknowledged - self._first

    def append(self, batch: Batch) -> None:
        """Append all of them, or nothing."""
        self._log.append_many(batch.payloads, ext_ids=batch.ext_ids, timestamps_ns=batch.timestamps_ns)

    def stored_bytes(self, batch: Batch, index: int) -> int:
        """Return the length of a payload."""
        return len(batch.payloads[index])

    def flush(self) -> str:
        """Make everything durable, and return the sequences that became so."""
        self._log.flush()
        first, self._acknowledged = self._acknowledged, self._log.durable_sequence
        return "".join(f"{sequence}\n" for sequence in range(first, self._acknowledged))

    def place(self) -> str:
        """Return the sequences."""
        return f"sequences {self._first} to {self._acknowledged - 1}"


class Appending:
    """One run, and what it has done so far."""

    def __init__(
        self,
        sink: Sink,
        decode: Callable[[list[bytes]], Batch],
        interruption: Interruption,
        *,
        ack: bool,
        is_json: bool,
    ) -> None:
        self._sink, self._decode, self._interruption, self._ack = sink, decode, interruption, ack
        self._source = LineSource(sink.segment_bytes_max * (_JSON_GROWTH if is_json else 1))
        self._lines = 0
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
        durable, more = self._sink.durable, self._sink.written - self._sink.durable
        text = f"{durable:,} appended and durable, {self._sink.place()}" if durable else "nothing was appended"
        return f"{text}; {more:,} more are written, and not known to be durable" if more else text

    def _step(self, delay_s: float) -> None:
        """Take what has arrived, or wait for it as long as nothing else is due."""
        patience_s = None if self._due_at is None else max(0.0, self._due_at - time.monotonic())
        with self._interruption.allowed():
            ready = self._source.wait(patience_s)
        if ready:
            self._append(self._source.read())
            if self._due_at is None and self._sink.written > self._sink.durable:
                self._due_at = time.monotonic() + delay_s
        if self._due_at is not None and time.monotonic() >= self._due_at:
            self._acknowledge()

    def _append(self, lines: list[bytes]) -> None:
        batch = self._decode(lines)
        if batch.payloads:
            begun = self._sink.written
            try:
                self._sink.append(batch)
            except RecordTooLarge:
                self._append_fitting(batch)
                raise
            except UnavailableError as error:
                self._say_where_to_resume(error, batch, self._sink.written - begun)
                raise
        if batch.failure:
            self._blame(batch.failure, batch.numbers[-1])
            raise batch.failure
        self._lines += len(lines)

    def _append_fitting(self, batch: Batch) -> None:
        """Append those before the record that does not fit, and say which one it is."""
        for index in range(len(batch.payloads)):
            try:
                check_payload(self._sink.stored_bytes(batch, index), self._sink.segment_bytes_max)
            except RecordTooLarge as error:
                if index:
                    self._sink.append(batch.cut(index))
                self._blame(error, batch.numbers[index])
                raise

    def _say_where_to_resume(self, error: LatewoodError, batch: Batch, appended: int) -> None:
        """Say which line is the first that was not appended, in place of how many of this batch were."""
        error.__notes__ = []
        first, last = self._lines + batch.numbers[0] + 1, self._lines + batch.numbers[len(batch.payloads) - 1] + 1
        if not self._sink.is_ordered:
            error.add_note(f"of lines {first} to {last} of the input {appended:,} were appended, all before them were")
        elif appended < len(batch.numbers):
            line = self._lines + batch.numbers[appended] + 1
            error.add_note(f"line {line} of the input is the first that was not appended: resume there")

    def _blame(self, error: LatewoodError, number: int) -> None:
        error.add_note(f"this is line {self._lines + number + 1}; those before it were appended, none after it")

    def _acknowledge(self) -> None:
        """Make everything durable, then say so."""
        self._due_at = None
        lines = self._sink.flush()
        if self._ack and lines:
            write_bytes(lines.encode())
