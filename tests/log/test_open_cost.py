"""What opening costs: the same number of files, and a bounded number of bytes, whatever the history."""

from pathlib import Path
from typing import NamedTuple

import pytest

from latewood.format.entries import EntryTable, SegmentEntry
from latewood.format.manifest import ActiveSegment, Manifest, encode
from latewood.format.segment import HEADER_SIZE, SegmentHeader
from latewood.kernel import verify
from latewood.limits import CHECKPOINT_BYTES, RESERVE_BYTES, MiB
from latewood.log import recovery
from latewood.log.identity import Claim, born
from latewood.log.layout import segment_path
from latewood.log.manifest import ManifestStore
from latewood.segment import SegmentWriter, empty_tail, file_bytes, prepare, write_header
from latewood.testing import MemFS
from tests.format.codecs import BIRTH
from tests.log.desk import ROOT, SEGMENT_BYTES, Desk, payloads

IDENTITY = born(Claim(birth=BIRTH), 0)
RECORDS = 10
"""In every segment."""

HISTORIES = [10, 1_000, 100_000]


class Cost(NamedTuple):
    files_opened: int
    lists: int
    maps: int
    bytes_mapped: int
    bytes_read: int


def begun(fs: MemFS, segment_id: int, created_ns: int) -> SegmentWriter:
    """A segment with records, where a log with such a history would have it."""
    header = SegmentHeader(
        segment_index=segment_id,
        base_offset=0,
        base_record_count=segment_id * RECORDS,
        max_size=SEGMENT_BYTES,
        flags=0,
        created_at=created_ns,
        ext_id=0,
        index_interval=1024,
    )
    path = ROOT / segment_path(segment_id, created_ns)
    fs.make_directory(path.parent)
    file = prepare(fs, path, file_bytes(SEGMENT_BYTES, 1024))
    write_header(file, header)
    writer = SegmentWriter(file, header, empty_tail(0), None)
    writer.appender.allow(SEGMENT_BYTES, SEGMENT_BYTES, RECORDS)
    for _ in range(RECORDS):
        writer.appender.append(b"x", 0, created_ns)
    return writer


def with_history(desk: Desk, sealed: int) -> int:
    """Make a log of so many sealed segments, of which only the last is on this disk; return the manifest's length."""
    now_ns = desk.clock.now_ns()
    desk.fs.make_directory(ROOT)
    last = begun(desk.fs, sealed - 1, now_ns)
    _, size = last.seal(now_ns=now_ns, coordinator_watermark=0, flush_failed=False)
    last.close()
    begun(desk.fs, sealed, now_ns).close()
    entries = EntryTable.empty(ROOT / "manifest.1")
    for number in range(sealed):
        start = number * RECORDS
        entries = entries.append(SegmentEntry(start, start + RECORDS - 1, size, 0, 0, segment_path(number, now_ns)))
    active = ActiveSegment(sealed, HEADER_SIZE, 0, segment_path(sealed, now_ns))
    manifest = Manifest(sealed + 1, sealed * RECORDS, active, entries, 0, IDENTITY)
    ManifestStore(desk.fs, desk.layout).store(manifest)
    return len(encode(manifest))


def cost_of_opening(desk: Desk, *, to_read: bool) -> Cost:
    before = desk.fs.counts
    start = Cost(before.files_opened, before.lists, before.maps, before.bytes_mapped, before.bytes_read)
    log = desk.open_to_read() if to_read else desk.open()
    after = desk.fs.counts
    end = Cost(after.files_opened, after.lists, after.maps, after.bytes_mapped, after.bytes_read)
    assert log.next_sequence % RECORDS == 0
    assert payloads(log, log.next_sequence - RECORDS) == [b"x"] * RECORDS
    log.close()
    return Cost(*(later - earlier for later, earlier in zip(end, start, strict=True)))


@pytest.fixture(scope="module")
def histories() -> dict[int, tuple[Desk, int]]:
    made = {}
    for sealed in HISTORIES:
        desk = Desk()
        made[sealed] = (desk, with_history(desk, sealed))
        desk.open().close()  # The first opening after a crash mends advisory files; the others have none to mend.
    return made


