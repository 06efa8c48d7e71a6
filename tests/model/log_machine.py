"""A log against a list: whatever is done to it, and however it crashes, it holds what the list holds.

The model knows two numbers besides the records: how many must survive a power cut, and where the log begins.  A cut
may take back what is not durable, from the end, and nothing else.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import latewood
from latewood import Queue
from latewood.testing import CrashFS, FakeClock

ROOT: Final = Path("q")
PAYLOAD_MAX: Final = 300
SURVIVORS_MAX: Final = 40

payloads = st.binary(max_size=PAYLOAD_MAX)
picks = st.integers(0, SURVIVORS_MAX)
options = st.fixed_dictionaries(
    {
        "segment_bytes_max": st.sampled_from([512, 700, 1024, 4096]),
        "segment_records_max": st.sampled_from([None, 3, 10]),
        "index_interval": st.sampled_from([1, 3, 1024]),
        "flush_bytes": st.sampled_from([None, None, 200]),
        "flush_every_append": st.sampled_from([False, False, True]),
    }
)


class Line(NamedTuple):
    """One record of the model."""

    payload: bytes
    timestamp_ns: int
    ext_id: int


class LogMachine(RuleBasedStateMachine):
    """Appends, reads, rolls, reopens and crashes."""

    tear_bytes: ClassVar[int] = 512

    def __init__(self) -> None:
        super().__init__()
        self.fs = CrashFS(tear_bytes=self.tear_bytes)
        self.clock = FakeClock()
        self.options: dict[str, Any] = {"segment_bytes_max": 512}
        self.lines: list[Line] = []
        self.durable = 0
        self.first = 0
        self.log = self.opened()

    def opened(self, mode: Any = "a") -> Queue:
        fields = self.options if mode == "a" else {}
        return latewood.open(ROOT, mode=mode, fs=self.fs, clock=self.clock, background=False, **fields)

    def teardown(self) -> None:
        self.log.close()

    # -- writing --------------------------------------------------------------------------------------

    @rule(payload=payloads, ext_id=st.integers(0, 9), step_ns=st.integers(-3, 3), durable=st.booleans())
    def append(self, payload: bytes, ext_id: int, step_ns: int, *, durable: bool) -> None:
        self.clock.advance(step_ns)
        sequence = self.log.append(payload, ext_id=ext_id, durable=durable)
        assert sequence == len(self.lines)
        self.lines.append(Line(payload, self.clock.now_ns(), ext_id))
        self.written(durable=durable)

    @rule(batch=st.lists(payloads, max_size=8), back_ns=st.integers(0, 5), durable=st.booleans())
    def append_many(self, batch: list[bytes], back_ns: int, *, durable: bool) -> None:
        now_ns = self.clock.now_ns()
        times = [now_ns - (number * back_ns) % 7 for number in range(len(batch))]
        sequences = self.log.append_many(batch, ext_ids=range(len(batch)), timestamps_ns=times, durable=durable)
        assert sequences == range(len(self.lines), len(self.lines) + len(batch))
        self.lines += [Line(*line) for line in zip(batch, times, range(len(batch)), strict=True)]
        self.written(durable=durable)

    def written(self, *, durable: bool) -> None:
        """Take note of what an append promised."""
        if durable or self.options.get("flush_every_append"):
            self.durable = len(self.lines)
        self.durable = max(self.durable, self.log.durable_sequence)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = len(self.lines)

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.durable = max(self.durable, self.log.durable_sequence)

    @rule(ext_id=st.integers(0, 3))
    def set_ext_id(self, ext_id: int) -> None:
        self.log.set_ext_id(ext_id)
        self.durable = max(self.durable, self.log.durable_sequence)

    @rule()
    def housekeep(self) -> None:
        self.log._writer.housekeep()

    # -- reading --------------------------------------------------------------------------------------

    @rule(start=st.integers(0, 60), count=st.integers(0, 20))
    def read_some(self, start: int, count: int) -> None:
        start = max(start, self.first)
        for log in (self.log, self.opened("r")):
            found = [
                Line(record.payload, record.timestamp_ns, record.ext_id) for record in log.scan(start, start + count)
            ]
            assert found == self.lines[start : start + count]

    @rule(back_ns=st.integers(-3, 12))
    def find_timestamp(self, back_ns: int) -> None:
        wanted = self.clock.now_ns() - back_ns
        kept = range(self.first, len(self.lines))
        expected = next((sequence for sequence in kept if self.lines[sequence].timestamp_ns >= wanted), len(self.lines))
        assert self.log.find_timestamp(wanted) == self.opened("r").find_timestamp(wanted) == expected

    @invariant()
    def the_log_holds_what_the_model_holds(self) -> None:
        assert self.log.next_sequence == len(self.lines)
        assert self.log.first_sequence == self.first
        assert self.log.durable_sequence <= len(self.lines)
        assert [record.payload for record in self.log.scan()] == [line.payload for line in self.lines[self.first :]]

    # -- closing and crashing -------------------------------------------------------------------------

    @rule(options=options)
    def reopen(self, options: dict[str, Any]) -> None:
        self.log.close()
        self.options = options
        self.recover(self.fs, at_least=len(self.lines))

    @rule()
    def be_killed(self) -> None:
        """The process dies; the disk and its cache do not."""
        self.fs._locks.clear()
        self.recover(self.fs, at_least=len(self.lines))

    @rule(pick=picks)
    def lose_power(self, pick: int) -> None:
        self.recover(self.chosen(pick), at_least=self.durable)

    @rule(pick=picks, batch=st.lists(payloads, min_size=1, max_size=6))
    def lose_power_during_an_append(self, pick: int, batch: list[bytes]) -> None:
        self.interrupt(pick, lambda: self.append_many(batch=batch, back_ns=0, durable=True))

    @rule(pick=picks)
    def lose_power_during_a_flush(self, pick: int) -> None:
        self.interrupt(pick, self.flush)

    @rule(pick=picks)
    def lose_power_during_a_roll(self, pick: int) -> None:
        self.interrupt(pick, self.roll)

    @rule(pick=picks)
    def lose_power_during_recovery(self, pick: int) -> None:
        self.fs._locks.clear()
        self.interrupt(pick, self.opened)

    def chosen(self, pick: int) -> CrashFS:
        """One of the disks that a cut may leave now."""
        survivors = list(self.fs.survivors(limit=SURVIVORS_MAX, seed=pick))
        return survivors[pick % len(survivors)]

    def interrupt(self, pick: int, action: Callable[[], object]) -> None:
        """Cut the power at some step of an action."""
        durable = self.durable
        cuts = list(self.fs.cuts_during(lambda _: action(), limit=6, seed=pick))
        self.recover(cuts[(pick * 7) % len(cuts)][1], at_least=durable)

    def recover(self, fs: CrashFS, at_least: int) -> None:
        """Open what a crash left: all that was promised is there, and nothing that was never written."""
        self.fs = fs
        self.log = self.opened()
        count = self.log.next_sequence
        assert at_least <= count <= len(self.lines)
        del self.lines[count:]
        assert self.log.durable_sequence == count
        self.durable = count
