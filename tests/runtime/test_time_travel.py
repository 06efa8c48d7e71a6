"""Time travel: what a database held at a generation, and from a time on, whatever became of its chunks since."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from latewood.errors import UsageError
from latewood.runtime import Database
from latewood.testing.fake_clock import START_NS
from tests.runtime.pond import Pond, pond

FATES: list[tuple[str, ...]] = [
    ("checkpoint",),
    ("compact",),
    ("checkpoint", "compact", "retain"),
    ("archive", "checkpoint", "evict"),
    ("archive", "checkpoint", "evict", "compact", "archive", "retain", "evict"),
]


def as_of(db: Database, generation: int) -> list[tuple[int, int]]:
    return [record[:2] for record in db.scan(as_of=generation)]


@pytest.mark.parametrize("fate", FATES)
def test_a_generation_is_seen_as_it_was(home: Path, fate: tuple[str, ...]) -> None:
    with pond(home) as lake:
        seen: dict[int, list[tuple[int, int]]] = {lake.store.generation: []}
        for _ in range(3):
            lake.fill(12)
            assert as_of(lake.db, lake.store.generation) == seen[lake.store.generation], "it is not in a chunk yet"
            lake.run("flush")
            seen[lake.store.generation] = [record[:2] for record in lake.db.scan()]
        lake.fill(6)
        for kind in fate:
            lake.run(kind)
        lake.reopen()
        for generation, wanted in seen.items():
            assert as_of(lake.db, generation) == wanted
            columns = lake.db.to_arrow(as_of=generation, columns=["shard", "sequence"])
            assert list(zip(columns["shard"].to_pylist(), columns["sequence"].to_pylist(), strict=True)) == wanted
        assert as_of(lake.db, lake.store.generation) == seen[max(seen)]
        present = lake.store.generation
        with pytest.raises(UsageError, match=f"generation {present + 1} has not come yet; the chunks are at {present}"):
            as_of(lake.db, present + 1)
        with pytest.raises(UsageError, match="has not come yet"):
            lake.db.to_arrow(as_of=1 << 40)
        lake.check()


def in_tiers(lake: Pond) -> None:
    """Some records are only remote, some in files, and some in the logs."""
    lake.fill(12)
    for kind in ("flush", "archive", "evict"):
        lake.run(kind)
    lake.fill(12)
    for kind in ("flush", "checkpoint"):
        lake.run(kind)
    lake.fill(12)


def scattered(lake: Pond) -> None:
    """As `in_tiers`, but the clock jumps to and fro."""
    chance = random.Random(5)
    real = lake.append_many

    def jumping(payloads: list[bytes], keys: list[bytes | None] | None = None) -> None:
        lake.clock.set(START_NS + chance.randrange(1_000) * 1_000_000)
        real(payloads, keys)

    lake.append_many = jumping  # type: ignore[assignment,method-assign]
    in_tiers(lake)


def moment(timestamp_ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp_ns // 1000)


@pytest.mark.parametrize("fill", [in_tiers, scattered])
def test_a_time_is_found_in_every_tier(home: Path, fill: Callable[[Pond], None]) -> None:
    with pond(home) as lake:
        fill(lake)
        times = sorted({kept.timestamp_ns for shard in lake.model.values() for kept in shard})
        for time_ns in [times[0] - 1_000, *times, times[-1] + 10_000]:
            at = moment(time_ns)
            floor_ns = time_ns // 1000 * 1000
            for shard, kept in lake.model.items():
                wanted = next((n for n, one in enumerate(kept) if one.timestamp_ns >= floor_ns), len(kept))
                found = [record.sequence for record in lake.db.scan(at, shard=shard)]
                assert found == list(range(wanted, len(kept))), f"from {at} on"
                before = [record.sequence for record in lake.db.scan(stop=at, shard=shard)]
                assert before == list(range(wanted))


@pytest.mark.parametrize("fill", [in_tiers, scattered])
def test_a_reader_begins_at_a_time_in_any_tier(home: Path, fill: Callable[[Pond], None]) -> None:
    with pond(home) as lake:
        fill(lake)
        for number, time_ns in enumerate(sorted({kept.timestamp_ns for kept in lake.model[0]})[::7]):
            with lake.db.reader(f"r{number}", moment(time_ns)) as reader:
                found = {record[:2] for record in reader}
            assert found == {record[:2] for record in lake.db.scan(moment(time_ns))}


def test_any_stretch_is_read_across_tiers(home: Path) -> None:
    with pond(home, shards=1) as lake:
        in_tiers(lake)
        end = len(lake.model[0])
        for start in range(0, end + 1, 3):
            for stop in range(start, end + 1, 4):
                assert [record.sequence for record in lake.db.scan(start, stop)] == list(range(start, stop))
                assert lake.db.to_arrow(start, stop).num_rows == stop - start
