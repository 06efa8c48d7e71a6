"""Which log it is, who may append to it, and which positions belong to it."""

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import latewood
from latewood import Life, LogIdentity, ManifestCorrupted, Mark, Owned, Owner, UnsupportedVersion, UsageError
from latewood.log import Log, LogOptions
from latewood.log.identity import Claim, born, load_identity, lost_from, reborn, stranger_reason
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from latewood.testing import CrashFS, FakeClock, MemFS
from tests.format.codecs import BIRTH, IDENTITY
from tests.format.version_1 import downgrade
from tests.log.desk import ROOT, Desk, payloads

ROOT_MANIFESTS = [ROOT / "manifest.1", ROOT / "manifest.current"]
FIRST = int.from_bytes(BIRTH[:8], "little")


def named(log: Log) -> LogIdentity:
    """Return what the log says it is: it is open to append, so it has a name."""
    assert log.identity is not None
    return log.identity


# -- birth --------------------------------------------------------------------------------------------


def test_a_new_log_has_a_random_identity_that_stays(desk: Desk) -> None:
    with desk.open() as log:
        born_as = named(log)
        assert len(born_as.identity) == 16
        assert born_as.owner is Owner.ANYBODY
        assert [life.start_sequence for life in born_as.lives] == [0]
        log.append(b"x")
        log.roll()
    assert named(desk.open()) == born_as
    assert desk.open_to_read().identity == born_as
    with Desk() as other:
        assert named(other.open()).identity != born_as.identity


def test_a_birth_that_is_given_is_the_identity_and_the_first_life_follows_from_it(desk: Desk) -> None:
    log = desk.open(birth=BIRTH)
    assert named(log) == LogIdentity(BIRTH, Owner.ANYBODY, (Life(FIRST, 0),))
    assert log.mark == Mark(BIRTH, FIRST)
    with Desk() as other:
        assert other.open(birth=BIRTH).mark == log.mark


def test_a_birth_is_of_no_account_where_there_is_a_log(desk: Desk) -> None:
    desk.open(birth=BIRTH).close()
    assert named(desk.open(birth=b"something else..")).identity == BIRTH


def test_the_first_life_begins_with_the_first_sequence_and_is_never_0(desk: Desk) -> None:
    log = desk.open(birth=bytes(15) + b"\1", first_sequence=70)
    assert named(log).lives == (Life(1, 70),)


@pytest.mark.parametrize("birth", [b"", bytes(16), b"too short", bytearray(b"identity of oaks"), "identity of oaks"])
def test_a_birth_that_is_no_identity_is_refused(desk: Desk, birth: Any) -> None:
    with pytest.raises(UsageError, match="birth must be 16 bytes"):
        desk.open(birth=birth)
    assert not desk.fs.exists(ROOT)


def test_an_owner_that_there_is_not_is_refused(desk: Desk) -> None:
    wrong: Any = 1
    with pytest.raises(UsageError, match="owner must be an Owner, not 1"):
        desk.open(owner=wrong)
    assert not desk.fs.exists(ROOT)


