"""Which directories may become a log, and what is said of those that are none."""

from pathlib import Path

import pytest

import latewood
from latewood import NotFoundError, UsageError
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.verify import verify_log
from tests.log.desk import Desk, payloads


@pytest.mark.parametrize("name", ["notes.txt", "src", "manifest.json"])
def test_a_directory_with_other_files_does_not_become_a_log(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=rf"is not a log, and not empty \({name}\); name a new or an empty directory"):
        latewood.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", [".gitkeep", ".DS_Store", "lost+found"])
def test_hidden_files_and_what_an_empty_disk_has_do_no_harm(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with latewood.open(tmp_path) as log:
        log.append(b"x")
    with latewood.open(tmp_path) as log:
        assert payloads(log) == [b"x"]


def test_a_log_that_somebody_put_a_file_into_is_one_still(tmp_path: Path) -> None:
    latewood.open(tmp_path / "log").close()
    (tmp_path / "log" / "notes.txt").touch()
    latewood.open(tmp_path / "log").close()


@pytest.mark.parametrize("left", [["writer.lock"], ["writer.lock", "wake", "manifest.1"], ["readers", "writer.lock"]])
def test_a_creation_that_was_cut_short_is_finished(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).touch() if name != "readers" else (tmp_path / name).mkdir()
    latewood.open(tmp_path).close()
    latewood.open(tmp_path, mode="r").close()


def test_a_creation_that_was_cut_short_is_called_that(desk: Desk) -> None:
    desk.open().close()
    for path in desk.segment_paths():
        desk.fs.remove(path)
    desk.fs.remove(desk.layout.checkpoint)
    with pytest.raises(NotFoundError, match=r"its creation was cut short.*`latewood init`.*finishes it"):
        desk.open_to_read()
    with pytest.raises(NotFoundError, match="its creation was cut short"):
        verify_log(desk.fs, desk.layout)
    desk.open()
    assert verify_log(desk.fs, desk.layout).is_sound


def test_a_creation_that_was_cut_shorter_is_called_that_too(tmp_path: Path) -> None:
    (tmp_path / "manifest.1").touch()
    with pytest.raises(NotFoundError, match="its creation was cut short"):
        verify_log(PosixFS(), Layout(tmp_path))


def test_nothing_is_called_nothing(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFoundError, match=r"there is no log at .*; `latewood init`"):
            verify_log(PosixFS(), Layout(path))
