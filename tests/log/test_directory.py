"""Which directory a log is in: a path that comes to mean another one neither gets its records nor gives it others."""

import errno
import fcntl
import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import latewood
from latewood import LatewoodError, ManifestCorrupted, Queue
from latewood.errors import AnotherLog, DirectoryReplaced, Locked, NotFoundError, StorageError
from latewood.fs import PosixFS
from latewood.fs import root as root_module
from latewood.log.head import retire_before
from latewood.log.layout import Layout
from latewood.log.rebuild import begin_life, rebuild
from latewood.log.verify import verify_log
from latewood.testing import MemFS
from tests.fs.test_root import no_directory_locks
from tests.log.desk import ROOT, Desk, payloads
from tests.patience import wait_until

SMALL: Final[dict[str, Any]] = {"segment_bytes_max": 4096, "background": False}


def sync_after(log: Queue) -> None:
    log.append(b"late", durable=True)


def flush_after(log: Queue) -> None:
    log.append(b"late")
    log.flush()


def roll_after(log: Queue) -> None:
    log.append(b"late")
    log.roll()


def fill_after(log: Queue) -> None:
    log.append_many([bytes(100)] * 60)


def cohort_after(log: Queue) -> None:
    log.set_ext_id(7)


def close_after(log: Queue) -> None:
    log.append(b"late")
    log.close()


def housekeep_after(log: Queue) -> None:
    log.append_many([bytes(500)] * 6)
    log._writer.housekeep()


ACTS: Final = [sync_after, flush_after, roll_after, fill_after, cohort_after, close_after, housekeep_after]


# -- what the error says --


@pytest.mark.parametrize(
    ("event", "missing", "words"),
    [
        (
            "rm",
            "directory",
            "it was deleted or moved; put it back or open it where it is now, if it was moved; restore a ",
        ),
        (
            "mv",
            "another",
            "another directory is there now; put back the one that was opened, or open it where it is now",
        ),
        ("unlock", "lock", ": the file writer.lock was removed; open it again"),
        ("segments", "segment", "; put that back, or restore a backup; or move what is left away, to begin anew"),
    ],
)
def test_the_error_says_what_is_missing_and_what_to_do(tmp_path: Path, event: str, missing: str, words: str) -> None:
    path = tmp_path / "events"
    log = latewood.open(path, **SMALL)
    log.append(b"kept", durable=True)
    match event:
        case "rm":
            shutil.rmtree(path)
        case "mv":
            path.rename(tmp_path / "elsewhere")
            path.mkdir()
        case "unlock":
            (path / "writer.lock").unlink()
        case _:
            shutil.rmtree(path / "segments")
    with pytest.raises(DirectoryReplaced) as caught:
        log.append(b"late", durable=True)
    assert (caught.value.missing, words in str(caught.value)) == (missing, True)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - ours
    assert (str(again), again.missing) == (str(caught.value), missing)
    with pytest.raises(DirectoryReplaced):
        log.flush()
    log.close()


def test_a_log_without_its_segments_has_one_way_on_wherever_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with latewood.open(path, **SMALL) as log:
        for number in range(3):
            log.append(b"%d" % number, durable=True)
            log.roll()
    (path / "segments").rename(tmp_path / "backup")
    wanted = re.escape(f"or move {path} away to begin anew")
    for meet in (lambda: latewood.open(path, mode="a"), lambda: latewood.open(path, mode="r").next_sequence):
        with pytest.raises(ManifestCorrupted, match=wanted):
            meet()
    for accept_loss in (True, False):
        with pytest.raises(NotFoundError, match=wanted):
            rebuild(PosixFS(), Layout(path), accept_loss=accept_loss)
    (finding,) = verify_log(PosixFS(), Layout(path)).findings
    assert re.search(wanted, finding.remedy)
    (tmp_path / "backup").rename(path / "segments")
    assert payloads(latewood.open(path, mode="r")) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("moved", [True, False])
def test_a_writer_without_its_segments_stops_at_the_roll_and_its_flush_too(tmp_path: Path, *, moved: bool) -> None:
    log = latewood.open(tmp_path / "events", **SMALL)
    log.append(b"kept", durable=True)
    if moved:
        (tmp_path / "events" / "segments").rename(tmp_path / "segments")
    else:
        shutil.rmtree(tmp_path / "events" / "segments")
    for act in (log.roll, log.flush, log.flush):
        with pytest.raises(DirectoryReplaced, match="segments"):
            act()
    log.close()


