"""The worked examples of docs/format: one small log, made by the real code, and its bytes field by field.

Every page shows bytes of the same log, so that a number on one page can be found again on another.  The fields come
from the byte tables in the docstrings of `latewood.format`, the bytes from the files of the log.
`python -m tests.meta.format_examples` writes the examples into the pages anew.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from time import gmtime, strftime
from typing import Final, NamedTuple

import latewood
from latewood.format import seal, segment
from latewood.format.entry import Command, encode_command
from latewood.format.keyed import encode as encode_keyed
from latewood.format.record import SEAL_LENGTH
from latewood.log import LogOptions
from latewood.replica.engine import ConfState, Entry, EntryKind, HardState
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.snapshot import SnapshotWriter
from latewood.testing import FakeClock, MemFS
from latewood.testing.fake_clock import START_NS
from tests.meta import format_tables

PAGES: Final = Path(__file__).parents[2] / "docs" / "format"
_LOG: Final = Path("events")
_SEGMENT: Final = "segments/2026/03/02/{:09}.q"
_PARENT: Final = "node/parent/" + _SEGMENT.format(0)
_SNAPSHOT: Final = "node/snapshots/1-2/" + _SEGMENT.format(0)
_BYTES_IN_A_LINE: Final = 8
_BLOCK: Final = re.compile(r"^```hex (\w+)\n.*?^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A stretch of a file, and the table that explains it."""

    file: str
    offset: int
    module: str
    constant: str


EXAMPLES: Final[dict[str, dict[str, Example]]] = {
    "record": {
        "first": Example(_SEGMENT.format(0), 64, "record", "SIZE"),
        "second": Example(_SEGMENT.format(0), 96, "record", "SIZE"),
        "keyed": Example("clicks/" + _SEGMENT.format(0), 88, "keyed", "SIZE"),
    },
    "segment": {
        "header": Example(_SEGMENT.format(0), 0, "segment", "HEADER_SIZE"),
        "footer": Example(_SEGMENT.format(0), -segment.FOOTER_SIZE, "segment", "FOOTER_SIZE"),
    },
    "seal": {
        "head": Example(_SEGMENT.format(0), 152, "seal", "HEAD_SIZE"),
        "entry": Example(_SEGMENT.format(0), 152 + seal.HEAD_SIZE, "seal", "ENTRY_SIZE"),
        "next_entry": Example(_SEGMENT.format(0), 152 + seal.HEAD_SIZE + seal.ENTRY_SIZE, "seal", "ENTRY_SIZE"),
    },
    "manifest": {
        "header": Example("manifest.2", 0, "manifest", "HEADER_SIZE"),
        "state": Example("manifest.2", 32, "manifest", "STATE_SIZE"),
        "active": Example("manifest.2", 80, "manifest", "ACTIVE_SIZE"),
        "entry": Example("manifest.2", 133, "entries", "ENTRY_SIZE"),
    },
    "identity": {
        "header": Example("identity", 0, "identity", "HEADER_SIZE"),
        "block": Example("identity", 16, "identity", "BLOCK_SIZE"),
        "life": Example("identity", 40, "identity", "LIFE_SIZE"),
    },
    "pointer": {"pointer": Example("segments/current.sealed", 0, "pointer", "SIZE")},
    "checkpoint": {"checkpoint": Example("index.meta", 0, "checkpoint", "SIZE")},
    "cursor": {
        "slot_0": Example("readers/billing.meta", 0, "cursor", "SIZE"),
        "slot_1": Example("readers/billing.meta", 4096, "cursor", "SIZE"),
    },
    "entry": {
        "hard_state": Example(_PARENT, 88, "entry", "HEAD_SIZE"),
        "vote": Example(_PARENT, 112, "entry", "VOTE_SIZE"),
        "entry": Example(_PARENT, 144, "entry", "HEAD_SIZE"),
        "command": Example(_PARENT, 168, "entry", "COMMAND_SIZE"),
        "pack": Example("pack of entry 1", 0, "entry", "PACK_SIZE"),
        "chunk": Example(_SNAPSHOT, 88, "entry", "CHUNK_SIZE"),
        "members": Example(_SNAPSHOT, 144, "entry", "MEMBERS_SIZE"),
    },
}


