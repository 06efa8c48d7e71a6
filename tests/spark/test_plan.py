"""Planning: every record exactly once, in tasks of about the right size, without a JVM."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import latewood
from latewood import RetentionPolicy
from latewood.archive.cover import Piece, cover
from latewood.errors import DataLost
from latewood.limits import MiB
from latewood.spark.offsets import ShardId
from latewood.spark.plan import (
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    Chunk,
    Slice,
    Span,
    clip,
    filled,
    limit_bytes,
    limit_records,
    pack,
    task_bytes,
    without,
)
from latewood.spark.survey import Shard

SHARDS = [ShardId("clicks", number) for number in range(4)]


@st.composite
def shards_of_spans(draw: st.DrawFn) -> list[list[Span]]:
    shards = []
    for _ in range(draw(st.integers(1, 4))):
        at, spans = draw(st.integers(0, 1000)), []
        for _ in range(draw(st.integers(0, 6))):
            count = draw(st.integers(1, 500))
            spans.append(Span(at, at + count, count * draw(st.integers(24, 200))))
            at += count
        shards.append(spans)
    return shards


@given(shards_of_spans(), st.integers(1, 50_000), st.integers(1, 20))
def test_tasks_have_every_record_exactly_once(shards: list[list[Span]], size: int, tasks_min: int) -> None:
    tasks = pack(shards, size, tasks_min)
    assert all(tasks)
    for number, spans in enumerate(shards):
        parts = [part for task in tasks for part in task if part.shard == number]
        assert all(part.start < part.stop for part in parts)
        assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
        if spans:
            assert (parts[0].start, parts[-1].stop) == (spans[0].start, spans[-1].stop)
        else:
            assert not parts


@given(shards_of_spans(), st.integers(1, 20))
def test_there_are_as_many_tasks_as_asked_for_if_there_are_records(shards: list[list[Span]], tasks_min: int) -> None:
    records = sum(span.stop - span.start for spans in shards for span in spans)
    assert len(pack(shards, 1 << 40, tasks_min)) >= min(tasks_min, records)


@given(shards_of_spans(), st.integers(400, 50_000))
def test_no_task_is_much_larger_than_it_should_be(shards: list[list[Span]], size: int) -> None:
    for task in pack(shards, size, 1):
        weight = sum(
            clip(span, part.start, part.stop).size
            for part in task
            for span in shards[part.shard]
            if span.start < part.stop and part.start < span.stop
        )
        assert weight <= size + 200 * len(task)


def test_a_segment_is_cut_where_a_task_has_enough() -> None:
    assert pack([[Span(0, 100, 1000)]], 500, 1) == [[Slice(0, 0, 50)], [Slice(0, 50, 100)]]


def test_segments_that_do_not_fill_a_task_are_cut_so_that_all_tasks_are_alike() -> None:
    segments = [Span(0, 64, 6400), Span(64, 128, 6400), Span(128, 192, 6400), Span(192, 244, 5200)]
    assert pack([segments], task_bytes(24_400, 2), 2) == [[Slice(0, 0, 122)], [Slice(0, 122, 244)]]


def test_a_task_is_a_share_of_each_core_within_bounds() -> None:
    assert task_bytes(240 * MiB, 4) == 60 * MiB
    assert task_bytes(240 * MiB + 1, 4) == 60 * MiB + 1
    assert task_bytes(100 * MiB, 64) == TASK_BYTES_MIN
    assert task_bytes(1 << 40, 64) == TASK_BYTES_MAX


def test_small_shards_share_a_task() -> None:
    assert pack([[Span(0, 5, 50)], [Span(3, 9, 60)]], 1000, 1) == [[Slice(0, 0, 5), Slice(1, 3, 9)]]


def test_a_log_and_its_chunks_overlap_and_are_read_once() -> None:
    chunks = [Chunk(0, 9, 1), Chunk(10, 29, 1)]
    assert cover(5, 40, 20, chunks) == [Piece(5, 10, chunks[0]), Piece(10, 20, chunks[1]), Piece(20, 40, None)]


def test_chunks_that_a_compaction_replaced_do_no_harm() -> None:
    chunks = [Chunk(0, 29, 1), Chunk(0, 9, 1), Chunk(10, 19, 1), Chunk(30, 39, 1)]
    assert [(piece.start, piece.stop) for piece in cover(0, 40, 40, chunks)] == [(0, 30), (30, 40)]


@pytest.mark.parametrize("chunks", [[], [Chunk(0, 4, 1)], [Chunk(6, 9, 1)], [Chunk(0, 4, 1), Chunk(6, 9, 1)]])
def test_a_gap_is_never_passed_over(chunks: list[Chunk]) -> None:
    with pytest.raises(DataLost):
        cover(0, 20, 10, chunks)


@given(
    st.dictionaries(st.sampled_from(SHARDS), st.tuples(st.integers(0, 500), st.integers(0, 500))), st.integers(1, 900)
)
def test_a_batch_has_just_as_many_records_as_it_may(waiting: dict[ShardId, tuple[int, int]], records_max: int) -> None:
    start = {shard: at for shard, (at, _) in waiting.items()}
    end = {shard: at + count for shard, (at, count) in waiting.items()}
    limited = limit_records(start, end, records_max)
    taken = sum(limited[shard] - start[shard] for shard in limited)
    assert taken == min(records_max, sum(count for _, count in waiting.values()))
    assert all(start[shard] <= limited[shard] <= end[shard] for shard in end)


def test_each_shard_gets_its_share_of_a_batch() -> None:
    start, end = dict.fromkeys(SHARDS[:2], 0), {SHARDS[0]: 900, SHARDS[1]: 100}
    assert limit_records(start, end, 100) == {SHARDS[0]: 90, SHARDS[1]: 10}


def test_a_batch_ends_after_about_so_many_bytes() -> None:
    start, end = dict.fromkeys(SHARDS[:2], 0), {SHARDS[0]: 100, SHARDS[1]: 100}
    spans = {SHARDS[0]: [Span(0, 50, 5000), Span(50, 100, 50_000)], SHARDS[1]: [Span(0, 100, 55_000)]}
    assert limit_bytes(start, end, spans, 11_000) == {SHARDS[0]: 50, SHARDS[1]: 10}


def test_a_batch_has_a_record_even_if_that_is_too_large() -> None:
    start, end = {SHARDS[0]: 7}, {SHARDS[0]: 9}
    assert limit_bytes(start, end, {SHARDS[0]: [Span(7, 9, 1 << 30)]}, 1) == {SHARDS[0]: 8}


@given(st.dictionaries(st.sampled_from(SHARDS), st.integers(1, 500), min_size=1), st.integers(1, 100_000))
def test_batches_of_bytes_come_to_the_end(counts: dict[ShardId, int], bytes_max: int) -> None:
    at, end = dict.fromkeys(counts, 0), dict(counts)
    for _ in range(sum(counts.values())):
        spans = {
            shard: [Span(at[shard], end[shard], 30 * (end[shard] - at[shard]))]
            for shard in at
            if at[shard] < end[shard]
        }
        following = limit_bytes(at, end, spans, bytes_max)
        assert all(at[shard] <= following[shard] <= end[shard] for shard in at)
        if at == end:
            break
        assert following != at
        at = following
    assert at == end


def test_what_is_taken_is_left_out() -> None:
    assert without(0, 100, [(10, 20), (20, 30), (90, 100)]) == [(0, 10), (30, 90)]
    assert without(0, 10, [(0, 10)]) == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=6), st.integers(0, 30))
def test_what_is_missing_between_spans_is_filled(parts: list[tuple[int, int]], rest: int) -> None:
    spans, at = list[Span](), 0
    for gap, count in parts:
        spans.append(Span(at + gap, at + gap + count, 10 * count))
        at += gap + count
    found = list(filled(iter(spans), 0, at + rest))
    assert [one for span in found for one in range(span.start, span.stop)] == list(range(at + rest))
    assert [span for span in spans if span not in found] == []
    assert all(span.size > 0 for span in found)


def test_what_leaves_the_log_while_a_query_is_planned_is_planned_all_the_same(tmp_path: Path) -> None:
    """The first look says what is in the log; a later one, at its manifest, must not make a hole."""
    with latewood.open(tmp_path / "log", segment_bytes_max=4096) as writer:
        writer.append_many([bytes(100)] * 500)
        with latewood.open(tmp_path / "log", mode="r") as log:
            shard = Shard.__new__(Shard)
            shard.reader = cast("Any", SimpleNamespace(log=log))
            shard.log_first, shard.chunks, shard.behind = log.first_sequence, [], None
            assert shard.log_first == 0
            writer.retention = RetentionPolicy(max_bytes=8_192)
            assert writer.cleanup()
            log.view().refresh()
            assert log.first_sequence > 0
            spans = shard.spans(0, 500)
    assert [one for span in spans for one in range(span.start, span.stop)] == list(range(500))
