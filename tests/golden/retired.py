"""The golden log without sealed segments: how it was written, and what is to be seen in it.

The committed ones, `v1/retired` and `v2/retired`, are never written again.  All sealed segments are retired, so that in
version 1 `segments/current.sealed` is the only file that holds the coordinator watermark.

    python -m tests.golden.retired freeze DIRECTORY    the log and expected.json, in a folder that is not there yet
    python -m tests.golden.retired show LOG a|r        what is to be seen in one, opened to append or to read
"""

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import latewood
from latewood.log import LogOptions, Mode
from latewood.testing import FakeClock
from tests.golden import make
from tests.golden.make import BIRTH, EXPECTED, MODES, SHOWN_AT_NS, Shown, files_of

LOG: Final = "log"
WATERMARK: Final = 40
SEALED: Final = 30
"""Records in segments that are retired."""


def write(root: Path) -> list[Shown]:
    """Write the log with today's code, and return the records that stay."""
    clock, records = FakeClock(), list[Shown]()
    options = LogOptions(segment_bytes_max=512, index_interval=4)
    with latewood.open(root, options, clock=clock, background=False, birth=BIRTH) as log:
        for number in range(SEALED):
            clock.advance(ms=1)
            log.append(b"goes %d" % number, ext_id=number)
        log.coordinator_watermark = WATERMARK
        log.roll()
        for number in range(3):
            clock.advance(ms=1)
            payload, ext_id = b"stays %d" % number, 100 + number
            sequence = log.append(payload, ext_id=ext_id)
            records.append(make.shown_record(sequence, clock.now_ns(), ext_id, payload))
        log.flush()
        with log.reader("billing") as reader:
            for _ in range(SEALED + 1):
                reader.next()
            reader.commit()
        assert log.cleanup()
    return records


def show(root: Path, mode: Mode) -> Shown:
    """Return what is to be seen in the log."""
    shown = make.show(root, mode)
    del shown["stats"]
    if mode == "r":  # A log that is opened to read does not say its watermark.
        return shown
    with latewood.open(root, clock=FakeClock(SHOWN_AT_NS), background=False) as log:
        return shown | {"coordinator_watermark": log.coordinator_watermark}


def freeze(directory: Path) -> None:
    """Write the log of a new version, and what is to be seen in it."""
    directory.mkdir(parents=True)  # It is an error if it is there: what is frozen stays.
    with TemporaryDirectory() as root:
        records = write(Path(root))
        for name, raw in files_of(Path(root)).items():
            (directory / LOG / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / LOG / name).write_bytes(raw)
    found = []
    for mode in MODES:
        with TemporaryDirectory() as copy:
            shutil.copytree(directory / LOG, copy, dirs_exist_ok=True)
            found.append(show(Path(copy), mode))
    read, written = found
    assert written == read | {"coordinator_watermark": WATERMARK}
    assert written["records"] == records
    (directory / EXPECTED).write_text(json.dumps(written, indent=1) + "\n")


def expected(directory: Path, mode: Mode) -> Shown:
    """Return what must be seen in the frozen log."""
    frozen: Shown = json.loads((directory / EXPECTED).read_text())
    if mode == "r":
        del frozen["coordinator_watermark"]
    return frozen


def main(arguments: list[str]) -> None:
    match arguments:
        case ["freeze", directory]:
            freeze(Path(directory))
        case ["show", root, ("a" | "r") as mode]:
            print(json.dumps(show(Path(root), mode)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
