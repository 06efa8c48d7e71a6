"""Opening and closing: creation, options, modes, locks, and what is left open."""

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood import (
    ClosedError,
    Locked,
    Log,
    LogOptions,
    ManifestCorrupted,
    NotFoundError,
    ReadOnlyError,
    RecordTooLarge,
    StorageError,
    UsageError,
)
from latewood.errors import CorruptError, DataLost, Poisoned, UnsupportedVersion
from latewood.format.segment import HEADER_SIZE
from latewood.fs import PosixFS
from latewood.kernel import NAME
from latewood.log.durability import Durability
from latewood.log.manifest import ManifestStore
from latewood.testing import MemFS
from tests.log.desk import ROOT, Desk, payloads, sealed_ids

# -- creation -----------------------------------------------------------------------------------------


def test_a_new_log_has_a_manifest_and_a_segment_before_the_first_append(desk: Desk) -> None:
    desk.open()
    files = ["identity", "index.meta", "manifest.1", "manifest.current", "segments", "wake", "writer.lock"]
    assert desk.fs.list(ROOT) == files
    assert desk.segment_paths() == [Path("q/segments/2026/03/02/000000000.q")]


def test_every_file_and_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with latewood.open(tmp_path / "made" / "log", segment_bytes_max=4096) as log:
            log.append(bytes(4000))
            log.append(bytes(4000))
            log.reader("billing").commit()
            log.flush()
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "made", *(tmp_path / "made").rglob("*")]}
    wrong = {path: oct(mode) for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)}
    assert not wrong
    assert len(found) > 10


def test_a_log_can_be_named_by_a_string_and_lies_where_it_was_named(tmp_path: Path) -> None:
    with latewood.open(str(tmp_path / "log")) as log:
        assert log.path == tmp_path / "log"
    assert (tmp_path / "log" / "manifest.1").exists()


def test_a_file_in_the_place_of_the_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(NotFoundError, match="is a file"):
        latewood.open(tmp_path / "log")


def test_opening_and_closing_without_an_append_changes_nothing(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"a")

    def files() -> dict[Path, bytes]:
        return {path: desk.raw(path) for path in desk.fs.walk(ROOT) if path != desk.layout.wake}

    before = files()
    for _ in range(3):
        desk.open().close()
    assert files() == before


# -- options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"segment_bytes_max": 511},
        {"segment_bytes_max": 2**32},
        {"segment_records_max": 0},
        {"segment_age_max_ms": 0},
        {"index_interval": 0},
        {"index_interval": 2**20 + 1},
        {"flush_bytes": 0},
        {"flush_ms": -1},
    ],
    ids=str,
)
def test_an_option_out_of_bounds_is_refused_by_name(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        LogOptions(**options)  # type: ignore[arg-type]


def test_an_unknown_option_is_refused_with_those_that_there_are(desk: Desk) -> None:
    with pytest.raises(UsageError, match=r"unknown option 'segment_size'.*segment_bytes_max"):
        desk.open(segment_size=5)
    assert not desk.fs.exists(ROOT)


def test_options_are_given_by_name_or_as_a_whole_but_not_both(desk: Desk) -> None:
    whole = LogOptions(segment_bytes_max=1024)
    with latewood.open(ROOT, whole, fs=desk.fs) as log:
        assert log.options == whole
    with pytest.raises(UsageError, match="not both"):
        latewood.open(ROOT, whole, fs=desk.fs, flush_ms=5)


def test_another_mode_is_refused(desk: Desk) -> None:
    mode: Any = "w"
    with pytest.raises(UsageError, match="'a' to append or 'r' to read"):
        latewood.open(ROOT, mode=mode, fs=desk.fs)


def test_larger_segments_begin_with_the_next_one(desk: Desk) -> None:
    with desk.open(segment_bytes_max=512) as log:
        log.append(b"a")
    log = desk.open(segment_bytes_max=2048, index_interval=7)
    log.append(bytes(1000))
    assert sealed_ids(log) == [0]
    assert (desk.header(0).max_size, desk.header(1).max_size) == (512, 2048)
    assert (desk.header(0).index_interval, desk.header(1).index_interval) == (1024, 7)
    assert payloads(log) == [b"a", bytes(1000)]


def test_smaller_segments_begin_with_the_next_one(desk: Desk) -> None:
    with desk.open(segment_bytes_max=2048) as log:
        log.append(b"a")
    log = desk.open(segment_bytes_max=512)
    for _ in range(6):
        log.append(bytes(300))
    assert desk.header(0).max_size == 2048
    assert desk.footer(0).record_count == 6
    assert sealed_ids(log) == [0]
    log.append(bytes(300))
    assert sealed_ids(log) == [0, 1]
    assert desk.header(1).max_size == 512


def test_an_empty_segment_that_cannot_hold_the_record_gives_way_to_one_that_can(desk: Desk) -> None:
    desk.open(segment_bytes_max=512).close()
    with desk.open(segment_bytes_max=4096) as log:
        assert log.append(bytes(2000)) == 0
        assert sealed_ids(log) == []
        assert [path.name for path in desk.segment_paths()] == ["000000001.q"]
    assert payloads(desk.open()) == [bytes(2000)]


def test_a_record_that_only_a_new_segment_could_hold_needs_the_new_option(desk: Desk) -> None:
    with desk.open(segment_bytes_max=512) as log, pytest.raises(RecordTooLarge):
        log.append(bytes(2000))


def test_fewer_records_a_segment_roll_one_that_has_too_many_already(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"a"] * 10)
    log = desk.open(segment_records_max=3)
    log.append(b"b")
    assert sealed_ids(log) == [0]
    assert desk.footer(0).record_count == 10


