"""Logs that the commands are tried on."""

from pathlib import Path

import pytest

import latewood


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of 100 records in segments of 4 KiB, some of them sealed."""
    path = tmp_path / "events"
    with latewood.open(path, segment_bytes_max=1024) as opened:
        opened.append_many([b"record %d" % number for number in range(100)], timestamps_ns=range(1000, 101_000, 1000))
    return path


@pytest.fixture
def sealed(log: Path) -> Path:
    """Return the oldest segment of the log."""
    return min(log.glob("segments/*/*/*/*.q"))


def flip(path: Path, offset: int) -> None:
    """Damage one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)
