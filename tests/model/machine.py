"""The rules that a log and a queue have in common: appending, opening again, dying, and bad weather."""

import logging
from typing import Any, ClassVar, Final, NamedTuple
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from latewood import LogOptions
from latewood.testing.fake_clock import START_NS
from tests.model.pair import Cut, Pair

OPTIONS: Final = (
    LogOptions(segment_bytes_max=2048, index_interval=2),
    LogOptions(segment_bytes_max=512, index_interval=1),
    LogOptions(segment_bytes_max=1536, index_interval=4),
    LogOptions(segment_bytes_max=1021, segment_records_max=5),
    LogOptions(segment_bytes_max=2048, segment_age_max_ms=1_000),
    LogOptions(segment_bytes_max=1024, flush_bytes=300),
    LogOptions(segment_bytes_max=512, flush_every_append=True),
    LogOptions(segment_bytes_max=2043, flush_ms=1_000),
)
_RESERVE_BYTES: Final = 384
"""In place of 16 MiB, so that a small segment needs several reservations."""

_VERIFY_EVERY: Final = 8

options = st.none() | st.sampled_from(OPTIONS)
payload_bytes = st.sampled_from((40, 0, 1, 8, 104, 300)) | st.integers(0, 600)
"""Mostly a few lengths, so that a record takes the place of one that was lost, and ghosts behind it show."""
ext_ids = st.integers(0, 5) | st.just((1 << 64) - 1)
timestamps_ns = st.integers(0, 40).map(lambda number: START_NS + number * 100_000_000)
seldom = st.sampled_from((False, False, False, True))
cuts = st.builds(Cut, st.integers(0, 63), st.integers(0, 7))
breakages = st.tuples(
    st.sampled_from(("sync", "sync", "sync", "sync_directory", "pwrite", "rename", "allocate", "remove", "truncate")),
    st.sampled_from(("", ".q", "index.meta", ".1", ".2", ".current", ".sealed", ".tmp", ".meta", "readers", "/q")),
    st.integers(0, 3),
)


class Batch(NamedTuple):
    """Arguments of `append_many`, briefly: a failure prints them."""

    size: int
    lengths: list[int]
    """Taken in turn."""
    ext_id_step: int
    timestamp_ns: int | None
    timestamp_step_ns: int
    arrow: bool

    def arguments(self) -> dict[str, Any]:
        numbers = range(self.size)
        start = self.timestamp_ns
        return {
            "payload_bytes": [self.lengths[number % len(self.lengths)] for number in numbers],
            "ext_ids": [number * self.ext_id_step for number in numbers],
            "timestamps_ns": start and [start + number * self.timestamp_step_ns for number in numbers],
            "arrow": self.arrow,
        }


small_batches = st.builds(
    Batch,
    size=st.integers(1, 12),
    lengths=st.lists(payload_bytes, min_size=1, max_size=4),
    ext_id_step=st.integers(0, 2),
    timestamp_ns=st.none() | timestamps_ns,
    timestamp_step_ns=st.integers(-1_000, 1_000),
    arrow=st.booleans(),
)
"""The kernel packs them in place."""
large_batches = st.builds(
    Batch,
    size=st.integers(28, 36) | st.integers(1, 200),
    lengths=st.lists(st.integers(0, 48), min_size=1, max_size=4),
    ext_id_step=st.integers(0, 2),
    timestamp_ns=st.none() | timestamps_ns,
    timestamp_step_ns=st.integers(-1_000, 1_000),
    arrow=st.booleans(),
)
"""The kernel stages them."""


class Machine(RuleBasedStateMachine):
    """One log that everything happens to."""

    pair_type: ClassVar[type[Pair]] = Pair
    pair: Pair

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.WARNING)  # Recovery says what it cuts; thousands of times here.
        self._patches = mock.patch.multiple("latewood.log.roll", RESERVE_BYTES=_RESERVE_BYTES, CHECKPOINT_BYTES=192)
        self._is_patched = False
        self._checks = 0

    @initialize(
        options=st.sampled_from(OPTIONS),
        tear_bytes=st.sampled_from((512, 512, 4096)),
        plain=st.booleans(),
        small_reserve=st.booleans(),
        count=st.integers(0, 40),
    )
    def begin(self, options: LogOptions, tear_bytes: int, plain: bool, small_reserve: bool, count: int) -> None:  # noqa: FBT001
        if small_reserve:
            self._patches.start()
            self._is_patched = True
        self.pair = self.pair_type(options, tear_bytes=tear_bytes, plain=plain)
        for _ in range(count):
            self.pair.append(40)

    def teardown(self) -> None:
        logging.disable(logging.NOTSET)
        if self._is_patched:
            self._patches.stop()

    @invariant()
    def agrees(self) -> None:
        self._checks += 1
        self.pair.check()
        if self._checks % _VERIFY_EVERY == 0:
            self.pair.verify()
            self.pair.look()

    @rule(payload_bytes=payload_bytes, ext_id=ext_ids, timestamp_ns=st.none() | timestamps_ns, durable=seldom)
    def append(self, **record: Any) -> None:
        self.pair.append(**record)

    @rule(payload_bytes=st.sampled_from((40, 104, 8)), count=st.integers(2, 9))
    def append_some(self, payload_bytes: int, count: int) -> None:
        for _ in range(count):
            self.pair.append(payload_bytes)

    @rule(batch=small_batches | large_batches, durable=seldom)
    def append_many(self, batch: Batch, durable: bool) -> None:  # noqa: FBT001
        self.pair.append_many(**batch.arguments(), durable=durable)

    @rule()
    def flush(self) -> None:
        self.pair.flush()

    @rule()
    def roll(self) -> None:
        self.pair.roll()

    @rule(ms=st.sampled_from((1, 500, 1_000, 86_400_000)))
    def wait(self, ms: int) -> None:
        self.pair.clock.advance(ms=ms)
        self.pair.housekeep()

    @rule(options=options)
    def reopen(self, options: LogOptions | None) -> None:
        self.pair.reopen(options)

    @rule(options=options, cut=st.none() | cuts)
    def kill(self, options: LogOptions | None, cut: Cut | None) -> None:
        """Die, and perhaps lose power once the log is open again: what it finds in memory must be durable then."""
        self.pair.append(40)
        self.pair.kill(options)
        if cut is not None:
            self.pair.check()
            self.pair.cut_power(cut)

    @rule(
        before=st.integers(0, 16),
        after=st.sampled_from((0, 2, 8)),
        payload_bytes=st.sampled_from((40, 40, 104, 300)),
        cut=cuts,
        options=options,
    )
    def cut_power(self, before: int, after: int, payload_bytes: int, cut: Cut, options: LogOptions | None) -> None:
        """Lose power with records under way; those that come next lie where the lost ones lay.

        Eight records of 40 bytes fill a sector: if it was lost and a later one was not, the next thing is a ghost.
        """
        for _ in range(before):
            self.pair.append(payload_bytes)
        self.pair.cut_power(cut, options)
        for _ in range(after):
            self.pair.check()
            self.pair.append(payload_bytes)

    @rule(operations=st.integers(0, 12), fate=st.none() | cuts)
    def doom(self, operations: int, fate: Cut | None) -> None:
        self.pair.doom(operations, fate)

    @rule(weather=st.just("fair") | st.integers(0, 4096) | breakages)
    def change_weather(self, weather: str | int | tuple[str, str, int]) -> None:
        self.pair.clear_up()
        if isinstance(weather, tuple):
            self.pair.break_disk(*weather)
        elif isinstance(weather, int):
            self.pair.fill_disk(weather)
