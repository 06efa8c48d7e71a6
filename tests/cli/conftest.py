"""Logs that the commands are tried on."""

import shutil
from pathlib import Path

import pytest

import latewood


@pytest.fixture(scope="session")
def log_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of 100 records in segments of 1 KiB, all but the last of them sealed; not to be changed."""
    path = tmp_path_factory.mktemp("template") / "events"
    with latewood.open(path, segment_bytes_max=1024) as opened:
        opened.append_many([b"record %d" % number for number in range(100)], timestamps_ns=range(1000, 101_000, 1000))
    return path


@pytest.fixture
def log(log_template: Path, tmp_path: Path) -> Path:
    """Return a copy of it, which is quicker to make than a log: nothing is synced."""
    return Path(shutil.copytree(log_template, tmp_path / "events"))


@pytest.fixture
def sealed(log: Path) -> Path:
    """Return the oldest segment of the log."""
    return min(log.glob("segments/*/*/*/*.q"))


def flip(path: Path, offset: int) -> None:
    """Damage one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)