# -- a path that leads elsewhere ----------------------------------------------------------------------


class Town:
    """A directory with a log, and what happens to it while that is open."""

    def __init__(self, home: Path) -> None:
        self.home, self.path, self.elsewhere = home, home / "events", home / "elsewhere"
        self.log = latewood.open(self.path, **SMALL)
        self.log.append_many([b"kept"] * 3, durable=True)

    def move(self) -> None:
        self.path.rename(self.elsewhere)

    def delete(self) -> None:
        shutil.rmtree(self.path)

    def delete_and_make_anew(self) -> None:
        shutil.rmtree(self.path)
        with latewood.open(self.path) as log:
            log.append(b"another log", durable=True)

    def replace_by_another(self) -> None:
        self.move()
        with latewood.open(self.path) as log:
            log.append(b"another log", durable=True)

    def restore_a_copy(self) -> None:
        shutil.copytree(self.path, self.home / "copy")
        self.move()
        (self.home / "copy").rename(self.path)

    def delete_and_restore(self) -> None:
        """The inode of the directory may well be used again."""
        shutil.copytree(self.path, self.home / "copy")
        shutil.rmtree(self.path)
        shutil.copytree(self.home / "copy", self.path)

    def state(self) -> dict[str, bytes]:
        """What is in the directory that the path leads to now."""
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files}


EVENTS: Final = [
    Town.move,
    Town.delete,
    Town.delete_and_make_anew,
    Town.replace_by_another,
    Town.restore_a_copy,
    Town.delete_and_restore,
]


@pytest.fixture(params=[True, False], ids=["descriptor", "path"])
def town(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setattr(root_module, "OPENS_BY_DESCRIPTOR", request.param)
    town = Town(tmp_path)
    yield town
    town.log.close()


@pytest.mark.parametrize(
    ("town", "event", "act"),
    [(True, event, act) for event in EVENTS for act in ACTS] + [(False, event, roll_after) for event in EVENTS],
    indirect=["town"],
    ids=lambda value: getattr(value, "__name__", "descriptor" if value else "path"),
)
def test_a_writer_stops_before_it_acknowledges_more_and_leaves_the_new_directory_alone(
    town: Town, event: Callable[[Town], None], act: Callable[[Queue], None]
) -> None:
    event(town)
    before = town.state()
    with pytest.raises(DirectoryReplaced) as caught:
        act(town.log)
    assert caught.value.path == town.path
    assert str(town.path) in str(caught.value)
    assert town.log.durable_sequence == 3 if act is not close_after else True
    assert town.state() == before
    for again in (lambda: town.log.append(b"more"), lambda: town.log.append_many([b"more"]), town.log.flush):
        with pytest.raises(LatewoodError):
            again()
    town.log.close()
    assert town.state() == before


def end_of(log: Queue) -> object:
    return log.next_sequence


def find(log: Queue) -> object:
    return log.find_timestamp(1)


def scan(log: Queue) -> object:
    return list(log.scan())


@pytest.mark.parametrize("look", [scan, end_of, find])
def test_a_look_into_a_directory_that_was_deleted_calls_nothing_damaged(
    town: Town, look: Callable[[Queue], object]
) -> None:
    with latewood.open(town.path, mode="r") as beside:
        town.delete()
        with pytest.raises(DirectoryReplaced):
            look(beside)
    if look is not end_of:  # The writer knows its end.
        with pytest.raises(DirectoryReplaced):
            look(town.log)
    with pytest.raises(DirectoryReplaced):
        town.log.close()


def test_what_was_acknowledged_is_in_the_directory_that_was_moved(town: Town) -> None:
    town.move()
    with pytest.raises(DirectoryReplaced):
        town.log.append(b"late", durable=True)
    town.log.close()
    with latewood.open(town.elsewhere) as log:
        assert payloads(log)[:3] == [b"kept"] * 3
        log.append(b"goes on", durable=True)
    assert not town.path.exists()


def test_a_directory_that_came_back_is_written_as_if_nothing_had_been(town: Town) -> None:
    town.move()
    town.elsewhere.rename(town.path)
    town.log.append(b"late", durable=True)
    town.log.roll()
    assert payloads(town.log) == [b"kept"] * 3 + [b"late"]


def test_a_writer_behind_a_link_stops_when_the_link_is_set_anew(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "other") as other:
        other.append(b"another log")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "mine").mkdir()
    log = latewood.open(tmp_path / "link", **SMALL)
    log.append(b"kept", durable=True)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")
    with pytest.raises(DirectoryReplaced, match="link is not what was opened"):
        log.append(b"late", durable=True)
    log.close()
    assert payloads(latewood.open(tmp_path / "other", mode="r")) == [b"another log"]
    assert payloads(latewood.open(tmp_path / "mine", mode="r"))[:1] == [b"kept"]


