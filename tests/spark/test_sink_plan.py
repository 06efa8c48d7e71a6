"""The pure rules of a commit, and staged files, without Spark."""

from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood import CorruptError, LatewoodError, Locked, LogOptions, RecordTooLarge, UnsupportedVersion, UsageError
from latewood.format import keyed
from latewood.format.identity import LogIdentity
from latewood.format.sharding import shard_of
from latewood.fs import replace_file
from latewood.queue import open_queue
from latewood.spark import commits_plan as plan
from latewood.spark.commits import STEPS, Batch
from latewood.spark.commits_files import CommitFiles, stream_query, txn_query
from latewood.spark.commits_plan import CommitRecord, Completion, Intent, LogNow, Progress, Verdict
from latewood.spark.place import local_path
from latewood.spark.staging import StagedName, in_order
from latewood.spark.writing_columns import Columns, find_columns, records_of, split_by_shard
from latewood.spark.writing_options import parse_write_options
from latewood.spark.writing_patience import patiently
from latewood.testing import FakeClock, MemFS
from tests.spark.sink_story import (
    QUERY,
    committer,
    expected,
    logged,
    make_target,
    rows_of,
    stage,
    stage_file,
)

DAY_MS: Final = 86_400_000


def record(*batches: int) -> CommitRecord:
    return CommitRecord(query=QUERY, kind="stream", completions=[Completion(batch, 0, 1) for batch in batches])


def intent(rows: int, start: int | None = 0, done: int = 0) -> Intent:
    shards = {0: Progress(done, start)}
    return Intent(
        query=QUERY, kind="stream", batch=0, begun_ms=0, timestamp_ns=0, files=[], rows={0: rows}, shards=shards
    )


def at(end: int, identity: LogIdentity | None = None) -> dict[int, LogNow]:
    return {0: LogNow(identity, end)}


# -- deciding -------------------------------------------------------------------------------------------------------

Crash = tuple[int, int, list[int]]
"""Records appended before a crash, of these lost in a power cut, and what other writers append afterwards."""


@given(
    staged=st.lists(st.integers(0, 2), max_size=12),
    before=st.lists(st.integers(0, 2), max_size=3),
    crashes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(10, 12), max_size=3))),
)
def test_whatever_crashes_every_record_is_there_once_and_in_order(
    staged: list[int], before: list[int], crashes: list[Crash]
) -> None:
    log = list(before)
    stored = intent(len(staged), start=None)
    for appended, lost, foreign in [*crashes, (len(staged), 0, [])]:
        stored = settle(stored, staged, log)  # From here on all of it is durable.
        durable = len(log)
        stored = plan.begun(stored, at(len(log)))
        done = stored.shards[0].done
        log += staged[done : done + appended]
        log = log[: max(durable, len(log) - lost)] + foreign
    assert [value for value in log[len(before) :] if value < 10] == staged


@given(
    staged=st.lists(st.just(0), min_size=1, max_size=8),
    appended=st.integers(0, 8),
    others=st.lists(st.just(0), max_size=8),
)
def test_a_writer_of_the_same_records_does_no_harm_once_ours_are_counted(
    staged: list[int], appended: int, others: list[int]
) -> None:
    log: list[int] = []
    stored = plan.begun(intent(len(staged), start=None), at(0))
    log += staged[:appended]
    stored = settle(stored, staged, log)
    log += others
    stored = settle(stored, staged, log)  # Counting twice counts nothing twice.
    log += staged[stored.shards[0].done :]
    assert len(log) == len(staged) + len(others)


def settle(stored: Intent, staged: list[int], log: list[int]) -> Intent:
    found = {}
    for shard in plan.unsettled(stored, [0]):
        start = stored.shards[shard].start
        assert start is not None
        done = stored.shards[shard].done
        found[shard] = done + plan.common(staged[done:], log[start:])
    return plan.settled(stored, found, at(len(log)))


def test_a_batch_is_appended_after_the_last_one_and_skipped_up_to_it() -> None:
    assert plan.verdict(None, 0) is Verdict.APPEND
    assert plan.verdict(record(3, 4), 5) is Verdict.APPEND
    assert plan.verdict(record(3, 4), 4) is Verdict.SKIP
    assert plan.verdict(record(3, 4), 3) is Verdict.SKIP
    with pytest.raises(UsageError, match="begin with a new one"):
        plan.verdict(record(3, 4), 0)


