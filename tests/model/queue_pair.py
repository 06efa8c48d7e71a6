"""A queue and its model: what `Pair` does, and readers and retention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from latewood import (
    DataLost,
    Locked,
    Log,
    LogOptions,
    NotFoundError,
    Queue,
    Reader,
    Record,
    RetentionPolicy,
    UsageError,
)
from latewood.queue import Start
from tests.model.model import Model
from tests.model.pair import ROOT, Cut, Pair, rows

_Error = TypeVar("_Error", bound=Exception)
_Result = TypeVar("_Result")


@dataclass
class Handle:
    """An open reader, and where it should stand."""

    reader: Reader
    position: int
    held: tuple[int, int] | None = None
    """The segment that it has open, and can read to its end even if it is retired."""


class QueuePair(Pair):
    """One queue, its model, and their disk."""

    def __init__(self, options: LogOptions, *, tear_bytes: int = 512, plain: bool = False) -> None:
        self.handles: dict[str, Handle] = {}
        super().__init__(options, tear_bytes=tear_bytes, plain=plain)

    # -- readers ------------------------------------------------------------------------------------------

    def open_reader(self, name: str, start: Start = "resume", *, elsewhere: bool = False) -> None:
        """Open a reader, in the writer's process or, with `elsewhere`, as one that only reads would."""
        log = Queue.open(ROOT, mode="r", fs=self.fs, clock=self.clock) if elsewhere else self.log
        if name in self.handles:
            _expect(Locked, lambda: log.reader(name, start))
            return
        model, after = self.model, self.model.copy()
        sequence = self._start_of(name, start)
        if sequence > model.end:
            self._do(lambda: _expect(UsageError, lambda: log.reader(name, start)), after)
            return
        resumes = start == "resume" and name in model.cursors
        if not resumes and sequence < model.first:
            self._do(lambda: self._expect_loss(sequence, lambda: log.reader(name, start)), after)
            return
        if not resumes:
            after.commit(name, sequence, self.clock.now_ns())
        reader = self._do_in(log, lambda: log.reader(name, start), after)
        if reader is not None:
            self.handles[name] = Handle(reader, sequence, None if resumes else self.model.segment_of(sequence))

    def _start_of(self, name: str, start: Start) -> int:
        model = self.model
        if start == "resume":
            return model.cursors[name].sequence if name in model.cursors else model.first
        words = {"earliest": model.first, "latest": model.end}
        return start if isinstance(start, int) else words[str(start)]

    def next(self, name: str) -> None:
        handle = self.handles[name]
        self._take(handle, 1, lambda: [one for one in [handle.reader.next()] if one is not None])

    def poll(self, name: str, records_max: int) -> None:
        handle = self.handles[name]
        self._take(handle, records_max, lambda: handle.reader.poll(records_max))

    def read_arrow(self, name: str, records_max: int) -> None:
        handle = self.handles[name]
        if handle.reader._taken < len(handle.reader._buffer):
            handle.held = None  # What is in the buffer is read again, from the disk.
        self._take(handle, records_max, lambda: rows(handle.reader.read_arrow(records_max)))

    def iterate(self, name: str) -> None:
        """Read to the end, or to where records were lost."""
        handle = self.handles[name]
        while handle.position < self.model.end and self._is_readable(handle):
            self.next(name)
        self.next(name)

    def _take(self, handle: Handle, records_max: int, take: Callable[[], list[Record]]) -> None:
        model, at = self.model, handle.position
        if not self._is_readable(handle):
            self._expect_loss(at, take)
            return
        taken = take()
        assert len(taken) <= records_max
        assert taken == model.records[at : at + len(taken)]
        assert taken or at == model.end
        handle.position += len(taken)
        handle.held = model.segment_of(taken[-1].sequence if taken else at)

    def _is_readable(self, handle: Handle) -> bool:
        held = handle.held is not None and handle.held[0] <= handle.position < self._held_end(handle)
        return held or handle.position >= self.model.first

    def _held_end(self, handle: Handle) -> int:
        assert handle.held is not None
        return self.model.segment_of(handle.held[0])[1]  # It may have been sealed since.

    def commit(self, name: str) -> None:
        handle, model, after = self.handles[name], self.model, self.model.copy()
        at = handle.position
        moved_back = name in model.cursors and at < model.cursors[name].sequence
        if at < model.first and (handle.held is None or moved_back):
            self._do(lambda: self._expect_loss(at, handle.reader.commit), after)
            return
        handle.held = handle.held or model.segment_of(at)
        after.commit(name, at, self.clock.now_ns())
        self._do_in(handle.reader._log, handle.reader.commit, after)

    def _do_in(self, log: Log, act: Callable[[], _Result], after: Model) -> _Result | None:
        """Do something in the process that has this `log` open."""
        self.is_apart = self.is_apart or log is not self.log
        # What fails to sync elsewhere fails in the writer as well: the kernel tells every process that has the file
        # open.  The disk in memory tells only one, so it must not forget the data then.
        self.fs.failed_sync_drops = log is self.log
        try:
            return self._do(act, after)
        finally:
            self.fs.failed_sync_drops = True

    def seek(self, name: str, sequence: int) -> None:
        handle, model = self.handles[name], self.model
        if sequence > model.end:
            _expect(UsageError, lambda: handle.reader.seek(sequence=sequence))
            return
        self._sought(handle, sequence, lambda: handle.reader.seek(sequence=sequence))

    def seek_time(self, name: str, timestamp_ns: int) -> None:
        handle = self.handles[name]
        sequence = self.model.find_timestamp(timestamp_ns)
        self._sought(handle, sequence, lambda: handle.reader.seek(timestamp=timestamp_ns))

    def _sought(self, handle: Handle, sequence: int, seek: Callable[[], None]) -> None:
        handle.position, handle.held = sequence, None
        if sequence < self.model.first:
            self._expect_loss(sequence, seek)
        else:
            seek()
            handle.held = self.model.segment_of(sequence)

    def close_reader(self, name: str) -> None:
        self.handles.pop(name).reader.close()

    def remove_reader(self, name: str) -> None:
        if name not in self.model.cursors:
            _expect(NotFoundError, lambda: self.log.remove_reader(name))
        elif name in self.handles:
            _expect(Locked, lambda: self.log.remove_reader(name))
        else:
            after = self.model.copy()
            after.forget(name)
            self._do(lambda: self.log.remove_reader(name), after)

    def _expect_loss(self, sequence: int, act: Callable[[], object]) -> None:
        error = _expect(DataLost, act)
        assert (error.start, error.stop) == (sequence, self.model.first)

    # -- retention ----------------------------------------------------------------------------------------

    def cleanup(self, policy: RetentionPolicy) -> None:
        """Delete what may go; what a dry run says, and no more."""
        self.log.retention = policy
        entries, after = self.log._manifest().entries, self.model.copy()
        count = after.retire(policy, [entries[index].size for index in range(len(entries))], self.clock.now_ns())
        gone = [entries[index].segment_id for index in range(count)]
        assert self.log.cleanup(dry_run=True) == gone
        assert self._do(self.log.cleanup, after) in (None, gone)

    # -- life and death -----------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        for name, handle in self.handles.items():
            assert handle.reader.sequence == handle.position, name
            assert handle.reader.lag() == max(0, self.model.end - handle.position), name

    def _leave(self) -> None:
        for name in list(self.handles):
            self.close_reader(name)

    def _come_up(self, after: Model, cut: Cut | None, options: LogOptions | None = None) -> None:
        self.handles.clear()  # They died with their program.
        super()._come_up(after, cut, options)


def _expect(kind: type[_Error], act: Callable[[], object]) -> _Error:
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")