def test_the_background_stops_too_and_the_next_caller_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "events"
    log = latewood.open(path, segment_bytes_max=4096, flush_ms=1)
    log.append(b"kept", durable=True)
    path.rename(tmp_path / "elsewhere")
    path.mkdir()
    log.append(b"late")
    wait_until(lambda: log._writer.durability.failure is not None)
    with pytest.raises(DirectoryReplaced):
        log.append(b"more")
    log.close()
    assert list(path.iterdir()) == []
    assert "in the background: " in caplog.text
    assert str(path) in caplog.text


def test_a_replacement_that_only_the_background_met_is_told_by_close(tmp_path: Path) -> None:
    path = tmp_path / "events"
    log = latewood.open(path, segment_bytes_max=4096, flush_ms=1)
    log.append(b"kept", durable=True)
    path.rename(tmp_path / "elsewhere")
    log.append(b"late")
    wait_until(lambda: log._writer.durability.failure is not None)
    with pytest.raises(DirectoryReplaced):
        log.close()
    log.close()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_a_reader_is_told_and_neither_reads_nor_commits_in_the_new_directory(
    town: Town, event: Callable[[Town], None]
) -> None:
    town.log.close()
    with latewood.open(town.path, mode="r") as log:
        reader = log.reader("billing")
        reader.next()
        event(town)
        before = town.state()
        with pytest.raises(DirectoryReplaced):
            reader.commit()
        with pytest.raises(DirectoryReplaced):
            list(log.scan())
        assert town.state() == before


def test_a_reader_that_waits_is_told(town: Town) -> None:
    outcome: list[BaseException] = []

    def follow() -> None:
        try:
            for _ in reader.follow():
                pass
        except LatewoodError as error:
            outcome.append(error)

    town.log.close()
    with latewood.open(town.path, mode="r") as log:
        reader = log.reader("billing", "latest")
        assert reader.next() is None
        thread = threading.Thread(target=follow)
        thread.start()
        town.move()
        thread.join(60)
        assert [type(error) for error in outcome] == [DirectoryReplaced]


def test_a_read_only_log_is_not_read_from_another_directory(town: Town) -> None:
    town.log.close()
    with latewood.open(town.path, mode="r") as log:
        assert payloads(log) == [b"kept"] * 3
        town.replace_by_another()
        with pytest.raises(DirectoryReplaced):
            payloads(log)


def test_a_read_only_log_gives_no_record_of_another_whose_files_were_put_into_its_directory(town: Town) -> None:
    town.log.close()
    with latewood.open(town.home / "other") as other:
        other.append(b"another log")
    with latewood.open(town.path, mode="r") as log:
        assert payloads(log) == [b"kept"] * 3
        for path in town.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(town.home / "other", town.path, dirs_exist_ok=True)
        for _ in range(2):
            with pytest.raises(DirectoryReplaced, match="another log"):
                payloads(log)


def test_a_log_in_memory_is_missed_like_one_on_a_disk(desk: Desk) -> None:
    log = desk.open()
    log.append(b"kept", durable=True)
    desk.fs.rename(ROOT, Path("elsewhere"))
    other = desk.open()
    other.append(b"another log", durable=True)
    with pytest.raises(DirectoryReplaced):
        log.append(b"late", durable=True)
    assert payloads(other) == [b"another log"]


# -- the current directory ----------------------------------------------------------------------------