def test_a_log_that_is_deleted_and_made_anew_is_another(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "q") as log:
        before = log.mark
    for path in sorted((tmp_path / "q").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with latewood.open(tmp_path / "q") as log:
        assert log.mark != before
        assert stranger_reason(log.identity, before, 0)


def test_a_log_without_manifest_and_segments_is_made_anew_though_a_file_still_names_the_old_one(desk: Desk) -> None:
    desk.open(birth=BIRTH).close()
    for path in [ROOT / "index.meta", *ROOT_MANIFESTS]:
        desk.fs.remove(path)
    desk.fs.remove_tree(desk.layout.segments)
    assert named(desk.open()).identity != BIRTH


# -- the second copy ----------------------------------------------------------------------------------


def test_the_file_says_what_the_manifest_says(desk: Desk) -> None:
    log = desk.open(owner=Owner.STORE)
    assert load_identity(desk.fs, desk.layout) == log.identity


@pytest.mark.parametrize("damage", [None, b"", b"rubbish" * 9, "stale"], ids=["missing", "empty", "torn", "stale"])
def test_a_file_that_is_not_what_the_manifest_says_is_warned_of_and_written_again(
    desk: Desk, damage: bytes | str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with Desk() as other:
        other.open(birth=BIRTH, owner=Owner.STORE).close()
        stale = other.raw(other.layout.identity)
    with desk.open(birth=BIRTH) as log:
        identity = log.identity
    desk.fs.remove(desk.layout.identity)
    if damage is not None:
        desk.fs.open(desk.layout.identity, create=True).pwrite(stale if isinstance(damage, str) else damage, 0)
    assert desk.open_to_read().identity == identity
    assert not caplog.text
    desk.open().close()
    assert "q/identity was missing or stale; it is written again" in caplog.text
    assert load_identity(desk.fs, desk.layout) == identity
    caplog.clear()
    desk.open()
    assert not caplog.text


def test_a_file_of_a_later_version_is_not_replaced(desk: Desk) -> None:
    desk.open().close()
    desk.overwrite(desk.layout.identity, b"\x02", 8)
    before = desk.raw(desk.layout.identity)
    with pytest.raises(UnsupportedVersion, match="identity version 2"):
        desk.open()
    assert desk.raw(desk.layout.identity) == before


# -- owners -------------------------------------------------------------------------------------------

OWNERS = [Owner.STORE, Owner.NODE]


def contents(fs: MemFS) -> dict[Path, bytes]:
    found = {}
    for path in fs.walk(ROOT):
        file = fs.open(path)
        found[path] = file.pread(file.size(), 0)
        file.close()
    return found


@pytest.mark.parametrize("owner", OWNERS)
def test_only_its_owner_appends_to_a_log_and_anybody_reads_it(desk: Desk, owner: Owner) -> None:
    with desk.open(owner=owner) as log:
        log.append(b"x")
    before = contents(desk.fs)
    for other in set(Owner) - {owner}:
        with pytest.raises(Owned, match=f"q is kept by .*{owner.name.lower()}.*mode='r'") as caught:
            desk.open(owner=other)
        assert (caught.value.path, caught.value.owner) == (ROOT, owner.name.lower())
    assert contents(desk.fs) == before
    with desk.open_to_read() as log:
        assert payloads(log) == [b"x"]
        assert named(log).owner is owner
    assert desk.open(owner=owner).append(b"y") == 1


@pytest.mark.parametrize("owner", OWNERS)
def test_an_owner_claims_a_log_of_nobodys_and_its_identity_stays(desk: Desk, owner: Owner) -> None:
    with desk.open(birth=BIRTH) as log:
        log.append(b"x")
    with desk.open(owner=owner) as log:
        assert named(log) == LogIdentity(BIRTH, owner, (Life(FIRST, 0),))
        assert payloads(log) == [b"x"]
    assert load_identity(desk.fs, desk.layout) == LogIdentity(BIRTH, owner, (Life(FIRST, 0),))
    with pytest.raises(Owned):
        desk.open()


def test_a_claim_that_is_cut_short_is_made_again_and_one_that_was_acknowledged_holds() -> None:
    fs, clock = CrashFS(), FakeClock()
    options = LogOptions(segment_bytes_max=1024)
    with Log.open(ROOT, options, fs=fs, clock=clock, background=False, birth=BIRTH) as log:
        log.append(b"x", durable=True)
    owners = set()
    fs.note = "claiming"

    def claim(fs: CrashFS) -> None:
        Log.open(ROOT, fs=fs, clock=clock, background=False, owner=Owner.STORE)
        fs.note = "claimed"
        fs.step("claimed")

    for _, survivor in fs.cuts_during(claim, 200):
        with Log.open(ROOT, mode="r", fs=survivor, clock=clock) as log:
            owners.add((survivor.note, named(log).owner))
            assert payloads(log) == [b"x"]
        with Log.open(ROOT, fs=survivor, clock=clock, background=False, owner=Owner.STORE) as log:
            assert named(log) == LogIdentity(BIRTH, Owner.STORE, (Life(FIRST, 0),))
            assert payloads(log) == [b"x"]
    assert owners == {("claiming", Owner.ANYBODY), ("claiming", Owner.STORE), ("claimed", Owner.STORE)}


def test_an_error_of_an_owned_log_survives_pickling() -> None:
    import pickle  # noqa: PLC0415 - its only use

    error = Owned(ROOT, "node")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own bytes


# -- upgrades: more in tests/golden and tests/crash ---------------------------------------------------


def test_a_log_of_version_1_is_claimed_as_it_is_upgraded(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with desk.open() as log:
        log.append(b"x")
    downgrade(desk.fs, ROOT)
    assert desk.open_to_read().identity is None
    with desk.open(owner=Owner.NODE, birth=BIRTH) as log:
        assert named(log) == LogIdentity(BIRTH, Owner.NODE, (Life(FIRST, 0),))
    assert "q was upgraded to format 2; older programs cannot open it any more" in caplog.text


def test_an_upgrade_does_not_take_the_name_of_a_log_that_was_here_before(desk: Desk) -> None:
    with desk.open() as log:
        before = named(log)
    named_file = desk.raw(desk.layout.identity)
    downgrade(desk.fs, ROOT)
    desk.fs.open(desk.layout.identity, create=True).pwrite(named_file, 0)
    assert named(desk.open()).identity != before.identity


def test_a_log_with_a_damaged_sealed_segment_is_upgraded_as_it_was_opened_before(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with desk.open() as log:
        for cohort in (3, 4, 5):
            log.set_ext_id(cohort)
            log.append(b"x")
            log.roll()
    downgrade(desk.fs, ROOT)
    first, second = desk.segment_paths()[:2]
    desk.overwrite(first, b"?", 20)
    desk.fs.remove(second)
    with caplog.at_level(logging.WARNING):
        log = desk.open()
    assert [log.view().manifest.entries[index].ext_id for index in range(3)] == [0, 0, 5]
    assert str(first) in caplog.text
    assert f"{second} is missing" in caplog.text


# -- lives --------------------------------------------------------------------------------------------


def test_a_rebuild_keeps_the_name_the_owner_and_the_watermark_and_begins_a_life(desk: Desk) -> None:
    with desk.open(birth=BIRTH, owner=Owner.STORE) as log:
        log.coordinator_watermark = 9
        log.append(b"x")
        log.roll()
        log.append(b"y")
        log._writer.retire(0)
    desk.fs.remove(desk.layout.sealed_pointer)
    report = rebuild(desk.fs, desk.layout, random_bytes=lambda count: b"\7" * count)
    assert report.identity == BIRTH.hex()
    with desk.open(owner=Owner.STORE) as log:
        assert log.identity == LogIdentity(BIRTH, Owner.STORE, (Life(FIRST, 0), Life(0x0707070707070707, 2)))
        assert log.coordinator_watermark == 9
    assert load_identity(desk.fs, desk.layout) == LogIdentity(
        BIRTH, Owner.STORE, (Life(FIRST, 0), Life(0x0707070707070707, 2))
    )


def lose_the_manifest(desk: Desk) -> None:
    for name in ("manifest.1", "manifest.2", "manifest.current"):
        if desk.fs.exists(ROOT / name):
            desk.fs.remove(ROOT / name)


def test_a_rebuild_finds_the_identity_though_the_manifest_is_lost(desk: Desk) -> None:
    with desk.open(birth=BIRTH, owner=Owner.STORE) as log:
        log.append(b"x")
    lose_the_manifest(desk)
    with pytest.raises(ManifestCorrupted):
        desk.open()
    assert rebuild(desk.fs, desk.layout).identity == BIRTH.hex()
    identity = named(desk.open(owner=Owner.STORE))
    assert (identity.identity, identity.owner) == (BIRTH, Owner.STORE)
    assert [life.start_sequence for life in identity.lives] == [0, 1]


def test_a_rebuild_without_manifest_and_identity_gives_the_log_another_and_says_so(desk: Desk) -> None:
    with desk.open(birth=BIRTH) as log:
        log.append(b"x")
    lose_the_manifest(desk)
    desk.fs.remove(desk.layout.identity)
    report = rebuild(desk.fs, desk.layout)
    assert (report.identity, report.problems) == (None, [])
    log = desk.open()
    assert named(log).identity != BIRTH
    assert payloads(log) == [b"x"]


def test_a_rebuild_refuses_an_identity_of_a_later_version(desk: Desk) -> None:
    with desk.open(birth=BIRTH) as log:
        log.append(b"x")
    lose_the_manifest(desk)
    desk.overwrite(desk.layout.identity, b"\x02", 8)
    with pytest.raises(UnsupportedVersion, match="identity version 2"):
        rebuild(desk.fs, desk.layout)


def a_log_without_sealed_segments(desk: Desk) -> None:
    with desk.open() as log:
        log.coordinator_watermark = 9
        log.append(b"x")
        log.roll()
        log.append(b"y")
        log._writer.retire(0)


def test_a_rebuild_without_manifest_and_sealed_segments_takes_the_watermark_from_the_pointer(desk: Desk) -> None:
    a_log_without_sealed_segments(desk)
    lose_the_manifest(desk)
    assert rebuild(desk.fs, desk.layout).problems == []
    assert desk.open().coordinator_watermark == 9


def test_a_rebuild_that_would_lose_the_watermark_says_so_and_writes_nothing(desk: Desk) -> None:
    a_log_without_sealed_segments(desk)
    lose_the_manifest(desk)
    desk.fs.remove(desk.layout.sealed_pointer)
    report = rebuild(desk.fs, desk.layout)
    assert not report.written
    assert [problem.path for problem in report.problems] == [desk.layout.sealed_pointer]
    assert "it alone had the coordinator watermark" in report.problems[0].problem
    assert rebuild(desk.fs, desk.layout, accept_loss=True).written
    assert desk.open().coordinator_watermark == 0


def test_a_log_that_was_rebuilt_without_its_last_segments_is_read_to_its_end(desk: Desk) -> None:
    """The checkpoint is of a segment that is lost; the open one now is of an older copy."""
    with desk.open() as log:
        log.append(b"x", durable=True)
        (path,) = desk.segment_paths()
        older = desk.raw(path)
        for _ in range(2):
            log.roll()
            log.append(b"lost", durable=True)
    for lost in desk.segment_paths()[1:]:
        desk.fs.remove(lost)
    file = desk.fs.open(path, write=True)
    file.truncate(0)
    file.pwrite(older, 0)
    file.close()
    assert rebuild(desk.fs, desk.layout, accept_loss=True).written
    for log in (desk.open_to_read(), desk.open()):
        assert payloads(log) == [b"x"]
    log.append(b"y", durable=True)
    assert payloads(desk.open_to_read()) == payloads(log) == [b"x", b"y"]


def test_a_rebuild_of_a_log_that_was_never_sealed_has_no_watermark_to_lose(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"x")
    lose_the_manifest(desk)
    assert rebuild(desk.fs, desk.layout).problems == []


def test_a_rebuild_takes_the_watermark_of_the_latest_sealed_segment(desk: Desk) -> None:
    with desk.open() as log:
        for watermark in (9, 4):
            log.coordinator_watermark = watermark
            log.append(b"x")
            log.roll()
    lose_the_manifest(desk)
    desk.fs.remove(desk.layout.sealed_pointer)
    assert rebuild(desk.fs, desk.layout).problems == []
    assert desk.open().coordinator_watermark == 4


def test_of_more_than_255_lives_the_oldest_are_forgotten() -> None:
    identity = born(Claim(birth=BIRTH), 0)
    numbers = itertools.count(1)
    for number in range(300):
        identity = reborn(identity, number, lambda count: next(numbers).to_bytes(count, "little"))
    assert [life.life for life in identity.lives] == list(range(46, 301))


# -- positions ----------------------------------------------------------------------------------------

LIVES = (Life(1, 0), Life(2, 60), Life(3, 40), Life(4, 90))
OF_FOUR_LIVES = LogIdentity(BIRTH, Owner.ANYBODY, LIVES)


@pytest.mark.parametrize(("life", "end"), [(1, 40), (2, 40), (3, 90), (4, None), (5, None)])
def test_a_life_ends_where_the_log_went_back_to_in_any_later_one(life: int, end: int | None) -> None:
    assert lost_from(OF_FOUR_LIVES, life) == end


@pytest.mark.parametrize(
    ("life", "sequence", "word"),
    [
        (1, 0, None),
        (1, 40, None),
        (1, 41, "the log went back to 40 since"),
        (2, 60, "the log went back to 40 since"),
        (3, 90, None),
        (3, 91, "the log went back to 90 since"),
        (4, 1 << 62, None),
        (5, 0, "the life 0000000000000005 of this log, which this copy of it never had"),
    ],
)
def test_a_position_belongs_up_to_where_the_log_went_back_to_since(life: int, sequence: int, word: str | None) -> None:
    reason = stranger_reason(OF_FOUR_LIVES, Mark(BIRTH, life), sequence)
    assert (reason is None) == (word is None)
    assert word is None or word in (reason or "")


@given(st.integers(0, 1 << 64))
def test_a_position_of_another_log_never_belongs(sequence: int) -> None:
    reason = stranger_reason(IDENTITY, Mark(b"another identity", IDENTITY.life), sequence)
    assert reason == f"the position is of the log {b'another identity'.hex()}, and this one is {BIRTH.hex()}"


@given(st.integers(0, 1 << 64))
def test_what_an_older_program_stored_belongs(sequence: int) -> None:
    assert stranger_reason(IDENTITY, None, sequence) is None
    assert stranger_reason(None, IDENTITY.mark, sequence) is None
    assert stranger_reason(None, None, sequence) is None


def test_the_layout_knows_where_the_second_copy_is() -> None:
    assert Layout(ROOT).identity == ROOT / "identity"