@cache
def example_log() -> Mapping[str, bytes]:
    """Return the files of the example log by their path in it, as they are while it is open."""
    fs, clock = MemFS(), FakeClock()
    options = LogOptions(segment_bytes_max=512, index_interval=2)
    log = latewood.open(_LOG, options, fs=fs, clock=clock, background=False, birth=b"identity of oaks")
    log.append(b"oak", ext_id=7)
    clock.advance(seconds=1)
    log.append(b"")
    clock.advance(seconds=1)
    log.append(b"birch", ext_id=9)
    log.coordinator_watermark = 40
    clock.advance(seconds=1)
    log.roll()
    log.append(b"pine")
    log.flush()
    clock.advance(seconds=1)
    with log.reader("billing") as reader:
        reader.poll(2)
        reader.commit()
    keyed = latewood.open(_LOG / "clicks", segment_bytes_max=512, keyed=True, fs=fs, clock=clock, background=False)
    keyed.append(encode_keyed(b"user-7", b"oak"))
    files = _files(fs, _LOG)
    return files | {"pack of entry 1": _write_node(fs, clock)} | _files(fs, _LOG / "node")


def _write_node(fs: MemFS, clock: FakeClock) -> bytes:
    """Write a node's parent log and a snapshot of it; return a pack of its entry."""
    parent = _LOG / "node" / "parent"
    store = SegmentedLogStore.open(parent, LogOptions(segment_bytes_max=512), fs=fs, clock=clock, background=False)
    store.set_hard_state(HardState(2, 1, 0))
    store.append([Entry(1, 2, EntryKind.NORMAL, encode_command(Command(7, 1, [b"oak"], clock.now_ns())))])
    writer = SnapshotWriter(fs, clock, _LOG / "node" / "snapshots", 1, 2)
    writer.parent(ConfState(voters=(1, 2, 3)))
    writer.finish()
    return store.pack(1, 2)


def _files(fs: MemFS, root: Path) -> dict[str, bytes]:
    return {path.relative_to(_LOG).as_posix(): _contents(fs, path) for path in fs.walk(root)}


def examples_of(page: str) -> dict[str, str]:
    """Return the examples of a page by name, as the page must show them."""
    return {name: render(example, example_log()) for name, example in EXAMPLES[page].items()}


def render(example: Example, files: Mapping[str, bytes]) -> str:
    """Return one example: a line for each field, with its offset in the file, its bytes and its value."""
    raw = files[example.file]
    start = example.offset if example.offset >= 0 else len(raw) + example.offset
    fields = list(_fields(table_of(example), raw[start:]))
    width = max(len(name) for name, _, _ in fields)
    lines = [f"{example.file}, from byte {start}:", ""]
    for name, kind, value in fields:
        pieces = [value[at : at + _BYTES_IN_A_LINE] for at in range(0, len(value), _BYTES_IN_A_LINE)] or [b""]
        shown = _shown(name, kind, value)
        lines.append(f"{start:6}  {pieces[0].hex(' '):<24} {name:<{width}}  {shown}".rstrip())
        lines += [f"{start + 8 * row:6}  {piece.hex(' ')}" for row, piece in enumerate(pieces[1:], 1)]
        start += len(value)
    return "".join(f"{line}\n" for line in lines)


def table_of(example: Example) -> format_tables.Table:
    """Return the table that explains an example."""
    module = importlib.import_module(f"latewood.format.{example.module}")
    found = [table for table in format_tables.tables(module.__doc__ or "") if table.constant == example.constant]
    return found[0]


def _fields(table: format_tables.Table, raw: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield name, type and bytes of each field; a variable one is as long as the field before it says."""
    at, before = 0, b""
    for row in table.rows:
        size = int(row.size) if row.size.isdecimal() else int.from_bytes(before, "little")
        before = raw[at : at + size]
        yield row.field, row.type, before
        at += size
    if table.constant == "SIZE" and table.rows[0].field == "length":
        yield from _payload(raw)


def _payload(raw: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield what follows a record's header."""
    length = int.from_bytes(raw[:4], "little")
    if length:
        yield "payload", "[u8]", raw[24 : 24 + length]
        yield "padding", "zeros", raw[24 + length : 24 + length + -length % 8]


def _shown(name: str, kind: str, value: bytes) -> str:
    number = int.from_bytes(value, "little", signed=kind.startswith("i"))
    if kind == "zeros":
        return ""
    if name == "life":
        return f"0x{number:016x}"
    if kind == "[u8]":
        return f'"{value.decode()}"'
    if name.endswith("checksum") or number == SEAL_LENGTH:
        return f"0x{number:08x}"
    if number >= START_NS:
        return f"{number}, {strftime('%Y-%m-%d %H:%M:%S', gmtime(number // 1_000_000_000))} UTC"
    return f"{number}"


def _contents(fs: MemFS, path: Path) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def rewritten(text: str, examples: Mapping[str, str]) -> str:
    """Return a page with its examples replaced."""
    replace: Callable[[re.Match[str]], str] = lambda block: f"```hex {block[1]}\n{examples[block[1]]}```"  # noqa: E731
    return _BLOCK.sub(replace, text)


if __name__ == "__main__":
    for name in EXAMPLES:
        page = PAGES / f"{name}.md"
        page.write_text(rewritten(page.read_text(), examples_of(name)))
