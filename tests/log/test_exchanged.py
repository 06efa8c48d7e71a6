"""Files of another log, or of another copy, in the place of a log's own: nothing of them is taken for the log's."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, ManifestCorrupted
from latewood.log import Owner
from latewood.log.identity import load_identity
from latewood.log.listing import list_segments
from latewood.log.manifest import ManifestStore
from latewood.log.rebuild import begin_life, rebuild
from latewood.log.verify import Finding, verify_log
from latewood.queue.retention import RetentionPolicy
from latewood.testing import FakeClock
from latewood.testing.fake_clock import START_NS
from tests.format.version_1 import downgrade
from tests.log.desk import ROOT, Desk, payloads

SEALED = 4
RECORDS = 5
NOT_SEALED_HERE = "not the segment that the log sealed"
MANIFESTS = ("manifest.1", "manifest.2", "manifest.current")


def filled(text: bytes, *, sealed: int = SEALED, late_ns: int = 0) -> Desk:
    """Return a log whose segments have the sizes and sequences of those of any other that this makes."""
    desk = Desk(clock=FakeClock(START_NS + late_ns))
    with desk.open(owner=Owner.ANYBODY) as log:
        for _ in range(sealed):
            log.append_many([text] * RECORDS)
            log.roll()
        log.append(text)
    return desk


def own() -> Desk:
    return filled(b"P")


def other() -> Desk:
    return filled(b"Q", late_ns=1)


def put(desk: Desk, path: Path, raw: bytes) -> None:
    desk.truncate(path, 0)
    desk.overwrite(path, raw)


def exchange(desk: Desk, from_desk: Desk, index: int) -> Path:
    """Put a sealed segment of another log in the place of one's own; return its path."""
    path = desk.segment_paths()[index]
    put(desk, path, from_desk.raw(from_desk.segment_paths()[index]))
    return path


def take_manifest(desk: Desk, from_desk: Desk) -> None:
    for name in MANIFESTS:
        put(desk, ROOT / name, from_desk.raw(ROOT / name))


def damage(desk: Desk, *, deep: bool = False) -> list[Finding]:
    found = verify_log(desk.fs, desk.layout, deep=deep).findings
    return [finding for finding in found if finding.severity == "damage"]


# -- segments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("index", range(SEALED))
def test_a_sealed_segment_of_another_log_is_found_by_verify(index: int, *, deep: bool) -> None:
    desk = own()
    path = exchange(desk, other(), index)
    (found,) = damage(desk, deep=deep)
    assert found.path == path
    assert NOT_SEALED_HERE in found.problem
    assert "rebuild --accept-loss" in found.remedy


def test_a_sealed_segment_of_another_log_is_not_served() -> None:
    desk = own()
    path = exchange(desk, other(), 1)
    with desk.open_to_read() as log:
        assert payloads(log, 0, RECORDS) == [b"P"] * RECORDS
        for start in (RECORDS, 2 * RECORDS - 1):
            with pytest.raises(CorruptError, match=NOT_SEALED_HERE) as caught:
                payloads(log, start, start + 1)
            assert caught.value.path == path
        assert payloads(log, 2 * RECORDS) == [b"P"] * (RECORDS * (SEALED - 2) + 1)


def test_whatever_reads_a_footer_notices_a_segment_of_another_log() -> None:
    desk = own()
    exchange(desk, other(), 0)
    with desk.open(retention=RetentionPolicy(max_age_ms=1)) as log:
        with pytest.raises(CorruptError, match=NOT_SEALED_HERE):
            list(list_segments(log))
        with pytest.raises(CorruptError, match=NOT_SEALED_HERE):
            log.cleanup()
        with pytest.raises(CorruptError, match=NOT_SEALED_HERE):
            log.view().find_timestamp(START_NS)


def test_a_log_whose_latest_sealed_segment_is_of_another_is_not_appended_to() -> None:
    desk = own()
    exchange(desk, other(), SEALED - 1)
    with pytest.raises(CorruptError, match=NOT_SEALED_HERE):
        desk.open()


def test_the_error_survives_pickling_with_what_to_do() -> None:
    desk = own()
    exchange(desk, other(), SEALED - 1)
    with pytest.raises(CorruptError) as caught:
        desk.open()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own bytes


@given(st.data())
def test_any_two_sealed_files_that_change_places_are_found_by_verify_and_by_reading(data: st.DataObject) -> None:
    """Two of one log, or one of each of two logs that have the same sizes, sequences and payloads."""
    sealed = data.draw(st.integers(2, 4))
    desks = [filled(b"x", sealed=sealed, late_ns=late_ns) for late_ns in (0, data.draw(st.integers(1, 10**12)))]
    places = st.tuples(st.sampled_from(range(2)), st.integers(0, sealed - 1))
    one, another = data.draw(st.lists(places, min_size=2, max_size=2, unique=True))
    paths = [desks[number].segment_paths()[index] for number, index in (one, another)]
    raws = [desks[number].raw(path) for (number, _), path in zip((one, another), paths, strict=True)]
    for (number, index), path, raw in zip((one, another), paths, reversed(raws), strict=True):
        put(desks[number], path, raw)
        assert index < sealed
    for (number, index), path in zip((one, another), paths, strict=True):
        assert path in {found.path for found in damage(desks[number])}
        with desks[number].open_to_read() as log, pytest.raises(CorruptError):
            payloads(log, index * RECORDS, index * RECORDS + 1)


# -- every way to an entry ----------------------------------------------------------------------------


def seals(desk: Desk) -> tuple[list[int], list[int]]:
    """Return the checksums that the manifest has, and those of the footers."""
    entries = ManifestStore(desk.fs, desk.layout).load().entries
    listed = [entries[index].seal_checksum for index in range(len(entries))]
    return listed, [desk.footer(index).checksum for index in range(len(entries))]