def test_two_tenants_that_change_the_directory_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {}
    for tenant in ("a", "b"):
        (tmp_path / tenant).mkdir()
        monkeypatch.chdir(tmp_path / tenant)
        logs[tenant] = latewood.open("events", **SMALL)
        logs[tenant].reader("billing")
    for number in range(130):
        for tenant, log in logs.items():
            log.append(tenant.encode() * 100, durable=number % 20 == 0)
    for log in logs.values():
        log.cleanup()
        log.close()
    for tenant in logs:
        with latewood.open(tmp_path / tenant / "events") as log:
            assert payloads(log) == [tenant.encode() * 100] * 130
            assert [info.sequence for info in log.readers()] == [0]


def test_a_roll_a_reader_and_a_cleanup_after_chdir_stay_where_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = latewood.open("events", **SMALL)
    assert log.path == tmp_path / "events"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    log.append(b"a")
    log.roll()
    log.append(b"b")
    with log.reader("billing") as reader:
        assert [record.payload for record in reader] == [b"a", b"b"]
        reader.commit()
    assert log.cleanup() == [0]
    log.close()
    assert list((tmp_path / "other").iterdir()) == []
    assert payloads(latewood.open(tmp_path / "events", mode="r")) == [b"b"]


def test_a_read_only_log_after_chdir_is_still_the_one_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in ("a", "b"):
        with latewood.open(tmp_path / tenant / "events", **SMALL) as log:
            log.append(tenant.encode())
            log.roll()
            log.append(tenant.encode())
    monkeypatch.chdir(tmp_path / "a")
    with latewood.open("events", mode="r") as log:
        monkeypatch.chdir(tmp_path / "b")
        assert payloads(log) == [b"a", b"a"]


def test_a_link_in_the_path_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with latewood.open(tmp_path / "link" / "events") as log:
        assert log.path == tmp_path / "link" / "events"


# -- one writer ---------------------------------------------------------------------------------------


def test_the_removal_of_the_lock_file_lets_no_second_writer_in(town: Town) -> None:
    (town.path / "writer.lock").unlink()
    for _ in range(2):
        with pytest.raises(Locked, match="is being written by"):
            latewood.open(town.path)
    with pytest.raises(DirectoryReplaced, match=r"writer\.lock"):
        town.log.roll() or town.log.append(b"late", durable=True)


@pytest.mark.needs("proc")
def test_where_directories_cannot_be_locked_the_removal_of_the_lock_file_lets_no_second_writer_in_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_directory_locks(errno.EBADF))
    town = Town(tmp_path)
    (town.path / "writer.lock").unlink()
    for _ in range(2):
        with pytest.raises(Locked, match="is being written by another process"):
            latewood.open(town.path)
    with pytest.raises(DirectoryReplaced, match=r"writer\.lock"):
        town.log.append(b"late", durable=True)
    town.log.close()
    with latewood.open(town.path) as log:
        assert payloads(log)[:3] == [b"kept"] * 3


def test_a_rebuild_does_not_come_in_beside_a_writer_whose_lock_file_was_removed(town: Town) -> None:
    (town.path / "writer.lock").unlink()
    with pytest.raises(Locked):
        rebuild(PosixFS(), town.log._layout)
    with pytest.raises(DirectoryReplaced):
        town.log.close()


def test_a_writer_stops_at_a_lock_file_that_an_older_program_has_made_anew(town: Town) -> None:
    (town.path / "writer.lock").unlink()
    other = PosixFS().lock(town.path / "writer.lock")
    town.log.append(b"late")
    with pytest.raises(DirectoryReplaced, match=r"writer\.lock"):
        town.log.roll()
    other.close()


def test_a_reader_whose_lock_file_was_removed_commits_nothing(town: Town) -> None:
    with town.log.reader("billing") as reader:
        reader.next()
        (town.path / "readers" / "billing.lock").unlink()
        with town.log.reader("billing") as second:
            second.next()
            with pytest.raises(DirectoryReplaced, match=r"billing\.lock"):
                reader.commit()
            second.commit()
    town.log.append(b"goes on", durable=True)


def test_a_writer_that_was_refused_leaves_nothing_open_or_locked(desk: Desk) -> None:
    log = desk.open()
    for _ in range(2):
        with pytest.raises(Locked):
            desk.open()
    log.close()
    desk.open()


