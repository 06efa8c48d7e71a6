"""Records become chunks and come back: the same, whole, and in flat memory."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latewood
from latewood.archive import chunk_writer
from latewood.archive.chunk import memory_schema
from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.chunk_writer import Origin, SegmentStart, segment_range, write_chunks
from latewood.archive.directory import DirectoryTier
from latewood.archive.names import parse_file_name
from latewood.archive.options import ChunkOptions
from latewood.archive.source import FileSource, digest_of
from latewood.archive.sums import checksum_of
from latewood.archive.tier import TierSource
from latewood.archive.transfer import upload
from latewood.errors import ConflictError, KeyNotFound, NotFoundError, UsageError
from latewood.testing import FakeClock, MemFS
from tests.archive.records import KEYS, START_NS, Yard, batch_of, batches_of, table_of

ROWS = 1000


@pytest.fixture(params=["plain", "encrypted"])
def yard(request: pytest.FixtureRequest) -> Yard:
    return Yard(keys=KEYS if request.param == "encrypted" else None)


@pytest.mark.parametrize("keyed", [False, True])
def test_records_come_back_as_the_log_hands_them_out(yard: Yard, *, keyed: bool) -> None:
    chunk = yard.one(5, 5 + ROWS, keyed=keyed)
    with yard.open(chunk) as reader:
        assert table_of(reader.batches()).equals(table_of(batches_of(5, 5 + ROWS, keyed=keyed)))
        assert reader.verify() == chunk.meta == reader.meta


def test_the_name_and_the_digest_are_those_of_the_file(yard: Yard) -> None:
    chunk = yard.one()
    assert yard.names() == [chunk.name.file_name]
    assert parse_file_name(chunk.path.name) == chunk.name
    assert digest_of(FileSource(yard.fs, chunk.path)) == chunk.digest
    assert chunk.name.encrypted == (yard.site.keys is not None)
    with yard.open(chunk) as reader:
        assert reader.key_id == chunk.key_id


def test_a_chunk_says_what_it_holds() -> None:
    meta = Yard().one(5, 5 + ROWS).meta
    assert (meta.database, meta.database_id, meta.shard) == ("clicks", 7, 3)
    assert (meta.sequence_min, meta.sequence_max, meta.row_count) == (5, 1004, ROWS)
    assert (meta.timestamp_min_ns, meta.timestamp_max_ns) == (START_NS + 5 * 1001, START_NS + 1004 * 1001)
    assert (meta.ext_id_min, meta.ext_id_max) == ((1 << 64) - 1 - 1004, (1 << 64) - 1 - 5)
    assert [group.rows for group in meta.row_groups] == [300, 300, 300, 100]
    assert meta.writer.startswith("latewood ")
    assert meta.created_ns == FakeClock().now_ns()


def test_the_checksum_is_the_same_whatever_the_batches_and_row_groups() -> None:
    coarse, fine = Yard(), Yard(options=ChunkOptions(row_group_rows=7))
    one, other = coarse.one(keyed=True), fine.one(keyed=True)
    assert len(one.meta.row_groups) != len(other.meta.row_groups)
    assert one.meta.checksum == other.meta.checksum
    assert checksum_of(batches_of(0, ROWS, 13, keyed=True)) == (0, ROWS, one.meta.checksum)


@pytest.mark.parametrize("column", ["sequence", "timestamp", "ext_id", "key", "payload"])
def test_the_checksum_differs_if_any_value_does(column: str) -> None:
    batch = batch_of(0, 10, keyed=True)
    values = batch.column(column).cast(pa.int64()).to_pylist() if column == "timestamp" else batch[column].to_pylist()
    values[3] = {"sequence": 3, "key": None}.get(column, values[4])
    changed = pa.array(values, batch.schema.field(column).type)
    other = batch.set_column(batch.schema.get_field_index(column), batch.schema.field(column), changed)
    same = checksum_of([batch]) == checksum_of([other])
    assert same == (column == "sequence")


def test_an_empty_key_is_not_the_same_as_none() -> None:
    batch = batch_of(0, 1, keyed=True)
    index = batch.schema.get_field_index("key")
    sums = {checksum_of([batch.set_column(index, batch.schema.field("key"), pa.array([key], pa.binary()))])
            for key in (None, b"")}  # fmt: skip
    assert len(sums) == 2


def test_a_log_and_its_chunk_have_the_same_checksum() -> None:
    fs = MemFS()
    with latewood.open("q", fs=fs, clock=FakeClock(), background=False, segment_bytes_max=4096) as log:
        log.append_many([b"record-%d" % number for number in range(300)], ext_ids=range(300))
        yard = Yard(fs)
        (chunk,) = yard.write(list(log.arrow_batches(10, 290)))
        assert checksum_of(log.arrow_batches(10, 290)) == (10, 280, chunk.meta.checksum)
        with yard.open(chunk) as reader:
            assert table_of(reader.batches()).equals(table_of(log.arrow_batches(10, 290)))


@pytest.mark.parametrize(("start", "stop"), [(None, None), (0, 1), (250, 251), (299, 301), (999, None), (700, 100)])
def test_a_range_is_read(yard: Yard, start: int | None, stop: int | None) -> None:
    with yard.open(yard.one(0, ROWS)) as reader:
        found = [row for batch in reader.batches(start, stop) for row in batch["sequence"].to_pylist()]
    assert found == list(range(ROWS))[slice(start, stop)]


def test_a_range_outside_is_empty() -> None:
    yard = Yard()
    with yard.open(yard.one(100, 200)) as reader:
        assert list(reader.batches(0, 100)) == []
        assert list(reader.batches(200)) == []
        assert sum(batch.num_rows for batch in reader.batches(0, 1 << 70)) == 100


@pytest.mark.parametrize(
    "columns", [["sequence"], ["payload"], ["payload", "sequence"], ["timestamp"], ["key", "ext_id"]]
)
def test_only_the_columns_asked_for_are_read(columns: list[str]) -> None:
    yard = Yard()
    chunk = yard.one(keyed=True)
    with yard.open(chunk) as reader:
        found = list(reader.batches(120, 180, columns=columns))
    assert [batch.schema.names for batch in found] == [columns]
    assert table_of(found).equals(pa.Table.from_batches([batch_of(120, 180, keyed=True)]).select(columns))


def test_row_groups_that_are_not_needed_are_not_read() -> None:
    yard = Yard()
    chunk = yard.one()
    assert isinstance(yard.fs, MemFS)
    with yard.open(chunk) as reader:
        before = yard.fs.counts.bytes_read
        list(reader.batches(columns=["timestamp"], start=950))
        narrow = yard.fs.counts.bytes_read - before
        list(reader.batches())
    assert narrow < chunk.digest.size / 20


def test_a_far_chunk_is_opened_and_read_with_few_requests() -> None:
    tier, yard = CountingTier(), Yard()
    chunk = yard.one()
    upload(yard.fs, chunk.path, tier, "one.parquet", chunk.digest)
    tier.requests.clear()
    with ChunkReader(TierSource(tier, "one.parquet")) as reader:
        opening = len(tier.requests)
        list(reader.batches())
    assert opening == 2
    assert len(tier.requests) - opening == len(chunk.meta.row_groups)


class CountingTier(DirectoryTier):
    """Takes note of what is read from it."""

    def __init__(self) -> None:
        super().__init__(MemFS(), Path("tier"))
        self.requests: list[tuple[int, int]] = []

    def get(self, key: str, offset: int, length: int) -> bytes:
        self.requests.append((offset, length))
        return super().get(key, offset, length)


@pytest.mark.parametrize("columns", [["nothing"], ["payload", "payload"], ["timestamp_rest_ns"], []])
def test_a_column_that_is_not_there_is_refused(columns: list[str]) -> None:
    yard = Yard()
    with yard.open(yard.one()) as reader, pytest.raises(UsageError):
        list(reader.batches(columns=columns))


def test_the_first_record_that_is_not_older_is_found() -> None:
    yard = Yard()
    with yard.open(yard.one(5, 5 + ROWS)) as reader:
        for sequence in (5, 6, 304, 305, 1004):
            moment = START_NS + 1001 * sequence
            assert reader.find_timestamp(moment) == sequence
            assert reader.find_timestamp(moment - 1000) == sequence
        assert reader.find_timestamp(0) == 5
        assert reader.find_timestamp(START_NS + 1001 * 1004 + 1) == 1005


def test_chunks_are_split_where_they_are_as_large_as_they_should_be() -> None:
    yard = Yard(options=ChunkOptions(row_group_rows=100, chunk_bytes=20_000))
    chunks = yard.write(batches_of(0, 5000))
    assert len(chunks) > 3
    assert all(chunk.digest.size < 30_000 for chunk in chunks)
    ends = [chunk.meta.sequence_max + 1 for chunk in chunks]
    assert [chunk.meta.sequence_min for chunk in chunks] == [0, *ends[:-1]]
    assert ends[-1] == 5000


def test_large_batches_are_cut_into_row_groups() -> None:
    yard = Yard(options=ChunkOptions(row_group_rows=64))
    chunk = yard.write([batch_of(0, 1000)])[0]
    assert max(group.rows for group in chunk.meta.row_groups) <= 64 * 2
    with yard.open(chunk) as reader:
        assert table_of(reader.batches()).equals(table_of([batch_of(0, 1000)]))


def test_a_few_large_records_make_small_row_groups() -> None:
    yard = Yard(options=ChunkOptions(row_group_bytes=10_000))
    schema = memory_schema(keyed=False)
    small = batch_of(0, 20)
    batch = small.set_column(3, schema.field("payload"), pa.array([b"x" * 6_000] * 20, pa.binary()))
    chunk = yard.write([batch])[0]
    assert [group.rows for group in chunk.meta.row_groups] == [2] * 10
    assert chunk.meta.payload_bytes == 120_000


def test_a_record_that_no_row_group_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_writer, "CHUNK_ROW_GROUP_BYTES_MAX", 100)
    yard = Yard(options=ChunkOptions(row_group_bytes=1))
    with pytest.raises(UsageError, match="does not fit"):
        yard.write([batch_of(0, 40)])
    assert yard.names() == []


def test_segments_are_told_chunk_by_chunk() -> None:
    yard = Yard(options=ChunkOptions(row_group_rows=100, chunk_bytes=1))
    segments = [SegmentStart(8, 0), SegmentStart(9, 150), SegmentStart(10, 300)]
    chunks = yard.write(batches_of(0, 400), Origin(segments=segments))
    assert [(c.meta.segment_min, c.meta.segment_max) for c in chunks] == [(8, 8), (8, 9), (9, 9), (10, 10)]
    assert segment_range(segments, 149, 150) == (8, 9)
    assert segment_range([], 0, 1) is None


def test_nothing_becomes_nothing() -> None:
    yard = Yard()
    assert yard.write([]) == []
    assert yard.write([batch_of(0, 0)]) == []
    assert yard.names() == []


@pytest.mark.parametrize(
    "batches",
    [
        [batch_of(0, 10), batch_of(11, 20)],
        [batch_of(0, 10), batch_of(9, 20)],
        [batch_of(0, 10), batch_of(10, 20, keyed=True)],
        [batch_of(0, 10).select(["sequence", "payload"])],
    ],
    ids=["gap", "overlap", "other columns", "fewer columns"],
)
def test_what_is_not_one_run_of_records_is_refused(batches: list[Any]) -> None:
    yard = Yard()
    with pytest.raises(UsageError):
        yard.write(batches)
    assert yard.names() == []


def test_a_writer_that_is_given_up_leaves_nothing() -> None:
    yard = Yard(options=ChunkOptions(row_group_rows=100, chunk_bytes=1))
    made = write_chunks(yard.site, iter(batches_of(0, 1000)))
    first = next(made)
    made.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert yard.names() == [first.path.name]


def test_a_source_of_batches_that_breaks_leaves_nothing() -> None:
    def broken() -> Any:
        yield batch_of(0, 10)
        raise KeyboardInterrupt

    yard = Yard()
    with pytest.raises(KeyboardInterrupt):
        list(write_chunks(yard.site, broken()))
    assert yard.names() == []


def test_a_name_that_is_taken_is_not_overwritten() -> None:
    yard = Yard(random_bytes=bytes)
    before = yard.raw(yard.one().path)
    with pytest.raises(ConflictError):
        yard.one()
    assert [yard.raw(yard.site.directory / name) for name in yard.names()] == [before]


def test_an_encrypted_chunk_needs_its_key(tmp_path: Path) -> None:
    yard = Yard(keys=KEYS)
    chunk = yard.one()
    with pytest.raises(KeyNotFound):
        open_chunk(yard.fs, chunk.path)
    assert b"PAR1" not in yard.raw(chunk.path)
    with pytest.raises(NotFoundError):
        open_chunk(yard.fs, tmp_path / "gone")


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, (1 << 63) - 1),
            st.integers(0, (1 << 64) - 1),
            st.none() | st.binary(max_size=20),
            st.binary(max_size=200),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 1 << 60),
    st.integers(1, 10),
)
@settings(max_examples=60)
def test_any_records_survive_the_round_trip(rows: list[Any], first: int, group_rows: int) -> None:
    times, ext_ids, keys, payloads = zip(*rows, strict=True)
    schema = memory_schema(keyed=True)
    arrays = [
        pa.arange(first, first + len(rows)),
        pa.array(times, pa.int64()).view(schema.field("timestamp").type),
        pa.array(ext_ids, pa.uint64()),
        pa.array(keys, pa.binary()),
        pa.array(payloads, pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    yard = Yard(options=ChunkOptions(row_group_rows=group_rows))
    (chunk,) = yard.write([batch])
    with yard.open(chunk) as reader:
        assert table_of(reader.batches()).equals(table_of([batch]))
        reader.verify()
        wanted = times[-1]
        expected = next(index for index, moment in enumerate(times) if moment >= wanted)
        assert reader.find_timestamp(wanted) == first + expected


@pytest.mark.parametrize(
    "fields",
    [{"chunk_bytes": 0}, {"row_group_bytes": 1 << 40}, {"row_group_rows": 0}, {"compression_level": 23}],
)
def test_options_that_could_not_work_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        ChunkOptions(**fields)
