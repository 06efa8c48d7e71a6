"""Logs without sealed segments of older versions: today's code reads them, goes on, and keeps their watermark."""

import json
import shutil
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.log import Mode
from tests.golden.make import MODES
from tests.golden.retired import LOG, SEALED, WATERMARK, expected, freeze, show, write
from tests.golden.test_golden import run

FOLDERS: Final = [Path(__file__).parent / version / "retired" for version in ("v1", "v2")]
VERSION_1, VERSION_2 = FOLDERS
each_version = pytest.mark.parametrize("folder", FOLDERS, ids=["v1", "v2"])


def copied(folder: Path, target: Path) -> Path:
    return shutil.copytree(folder / LOG, target / LOG)


@each_version
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [pytest.param("native", marks=pytest.mark.needs("native")), "pure"])
def test_a_log_without_sealed_segments_shows_all_that_stayed(
    kernel: str, mode: Mode, folder: Path, tmp_path: Path
) -> None:
    shown = json.loads(run("tests.golden.retired", kernel, "show", copied(folder, tmp_path), mode))
    assert shown == expected(folder, mode)


@each_version
def test_what_is_expected_of_the_log_is_what_was_appended(folder: Path, tmp_path: Path) -> None:
    assert write(tmp_path) == expected(folder, "a")["records"]


@each_version
def test_only_the_open_segment_is_left_and_the_watermark_is_not_that_of_a_new_log(folder: Path) -> None:
    frozen = expected(folder, "a")
    assert [segment["state"] for segment in frozen["segments"]] == ["open"]
    assert len(list((folder / LOG).rglob("*.q"))) == 1
    assert frozen["coordinator_watermark"] == WATERMARK


def test_the_watermark_stays_though_the_sealed_pointer_is_lost(tmp_path: Path) -> None:
    copy = copied(VERSION_2, tmp_path)
    (copy / "segments" / "current.sealed").unlink()
    assert show(copy, "a")["coordinator_watermark"] == WATERMARK


def test_a_watermark_of_version_1_that_is_lost_with_the_sealed_pointer_is_not_lost_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copied(VERSION_1, tmp_path)
    (copy / "segments" / "current.sealed").unlink()
    latewood.open(copy, background=False).close()
    assert "current.sealed is missing, and it alone had the coordinator watermark" in caplog.text


@each_version
def test_the_watermark_stays_when_the_log_goes_on_and_rolls(folder: Path, tmp_path: Path) -> None:
    copy = copied(folder, tmp_path)
    with latewood.open(copy, background=False) as log:
        assert log.coordinator_watermark == WATERMARK
        assert log.append(b"of today") == SEALED + 3
        log.roll()
    with latewood.open(copy, background=False) as log:
        assert log.coordinator_watermark == WATERMARK
        assert log.append(b"in a new segment") == SEALED + 4
    before = expected(folder, "r")["records"]
    records = show(copy, "r")["records"]
    assert records[:-2] == before
    assert [bytes.fromhex(record["payload"]) for record in records[-2:]] == [b"of today", b"in a new segment"]


def test_the_log_that_is_frozen_cannot_be_frozen_again() -> None:
    with pytest.raises(FileExistsError):
        freeze(VERSION_2)