def test_a_roll_an_upgrade_and_a_rebuild_note_the_same_checksums() -> None:
    desk = own()
    listed, found = seals(desk)
    assert listed == found
    assert len(set(found)) == SEALED
    assert [int.from_bytes(desk.raw(path)[-4:], "little") for path in desk.segment_paths()[:SEALED]] == found
    rebuild(desk.fs, desk.layout)
    assert seals(desk) == (found, found)
    downgrade(desk.fs, ROOT)
    assert seals(desk) == ([0] * SEALED, found)
    desk.open().close()
    assert seals(desk) == (found, found)


def test_a_segment_that_was_damaged_when_the_log_was_upgraded_can_be_restored() -> None:
    desk = own()
    downgrade(desk.fs, ROOT)
    path = desk.segment_paths()[1]
    raw = desk.raw(path)
    desk.overwrite(path, b"?", len(raw) - 60)
    desk.open().close()
    listed = listed_seals(desk)
    assert listed[1] == 0
    assert all(listed[index] for index in (0, 2, 3))
    put(desk, path, raw)
    assert damage(desk) == []
    with desk.open_to_read() as log:
        assert payloads(log) == [b"P"] * (SEALED * RECORDS + 1)


def listed_seals(desk: Desk) -> list[int]:
    entries = ManifestStore(desk.fs, desk.layout).load().entries
    return [entries[index].seal_checksum for index in range(len(entries))]


# -- rebuild ------------------------------------------------------------------------------------------


def test_a_rebuild_says_which_segment_is_another_logs_and_takes_it_only_if_told_to() -> None:
    desk = own()
    path = exchange(desk, other(), 1)
    report = rebuild(desk.fs, desk.layout)
    assert not report.written
    (problem,) = report.problems
    assert problem.path == path
    assert NOT_SEALED_HERE in problem.problem
    assert damage(desk) != []
    assert rebuild(desk.fs, desk.layout, accept_loss=True).written
    assert damage(desk) == []
    with desk.open_to_read() as log:
        assert payloads(log, RECORDS, 2 * RECORDS) == [b"Q"] * RECORDS


def test_a_rebuild_goes_on_without_a_segment_of_another_log_that_was_moved_away() -> None:
    desk = own()
    desk.fs.remove(exchange(desk, other(), 1))
    assert rebuild(desk.fs, desk.layout, accept_loss=True).written
    with desk.open_to_read() as log:
        assert payloads(log, 2 * RECORDS) == [b"P"] * (RECORDS * (SEALED - 2) + 1)


# -- manifest and identity ----------------------------------------------------------------------------


def identity_of(desk: Desk) -> bytes:
    identity = load_identity(desk.fs, desk.layout)
    assert identity is not None
    return identity.identity


def everything(desk: Desk) -> dict[Path, bytes]:
    return {path: desk.raw(path) for path in desk.fs.walk(ROOT) if path.suffix != ".lock" and path.name != "wake"}


@pytest.mark.parametrize("owner", [Owner.ANYBODY, Owner.STORE])
def test_a_manifest_of_another_log_is_not_appended_to_and_nothing_is_written(owner: Owner) -> None:
    desk, from_desk = own(), other()
    take_manifest(desk, from_desk)
    before = everything(desk)
    with pytest.raises(ManifestCorrupted, match="came from another log") as caught:
        desk.open(owner=owner)
    assert caught.value.path == desk.layout.identity
    assert identity_of(desk).hex() in str(caught.value)
    assert identity_of(from_desk).hex() in str(caught.value)
    assert "rebuild --dry-run q" in str(caught.value)
    with pytest.raises(ManifestCorrupted, match="came from another log"):
        begin_life(desk.fs, desk.layout)
    assert everything(desk) == before
    assert desk.layout.identity in {found.path for found in damage(desk)}


@pytest.mark.parametrize("sealed", [0, 1, SEALED])
def test_a_rebuild_sets_a_manifest_of_another_log_aside_and_keeps_the_name(sealed: int) -> None:
    desk, from_desk = filled(b"P", sealed=sealed), filled(b"Q", sealed=sealed, late_ns=1)
    identity = identity_of(desk)
    take_manifest(desk, from_desk)
    report = rebuild(desk.fs, desk.layout)
    assert (report.written, report.identity) == (False, identity.hex())
    (problem,) = report.problems
    assert f"it is of the log {identity_of(from_desk).hex()}" in problem.problem
    assert rebuild(desk.fs, desk.layout, accept_loss=True).written
    with desk.open() as log:
        assert log.identity is not None
        assert log.identity.identity == identity == identity_of(desk)
        assert payloads(log) == [b"P"] * (sealed * RECORDS + 1)
    assert damage(desk) == []


def test_a_rebuild_keeps_the_manifests_name_where_only_the_file_came_from_another_log() -> None:
    desk, from_desk = own(), other()
    identity = identity_of(desk)
    put(desk, desk.layout.identity, from_desk.raw(desk.layout.identity))
    with pytest.raises(ManifestCorrupted, match="came from another log"):
        desk.open()
    report = rebuild(desk.fs, desk.layout)
    assert (report.problems, report.written, report.identity) == ([], True, identity.hex())
    with desk.open():
        assert identity_of(desk) == identity


def test_a_file_of_another_log_that_is_removed_is_written_again(caplog: pytest.LogCaptureFixture) -> None:
    desk = own()
    identity = identity_of(desk)
    put(desk, desk.layout.identity, other().raw(desk.layout.identity))
    desk.fs.remove(desk.layout.identity)
    with desk.open():
        assert identity_of(desk) == identity
    assert "q/identity was missing or stale; it is written again" in caplog.text