@pytest.mark.parametrize("to_read", [True, False], ids=["to read", "to append"])
def test_opening_touches_as_many_files_after_100_000_segments_as_after_10(
    histories: dict[int, tuple[Desk, int]], *, to_read: bool
) -> None:
    costs = {sealed: cost_of_opening(desk, to_read=to_read) for sealed, (desk, _) in histories.items()}
    without_bytes_read = {cost[:4] for cost in costs.values()}
    assert len(without_bytes_read) == 1
    assert costs[10].files_opened <= 12


@pytest.mark.parametrize("to_read", [True, False], ids=["to read", "to append"])
def test_opening_reads_the_manifest_and_a_bounded_rest(
    histories: dict[int, tuple[Desk, int]], *, to_read: bool
) -> None:
    rest = set()
    for desk, manifest_bytes in histories.values():
        rest.add(cost_of_opening(desk, to_read=to_read).bytes_read - manifest_bytes)
    assert len(rest) == 1
    assert rest.pop() < 10_000


@pytest.mark.parametrize("sealed", HISTORIES)
def test_opening_decodes_no_entry_but_the_last(
    histories: dict[int, tuple[Desk, int]], sealed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = EntryTable._decode

    def counted(self: EntryTable, at: int) -> SegmentEntry:
        decoded.append(at)
        return decode(self, at)

    desk, _ = histories[sealed]
    monkeypatch.setattr(EntryTable, "_decode", counted)
    log = desk.open()
    monkeypatch.undo()
    log.close()
    assert len(set(decoded)) == 1


@pytest.mark.parametrize("sealed", HISTORIES)
def test_a_roll_writes_as_much_after_100_000_segments_as_after_10(sealed: int) -> None:
    with Desk() as desk:
        with_history(desk, sealed)
        log = desk.open()
        for _ in range(3):  # Each slot is written whole once, and then only added to.
            log.append(b"x")
            log.roll()
        before = desk.fs.counts.bytes_written
        log.append(b"x")
        log.roll()
        assert desk.fs.counts.bytes_written - before < 2_000


# -- the tail -----------------------------------------------------------------------------------------


def bytes_scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many bytes each verification of an open segment's tail covers."""
    scanned: list[int] = []

    def counted(buffer: memoryview, offset: int, limit: int) -> tuple[int, ...]:
        result = verify(buffer, offset, limit)
        scanned.append(result[1] - offset)
        return result

    monkeypatch.setattr(recovery, "verify", counted)
    return scanned


def test_after_a_flush_recovery_scans_only_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=16 * MiB)
        log.append_many([bytes(1000)] * 5_000, durable=True)
        log.append_many([bytes(1000)] * 3)
        desk.kill()
        scanned = bytes_scanned(monkeypatch)
        desk.open(segment_bytes_max=16 * MiB)
        assert scanned == [3 * 1024]


def test_without_a_flush_recovery_scans_about_what_the_background_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=32 * MiB)
        for _ in range(20_000):
            log.append(bytes(1000))
            if log._writer.durability.wants_checkpoint:
                log._writer.housekeep()
        desk.kill()
        scanned = bytes_scanned(monkeypatch)
        desk.open(segment_bytes_max=32 * MiB)
        assert sum(scanned) <= CHECKPOINT_BYTES


def test_recovery_never_scans_more_than_what_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=64 * MiB)
        log.append_many([bytes(MiB)] * 40)
        desk.kill()
        scanned = bytes_scanned(monkeypatch)
        desk.open(segment_bytes_max=64 * MiB)
        assert sum(scanned) <= RESERVE_BYTES


def test_a_sealed_segment_of_the_past_is_not_opened(desk: Desk) -> None:
    log = desk.open()
    for _ in range(5):
        log.append(b"x")
        log.roll()
    log.close()
    desk.fs.opened.clear()
    desk.open()
    assert {path.name for path in desk.fs.opened if path.suffix == ".q"} == {"000000004.q", "000000005.q"}
    assert Path("q/segments/2026/03/02/000000000.q") not in desk.fs.opened
