"""Stores with many shards in a process that may not have many files open."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from latewood.errors import TooManyFiles, UsageError
from latewood.fs.descriptors import reserve_of
from latewood.runtime import Store
from latewood.runtime.room import DESCRIPTORS_OF_A_STREAM, DESCRIPTORS_TO_APPEND, DESCRIPTORS_TO_READ

SHARDS = 30
Limit = Callable[[int], None]


@pytest.fixture
def limit() -> Iterator[Limit]:
    """Sets how many files this process may have open, until the test ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda count: resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def opened() -> list[int]:
    return [int(path.name) for path in Path("/dev/fd").iterdir()][:-1]  # The last is that of the list itself.


def free_below(limit: int) -> int:
    return limit - sum(number < limit for number in opened())


def room_for(count: int) -> int:
    """The limit that leaves room for so many files, and the reserve."""
    return next(number for number in range(10_000) if free_below(number) - reserve_of(number) >= count)


def filled(root: Path) -> None:
    with Store.open(root) as store:
        database = store.create_database("clicks", shards=SHARDS, segment_bytes_max=4096)
        for number in range(SHARDS):
            database.append(b"%d" % number)


@pytest.fixture
def lake(root: Path) -> Path:
    filled(root)
    return root


def test_a_database_with_more_shards_than_files_may_be_open_is_refused(root: Path, limit: Limit) -> None:
    with Store.open(root) as store:
        limit(100)
        with pytest.raises(
            UsageError, match=r"150 files open; this one may have 100 .*`ulimit -n 2000`.*most 17 shard"
        ):
            store.create_database("clicks", shards=SHARDS, segment_bytes_max=4096)
        assert list((root / "databases").iterdir()) == []
        store.create_database("few", shards=17, segment_bytes_max=4096)
        limit(2000)
        store.create_database("clicks", shards=SHARDS, segment_bytes_max=4096)
        limit(100)
        with pytest.raises(UsageError, match="150 files"):
            store.fork("clicks", "copy")


def test_with_the_limit_that_the_error_advises_it_is_made(root: Path, limit: Limit) -> None:
    limit(2000)
    filled(root)


def test_logs_and_readers_take_as_many_descriptors_as_is_reckoned_with(lake: Path) -> None:
    with Store.open(lake) as store:
        before = len(opened())
        store.database("clicks").append_many([b"x"] * SHARDS, [b"%d" % number for number in range(SHARDS)])
        list(store.database("clicks").scan())
        assert len(opened()) - before == SHARDS * DESCRIPTORS_TO_APPEND
    with Store.open(lake, mode="r") as store:
        before = len(opened())
        list(store.database("clicks").scan())
        assert len(opened()) - before == SHARDS * DESCRIPTORS_TO_READ
        with store.database("clicks").reader("billing") as reader:
            before = len(opened())
            reader.poll()
            assert len(opened()) - before == SHARDS * DESCRIPTORS_OF_A_STREAM


def test_under_a_lower_limit_a_store_warns_and_the_shard_without_room_says_so(
    lake: Path, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(lake) as store:
        limit(low := room_for(10 * DESCRIPTORS_TO_APPEND))
        database = store.database("clicks")
        assert f"this process may have {low}; raise that before it starts: `ulimit -n 2000`" in caplog.text
        for number in range(10):
            database.append(b"%d" % number)
        with pytest.raises(TooManyFiles, match=rf"shard 10 of 'clicks'.*may have {low} files open.*`ulimit -n 2000`"):
            database.append(b"x")
        ends = [database.shards[number].log.next_sequence for number in range(10)]
        keys = [b"key-%d" % number for number in range(300)]
        with pytest.raises(TooManyFiles):
            database.append_many(keys, keys)
        assert [database.shards[number].log.next_sequence for number in range(10)] == ends, "all of a batch, or nothing"
        limit(2000)
        database.append_many(keys, keys)
    with Store.open(lake) as store:
        assert len(list(store.database("clicks").scan())) == SHARDS + 10 + 300


def test_a_flush_opens_no_log_that_nothing_was_appended_to(lake: Path, limit: Limit) -> None:
    with Store.open(lake) as store:
        limit(room_for(9 * DESCRIPTORS_TO_APPEND))
        database = store.database("clicks")
        for number in range(9):
            database.append(b"%d" % number)
        database.flush()
        ends = [(log.durable_sequence, log.next_sequence) for log in (database.shards[one].log for one in range(9))]
        assert ends == [(2, 2)] * 9


def test_a_reader_without_room_for_a_stream_of_each_shard_reads_all(lake: Path, limit: Limit) -> None:
    with Store.open(lake, mode="r") as store:
        database = store.database("clicks")
        list(database.scan())
        limit(room_for(3 * DESCRIPTORS_OF_A_STREAM))
        with database.reader("billing") as reader:
            for _ in range(2):
                assert sorted(int(record.payload) for record in reader) == list(range(SHARDS))
                reader.seek("earliest")


def test_a_job_without_room_for_all_shards_fails_and_says_so(lake: Path, limit: Limit) -> None:
    with Store.open(lake) as store:
        limit(room_for(10 * DESCRIPTORS_TO_APPEND))
        job_id = store.enqueue(1, "clicks", seal=True)
        store.run_jobs()
        error = store.jobs.get(job_id).last_error
        assert error is not None
        assert "`ulimit -n 2000`" in error.message
        limit(2000)
        assert len(list(store.database("clicks").scan())) == SHARDS


def test_without_any_descriptor_a_roll_waits_and_nothing_is_lost(root: Path, limit: Limit) -> None:
    with Store.open(root) as store:
        database = store.create_database("clicks", segment_bytes_max=4096)
        database.append(b"first")
        limit(next(number for number in range(1000) if free_below(number + 1)))
        done = [database.append(b"x" * 100) for _ in range(10)]
        for _ in range(2):
            with pytest.raises(TooManyFiles, match="raise that before the program starts"):
                done.extend(database.append(b"x" * 100) for _ in range(100))
        database.flush()
        limit(1000)
        database.append(b"last")
    with Store.open(root) as store:
        assert len(list(store.database("clicks").scan())) == 1 + len(done) + 1