def test_completions_are_bounded_and_the_last_one_stays() -> None:
    known = None
    for batch in range(plan.COMPLETIONS_KEPT + 7):
        known = plan.completed(known, msgspec.structs.replace(intent(5), batch=batch), batch, at(0))
    assert known is not None
    assert len(known.completions) == plan.COMPLETIONS_KEPT
    assert known.completions[-1] == Completion(plan.COMPLETIONS_KEPT + 6, plan.COMPLETIONS_KEPT + 6, 5)


def test_a_txn_is_forgotten_only_if_it_is_old_and_not_among_the_newest() -> None:
    old = {f"txn-{number}": Completion(0, number, 1) for number in range(plan.TXNS_KEPT + 3)}
    txns = {name: CommitRecord(query=name, kind="txn", completions=[done]) for name, done in old.items()}
    assert plan.forgettable(txns, now_ms=DAY_MS) == []
    assert sorted(plan.forgettable(txns, now_ms=31 * DAY_MS)) == ["txn-0", "txn-1", "txn-2"]


# -- names ----------------------------------------------------------------------------------------------------------


@given(st.integers(0), st.integers(0), st.integers(0), st.integers(0))
def test_the_name_of_a_staged_file_can_be_read_back(made_ms: int, batch: int, partition: int, attempt: int) -> None:
    for query in (QUERY, txn_query("a b"), "once-00"):
        name = StagedName(made_ms, query, batch, partition, attempt, "00ff")
        assert StagedName.parse(str(name)) == name


def test_a_query_is_known_by_its_id_and_a_txn_by_a_digest() -> None:
    assert stream_query(QUERY) == QUERY
    assert stream_query("../x") != stream_query("../y")
    assert "/" not in stream_query("../x") + txn_query("a/b")
    assert txn_query("a") != stream_query(txn_query("a"))


# -- staged files and commits ---------------------------------------------------------------------------------------


def test_of_two_attempts_at_one_task_one_is_appended() -> None:
    fs = MemFS()
    target = make_target(fs, shards=1)
    batch = Batch(QUERY, "stream", 0)
    twins = [stage_file(fs, target, batch, 0, [(0, b"a")]) for _ in range(2)]
    assert len(in_order(twins)) == 1
    committer(fs, target).commit(batch, twins)
    assert logged(fs, target) == [[b"a"]]
    assert fs.list(target.staging) == []


def test_every_bit_of_a_staged_file_is_checked_before_anything_is_appended() -> None:
    fs = MemFS()
    target = make_target(fs, shards=1)
    batch = Batch(QUERY, "stream", 0)
    staged = stage_file(fs, target, batch, 0, [(0, b"abc"), (0, b"")])
    file = fs.open(target.staging / staged.name, write=True)
    for offset in range(file.size()):
        byte = file.pread(1, offset)
        file.pwrite(bytes([byte[0] ^ 1]), offset)
        with pytest.raises(CorruptError):
            committer(fs, target).commit(batch, [staged])
        file.pwrite(byte, offset)
    file.truncate(file.size() - 1)
    with pytest.raises(CorruptError):
        committer(fs, target).commit(batch, [staged])
    assert logged(fs, target) == [[]]
    assert fs.list(target.state / "intents") == []


def test_times_and_ids_are_kept_and_a_missing_time_is_that_of_the_commit() -> None:
    fs, clock = MemFS(), FakeClock()
    target = make_target(fs, shards=1)
    batch = Batch(QUERY, "stream", 0)
    rows = [(0, b"a"), (0, b"b")]
    staged = stage_file(fs, target, batch, 0, rows, timestamp=[5, None], ext_id=[7, 2**64 - 1])
    committer(fs, target, clock=clock).commit(batch, [staged])
    with open_queue(target.logs[0], fs=fs, mode="r") as log:
        found = [(record.timestamp_ns, record.ext_id) for record in log.scan()]
    assert found == [(5, 7), (clock.now_ns(), 2**64 - 1)]


