"""Logs of each version: today's code reads them, goes on with them, and writes the same bytes as the latest."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.fs import PosixFS
from latewood.log import Mode, Owner
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from tests.golden.make import BIRTH, LOGS, MODES, Shown, expected, files_of, freeze, show, write

VERSION_1: Final = Path(__file__).parent / "v1"
VERSION_2: Final = Path(__file__).parent / "v2"
each_version = pytest.mark.parametrize("version", [VERSION_1, VERSION_2], ids=["v1", "v2"])
ROOT: Final = Path(__file__).parents[2]
PURE: Final = {"native": "0", "pure": "1"}


def make(kernel: str, *arguments: object) -> str:
    """Run the script that makes logs on a kernel of our choice."""
    return run("tests.golden.make", kernel, *arguments)


def run(module: str, kernel: str, *arguments: object) -> str:
    """Run a module on a kernel of our choice, and return what it prints."""
    search = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=os.environ | {"LATEWOOD_PURE": PURE[kernel], "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


def differences(golden: Path, fresh: Path) -> list[str]:
    """Say which files of a format are not the same, and where they first differ."""
    old, new = files_of(golden), files_of(fresh)
    found = [f"{name}: is missing" for name in old.keys() - new.keys()]
    found += [f"{name}: is new" for name in new.keys() - old.keys()]
    both = old.keys() & new.keys()
    found += [f"{name}: differs at byte {_fork(old[name], new[name])}" for name in both if old[name] != new[name]]
    return sorted(found)


def _fork(old: bytes, new: bytes) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def copied(version: Path, log: str, target: Path) -> Path:
    return shutil.copytree(version / log, target / log)


def expected_now(version: Path, log: str, mode: Mode) -> Shown:
    """Return what must be seen in a frozen log today: opened to append, one of version 1 gets another manifest."""
    wanted = expected(version, log, mode)
    wanted["stats"]["manifest_generation"] += mode == "a" and version == VERSION_1
    return wanted


@pytest.fixture(scope="module", params=[pytest.param("native", marks=pytest.mark.needs("native")), "pure"])
def kernel(request: pytest.FixtureRequest) -> str:
    """Return the name of one kernel after the other."""
    name: str = request.param
    assert make(name, "kernel").strip() == name
    return name


# -- reading ----------------------------------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("log", LOGS)
def test_a_log_shows_all_that_went_into_it(kernel: str, log: str, mode: Mode, version: Path, tmp_path: Path) -> None:
    shown: Shown = json.loads(make(kernel, "show", copied(version, log, tmp_path), mode))
    assert shown == expected_now(version, log, mode)


@each_version
def test_what_is_expected_is_what_was_appended(version: Path, tmp_path: Path) -> None:
    assert write(tmp_path) == expected(version, "closed", "r")["records"]


@each_version
@pytest.mark.parametrize("log", LOGS)
def test_reading_a_log_changes_none_of_its_files(log: str, version: Path, tmp_path: Path) -> None:
    copy = copied(version, log, tmp_path)
    with latewood.open(copy, mode="r") as opened:
        assert sum(1 for _ in opened.scan()) == opened.stats().record_count
    assert [path for path in copy.rglob("*") if path.name in ("wake", "writer.lock")] == []
    assert differences(version / log, copy) == []


@each_version
@pytest.mark.parametrize("log", LOGS)
def test_a_lost_manifest_is_made_again_from_segments(log: str, version: Path, tmp_path: Path) -> None:
    copy = copied(version, log, tmp_path)
    for manifest in copy.glob("manifest.*"):
        manifest.unlink()
    assert rebuild(PosixFS(), Layout(copy)).problems == []
    shown, wanted = show(copy, "a"), expected(version, log, "a")
    for part in ("records", "segments", "readers", "resume_at"):
        assert shown[part] == wanted[part]


# -- going on ---------------------------------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("log", LOGS)
def test_a_log_goes_on_where_it_ended(log: str, version: Path, tmp_path: Path) -> None:
    copy = copied(version, log, tmp_path)
    before = expected(version, log, "r")["records"]
    with latewood.open(copy, background=False) as opened:
        assert opened.coordinator_watermark == 42
        assert opened.append(b"of today") == len(before)
        opened.roll()
        assert opened.append(b"in a new segment") == len(before) + 1
    records = show(copy, "r")["records"]
    assert records[:-2] == before
    assert [bytes.fromhex(record["payload"]) for record in records[-2:]] == [b"of today", b"in a new segment"]


def test_opening_a_closed_log_to_append_changes_nothing_by_itself(tmp_path: Path) -> None:
    copy = copied(VERSION_2, "closed", tmp_path)
    latewood.open(copy, background=False).close()
    assert differences(VERSION_2 / "closed", copy) == []


@pytest.mark.parametrize("log", LOGS)
def test_opening_a_log_of_version_1_to_append_upgrades_it_once_with_a_message(
    log: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copied(VERSION_1, log, tmp_path)
    with latewood.open(copy, mode="r") as opened:
        assert (opened.identity, opened.mark) == (None, None)
    with latewood.open(copy, background=False, birth=BIRTH) as opened:
        identity = opened.identity
    assert identity is not None
    assert (identity.identity, identity.owner) == (BIRTH, Owner.ANYBODY)
    assert caplog.text.count(f"{copy} was upgraded to format 2; older programs cannot open it any more") == 1
    upgraded = files_of(copy)
    with latewood.open(copy, background=False, birth=b"something else..") as opened:
        assert opened.identity == identity
    assert files_of(copy) == upgraded
    assert caplog.text.count("upgraded") == 1


@pytest.mark.parametrize("log", LOGS)
def test_an_upgrade_changes_the_manifest_adds_the_identity_and_loses_nothing(log: str, tmp_path: Path) -> None:
    copy = copied(VERSION_1, log, tmp_path)
    latewood.open(copy, background=False).close()
    changed = {line.partition(":")[0] for line in differences(VERSION_1 / log, copy)}
    assert "identity" in changed
    assert changed <= {"identity", "index.meta", "manifest.1", "manifest.2", "manifest.current"}
    shown, wanted = show(copy, "r"), expected(VERSION_1, log, "r")
    assert {name: shown[name] for name in shown if name != "stats"} == {
        name: wanted[name] for name in wanted if name != "stats"
    }
    with latewood.open(copy, mode="r") as opened:
        entries = opened.view().manifest.entries
        cohorts = [entries[index].ext_id for index in range(len(entries))]
        assert cohorts == [segment["ext_id"] for segment in wanted["segments"][:-1]]
        assert any(cohorts)


@each_version
@pytest.mark.parametrize("log", LOGS)
def test_a_sealed_segment_is_never_written_again(log: str, version: Path, tmp_path: Path) -> None:
    copy = copied(version, log, tmp_path)
    with latewood.open(copy, background=False) as opened:
        opened.append(b"of today")
    segments = expected(version, log, "r")["segments"]
    sealed = [segment["path"] for segment in segments if segment["state"] == "sealed"]
    assert len(sealed) == 6
    for path in sealed:
        assert (copy / path).read_bytes() == (version / log / path).read_bytes()


@pytest.mark.parametrize(("name", "size", "resumes_at"), [("oldest", 8, 2), ("older", 16, 16)])
def test_a_reader_of_an_older_program_goes_on_and_gets_a_file_of_today(
    name: str, size: int, resumes_at: int, tmp_path: Path
) -> None:
    path = copied(VERSION_1, "closed", tmp_path) / "readers" / f"{name}.meta"
    assert path.stat().st_size == size
    with latewood.open(tmp_path / "closed", background=False) as opened, opened.reader(name) as reader:
        record = reader.next()
    assert record is not None
    assert record.sequence == resumes_at
    assert path.read_bytes()[4096:4104] == b"LWCURSOR"


# -- writing ----------------------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes_on_either_kernel(kernel: str, tmp_path: Path) -> None:
    make(kernel, "write", tmp_path)
    for log in LOGS:
        found = differences(VERSION_2 / log, tmp_path / log)
        assert not found, "\n".join([f"{log}: formats are frozen; give the new one a version", *found])


@each_version
def test_every_kind_of_file_is_among_the_frozen_ones(version: Path) -> None:
    for log in LOGS:
        names = files_of(version / log).keys()
        assert {"manifest.1", "manifest.2", "manifest.current", "index.meta", "segments/current.sealed"} <= names
        assert ("identity" in names) == (version == VERSION_2)
        assert sum(name.endswith(".q") for name in names) == 7
        readers = {name for name in names if name.startswith("readers/")}
        assert readers == {f"readers/{name}.meta" for name in ("billing", "fresh", "older", "oldest")}


def test_a_byte_that_changed_a_file_too_few_and_one_too_many_are_found(tmp_path: Path) -> None:
    copy = copied(VERSION_1, "closed", tmp_path)
    raw = bytearray((copy / "index.meta").read_bytes())
    raw[40] ^= 1
    (copy / "index.meta").write_bytes(raw)
    (copy / "manifest.current").unlink()
    (copy / "manifest.3").touch()
    assert differences(VERSION_1 / "closed", copy) == [
        "index.meta: differs at byte 40",
        "manifest.3: is new",
        "manifest.current: is missing",
    ]


def test_what_is_frozen_cannot_be_frozen_again() -> None:
    with pytest.raises(FileExistsError):
        freeze(VERSION_2)
