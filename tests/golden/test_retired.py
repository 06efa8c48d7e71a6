"""A log of version 1 without sealed segments: today's code reads it, goes on with it, and keeps its watermark."""

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

VERSION_1: Final = Path(__file__).parent / "v1" / "retired"


def copied(target: Path) -> Path:
    return shutil.copytree(VERSION_1 / LOG, target / LOG)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [pytest.param("native", marks=pytest.mark.needs("native")), "pure"])
def test_a_log_of_version_1_without_sealed_segments_shows_all_that_stayed(
    kernel: str, mode: Mode, tmp_path: Path
) -> None:
    shown = json.loads(run("tests.golden.retired", kernel, "show", copied(tmp_path), mode))
    assert shown == expected(VERSION_1, mode)


def test_what_is_expected_of_the_log_is_what_was_appended(tmp_path: Path) -> None:
    assert write(tmp_path) == expected(VERSION_1, "a")["records"]


def test_only_the_open_segment_is_left_and_the_watermark_is_not_that_of_a_new_log() -> None:
    frozen = expected(VERSION_1, "a")
    assert [segment["state"] for segment in frozen["segments"]] == ["open"]
    assert len(list((VERSION_1 / LOG).rglob("*.q"))) == 1
    assert frozen["coordinator_watermark"] == WATERMARK


def test_the_watermark_stays_when_the_log_goes_on_and_rolls(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    with latewood.open(copy, background=False) as log:
        assert log.coordinator_watermark == WATERMARK
        assert log.append(b"of today") == SEALED + 3
        log.roll()
    with latewood.open(copy, background=False) as log:
        assert log.coordinator_watermark == WATERMARK
        assert log.append(b"in a new segment") == SEALED + 4
    before = expected(VERSION_1, "r")["records"]
    records = show(copy, "r")["records"]
    assert records[:-2] == before
    assert [bytes.fromhex(record["payload"]) for record in records[-2:]] == [b"of today", b"in a new segment"]


def test_the_log_that_is_frozen_cannot_be_frozen_again() -> None:
    with pytest.raises(FileExistsError):
        freeze(VERSION_1)