def test_a_damaged_record_of_commits_stops_the_next_one() -> None:
    fs = MemFS()
    target = make_target(fs)
    for number in range(2):
        batch = Batch(QUERY, "stream", number)
        files = stage(fs, target, batch, rows_of(str(number)))
        if number == 0:
            committer(fs, target).commit(batch, files)
    path = target.state / "commits" / f"{QUERY}.json"
    file = fs.open(path, write=True)
    for offset in range(0, file.size() - 1, 3):
        byte = file.pread(1, offset)
        file.pwrite(bytes([byte[0] ^ 4]), offset)
        with pytest.raises(LatewoodError, match=r"cannot be read|checksum|version"):
            committer(fs, target).commit(batch, files)
        file.pwrite(byte, offset)
    committer(fs, target).commit(batch, files)
    assert logged(fs, target)[0] == expected([*rows_of("0"), *rows_of("1")], 0)


def test_a_replay_is_skipped_and_its_files_go() -> None:
    fs = MemFS()
    target = make_target(fs)
    batch = Batch(QUERY, "stream", 0)
    assert committer(fs, target).commit(batch, stage(fs, target, batch, rows_of("a")))
    assert not committer(fs, target).commit(batch, stage(fs, target, batch, rows_of("b")))
    assert logged(fs, target)[1] == expected(rows_of("a"), 1)
    assert fs.list(target.staging) == []


def test_an_abort_after_a_commit_takes_nothing_back() -> None:
    fs = MemFS()
    target = make_target(fs)
    batch = Batch(QUERY, "stream", 0)
    files = stage(fs, target, batch, rows_of("a"))
    committer(fs, target).commit(batch, files)
    committer(fs, target).abort(batch, files)
    committer(fs, target).commit(batch, files)
    assert logged(fs, target)[0] == expected(rows_of("a"), 0)


def test_files_of_dead_attempts_go_when_they_are_old_and_not_before() -> None:
    fs, clock = MemFS(), FakeClock()
    target = make_target(fs, shards=1)
    now_ms = clock.now_ns() // 1_000_000
    dead = Batch("5f0c2c0e-0000-4000-8000-00000000dead", "stream", 3)
    young = stage_file(fs, target, dead, 0, [(0, b"young")], made_ms=now_ms - 6 * DAY_MS)
    stage_file(fs, target, dead, 1, [(0, b"old")], made_ms=now_ms - 8 * DAY_MS)
    batch = Batch(QUERY, "stream", 0)
    committer(fs, target, clock=clock).commit(batch, [stage_file(fs, target, batch, 0, [(0, b"a")])])
    assert fs.list(target.staging) == [young.name]


def test_a_payload_that_no_segment_holds_is_refused_and_can_be_aborted() -> None:
    fs = MemFS()
    target = make_target(fs, shards=1, options=LogOptions(segment_bytes_max=512))
    batch = Batch(QUERY, "stream", 0)
    files = [stage_file(fs, target, batch, 0, [(0, b"small")]), stage_file(fs, target, batch, 1, [(0, bytes(600))])]
    with pytest.raises(RecordTooLarge):
        committer(fs, target).commit(batch, files)
    committer(fs, target).abort(batch, files)
    assert logged(fs, target) == [[]]
    assert fs.list(target.staging) == fs.list(target.state / "intents") == []


def test_whoever_waits_for_one_log_holds_none_of_the_others() -> None:
    fs = MemFS()
    target = make_target(fs)
    batch = Batch(QUERY, "stream", 0)
    files = stage(fs, target, batch, rows_of("a"))
    with open_queue(target.logs[1], fs=fs, background=False), pytest.raises(Locked) as caught:
        committer(fs, target).commit(batch, files)
    assert "lockTimeout" in caught.value.__notes__[0]
    open_queue(target.logs[0], fs=fs, background=False).close()
    committer(fs, target).commit(batch, files)
    assert logged(fs, target)[0] == expected(rows_of("a"), 0)


def test_patience_ends_at_its_bound() -> None:
    naps: list[float] = []

    def locked() -> None:
        raise Locked(Path("x"), 1)

    with pytest.raises(Locked):
        patiently(locked, 1000, naps.append)
    assert sum(naps) == pytest.approx(1)