def test_a_rebuild_replaces_nothing_that_an_earlier_one_has_rejected(desk: Desk) -> None:
    """The log goes on with the id of the segment that it lost."""
    with desk.open() as log:
        log.append(b"sealed")
        log.roll()
    for word in (b"first", b"second", b"third"):
        with desk.open() as log:
            log.append(word, durable=True)
            path = log._layout.absolute(log._writer.manifest.active.path)
        desk.overwrite(path, bytes(8))
        assert rebuild(desk.fs, desk.layout, accept_loss=True).written
    rejected = {path: desk.raw(path) for path in desk.fs.walk(ROOT) if ".rejected" in path.name}
    assert [path.name[len("000000001.q") :] for path in rejected] == [".rejected", ".rejected-2", ".rejected-3"]
    for word, data in zip((b"first", b"second", b"third"), rejected.values(), strict=True):
        assert word in data


# -- newer segments -----------------------------------------------------------------------------------


def saved(desk: Desk, *names: str) -> dict[Path, bytes]:
    return {path: desk.raw(path) for path in desk.fs.walk(ROOT) if path.name.startswith(names)}


def restored(desk: Desk, files: dict[Path, bytes]) -> None:
    for path, data in files.items():
        desk.truncate(path, 0)
        desk.overwrite(path, data)


def older_beside_newer(desk: Desk, days: int = 0) -> dict[Path, bytes]:
    """Restore manifest, `index.meta` and the open segment of a time before the log rolled; return what is newer."""
    log = desk.open()
    log.append(b"old", durable=True)
    old = saved(desk, "manifest.", "index.meta", "000000000.q")
    desk.clock.advance(seconds=days * 24 * 3600)
    log.append(b"newer", durable=True)
    log.roll()
    log.append(b"newest", durable=True)
    log.close()
    desk.fs.remove(desk.layout.sealed_pointer)
    newer = saved(desk, "000000001.q")
    restored(desk, old)
    return newer


@pytest.mark.parametrize("days", [0, 1, 40, 400, -1, -40])
def test_a_log_beside_a_newer_segment_is_refused_and_the_segment_stays(desk: Desk, days: int) -> None:
    newer = older_beside_newer(desk, days)
    for _ in range(2):
        with pytest.raises(ManifestCorrupted, match="latewood rebuild --dry-run") as caught:
            desk.open()
        assert caught.value.path in newer
    assert saved(desk, "000000001.q") == newer


def test_a_file_that_is_no_segment_keeps_nobody_out(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"first", durable=True)
        day = log._layout.absolute(log._writer.manifest.active.path).parent
    for name in ("notes", "000000001.q.rejected"):
        file = desk.fs.open(day / name, create=True)
        file.pwrite(b"x" * 4096, 0)
        file.close()
    with desk.open() as log:
        assert payloads(log) == [b"first"]


def test_a_newer_segment_is_found_when_those_between_were_retired(desk: Desk) -> None:
    log = desk.open()
    old = saved(desk, "manifest.", "index.meta", "000000000.q")
    for _ in range(4):
        log.append(b"x")
        log.roll()
    with log.reader("billing", "latest") as reader:
        reader.commit()
    assert log.cleanup() == [0, 1, 2, 3]
    log.append(b"newest", durable=True)
    log.close()
    for path, data in old.items():
        file = desk.fs.open(path, create=True)
        file.close()
        restored(desk, {path: data})
    desk.fs.remove(desk.layout.readers / "billing.meta")
    with pytest.raises(ManifestCorrupted) as caught:
        desk.open()
    assert caught.value.path.name == "000000004.q"


def test_a_newer_segment_is_damage_to_verify_and_no_writer_is_taken_for_it(desk: Desk) -> None:
    older_beside_newer(desk)
    (found,) = [finding for finding in verify_log(desk.fs, desk.layout).findings if finding.severity == "damage"]
    assert found.path.name == "000000001.q"
    assert "latewood rebuild" in found.remedy


