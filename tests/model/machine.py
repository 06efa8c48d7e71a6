"""The rules that a log and a queue have in common: appending, opening again, dying, and bad weather."""

import logging
from typing import Any, ClassVar, Final
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from latewood import LogOptions
from latewood.testing.fake_clock import START_NS
from tests.model.pair import Cut, Pair

OPTIONS: Final = (
    LogOptions(segment_bytes_max=1024, index_interval=2),
    LogOptions(segment_bytes_max=512, index_interval=1),
    LogOptions(segment_bytes_max=2048, index_interval=4),
    LogOptions(segment_bytes_max=1021, segment_records_max=5),
    LogOptions(segment_bytes_max=1024, segment_age_max_ms=1_000),
    LogOptions(segment_bytes_max=2048, flush_bytes=300),
    LogOptions(segment_bytes_max=512, flush_every_append=True),
    LogOptions(segment_bytes_max=1536, flush_ms=1_000),
)
_RESERVE_BYTES: Final = 384
"""In place of 16 MiB, so that a small segment needs several reservations."""

_VERIFY_EVERY: Final = 8

options = st.none() | st.sampled_from(OPTIONS)
payload_bytes = st.sampled_from((40, 0, 1, 8, 104, 300)) | st.integers(0, 600)
"""Mostly a few lengths, so that a record takes the place of one that was lost, and ghosts behind it show."""
ext_ids = st.integers(0, 5) | st.just((1 << 64) - 1)
timestamps_ns = st.integers(0, 40).map(lambda number: START_NS + number * 100_000_000)
cuts = st.builds(Cut, st.integers(0, 63), st.integers(0, 7))
breakages = st.tuples(
    st.sampled_from(("sync", "sync_directory", "pwrite", "rename", "allocate", "remove", "truncate")),
    st.sampled_from((".q", "", "index.meta", ".1", ".2", "manifest.current", "current.sealed", ".meta", "segments", "q")),
    st.integers(0, 3),
)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `append_many`: small batches, which the kernel packs in place, and large ones, which it stages."""
    count = draw(st.integers(1, 12) | st.integers(28, 36) | st.integers(1, 200))
    lengths = draw(st.lists(payload_bytes if count <= 12 else st.integers(0, 48), min_size=1, max_size=5))
    batch: dict[str, Any] = {
        "payload_bytes": [lengths[index % len(lengths)] for index in range(count)],
        "arrow": draw(st.booleans()),
    }
    if draw(st.booleans()):
        batch["ext_ids"] = [(draw(ext_ids) + index) % (1 << 64) for index in range(count)] if count < 4 else range(count)
    if draw(st.booleans()):
        start, step = draw(timestamps_ns), draw(st.integers(-1_000, 1_000))
        batch["timestamps_ns"] = [start + index * step for index in range(count)]
    return batch


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
        tear_bytes=st.sampled_from((512, 4096)),
        plain=st.booleans(),
        small_reserve=st.booleans(),
    )
    def begin(self, options: LogOptions, tear_bytes: int, plain: bool, small_reserve: bool) -> None:  # noqa: FBT001
        if small_reserve:
            self._patches.start()
            self._is_patched = True
        self.pair = self.pair_type(options, tear_bytes=tear_bytes, plain=plain)

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

    @rule(payload_bytes=payload_bytes, ext_id=ext_ids, timestamp_ns=st.none() | timestamps_ns, durable=st.booleans())
    def append(self, **record: Any) -> None:
        self.pair.append(**record)

    @rule(payload_bytes=st.sampled_from((40, 104, 8)), count=st.integers(2, 9))
    def append_some(self, payload_bytes: int, count: int) -> None:
        for _ in range(count):
            self.pair.append(payload_bytes)

    @rule(batch=batches(), durable=st.booleans())
    def append_many(self, batch: dict[str, Any], durable: bool) -> None:  # noqa: FBT001
        self.pair.append_many(**batch, durable=durable)

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

    @rule(options=options)
    def kill(self, options: LogOptions | None) -> None:
        self.pair.kill(options)

    @rule(cut=cuts, options=options)
    def cut_power(self, cut: Cut, options: LogOptions | None) -> None:
        self.pair.cut_power(cut, options)

    @rule(operations=st.integers(0, 40), fate=st.none() | cuts)
    def doom(self, operations: int, fate: Cut | None) -> None:
        self.pair.doom(operations, fate)

    @rule(bytes_left=st.integers(0, 4096))
    def fill_disk(self, bytes_left: int) -> None:
        self.pair.fill_disk(bytes_left)

    @rule(breakage=breakages)
    def break_disk(self, breakage: tuple[str, str, int]) -> None:
        self.pair.break_disk(*breakage)

    @rule()
    def clear_up(self) -> None:
        self.pair.clear_up()