def test_a_commit_goes_through_its_steps_in_order() -> None:
    fs = MemFS()
    target = make_target(fs)
    batch = Batch(QUERY, "stream", 0)
    seen: list[str] = []
    committer(fs, target, hook=seen.append).commit(batch, stage(fs, target, batch, rows_of("a")))
    assert list(dict.fromkeys(seen)) == list(STEPS)


def test_a_query_that_cannot_be_counted_does_not_stop_another() -> None:
    fs = MemFS()
    target = make_target(fs, shards=1)
    lost = Batch("5f0c2c0e-0000-4000-8000-00000000dead", "stream", 0)
    gone = stage_file(fs, target, lost, 0, [(0, b"x")])
    files = CommitFiles(fs, target.state)
    files.prepare()
    broken = msgspec.structs.replace(intent(1), query=lost.query, files=[gone])
    files.store_intent(broken)
    fs.remove(target.staging / gone.name)
    batch = Batch(QUERY, "stream", 0)
    committer(fs, target).commit(batch, [stage_file(fs, target, batch, 0, [(0, b"a")])])
    assert logged(fs, target) == [[b"a"]]
    with pytest.raises(CorruptError, match="gone"):
        committer(fs, target).commit(lost, [])


@pytest.mark.parametrize("name", ["intents", "commits"])
def test_what_a_later_program_remembers_of_a_query_is_refused_and_left_as_it_is(name: str) -> None:
    """Otherwise a batch is appended twice, or what was under way is forgotten."""
    fs = MemFS()
    target = make_target(fs, shards=1)
    batch = Batch(QUERY, "stream", 0)
    committer(fs, target).commit(batch, [stage_file(fs, target, batch, 0, [(0, b"a")])])
    path = target.state / name / f"{QUERY}.json"
    newer = b'{"version":3,"body":[1,2]}\n'
    replace_file(fs, path, newer)
    for number in (0, 1):
        again = Batch(QUERY, "stream", number)
        with pytest.raises(UnsupportedVersion, match="version 3 is not known to this Latewood; upgrade"):
            committer(fs, target).commit(again, [stage_file(fs, target, again, 0, [(0, b"b")])])
    assert logged(fs, target) == [[b"a"]]
    file = fs.open(path)
    assert file.pread(100, 0) == newer
    file.close()


# -- columns --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.none() | st.binary(max_size=4), st.binary(max_size=6)), min_size=1), st.integers(1, 5))
def test_records_are_keyed_and_divided_as_a_database_would(rows: list[tuple[bytes | None, bytes]], shards: int) -> None:
    keys, values = zip(*rows, strict=True)
    batch = pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "payload"])
    columns = find_columns([("key", "binary"), ("payload", "binary")], has_keys=True)
    assert columns == Columns(payload=1, key=0)
    records, found_keys = records_of(batch, columns, has_keys=True)
    wanted: dict[int, list[bytes]] = {}
    for key, value in rows:
        shard = 3 % shards if key is None else shard_of(key, shards)
        wanted.setdefault(shard, []).append(keyed.encode(key, value))
    pieces = split_by_shard(records, found_keys, shards, turn=3)
    assert {shard: piece.column("payload").to_pylist() for shard, piece in pieces} == wanted


@pytest.mark.parametrize(
    ("given_options", "problem"),
    [
        ({}, "there is no path"),
        ({"path": "x", "txnid": ""}, "1 to 512 characters"),
        ({"path": "x", "locktimeout": "30"}, "such as 500ms"),
        ({"path": "x", "startingoffsets": "earliest"}, "no option of a batch write"),
    ],
)
def test_options_that_make_no_sense_are_told(given_options: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_write_options(given_options, streaming=False)


def test_options_are_understood() -> None:
    options = parse_write_options({"path": "x", "locktimeout": "5m", "stagingmaxage": "2d"}, streaming=True)
    assert (options.lock_timeout_ms, options.staging_age_max_ms) == (300_000, 2 * DAY_MS)


def test_a_path_may_be_a_file_url() -> None:
    assert local_path("file:///a%20b/c") == Path("/a b/c")
    with pytest.raises(UsageError, match="no directory"):
        local_path("s3://bucket/log")
