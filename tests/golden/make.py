"""The golden logs: how they were written, and what is to be seen in them.

The committed ones, in `v1` and `v2`, are never written again: a format that changes gets a new version, and that its
own folder beside the old ones.  `closed` was closed in good order.  `killed` is the same log a moment earlier, as a
killed writer leaves it: neither its manifest nor its checkpoint knows the last records.

    python -m tests.golden.make freeze DIRECTORY    the logs and expected.json, in a folder that is not there yet
    python -m tests.golden.make write DIRECTORY     the logs alone
    python -m tests.golden.make show LOG a|r        what is to be seen in one, opened to append or to read
    python -m tests.golden.make kernel              native or pure
"""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import latewood
from latewood import Queue, kernel
from latewood.log import Mode
from latewood.log.layout import Layout
from latewood.log.listing import list_segments
from latewood.queue.verify import verify_queue
from latewood.testing import FakeClock
from latewood.testing.fake_clock import START_NS

LOGS: Final = ("closed", "killed")
MODES: Final[tuple[Mode, ...]] = ("r", "a")
EXPECTED: Final = "expected.json"
DAY_S: Final = 86_400
HOUR_NS: Final = 3_600 * 1_000_000_000
SHOWN_AT_NS: Final = START_NS + 7 * 24 * HOUR_NS
U64_MAX: Final = (1 << 64) - 1
BIRTH: Final = b"identity of oaks"

Shown = dict[str, Any]


def is_of_a_format(path: Path) -> bool:
    """Say whether a file's bytes are frozen: not those of locks, nor of the words on which readers sleep."""
    return path.suffix != ".lock" and path.name != "wake"


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file of a format under `root`, by its path in there."""
    paths = sorted(path for path in root.rglob("*") if path.is_file() and is_of_a_format(path))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


# -- writing ----------------------------------------------------------------------------------------------


class Scribe:
    """Writes one log, and keeps account of every record by itself: the log is not asked what it holds."""

    def __init__(self, root: Path) -> None:
        self._root, self._clock = root, FakeClock()
        self.records: list[Shown] = []

    def write(self, killed: Path) -> None:
        """Write segments and readers, and a copy of the log in `killed` while it is still open."""
        with self._opened(segment_bytes_max=512, index_interval=4) as log:
            self._fill_exactly(log)
            self._begin_cohort(log)
            self._append_the_largest(log)
        with self._opened(segment_bytes_max=2048, index_interval=1) as log:
            self._append_a_batch(log)
            self._append_to_the_open_segment(log)
            self._place_readers(log)
            self._append(log, b"after the last flush", ext_id=86)
            self._append(log, b"and one more")
            self._copy(killed)

    def _opened(self, *, segment_bytes_max: int, index_interval: int) -> Queue:
        return latewood.open(
            self._root,
            segment_bytes_max=segment_bytes_max,
            index_interval=index_interval,
            clock=self._clock,
            background=False,
            birth=BIRTH,
        )

    def _fill_exactly(self, log: Queue) -> None:
        """Segment 0: fourteen records that fill it to the last byte, so that the next one rolls it."""
        for number in range(14):
            self._append(log, b"rec-%04d" % number)
        log.coordinator_watermark = 41

    def _begin_cohort(self, log: Queue) -> None:
        """Segment 1: one empty record.  Segment 2: a cohort, ids of the records' own, and a clock that jumps."""
        self._append(log, b"")
        self._clock.advance(seconds=DAY_S)
        log.set_ext_id(7)
        for number, ext_id in enumerate([70, U64_MAX, 1, 72]):
            self._append(log, bytes(range(number * 5)), ext_id=ext_id)
        self._append(log, b"an hour before", ext_id=73, timestamp_ns=self._clock.now_ns() - HOUR_NS)
        log.coordinator_watermark = 42
        log.roll()

    def _append_the_largest(self, log: Queue) -> None:
        """Segment 3: one record, and nothing else would fit."""
        self._clock.advance(seconds=DAY_S)
        self._append(log, b"\xff" * 424, ext_id=80)
        log.set_ext_id(0)

    def _append_a_batch(self, log: Queue) -> None:
        """Segments 4 and 5: a batch of forty across a roll.  Segment 4 was begun under the options before."""
        payloads = [b"batch %d" % number for number in range(40)]
        log.append_many(payloads, ext_ids=range(100, 140), timestamps_ns=self._clock.now_ns())
        self._note(payloads, range(100, 140), self._clock.now_ns())
        self._clock.advance(seconds=1)
        log.roll()

    def _append_to_the_open_segment(self, log: Queue) -> None:
        """Segment 6: still open."""
        for text in ("Jahrring", "год", "年輪"):
            self._append(log, text.encode(), ext_id=85)
        log.flush()

    def _place_readers(self, log: Queue) -> None:
        """Two readers of today, and two of older programs: {segment_id, offset}, and {offset} in segment 0."""
        with log.reader("billing") as reader:
            for count in (3, 14):  # The second ends with segment 0.
                self._clock.advance(seconds=1)
                reader.poll(count)
                reader.commit()
        log.reader("fresh", start="latest").close()
        older = self._root / "readers"
        (older / "older.meta").write_bytes((2).to_bytes(8, "little") + (88).to_bytes(8, "little"))
        (older / "oldest.meta").write_bytes((128).to_bytes(8, "little"))

    def _append(self, log: Queue, payload: bytes, *, ext_id: int = 0, timestamp_ns: int | None = None) -> None:
        self._clock.advance(ms=1)
        log.append(payload, ext_id=ext_id, timestamp_ns=timestamp_ns)
        self._note([payload], [ext_id], timestamp_ns or self._clock.now_ns())

    def _note(self, payloads: list[bytes], ext_ids: Sequence[int], timestamp_ns: int) -> None:
        for payload, ext_id in zip(payloads, ext_ids, strict=True):
            self.records.append(shown_record(len(self.records), timestamp_ns, ext_id, payload))

    def _copy(self, target: Path) -> None:
        for name, raw in files_of(self._root).items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(raw)


