"""A store against a model: appends, every job, jobs that are cut, crashes and reads, in any order.

At every step all that can be read is what was appended, without a gap, and nothing is gone that retention may not take.
"""

import logging
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Final
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latewood.jobs.handlers import compact, expiry
from latewood.jobs.handlers import store as store_handlers
from tests.model import effort
from tests.model.effort import search, search_planted
from tests.model.store_model import StoreModel
from tests.runtime.pond import KINDS

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a disk that needs no sync; where it is missing, any will do
KEYS: Final = st.sampled_from((b"", b"a", b"b", b"c", b"user-7"))
JOBS: Final = st.sampled_from((*KINDS, "flush", "flush", "checkpoint", "compact", "archive", "evict"))
AGE_MS: Final = 50_000
ROUNDS: Final = 3
"""A store takes longer than a log; a campaign takes as many as for all."""
LONG: Final = pytest.mark.needs("campaign")
"""For a bug that takes longer to find."""


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.directory = tempfile.TemporaryDirectory(
            prefix="latewood-store-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        )
        self.both = StoreModel(Path(self.directory.name), shards=2, segment_bytes_max=1024, retention_max_age_ms=AGE_MS)
        self.count = 0

    def teardown(self) -> None:
        try:
            self.both.check_generations()
            self.both.check_clean()
        finally:
            self.both.close()
            self.directory.cleanup()
            logging.disable(logging.NOTSET)

    # -- rules ------------------------------------------------------------------------------------------------

    @rule(key=st.none() | KEYS, ext_id=st.sampled_from((0, 1, (1 << 64) - 1)))
    def append(self, key: bytes | None, ext_id: int) -> None:
        self.both.pond.append(self._payload(), key, ext_id)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=12))
    def append_keyed(self, keys: list[bytes | None]) -> None:
        self.both.pond.append_many([self._payload() for _ in keys], keys)

    @rule(count=st.integers(1, 40))
    def append_bare(self, count: int) -> None:
        self.both.pond.append_many([self._payload() for _ in range(count)])

    @rule(shard=st.integers(0, 1))
    def roll(self, shard: int) -> None:
        self.both.pond.db.shards[shard].log.roll()

    @rule(kind=JOBS)
    def job(self, kind: str) -> None:
        self.both.job(kind)

    @rule(seal=st.booleans())
    def flush(self, *, seal: bool) -> None:
        self.both.job("flush", seal=seal)

    @rule(shard=st.integers(0, 1), start=st.integers(0, 60))
    def hydrate_some(self, shard: int, start: int) -> None:
        self.both.job("hydrate", shard=shard, start=start)

    @rule(kind=JOBS, cut_at=st.integers(0, 12))
    def cut_job(self, kind: str, cut_at: int) -> None:
        self.both.cut_job(kind, cut_at)

    @rule()
    def crash(self) -> None:
        self.both.crash()

    @rule()
    def finish(self) -> None:
        self.both.finish()

    @rule(count=st.integers(1, 30))
    def poll(self, count: int) -> None:
        self.both.poll(count)

    @rule()
    def commit(self) -> None:
        self.both.commit()

    @rule()
    def note_generation(self) -> None:
        self.both.note_generation()

    @precondition(lambda self: self.both.generations)
    @rule()
    def look_back(self) -> None:
        self.both.check_generations()

    @rule(shard=st.integers(0, 1), start=st.integers(0, 80), length=st.integers(0, 40))
    def read_stretch(self, shard: int, start: int, length: int) -> None:
        self.both.check_stretch(shard, start, length)

    @rule()
    def read_all(self) -> None:
        self.both.check()

    @rule(ms=st.sampled_from((1, 1_000, AGE_MS)))
    def wait(self, ms: int) -> None:
        self.both.pond.clock.advance(ms=ms)

    # -- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def the_content_is_the_models(self) -> None:
        self.both.pond.check_ranges()
        self.both.pond.check_table()

    def _payload(self) -> bytes:
        self.count += 1
        return b"%d" % self.count


@pytest.mark.slow
def test_a_store_holds_what_its_model_holds(*, campaign: bool) -> None:
    with mock.patch.object(effort, "ROUNDS", ROUNDS):
        search(StoreMachine, campaign=campaign)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "bug"),
    [
        pytest.param(expiry, "_is_free", lambda *_: True, id="retention overlooks readers"),
        pytest.param(store_handlers, "sweep", lambda _: [], id="orphans stay", marks=LONG),
        pytest.param(compact, "merged_marks", lambda _: None, id="a compaction forgets generations", marks=LONG),
    ],
)
def test_a_planted_bug_is_found(module: ModuleType, name: str, bug: object) -> None:
    with mock.patch.object(module, name, bug), pytest.raises(AssertionError):
        search_planted(StoreMachine)
