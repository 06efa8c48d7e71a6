"""The worked examples of docs/format/chunk.md, made by the real code from the example log of all format pages.

`python -m tests.archive.chunk_page` writes them into the page anew.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final
from unittest.mock import patch

import msgspec

import latewood
from latewood.archive import chunk, chunk_writer, crypt
from latewood.archive.chunk_writer import Chunk, Origin, SegmentStart
from latewood.archive.keys import KeyRing
from latewood.testing import MemFS
from tests.archive.records import Yard
from tests.meta import format_examples, format_tables

PAGE: Final = Path(__file__).parents[2] / "docs" / "format" / "chunk.md"
_VERSION: Final = "0.1.0"
_SECRET: Final = bytes(range(32))
_KEY_ID: Final = "2026-03"
_BYTES_IN_A_LINE: Final = 8
_BLOCK: Final = re.compile(r"^```(hex|json) ([\w.]+)\n.*?^```$", re.MULTILINE | re.DOTALL)


def example_keys() -> KeyRing:
    """Return the key that the encrypted example is made with."""
    return KeyRing({_KEY_ID: _SECRET}, _KEY_ID)


@cache
def example_chunk(*, encrypted: bool) -> tuple[Chunk, bytes]:
    """Return the chunk of the example log's sealed segment, and its bytes."""
    fs = MemFS()
    for name, data in format_examples.example_log().items():
        path = Path("events", name)
        fs.make_directory(path.parent)
        file = fs.open(path, create=True)
        file.pwrite(data, 0)
        file.close()
    keys = example_keys() if encrypted else None
    yard = Yard(fs, database="events", database_id=1, shard=0, keys=keys)
    with (
        latewood.open("events", mode="r", fs=fs) as log,
        patch.object(chunk_writer, "_program_version", lambda: _VERSION),
    ):
        segments = [SegmentStart(0, 0), SegmentStart(1, 3)]
        (made,) = yard.write(list(log.arrow_batches(0, 3)), Origin(segments=segments, mark=log.mark))
    return made, yard.raw(made.path)


def examples() -> dict[str, str]:
    """Return the examples by name, as the page must show them."""
    made, raw = example_chunk(encrypted=False)
    _, sealed = example_chunk(encrypted=True)
    mark = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little") - chunk.MARK_SIZE
    return {
        "description": json.dumps(json.loads(msgspec.json.encode(made.meta)), indent=2) + "\n",
        "mark": _rendered(chunk, "MARK_SIZE", raw, mark),
        "header": _rendered(crypt, "HEADER_SIZE", sealed, 0),
    }


def rewritten(text: str) -> str:
    """Return the page with its examples replaced."""
    found = examples()
    return _BLOCK.sub(lambda block: f"```{block[1]} {block[2]}\n{found[block[2]]}```", text)


def tables(module: ModuleType) -> list[list[format_tables.Row]]:
    """Return the byte tables that a module describes."""
    return [table.rows for table in format_tables.tables(module.__doc__ or "")]


def _rendered(module: ModuleType, constant: str, raw: bytes, start: int) -> str:
    (table,) = [table for table in format_tables.tables(module.__doc__ or "") if table.constant == constant]
    return "".join(f"{line}\n" for line in _lines(table, raw, start))


def _lines(table: format_tables.Table, raw: bytes, start: int) -> Iterator[str]:
    width = max(len(row.field) for row in table.rows)
    for row in table.rows:
        value = raw[start : start + int(row.size)]
        pieces = [value[at : at + _BYTES_IN_A_LINE] for at in range(0, len(value), _BYTES_IN_A_LINE)]
        shown = _shown(row, value)
        yield f"{start:6}  {pieces[0].hex(' '):<24} {row.field:<{width}}  {shown}".rstrip()
        yield from (f"{start + 8 * number:6}  {piece.hex(' ')}" for number, piece in enumerate(pieces[1:], 1))
        start += len(value)


def _shown(row: format_tables.Row, value: bytes) -> str:
    if row.type == "[u8]":
        text = value.rstrip(b"\0")
        return f'"{text.decode()}"' if text.isalnum() or row.field == "key_id" else ""
    number = int.from_bytes(value, "little")
    return f"0x{number:08x}" if row.field == "checksum" else f"{number}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