def write(directory: Path) -> list[Shown]:
    """Write all golden logs with today's code, and return the records that went into each."""
    scribe = Scribe(directory / "closed")
    scribe.write(directory / "killed")
    for path in (directory / "closed").rglob("*"):
        if path.is_file() and not is_of_a_format(path):
            path.unlink()
    return scribe.records


# -- reading ----------------------------------------------------------------------------------------------


def show(root: Path, mode: Mode) -> Shown:
    """Return what is to be seen in a log; where its readers go on is asked last, for that may store it."""
    with latewood.open(root, mode=mode, clock=FakeClock(SHOWN_AT_NS), background=False) as log:
        verification = verify_queue(log.file_system, Layout(root), deep=True)
        return {
            "records": [shown_record(*record) for record in log.scan()],
            "segments": [_plain(segment._asdict(), root) for segment in list_segments(log)],
            "readers": [reader._asdict() for reader in log.readers()],
            "stats": _plain(asdict(log.stats()), root),
            "verified_records": verification.records_checked,
            "findings": [finding.problem for finding in verification.findings],
            "resume_at": {reader.name: _resumed(log, reader.name) for reader in log.readers()},
        }


def _resumed(log: Queue, name: str) -> int:
    with log.reader(name) as reader:
        return reader.sequence


def shown_record(sequence: int, timestamp_ns: int, ext_id: int, payload: bytes) -> Shown:
    """Return a record as it is in expected.json."""
    return {"sequence": sequence, "timestamp_ns": timestamp_ns, "ext_id": ext_id, "payload": payload.hex()}


def _plain(fields: Shown, root: Path) -> Shown:
    """Return what is the same in every directory and on every kernel."""
    path = fields["path"].relative_to(root).as_posix()
    return {name: value for name, value in fields.items() if name != "kernel"} | {"path": path}


# -- freezing ---------------------------------------------------------------------------------------------


def freeze(directory: Path) -> None:
    """Write the logs of a new version, and what is to be seen in them."""
    directory.mkdir(parents=True)  # It is an error if it is there: what is frozen stays.
    records = write(directory)
    shown = {log: {mode: _shown_in_a_copy(directory / log, mode) for mode in MODES} for log in LOGS}
    stats = {log: {mode: shown[log][mode].pop("stats") for mode in MODES} for log in LOGS}
    same = shown["closed"]["r"] | {"records": records}
    assert all(shown[log][mode] == same for log in LOGS for mode in MODES)
    (directory / EXPECTED).write_text(json.dumps(same | {"stats": stats}, indent=1) + "\n")


def expected(directory: Path, log: str, mode: Mode) -> Shown:
    """Return what must be seen in a frozen log: but for the figures, the same in all of them."""
    frozen: Shown = json.loads((directory / EXPECTED).read_text())
    return frozen | {"stats": frozen["stats"][log][mode]}


def _shown_in_a_copy(root: Path, mode: Mode) -> Shown:
    with TemporaryDirectory() as copy:
        shutil.copytree(root, copy, dirs_exist_ok=True)
        return show(Path(copy), mode)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["freeze", directory]:
            freeze(Path(directory))
        case ["write", directory]:
            write(Path(directory))
        case ["show", root, ("a" | "r") as mode]:
            print(json.dumps(show(Path(root), mode)))
        case ["kernel"]:
            print(kernel.NAME)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