# -- figures ------------------------------------------------------------------------------------------


def test_the_stats_are_those_of_the_log(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a"] * 5)
    log.roll()
    log.append_many([b"b"] * 3)
    sealed = len(desk.raw(desk.segment_paths()[0]))
    for each in (log, desk.open_to_read()):
        stats = each.stats()
        assert (stats.path, stats.kernel) == (ROOT, NAME)
        assert (stats.first_sequence, stats.next_sequence, stats.durable_sequence) == (0, 8, 5)
        assert (stats.record_count, stats.segment_count) == (8, 2)
        assert (stats.sealed_bytes, stats.active_segment_id) == (sealed, 1)
        assert stats.active_bytes == HEADER_SIZE + 3 * 32
        assert stats.manifest_generation == 2


# -- closing ------------------------------------------------------------------------------------------


def test_a_with_block_closes_the_log(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"a")
    assert payloads(desk.open()) == [b"a"]


CLOSED: list[Callable[[Log], object]] = [
    lambda log: log.append(b"x"),
    lambda log: log.append(b"x", durable=True),
    lambda log: log.append_many([b"x"]),
    lambda log: log.flush(),
    lambda log: log.roll(),
    lambda log: log.set_ext_id(1),
    lambda log: log.next_sequence,
    lambda log: log.first_sequence,
    lambda log: log.durable_sequence,
    lambda log: log.read(0),
    lambda log: list(log.scan()),
    lambda log: log.to_arrow(),
    lambda log: log.find_timestamp(0),
    lambda log: log.stats(),
    lambda log: log.view(),
    lambda log: log.stream(0),
]


@pytest.mark.parametrize("use", CLOSED)
def test_a_closed_log_refuses_to_be_used_and_closing_it_again_is_fine(desk: Desk, use: Callable[[Log], object]) -> None:
    log = desk.open()
    log.append(b"a")
    log.close()
    with pytest.raises(ClosedError, match="open it again"):
        use(log)
    log.close()


def test_readers_and_cleanup_of_a_closed_log_are_refused(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    reader = log.reader("billing")
    log.close()
    for use in (
        lambda: log.reader("other"),
        log.readers,
        log.cleanup,
        reader.commit,
        reader.lag,
        lambda: reader.wait(0),
    ):
        with pytest.raises(ClosedError):
            use()
    reader.close()


# -- to read only -------------------------------------------------------------------------------------


def test_there_must_be_a_log_to_read(desk: Desk) -> None:
    with pytest.raises(NotFoundError, match="there is no log at q"):
        desk.open_to_read()
    desk.fs.make_directory(ROOT)
    with pytest.raises(NotFoundError, match="there is no log at q"):
        desk.open_to_read()
    assert desk.fs.list(ROOT) == []


READING: list[Callable[[Log], object]] = [
    lambda log: log.append(b"x"),
    lambda log: log.append_many([b"x"]),
    lambda log: log.flush(),
    lambda log: log.roll(),
    lambda log: log.set_ext_id(1),
    lambda log: log.coordinator_watermark,
    lambda log: setattr(log, "coordinator_watermark", 3),
]


@pytest.mark.parametrize("use", READING)
def test_a_log_that_was_opened_to_read_cannot_be_written(desk: Desk, use: Callable[[Log], object]) -> None:
    desk.open().close()
    with pytest.raises(ReadOnlyError, match="mode='r'"):
        use(desk.open_to_read())


def test_reading_takes_no_lock_and_writes_nothing(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a", b"b"])
    desk.fs.read_only = True
    one, other = desk.open_to_read(), desk.open_to_read()
    assert payloads(one) == payloads(other) == [b"a", b"b"]
    assert one.next_sequence == 2
    desk.fs.read_only = False
    log.append(b"c")
    assert payloads(one) == [b"a", b"b", b"c"]


# -- one writer ---------------------------------------------------------------------------------------

HOLD = """
import sys, latewood
log = latewood.open(sys.argv[1])
log.append(b"held", durable=True)
print("open", flush=True)
sys.stdin.readline()
"""


def test_a_second_writer_in_this_process_is_locked_out(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log") as log:
        with pytest.raises(Locked) as caught:
            latewood.open(tmp_path / "log")
        assert caught.value.pid == os.getpid()
        assert "mode='r'" in str(caught.value)
        assert log.append(b"still mine") == 0
    latewood.open(tmp_path / "log").close()


def test_a_second_writer_in_another_process_is_locked_out_until_the_first_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(Locked, match=f"process {holder.pid}"):
            latewood.open(tmp_path / "log")
        assert payloads(latewood.open(tmp_path / "log", mode="r")) == [b"held"]
        holder.kill()
        holder.wait()
    with latewood.open(tmp_path / "log") as log:
        assert log.append(b"mine") == 1


def test_a_log_that_could_not_be_opened_is_not_left_locked(desk: Desk) -> None:
    desk.open().close()
    pointer = ROOT / "manifest.current"
    desk.overwrite(pointer, b"\x09")
    with pytest.raises(ManifestCorrupted):
        desk.open()
    desk.overwrite(pointer, b"\x01")
    desk.open()


def descriptors() -> set[str]:
    return {str(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists()}


@pytest.mark.needs("proc")
def test_opening_and_closing_leaves_no_descriptor_open(tmp_path: Path) -> None:
    def use() -> None:
        with latewood.open(tmp_path / "log", segment_bytes_max=512) as log:
            log.append_many([b"x"] * 50)
            with log.reader("billing") as reader:
                assert reader.next() is not None
                reader.commit()
            payloads(log)
            log.read(20)
        with latewood.open(tmp_path / "log", mode="r") as log:
            payloads(log)

    use()
    before = descriptors()
    for _ in range(3):
        use()
    assert descriptors() == before


@pytest.mark.needs("proc")
@pytest.mark.parametrize(
    "damage", ["manifest.1", "manifest.2", "segments/*/*/*/000000001.q", "segments/*/*/*/000000000.q"]
)
def test_a_log_that_cannot_be_opened_leaves_no_descriptor_open(tmp_path: Path, damage: str) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=512) as log:
        log.append(b"a")
        log.roll()
        log.append(b"b")
    (path,) = (tmp_path / "log").glob(damage)
    path.write_bytes(b"damaged")
    before = descriptors()
    for _ in range(3):
        try:
            latewood.open(tmp_path / "log").close()
        except CorruptError:
            continue
    assert descriptors() == before


@pytest.mark.needs("proc")
def test_a_log_that_is_refused_beside_newer_segments_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=512) as log:
        log.append(b"a")
        log.flush()
        old = {path: path.read_bytes() for path in log.path.glob("manifest.*")}
        log.roll()
        log.append(b"b")
    for path, data in old.items():
        path.write_bytes(data)
    before = descriptors()
    for _ in range(3):
        with pytest.raises(ManifestCorrupted, match="the manifest does not know it"):
            latewood.open(tmp_path / "log")
    assert descriptors() == before


def refuse(*_: object) -> None:
    raise StorageError("an input/output error")


@pytest.mark.needs("proc")
def test_a_first_segment_that_cannot_get_its_name_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    monkeypatch.setattr(PosixFS, "rename_new", refuse)
    with pytest.raises(StorageError):
        latewood.open(tmp_path / "log", background=False)
    assert descriptors() == before


@pytest.mark.needs("proc")
@pytest.mark.parametrize(
    ("kind", "step"), [(PosixFS, "rename_new"), (ManifestStore, "publish"), (Durability, "write_first_checkpoint")]
)
def test_a_roll_that_fails_leaves_no_descriptor_open_once_the_log_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type, step: str
) -> None:
    before = descriptors()
    log = latewood.open(tmp_path / "log", segment_bytes_max=512, background=False)
    log.append(b"a")
    with monkeypatch.context() as patched:
        patched.setattr(kind, step, refuse)
        with pytest.raises(Poisoned):
            log.roll()
        log.close()
    assert descriptors() == before


def test_a_crash_that_cannot_be_mended_now_leaves_nothing_open(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    desk.fs.fail("pwrite", "manifest.2", StorageError("no"))
    with pytest.raises(ClosedError):
        log.roll()
    desk.kill()
    with pytest.raises(StorageError):
        desk.open()
    desk.fs.heal()
    log = desk.open()
    assert payloads(log) == [b"a"]
    assert sealed_ids(log) == [0]


# -- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        RecordTooLarge(10, 5),
        Locked(Path("q/writer.lock"), 42),
        UnsupportedVersion("manifest", 2, Path("q/manifest.1")),
        CorruptError("bad", Path("q/x"), 7),
        ManifestCorrupted("bad", Path("q/manifest.1"), 7),
        DataLost(3, 9),
        ClosedError("closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_to_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert (copy.args, str(copy)) == (error.args, str(error))


def test_two_logs_in_one_process_do_not_meet() -> None:
    fs = MemFS()
    with (
        latewood.open("one", fs=fs, segment_bytes_max=512) as one,
        latewood.open("two", fs=fs, segment_bytes_max=512) as two,
    ):
        one.append(b"1")
        two.append(b"2")
        assert (payloads(one), payloads(two)) == ([b"1"], [b"2"])


def test_a_log_may_begin_where_another_ends(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", first_sequence=1000, keyed=True) as log:
        assert (log.first_sequence, log.next_sequence) == (1000, 1000)
        assert log.append(b"first") == 1000
        log.roll()
        assert log.append(b"second") == 1001
    with latewood.open(tmp_path / "log") as log:
        assert [record.sequence for record in log.scan()] == [1000, 1001]
        assert log.append(b"third") == 1002
    with pytest.raises(latewood.UsageError, match="first_sequence"):
        latewood.open(tmp_path / "other", first_sequence=-1)


@pytest.mark.parametrize("mark", ["catalog.mdb", "databases/00000001-clicks/database.json"])
def test_no_log_is_made_in_the_directory_of_a_store(tmp_path: Path, mark: str) -> None:
    store = tmp_path / "lake"
    latewood.open(store / "old").close()
    (store / mark).parent.mkdir(parents=True, exist_ok=True)
    (store / mark).touch()
    with pytest.raises(UsageError, match=r"Store\.open\('.*lake'\)\.database\('clicks'\)"):
        latewood.open(store / "clicks")
    assert not (store / "clicks").exists()
    latewood.open(store / "old").close()  # What is there stays readable, and writable.
