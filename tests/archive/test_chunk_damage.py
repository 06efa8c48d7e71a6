"""A chunk that is damaged, or made to do harm, is an error: never other records, never a large allocation."""

import struct
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.archive import chunk_reader
from latewood.archive.chunk import decode_meta, encode_mark, encode_meta
from latewood.archive.chunk_reader import ChunkReader
from latewood.archive.page import BadPage, check_pages, read_page_header
from latewood.archive.source import BytesSource
from latewood.errors import CorruptError, KeyNotFound, UnsupportedVersion
from tests.archive.records import KEYS, Yard, table_of

PATH: Final = Path("chunk")
ROWS: Final = 40
OURS: Final = (CorruptError, UnsupportedVersion)


def chunk_bytes(*, encrypted: bool = False) -> bytes:
    yard = Yard(keys=KEYS if encrypted else None)
    return yard.raw(yard.one(0, ROWS, keyed=True).path)


RAW: Final = chunk_bytes()


def read(raw: bytes) -> Any:
    """Everything, proved."""
    with ChunkReader(BytesSource(raw, PATH), KEYS) as reader:
        reader.verify()
        return table_of(reader.batches())


def check_flip(raw: bytes, at: int) -> None:
    changed = bytearray(raw)
    changed[at] ^= 1 << at % 8
    with pytest.raises(OURS):
        read(bytes(changed))


@pytest.mark.parametrize("first", range(7))
def test_a_flipped_bit_is_found(first: int) -> None:
    for at in range(first, len(RAW), 49):
        check_flip(RAW, at)


@pytest.mark.slow
def test_every_flipped_bit_is_found() -> None:
    for at in range(len(RAW)):
        for bit in range(8):
            changed = bytearray(RAW)
            changed[at] ^= 1 << bit
            with pytest.raises(OURS):
                read(bytes(changed))


def test_every_cut_is_found() -> None:
    for size in range(0, len(RAW), 11):
        with pytest.raises(CorruptError):
            read(RAW[:size])
    encrypted = chunk_bytes(encrypted=True)
    for size in range(0, len(encrypted), 97):
        with pytest.raises(CorruptError):
            read(encrypted[:size])


@given(st.binary(max_size=100))
@settings(max_examples=200)
def test_no_bytes_make_the_reader_stumble(data: bytes) -> None:
    for raw in (data, b"PAR1" + data, b"PAR1" + data + struct.pack("<I", len(data)) + b"PAR1"):
        with pytest.raises((*OURS, KeyNotFound)):
            read(raw)


@pytest.mark.parametrize("length", [0xFFFF_FFFF, 0x7FFF_FFFF, 17 << 20, len(RAW)])
def test_a_footer_longer_than_the_file_or_the_limit_is_refused(length: int) -> None:
    with pytest.raises(CorruptError, match="footer"):
        read(RAW[:-8] + struct.pack("<I", length) + b"PAR1")


def test_a_row_group_that_would_take_too_much_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reader, "CHUNK_ROW_GROUP_BYTES_MAX", 1000)
    with pytest.raises(CorruptError, match="would take"):
        ChunkReader(BytesSource(RAW, PATH))


def test_too_many_rows_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reader, "CHUNK_ROW_GROUP_ROWS_MAX", ROWS - 1)
    with pytest.raises(CorruptError, match="out of bounds"):
        ChunkReader(BytesSource(RAW, PATH))


def test_a_page_that_declares_more_than_its_row_group_is_refused() -> None:
    with ChunkReader(BytesSource(RAW, PATH)) as reader:
        column = reader._layout.row_group(0).column(reader._schema.names.index("payload"))
        start, stop = reader._span(column)
    data = memoryview(RAW)[start:stop]
    header = read_page_header(data, 0)
    bomb = page(kind=0, plain=1 << 30, stored=header.stored_bytes, values=ROWS)
    body = data[header.size : header.size + header.stored_bytes]
    with pytest.raises(BadPage, match="declare more than"):
        check_pages(memoryview(bomb + bytes(body)), ROWS, 512 << 20)
    assert check_pages(data, ROWS, 512 << 20) == header.plain_bytes


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"values": 11}, "more than there is"),
        ({"values": 9}, "9 values for 10 rows"),
        ({"values": -1}, "negative"),
        ({"plain": -1}, "negative"),
        ({"stored": 1000}, "more than there is"),
        ({"plain": 2000}, "more than 1,000 bytes"),
        ({"kind": 3}, "no header"),
    ],
)
def test_pages_that_do_not_fit_are_refused(fields: dict[str, int], reason: str) -> None:
    good = {"kind": 0, "plain": 100, "stored": 50, "values": 10}
    assert check_pages(memoryview(page(**good) + bytes(50)), 10, 1000) == 100
    with pytest.raises(BadPage, match=reason):
        check_pages(memoryview(page(**{**good, **fields}) + bytes(50)), 10, 1000)


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_no_bytes_make_the_page_scanner_stumble(data: bytes) -> None:
    try:
        check_pages(memoryview(data), 10, 1000)
    except BadPage:
        return
    raise AssertionError("random bytes are no pages")


def test_a_parquet_file_of_others_is_no_chunk(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    with pytest.raises(CorruptError, match="no chunk"):
        read(path.read_bytes())


def test_a_later_version_is_no_damage() -> None:
    with ChunkReader(BytesSource(RAW, PATH)) as reader:
        texts = encode_meta(reader.meta)
    with pytest.raises(UnsupportedVersion):
        decode_meta({**texts, b"latewood.version": b"2"}, PATH)


@pytest.mark.parametrize(
    "changes",
    [{"row_count": ROWS + 1}, {"sequence_max": ROWS}, {"row_count": 0, "sequence_max": -1, "row_groups": ()}],
)
def test_a_description_that_does_not_add_up_is_refused(changes: dict[str, Any]) -> None:
    with ChunkReader(BytesSource(RAW, PATH)) as reader:
        fields = {name: getattr(reader.meta, name) for name in reader.meta.__struct_fields__}
        texts = encode_meta(type(reader.meta)(**{**fields, **changes}))
    with pytest.raises(CorruptError, match="does not add up"):
        decode_meta(texts, PATH)


def test_records_of_another_chunk_under_this_description_are_found(tmp_path: Path) -> None:
    with ChunkReader(BytesSource(RAW, PATH)) as reader:
        meta, table = reader.meta, reader._parquet.read()
    path = tmp_path / "forged.parquet"
    with pq.ParquetWriter(path, table.schema, store_schema=False, compression="zstd") as writer:
        writer.write_table(table.take([1, 0, *range(2, ROWS)]))
        writer.add_key_value_metadata(encode_meta(meta))
    raw = path.read_bytes()
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    with pytest.raises(CorruptError, match="not what was written"):
        read(raw[:footer] + encode_mark(raw[footer:]) + raw[footer:])


def page(kind: int, plain: int, stored: int, values: int) -> bytes:
    """A page header in Thrift's compact protocol."""
    fields = b"".join(b"\x15" + _zigzag(value) for value in (kind, plain, stored))
    rest = b"\x15" + _zigzag(values) + b"\x15\x00\x15\x06\x15\x06\x00"
    return fields + b"\x2c" + rest + b"\x00"


def _zigzag(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])