def test_the_advice_to_move_the_newer_segments_away_works_and_their_readers_are_told(desk: Desk) -> None:
    newer = older_beside_newer(desk)
    with pytest.raises(ManifestCorrupted, match=r"out of .*, and then `latewood rebuild --new-life ") as caught:
        desk.open()
    assert caught.value.path in newer
    for path in newer:
        desk.fs.rename(path, Path("away.q"))
    mark = desk.open_to_read().mark
    begin_life(desk.fs, desk.layout)
    log = desk.open()
    assert payloads(log) == [b"old"]
    log.append_many([b"x"] * 10)
    with pytest.raises(AnotherLog):
        log.check_position(3, mark)


def test_the_advice_to_rebuild_works_where_only_the_manifest_is_older(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", durable=True)
    old = saved(desk, "manifest.")
    log.roll()
    log.append(b"b", durable=True)
    log.close()
    restored(desk, old)
    with pytest.raises(ManifestCorrupted, match="latewood rebuild"):
        desk.open()
    assert rebuild(desk.fs, desk.layout).written
    assert payloads(desk.open()) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["000000001.q", "000000000.q"])
def test_a_segment_without_records_is_no_reason_to_refuse_and_makes_room(desk: Desk, name: str) -> None:
    log = desk.open()
    log.append(b"a", durable=True)
    path = desk.segment_paths()[0]
    log.close()
    stray = path.with_name(name) if path.name != name else path.parents[1] / "28" / name
    desk.fs.make_directory(stray.parent)
    desk.fs.open(stray, create=True).close()
    log = desk.open()
    log.roll()
    log.append(b"b", durable=True)
    log.close()
    assert payloads(desk.open()) == [b"a", b"b"]


def test_a_segment_that_appears_under_a_running_writer_is_not_replaced(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    log.roll()
    newest = desk.raw(desk.segment_paths()[1])
    path = desk.segment_paths()[1].with_name("000000002.q")
    log.append(b"b", durable=True)
    desk.fs.open(path, create=True).pwrite(desk.raw(desk.segment_paths()[1]), 0)
    before = desk.raw(path)
    with pytest.raises(LatewoodError, match="the manifest does not know it"):
        log.roll()
    assert desk.raw(path) == before
    assert newest != before


def test_a_roll_gives_no_name_that_is_taken_at_the_last_moment() -> None:
    class Crowded(MemFS):
        def rename_new(self, source: Path, target: Path) -> None:
            if target.name == "000000001.q":
                self.open(target, create=True).pwrite(b"somebody else's", 0)
            super().rename_new(source, target)

    with Desk(Crowded()) as desk:
        log = desk.open()
        log.append(b"a", durable=True)
        with pytest.raises(LatewoodError, match="is there already"):
            log.roll()
        assert desk.raw(desk.segment_paths()[1]) == b"somebody else's"


def test_the_check_opens_no_file_and_lists_a_bounded_number_of_directories(desk: Desk) -> None:
    log = desk.open()
    for _ in range(30):
        log.append(b"x")
        log.roll()
        desk.clock.advance(seconds=24 * 3600)
    log.close()
    opened, lists = desk.fs.counts.files_opened, desk.fs.counts.lists
    desk.open()
    assert desk.fs.counts.files_opened - opened <= 12
    assert desk.fs.counts.lists - lists <= 12


# -- descriptors --------------------------------------------------------------------------------------


@pytest.mark.needs("proc")
def test_an_open_log_holds_one_descriptor_of_its_directory_and_gives_it_back(tmp_path: Path) -> None:
    def directories() -> list[str]:
        found = (os.readlink(f"/proc/self/fd/{name}") for name in names())  # noqa: PTH115 - not a path of ours
        return [path for path in found if path.startswith(str(tmp_path))]

    def names() -> list[Any]:
        return [name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]  # noqa: PTH208

    path = tmp_path / "events"
    for mode in ("a", "r"):
        log = latewood.open(path, mode=mode)
        assert directories().count(str(path)) == 1
        log.close()
        assert directories() == []


def test_a_manifest_that_was_published_counts_though_nobody_can_tell_which_directory_it_is_in(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = desk.open(segment_bytes_max=4096)
    log.append_many([bytes(100)] * 60)
    calls = 0

    def fail_behind_publishing() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StorageError("an input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(log._writer.durability, "check_directory", fail_behind_publishing)
        with pytest.raises(StorageError):
            retire_before(log, log.next_sequence)
    assert desk.open_to_read().first_sequence == log.first_sequence > 0
